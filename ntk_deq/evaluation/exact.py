"""Formulas of small instances in exact arithmetic: what is true, false, or an equality, without a ball.

Every number of an instance is a float and so a fraction; roots, norms and eigenvalues of them are algebraic
(`ntk_deq.certified.algebraic`). The equilibrium of a contraction that is affine around it is rational too. Derivatives,
runs, exponentials and logarithms are not decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from flint import arb, fmpq, fmpq_mat

from ntk_deq.certified import algebraic as al
from ntk_deq.certified import algebraic_matrix as am
from ntk_deq.certified.algebraic import Number, UndecidedError, UndefinedError, sign
from ntk_deq.certified.algebraic_matrix import ExactMatrix
from ntk_deq.certified.scalar import upper
from ntk_deq.evaluation.arithmetic import conjunction, disjunction, negation
from ntk_deq.evaluation.environment import ModelFormulas, OutsideClaimError
from ntk_deq.evaluation.functions import ExactValue as Value
from ntk_deq.evaluation.functions import as_exact_matrix as as_matrix
from ntk_deq.evaluation.functions import exact_number as scalar
from ntk_deq.evaluation.functions.twins import EXACT
from ntk_deq.evaluation.quantity import Comparison, Outcome, Truth, margin_of, show_ball
from ntk_deq.language.format import format_expr
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.language.types import Margin
from ntk_deq.language.written import definition_of, put

SHOWN_BITS = 128
"""Bits of the balls in which exact sides and margins are shown."""

_MOST_STATES = 12  # entries of an equilibrium
_STEP = fmpq(1, 2**40)

_FLIP = {">=": "<=", ">": "<"}


@dataclass
class ExactNames:
    """What the names of one instance mean, exactly.

    Attributes:
        values: Sizes and variables.
        lets: Formulas of definitions.
        model: Formulas of the model, or None.
        near: Gives a float matrix near the model's equilibrium, row after row; None: there is none to start from.
        known: Values of formulas evaluated so far, by their text: equal formulas are one number, of one generator.
    """

    values: dict[str, Value]
    lets: Mapping[str, Expr]
    model: ModelFormulas | None = None
    near: Callable[[], Sequence[Sequence[float]]] | None = None
    known: dict[str, Value] = field(default_factory=dict)

    def replaced(self, values: Mapping[str, Value]) -> ExactNames:
        """Return what names mean where some values are replaced."""
        return replace(self, values={**self.values, **values}, known={})


def decided(expr: Expr, names: ExactNames) -> Outcome:
    """Return the outcome of a statement: FALSE, TRUE, or TIGHT for one that is true with equality.

    Raises:
        UndecidedError: It is not decided within the limits.
        OutsideClaimError: A formula has no value.
    """
    match expr.kind:
        case Kind.COMPARE:
            values = [value_of(arg, names) for arg in expr.args]
            links = zip(pairwise(values), expr.operators, strict=True)
            return conjunction([_compared(left, relation, right) for (left, right), relation in links])
        case Kind.AND:
            return _connected(expr, names, Truth.FALSE, conjunction)
        case Kind.OR:
            return _connected(expr, names, Truth.TRUE, disjunction)
        case Kind.NOT:
            return _denied(decided(expr.args[0], names))
        case Kind.NAME if expr.name in names.lets:
            return decided(names.lets[expr.name], names)
    raise UndecidedError("a statement about steps")


def _connected(
    expr: Expr, names: ExactNames, decisive: Truth, combine: Callable[[Sequence[Outcome]], Outcome]
) -> Outcome:
    """Combine the parts of a connective; a part that has no value, or is open, does not matter where one decides."""
    outcomes: list[Outcome] = []
    trouble: Exception | None = None
    for arg in expr.args:
        try:
            outcomes.append(decided(arg, names))
        except OutsideClaimError as error:
            trouble = trouble or error
        except UndecidedError as error:
            trouble = error
    settled = any((outcome.truth is Truth.FALSE) == (decisive is Truth.FALSE) for outcome in outcomes)
    if trouble is not None and not settled:
        raise trouble
    return combine(outcomes)


def _denied(outcome: Outcome) -> Outcome:
    if outcome.truth is Truth.TIGHT:  # an equality for certain, unlike that of balls
        outcome = replace(outcome, truth=Truth.TRUE)
    flipped = negation(outcome)
    margin = None if flipped.comparison is None else flipped.comparison.margin
    tight = flipped.truth is Truth.TRUE and margin == Margin(0.0, 0.0)
    return replace(flipped, truth=Truth.TIGHT) if tight else flipped


def _compared(left: Value, relation: str, right: Value) -> Outcome:
    a, b = (right, left) if relation in _FLIP else (left, right)
    relation_up = _FLIP.get(relation, relation)
    differences = _differences(a, b)
    signs = [sign(difference) for difference in differences]
    if relation_up in ("==", "!="):
        margin = _distance(differences, signs)
        margin = -margin if relation_up == "==" else margin
        equal = not any(signs)
        truth = equal == (relation_up == "==")
    else:
        margin = _least(differences, signs)
        equal = min(signs) == 0
        truth = min(signs) >= (0 if relation_up == "<=" else 1)
    sides = [_shown(side) for side in (left, right)]
    scale = max(upper(abs(ball)) for _, ball in sides)
    comparison = Comparison(sides[0][0], sides[1][0], relation, margin_of(margin), scale)
    certain = Truth.TIGHT if truth and equal and relation_up != "!=" else Truth.TRUE if truth else Truth.FALSE
    return Outcome(certain, comparison, "", relation_up == "==")


def _differences(a: Value, b: Value) -> list[Number]:
    """Return b - a, entry by entry."""
    if isinstance(a, ExactMatrix) and isinstance(b, ExactMatrix) and a.shape == b.shape:
        return list(b.combined(a, lambda x, y: x - y).entries)
    if isinstance(b, ExactMatrix) and not _is_plain(b):
        one = scalar(a)
        return [entry - one for entry in b.entries]
    one = scalar(b)
    return [one - entry for entry in (a.entries if isinstance(a, ExactMatrix) else (a,))]


def _least(differences: Sequence[Number], signs: Sequence[int]) -> arb:
    """Return a ball of the smallest of some numbers; exactly zero where it is zero."""
    if min(signs) == 0:
        return arb(0)
    balls = [al.enclosure(number, SHOWN_BITS) for number in differences]
    least = balls[0]
    for ball in balls[1:]:
        least = least.min(ball)
    return least


def _distance(differences: Sequence[Number], signs: Sequence[int]) -> arb:
    if not any(signs):
        return arb(0)
    if len(differences) == 1:
        return abs(al.enclosure(differences[0], SHOWN_BITS))
    return sum((ball * ball for ball in (al.enclosure(d, SHOWN_BITS) for d in differences)), arb(0)).sqrt()


def _shown(value: Value) -> tuple[str, arb]:
    """Return a side as text, and a ball of it or of its Frobenius norm."""
    if isinstance(value, ExactMatrix) and not _is_plain(value):
        balls = [al.enclosure(entry, SHOWN_BITS) for entry in value.entries]
        norm = sum((ball * ball for ball in balls), arb(0)).sqrt()
        return f"a matrix of Frobenius norm {show_ball(norm)}", norm
    ball = al.enclosure(scalar(value), SHOWN_BITS)
    return show_ball(ball), ball


def value_of(expr: Expr, names: ExactNames) -> Value:
    """Return the exact value of a formula.

    Raises:
        UndecidedError: It has none here.
        OutsideClaimError: It is not defined.
    """
    if expr.kind is Kind.NUMBER and expr.value is not None:
        return fmpq(expr.value.numerator, expr.value.denominator)
    key = format_expr(expr)
    if key not in names.known:
        try:
            names.known[key] = _evaluated(expr, names)
        except UndefinedError as error:
            raise OutsideClaimError("defined", str(error), certain=True) from error
    return names.known[key]


def _evaluated(expr: Expr, names: ExactNames) -> Value:
    if expr.kind is Kind.NAME:
        return _named(expr.name, names)
    if expr.kind is Kind.AT:
        values = {name: value_of(arg, names) for name, arg in zip(expr.names, expr.args[1:], strict=True)}
        return value_of(expr.args[0], ExactNames({**names.values, **values}, names.lets, names.model))
    if expr.kind is Kind.CALL:
        return _called(expr, [value_of(arg, names) for arg in expr.args])
    if expr.kind not in OPERATORS:
        raise UndecidedError("a formula with steps")
    return OPERATORS[expr.kind](*(value_of(arg, names) for arg in expr.args))


def _called(expr: Expr, args: Sequence[Value]) -> Value:
    """Return the value of a function; one that is written out is computed so, numbers added to every entry."""
    definition = definition_of(expr.name, len(args))
    if definition is not None:
        values = dict(zip(definition[0], (args[0], *map(scalar, args[1:])), strict=True))
        return put(definition[1], values, lambda value: fmpq(value.numerator, value.denominator), _part)
    if expr.name not in EXACT:
        raise UndecidedError(f"`{expr.name}` is not computed exactly")
    return EXACT[expr.name](args)


def _part(node: Expr, args: Sequence[Value]) -> Value:
    """Return the value of a part of a formula of a record."""
    if node.kind is Kind.CALL:
        return _called(node, args)
    matrices = [arg for arg in args if isinstance(arg, ExactMatrix)]
    if node.kind in (Kind.ADD, Kind.SUBTRACT) and len(matrices) == 1:
        left, right = (arg if isinstance(arg, ExactMatrix) else _spread(arg, matrices[0]) for arg in args)
        return OPERATORS[node.kind](left, right)
    return OPERATORS[node.kind](*args)


def _spread(number: Number, like: ExactMatrix) -> ExactMatrix:
    return like.mapped(lambda entry: number)


def _named(name: str, names: ExactNames) -> Value:
    if name in names.values:
        return names.values[name]
    if name in names.lets:
        return value_of(names.lets[name], names)
    if names.model is not None and name in names.model.definitions:
        return value_of(names.model.definitions[name], names)
    if names.model is not None and name == names.model.state and names.near is not None:
        return _equilibrium(names.model, names, names.near())
    raise UndecidedError(f"`{name}` is not computed exactly")


def _equilibrium(model: ModelFormulas, names: ExactNames, near: Sequence[Sequence[float]]) -> ExactMatrix:
    """Return the fixed point of a contraction: solved for on the affine piece around a point, and then verified.

    Raises:
        UndecidedError: The map is no contraction for certain, or is not affine between the point and its fixed point.
    """
    rows, columns = len(near), len(near[0])
    if rows * columns > _MOST_STATES or not _contracts(model, names):
        raise UndecidedError("an equilibrium that is not computed exactly")

    def image(state: fmpq_mat) -> fmpq_mat:
        at = ExactMatrix(rows, columns, state.entries())
        moved = replace(names.replaced({model.state: at}), near=None)
        value = value_of(model.map, moved)
        flat = value.rational if isinstance(value, ExactMatrix) else None
        if flat is None:
            raise UndecidedError("an equilibrium that is not rational")
        return fmpq_mat(rows * columns, 1, flat.entries())

    floats = [entry for row in near for entry in row]
    # A short point near by may be the equilibrium, at a kink even, where no piece around it is affine.
    for entries in ([round(entry * 2.0**30) * 2.0**-30 for entry in floats], floats):
        point = fmpq_mat(rows * columns, 1, [fmpq(*entry.as_integer_ratio()) for entry in entries])
        solution = _solved(image, point)
        if solution is not None and image(solution) == solution:
            return ExactMatrix(rows, columns, solution.entries())
    raise UndecidedError("an equilibrium at a kink")


def _contracts(model: ModelFormulas, names: ExactNames) -> bool:
    """Whether the map of a model certainly is a contraction."""
    return model.contraction is not None and sign(fmpq(1) - scalar(value_of(model.contraction, names))) > 0


def _solved(image: Callable[[fmpq_mat], fmpq_mat], point: fmpq_mat) -> fmpq_mat | None:
    """Return the fixed point of the affine map that has the slopes of a map at a point, or None."""
    start, count = image(point), point.nrows()
    if start == point:
        return point
    units = [fmpq_mat(count, 1, [_STEP * int(i == k) for i in range(count)]) for k in range(count)]
    slopes = [(image(point + unit) - start) / _STEP for unit in units]
    system = fmpq_mat(count, count, [int(i == j) - slopes[j][i, 0] for i in range(count) for j in range(count)])
    try:
        return point + system.solve(start - point)
    except ZeroDivisionError:
        return None


def _negated(value: Value) -> Value:
    return value.mapped(lambda entry: -entry) if isinstance(value, ExactMatrix) else -value


def _added(left: Value, right: Value) -> Value:
    if isinstance(left, ExactMatrix) and isinstance(right, ExactMatrix):
        return left.combined(right, lambda a, b: a + b)
    return scalar(left) + scalar(right)


def _is_plain(value: Value) -> bool:
    """Whether a value is a number, or a 1 x 1 matrix, which is read as one."""
    return not isinstance(value, ExactMatrix) or value.shape == (1, 1)


def _multiplied(left: Value, right: Value) -> Value:
    if isinstance(left, ExactMatrix) and isinstance(right, ExactMatrix) and left.shape[1] == right.shape[0]:
        return left @ right
    if isinstance(right, ExactMatrix) and _is_plain(left):
        factor = scalar(left)
        return right.mapped(lambda entry: factor * entry)
    if isinstance(left, ExactMatrix):
        return _multiplied(right, left)
    return left * scalar(right)


def _divided(left: Value, right: Value) -> Value:
    return _multiplied(al.inverse(scalar(right)), left)


def _raised(left: Value, right: Value) -> Value:
    exponent = scalar(right)
    if not isinstance(exponent, fmpq):
        raise UndecidedError("an irrational exponent")
    if isinstance(left, ExactMatrix) and left.shape != (1, 1):
        return _matrix_power(left, int(exponent.p))
    base = scalar(left)
    if exponent.q == 1:
        return al.power(base, int(exponent.p))
    if sign(base) == 0:
        raise UndecidedError("a power of zero that is no whole one")
    return al.root(al.power(base, int(exponent.p)), int(exponent.q))


def _matrix_power(base: ExactMatrix, degree: int) -> ExactMatrix:
    if abs(degree) > al.MOST_POWER:
        raise UndecidedError(f"a power beyond {al.MOST_POWER}")
    base = base if degree >= 0 else am.inverse_matrix(base)
    result = ExactMatrix.identity(base.shape[0])
    for _ in range(abs(degree)):
        result = result @ base
    return result


OPERATORS: dict[Kind, Callable[..., Value]] = {
    Kind.NEGATE: _negated,
    Kind.ADD: _added,
    Kind.SUBTRACT: lambda left, right: _added(left, _negated(right)),
    Kind.MULTIPLY: _multiplied,
    Kind.DIVIDE: _divided,
    Kind.POWER: _raised,
    Kind.TRANSPOSE: lambda value: as_matrix(value).transposed,
}
"""What joins values; the entries of matrices may be whatever can be added and multiplied."""
