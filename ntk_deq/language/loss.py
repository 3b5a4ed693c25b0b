"""The loss that a model declares, as a formula of its predictions, its targets and sizes: what training minimises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from ntk_deq.errors import NtkDeqError
from ntk_deq.language.declaration import ModelSignature, Role
from ntk_deq.language.parser import parse
from ntk_deq.language.run import LOSS
from ntk_deq.language.tree import Expr, Kind, names_in

PREDICTIONS = "yhat"
"""What a model's predictions are called."""

STANDARD = "norm(yhat - y)^2/2"
"""The loss of a model that declares none."""

_OPERATORS = {Kind.NEGATE, Kind.ADD, Kind.SUBTRACT, Kind.MULTIPLY, Kind.DIVIDE, Kind.POWER, Kind.TRANSPOSE}
_FORMULA = {Kind.NUMBER, Kind.NAME, Kind.CALL, *_OPERATORS}
_OF_THE_MODEL = {"grad", "jac", "next", "fixed_point"}
_LARGEST = 2**500  # of a factor, so that it is a float with room, and so is its inverse
_LARGEST_POWER = 64


class ForeignLossError(NtkDeqError):
    """A declared loss is no formula of the predictions, the targets and sizes alone."""


@dataclass(frozen=True)
class DeclaredLoss:
    """A loss as a formula.

    Attributes:
        text: As declared.
        expr: The same with definitions written out, in the predictions, the targets and sizes.
        targets: Name of the targets.
    """

    text: str
    expr: Expr
    targets: str

    def multiple(self, sizes: Mapping[str, int]) -> Fraction | None:
        """Return the factor f > 0 where the loss is f norm(yhat - y)^2/2; None: it is not seen to be.

        Args:
            sizes: Values of the size letters.

        Example:
            >>> from ntk_deq.language.library import IMPLICIT_RELU
            >>> declared_loss(IMPLICIT_RELU).multiple({"N": 4})
            Fraction(1, 1)
        """
        factor = _Squares(self.targets, sizes).factor(self.expr)
        return factor if factor is not None and Fraction(1, _LARGEST) < factor < _LARGEST else None


def declared_loss(signature: ModelSignature) -> DeclaredLoss:
    """Return the loss of a model.

    Args:
        signature: Its declaration.

    Raises:
        ForeignLossError: The loss depends on something besides the predictions, the targets and sizes.

    Example:
        >>> from ntk_deq.language.library import LINEAR_IMPLICIT
        >>> declared_loss(LINEAR_IMPLICIT).text
        'norm(yhat - y)^2/2'
    """
    targets = signature.names(Role.TARGET)
    declared = tuple(signature.definitions.items())
    return _loss_of(signature.name, declared, targets[0] if len(targets) == 1 else "y", signature.sizes)


@lru_cache(maxsize=64)
def _loss_of(model: str, declared: tuple[tuple[str, str], ...], targets: str, sizes: tuple[str, ...]) -> DeclaredLoss:
    definitions = dict(declared)
    text = definitions.pop(LOSS, STANDARD)
    definitions.pop(PREDICTIONS, None)
    expr = _written_out(parse(text), definitions)
    foreign = sorted(names_in(expr) - {PREDICTIONS, targets, *sizes})
    foreign += sorted(
        {
            node.name or str(node.kind)
            for node in expr.walk()
            if node.kind not in _FORMULA or (node.kind is Kind.CALL and node.name in _OF_THE_MODEL)
        }
    )
    if foreign:
        raise ForeignLossError(
            f"Training minimises a loss of {PREDICTIONS}, {targets} and sizes; the model {model} declares "
            f"{LOSS} = {text}, in which {', '.join(foreign)} stands."
        )
    return DeclaredLoss(text, expr, targets)


def _written_out(expr: Expr, definitions: Mapping[str, str]) -> Expr:
    if expr.kind is Kind.NAME and expr.name in definitions:
        return _written_out(parse(definitions[expr.name]), definitions)
    return replace(expr, args=tuple(_written_out(arg, definitions) for arg in expr.args)) if expr.args else expr


