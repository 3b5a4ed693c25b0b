"""Text to tree: the parser of the claim language, with limits that keep a hostile text from costing time or memory.

From reductions of the grammar to the tree: one method a rule, and the limits on names and numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from importlib import resources

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ntk_deq.errors import ExpressionError
from ntk_deq.language.format import format_expr
from ntk_deq.language.hints import unexpected_character, unexpected_token
from ntk_deq.language.tree import Expr, Kind, Mark, Sign, Span, inclusion, literal_of, piece_of, replaced_at, restricted

KEYWORDS = frozenset({"and", "or", "not", "for", "all", "some", "in", "with", "at"})
"""Words that no variable or definition may be called."""

MAX_LITERAL = 60
MAX_EXPONENT = 400
# A longer flat sum or conjunction becomes a balanced tree, so that its depth grows with the logarithm of its length.
MAX_CHAIN = 50

_MEMBER = re.compile(r"[^\W\d]\w*\[-?[0-9]{1,7}\]")
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
    if token.type == "MEMBER":
        name = name[1:-1]
        if not _MEMBER.fullmatch(name):
            raise ExpressionError("between backquotes stands a member by its number.", (span.start, span.stop))
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
        """Build a name at a step or a member of a family, `Z[k]`, or a member at a step, `W[l][k]`."""
        name = children[0]
        assert isinstance(name, Token)
        inside = tuple(child for child in children if isinstance(child, Expr))
        return Expr(Kind.INDEX, _span(children), inside, name=_identifier(name))

    def whole(self, children: list[Token]) -> Expr:
        """Return a stand-in for `:` that `piece` unpacks at once."""
        return Expr(Kind.NAME, _span(children), name=":")

    def span_of(self, children: list[Token | Expr]) -> Expr:
        """Return a stand-in for `i..p` that `piece` unpacks at once."""
        return Expr(Kind.AT, _span(children), tuple(child for child in children if isinstance(child, Expr)))

    def piece(self, children: list[Token | Expr]) -> Expr:
        """Build an entry, rows, columns or a block of a matrix."""
        matrix, *selectors = (child for child in children if isinstance(child, Expr))
        return piece_of(matrix, selectors, _span(children))

    def row(self, children: list[Token | Expr]) -> Expr:
        """Build a row of a literal; one entry alone stands for itself."""
        parts = tuple(child for child in children if isinstance(child, Expr))
        return Expr(Kind.CALL, _span(children), parts, name=Sign.ROW)

    def literal(self, children: list[Token | Expr]) -> Expr:
        """Build a matrix from its entries or blocks."""
        rows = [child for child in children if isinstance(child, Expr)]
        return literal_of(rows, _span(children))

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

    def membership(self, children: list[Token | Expr | None]) -> Expr:
        """Build `g in subdiff(phi, z)`, which is short for `z == resolvent(phi, z + g)`."""
        subgradient, *arguments = (child for child in children if isinstance(child, Expr))
        place = next(k for k, child in enumerate(children) if isinstance(child, Token) and child.type == "NAME")
        return inclusion(subgradient, str(children[place]), arguments, _span(children), _span(children[place:]))

    def for_all(self, children: list[Token | Expr | None]) -> Expr:
        """Build a quantified statement."""
        return self._quantified(Kind.FOR_ALL, children)

    def for_some(self, children: list[Token | Expr | None]) -> Expr:
        """Build a statement about some step."""
        return self._quantified(Kind.FOR_SOME, children)

    @staticmethod
    def _quantified(kind: Kind, children: list[Token | Expr | None]) -> Expr:
        names = tuple(_identifier(c) for c in children if isinstance(c, Token) and c.type == "NAME")
        arguments = tuple(child for child in children if isinstance(child, Expr))
        span = _span(children)
        for name in names:
            if names.count(name) > 1:
                raise ExpressionError(f"`{kind}` lists `{name}` twice.", (span.start, span.stop))
        return Expr(kind, span, arguments, names=names)

    def reach(self, children: list[Token | Expr]) -> Expr:
        """Build what a letter runs over, as a node without a body that `each`, `some` and `over` take apart."""
        name = children[0]
        assert isinstance(name, Token)
        bounds = tuple(child for child in children if isinstance(child, Expr))
        return Expr(Kind.OVER, _span(children), bounds, names=(_identifier(name),))

    def each(self, children: list[Token | Expr]) -> Expr:
        """Build a statement about every member of a range."""
        return self._ranged(Kind.EACH, children)

    def some(self, children: list[Token | Expr]) -> Expr:
        """Build a statement about some member of a range."""
        return self._ranged(Kind.SOME, children)

    def over(self, children: list[Token | Expr]) -> Expr:
        """Build what a sum, a product, a maximum is taken of."""
        return self._ranged(Kind.OVER, children)

    @staticmethod
    def _ranged(kind: Kind, children: list[Token | Expr]) -> Expr:
        body, reach = (child for child in children if isinstance(child, Expr))
        return Expr(kind, _span(children), (body, *reach.args), names=reach.names)

    def keyword(self, children: list[Token | Expr]) -> Expr:
        """Return an AT node of one pair as a stand-in that `call` unpacks at once."""
        *index, value = (child for child in children if isinstance(child, Expr))
        name = children[0]
        assert isinstance(name, Token)
        inside = "".join(f"[{format_expr(part)}]" for part in index)  # a member of a family
        return Expr(Kind.AT, _span(children), (value,), names=(_identifier(name) + inside,))

    def restriction(self, children: list[Token | Expr]) -> Expr:
        """Return an AT node without a name as a stand-in for `on: ...` that `call` unpacks at once."""
        node, word = self._node(Kind.AT, children), str(children[0])
        if word != "on":
            raise ExpressionError(f"`{word}:` means nothing here.", (node.span.start, node.span.stop), "write on: ...")
        return node

    def function(self, children: list[Token | Expr]) -> Expr:
        """Build a function of one argument, with its shape where that is written: `u -> f`, `u[n] -> f`, `u[] -> f`."""
        name = children[0]
        assert isinstance(name, Token)
        *sizes, body = (child for child in children if isinstance(child, Expr))
        bracketed = any(isinstance(child, Token) and child.type == "LSQB" for child in children)
        shape = (Expr(Kind.CALL, body.span, tuple(sizes), name=Mark.SHAPE),) if bracketed else ()
        return Expr(Kind.FUNCTION, _span(children), (body, *shape), names=(_identifier(name),))

    def shape(self, children: list[Token | Expr | None]) -> Expr:
        """Build the shape of a parameter."""
        return Expr(Kind.CALL, _span(children), tuple(c for c in children if isinstance(c, Expr)), name=Mark.SHAPE)

    def parameter(self, children: list[Token | Expr | None]) -> Expr:
        """Build a parameter of a function: a name, with its shape as argument where that is written."""
        name = children[0]
        assert isinstance(name, Token)
        shape = tuple(child for child in children if isinstance(child, Expr))
        return Expr(Kind.NAME, _span(children), shape, name=_identifier(name))

    def head(self, children: list[Token | Expr]) -> Expr:
        """Build the head of a function's definition: a call of its parameters, by a name or a member of a family."""
        first, *rest = children
        parameters = tuple(child for child in rest if isinstance(child, Expr))
        if isinstance(first, Expr):
            return Expr(Kind.CALL, _span(children), (first, *parameters))
        return Expr(Kind.CALL, _span(children), parameters, name=_identifier(first))

    def indexed_call(self, children: list[Token | Expr]) -> Expr:
        """Build a call of a member of a family of functions, `f[l](z)`: nameless, its first part is the member."""
        name = children[0]
        assert isinstance(name, Token)
        close = next(i for i, child in enumerate(children) if isinstance(child, Token) and child.type == "LPAR")
        inside = tuple(child for child in children[:close] if isinstance(child, Expr))
        arguments = [child for child in children[close:] if isinstance(child, Expr)]
        if pairs := [a for a in arguments if a.kind is Kind.AT and len(a.args) == 1]:
            where = (pairs[0].span.start, pairs[0].span.stop)
            raise ExpressionError(f"`{name}[...]` takes no named arguments.", where)
        member = Expr(Kind.INDEX, _span(children[:close]), inside, name=_identifier(name))
        return Expr(Kind.CALL, _span(children), (member, *arguments))

    def call(self, children: list[Token | Expr | None]) -> Expr:
        """Build a call, or the node of `at`."""
        head = children[0]
        assert isinstance(head, Token)
        arguments = [child for child in children if isinstance(child, Expr)]
        span = _span(children)
        pairs = [a for a in arguments if a.kind is Kind.AT and len(a.args) == 1]
        if any(not pair.names for pair in pairs):
            return restricted(str(head), arguments, span)
        ranged = [a for a in arguments if a.kind is Kind.OVER]
        if ranged and len(arguments) > 1 and not (str(head) == "compose" and ranged == arguments[:1]):
            where = (ranged[0].span.start, ranged[0].span.stop)
            raise ExpressionError(f"what `{head}` takes over a range must be its only argument.", where)
        if str(head) == "at":
            return replaced_at(arguments, pairs, span)
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


