"""The loss that a model declares, as a formula of its predictions and what else it reads: what training minimises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

from ntk_deq.errors import NtkDeqError
from ntk_deq.language.calls import Parameter
from ntk_deq.language.declaration import ModelSignature, Role
from ntk_deq.language.functionals import FOLDS
from ntk_deq.language.functions import FUNCTIONS, product_of
from ntk_deq.language.parser import parse
from ntk_deq.language.record import Function, Kink, Length, Product
from ntk_deq.language.run import LOSS
from ntk_deq.language.tree import Expr, Kind, names_in, with_constants
from ntk_deq.language.types import ONE, Sort
from ntk_deq.language.written import BY_NAME, formula_of

PREDICTIONS = "yhat"
"""What a model's predictions are called."""

_OPERATORS = {Kind.NEGATE, Kind.ADD, Kind.SUBTRACT, Kind.MULTIPLY, Kind.DIVIDE, Kind.POWER, Kind.TRANSPOSE}
_FORMULA = {Kind.NUMBER, Kind.NAME, Kind.CALL, *_OPERATORS}
_OF_THE_MODEL = {"grad", "jac", "next", "fixed_point", *BY_NAME}


def _has_slopes(record: Function) -> bool:
    """Whether a function of one number has derivatives of every order: it has no kink, nor has its derivative."""
    facts = record.entrywise
    if facts is None or facts.derivative is None or facts.kink not in (Kink.NOWHERE, Kink.EDGE):
        return False
    called = {node.name for node in formula_of(facts.derivative).walk() if node.kind is Kind.CALL}
    return not any(FUNCTIONS[name].definition or _kinked(FUNCTIONS[name]) for name in called)


def _kinked(record: Function) -> bool:
    return record.entrywise is not None and record.entrywise.kink in (Kink.CORNER, Kink.JUMP)


_SMOOTH = {
    name
    for name, record in FUNCTIONS.items()
    if record.degree is not None or record.smooth or set(record.parameters) <= {Parameter.SIZE} or _has_slopes(record)
}
_LARGEST = 2**500  # of a factor, so that it is a float with room, and so is its inverse
_LARGEST_POWER = 64


class ForeignLossError(NtkDeqError):
    """A declared loss is no formula that training can minimise."""


@dataclass(frozen=True)
class DeclaredLoss:
    """A loss as a formula.

    Attributes:
        text: As declared.
        expr: The same with definitions written out but for the predictions.
        targets: Name of the targets.
        beside: Names of parameters, hyperparameters, inputs and the state that it reads itself: a regulariser, or a
            function that is minimised as it stands.
        axes: How many each name has: the norm of a vector is its length, that of a matrix is not.
    """

    text: str
    expr: Expr
    targets: str
    beside: frozenset[str] = frozenset()
    axes: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def smooth(self) -> bool:
        """Whether the loss has derivatives of every order wherever it has a value, as far as that is seen.

        Example:
            >>> from ntk_deq.language.declaration import IMPLICIT_RELU
            >>> declared_loss(IMPLICIT_RELU).smooth
            True
        """
        return is_smooth(self.expr, self.axes)

    def multiple(self, sizes: Mapping[str, int]) -> Fraction | None:
        """Return the factor f > 0 where the loss is f norm(yhat - y)^2/2; None: it is not seen to be.

        Args:
            sizes: Values of the size letters.

        Example:
            >>> from ntk_deq.language.declaration import IMPLICIT_RELU
            >>> declared_loss(IMPLICIT_RELU).multiple({"N": 4})
            Fraction(1, 1)
        """
        factor = _Squares(self.targets, sizes, self.axes.get(PREDICTIONS, 1) < 2).factor(self.expr)
        return factor if factor is not None and Fraction(1, _LARGEST) < factor < _LARGEST else None


def declared_loss(signature: ModelSignature) -> DeclaredLoss:
    """Return the loss of a model.

    Args:
        signature: Its declaration.

    Raises:
        ForeignLossError: A function of the model stands in the loss, as `grad` does, or a name that is none of its own.

    Example:
        >>> from ntk_deq.language.declaration import LINEAR_IMPLICIT
        >>> declared_loss(LINEAR_IMPLICIT).text
        'norm(yhat - y)^2/2'
    """
    targets = signature.names(Role.TARGET)
    declared = tuple(signature.definitions.items())
    shapes = {variable.name: variable.shape for variable in signature.variables}
    if signature.state:
        shapes[signature.state] = signature.state_shape
    name = targets[0] if len(targets) == 1 else "y"
    shapes[PREDICTIONS] = shapes.get(name, ("N",))
    known = tuple((key, len(shape)) for key, shape in shapes.items())
    return _loss_of(signature.name, declared, name, signature.sizes, known)


