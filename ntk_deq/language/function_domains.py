"""Sets of functions that a claim quantifies over, `f: convex(smooth = L)[n]`, and the members of each that are tried.

No list of members is the whole set. Each set has members that attain both ends of its constants, values at 0 of either
sign, and kinks where the set has such functions; their own constants are variables that are drawn and searched over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ntk_deq.errors import ExpressionError, nearest_name
from ntk_deq.language.domain import split_shape
from ntk_deq.language.parser import parse
from ntk_deq.language.types import ONE, Sort, Type

ARGUMENT = "x__"
"""What the formulas of members call the argument: no variable is called so, whose shape it would take."""


@dataclass(frozen=True)
class Member:
    """One function of a set, with constants of its own.

    Attributes:
        name: What it is called in reports.
        formula: Its formula in `ARGUMENT`; {NAME} stands for a constant of its own or of the set.
        constants: Domains of its own constants; those in `shaped` have the shape of the argument.
        shaped: Names of constants that have the shape of the argument.
        square: Names of constants that are square matrices of as many rows as the argument.
        least: Its least value, where it has one.
        where: Where that is, if it is there alone.
        condition: What must hold of the set's constants for it to belong to the set, beside what the set asks for.
    """

    name: str
    formula: str
    constants: Mapping[str, str] = field(default_factory=dict)
    shaped: frozenset[str] = frozenset()
    square: frozenset[str] = frozenset()
    least: str | None = None
    where: str | None = None
    condition: str | None = None


@dataclass(frozen=True)
class FunctionDomain:
    """A set of functions.

    Attributes:
        kind: Its name.
        constants: Its constants, formulas by name.
        shape: The shape of the argument; None for what acts entry by entry on anything.
        text: As written.
    """

    kind: str
    constants: Mapping[str, str]
    shape: Type | None
    text: str

    @property
    def condition(self) -> str | None:
        """What must hold of the constants, or None."""
        return _filled(_KINDS[self.kind].condition(self.constants), self.constants)

    @property
    def parameter(self) -> str:
        """The parameter of a member, with its shape."""
        return ARGUMENT + self.argument

    def members(self, name: str) -> list[Member]:
        """Return the members that are tried, their own constants called after the function.

        Args:
            name: The name of the function.
        """
        found = []
        for member in _KINDS[self.kind].members(_Words(self.shape), self.constants):
            values = dict(self.constants) | {own: f"{name}_{own}" for own in member.constants}
            found.append(
                Member(
                    member.name,
                    _filled(member.formula, values) or "",
                    {f"{name}_{own}": text + self._shape(own, member) for own, text in member.constants.items()},
                    least=_filled(member.least, values),
                    where=_filled(member.where, values),
                    condition=_filled(member.condition, values),
                )
            )
        return found

    def _shape(self, own: str, member: Member) -> str:
        if self.shape is None or self.shape.sort is not Sort.MATRIX:
            return ""
        if own in member.square:
            return f"[{self.shape.rows}, {self.shape.rows}]"
        return self.argument if own in member.shaped else ""

    @property
    def argument(self) -> str:
        """The shape of the argument in brackets; empty where it is any."""
        return "" if self.shape is None else f"[{', '.join(map(str, self.shape.sizes))}]"


def _filled(text: str | None, values: Mapping[str, str]) -> str | None:
    """Return a formula with its constants filled in, in brackets."""
    if text is None:
        return None
    text = re.sub(r"\bx\b", ARGUMENT, text)
    return re.sub(r"\{([a-zA-Z]\w*)\}", lambda found: f"({values[found[1]]})", text)


@dataclass(frozen=True)
class _Words:
    """How parts of a member's formula are written for arguments of a shape."""

    shape: Type | None

    @property
    def plain(self) -> bool:
        """Whether the argument is a number."""
        return self.shape is None or self.shape.sort is not Sort.MATRIX

    def square(self, what: str) -> str:
        """Return the square of the Euclidean length."""
        vector = not self.plain and self.shape is not None and self.shape.cols == ONE
        return f"({what})^2" if self.plain else f"norm({what})^2" if vector else f"fro({what})^2"

    def length(self, what: str) -> str:
        """Return the Euclidean length."""
        vector = not self.plain and self.shape is not None and self.shape.cols == ONE
        return f"abs({what})" if self.plain else f"norm({what})" if vector else f"fro({what})"

    def total(self, what: str) -> str:
        """Return the sum of the entries."""
        return what if self.plain else f"sum({what})"

    def product(self, what: str) -> str:
        """Return the inner product of a constant with the argument."""
        return f"{what}*x" if self.plain else f"dot({what}, x)"

    @property
    def coupled(self) -> str:
        """The square of the sum of the entries over their number: its curvature is 0 or 2, and no axis is apart."""
        if self.plain or self.shape is None:
            return "x^2"
        count = f"{self.shape.rows}" if self.shape.cols == ONE else f"({self.shape.rows}*{self.shape.cols})"
        return f"sum(x)^2/{count}"

    @property
    def first(self) -> str:
        """The first entry."""
        if self.plain or self.shape is None:
            return "x"
        return "x{1}" if self.shape.cols == ONE else "x{1, 1}"


