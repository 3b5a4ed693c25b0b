"""What a variable may be: the grammar of domains, `(0, 1]`, `psd[m, m]`, `integer 1..5`, and that of distributions.

A distribution of `data` or `init` is an expression such as `beta * normal(0, 1/m)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from ntk_deq.errors import ExpressionError, nearest_name
from ntk_deq.language.families import index_size, member_name
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.hints import hint_for
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.language.types import ONE, SCALAR, Reach, Size, SizeRange, Sort, Type, matrix


class DomainKind(StrEnum):
    """The sets that a free variable can range over."""

    REAL = "real"
    NONNEGATIVE = "nonnegative"  # every entry >= 0
    POSITIVE = "positive"  # every entry > 0
    INTERVAL = "interval"  # every entry between `low` and `high`
    INTEGER = "integer"  # every entry an integer between `low` and `high`
    SYMMETRIC = "symmetric"
    SKEW = "skew"
    PSD = "psd"  # symmetric, eigenvalues >= 0
    DIAGONAL = "diagonal"
    ORTHOGONAL = "orthogonal"
    UNIT_ROWS = "unit_rows"  # each row of Euclidean norm 1


@dataclass(frozen=True, slots=True)
class Domain:
    """A set that a free variable is quantified over; each entry lies between `low` and `high` (None: unbounded)."""

    kind: DomainKind
    low: Fraction | None = None
    high: Fraction | None = None
    low_open: bool = False
    high_open: bool = False
    text: str = ""

    def __post_init__(self) -> None:
        """Say the end that a kind's name has."""
        if self.kind in (DomainKind.NONNEGATIVE, DomainKind.POSITIVE):
            object.__setattr__(self, "low", Fraction(0))
            object.__setattr__(self, "low_open", self.kind is DomainKind.POSITIVE)


@dataclass(frozen=True)
class Free:
    """A universally quantified variable: from a domain setting, or from a claim's `given`."""

    name: str
    type: Type
    domain: Domain
    over: Reach | None = None  # of a family: its members, in whose letter the type is written


_SHAPE = re.compile(r"\[((?:[^\[\]()]|\[[^\[\]()]*\])*)\]\s*$")
_INTERVAL = re.compile(r"\s*([(\[])([^,()\[\]]*),([^,()\[\]]*)([)\]])\s*")
_WORD = re.compile(r"\s*([A-Za-z_]+)\s*")
_INTEGERS = re.compile(r"\s*integer\s+([+-]?[0-9]{1,18})\s*\.\.\s*([+-]?[0-9]{1,18})\s*")
_NUMBER = re.compile(r"[+-]?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?")
_FACTOR = re.compile(r"([^\W\d]\w{0,59}(?:\[[^\[\]()]*\])?)(?:\^([1-4]))?|([0-9]{1,7})")
_LETTER = re.compile(r"(\w+)\[(.*)\]")

_SQUARE = frozenset({DomainKind.SYMMETRIC, DomainKind.SKEW, DomainKind.PSD, DomainKind.DIAGONAL, DomainKind.ORTHOGONAL})
_WRITTEN = tuple(kind.value for kind in DomainKind if kind is not DomainKind.INTERVAL)


def parse_domain(text: str) -> tuple[Domain, Type | None]:
    """Read a domain and the shape that stands after it.

    Args:
        text: Such as `real`, `(0, 1]`, `[0, 1][N, m]`, `integer 1..5`, `psd[m, m]`.

    Returns:
        The domain, and the type that its shape gives or None where it has none.

    Raises:
        ExpressionError: The text is none of these.

    Example:
        >>> domain, shape = parse_domain("(0, 1/2] [N, m]")
        >>> domain.high, domain.low_open, domain.high_open, str(shape)
        (Fraction(1, 2), True, False, 'matrix N x m')
    """
    body, shape = split_shape(text)
    interval = _INTERVAL.fullmatch(body)
    if interval is not None:
        return _interval(body.strip(), interval), shape
    integers = _INTEGERS.fullmatch(body)
    if integers is not None:
        low, high = int(integers[1]), int(integers[2])
        if low > high:
            raise ExpressionError(f"an integer range lo..hi needs lo <= hi. Got {low}..{high}.", (0, len(body)))
        return Domain(DomainKind.INTEGER, Fraction(low), Fraction(high), text=body.strip()), shape
    word = _WORD.fullmatch(body)
    if word is not None and word[1] in _WRITTEN:
        return Domain(DomainKind(word[1]), text=word[1]), shape
    allowed = f"{', '.join(_WRITTEN)}, `integer 1..5`, or an interval such as (0, 1]"
    near = nearest_name(word[1], _WRITTEN) if word is not None else None
    hint = f"did you mean `{near}`?" if near else None
    raise ExpressionError(f"a domain must be one of {allowed}. Got {body.strip()!r}.", (0, len(body)), hint)


