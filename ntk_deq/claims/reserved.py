"""Names that already mean something in the claim language or in a model, so that nothing else may be called so."""

from __future__ import annotations

from ntk_deq.claims.builder import KEYWORDS
from ntk_deq.claims.functions import FUNCTIONS
from ntk_deq.models.signature import ModelSignature


def reserved(name: str, model: ModelSignature | None) -> str | None:
    """Return what a name already means, or None where it is free.

    Example:
        >>> reserved("norm", None), reserved("beta", None)
        ('a function of the language', None)
    """
    if name in KEYWORDS:
        return "a word of the language"
    if name in FUNCTIONS:
        return "a function of the language"
    if model is not None and name == model.state:
        return f"the state of model {model.name}"
    if model is not None and name in model.definitions:
        return f"defined by model {model.name} as {model.definitions[name]}"
    return None