_C = frozenset({"c"})
_PLACED = {"c": "real", "b": "real"}


def _member(name: str, formula: str, *, least: str | None = None, where: str | None = None, **more: str) -> Member:
    """Return a member with a place c, an offset b, and what else its formula uses."""
    constants = {own: domain for own, domain in (_PLACED | more).items() if f"{{{own}}}" in formula}
    return Member(name, formula, constants, _C, least=least, where=where)


def _convex(words: _Words, given: Mapping[str, str]) -> list[Member]:
    square, first = words.square("x - {c}"), words.first
    linear = words.product("{c}")
    huber, soft = words.total("huber(x - {c}, {d})"), words.total("softplus(x - {c})")
    if "smooth" not in given:
        coupled = [
            _member("coupled quadratic", f"{{d}}*{words.coupled}/2 + {{b}}", least="{b}", d="positive"),
            _member("length", f"{words.length('x - {c}')} + {{b}}", least="{b}", where="{c}"),
            _member("largest entry", "max(x - {c}) + {b}"),
        ]
        return [
            *([] if words.plain else coupled),
            _member("abs", f"{words.total('abs(x - {c})')} + {{b}}", least="{b}", where="{c}"),
            _member("quadratic", f"{{d}}*{square}/2 + {{b}}", least="{b}", where="{c}", d="positive"),
            _member("linear", f"{linear} + {{b}}"),
            _member("relu", f"{words.total('relu(x - {c})')} + {{b}}", least="{b}"),
            _member("softplus", f"{soft} + {{b}}"),
        ]
    found = [
        _member("quadratic", f"{{smooth}}*{square}/2 + {{b}}", least="{b}"),
        _member("singular quadratic", f"{{smooth}}*{first}^2/2 + {linear} + {{b}}"),
        _member("linear", f"{linear} + {{b}}"),
        _member("huber", f"{{smooth}}*{huber} + {{b}}", least="{b}", d="positive"),
        _member("softplus", f"4*{{smooth}}*{soft} + {{b}}"),
        _member("pseudo-huber", f"{{smooth}}*sqrt(1 + {square}) + {{b}}"),
    ]
    if not words.plain:
        found.append(_member("log-sum-exp", "2*{smooth}*log(sum(exp(x - {c}))) + {b}"))
        found.append(_member("coupled quadratic", f"{{smooth}}*{words.coupled}/2 + {{b}}", least="{b}"))
    return found


def _strongly_convex(words: _Words, given: Mapping[str, str]) -> list[Member]:
    square, first = words.square("x - {c}"), words.first
    low = f"{{mu}}*{square}/2"
    found = [_member("flattest quadratic", f"{low} + {{b}}", least="{b}", where="{c}")]
    if "smooth" not in given:
        together = f"{low} + {{d}}*{words.coupled}/2 + {{b}}"
        return [
            *found,
            *([] if words.plain else [_member("with a coupled quadratic", together, d="positive")]),
            _member("with abs", f"{low} + {words.total('abs(x - {c})')} + {{b}}", least="{b}", where="{c}"),
            _member("steep quadratic", f"({{mu}} + {{d}})*{square}/2 + {{b}}", least="{b}", where="{c}", d="positive"),
        ]
    more = "({smooth} - {mu})"
    huber, soft = words.total("huber(x - {c}, {d})"), words.total("softplus(x - {c})")
    return [
        *found,
        *([] if words.plain else [_member("with a coupled quadratic", f"{low} + {more}*{words.coupled}/2 + {{b}}")]),
        _member("steepest quadratic", f"{{smooth}}*{square}/2 + {{b}}", least="{b}"),
        _member("stretched quadratic", f"{{mu}}*{words.square('x')}/2 + {more}*{first}^2/2 + {words.product('{c}')}"),
        _member("with huber", f"{low} + {more}*{huber} + {{b}}", least="{b}", d="positive"),
        _member("with softplus", f"{low} + 4*{more}*{soft} + {{b}}"),
    ]


