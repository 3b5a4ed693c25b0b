"""Tree to presentation MathML, for the report: every text is escaped and nothing refers to a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from html import escape

from ntk_deq.language.domain import DomainKind, Free
from ntk_deq.language.format import (
    ATOM,
    BINDING,
    DISJUNCTION,
    POWER,
    PRODUCT,
    SUM,
    TENSOR,
    binding,
    format_number,
    inclusion_of,
    printed,
    row_parts,
    selectors,
)
from ntk_deq.language.functionals import FOLDS
from ntk_deq.language.functions import FUNCTIONS, record_of
from ntk_deq.language.notation import Symbol, applied, fenced, group, mi, mn, mo, small, symbol, tag, word, words
from ntk_deq.language.parser import parse
from ntk_deq.language.record import Fold, Function
from ntk_deq.language.run import PATH_LENGTH
from ntk_deq.language.symmetry import order_of
from ntk_deq.language.tree import Expr, Kind, Sign
from ntk_deq.language.types import ONE, Sort

_RELATIONS = {"<=": "≤", "<": "<", ">=": "≥", ">": ">", "==": "=", "!=": "≠"}
_ACCENTS = {"hat": "^", "bar": "¯", "tilde": "~", "dot": "˙"}


def to_mathml(expr: Expr) -> str:
    """Return a `<math display="block">` element that shows an expression.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> to_mathml(parse("gamma0 < 1"))
        '<math display="block"><mrow><msub><mi>γ</mi><mn>0</mn></msub><mo>&lt;</mo><mn>1</mn></mrow></math>'
    """
    return f'<math display="block">{_show(printed(expr))}</math>'


def exists_mathml(free: Free) -> str:
    """Return a `<math display="block">` element that says that a variable exists.

    Example:
        >>> from ntk_deq.language.domain import parse_domain
        >>> from ntk_deq.language.types import SCALAR
        >>> exists_mathml(Free("C", SCALAR, parse_domain("positive")[0]))[22:66]
        '<mrow><mo>∃</mo><mi>C</mi><mo>∈</mo><msub><m'
    """
    kind = free.domain.kind
    letter, index = _SETS.get(kind, ("", ""))
    words = " ".join((free.domain.text or kind.value).split())
    base = tag("mi", letter, mathvariant="double-struck") if letter else tag("mtext", escape(words))
    square = kind in (DomainKind.SYMMETRIC, DomainKind.PSD)
    sizes = [_show(parse(str(size))) for size in free.type.sizes[: 1 if square else 2]]
    scripts = [*([index] if index else []), *([_joined(sizes, mo("×"))] if sizes else [])]
    if scripts:
        base = tag(f"m{'sub' if index else ''}{'sup' if sizes else ''}", base, *scripts)
    return f'<math display="block">{group(mo("∃"), _name(free.name), mo("∈"), base)}</math>'


_SETS = {
    DomainKind.REAL: ("R", ""),
    DomainKind.NONNEGATIVE: ("R", group(mo("≥"), mn("0"))),
    DomainKind.POSITIVE: ("R", group(mo(">"), mn("0"))),
    DomainKind.SYMMETRIC: ("S", ""),
    DomainKind.PSD: ("S", mo("+")),
}
"""Sets that have a letter: the letter, and its index."""


def _joined(parts: Iterable[str], joint: str) -> str:
    row: list[str] = []
    for part in parts:
        row.extend([joint, part] if row else [part])
    return group(*row)


def _listed(parts: Iterable[str]) -> str:
    return _joined(parts, mo(","))


def _letter(text: str) -> str:
    return mn(text) if text.isdigit() else mi(text)


def _symbol(sign: Symbol) -> str:
    base = _letter(sign.base)
    if sign.accent:
        base = tag("mover", base, mo(_ACCENTS[sign.accent], stretchy="false"), accent="true")
    if sign.subscript:
        return tag("msub", base, _listed(_letter(part) for part in sign.subscript.split(",")))
    return base


def _name(name: str) -> str:
    return mi("ℓ") if name == PATH_LENGTH else _symbol(symbol(name))


def _number(value: Fraction) -> str:
    text = format_number(value)
    mantissa, has_power, power = text.partition("e")
    if not has_power:
        return mn(text)
    ten = tag("msup", mn("10"), _signed(power))
    return ten if mantissa == "1" else group(mn(mantissa), mo("×"), ten)


def _signed(digits: str) -> str:
    return group(mo("−"), mn(digits[1:])) if digits.startswith("-") else mn(digits)


def _strength(expr: Expr) -> float:
    """Return how tightly a tree binds as printed, which differs from the text where the notation does."""
    match expr.kind:
        case Kind.CALL if expr.args and expr.args[0].kind is Kind.OVER:
            return SUM if FOLDS.get(expr.name, Fold()).sign else PRODUCT
        case Kind.CALL:
            record = _record(expr)
            if record is None:
                return ATOM
            return TENSOR if record.infix else POWER if record.exponent else record.mathml_binding or ATOM
        case Kind.NUMBER if expr.value is not None and "e" in format_number(expr.value):
            return PRODUCT
        case Kind.INDEX:
            return ATOM if _is_time(expr.args[-1]) or _is_member(expr) else POWER
        case Kind.TRANSPOSE:
            return POWER
        case Kind.AT:
            return TENSOR
        case _:
            return binding(expr)


def _record(expr: Expr) -> Function | None:
    """Return what is said of how a call is set; None where nothing is, as of a matrix where that holds of numbers."""
    record = FUNCTIONS.get(expr.name)
    wide = expr.type is not None and expr.type.sort is Sort.MATRIX
    of_numbers = record is not None and record.entrywise is not None and record.entrywise.of_numbers
    return None if of_numbers and wide else record


def _part(expr: Expr, wanted: float) -> str:
    inner = _show(expr)
    return inner if _strength(expr) >= wanted else fenced(inner)


def _raised(base: Expr, exponent: str) -> str:
    return tag("msup", _part(base, ATOM), exponent)


def _show(expr: Expr) -> str:
    """Return the element of a node."""
    match expr.kind:
        case Kind.NUMBER:
            return _number(expr.value if expr.value is not None else Fraction(0))
        case Kind.NAME:
            return _name(expr.name)
        case Kind.INDEX:
            return _index(expr)
        case Kind.CALL:
            return _call(expr)
        case Kind.AT:
            values = map(_show, expr.args[1:])
            pairs = [group(_name(name), mo("="), value) for name, value in zip(expr.names, values, strict=True)]
            return tag("msub", group(_part(expr.args[0], ATOM), mo("|", stretchy="true")), _listed(pairs))
        case Kind.FUNCTION:
            return group(_name(expr.names[0]), mo("↦"), _show(expr.args[0]))
        case Kind.NEGATE:
            (part,) = expr.args
            return group(mo("−", form="prefix"), _part(part, PRODUCT if _is_fraction(part) else POWER))
        case Kind.ADD | Kind.SUBTRACT:
            left, right = expr.args
            sign = "+" if expr.kind is Kind.ADD else "−"
            # Two signs must not meet, as they would in a - -b.
            second = fenced(_show(right)) if _first(right).kind is Kind.NEGATE else _part(right, TENSOR)
            return group(_part(left, SUM), mo(sign, form="infix"), second)
        case Kind.MULTIPLY:
            return _product(*expr.args)
        case Kind.DIVIDE:
            return tag("mfrac", *map(_show, expr.args))
        case Kind.POWER:
            return _raised(expr.args[0], _show(expr.args[1]))
        case Kind.TRANSPOSE:
            return _raised(expr.args[0], mo("⊤"))
        case Kind.COMPARE:
            return _comparison(expr)
        case Kind.AND | Kind.OR:
            strength = BINDING[expr.kind]
            return _joined([_part(expr.args[0], strength), _part(expr.args[1], strength + 1)], words(expr.kind))
        case Kind.NOT:
            return group(words("not"), _part(expr.args[0], ATOM))
        case Kind.FOR_ALL | Kind.FOR_SOME:
            condition = [mo(":"), _part(expr.args[1], DISJUNCTION)] if len(expr.args) > 1 else []
            return _quantified(expr, _listed(map(_name, expr.names)), *condition)
        case Kind.EACH | Kind.SOME:
            return _quantified(expr, _range(expr))
        case Kind.OVER:
            return group(_show(expr.args[0]), mo(","), _range(expr))


def _quantified(expr: Expr, *reach: str) -> str:
    body = expr.args[0]
    shown = _show(body) if body.kind in (Kind.EACH, Kind.SOME) else _part(body, DISJUNCTION)
    sign = mo("∀" if expr.kind in (Kind.FOR_ALL, Kind.EACH) else "∃")
    return group(shown, mo(","), tag("mspace", width="1em"), sign, *reach)


def _index(expr: Expr) -> str:
    name = _name(expr.name)
    if len(expr.args) == 2 or _is_member(expr):
        name = _member(symbol(expr.name), _show(expr.args[0]))
    if _is_member(expr):
        return name
    index = expr.args[-1]
    step = group(small("("), _show(index), small(")"))
    if _is_time(index):
        return group(name, mo("\N{FUNCTION APPLICATION}"), step)
    return tag("msup", name, step)


def _member(sign: Symbol, index: str) -> str:
    plain = _symbol(replace(sign, subscript=""))
    indices = [*(_letter(part) for part in sign.subscript.split(",") if part), index]
    return tag("msub", plain, _listed(indices))


def _is_member(expr: Expr) -> bool:
    """Whether a node of a typed tree is a member of a family without a step, `W[l]`, and no value at a step, `Z[k]`."""
    inside = expr.args[0].type if expr.kind is Kind.INDEX and len(expr.args) == 1 else None
    return inside is not None and not inside.sort.is_index


def _is_time(index: Expr) -> bool:
    return index.type is not None and index.type.sort is Sort.TIME


def _product(left: Expr, right: Expr) -> str:
    head = _first(right)
    # Two numbers side by side would read as one, a letter and the name of a function or of several letters as one word.
    visible = head.kind is Kind.NUMBER or _is_filled(head) or _is_word(head) or _is_word(_last(left))
    joint = mo("·" if visible else "\N{INVISIBLE TIMES}")
    if head.kind is Kind.CALL and _is_applied(head):
        joint += tag("mspace", width="0.17em")
    first = _part(left, POWER if _only_scales(left, right) else PRODUCT)
    return group(first, joint, _part(right, PRODUCT if _is_fraction(right) else POWER))


def _is_filled(expr: Expr) -> bool:
    """Whether a matrix is set as the digit that all its entries are."""
    record = record_of(expr)
    return record is not None and record.filled is not None


def _is_applied(expr: Expr) -> bool:
    """Whether a call is set as a name, or a letter, before its arguments."""
    record = _record(expr)
    if record is None or expr.name in _NOTATIONS:
        return record is None
    return not (record.infix or record.exponent) and "\N{FUNCTION APPLICATION}" in (record.mathml or word(""))


def _only_scales(left: Expr, right: Expr) -> bool:
    """Whether the left factor is a product of size 1 x 1 that scales the right one: (b'b) A, which is not b' (b A)."""
    if left.kind is not Kind.MULTIPLY or left.type is None or right.type is None:
        return False
    return left.type.sort is Sort.MATRIX and left.type.rows == left.type.cols == ONE != right.type.rows


def _is_fraction(expr: Expr) -> bool:
    """Whether a node is printed as a fraction, which needs no brackets as a factor."""
    record = FUNCTIONS.get(expr.name) if expr.kind is Kind.CALL else None
    return expr.kind is Kind.DIVIDE or (record is not None and (record.mathml or "").startswith("<mfrac"))


def _first(expr: Expr) -> Expr:
    """Return the leftmost leaf as printed."""
    while expr.kind in (Kind.MULTIPLY, Kind.POWER, Kind.TRANSPOSE):
        expr = expr.args[0]
    return expr


def _last(expr: Expr) -> Expr:
    """Return the rightmost factor as printed."""
    while expr.kind is Kind.MULTIPLY:
        expr = expr.args[-1]
    return expr


def _is_word(expr: Expr) -> bool:
    return expr.kind in (Kind.NAME, Kind.INDEX) and expr.name != PATH_LENGTH and symbol(expr.name).is_word


def _comparison(expr: Expr) -> str:
    order = order_of(expr)
    if order is not None:
        larger, smaller, strict = order
        zero = mn("0") if smaller is None else _part(smaller, TENSOR)
        return group(_part(larger, SUM), mo("≻" if strict else "⪰"), zero)
    inclusion = inclusion_of(expr)
    if inclusion is not None:
        subgradient, function, point = inclusion
        values = group(mo("∂", form="prefix"), fenced(_show(function)), fenced(_show(point)))
        return group(_part(subgradient, SUM), mo("∈"), values)
    row = [_part(expr.args[0], SUM)]
    for operator, operand in zip(expr.operators, expr.args[1:], strict=True):
        row += [mo(_RELATIONS[operator]), _part(operand, SUM)]
    return group(*row)


def _range(expr: Expr) -> str:
    start, stop = map(_show, expr.args[1:])
    return group(_name(expr.names[0]), mo("="), start, mo(","), mo("…"), mo(","), stop)


def _folded(name: str, over: Expr) -> str:
    """Show a sum, a product, a maximum over a range."""
    body, start, stop = over.args
    fold = FOLDS.get(name, Fold())
    if fold.sign is not None:
        under = group(_name(over.names[0]), mo("="), _show(start))
        big = tag("munderover", mo(fold.sign), under, _show(stop))
        return group(big, _part(body, TENSOR if fold.joins is Kind.ADD else POWER))
    return applied(tag("munder", tag("mi", escape(name), mathvariant="normal"), _range(over)), _show(body))


def _call(expr: Expr) -> str:
    name, arguments = expr.name, expr.args
    if arguments and arguments[0].kind is Kind.OVER:
        whole = _folded(name, arguments[0])
        return group(whole, *(fenced(_show(argument)) for argument in arguments[1:]))
    if name in _NOTATIONS:
        return _NOTATIONS[name](arguments)
    record = _record(expr)
    if record is not None and record.infix:
        return _joined([_part(argument, POWER) for argument in arguments], mo(record.infix))
    if record is not None and record.exponent:
        return _raised(arguments[0], _exponent(record.exponent))
    shown = list(map(_show, arguments))
    if record is None or record.mathml is None:
        return word(name, _listed(shown))
    pattern = record.mathml
    return pattern.format(*shown) if pattern.count("{}") > 1 else pattern.format(_listed(shown))


def _exponent(text: str) -> str:
    """Return an exponent of a record: a number with or without a sign, a fraction, or a sign."""
    top, slash, bottom = text.partition("/")
    if slash:
        return group(mn(top), mo("/"), mn(bottom))
    return _signed(text) if text.lstrip("-").isdigit() else mo(text)


def _piece(name: str) -> Callable[[tuple[Expr, ...]], str]:
    def show(arguments: tuple[Expr, ...]) -> str:
        matrix, *ends = arguments
        inside = selectors(name, [_part(end, SUM) for end in ends], mo("…"))
        shown = [part if part.startswith("<") else mo(part) for part in inside]
        index = _listed(part if part.count("<mo") == 0 else tag("mrow", part) for part in shown)
        return tag("msub", fenced(_show(matrix), "[", "]"), index)

    return show


def _table(rows: Iterable[tuple[Expr, ...]]) -> str:
    lines = [tag("mtr", *(tag("mtd", _show(part)) for part in row)) for row in rows]
    return fenced(tag("mtable", *lines))


def _filled(digit: str) -> Callable[[tuple[Expr, ...]], str]:
    def show(arguments: tuple[Expr, ...]) -> str:
        return tag("msub", mn(digit), _joined([_part(argument, PRODUCT) for argument in arguments], mo("×")))

    return show


def _gradient(arguments: tuple[Expr, ...]) -> str:
    function, variables = arguments[0], arguments[1:]
    return group(tag("msub", mo("∇", form="prefix"), _listed(map(_show, variables))), _part(function, POWER))


_NOTATIONS: dict[str, Callable[[tuple[Expr, ...]], str]] = {
    **{sign: _piece(sign) for sign in (Sign.ENTRY, Sign.SEGMENT, Sign.ROWS, Sign.COLUMNS, Sign.BLOCK)},
    Sign.ROW: lambda arguments: _table([arguments]),
    Sign.STACK: lambda arguments: _table(map(row_parts, arguments)),
    **{name: _filled(str(record.filled)) for name, record in FUNCTIONS.items() if record.filled is not None},
    "grad": _gradient,
}
