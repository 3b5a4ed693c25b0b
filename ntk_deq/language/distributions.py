"""The distribution grammar of `data` and `init`: what an expression such as `beta * normal(0, 1/m)` may be made of.

A scalar is a number, a size letter, a scalar name, or arithmetic and `sqrt exp log abs min max` on them. A
distribution is one of the names below with its parameters, a sum or difference of distributions, or a distribution
times or divided by a scalar. A scalar variable takes either; a matrix takes a distribution (`c*ones` for a constant
one). Needs no torch; `ntk_deq.data.distributions` draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ntk_deq.errors import ExpressionError, nearest_name
from ntk_deq.language.hints import hint_for
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.language.types import ONE, Size, SizeRange, Sort, Type, matrix


@dataclass(frozen=True, slots=True)
class DistributionName:
    """A distribution as the claim language sees it.

    Attributes:
        name: How it is written.
        parameters: Its parameters in order; one called `distribution` is itself a distribution, the others are numbers.
        summary: What a draw is.
    """

    name: str
    parameters: tuple[str, ...]
    summary: str

    @property
    def usage(self) -> str:
        """How it is written with its parameters, for messages: `normal(mean, variance)`."""
        return f"{self.name}({', '.join(self.parameters)})" if self.parameters else self.name


_ALL = (
    DistributionName("normal", ("mean", "variance"), "independent Gaussian entries"),
    DistributionName("half_normal", ("variance",), "absolute values of normal(0, variance)"),
    DistributionName("uniform", ("low", "high"), "independent entries, uniform on [low, high)"),
    DistributionName("rademacher", (), "independent entries, -1 or 1 with equal probability"),
    DistributionName("gaussian", (), "independent standard Gaussian entries"),
    DistributionName("sphere", (), "independent rows, uniform on the unit sphere; a vector counts as one row"),
    DistributionName(
        "orthonormal_rows", (), "orthonormal rows, uniformly distributed; at most as many rows as columns"
    ),
    DistributionName("orthogonal", (), "a square orthogonal matrix, uniformly distributed"),
    DistributionName(
        "identity",
        (),
        "the identity matrix; like every square draw it takes N x d where N and d are the same fixed number",
    ),
    DistributionName("zeros", (), "every entry 0"),
    DistributionName("ones", (), "every entry 1"),
    DistributionName("nonnegative", ("distribution",), "absolute values of the entries"),
    DistributionName("symmetric", ("distribution",), "(R + R')/2 of a square draw R"),
    DistributionName("skew", ("distribution",), "(R - R')/2 of a square draw R"),
    DistributionName("psd", ("distribution",), "R'R of a square draw R"),
    DistributionName("rank_one", ("distribution",), "u v' of two drawn vectors"),
    DistributionName("nilpotent", ("distribution",), "strictly upper triangular part of a square draw"),
    DistributionName("diagonal", ("distribution",), "a drawn vector on the diagonal, 0 elsewhere"),
    DistributionName(
        "duplicates", ("distribution",), "drawn rows, each repeated once (the last one not where N is odd)"
    ),
    DistributionName("near_parallel", ("eps",), "unit rows; rows 1 and 2, 3 and 4, ... at the angle eps in radians"),
    DistributionName("low_rank", ("distribution", "r"), "U V' of two drawn factors with r columns each"),
)

DISTRIBUTIONS: dict[str, DistributionName] = {entry.name: entry for entry in _ALL}


SCALAR_FUNCTIONS = {"sqrt": 1, "exp": 1, "log": 1, "abs": 1, "min": None, "max": None}
"""Functions of scalars that a distribution's parameters may use, with their number of arguments."""

_SQUARE = frozenset({"orthogonal", "identity", "symmetric", "skew", "psd", "nilpotent", "diagonal"})
_MATRIX = frozenset({"orthonormal_rows", "rank_one", "near_parallel", "low_rank"})
_NOT_SCALAR = frozenset({"sphere", "duplicates"})
_OF_VECTORS = frozenset({"rank_one", "diagonal"})  # their parameter is drawn as a vector
_ARITHMETIC = frozenset({Kind.ADD, Kind.SUBTRACT, Kind.MULTIPLY, Kind.DIVIDE, Kind.POWER, Kind.NEGATE})


def is_distribution(expr: Expr) -> bool:
    """Return whether an expression draws something; otherwise it is a constant."""
    return any(node.kind in (Kind.NAME, Kind.CALL) and node.name in DISTRIBUTIONS for node in expr.walk())


def scalar_names(expr: Expr) -> Iterator[Expr]:
    """Yield the nodes that name a scalar or a size letter."""
    return (node for node in expr.walk() if node.kind is Kind.NAME and node.name not in DISTRIBUTIONS)


def check_distribution(expr: Expr, type_: Type, sizes: Mapping[str, SizeRange]) -> None:
    """Check that an expression is a distribution, or a constant, for a variable of a type.

    Names of scalars are not looked up here, since some belong to the claim that uses the setting.

    Raises:
        ExpressionError: It is not; `span` says where.
    """
    if is_distribution(expr):
        _distribution(expr, type_, sizes)
        return
    _scalar(expr)
    if type_.sort is Sort.MATRIX:
        near = [found for node in scalar_names(expr) if (found := nearest_name(node.name, DISTRIBUTIONS))]
        hint = f"did you mean `{near[0]}`?" if near else "write c*ones for a constant, c*identity for a diagonal one"
        raise _error(expr, f"a {type_} must be drawn from a distribution, and this names none.", hint)


