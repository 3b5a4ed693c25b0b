"""The small grammar of domains: `real`, `(0, 1]`, `psd[m, m]`, `integer 1..5`, with an optional shape at the end."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from ntk_deq.errors import ExpressionError, nearest_name
from ntk_deq.language.families import index_size, member_name
from ntk_deq.language.parser import parse
from ntk_deq.language.types import ONE, SCALAR, Reach, Size, Sort, Type, matrix


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
    """A set that a free variable is quantified over; `low`/`high` only for intervals (None: unbounded)."""

    kind: DomainKind
    low: Fraction | None = None
    high: Fraction | None = None
    low_open: bool = False
    high_open: bool = False
    text: str = ""


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
