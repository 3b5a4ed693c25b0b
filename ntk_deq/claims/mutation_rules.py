"""The rules by which a formula is changed in one place: halved constants, flipped signs, dropped factors and so on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from ntk_deq.language.calls import Parameter
from ntk_deq.language.expansion import substituted
from ntk_deq.language.format import format_expr, inclusion_of
from ntk_deq.language.functions import FUNCTIONS, RIVALS, record_of
from ntk_deq.language.record import TRANSPOSED, Degree
from ntk_deq.language.tree import QUANTIFIERS, RANGED, Expr, Kind, Span
from ntk_deq.language.types import Sort

_FLIPPED = {"<=": ">=", ">=": "<=", "<": ">", ">": "<"}
_STRICTER = {"<=": "<", ">=": ">"}
_WEAKER = {strict: weak for weak, strict in _STRICTER.items()}
_PRODUCTS = (Kind.MULTIPLY, Kind.DIVIDE)
_SUMS = (Kind.ADD, Kind.SUBTRACT)
_READABLE = 14  # characters: a shorter piece of a formula is shown with what stands around it

Path = tuple[int, ...]
Replacements = Iterator[Expr]


@dataclass(frozen=True)
class Edit:
    """A formula changed in one place.

    Attributes:
        rule: Name of the rule.
        span: The place in the formula's source text.
        before: The changed piece, large enough to read, in canonical spelling.
        after: What stands there now.
        expr: The whole changed formula, without types.
    """

    rule: str
    span: Span
    before: str
    after: str
    expr: Expr


def edits(expr: Expr, *, statement: bool = False) -> Iterator[Edit]:
    """Yield every change of a typed formula by one application of one rule, in the order of the tree.

    Steps, sizes and the variables of derivatives are left alone, except that the rule `step` moves a step by one.

    Args:
        expr: The formula, typed.
        statement: Whether it is a hypothesis or a conclusion: a side without a constant then counts as 1 times itself.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> from ntk_deq.language.types import SCALAR
        >>> from ntk_deq.language.typing import infer
        >>> tree = infer(parse("a <= 3*c"), {"a": SCALAR, "c": SCALAR})
        >>> [(edit.rule, edit.after) for edit in edits(tree)][:3]
        [('flip', 'a >= 3*c'), ('strict', 'a < 3*c'), ('factor', 'a <= 3')]
    """
    for path, node in _places(expr, ()):
        for rule, change in RULES.items():
            for new in change(node):
                yield _edit(expr, path, node, new, rule)
        if statement and node.kind is Kind.COMPARE and not _has_constant(node.args[-1]):
            side = node.args[-1]
            for rule, scaled in (("halve", _joined(Kind.DIVIDE, side, _two())), ("double", _times_two(side))):
                yield _edit(expr, path, node, replace(node, args=(*node.args[:-1], scaled)), rule)


def _edit(expr: Expr, path: Path, node: Expr, new: Expr, rule: str) -> Edit:
    changed = _replaced(expr, path, new)
    shown = path
    while shown and len(format_expr(_at(expr, shown))) < _READABLE:
        shown = shown[:-1]
    return Edit(rule, node.span, format_expr(_at(expr, shown)), format_expr(_at(changed, shown)), changed)


def _at(expr: Expr, path: Path) -> Expr:
    for index in path:
        expr = expr.args[index]
    return expr


def _replaced(expr: Expr, path: Path, new: Expr) -> Expr:
    if not path:
        return new
    head, rest = path[0], path[1:]
    changed = _replaced(expr.args[head], rest, new)
    return replace(expr, args=(*expr.args[:head], changed, *expr.args[head + 1 :]))


def _places(node: Expr, path: Path) -> Iterator[tuple[Path, Expr]]:
    """Yield the nodes that can be changed, parents first; none of an inclusion, in which a point stands twice."""
    if inclusion_of(node) is not None:
        return
    yield path, node
    for index, child in enumerate(node.args):
        if not _closed(node, index):
            yield from _places(child, (*path, index))


def _closed(node: Expr, index: int) -> bool:
    """Whether a child is no value: a step, a size, a variable, a literal exponent, a quantifier's condition."""
    if node.kind is Kind.INDEX:
        return True
    if node.kind in RANGED:
        return index > 0
    if node.kind is Kind.FUNCTION:
        return index > 0
    if node.kind is Kind.CALL and node.args[0].kind is Kind.FUNCTION:
        return False
    if node.kind is Kind.CALL and node.args[index].kind is not Kind.OVER and node.name in FUNCTIONS:
        parameters = FUNCTIONS[node.name].parameters
        return parameters[min(index, len(parameters) - 1)] in (Parameter.SIZE, Parameter.INDEX, Parameter.VARIABLE)
    if node.kind is Kind.POWER:
        return index == 1
    return node.kind in QUANTIFIERS and index == 1


def _halve(node: Expr) -> Replacements:
    if node.kind is Kind.NUMBER and node.value:
        yield replace(node, value=node.value / 2)


def _double(node: Expr) -> Replacements:
    if node.kind is Kind.NUMBER and node.value:
        yield replace(node, value=node.value * 2)


def _relation(table: dict[str, str]) -> Callable[[Expr], Replacements]:
    """Change each relation of a chain by itself."""

    def change(node: Expr) -> Replacements:
        for link, operator in enumerate(node.operators if node.kind is Kind.COMPARE else ()):
            if operator in table:
                operators = (*node.operators[:link], table[operator], *node.operators[link + 1 :])
                yield replace(node, operators=operators)

    return change


