"""Recursions: names that are given step by step, `z[0]: z0` and `z[k+1]: T(z[k])`, several at once and in any order.

An entry with a letter in its brackets is the rule of a name, `z[k+1]`; one with a number is a start, `z[0]`. A rule may
use every earlier step and, of other names, the same one: which value is meant is read from the index alone. A name
without a start is a sequence in closed form, `beta[k]: 1/(k+1)`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field

from ntk_deq.errors import ExpressionError
from ntk_deq.language.families import Defined, defined, index_size, index_text, member_name
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import Expr, Formula, Kind
from ntk_deq.language.types import Size

PATH_LENGTH = "path_length"
"""The length of the trajectory from the start, a number at a step: of all parameters, or of a recursion's names."""

MAX_STARTS = 16
"""Starts of one name, and steps by which a rule may look back."""

At = tuple[str, int]
"""A name at a step."""


class RecursionFault(ExpressionError):
    """An entry of a recursion has no meaning.

    Attributes:
        key: The entry of `let`.
    """

    def __init__(self, key: str, message: str, span: tuple[int, int] = (0, 0), hint: str | None = None) -> None:
        super().__init__(message, span, hint)
        self.key = key


@dataclass(frozen=True)
class Entry:
    """An entry of `let` that belongs to a recursion.

    Attributes:
        key: Its name in the file: `z[k+1]`.
        name: What it gives: `z`, of a family a member such as `W[1]`.
        letter: The letter of its index; empty for a start.
        shift: What is added to the letter; of a start its step.
    """

    key: str
    name: str
    letter: str
    shift: int


@dataclass(frozen=True)
class Rule:
    """What gives a name at every step from some step on.

    Attributes:
        entry: The entry of `let`.
        expr: Its formula.
        first: The first step that it gives.
    """

    entry: Entry
    expr: Expr
    first: int


def step_index(key: str) -> Size | None:
    """Return what stands in the last brackets of an entry of `let`, or None where it has none.

    Example:
        >>> str(step_index("z[k+1]")), step_index("q"), str(step_index("W[l][k+1] for l in 1..L"))
        ('k + 1', None, 'k + 1')
    """
    entry = defined(key)
    return entry.index if entry.step is None and entry.reach is None else entry.step


def recursive_names(keys: Iterable[str], sizes: Collection[str] = ()) -> frozenset[str]:
    """Return the names that entries of `let` give step by step.

    Args:
        keys: The entries.
        sizes: Size letters: with one of these in its brackets an entry is a member of a family.

    Example:
        >>> sorted(recursive_names(["z[0]", "z[k+1]", "w[0]", "w[L]", "beta[k]", "q"], {"L"}))
        ['beta', 'z']
    """
    found = set()
    for key in keys:
        index = step_index(key)
        if index is not None and index.letters - set(sizes):
            found.add(_named(key))
    return frozenset(found)


def _named(key: str) -> str:
    """Return the name that an entry gives: of a family that is written out the member."""
    entry = defined(key)
    if entry.step is None or entry.index is None or entry.index.constant is None:
        return entry.name
    return member_name(entry.name, entry.index)


def entry_of(key: str, names: Set[str]) -> Defined:
    """Return what an entry of `let` defines, the brackets of a recursion that is no family being those of its step.

    Args:
        key: The entry.
        names: The names of recursions.
    """
    entry = defined(key)
    plain = entry.name in names and entry.step is None and entry.reach is None
    return Defined(entry.name, step=entry.index) if plain else entry


def step_letters(entry: Defined) -> frozenset[str]:
    """Return the index letter of the rule of a recursion; nothing for a start, and for other definitions."""
    return frozenset() if entry.step is None else entry.step.letters


def base_name(key: str, names: Set[str]) -> str:
    """Return the name that an entry of `let` gives: that of its recursion, or the entry's own."""
    if "[" not in key:
        return key
    name = _named(key)
    return name if name in names else key


def entries_in(let: Iterable[str], names: Set[str]) -> list[Entry]:
    """Return the entries of `let` that belong to recursions.

    Raises:
        RecursionFault: An index is neither a number nor a letter plus or minus a number.
    """
    found = []
    for key in let:
        index = step_index(key) if "[" in key else None
        name = _named(key)
        if index is None or name not in names:
            continue
        terms = dict(index.terms)
        shift = terms.pop((), 0)
        if len(terms) > 1 or any(len(monomial) != 1 or times != 1 for monomial, times in terms.items()):
            raise RecursionFault(key, "the index of a recursion is a number, or a letter plus or minus a number.")
        letter = next(iter(terms))[0] if terms else ""
        if not letter and not 0 <= shift < MAX_STARTS:
            raise RecursionFault(key, f"a start stands at a step from 0 to {MAX_STARTS - 1}. Got {shift}.")
        if abs(shift) > MAX_STARTS:
            raise RecursionFault(key, f"an index is shifted by at most {MAX_STARTS}. Got {index_text(index)}.")
        found.append(Entry(key, name, letter, shift))
    return found