__all__ = ["KEYWORDS", "MAX_DEPTH", "MAX_TEXT", "parse", "parse_head", "parse_reach"]

MAX_TEXT = 20_000
# Comparing or pickling a tree costs the interpreter about four frames a level; its default limit is 1000 frames.
MAX_DEPTH = 100


def parse(text: str) -> Expr:
    """Return the tree of an expression; no node has a type yet.

    Spans are offsets in `text`; a bracketed expression's span includes its brackets. A sum or a conjunction of more
    than 50 terms comes out as a balanced tree instead of a left-deep one.

    Args:
        text: At most 20 000 characters, nested at most 100 levels deep.

    Raises:
        ExpressionError: The text is no expression, or passes a limit.

    Example:
        >>> tree = parse("norm(A') <= 2*c for all k")
        >>> tree.kind, tree.args[0].kind, tree.args[0].operators
        (<Kind.FOR_ALL: 'for all'>, <Kind.COMPARE: 'compare'>, ('<=',))
    """
    return _parsed(text, "start")


def parse_reach(text: str) -> Expr:
    """Return what a letter runs over, `l in 1..L`: a node of kind OVER with its two bounds and no body.

    Raises:
        ExpressionError: The text is none.

    Example:
        >>> reach = parse_reach("l in 1..L")
        >>> reach.names, [bound.kind.value for bound in reach.args]
        (('l',), ['number', 'name'])
    """
    return _parsed(text, "reach")


