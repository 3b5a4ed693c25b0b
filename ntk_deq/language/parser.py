"""Text to tree: the parser of the claim language, with limits that keep a hostile text from costing time or memory.

The grammar, weakest binding first; `[x]` may be left out, `x, ...` stands for one or more:

    quantified   ranged [for all|some NAME, ... [with expression]]
    ranged       expression {for all|some reach}
    reach        NAME in sum..sum
    expression   operands between or, and, not, comparisons or `in`, + -, * /, - in front, ^ (right to left)
    operand      atom {' or {selector, ...}}, a selector being sum, sum..sum or :
    atom         NUMBER, NAME, NAME[expression], NAME[expression][expression], `MEMBER`, `MEMBER`[expression],
                 NAME(argument, ...), a name with brackets called alike, (quantified), [expression, ...; ...]
    argument     [NAME[[expression [, expression]]] ->] expression [for reach], or NAME = expression, NAME: expression
    head         NAME(parameter, ...), NAME[expression](parameter, ...), a parameter being NAME or NAME[sum, ...]

One grammar for numbers, matrices and truth values: which is which is settled by `ntk_deq.language.typing`. Inside an
argument a quantifier needs brackets: its list of names would swallow the next comma.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, NoReturn, TypeVar

from ntk_deq.errors import ExpressionError
from ntk_deq.language.format import format_expr
from ntk_deq.language.hints import unexpected_character, unexpected_token
from ntk_deq.language.tree import (
    MAX_LITERAL,
    Expr,
    Kind,
    Mark,
    Span,
    call_of,
    chained,
    inclusion,
    literal_of,
    number_of,
    piece_of,
)

KEYWORDS = frozenset({"and", "or", "not", "for", "all", "some", "in", "with", "at"})
"""Words that no variable or definition may be called."""

MAX_TEXT = 20_000
# Comparing or pickling a tree costs the interpreter about four frames a level; its default limit is 1000 frames.
MAX_DEPTH = 100

NAME = r"[A-Za-z_\u0391-\u03A1\u03A3-\u03A9\u03B1-\u03C9][A-Za-z0-9_\u0391-\u03A1\u03A3-\u03A9\u03B1-\u03C9]*"
"""The pattern of a name: Latin and Greek letters, digits, underscores."""

_TOKEN = re.compile(
    r"[ \t\f\r\n]*(?:(?P<NUMBER>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
    rf"|(?P<NAME>{NAME})|(?P<SIGN>\.\.|->|[<>=!]=|[-+*/^',=()\[\]{{}};:<>])"
    # A member by its number, as in the formulas of a system that is written out for a depth: no claim can define one.
    r"|(?P<MEMBER>`[^`\s]+`)|(?P<END>\Z)|(?P<BAD>.))",
    re.DOTALL,
)
_MEMBER = re.compile(r"[^\W\d]\w*\[-?[0-9]{1,7}\]")

# How tightly signs bind: those between operands, and those in front of one.
_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _NEGATE, _POWER = range(1, 9)
_BETWEEN = {"or": _OR, "and": _AND, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "^": _POWER}
_BETWEEN |= dict.fromkeys(("in", "<", "<=", "==", "!=", ">=", ">"), _COMPARE)
_IN_FRONT = {"not": (_NOT, Kind.NOT), "-": (_NEGATE, Kind.NEGATE)}
_BEHIND = {*_BETWEEN, "for", "..", ",", ";", ")", "]", "}", "{", "'", "END"}  # what can stand behind an operand
_Part = TypeVar("_Part")


class _Token(NamedTuple):
    kind: str  # NUMBER, NAME, MEMBER, END, BAD, else the sign or the word itself
    text: str
    start: int
    stop: int

    @property
    def is_word(self) -> bool:
        return self.kind == "NAME" or self.kind in KEYWORDS


@dataclass(slots=True)
class _Chain:
    """Operands and the signs behind them, all of one level; of a sign in front, the sign alone."""

    level: int
    operands: list[Expr]
    signs: list[str]
    start: int

    def closed(self, last: Expr) -> Expr:
        """Return the tree of the chain with its last operand."""
        span = Span(self.start, last.span.stop)
        if not self.operands:
            return Expr(_IN_FRONT[self.signs[0]][1], span, (last,))
        if self.level == _COMPARE:
            return Expr(Kind.COMPARE, span, (*self.operands, last), operators=tuple(self.signs))
        if self.level == _POWER:
            for base in self.operands[::-1]:
                last = Expr(Kind.POWER, Span(base.span.start, last.span.stop), (base, last))
            return last
        return chained([*self.operands, last], self.signs)


class _Parser:
    """One walk over the tokens of a text. Nothing but brackets makes the interpreter go deeper."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [_token(found) for found in _TOKEN.finditer(text)]
        self.tokens.append(self.tokens[-1])  # so that one more can always be looked at
        self.place = 0
        self.complete = -1  # the place behind the operand that was read last

    @property
    def kind(self) -> str:
        """The kind of the next token."""
        return self.tokens[self.place].kind

    def take(self, *kinds: str) -> _Token:
        """Go on behind a token of one of these kinds."""
        token = self.tokens[self.place]
        if token.kind not in kinds:
            self.refuse()
        self.place += 1
        return token

    def skip(self, kind: str) -> bool:
        """Go on behind the next token if it is of this kind, and return whether it was."""
        found = self.kind == kind
        self.place += found
        return found

    def word(self) -> _Token:
        """Go on behind a name; whether it may be one is settled when its node is built."""
        return self.take("NAME", *KEYWORDS)

    def refuse(self) -> NoReturn:
        """Refuse the next token."""
        token = self.tokens[self.place]
        if token.kind == "BAD":
            raise unexpected_character(self.text, token.start)
        raise unexpected_token(self.text, token.kind, token.start, token.stop, behind=self.complete == self.place)

    def fail(self, message: str, span: Span, hint: str | None = None) -> NoReturn:
        """Refuse what stands before the next token, unless that cannot stand there either."""
        if self.kind not in _BEHIND:
            self.complete = self.place
            self.refuse()
        raise ExpressionError(message, (span.start, span.stop), hint)

    def span(self, start: int) -> Span:
        """Return what lies between an offset and the next token."""
        return Span(start, self.tokens[self.place - 1].stop)

    def listed(self, read: Callable[[], _Part], sign: str = ",") -> list[_Part]:
        """Read one part or more, with signs between them."""
        parts = [read()]
        while self.skip(sign):
            parts.append(read())
        return parts

    def quantified(self) -> Expr:
        """Read a statement with what it is said for."""
        tree = self.expression()
        while self.skip("for"):
            every = self.take("all", "some").kind == "all"
            if self.tokens[self.place + 1].kind == "in":
                tree = self.over(Kind.EACH if every else Kind.SOME, tree)
                continue
            kind, words = Kind.FOR_ALL if every else Kind.FOR_SOME, self.listed(self.word)
            condition = (self.expression(),) if self.skip("with") else ()
            span, names = self.span(tree.span.start), tuple(map(self.identifier, words))
            if twice := next((name for name in names if names.count(name) > 1), None):
                self.fail(f"`{kind}` lists `{twice}` twice.", span)
            return Expr(kind, span, (tree, *condition), names=names)
        return tree

    def over(self, kind: Kind, body: Expr) -> Expr:
        """Read the range over which something is said or taken."""
        reach = self.reach()
        return Expr(kind, self.span(body.span.start), (body, *reach.args), names=reach.names)

    def reach(self) -> Expr:
        """Read what a letter runs over: a node of kind OVER with its bounds and no body."""
        word = self.word()
        self.take("in")
        start = self.expression(_SUM)
        self.take("..")
        bounds = start, self.expression(_SUM)
        return Expr(Kind.OVER, self.span(word.start), bounds, names=(self.identifier(word),))

    def expression(self, weakest: int = _OR, first: Expr | None = None) -> Expr:
        """Read operands and the signs between them, none weaker than `weakest`; the first may be begun already."""
        chains: list[_Chain] = []  # those that are not complete
        while True:
            while first is None and self.kind in _IN_FRONT:
                if self.kind == "not" and max([weakest, *(chain.level for chain in chains)]) > _NOT:
                    break  # a name, as it seems
                sign = self.take("not", "-")
                chains.append(_Chain(_IN_FRONT[sign.kind][0], [], [sign.kind], sign.start))
            operand, first = self.operand(first), None
            self.complete, behind = self.place, self.kind
            level = _BETWEEN.get(behind, 0)
            if behind == "in" and weakest <= _COMPARE and not any(chain.level == _COMPARE for chain in chains):
                operand = self.inclusion(_closed(chains, operand, level))
                behind = self.kind
                level = _BETWEEN.get(behind, 0)
                if level >= _COMPARE:
                    self.refuse()
            if level < weakest or behind == "in":
                return _closed(chains, operand, 0)
            operand = _closed(chains, operand, level)
            if not chains or chains[-1].level != level:
                chains.append(_Chain(level, [], [], operand.span.start))
            chains[-1].operands.append(operand)
            chains[-1].signs.append(behind)
            self.place += 1

    def inclusion(self, subgradient: Expr) -> Expr:
        """Read `g in subdiff(phi, z)`, which is short for `z == resolvent(phi, z + g)`, from its `in`."""
        self.take("in")
        word = self.word()
        self.take("(")
        arguments = self.listed(self.argument)
        self.take(")")
        return inclusion(subgradient, word.text, arguments, self.span(subgradient.span.start), self.span(word.start))

    def operand(self, tree: Expr | None) -> Expr:
        """Read an atom, unless it is there, with the primes and braces behind it."""
        if tree is None:
            tree = self.atom()
        while self.kind in ("'", "{"):
            if self.skip("'"):
                tree = Expr(Kind.TRANSPOSE, self.span(tree.span.start), (tree,))
            elif self.skip("{"):
                selectors = self.listed(self.selector)
                self.take("}")
                tree = piece_of(tree, selectors, self.span(tree.span.start))
        return tree

    def selector(self) -> tuple[Expr, ...]:
        """Read an index, the two ends of a range of them, or nothing for all of them."""
        if self.skip(":"):
            return ()
        start = self.expression(_SUM)
        return (start, self.expression(_SUM)) if self.skip("..") else (start,)

    def atom(self) -> Expr:
        """Read a number, a name with its brackets, a call, what stands in brackets, or a matrix."""
        token = self.tokens[self.place]
        if token.kind == "MEMBER" or token.is_word:
            self.place += 1
            return self.named(token, [])
        self.take("NUMBER", "(", "[")
        if token.kind == "NUMBER":
            span = self.span(token.start)
            return Expr(Kind.NUMBER, span, value=number_of(token.text, span))
        if token.kind == "(":
            inner = self.quantified()
            self.take(")")
            return replace(inner, span=self.span(token.start))
        rows = self.listed(lambda: self.listed(self.expression), ";")
        self.take("]")
        return literal_of(rows, self.span(token.start))

    def named(self, word: _Token, inside: list[Expr]) -> Expr:
        """Read what stands behind a name, the first brackets perhaps already: steps and members, arguments."""
        while len(inside) < (1 if word.kind == "MEMBER" else 2) and self.skip("["):
            inside.append(self.expression())
            self.take("]")
        if self.kind == "(" and word.kind != "MEMBER":
            return self.call(word, tuple(inside))
        kind = Kind.INDEX if inside else Kind.NAME
        return Expr(kind, self.span(word.start), tuple(inside), name=self.identifier(word))

    def call(self, word: _Token, inside: tuple[Expr, ...]) -> Expr:
        """Read a call, of a member of a family too, or what `at` replaces, from its bracket.

        A call of a member, `f[l](z)`, is nameless: its first part is the member.
        """
        before = self.span(word.start)
        self.take("(")
        arguments = [] if self.kind == ")" and not inside else self.listed(self.argument)
        self.take(")")
        head, span = word.text if word.text == "at" and not inside else self.identifier(word), self.span(word.start)
        return call_of(head, Expr(Kind.INDEX, before, inside, name=head) if inside else None, arguments, span)

    def argument(self) -> Expr:
        """Read an argument; of `NAME = ...` and `on: ...` an AT node of one part stands in, without a name for `on`."""
        word, sign = self.tokens[self.place], self.tokens[self.place + 1].kind
        if not word.is_word or sign not in ("=", ":", "->", "["):
            return self.taken(self.expression())
        self.place += 1
        inside, bracketed = list[Expr](), self.skip("[")
        if bracketed:
            inside = [] if self.kind == "]" else [self.expression()]
            if inside and self.skip(","):
                inside.append(self.expression())
            self.take("]")
            sign = self.kind
            if len(inside) == 1 and sign not in ("=", "->"):
                return self.taken(self.expression(first=self.named(word, inside)))
        self.take(*(("->",) if bracketed and len(inside) != 1 else ("->", "=", ":")))
        body = self.expression()
        span = self.span(word.start)
        if sign == "->":
            shape = [Expr(Kind.CALL, body.span, tuple(inside), name=Mark.SHAPE)] if bracketed else []
            return self.taken(Expr(Kind.FUNCTION, span, (body, *shape), names=(self.identifier(word),)))
        if sign == "=":
            member = "".join(f"[{format_expr(part)}]" for part in inside)
            return Expr(Kind.AT, span, (body,), names=(self.identifier(word) + member,))
        if word.text != "on":
            self.fail(f"`{word.text}:` means nothing here.", span, "write on: ...")
        return Expr(Kind.AT, span, (body,))

    def taken(self, tree: Expr) -> Expr:
        """Read the range over which a sum, a product, a maximum is taken, if there is one."""
        return self.over(Kind.OVER, tree) if self.skip("for") else tree

    def head(self) -> Expr:
        """Read the head of a function's definition: a call of its parameters, by a name or a member of a family."""
        word, member = self.word(), list[Expr]()
        if self.skip("["):
            inside = self.expression()
            self.take("]")
            member = [Expr(Kind.INDEX, self.span(word.start), (inside,), name=self.identifier(word))]
        self.take("(")
        parameters = self.listed(self.parameter)
        self.take(")")
        name = "" if member else self.identifier(word)
        return Expr(Kind.CALL, self.span(word.start), (*member, *parameters), name=name)

    def parameter(self) -> Expr:
        """Read a parameter of a function: a name, with its shape as argument where that is written."""
        word, shape = self.word(), list[Expr]()
        start = self.tokens[self.place].start
        if self.skip("["):
            sizes = [] if self.kind == "]" else self.listed(lambda: self.expression(_SUM))
            self.take("]")
            shape = [Expr(Kind.CALL, self.span(start), tuple(sizes), name=Mark.SHAPE)]
        return Expr(Kind.NAME, self.span(word.start), tuple(shape), name=self.identifier(word))

    def identifier(self, token: _Token) -> str:
        """Return the name that a token is."""
        member = token.kind == "MEMBER"
        name, wrong = token.text[1:-1] if member else token.text, ""
        if member and not _MEMBER.fullmatch(name):
            wrong = "between backquotes stands a member by its number."
        elif name in KEYWORDS:
            wrong = f"`{name}` is a word of the language and cannot be a name."
        elif len(name) > MAX_LITERAL:
            wrong = f"a name may have at most {MAX_LITERAL} characters. Got {len(name)}."
        if wrong:
            self.fail(wrong, Span(token.start, token.stop))
        return name