@lru_cache(maxsize=64)
def _loss_of(
    model: str,
    declared: tuple[tuple[str, str], ...],
    targets: str,
    sizes: tuple[str, ...],
    known: tuple[tuple[str, int], ...],
) -> DeclaredLoss:
    """Return the loss; `known` says of each name how many axes it has."""
    definitions, axes = dict(declared), {**dict.fromkeys(sizes, 0), **dict(known)}
    axes.setdefault(targets, axes[PREDICTIONS])
    text = definitions.pop(LOSS, f"{'norm' if axes[PREDICTIONS] < 2 else 'fro'}({PREDICTIONS} - {targets})^2/2")
    definitions.pop(PREDICTIONS, None)
    expr = _written_out(parse(text), definitions)
    expr = with_constants(expr, {PREDICTIONS, targets, *sizes, *dict(known)})
    beside = names_in(expr) - {PREDICTIONS, targets, *sizes}
    foreign = sorted(beside - set(dict(known)))
    foreign += sorted(
        {
            node.name or str(node.kind)
            for node in expr.walk()
            if node.kind not in _FORMULA or (node.kind is Kind.CALL and node.name in _OF_THE_MODEL)
        }
    )
    if foreign:
        raise ForeignLossError(
            f"Training minimises a loss of predictions, variables, state and sizes; the model {model} declares "
            f"{LOSS} = {text}, in which {', '.join(foreign)} stands."
        )
    return DeclaredLoss(text, expr, targets, frozenset(beside), axes)


def is_smooth(expr: Expr, axes: Mapping[str, int]) -> bool:
    """Whether a formula is seen to have derivatives of every order wherever it has a value.

    Args:
        expr: The formula.
        axes: How many each name has, where the formula is not typed.
    """
    if expr.kind is Kind.POWER:
        base, exponent = expr.args
        whole = exponent.value if exponent.kind is Kind.NUMBER else None
        if whole is None or whole.denominator != 1:
            return False
        length = FUNCTIONS[base.name].length if base.kind is Kind.CALL else None
        if length is not None:  # even powers of lengths are smooth
            known = length is Length.MATRIX or _is_vector(base.args[0], axes)
            return known and whole % 2 == 0 and is_smooth(base.args[0], axes)
    smooth = expr.kind is not Kind.CALL or expr.name in _SMOOTH
    return smooth and all(is_smooth(arg, axes) for arg in expr.args)


def _is_vector(expr: Expr, axes: Mapping[str, int]) -> bool:
    """Whether a formula is seen to be a vector, in a column or a row, or a number."""
    if expr.type is not None:
        return expr.type.sort is not Sort.MATRIX or ONE in (expr.type.rows, expr.type.cols)
    match expr.kind:
        case Kind.NAME:
            return axes.get(expr.name, 2) < 2
        case Kind.MULTIPLY:  # u*c or A*u, with a number c and a vector u
            left, right = expr.args
            return _is_vector(left if _is_number(right, axes) else right, axes)
        case Kind.CALL if FUNCTIONS[expr.name].by_entries:
            return _is_vector(expr.args[0], axes)
        case Kind.ADD | Kind.SUBTRACT | Kind.NEGATE | Kind.DIVIDE | Kind.TRANSPOSE:
            return _is_vector(expr.args[0], axes)
    return _is_number(expr, axes)


def _is_number(expr: Expr, axes: Mapping[str, int]) -> bool:
    """Whether a formula is seen to be a number: names and operators of numbers."""
    if expr.kind is Kind.NAME:
        return axes.get(expr.name) == 0
    return expr.kind is not Kind.CALL and all(_is_number(arg, axes) for arg in expr.args)


def _written_out(expr: Expr, definitions: Mapping[str, str]) -> Expr:
    if expr.kind is Kind.NAME and expr.name in definitions:
        return _written_out(parse(definitions[expr.name]), definitions)
    return expr.mapped(lambda part: _written_out(part, definitions))