def parse_head(text: str) -> Expr:
    """Return what the key of a function's definition says, `map(z[n, N], W)`: a call of its parameters.

    Of a member of a family, `f[l](z)`, the call has no name, and the member is its first argument.

    Raises:
        ExpressionError: The text is none.

    Example:
        >>> head = parse_head("map(z[n, N], W)")
        >>> head.name, [(parameter.name, len(parameter.args)) for parameter in head.args]
        ('map', [('z', 1), ('W', 0)])
    """
    return _parsed(text, "head")


def _parsed(text: str, start: str) -> Expr:
    _check_limits(text)
    try:
        tree: Expr = _parser().parse(text, start=start)  # type: ignore[assignment]
    except UnexpectedCharacters as error:
        raise unexpected_character(text, error) from None
    except UnexpectedToken as error:
        raise unexpected_token(text, error) from None
    except UnexpectedInput as error:  # pragma: no cover - the two above are all that the LALR parser raises
        raise ExpressionError("not an expression", (0, len(text))) from error
    _check_depth(tree)
    return tree


@cache
def _parser() -> Lark:
    grammar = resources.files("ntk_deq.language").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(
        grammar,
        start=["start", "reach", "head"],
        parser="lalr",
        lexer="contextual",
        transformer=TreeBuilder(),
        keep_all_tokens=True,
    )


def _check_limits(text: str) -> None:
    if len(text) > MAX_TEXT:
        raise ExpressionError(
            f"an expression may have at most {MAX_TEXT} characters. Got {len(text)}.", (MAX_TEXT, len(text))
        )
    if not text.strip():
        raise ExpressionError("an expression is missing: the text is empty.", (0, len(text)))
    open_brackets = 0
    for bracket in re.finditer(r"[()\[\]{}]", text):
        open_brackets += 1 if bracket.group() in "([{" else -1
        if open_brackets > MAX_DEPTH:
            raise _too_deep(bracket.span())


def _check_depth(tree: Expr) -> None:
    stack = [(tree, 1)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise _too_deep((node.span.start, node.span.stop))
        stack.extend((child, depth + 1) for child in node.args)


def _too_deep(span: tuple[int, int]) -> ExpressionError:
    return ExpressionError(
        f"the expression is nested more than {MAX_DEPTH} levels deep.",
        span,
        "define its parts under `let` and use their names",
    )