@dataclass(frozen=True)
class _Squares:
    """Reads a formula as a multiple of norm(yhat - y)^2/2.

    Attributes:
        targets: Name of the targets.
        sizes: Values of the size letters.
    """

    targets: str
    sizes: Mapping[str, int]

    def factor(self, expr: Expr) -> Fraction | None:
        """Return f with f norm(yhat - y)^2/2 = `expr`, or None."""
        match expr.kind, *expr.args:
            case Kind.NEGATE, inner:
                return _product(Fraction(-1), self.factor(inner))
            case Kind.ADD | Kind.SUBTRACT, left, right:
                first, second = self.factor(left), self.factor(right)
                if first is None or second is None:
                    return None
                return first + second if expr.kind is Kind.ADD else first - second
            case Kind.DIVIDE, inner, divisor:
                return _product(self.factor(inner), _inverse(self.constant(divisor)))
            case Kind.POWER, base, exponent if base.kind is Kind.CALL and base.name in ("norm", "fro"):
                known = self.difference(base.args[0]) if self.constant(exponent) == 2 else None
                return _product(Fraction(2), _product(known, known))
            case Kind.MULTIPLY, left, right if left.kind is Kind.TRANSPOSE:
                return _product(Fraction(2), _product(self.difference(left.args[0]), self.difference(right)))
            case Kind.MULTIPLY, left, right:
                found = _product(self.constant(left), self.factor(right))
                return _product(self.factor(left), self.constant(right)) if found is None else found
            case Kind.CALL, left, right if expr.name == "dot":
                return _product(Fraction(2), _product(self.difference(left), self.difference(right)))
            case Kind.CALL, inner if expr.name == "sum" and inner.kind is Kind.CALL and inner.name == "hadamard":
                left, right = inner.args
                return _product(Fraction(2), _product(self.difference(left), self.difference(right)))
        return None

    def difference(self, expr: Expr) -> Fraction | None:
        """Return c with c (yhat - y) = `expr`, or None."""
        found = self._linear(expr)
        return found[0] if found is not None and found[0] == -found[1] else None

    def _linear(self, expr: Expr) -> tuple[Fraction, Fraction] | None:
        """Return a and b with a yhat + b y = `expr`, or None."""
        match expr.kind, *expr.args:
            case (Kind.NAME,):
                return {PREDICTIONS: (Fraction(1), Fraction(0)), self.targets: (Fraction(0), Fraction(1))}.get(expr.name)
            case Kind.NEGATE, inner:
                return _times(Fraction(-1), self._linear(inner))
            case Kind.ADD | Kind.SUBTRACT, left, right:
                first, second = self._linear(left), self._linear(right)
                if first is None or second is None:
                    return None
                sign = 1 if expr.kind is Kind.ADD else -1
                return first[0] + sign * second[0], first[1] + sign * second[1]
            case Kind.MULTIPLY, left, right:
                found = _times(self.constant(left), self._linear(right))
                return _times(self.constant(right), self._linear(left)) if found is None else found
            case Kind.DIVIDE, inner, divisor:
                return _times(_inverse(self.constant(divisor)), self._linear(inner))
        return None

    def constant(self, expr: Expr) -> Fraction | None:
        """Return the value of a formula in numbers and sizes, or None."""
        match expr.kind, *expr.args:
            case (Kind.NUMBER,):
                return expr.value
            case (Kind.NAME,):
                return Fraction(self.sizes[expr.name]) if expr.name in self.sizes else None
            case Kind.NEGATE, inner:
                return _product(Fraction(-1), self.constant(inner))
            case (Kind.ADD | Kind.SUBTRACT | Kind.MULTIPLY | Kind.DIVIDE | Kind.POWER), left, right:
                return _combined(expr.kind, self.constant(left), self.constant(right))
        return None


def _combined(kind: Kind, left: Fraction | None, right: Fraction | None) -> Fraction | None:
    if left is None or right is None:
        return None
    if kind is Kind.POWER:
        whole = right.denominator == 1 and abs(right) <= _LARGEST_POWER
        return left ** int(right) if whole and (left or right > 0) else None
    if kind is Kind.DIVIDE:
        return _product(left, _inverse(right))
    return {Kind.ADD: left + right, Kind.SUBTRACT: left - right, Kind.MULTIPLY: left * right}[kind]


def _product(left: Fraction | None, right: Fraction | None) -> Fraction | None:
    return None if left is None or right is None else left * right


def _inverse(value: Fraction | None) -> Fraction | None:
    return 1 / value if value else None


def _times(factor: Fraction | None, pair: tuple[Fraction, Fraction] | None) -> tuple[Fraction, Fraction] | None:
    return None if factor is None or pair is None else (factor * pair[0], factor * pair[1])
