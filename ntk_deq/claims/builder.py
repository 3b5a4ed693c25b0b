"""From reductions of the grammar to the tree: one method a rule, and the limits on names and numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from lark import Token, Transformer

from ntk_deq.claims.errors import ExpressionError
from ntk_deq.claims.tree import Expr, Kind, Span

KEYWORDS = frozenset({"and", "or", "not", "for", "all", "with", "at"})
"""Words that no variable or definition may be called."""

MAX_LITERAL = 60
MAX_EXPONENT = 400
# A longer flat sum or conjunction becomes a balanced tree, so that its depth grows with the logarithm of its length.
MAX_CHAIN = 50

_ARITHMETIC = {"+": Kind.ADD, "-": Kind.SUBTRACT, "*": Kind.MULTIPLY, "/": Kind.DIVIDE}
_OPPOSITE = {"+": "-", "-": "+"}


def _span(children: Sequence[Token | Expr | None]) -> Span:
    present = [child for child in children if child is not None]
    first, last = present[0], present[-1]
    start = first.span.start if isinstance(first, Expr) else first.start_pos
    stop = last.span.stop if isinstance(last, Expr) else last.end_pos
    return Span(start or 0, stop or 0)


def _identifier(token: Token) -> str:
    name = str(token)
    span = _span([token])
    if name in KEYWORDS:
        raise ExpressionError(f"`{name}` is a word of the language and cannot be a name.", (span.start, span.stop))
    if len(name) > MAX_LITERAL:
        raise ExpressionError(
            f"a name may have at most {MAX_LITERAL} characters. Got {len(name)}.", (span.start, span.stop)
        )
    return name


def _number(token: Token) -> Fraction:
    """Return the exact value of a literal whose size is bounded before any power of ten is formed."""
    span = _span([token])
    where = (span.start, span.stop)
    if len(token) > MAX_LITERAL:
        raise ExpressionError(f"a number may have at most {MAX_LITERAL} characters. Got {len(token)}.", where)
    mantissa, _, exponent = token.lower().partition("e")
    whole, _, decimals = mantissa.partition(".")
    digits = (whole + decimals).rstrip("0")
    power = int(exponent or 0) + len(whole) - len(digits)  # of the last digit that is not zero
    if abs(int(exponent or 0)) > MAX_EXPONENT or (digits.strip("0") and abs(power) > MAX_EXPONENT):
        raise ExpressionError(
            f"a number's power of ten must be between -{MAX_EXPONENT} and {MAX_EXPONENT}. Got {token}.", where
        )
    return Fraction(str(token))


def _left_deep(operands: list[Expr], operators: list[str], kinds: dict[str, Kind]) -> Expr:
    tree = operands[0]
    for operator, operand in zip(operators, operands[1:], strict=True):
        tree = Expr(kinds[operator], Span(tree.span.start, operand.span.stop), (tree, operand))
    return tree


def _balanced(operands: list[Expr], operators: list[str], kinds: dict[str, Kind]) -> Expr:
    """Return a tree of logarithmic depth with the same value; `a - b + c - d` becomes `(a - b) + (c - d)`.

    Behind a minus the signs of the right half are turned round: `a - b - c + d` becomes `(a - b) - (c - d)`.
    """
    if len(operands) <= 2:
        return _left_deep(operands, operators, kinds)
    middle = (len(operands) + 1) // 2
    joint, inner = operators[middle - 1], operators[middle:]
    if joint == "-":
        inner = [_OPPOSITE[operator] for operator in inner]
    left = _balanced(operands[:middle], operators[: middle - 1], kinds)
    right = _balanced(operands[middle:], inner, kinds)
    return Expr(kinds[joint], Span(left.span.start, right.span.stop), (left, right))


def _chain(children: list[Token | Expr], kinds: dict[str, Kind], *, regroup: bool) -> Expr:
    operands = [child for child in children if isinstance(child, Expr)]
    operators = [str(child) for child in children if not isinstance(child, Expr)]
    build: Callable[[list[Expr], list[str], dict[str, Kind]], Expr] = _left_deep
    if regroup and len(operands) > MAX_CHAIN:
        build = _balanced
    return build(operands, operators, kinds)


class TreeBuilder(Transformer[Token, Expr]):
    """Builds the tree bottom up while the LALR automaton reduces, so that no recursion depends on the text."""

    def number(self, children: list[Token]) -> Expr:
        """Build a literal."""
        return Expr(Kind.NUMBER, _span(children), value=_number(children[0]))

    def name(self, children: list[Token]) -> Expr:
        """Build a name."""
        return Expr(Kind.NAME, _span(children), name=_identifier(children[0]))

    def index(self, children: list[Token | Expr]) -> Expr:
        """Build a name at a step, `Z[k]`."""
        name, _, step, _ = children
        assert isinstance(name, Token)
        assert isinstance(step, Expr)
        return Expr(Kind.INDEX, _span(children), (step,), name=_identifier(name))

    def bracketed(self, children: list[Token | Expr]) -> Expr:
        """Pass on what stands in brackets, whose span now includes them."""
        inner = children[1]
        assert isinstance(inner, Expr)
        return replace(inner, span=_span(children))

    def transpose(self, children: list[Token | Expr]) -> Expr:
        """Build a transpose."""
        return self._node(Kind.TRANSPOSE, children)

    def negate(self, children: list[Token | Expr]) -> Expr:
        """Build a negation."""
        return self._node(Kind.NEGATE, children)

    def not_(self, children: list[Token | Expr]) -> Expr:
        """Build a denial."""
        return self._node(Kind.NOT, children)

    def power(self, children: list[Token | Expr]) -> Expr:
        """Build a power."""
        return self._node(Kind.POWER, children)

    def sum(self, children: list[Token | Expr]) -> Expr:
        """Build a chain of + and -."""
        return _chain(children, _ARITHMETIC, regroup=True)

    def product(self, children: list[Token | Expr]) -> Expr:
        """Build a chain of * and /."""
        return _chain(children, _ARITHMETIC, regroup=False)

    def disjunction(self, children: list[Token | Expr]) -> Expr:
        """Build a chain of `or`."""
        return _chain(children, {"or": Kind.OR}, regroup=True)

    def conjunction(self, children: list[Token | Expr]) -> Expr:
        """Build a chain of `and`."""
        return _chain(children, {"and": Kind.AND}, regroup=True)

    def comparison(self, children: list[Token | Expr]) -> Expr:
        """Build one node for a whole chain of comparisons."""
        operators = tuple(str(child) for child in children if isinstance(child, Token))
        return replace(self._node(Kind.COMPARE, children), operators=operators)

    def for_all(self, children: list[Token | Expr | None]) -> Expr:
        """Build a quantified statement."""
        names = tuple(_identifier(c) for c in children if isinstance(c, Token) and c.type == "NAME")
        arguments = tuple(child for child in children if isinstance(child, Expr))
        span = _span(children)
        for name in names:
            if names.count(name) > 1:
                raise ExpressionError(f"`for all` lists `{name}` twice.", (span.start, span.stop))
        return Expr(Kind.FOR_ALL, span, arguments, names=names)

    def keyword(self, children: list[Token | Expr]) -> Expr:
        """Return an AT node of one pair as a stand-in that `call` unpacks at once."""
        name, _, value = children
        assert isinstance(name, Token)
        assert isinstance(value, Expr)
        return Expr(Kind.AT, _span(children), (value,), names=(_identifier(name),))

    def call(self, children: list[Token | Expr | None]) -> Expr:
        """Build a call, or the node of `at`."""
        head = children[0]
        assert isinstance(head, Token)
        arguments = [child for child in children if isinstance(child, Expr)]
        span = _span(children)
        pairs = [a for a in arguments if a.kind is Kind.AT and len(a.args) == 1]
        if str(head) == "at":
            return _at(arguments, pairs, span)
        if pairs:
            raise ExpressionError(
                f"`{head}` takes no named arguments.",
                (pairs[0].span.start, pairs[0].span.stop),
                "write == for `equals`; only at(expression, NAME = expression) names its arguments",
            )
        return Expr(Kind.CALL, span, tuple(arguments), name=_identifier(head))

    @staticmethod
    def _node(kind: Kind, children: list[Token | Expr]) -> Expr:
        return Expr(kind, _span(children), tuple(child for child in children if isinstance(child, Expr)))


def _at(arguments: list[Expr], pairs: list[Expr], span: Span) -> Expr:
    names = [pair.names[0] for pair in pairs]
    if not pairs or len(arguments) != len(pairs) + 1 or arguments[0] is pairs[0]:
        raise ExpressionError(
            "`at` takes one expression and then at least one replacement: at(expression, NAME = expression).",
            (span.start, span.stop),
        )
    for name, pair in zip(names, pairs, strict=True):
        if names.count(name) > 1:
            raise ExpressionError(f"`at` replaces `{name}` twice.", (pair.span.start, pair.span.stop))
    return Expr(Kind.AT, span, (arguments[0], *(pair.args[0] for pair in pairs)), names=tuple(names))
