"""Claims as the rest of the product sees them: checked, typed, positions kept. Built by `ntk_deq.claims.load`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from functools import cached_property

from ntk_deq.errors import Position, Problem
from ntk_deq.language.arguments import Definition
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Free
from ntk_deq.language.function_domains import FunctionDomain
from ntk_deq.language.ranges import _constant, domain_range
from ntk_deq.language.recursion import NONE, Recursions, recursions_in
from ntk_deq.language.run import Run
from ntk_deq.language.tree import Expr, Formula, dependents
from ntk_deq.language.types import Range


def variable_ranges(claim: Claim) -> dict[str, Range]:
    """Return the range of every variable and size letter, over all settings of a claim."""
    ranges: dict[str, Range] = {}
    for number, setting in enumerate(claim.settings):
        here = {name: Range(Fraction(size.low), Fraction(size.high)) for name, size in setting.sizes.items()}
        here |= {name: domain_range(free.domain) for name, free in setting.free.items()}
        here |= {name: _constant(draw.distribution) for name, draw in setting.draws.items()}
        # A name that one setting lacks (images bring it) can be anything.
        for name in ranges.keys() | here.keys():
            known = here.get(name, Range())
            ranges[name] = known if number == 0 else ranges.get(name, Range()).hull(known)
    return ranges | {name: domain_range(free.domain) for name, free in claim.given.items()}


MEMBERSHIP = "(witness) "
"""How the conclusions begin that say of a witness that it lies in its domain; no name in a file begins so."""


def is_membership(name: str) -> bool:
    """Whether a conclusion says that a witness lies in its domain."""
    return name.startswith(MEMBERSHIP)


class Verdict(StrEnum):
    """What a claim can come out as (docs/design.md, section 1)."""

    PROVED = "proved"
    HOLDS = "holds"
    REFUTED = "refuted"
    VACUOUS = "vacuous"
    UNDECIDED = "undecided"
    ERROR = "error"
    ILL_FORMED = "ill-formed"


@dataclass(frozen=True)
class Choose:
    """How an optimiser chooses the `given` scalars of a claim: so that the theorem is tried where it is strongest.

    Attributes:
        objective: A scalar formula that may use what the hypotheses may use.
        maximize: Whether it is made large; otherwise small.
        aims: Whether a claim on training is also tried with scalars that are chosen for other aims.
    """

    objective: Formula
    maximize: bool
    aims: bool = True


@dataclass(frozen=True)
class Depth:
    """One choice of the letters that the ranges and indices of a claim with families use, in one of its settings.

    Attributes:
        setting: Name of the setting.
        letters: Letters and their values; nothing where all ranges are between numbers. A function over which the
            claim quantifies stands for a letter whose values number its members.
        members: The functions over which the claim quantifies, and what the member of each is called.
        variant: Which of the claim's variants has these members.
    """

    setting: str
    letters: tuple[tuple[str, int], ...]
    members: tuple[tuple[str, str], ...] = ()
    variant: int | None = None

    def __str__(self) -> str:
        words = dict(self.members)
        return ", ".join(f"{letter} = {words.get(letter, value)}" for letter, value in self.letters)


@dataclass(frozen=True)
class Claim:
    """A statement to judge. For all instances of its settings: `assume` implies `conclude`.

    Attributes:
        id: Stable identifier.
        title: One line.
        where: The place in the source, for example `Lemma 3.1`.
        settings: One or more settings; the claim must hold in each.
        given: Further universally quantified variables.
        let: Definitions in an order in which each uses only earlier ones.
        functions: Functions of arguments by their keys, as written; in the formulas they are written out.
        assume: Hypotheses by name.
        conclude: Conclusions by name.
        run: The step index's source, or None for a static claim.
        choose: What the given scalars are optimised for before the claim is judged, or None: they are drawn.
        expect: The verdict that the author expects.
        tags: Words to select by.
        mutates: Id of the claim this is a mutant of, or None.
        note: Free text, for example what a repair changed.
        position: Where the claim stands.
        source: The suite's source reference (title, authors, url).
        definitions: Per setting with a model: its definitions (for example Phi, yhat), typed, in order.
        warnings: What is odd about it and stops nothing.
        members: Sets of functions over which it quantifies, by the name of the function.
        variants: Of such a claim: for each choice of members, the claim about them; its own formulas are those of the
            first one.
        depths: Of a claim with families: for what it is judged, each an ordinary claim (`ntk_deq.claims.depths`).
        origin, depth: Of a claim that is written out for a depth: the claim with families, and the depth.
        exists: Variables of which the claim says that, on every instance, values exist for which `conclude` holds.
        witness: Formulas for such values, of all of them or of none. They stand among `let` too, and that each lies in
            its domain among `conclude`: what judges the claim sees an ordinary one. `stated` is what was written.
        uniform: What the existing values do not depend on: names of variables and sizes, or all of them.
    """

    id: str
    title: str
    where: str
    settings: tuple[Setting, ...]
    given: dict[str, Free]
    let: dict[str, Formula]
    assume: dict[str, Formula]
    conclude: dict[str, Formula]
    run: Run | None
    expect: Verdict
    tags: tuple[str, ...]
    mutates: str | None
    note: str
    position: Position
    source: dict[str, object] = field(default_factory=dict)
    instances: int | None = None
    choose: Choose | None = None
    warnings: tuple[Problem, ...] = ()
    functions: dict[str, Definition] = field(default_factory=dict)
    members: dict[str, FunctionDomain] = field(default_factory=dict)
    variants: tuple[Claim, ...] = ()
    depths: tuple[Depth, ...] = ()
    origin: Claim | None = None
    depth: Depth | None = None
    exists: dict[str, Free] = field(default_factory=dict)
    witness: dict[str, Formula] = field(default_factory=dict)
    uniform: frozenset[str] = frozenset()

    def nodes(self) -> Iterator[Expr]:
        """Yield every node of the definitions, the hypotheses and the conclusions."""
        for section in (self.let, self.assume, self.conclude):
            for formula in section.values():
                yield from formula.expr.walk()

    def nodes_behind(self, *formulas: Expr) -> Iterator[Expr]:
        """Yield every node of some formulas, and of the definitions that they rest on."""
        pending, seen = [*formulas], set[str]()
        while pending:
            for node in pending.pop().walk():
                yield node
                if node.name in self.let and node.name not in seen:
                    seen.add(node.name)
                    pending.append(self.let[node.name].expr)

    def setting_named(self, name: str) -> Setting:
        """Return the setting of a name that one has."""
        return next(setting for setting in self.settings if setting.name == name)

    @property
    def stated(self) -> Claim:
        """The claim as it was written: witnesses are no definitions, their lying in their domains no conclusion."""
        if not self.witness:
            return self
        let = {name: formula for name, formula in self.let.items() if name not in self.witness}
        conclude = {name: formula for name, formula in self.conclude.items() if not is_membership(name)}
        return replace(self, let=let, conclude=conclude)

    @property
    def resting(self) -> frozenset[str]:
        """The conclusions that rest on what the claim says exists."""
        bound = dependents(set(self.exists), self.stated.let)
        rest = {name for name, formula in self.conclude.items() if formula.names & bound}
        return frozenset(rest) if self.exists else frozenset()

    @property
    def sought(self) -> frozenset[str]:
        """The conclusions that rest on what exists where no witness is given: they are formulas of more than names."""
        return frozenset() if self.witness else self.resting

    @property
    def depths_alike(self) -> int:
        """How many depths of its setting share the budgets of a claim that is written out; 1 without families."""
        if self.origin is None or self.depth is None:
            return 1
        return sum(depth.setting == self.depth.setting for depth in self.origin.depths)

    @cached_property
    def recursions(self) -> Recursions:
        """What its definitions give step by step; nothing where its run is of another kind."""
        return recursions_in(self.let) if self.run is not None and self.run.kind.written else NONE

    @property
    def trains(self) -> bool:
        """Whether it is about a training run."""
        return self.run is not None and self.run.kind.trains

    @property
    def costly(self) -> bool:
        """Whether each look at an instance is a run of its own."""
        return self.run is not None and self.run.kind.costly


@dataclass(frozen=True)
class IllFormed:
    """A claim that does not type-check or has a malformed entry; the others of its file are still judged."""

    id: str
    title: str
    where: str
    expect: Verdict
    tags: tuple[str, ...]
    position: Position
    problems: tuple[Problem, ...]
    source: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    """All claims of a file and of the files it includes, in order.

    Attributes:
        file: The file, as it was named.
        title: What the file calls itself.
        source: The text that the claims are taken from.
        claims: The claims, well-formed or not.
        files: The file and those that it includes.
        warnings: What is odd about the files and stops nothing.
    """

    file: str
    title: str
    source: dict[str, object]
    claims: tuple[Claim | IllFormed, ...]
    files: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
