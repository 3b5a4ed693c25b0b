"""Checks of a model's tensors against its signature: shapes, dtype, device, finite values."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ntk_deq.errors import ArgumentError
from ntk_deq.models.base import EquilibriumModel
from ntk_deq.models.signature import ModelSignature, Role

_FLOATS = (torch.float64, torch.float32)


def check_variables(signature: ModelSignature, values: Mapping[str, Tensor]) -> dict[str, int]:
    """Check tensors against the signature's shapes and against each other, and return the sizes they fix.

    Args:
        signature: The model's signature.
        values: Tensors by variable name; every name must be a variable of the signature.

    Returns:
        The value of each size letter that occurs in the shapes of `values`.

    Raises:
        ArgumentError: Wrong number of axes, sizes that disagree or are zero, a dtype other than float64 or float32,
            tensors of mixed dtype or device, NaN or Inf.

    Example:
        >>> from ntk_deq.models.registry import IMPLICIT_RELU
        >>> check_variables(IMPLICIT_RELU, {"W": torch.zeros(3, 2), "A": torch.zeros(2, 2)})
        {'d': 3, 'm': 2}
    """
    sizes: dict[str, tuple[int, str]] = {}
    first: tuple[str, Tensor] | None = None
    for name, value in values.items():
        _check_tensor(signature, name, value)
        for letter, size in zip(signature.variable(name).shape, value.shape, strict=True):
            known, owner = sizes.setdefault(letter, (size, name))
            if known != size:
                raise ArgumentError(
                    f"`{name}` of {signature.name} must be {_shape(signature, name)} with {letter} = {known} "
                    f"(as in `{owner}`). Got {tuple(value.shape)}."
                )
        first = first or (name, value)
        _check_alike(signature.name, first, (name, value))
        if not torch.isfinite(value).all():
            raise ArgumentError(f"`{name}` of {signature.name} must be finite. Got NaN or Inf in it.")
    return {letter: size for letter, (size, _) in sizes.items()}


def owned_variables(signature: ModelSignature, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Pick the parameters and hyperparameters of a model out of `values`.

    Raises:
        ArgumentError: One is missing; the message names all that are.

    Example:
        >>> from ntk_deq.models.registry import LINEAR_IMPLICIT
        >>> list(owned_variables(LINEAR_IMPLICIT, {"y": None, "b": None, "U": None, "W": None}))
        ['W', 'U', 'b']
    """
    owned = signature.names(Role.PARAMETER, Role.HYPERPARAMETER)
    missing = [name for name in owned if name not in values]
    if missing:
        got = ", ".join(values) or "none"
        raise ArgumentError(f"Variables of {signature.name} must include {', '.join(missing)}. Got {got}.")
    return {name: values[name] for name in owned}


def check_inputs(model: EquilibriumModel, X: Tensor) -> None:
    """Check that `X` is an input of the model: N x d with N >= 1, finite, with the parameters' dtype and device.

    Raises:
        ArgumentError: It is not; the message names the first thing that is wrong.

    Example:
        >>> from ntk_deq.models import ImplicitReLU
        >>> model = ImplicitReLU.random(3, 4, generator=torch.Generator().manual_seed(0))
        >>> check_inputs(model, torch.ones(2, 3, dtype=torch.float64))
    """
    (name,) = model.signature.names(Role.INPUT)
    check_variables(model.signature, {**model.parameters(), name: X})


def _check_tensor(signature: ModelSignature, name: str, value: Tensor) -> None:
    where = f"`{name}` of {signature.name}"
    shape = signature.variable(name).shape
    if not isinstance(value, Tensor):
        raise ArgumentError(f"{where} must be a torch tensor. Got {type(value).__name__}.")
    if value.dtype not in _FLOATS:
        raise ArgumentError(f"{where} must have dtype float64 or float32. Got {value.dtype}.")
    if value.ndim != len(shape):
        raise ArgumentError(f"{where} must be {_shape(signature, name)}. Got shape {tuple(value.shape)}.")
    if value.numel() == 0:
        raise ArgumentError(f"{where} must have every size >= 1. Got shape {tuple(value.shape)}.")


def _check_alike(model: str, first: tuple[str, Tensor], other: tuple[str, Tensor]) -> None:
    for attribute in ("dtype", "device"):
        expected, got = getattr(first[1], attribute), getattr(other[1], attribute)
        if expected != got:
            raise ArgumentError(
                f"`{other[0]}` of {model} must have the {attribute} of `{first[0]}`, {expected}. Got {got}."
            )


def _shape(signature: ModelSignature, name: str) -> str:
    shape = signature.variable(name).shape
    return f"a matrix {' x '.join(shape)}" if len(shape) == 2 else f"a vector of length {shape[0]}" if shape else "0-d"
