"""What a system declares of its equilibrium made sure: a Lipschitz constant of the map, or one monotone layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NoReturn

from ntk_deq.errors import ExpressionError
from ntk_deq.language.calls import Parameter
from ntk_deq.language.declaration import ModelSignature
from ntk_deq.language.fixed_point_map import layer_weight, lipschitz_constant
from ntk_deq.language.format import format_expr
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.parser import parse
from ntk_deq.language.ranges import Ranges
from ntk_deq.language.tree import Expr, Kind, names_behind

_BEYOND = {Parameter.STATE, Parameter.VARIABLE}
_NOWHERE = (0, 0)


class CertificateError(ExpressionError):
    """A declared certificate is none, or the map cannot have it.

    Attributes:
        key: Where: `equilibrium`, `contraction` or `monotone`.
    """

    def __init__(self, key: str, error: ExpressionError) -> None:
        super().__init__(error.message, error.span, error.hint)
        self.key = key


def certified(
    draft: ModelSignature,
    image: Expr,
    definitions: Mapping[str, Expr],
    *,
    contraction: Expr | None,
    monotone: Expr | None,
) -> ModelSignature:
    """Return a declaration with what shows that its equilibrium exists.

    Args:
        draft: The declaration, its `contraction` and `monotone` as declared.
        image: The map, typed.
        definitions: The definitions, typed.
        contraction: The declared Lipschitz constant, typed, or None.
        monotone: The declared modulus, likewise.

    Raises:
        CertificateError: What is declared is no certificate of this map.
    """
    name = _of_the_model(image, definitions)
    if name is not None:
        _fail("equilibrium", f"`{name}` cannot stand in the map, or in a definition behind it.")
    for key, declared in (("contraction", contraction), ("monotone", monotone)):
        if declared is not None and draft.state in names_behind(declared, definitions):
            _fail(key, f"a certificate of `{draft.state}` cannot rest on `{draft.state}` itself.")
    try:
        known = lipschitz_constant(image, draft.state, definitions, depth=dict(draft.depth))
    except ExpressionError as error:
        if contraction is not None:
            raise CertificateError("equilibrium", error) from None
        known = ""
    if contraction is not None:
        return replace(draft, contraction=_larger(draft.contraction, contraction, known))
    if monotone is None:
        return replace(draft, contraction=known, local=True)
    if layer_weight(image, draft.state, definitions, shape=draft.state_shape) is None:
        _fail("monotone", "the map is not seen to be one layer, act(W*Z + C) or act(Z*W + C) with a proximal act.")
    if not Ranges({}, {}).of(monotone).high > 0:
        _fail("monotone", f"the modulus must be > 0. Got {draft.monotone}.")
    return replace(draft, contraction=known)


def _larger(text: str, declared: Expr, known: str) -> str:
    """Return the constant that is read off a map, or the declared one where that is larger.

    Every verdict rests on it, so that no declared constant is believed.
    """
    same = _factors(parse(known))
    largest = declared.args if declared.kind is Kind.CALL and declared.name == "max" else (declared,)
    return text if same in map(_factors, largest) else f"max({text}, {known})"


def _factors(expr: Expr) -> list[str]:
    """Return the factors of a product in one order."""
    if expr.kind is Kind.MULTIPLY:
        return sorted(factor for arg in expr.args for factor in _factors(arg))
    return [format_expr(expr)]


def _of_the_model(image: Expr, definitions: Mapping[str, Expr]) -> str | None:
    """Return what a map must not use, as it is about the model itself: its equilibrium, derivatives; or None."""
    for expr in (image, *(definitions[name] for name in names_behind(image, definitions) if name in definitions)):
        for node in expr.walk():
            if node.kind is Kind.AT or (node.kind is Kind.CALL and _BEYOND & set(FUNCTIONS[node.name].parameters)):
                return "at" if node.kind is Kind.AT else node.name
    return None


def _fail(key: str, message: str) -> NoReturn:
    raise CertificateError(key, ExpressionError(message, _NOWHERE))