@dataclass(frozen=True)
class _Squares:
    """Reads a formula as a multiple of norm(yhat - y)^2/2.

    Attributes:
        targets: Name of the targets.
        sizes: Values of the size letters.
        vector: Whether the predictions are a vector, whose norm is its length.
    """

    targets: str
    sizes: Mapping[str, int]
    vector: bool = True

    def factor(self, expr: Expr) -> Fraction | None:
        """Return f with f norm(yhat - y)^2/2 = `expr`, or None."""
        args = expr.args
        match expr.kind:
            case Kind.NEGATE:
                return _product(Fraction(-1), self.factor(args[0]))
            case Kind.ADD | Kind.SUBTRACT:
                sign = Fraction(1 if expr.kind is Kind.ADD else -1)
                return _total(self.factor(args[0]), _product(sign, self.factor(args[1])))
            case Kind.DIVIDE:
                return _product(self.factor(args[0]), _inverse(self.constant(args[1])))
            case Kind.POWER if self.constant(args[1]) == 2 and args[0].kind is Kind.CALL:
                length = FUNCTIONS[args[0].name].length
                known = length is Length.MATRIX or (length is Length.VECTOR and self.vector)
                return self._square(*args[0].args * 2) if known else None
            case Kind.MULTIPLY:
                found = self._square(args[0], args[1], turned=True)
                found = _product(self.constant(args[0]), self.factor(args[1])) if found is None else found
                return _product(self.factor(args[0]), self.constant(args[1])) if found is None else found
            case Kind.CALL if product_of(expr) is Product.INNER:
                return self._square(*args)
            case Kind.CALL if expr.name in FOLDS and FOLDS[expr.name].joins is Kind.ADD and args[0].kind is Kind.CALL:
                return self._square(*args[0].args) if product_of(args[0]) is Product.ENTRIES else None
        return None

    def _square(self, left: Expr, right: Expr, *, turned: bool = False) -> Fraction | None:
        """Return f where two formulas are multiples of yhat - y, and f norm(yhat - y)^2/2 is their inner product.

        With `turned`, the left one is a multiple of the row (yhat - y)'.
        """
        return _product(Fraction(2), _product(self._difference(left, turned), self._difference(right, False)))

    def _difference(self, expr: Expr, turned: bool) -> Fraction | None:
        """Return c with c (yhat - y) = `expr`, or None."""
        found = self._linear(expr, turned)
        return found[0] if found is not None and found[0] == -found[1] else None

    def _linear(self, expr: Expr, turned: bool) -> tuple[Fraction, Fraction] | None:
        """Return a and b with a yhat + b y = `expr`, or its transpose where it is `turned`; None: not of that form."""
        args, one, none = expr.args, Fraction(1), Fraction(0)
        match expr.kind:
            case Kind.TRANSPOSE:
                return self._linear(args[0], not turned)
            case Kind.NAME if not turned:
                return {PREDICTIONS: (one, none), self.targets: (none, one)}.get(expr.name)
            case Kind.NEGATE:
                return _times(-one, self._linear(args[0], turned))
            case Kind.ADD | Kind.SUBTRACT:
                first = self._linear(args[0], turned)
                second = _times(one if expr.kind is Kind.ADD else -one, self._linear(args[1], turned))
                return None if first is None or second is None else (first[0] + second[0], first[1] + second[1])
            case Kind.MULTIPLY:
                found = _times(self.constant(args[0]), self._linear(args[1], turned))
                return _times(self.constant(args[1]), self._linear(args[0], turned)) if found is None else found
            case Kind.DIVIDE:
                return _times(_inverse(self.constant(args[1])), self._linear(args[0], turned))
        return None

    def constant(self, expr: Expr) -> Fraction | None:
        """Return the value of a formula in numbers and sizes, or None."""
        args = expr.args
        match expr.kind:
            case Kind.NUMBER:
                return expr.value
            case Kind.NAME:
                return Fraction(self.sizes[expr.name]) if expr.name in self.sizes else None
            case Kind.NEGATE:
                return _product(Fraction(-1), self.constant(args[0]))
            case Kind.ADD | Kind.SUBTRACT | Kind.MULTIPLY | Kind.DIVIDE | Kind.POWER:
                return _combined(expr.kind, self.constant(args[0]), self.constant(args[1]))
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


def _total(left: Fraction | None, right: Fraction | None) -> Fraction | None:
    return None if left is None or right is None else left + right


def _product(left: Fraction | None, right: Fraction | None) -> Fraction | None:
    return None if left is None or right is None else left * right


def _inverse(value: Fraction | None) -> Fraction | None:
    return 1 / value if value else None


def _times(factor: Fraction | None, pair: tuple[Fraction, Fraction] | None) -> tuple[Fraction, Fraction] | None:
    return None if factor is None or pair is None else (factor * pair[0], factor * pair[1])