def _pl(words: _Words, given: Mapping[str, str]) -> list[Member]:
    square, first = words.square("x - {c}"), words.first
    found = [
        _member("flattest quadratic", f"{{mu}}*{square}/2 + {{b}}", least="{b}", where="{c}"),
        _member("singular quadratic", f"{{mu}}*{first}^2/2 + {{b}}", least="{b}"),
        *([] if words.plain else [_member("coupled", f"{{mu}}*{words.coupled}/2 + {{b}}", least="{b}")]),
    ]
    waves = words.total("shift(cos(2*(x - {c})), -1)")  # 3 sin(t)^2 is 3/2 (1 - cos(2 t))
    if "smooth" not in given:
        return [*found, _member("x^2 + 3 sin(x)^2", f"32*{{mu}}*({square} - 3/2*{waves}) + {{b}}", least="{b}")]
    # t^2 + 3 sin(t)^2 is PL with 1/32, and its slope has the Lipschitz constant 8 (Karimi, Nutini, Schmidt, 2016)
    wave = Member(
        "x^2 + 3 sin(x)^2",
        f"{{smooth}}/8*({square} - 3/2*{waves}) + {{b}}",
        dict(_PLACED),
        _C,
        least="{b}",
        condition="{mu} <= {smooth}/256",
    )
    steepest = _member("steepest quadratic", f"{{smooth}}*{square}/2 + {{b}}", least="{b}")
    return [*found, steepest, _member("stretched", f"{{smooth}}*{first}^2/2 + {{b}}", least="{b}"), wave]


def _activation(words: _Words, given: Mapping[str, str]) -> list[Member]:
    more = "({high} - {low})"
    return [
        Member("lowest slope", "{low}*x"),
        Member("highest slope", "{high}*x"),
        Member("leaky", "{high}*relu(x) - {low}*relu(-x)"),
        Member("leaky turned", "{low}*relu(x) - {high}*relu(-x)"),
        Member("leaky shifted", f"shift({{low}}*x + {more}*relu(shift(x, -{{a}})), {{b}})", {"a": "real", "b": "real"}),
        Member("tanh", f"{{low}}*x + {more}*tanh(x)"),
        Member("softplus shifted", f"shift({{low}}*x + {more}*softplus(x), {{b}})", {"b": "real"}),
    ]


def _nonexpansive(words: _Words, given: Mapping[str, str]) -> list[Member]:
    found = [
        Member("identity", "x"),
        _member("reflection", "{c} - x"),
        _member("constant", "{c}" if words.plain else "0*x + {c}"),
        _member("relu", "relu(x - {c})"),
        _member("tanh", "tanh(x - {c})"),
        _member("abs", "abs(x - {c})"),
        _member("soft threshold", "softthreshold(x - {c}, {d})", d="positive"),
    ]
    if not words.plain:
        turned = {"Q": "orthogonal", "c": "real"}
        found.append(Member("rotation or reflection", "{Q}*x + {c}", turned, _C, square=frozenset({"Q"})))
    return found


@dataclass(frozen=True)
class _Kind:
    """A set of functions: its constants in order, how many must be given, and its members."""

    constants: tuple[str, ...]
    needed: int
    members: Callable[[_Words, Mapping[str, str]], list[Member]]
    condition: Callable[[Mapping[str, str]], str | None]
    form: str
    by_entries: bool = False


def _ordered(given: Mapping[str, str]) -> str:
    return "0 < {mu} <= {smooth}" if "smooth" in given else "0 < {mu}"