def is_literal(text: str) -> bool:
    """Whether a text where a domain may stand is a matrix written out: such a name is defined and varies over nothing.

    `[0, 1]` is the interval, `[0, 1][n, m]` a matrix of entries in it, and `[0, 1] for l in 1..L` a family of numbers.

    Example:
        >>> [is_literal(text) for text in ("[2, 1; 1, 2]", "[1, 2, 3]", "[0, 1]", "[0, 1] [n, m]", "psd[m, m]")]
        [True, True, False, False, False]
        >>> is_literal("[0, 1] for l in 1..L")
        False
    """
    body = text.partition(" for ")[0].strip()
    if not body.startswith("[") or ";" in body:
        return body.startswith("[")
    if _INTERVAL.fullmatch(body):
        return False
    shaped = _SHAPE.search(body)
    return shaped is None or not _INTERVAL.fullmatch(body[: shaped.start()])


def split_shape(text: str) -> tuple[str, Type | None]:
    """Split `real[N, m]` into `real` and the type of an N x m matrix; None where there is no shape.

    Raises:
        ExpressionError: The brackets hold no shape.

    Example:
        >>> body, shape = split_shape("normal(0, 1) [m^2]")
        >>> body, str(shape)
        ('normal(0, 1) ', 'vector m^2')
    """
    match = _SHAPE.search(text)
    if match is None or not text[: match.start()].strip():
        return text, None
    sizes = []
    start = match.start(1)
    for part in match[1].split(","):
        sizes.append(_size(part, start))
        start += len(part) + 1
    if len(sizes) > 2:
        raise ExpressionError(f"a shape has one or two sizes. Got {len(sizes)}.", match.span())
    return text[: match.start()], matrix(*sizes)


def misfit(domain: Domain, type_: Type) -> str | None:
    """Return why a variable of a type cannot range over a domain, or None.

    Example:
        >>> misfit(parse_domain("psd")[0], matrix("N", "m"))
        'psd needs a square matrix. Got matrix N x m'
    """
    square = type_.sort is Sort.MATRIX and type_.rows == type_.cols
    if domain.kind in _SQUARE and not square:
        return f"{domain.kind} needs a square matrix. Got {type_}"
    if domain.kind is DomainKind.UNIT_ROWS and type_.sort is not Sort.MATRIX:
        return f"{domain.kind} needs a matrix. Got {SCALAR}"
    return None


def _size(text: str, start: int) -> Size:
    total = ONE
    for factor in text.split("*"):
        match = _FACTOR.fullmatch(factor.strip())
        if match is None or (match[3] is not None and int(match[3]) == 0):
            allowed = "a size letter, a number >= 1, or a product of them such as N*m or m^2"
            raise ExpressionError(
                f"a size in a shape must be {allowed}. Got {text.strip()!r}.", (start, start + len(text))
            )
        base = Size.of(int(match[3])) if match[3] is not None else Size.letter(_letter(match[1], start))
        for _ in range(int(match[2] or 1)):
            total = total * base
    return total


def _letter(text: str, start: int) -> str:
    """Return a size letter, or the size of a member such as `n[l - 1]` in one spelling."""
    match = _LETTER.fullmatch(text)
    if match is None:
        return text
    try:
        return member_name(match[1], index_size(parse(match[2])))
    except ExpressionError as error:
        raise ExpressionError(error.message, (start, start + len(text)), error.hint) from None


def _interval(body: str, match: re.Match[str]) -> Domain:
    low = _bound(match, 2, "-inf")
    high = _bound(match, 3, "inf")
    low_open, high_open = match[1] == "(" or low is None, match[4] == ")" or high is None
    empty = low is not None and high is not None and (low > high or (low == high and (low_open or high_open)))
    if empty:
        raise ExpressionError(f"an interval must contain a number. {body} is empty.", match.span())
    return Domain(DomainKind.INTERVAL, low, high, low_open, high_open, body)


def _bound(match: re.Match[str], group: int, infinite: str) -> Fraction | None:
    text = match[group].strip()
    start = match.start(group) + match[group].index(text)
    span = (start, start + max(1, len(text)))
    if text in (infinite, "+inf" if infinite == "inf" else infinite):
        return None
    top, slash, bottom = text.partition("/")
    parts = [top.strip(), bottom.strip()] if slash else [top.strip()]
    if not all(_NUMBER.fullmatch(part) for part in parts):
        allowed = f"a number, a fraction or {infinite}"
        raise ExpressionError(f"a bound of an interval must be {allowed}. Got {text!r}.", span)
    value = Fraction(parts[0])
    if slash:
        if Fraction(parts[1]) == 0:
            raise ExpressionError(f"a bound of an interval must be a number. Got {text!r}.", span)
        value /= Fraction(parts[1])
    return value


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


SCALAR_FUNCTIONS = {f.name: None if f.repeats else 1 for f in FUNCTIONS.values() if f.in_draws}
"""Functions of scalars that a distribution's parameters may use, with their number of arguments."""

_SQUARE_DRAWS = frozenset({"orthogonal", "identity", "symmetric", "skew", "psd", "nilpotent", "diagonal"})
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
    if name in _SQUARE_DRAWS and not (is_matrix and _is_square(type_, sizes)):
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