def ordered(let: Mapping[str, Formula], names: Set[str]) -> tuple[list[str], list[str]]:
    """Return the entries of `let` in an order in which names have a type before they are used, and those without one.

    One entry gives a recursion its type, a start where there is one; the others may come later.

    Args:
        let: The entries.
        names: The names of recursions.
    """
    bases = {key: base_name(key, names) for key in let}
    uses = {key: {name for name in formula.names if name in bases.values()} for key, formula in let.items()}
    starts = {entry.key for entry in entries_in(let, names) if not entry.letter}
    started = {bases[key] for key in starts}
    order: list[str] = []
    known: set[str] = set()
    waiting = list(let)
    while waiting:
        ready = [key for key in waiting if uses[key] <= known and (key in starts or bases[key] not in started - known)]
        if not ready:
            break
        order.append(ready[0])
        known.add(bases[ready[0]])
        waiting.remove(ready[0])
    return order, waiting


@dataclass(frozen=True, eq=False)
class Recursions:
    """The recursions of a claim, checked.

    Attributes:
        starts: The formula of each name at each of its starts.
        rules: What gives each name at all other steps.
        lets: The plain definitions, which may use steps by their number.
    """

    starts: Mapping[At, Expr] = field(default_factory=dict)
    rules: Mapping[str, Rule] = field(default_factory=dict)
    lets: Mapping[str, Expr] = field(default_factory=dict)
    _uses: dict[str, frozenset[tuple[str, int, bool]]] = field(default_factory=dict, compare=False, repr=False)

    def __contains__(self, name: str) -> bool:
        return name in self.rules

    def first(self, name: str) -> int:
        """Return the first step at which a name has a value."""
        return 0 if (name, 0) in self.starts else self.rules[name].first

    def formula(self, name: str, step: int) -> tuple[Expr, dict[str, int]]:
        """Return the formula of a name at a step, and the value of the letter in it."""
        if (name, step) in self.starts:
            return self.starts[name, step], {}
        rule = self.rules[name]
        return rule.expr, {rule.entry.letter: step - rule.entry.shift}

    def uses(self, name: str, step: int) -> Iterator[At]:
        """Yield the values at steps that a formula rests on directly, through plain definitions too."""
        expr, values = self.formula(name, step)
        key = f"{name}[{step}]" if not values else name
        if key not in self._uses:
            self._uses[key] = frozenset(self._steps_in(expr, self.rules[name].entry.letter if values else ""))
        back = step - self.rules[name].entry.shift
        for other, shift, moves in self._uses[key]:
            yield other, back + shift if moves else shift

    def _steps_in(self, expr: Expr, letter: str) -> Iterator[tuple[str, int, bool]]:
        """Yield name, shift, and whether the step moves with a letter, for each value at a step in a formula."""
        for node in expr.walk():
            if node.kind is Kind.INDEX and node.name in self.rules:
                index = index_size(node.args[0])
                if index.letters <= {letter}:
                    yield node.name, index.evaluate({letter: 0}), bool(index.letters)
            elif node.kind is Kind.NAME and node.name in self.lets:
                yield from self._steps_in(self.lets[node.name], "")

    def unfolded(self, name: str, step: int, known: Collection[At]) -> Iterator[At]:
        """Yield what a name at a step rests on and is not known, itself last, each after what it rests on.

        Args:
            name: The name.
            step: The step.
            known: What is known; the caller puts into it what is yielded.
        """
        stack = [(name, step)]
        while stack:
            at = stack[-1]
            if at in known:
                stack.pop()
                continue
            missing = [used for used in self.uses(*at) if used not in known]
            if missing:
                stack += missing
                continue
            stack.pop()
            yield at


NONE = Recursions()
"""No recursion at all."""


