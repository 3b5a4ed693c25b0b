"""The class of a model that names none: compiled from its declaration, once."""

from __future__ import annotations

from functools import cache

from ntk_deq.errors import ArgumentError
from ntk_deq.language.declaration import ModelSignature
from ntk_deq.language.rows import has_samples
from ntk_deq.systems.declared_model import DeclaredModel
from ntk_deq.systems.formula_model import FormulaModel
from ntk_deq.systems.whole_model import WholeModel


@cache
def compiled_class(signature: ModelSignature) -> type[DeclaredModel]:
    """Return the class of a model that is given by its formulas alone.

    One whose samples are seen not to interact works on them row by row. Of a system without an equilibrium that has no
    samples, or mixes them, only the loss is computed, as it stands.

    Args:
        signature: The declaration.

    Raises:
        ArgumentError: The formulas are ill-typed, or those of an equilibrium are not seen to treat samples apart.

    Example:
        >>> import torch
        >>> from dataclasses import replace
        >>> from ntk_deq.language.declaration import LINEAR_IMPLICIT
        >>> cls = compiled_class(replace(LINEAR_IMPLICIT, name="my-linear", implementation=""))
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> cls(W=one / 2, U=one, b=one[0]).step(2 * one, one)
        tensor([[2.]], dtype=torch.float64)
    """
    DeclaredModel.check_names(signature)
    if signature.has_equilibrium:
        return FormulaModel.of(signature)
    if not has_samples(signature):
        return WholeModel.of(signature, "it has no inputs, and so no samples")
    try:
        return FormulaModel.of(signature)
    except ArgumentError as error:
        return WholeModel.of(signature, str(error))
