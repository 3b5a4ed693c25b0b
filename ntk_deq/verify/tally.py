"""Add up the judgements of a claim's instances, and turn them into a verdict (docs/design.md, section 1)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ntk_deq.claims.claim import Claim, Verdict
from ntk_deq.verify.judge import IMPLICIT, Judgement, Standing
from ntk_deq.verify.quantity import Outcome, Truth
from ntk_deq.verify.results import ConclusionRecord, Evidence, HypothesisRecord, Margin
from ntk_deq.verify.training_records import Start, TrainingRecord


@dataclass
class HypothesisTally:
    """Counts for one hypothesis."""

    held: int = 0
    failed: int = 0
    unsure: int = 0
    nearest: Margin | None = None
    closest: Judgement | None = None  # the instance with the nearest margin; without margins, the first that fails

    def add(self, outcome: Outcome, judgement: Judgement) -> None:
        """Count an outcome; keep the failing margin closest to zero, and its instance."""
        if outcome.truth is Truth.TRUE:
            self.held += 1
        elif outcome.truth is Truth.FALSE:
            self.failed += 1
            self.closest = self.closest or judgement
            if outcome.comparison is not None and (
                self.nearest is None or outcome.comparison.margin.hi > self.nearest.hi
            ):
                self.nearest, self.closest = outcome.comparison.margin, judgement
        else:
            self.unsure += 1


@dataclass
class ConclusionTally:
    """Counts and margins for one conclusion over the instances that meet the hypotheses."""

    counts: dict[Truth, int] = field(default_factory=lambda: dict.fromkeys(Truth, 0))
    margins: list[tuple[float, float, float]] = field(default_factory=list)
    worst: Margin | None = None
    identity: bool = True

    def add(self, outcome: Outcome) -> None:
        """Count an outcome and keep its margin."""
        self.counts[outcome.truth] += 1
        self.identity = self.identity and outcome.identity
        if outcome.comparison is not None:
            margin = outcome.comparison.margin
            self.margins.append((margin.lo, margin.hi, outcome.comparison.scale))
            if self.worst is None or margin.lo < self.worst.lo:
                self.worst = margin

    @property
    def confirmed(self) -> bool:
        """Whether some instance bears the conclusion out: certain and not tight, or an identity."""
        return self.counts[Truth.TRUE] > 0 or (self.identity and self.counts[Truth.TIGHT] > 0)


RUNS_KEPT = 6
"""Training runs of one claim that the report shows: the first ones, those of a counterexample in front."""


class Tally:
    """The judgements of one claim, added up."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.instances = 0
        self.met = 0
        self.unsure = 0
        self.tight = 0
        self.by_setting: dict[str, tuple[int, int]] = {s.name: (0, 0) for s in claim.settings}
        self.hypotheses = {name: HypothesisTally() for name in claim.assume}
        self.conclusions = {name: ConclusionTally() for name in claim.conclude}
        self.counterexamples: list[Judgement] = []
        self.doubts: list[Judgement] = []
        self.tightest: Judgement | None = None
        self.unsure_example: Judgement | None = None
        self.estimated: dict[str, str] = {}
        self.runs: list[TrainingRecord] = []
        self.starts: list[Start] = []

    def add(self, judgement: Judgement) -> None:
        """Count one instance."""
        self.instances += 1
        setting = judgement.instance.setting
        tried, met = self.by_setting[setting]
        self.by_setting[setting] = (tried + 1, met + (judgement.standing is Standing.MET))
        for name, outcome in judgement.hypotheses.items():
            self.hypotheses.setdefault(name, HypothesisTally()).add(outcome, judgement)
        truths = [o.truth for o in judgement.conclusions.values()]
        if judgement.standing is Standing.UNSURE:
            self.unsure += 1
            self.unsure_example = self.unsure_example or judgement
            if Truth.FALSE in truths:
                self.doubts.append(judgement)
        elif judgement.standing is Standing.MET:
            self._add_met(judgement, truths)

    def _add_met(self, judgement: Judgement, truths: list[Truth]) -> None:
        self.met += 1
        self.starts += [] if judgement.start is None else [judgement.start]
        self.estimated.update(judgement.estimated)
        if len(self.runs) < RUNS_KEPT or Truth.FALSE in truths:
            self.runs = (
                [*judgement.runs, *self.runs][:RUNS_KEPT] if Truth.FALSE in truths else [*self.runs, *judgement.runs]
            )
        for name, outcome in judgement.conclusions.items():
            self.conclusions[name].add(outcome)
        if Truth.FALSE in truths:
            self.counterexamples.append(judgement)
        elif Truth.UNSURE in truths or Truth.STRICT_TIGHT in truths:
            self.unsure += Truth.UNSURE in truths
            self.tight += Truth.UNSURE not in truths
            self.doubts.append(judgement)
        else:
            self.tight += Truth.TIGHT in truths or Truth.NEAR_ZERO in truths
            if self.tightest is None or closeness(judgement) < closeness(self.tightest):
                self.tightest = judgement

    def evidence(self) -> Evidence:
        """Return how strong the ground is: the weakest link of all instances that count, or the best counterexample."""
        if not self.met:
            return Evidence.NONE
        if self.counterexamples:  # one that rests on no estimate is enough
            return Evidence.NUMERIC if all(found.estimated for found in self.counterexamples) else Evidence.CERTIFIED
        return Evidence.NUMERIC if self.estimated else Evidence.CERTIFIED

    def verdict(self, *, stopped: str = "") -> tuple[Verdict, str]:
        """Return the verdict and its reason; `stopped` says why not all planned instances were tried, if so."""
        if self.counterexamples:
            return (
                Verdict.REFUTED,
                f"{len(self.counterexamples)} of {self.met} instances that meet the hypotheses break it",
            )
        if stopped:
            return Verdict.UNDECIDED, stopped
        if self.met == 0:
            return self._nothing_met()
        if self.doubts:
            return Verdict.UNDECIDED, self._doubt()
        unconfirmed = [name for name, tally in self.conclusions.items() if not tally.confirmed]
        if unconfirmed:
            return (
                Verdict.UNDECIDED,
                f"no instance bears out {unconfirmed[0]!r} for certain: all are tight, or two sides near zero",
            )
        return Verdict.HOLDS, ""

    @property
    def worst_hypothesis(self) -> str | None:
        """The name of the hypothesis that fails most often, or None where none ever fails."""
        failing = {name: t.failed for name, t in self.hypotheses.items() if t.failed}
        return max(failing, key=lambda name: failing[name], default=None)

    @property
    def nearest(self) -> Judgement | None:
        """The instance that comes closest to meeting the hypothesis that fails most often."""
        name = self.worst_hypothesis
        return None if name is None else self.hypotheses[name].closest

    def _nothing_met(self) -> tuple[Verdict, str]:
        name = self.worst_hypothesis
        if name is None or self.unsure:
            # An instance that may meet the hypotheses keeps the claim from being vacuous for certain.
            return Verdict.UNDECIDED, f"no instance meets the hypotheses for certain: {self._unsure_reason()}"
        failed, nearest = self.hypotheses[name].failed, self.hypotheses[name].nearest
        text = IMPLICIT.get(name, self.claim.assume[name].text if name in self.claim.assume else name)
        lack = ""
        if nearest is not None:
            lack = f"; the nearest instance lacks {-nearest.hi:.4g}" if nearest.hi < 0 else "; the nearest has equality"
        return Verdict.VACUOUS, (f"hypothesis {name!r} ({text}) failed on {failed} of {self.instances} instances{lack}")

    def _unsure_reason(self) -> str:
        example = self.unsure_example
        if example is None:
            return "none could be judged"
        names = [n for n, o in example.hypotheses.items() if o.truth is not Truth.TRUE]
        detail = f": {example.reason}" if example.reason else ""
        return f"on {self.unsure} of {self.instances} {', '.join(map(repr, names))} cannot be decided{detail}"

    def _doubt(self) -> str:
        first = self.doubts[0]
        kind = {
            Standing.MET: "the margin could not be decided",
            Standing.UNSURE: "the conclusion breaks where a hypothesis could not be decided",
        }[first.standing]
        names = [n for n, o in first.conclusions.items() if o.truth < Truth.NEAR_ZERO]
        detail = first.reason or "a strict inequality whose narrow ball contains zero"
        return (
            f"{len(self.doubts)} of {self.instances} instances are undecided; first, {first.instance.setting} #"
            f"{first.instance.index} ({first.instance.family}), {', '.join(names)}: {kind}: {detail}"
        )

    def worst_margin(self) -> Margin | None:
        """Return the smallest margin: of the counterexamples if there are some, else of all that met the hypotheses."""
        if self.counterexamples:
            broken = [o for j in self.counterexamples for o in j.conclusions.values() if o.truth is Truth.FALSE]
            margins = [o.comparison.margin for o in broken if o.comparison is not None]
        else:
            margins = [tally.worst for tally in self.conclusions.values() if tally.worst is not None]
        return min(margins, key=lambda margin: margin.lo, default=None)

    def hypothesis_records(self) -> tuple[HypothesisRecord, ...]:
        """Return what the report shows of the hypotheses."""
        return tuple(
            HypothesisRecord(
                name,
                self.claim.assume[name].text if name in self.claim.assume else IMPLICIT[name],
                t.held,
                t.failed,
                t.unsure,
                t.nearest,
            )
            for name, t in self.hypotheses.items()
        )

    def conclusion_records(self) -> tuple[ConclusionRecord, ...]:
        """Return what the report shows of the conclusions."""
        return tuple(
            ConclusionRecord(
                name,
                self.claim.conclude[name].text,
                t.worst,
                tuple(t.margins),
                true=t.counts[Truth.TRUE],
                false=t.counts[Truth.FALSE],
                tight=t.counts[Truth.TIGHT] + t.counts[Truth.NEAR_ZERO] + t.counts[Truth.STRICT_TIGHT],
                unsure=t.counts[Truth.UNSURE],
            )
            for name, t in self.conclusions.items()
        )


def closeness(judgement: Judgement) -> float:
    """Return the smallest margin of the conclusions relative to its scale: how close an instance is to equality."""
    ratios = [
        o.comparison.margin.lo / o.comparison.scale
        for o in judgement.conclusions.values()
        if o.comparison is not None and o.comparison.scale > 0
    ]
    return min(ratios, default=float("inf"))