def _token(found: re.Match[str]) -> _Token:
    kind = found.lastgroup or ""
    text, (start, stop) = found[kind], found.span(kind)
    return _Token(text if kind == "SIGN" or (text in KEYWORDS and text != "at") else kind, text, start, stop)


def _closed(chains: list[_Chain], operand: Expr, level: int) -> Expr:
    """Return the operand of the chains that bind no tighter than `level`; the others are complete."""
    while chains and chains[-1].level > level:
        operand = chains.pop().closed(operand)
    return operand


@lru_cache(maxsize=4096)  # a mutant repeats most formulas of its base
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
    return _whole(text, _Parser.quantified)


def parse_reach(text: str) -> Expr:
    """Return what a letter runs over, `l in 1..L`: a node of kind OVER with its two bounds and no body.

    Raises:
        ExpressionError: The text is none.

    Example:
        >>> reach = parse_reach("l in 1..L")
        >>> reach.names, [bound.kind.value for bound in reach.args]
        (('l',), ['number', 'name'])
    """
    return _whole(text, _Parser.reach)


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
    return _whole(text, _Parser.head)


def _whole(text: str, read: Callable[[_Parser], Expr]) -> Expr:
    if len(text) > MAX_TEXT:
        message = f"an expression may have at most {MAX_TEXT} characters. Got {len(text)}."
        raise ExpressionError(message, (MAX_TEXT, len(text)))
    if not text.strip():
        raise ExpressionError("an expression is missing: the text is empty.", (0, len(text)))
    opened = 0
    for bracket in re.finditer(r"[()\[\]{}]", text) if len(text) > MAX_DEPTH else ():
        opened += 1 if bracket[0] in "([{" else -1
        _check_depth(opened, bracket.span())
    parser = _Parser(text)
    tree = read(parser)
    parser.take("END")
    level, depth = [tree], 1
    while level and len(parser.tokens) > MAX_DEPTH:  # every level of a tree takes a token at least
        _check_depth(depth, (level[0].span.start, level[0].span.stop))
        level, depth = [child for node in level for child in node.args], depth + 1
    return tree


def _check_depth(depth: int, span: tuple[int, int]) -> None:
    if depth > MAX_DEPTH:
        message = f"the expression is nested more than {MAX_DEPTH} levels deep."
        raise ExpressionError(message, span, "define its parts under `let` and use their names")