def _distribution(expr: Expr, type_: Type, sizes: Mapping[str, SizeRange]) -> None:
    if expr.kind in (Kind.NAME, Kind.CALL) and expr.name in DISTRIBUTIONS:
        _named(expr, type_, sizes)
        return
    if expr.kind is Kind.NEGATE:
        _distribution(expr.args[0], type_, sizes)
        return
    if expr.kind in (Kind.ADD, Kind.SUBTRACT):
        for side in expr.args:
            if not is_distribution(side):
                raise _error(side, "a number cannot be added to a distribution.", "write c*ones for a constant")
            _distribution(side, type_, sizes)
        return
    if expr.kind in (Kind.MULTIPLY, Kind.DIVIDE):
        left, right = expr.args
        if is_distribution(left) and is_distribution(right):
            raise _error(expr, f"a distribution may be {_VERB[expr.kind]} only by a number.")
        if expr.kind is Kind.DIVIDE and is_distribution(right):
            raise _error(right, "nothing may be divided by a distribution.")
        drawn, factor = (left, right) if is_distribution(left) else (right, left)
        _scalar(factor)
        _distribution(drawn, type_, sizes)
        return
    raise _error(expr, f"a distribution may not stand inside {_described(expr)}.")


_VERB = {Kind.MULTIPLY: "multiplied", Kind.DIVIDE: "divided"}


def _named(expr: Expr, type_: Type, sizes: Mapping[str, SizeRange]) -> None:
    entry = DISTRIBUTIONS[expr.name]
    if len(expr.args) != len(entry.parameters):
        expected = f"{len(entry.parameters)} parameter{'s' * (len(entry.parameters) != 1)}, as in `{entry.usage}`"
        raise _error(expr, f"`{entry.name}` takes {expected}. Got {len(expr.args)}.")
    _check_shape(expr, type_, sizes)
    for parameter, argument in zip(entry.parameters, expr.args, strict=True):
        if parameter == "distribution":
            if not is_distribution(argument):
                raise _error(argument, f"`{parameter}` of {entry.name} must be a distribution such as normal(0, 1).")
            inner = matrix(type_.rows) if entry.name in _OF_VECTORS else type_
            _distribution(argument, inner, sizes)
            continue
        if is_distribution(argument):
            raise _error(argument, f"`{parameter}` of {entry.name} must be a number. Got a distribution.")
        _scalar(argument)
        if parameter in ("variance", "r") and argument.kind is Kind.NEGATE and argument.args[0].kind is Kind.NUMBER:
            raise _error(argument, f"`{parameter}` of {entry.name} must be a number >= 0. Got a negative one.")


def _check_shape(expr: Expr, type_: Type, sizes: Mapping[str, SizeRange]) -> None:
    name = expr.name
    is_matrix = type_.sort is Sort.MATRIX
    if name in _SQUARE and not (is_matrix and _is_square(type_, sizes)):
        raise _error(expr, f"`{name}` needs a square matrix. Got {type_}.")
    if name in _NOT_SCALAR and not is_matrix:
        raise _error(expr, f"`{name}` needs a vector or a matrix. Got a scalar.")
    if name in _MATRIX and (not is_matrix or type_.cols == ONE):
        raise _error(expr, f"`{name}` needs a matrix. Got {type_}.")
    if name == "orthonormal_rows" and type_.rows.letters | type_.cols.letters <= set(sizes):
        most, least = _extreme(type_.rows, sizes, high=True), _extreme(type_.cols, sizes, high=False)
        if most > least:
            detail = f"{type_.rows} goes up to {most}, {type_.cols} down to {least}"
            raise _error(expr, f"`{name}` needs at most as many rows as columns, for all sizes; {detail}.")


def _is_square(type_: Type, sizes: Mapping[str, SizeRange]) -> bool:
    """Return whether a matrix is square by its letters, or by the only values that they have."""
    if type_.rows == type_.cols:
        return True
    letters = type_.rows.letters | type_.cols.letters
    if type_.cols == ONE or not all(name in sizes and sizes[name].fixed for name in letters):
        return False
    return _extreme(type_.rows, sizes, high=True) == _extreme(type_.cols, sizes, high=True)


def _extreme(size: Size, sizes: Mapping[str, SizeRange], *, high: bool) -> int:
    return size.evaluate({name: (r.high if high else r.low) for name, r in sizes.items()})


def _scalar(expr: Expr) -> None:
    """Check that an expression without a distribution is arithmetic on numbers and names."""
    if expr.kind in (Kind.NUMBER, Kind.NAME):
        return
    if expr.kind is Kind.CALL:
        allowed = {**SCALAR_FUNCTIONS, **dict.fromkeys(DISTRIBUTIONS)}
        if expr.name not in SCALAR_FUNCTIONS:
            names = f"Distributions: {', '.join(DISTRIBUTIONS)}; functions: {', '.join(SCALAR_FUNCTIONS)}"
            message = f"unknown distribution or function `{expr.name}`. {names}."
            raise _error(expr, message, hint_for(expr.name, allowed, called=True))
        arity = SCALAR_FUNCTIONS[expr.name]
        if len(expr.args) != (arity or max(1, len(expr.args))):
            raise _error(expr, f"`{expr.name}` takes {arity or 'at least one'} argument. Got {len(expr.args)}.")
    elif expr.kind not in _ARITHMETIC:
        raise _error(expr, f"a distribution or constant may not contain {_described(expr)}.")
    for argument in expr.args:
        _scalar(argument)


def _described(expr: Expr) -> str:
    return f"`{expr.name}(...)`" if expr.kind is Kind.CALL else f"a {expr.kind.value!r}"


def _error(expr: Expr, message: str, hint: str | None = None) -> ExpressionError:
    return ExpressionError(message, (expr.span.start, expr.span.stop), hint)