def _drop_factor(node: Expr) -> Replacements:
    """Drop the right factor or divisor, and the left factor where it is the first of the product."""
    if node.kind not in _PRODUCTS:
        return
    left, right = node.args
    if not _small(right):
        yield left
    if left.kind in _PRODUCTS or _small(left):
        return
    yield right if node.kind is Kind.MULTIPLY else replace(node, args=(_number(1, left.span), right))


def _small(node: Expr) -> bool:
    """Whether a factor is a constant which the rules `halve` and `double` turn into 1, or 1 itself."""
    return node.kind is Kind.NUMBER and node.value in (1, 2, Fraction(1, 2))


def _drop_term(node: Expr) -> Replacements:
    if node.kind not in _SUMS:
        return
    left, right = node.args
    yield left
    if left.kind not in _SUMS:
        yield right if node.kind is Kind.ADD else Expr(Kind.NEGATE, node.span, (right,))


def _drop_transpose(node: Expr) -> Replacements:
    if node.kind is Kind.TRANSPOSE:
        yield node.args[0]


def _swap(node: Expr) -> Replacements:
    """Swap the factors of a matrix product or of a Kronecker product; scalars commute."""
    product = node.kind is Kind.MULTIPLY and all(_is_matrix(part) for part in node.args)
    record = record_of(node)
    if product or (record is not None and record.reorders and record.degree is Degree.BILINEAR):
        yield replace(node, args=(node.args[1], node.args[0]))


def _exponent(node: Expr) -> Replacements:
    if node.kind is not Kind.POWER:
        return
    base, exponent = node.args
    for change in (1, -1):
        literal = _literal(exponent)
        if literal is not None:
            moved = _signed(literal + change, exponent.span)
        else:
            one = _number(1, exponent.span)
            moved = Expr(Kind.ADD if change == 1 else Kind.SUBTRACT, exponent.span, (exponent, one))
        yield replace(node, args=(base, moved))


def _literal(node: Expr) -> Fraction | None:
    if node.kind is Kind.NEGATE and node.args[0].kind is Kind.NUMBER:
        return -(node.args[0].value or Fraction(0))
    return node.value if node.kind is Kind.NUMBER else None


def _signed(value: Fraction, span: Span) -> Expr:
    number = _number(abs(value), span)
    return number if value >= 0 else Expr(Kind.NEGATE, span, (number,))


def _rename(rule: str) -> Callable[[Expr], Replacements]:
    """Put the function in a call's place that its record names for a rule."""

    def change(node: Expr) -> Replacements:
        mutant = FUNCTIONS[node.name].mutant if node.kind is Kind.CALL and node.name in FUNCTIONS else None
        if mutant is None or mutant[0] != rule:
            return
        if mutant[1] == TRANSPOSED:
            yield replace(node, kind=Kind.TRANSPOSE, name="")
        elif FUNCTIONS[mutant[1]].takes(len(node.args)):
            yield replace(node, name=mutant[1])

    return change


def _sign(node: Expr) -> Replacements:
    if node.kind in _SUMS:
        yield replace(node, kind=Kind.SUBTRACT if node.kind is Kind.ADD else Kind.ADD)
    elif node.kind is Kind.NEGATE:
        yield node.args[0]


def _step(node: Expr) -> Replacements:
    if node.kind is Kind.INDEX:
        *before, step = node.args
        for kind in (Kind.ADD, Kind.SUBTRACT):
            if kind is Kind.SUBTRACT and step.kind is Kind.NUMBER and step.value == 0:
                continue  # there is no step before the first
            yield replace(node, args=(*before, Expr(kind, step.span, (step, _number(1, step.span)))))


def _point(node: Expr) -> Replacements:
    """Take a derivative, a proximal map, an envelope of a function at another point: at its negative."""
    if node.kind is Kind.CALL and len(node.args) > 1 and node.args[0].kind is Kind.FUNCTION:
        function, point, *rest = node.args
        opposite = point.args[0] if point.kind is Kind.NEGATE else Expr(Kind.NEGATE, point.span, (point,))
        yield replace(node, args=(function, opposite, *rest))


def _argument(node: Expr) -> Replacements:
    """Take a function with its argument turned round: phi(-u) in the place of phi(u)."""
    if node.kind is Kind.FUNCTION:
        body, argument = node.args
        turned = substituted(body, {node.names[0]: Expr(Kind.NEGATE, argument.span, (argument,))})
        if turned != body:
            yield replace(node, args=(turned, argument))


RULES: dict[str, Callable[[Expr], Replacements]] = {
    "flip": _relation(_FLIPPED),
    "strict": _relation(_STRICTER),
    "weak": _relation(_WEAKER),
    "halve": _halve,
    "double": _double,
    "factor": _drop_factor,
    "term": _drop_term,
    "sign": _sign,
    "transpose": _drop_transpose,
    "swap": _swap,
    "exponent": _exponent,
    **{rule: _rename(rule) for rule in ("extreme", "norm", "spectral", "kronecker", "inverse", RIVALS)},
    "step": _step,
    "point": _point,
    "argument": _argument,
}
"""Every rule that changes one node, by name."""


def _is_matrix(node: Expr) -> bool:
    return node.type is not None and node.type.sort is Sort.MATRIX


def _has_constant(side: Expr) -> bool:
    """Whether a literal number is a factor of a side of a comparison, or all of it."""
    if side.kind in _PRODUCTS:
        return any(_has_constant(part) for part in side.args)
    return side.kind is Kind.NUMBER


def _number(value: int | Fraction, span: Span) -> Expr:
    return Expr(Kind.NUMBER, span, value=Fraction(value))


def _two() -> Expr:
    return _number(2, Span(0, 0))


def _times_two(side: Expr) -> Expr:
    return _joined(Kind.MULTIPLY, _two(), side)


def _joined(kind: Kind, left: Expr, right: Expr) -> Expr:
    return Expr(kind, Span(0, 0), (left, right))