_KINDS = {
    "convex": _Kind(
        ("smooth",), 0, _convex, lambda given: "{smooth} >= 0" if given else None, "convex[n], convex(smooth = L)[n]"
    ),
    "strongly_convex": _Kind(("mu", "smooth"), 1, _strongly_convex, _ordered, "strongly_convex(mu, smooth = L)[n]"),
    "pl": _Kind(("mu", "smooth"), 1, _pl, _ordered, "pl(mu, smooth = L)[n]"),
    "activation": _Kind(
        ("low", "high"), 2, _activation, lambda given: "{low} <= {high}", "activation(slopes = [low, high])", True
    ),
    "nonexpansive": _Kind((), 0, _nonexpansive, lambda given: None, "nonexpansive[n]"),
}

_SET = re.compile(r"\s*([a-z_]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_NAMED = re.compile(r"\s*([a-z_]+)\s*[:=](?!=)\s*(.*)", re.DOTALL)


def is_function_domain(text: str) -> bool:
    """Whether a text where a domain may stand is a set of functions.

    Example:
        >>> [is_function_domain(text) for text in ("convex(smooth = L)[n]", "activation(slopes: [0, 1])", "real[n]")]
        [True, True, False]
    """
    found = re.match(r"\s*([a-z_]+)", text)
    return found is not None and found[1] in _KINDS


def parse_function_domain(text: str) -> FunctionDomain:
    """Read a set of functions, with the shape of their argument behind it.

    Raises:
        ExpressionError: The text is none.

    Example:
        >>> found = parse_function_domain("strongly_convex(mu, smooth: 2*mu)[n]")
        >>> dict(found.constants), found.argument, len(found.members("f"))
        ({'mu': 'mu', 'smooth': '2*mu'}, '[n]', 6)
    """
    body, shape = (text, None) if text.rstrip().endswith(")") else split_shape(text)
    match = _SET.fullmatch(body)
    kind = None if match is None else _KINDS.get(match[1])
    span = (0, len(text))
    if match is None or kind is None:
        raise ExpressionError(f"a set of functions is one of {', '.join(k.form for k in _KINDS.values())}.", span)
    if kind.by_entries and shape is not None:
        raise ExpressionError(f"`{match[1]}` acts entry by entry and takes no shape.", span, f"write {kind.form}")
    constants: dict[str, str] = {}
    for part in _parts(match[2] or ""):
        named = _NAMED.fullmatch(part)
        if named is not None and named[1] == "slopes" and kind.by_entries:
            ends = _parts(named[2].strip().removeprefix("[").removesuffix("]"))
            if len(ends) != 2 or not named[2].strip().startswith("["):
                raise ExpressionError(f"`slopes` are two numbers, as in {kind.form}. Got {named[2].strip()}.", span)
            constants |= dict(zip(kind.constants, (end.strip() for end in ends), strict=True))
            continue
        name = named[1] if named is not None else next((n for n in kind.constants if n not in constants), "")
        if name not in kind.constants or name in constants:
            near = nearest_name(name, kind.constants)
            raise ExpressionError(
                f"`{match[1]}` has no constant `{part.strip()}`.", span, near and f"is `{near}` meant?"
            )
        constants[name] = (named[2] if named is not None else part).strip()
    if len(constants) < kind.needed:
        raise ExpressionError(f"`{match[1]}` needs its constants.", span, f"write {kind.form}")
    for value in constants.values():
        parse(value)
    found = FunctionDomain(match[1], constants, None if kind.by_entries else shape or _NUMBER, text.strip())
    _check_numbers(found, span)
    return found


_NUMBER = Type(Sort.SCALAR)


def _check_numbers(found: FunctionDomain, span: tuple[int, int]) -> None:
    """Refuse constants that are numbers and contradict each other."""
    numbers = {name: parse(text).value for name, text in found.constants.items()}
    low, high = (numbers.get(name) for name in ("low", "high"))
    if low is not None and high is not None and low > high:
        raise ExpressionError(f"slopes run from the lowest to the highest. Got {found.text}.", span)
    mu, smooth = (numbers.get(name) for name in ("mu", "smooth"))
    if mu is not None and mu <= 0:
        raise ExpressionError(f"`mu` must be > 0. Got {found.text}.", span)
    if mu is not None and smooth is not None and mu > smooth:
        raise ExpressionError(f"`mu` cannot be larger than `smooth`. Got {found.text}.", span)


def _parts(text: str) -> list[str]:
    """Return what commas separate outside of brackets."""
    found, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            found.append(text[start:place])
            start = place + 1
    return [*found, text[start:]] if text.strip() else []
