"""What judging a claim gives: plain data, torch-free, that the report and the stores write down."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ntk_deq.claims.claim import Verdict
from ntk_deq.claims.statement import StatementLine
from ntk_deq.errors import Problem
from ntk_deq.language.interval import Margin
from ntk_deq.verify.training.summary import Start, TrainingRecord


class Evidence(StrEnum):
    """How strong the ground under a verdict is."""

    SYMBOLIC = "symbolic"
    CERTIFIED = "certified"
    NUMERIC = "numeric"
    NONE = "none"


@dataclass(frozen=True)
class HypothesisRecord:
    """How a hypothesis fared over the instances of a claim.

    Attributes:
        name: Its name in the file.
        text: Its formula.
        held: Instances on which it certainly held.
        failed: Instances on which it certainly failed.
        unsure: Instances on which its ball did not decide.
        nearest: The failing margin closest to zero, or None where it never failed.
    """

    name: str
    text: str
    held: int
    failed: int
    unsure: int
    nearest: Margin | None = None


@dataclass(frozen=True)
class ConclusionRecord:
    """How a conclusion fared over the instances that met every hypothesis.

    Attributes:
        name: Its name in the file.
        text: Its formula.
        worst: The smallest margin.
        margins: For each met instance (lo, hi, scale): margin ball and the size of the terms of the two sides.
        true, false, tight, unsure: Counts of instances by outcome; tight ones straddle zero narrowly.
        proven: How it is proven by itself, where the claim as a whole is not; else nothing.
    """

    name: str
    text: str
    worst: Margin | None
    margins: tuple[tuple[float, float, float], ...]
    true: int
    false: int
    tight: int
    unsure: int
    proven: str = ""


@dataclass(frozen=True)
class Computed:
    """A quantity that an instance gives: a definition, the equilibrium, a quantity of the model.

    Attributes:
        name: Its name.
        value: A number as text with its radius, or the rows of a matrix; None where it is too large to print.
        radius: How far the entries of a matrix may be off, at most; infinite where nothing is known.
    """

    name: str
    value: str | list[list[float]] | None
    radius: float = 0.0


@dataclass(frozen=True)
class Witness:
    """One instance, written out: a counterexample, the tightest instance, or the nearest one to the hypotheses.

    Attributes:
        setting: The setting's name.
        family: What kind of instance it is, for people (`A = -identity`).
        sizes: Size letters and their values.
        values: Each variable as nested lists of float (matrix: rows), or None where it is too large to print.
        conclusion: Name of the conclusion that broke or was tightest (hypothesis for the nearest one).
        lhs, rhs: The two sides as text such as `0.25` or `0.25 +/- 1e-17`.
        relation: The comparison sign as printed in the formula.
        margin: The ball of rhs - lhs.
        step: Values of the step indices, where the formula has some.
        index: Number of the instance, which with the seed reproduces it; of the one it was shrunk from, where the
            family says so.
        solved: Variables that a hypothesis gives by an equation, and whose values are its solution up to rounding.
        scale: Size of the terms that the sides are computed from; the margin over it is the relative one. 0: unknown.
        hypotheses: Of a counterexample: each hypothesis by name, with both sides as text.
        computed_values: Of a counterexample: the equilibrium and the definitions, as far as they are known.
        script: Of a counterexample: a Python script that reproduces both sides with NumPy alone, or nothing.
        unwritten: Why there is no script.
        argument: Of a counterexample to a claim that something exists: why nothing does.
    """

    setting: str
    family: str
    sizes: dict[str, int]
    values: dict[str, Any]
    conclusion: str
    lhs: str
    rhs: str
    relation: str
    margin: Margin
    step: dict[str, float] = field(default_factory=dict)
    index: int = 0
    solved: tuple[str, ...] = ()
    scale: float = 0.0
    hypotheses: tuple[tuple[str, str], ...] = ()
    computed_values: tuple[Computed, ...] = ()
    script: str = ""
    unwritten: str = ""
    argument: str = ""

    @property
    def numbered(self) -> str:
        """The instance by its number, in words."""
        return f"{'from ' * self.family.startswith('shrunk from')}instance {self.index}"

    @property
    def computed(self) -> str:
        """Which values are known up to rounding, in words; empty where all are what is shown."""
        if not self.solved:
            return ""
        return f"{', '.join(self.solved)}: the solution of the hypotheses near what is shown"


class FindingKind(StrEnum):
    """What a finding is about."""

    HYPOTHESIS = "hypothesis"  # whether the claim breaks without it
    CONSTANT = "constant"  # a bound with room to spare
    SMALLEST = "smallest"  # the smallest size or scalar that meets the hypotheses


@dataclass(frozen=True)
class Finding:
    """Something worth knowing about a claim; never a failure.

    Attributes:
        kind: What it is about.
        text: One sentence for people.
        detail: The numbers behind it: plain values, for `results.jsonl`.
    """

    kind: FindingKind
    text: str
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Support:
    """What a verdict rests on, as far as instances go.

    Attributes:
        met: Instances that met the hypotheses.
        clear: Those of them on which no conclusion is close to equality, those that say `==` left out; None: all do.
        families: Kinds among them, such as `A = identity`; numbers make no difference.
        sizes: Choices of sizes among them.
        searched: Instances that the adversarial search scored.
        remark: Why this is little, where it is, in words.
        nearby: Instances that met the hypotheses with an equilibrium of which it is only known that none is near it.
        alone: The smallest of the distances within which none is; 0 without such instances.
    """

    met: int = 0
    clear: int | None = 0
    families: int = 0
    sizes: int = 0
    searched: int = 0
    remark: str = ""
    nearby: int = 0
    alone: float = 0.0


@dataclass(frozen=True)
class TriedDepth:
    """What one depth of a claim with families came to.

    Attributes:
        setting: The setting.
        letters: The letters that ranges and indices use, with their values; functions with the numbers of members.
        verdict: The verdict there.
        instances, met: Instances tried, and those that met the hypotheses.
        searched: Instances that the search scored.
        seconds: How long it took.
        reason: The reason of the verdict.
        members: For each function over which the claim quantifies, which one was tried.
    """

    setting: str
    letters: dict[str, int]
    verdict: Verdict
    instances: int
    met: int
    searched: int
    seconds: float
    reason: str
    members: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ClaimResult:
    """The verdict on one claim with all that backs it up."""

    id: str
    title: str
    where: str
    verdict: Verdict
    evidence: Evidence
    expected: Verdict
    instances: int
    met: int
    tight: int
    unsure: int
    worst_margin: Margin | None
    seed: int
    seconds: float
    reason: str
    tags: tuple[str, ...] = ()
    mutates: str | None = None
    note: str = ""
    settings: tuple[dict[str, Any], ...] = ()  # name, universal (bool), instances, met, sizes {letter: [lo, hi]}
    hypotheses: tuple[HypothesisRecord, ...] = ()
    conclusions: tuple[ConclusionRecord, ...] = ()
    counterexample: Witness | None = None
    tightest: Witness | None = None
    nearest: Witness | None = None
    statement: tuple[StatementLine, ...] = ()
    source: dict[str, Any] = field(default_factory=dict)  # title, authors, url
    position: str = ""
    dtype: str = "float64"
    device: str = "cpu"
    refined: int = 0  # instances evaluated again, at `precision` bits, as float64 balls left them undecided
    settled: int = 0  # those of them that were decided by it
    exact: int = 0  # instances of which exact arithmetic decided more than balls
    precision: int = 53  # bits of that second evaluation; 53: there was none
    estimated: dict[str, str] = field(default_factory=dict)  # operation -> why its error bound is only an estimate
    trace: str | None = None  # the product's own traceback when verdict is `error`
    problems: tuple[Problem, ...] = ()  # what is wrong and where, when verdict is `ill-formed`
    searched: int = 0  # instances that the adversarial search scored
    untested: tuple[str, ...] = ()  # strict conclusions of a claim that holds, and equalities they were not tested at
    support: Support = Support()
    lacking: tuple[str, ...] = ()  # conclusions that no instance bears out, where nothing else leaves a claim undecided
    replay: str | None = None  # file of the counterexample, for `verify-claims replay`
    warnings: tuple[str, ...] = ()  # what went wrong beside the judgement: files that could not be read or written
    findings: tuple[Finding, ...] = ()  # what else was found out about a claim, if it was asked for
    starts: tuple[Start, ...] = ()  # of all training runs that count, with how far each is from degenerate
    runs: tuple[TrainingRecord, ...] = ()  # training runs that the verdict rests on, at most a few of them
    depths: tuple[TriedDepth, ...] = ()  # of a claim with families: what each depth came to

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is the one that the claim's author expects; a proof satisfies `holds`."""
        if self.expected is Verdict.HOLDS and self.verdict is Verdict.PROVED:
            return True
        return self.verdict is self.expected


@dataclass(frozen=True)
class RunInfo:
    """What a whole run was: for the report's head and for reproduction."""

    suite: str
    title: str
    command: str
    started: str
    seconds: float
    seed: int
    versions: dict[str, str]
    device: str
    dtype: str
    interrupted: bool = False
