"""What judging a claim gives: plain data, torch-free, that the report and the stores write down.

Of a training run that a claim was judged on, what the report and the figures need of it: plain values only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ntk_deq.claims.claim import Verdict
from ntk_deq.claims.statement import StatementLine
from ntk_deq.errors import Problem
from ntk_deq.language.types import Margin


@dataclass(frozen=True)
class Condition:
    """One comparison of the initial conditions and the factor by which it is met.

    Attributes:
        name: The hypothesis.
        small: The side that must be the smaller one.
        large: The other side.
        factor: large / small; 1 means just met, infinity that the small side is zero or negative.
    """

    name: str
    small: float
    large: float
    factor: float


@dataclass(frozen=True)
class Start:
    """The start of a run that was judged, and how far from degenerate it is.

    Attributes:
        setting: The setting.
        index: Number of the instance.
        aim: What the constants were chosen for; empty where they were not.
        constants: The values of its scalars.
        defined: Scalars that the claim defines, as far as they were needed to judge the start.
        contraction: Upper bound of the contraction factor of the model's map at the start; None: it has none.
        conditions: The comparisons of the hypotheses there.
        brief: Whether a short run was judged: fewer steps, or less of the loss' fall, than the claim speaks of.
    """

    setting: str
    index: int
    aim: str
    constants: dict[str, float]
    defined: dict[str, float]
    contraction: float | None
    conditions: tuple[Condition, ...]
    brief: bool = False


@dataclass(frozen=True)
class Curve:
    """A quantity along a run, at the judged steps.

    Attributes:
        name: The conclusion it belongs to.
        text: Its formula.
        low: Lower ends of the measured side's balls.
        high: Upper ends.
        bound: The other side, as a float; NaN where it has no value.
        sense: `<=` where the bound is an upper one, `>=` where it is a lower one.
    """

    name: str
    text: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    bound: tuple[float, ...]
    sense: str


@dataclass(frozen=True)
class Rate:
    """A linear rate r of the loss: L ~ exp(-r t), or exp(-r k) per step.

    Attributes:
        value: The rate.
        low: Lower end of its confidence interval.
        high: Upper end.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class TrainingRecord:
    """A training run on one instance, as it was judged.

    Attributes:
        setting: The setting's name.
        index: Number of the instance.
        method: `gradient-descent` or `gradient-flow`.
        role: What it carries of the verdict: `run`, `window` (of descent) or `continuation` (flow to the end).
        step: The step size; None for flow, unless its times are told as steps of descent.
        constants: Values of the claim's given scalars.
        status: Why it stopped, a word.
        reason: The same, a sentence.
        steps: Steps taken.
        evaluations: Gradients computed.
        end: The last step or time.
        at: Judged steps or times, increasing, the first one 0.
        loss: The loss there.
        curves: Both sides of each conclusion that compares two numbers, there.
        conditions: The hypotheses, each with the factor by which it is met.
        path_length: Length of the trajectory in parameter space, at the judged steps.
        displacement: Per parameter: Frobenius distance from the start, at the judged steps.
        predicted: The rate that the loss conclusion states, or None where none does.
        measured: The fitted rate, or None where the run is too short to fit.
        instantaneous: The kernel's rate, norm(grad L)^2/L, at the judged steps; NaN where it is not known.
        predicted_steps: Steps (or time) after which the stated rate has brought the loss to the run's floor.
        forward_iterations: Mean iterations of an equilibrium.
        adjoint_iterations: Mean iterations of an adjoint.
        error: Bound or estimate of the distance of the judged parameters from the exact trajectory.
        certified: Whether that is a proven bound.
        covered: Intervals between judged steps on which every conclusion is certain throughout.
        intervals: Their number.
        step_tests: States along the run from which one step of descent was tested against the stated rate.
        step_tests_true: Those of them where the step is certain to make the loss fall as stated.
        seconds: Time spent.
    """

    setting: str
    index: int
    method: str
    role: str
    step: float | None
    constants: dict[str, float]
    status: str
    reason: str
    steps: int
    evaluations: int
    end: float
    at: tuple[float, ...]
    loss: tuple[float, ...]
    curves: tuple[Curve, ...]
    conditions: tuple[Condition, ...]
    path_length: tuple[float, ...]
    displacement: dict[str, tuple[float, ...]] = field(default_factory=dict)
    predicted: Rate | None = None
    measured: Rate | None = None
    instantaneous: tuple[float, ...] = ()
    predicted_steps: float | None = None
    forward_iterations: float = 0.0
    adjoint_iterations: float = 0.0
    error: float | None = None
    certified: bool = False
    covered: int = 0
    intervals: int = 0
    step_tests: int = 0
    step_tests_true: int = 0
    seconds: float = 0.0


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
        hypotheses: Of a counterexample and an undecided instance: each hypothesis by name, with both sides as text.
        computed_values: Of these: the equilibrium and the definitions, as far as they are known.
        script: Of a counterexample: a Python script that reproduces both sides with NumPy alone, or nothing.
        unwritten: Why there is no script.
        argument: Of a counterexample to a claim that something exists: why nothing does. Of an undecided instance: why
            the formula is open.
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
    undecided: Witness | None = None  # of an undecided claim: the instance that its reason speaks of
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