def recursions_in(let: Mapping[str, Formula], names: Set[str] | None = None) -> Recursions:
    """Return the recursions that entries of `let` give.

    Args:
        let: The entries; of a claim with families those of one depth.
        names: The names of recursions; left out: those with a letter in their brackets.

    Raises:
        RecursionFault: One runs ahead, rests on itself, lacks a start, or is given twice.

    Example:
        >>> from ntk_deq.errors import Position
        >>> from ntk_deq.language.parser import parse
        >>> here = Position("", 1, 1)
        >>> written = {"z[0]": "c", "z[k+1]": "z[k]/2"}
        >>> let = {key: Formula(key, text, parse(text), here) for key, text in written.items()}
        >>> found = recursions_in(let)
        >>> found.first("z"), found.formula("z", 3)[1], next(iter(found.unfolded("z", 2, {("z", 0)})))
        (0, {'k': 2}, ('z', 1))
    """
    names = recursive_names(let) if names is None else names
    entries = entries_in(let, names)
    starts: dict[At, Expr] = {}
    rules: dict[str, Rule] = {}
    for entry in entries:
        if entry.letter and entry.name in rules:
            raise RecursionFault(entry.key, f"`{entry.name}` is given twice, by `{rules[entry.name].entry.key}` too.")
        if entry.letter:
            first = max(0, entry.shift)
            rules[entry.name] = Rule(entry, let[entry.key].expr, first)
        elif (entry.name, entry.shift) in starts:
            raise RecursionFault(entry.key, f"`{entry.name}[{entry.shift}]` is given twice.")
        else:
            starts[entry.name, entry.shift] = let[entry.key].expr
    for name, rule in rules.items():
        own = sorted(step for start, step in starts if start == name)
        if own and own != list(range(len(own))):
            missing = next(step for step in range(len(own)) if step not in own)
            raise RecursionFault(
                rule.entry.key, f"the start `{name}[{missing}]` is missing, and `{name}[{own[-1]}]` is given."
            )
        if own:
            rules[name] = Rule(rule.entry, rule.expr, len(own))
    _add_length(starts, rules)
    keys = {entry.key for entry in entries}
    lets = {name: formula.expr for name, formula in let.items() if name not in keys}
    found = Recursions(starts, rules, lets)
    for rule in rules.values():
        _check_rule(rule, found)
    _check_values(found)
    return found


def _add_length(starts: dict[At, Expr], rules: dict[str, Rule]) -> None:
    """Add the length of the way of all names together that have a start, as one more recursion."""
    moving = [name for name in rules if (name, 0) in starts]
    if not moving or PATH_LENGTH in rules:
        return
    squares = [
        f"fro(`{name}`[k + 1] - `{name}`[k])^2" if "[" in name else f"fro({name}[k + 1] - {name}[k])^2"
        for name in moving
    ]
    rule = parse(f"{PATH_LENGTH}[k] + sqrt({' + '.join(squares)})")
    starts[PATH_LENGTH, 0] = parse("0")
    rules[PATH_LENGTH] = Rule(Entry(PATH_LENGTH, PATH_LENGTH, "k", 1), rule, 1)


def _check_rule(rule: Rule, found: Recursions) -> None:
    """Refuse a rule that uses steps after its own, or the same one of itself.

    Raises:
        RecursionFault: It does.
    """
    entry = rule.entry
    for node in rule.expr.walk():
        if node.kind is not Kind.INDEX or node.name not in found.rules:
            continue
        index = index_size(node.args[0])
        if index.letters != {entry.letter}:
            continue
        shift = index.evaluate({entry.letter: 0})
        span = (node.span.start, node.span.stop)
        written = f"`{node.name}[{index_text(index)}]`"
        if index.evaluate({entry.letter: 1}) != shift + 1:
            raise RecursionFault(entry.key, f"the step of {written} is the letter plus or minus a number.", span)
        if shift > entry.shift:
            own = f"{entry.name}[{index_text(Size.letter(entry.letter) + entry.shift)}]"
            raise RecursionFault(entry.key, f"{written} runs ahead of `{own}`, which it is to give.", span)
        if entry.shift - shift > MAX_STARTS:
            raise RecursionFault(entry.key, f"a rule looks back by at most {MAX_STARTS} steps. Got {written}.", span)


def _check_values(found: Recursions) -> None:
    """Follow every name at its first steps to what it rests on: later steps repeat these.

    Raises:
        RecursionFault: A value rests on itself, or on one that is not given.
    """
    done: set[At] = set()
    horizon = 2 * MAX_STARTS
    for name in found.rules:
        for step in range(found.first(name), horizon):
            _follow((name, step), found, done)


def _follow(at: At, found: Recursions, done: set[At]) -> None:
    path: list[At] = []
    stack: list[tuple[At, bool]] = [(at, False)]
    while stack:
        here, left = stack.pop()
        if left:
            path.pop()
            done.add(here)
            continue
        if here in done:
            continue
        key = _key(here, found)
        if here in path:
            cycle = " -> ".join(f"{name}[{step}]" for name, step in (*path[path.index(here) :], here))
            raise RecursionFault(key, f"`{here[0]}[{here[1]}]` rests on itself: {cycle}.")
        path.append(here)
        stack.append((here, True))
        for name, step in found.uses(*here):
            if step < found.first(name):
                own = f"`{here[0]}[{here[1]}]`"
                message = f"a start is missing: {own} needs `{name}[{step}]`, and `{name}` "
                first = found.first(name)
                message += (
                    f"begins at `{name}[{first}]`." if (name, 0) in found.starts or first else "has no such step."
                )
                hint = f"give {f'`{name}[{step}]`' if step >= 0 else own + ' a start of its own'}"
                raise RecursionFault(key, message, hint=hint)
            stack.append(((name, step), False))


def _key(at: At, found: Recursions) -> str:
    """Return the entry that gives a name at a step."""
    return f"{at[0]}[{at[1]}]" if at in found.starts else found.rules[at[0]].entry.key
