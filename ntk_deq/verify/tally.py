"""Add up the judgements of a claim's instances, and turn them into a verdict (docs/design.md, section 1)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ntk_deq.claims.check import entrywise_notes
from ntk_deq.claims.claim import Claim, Verdict
from ntk_deq.evaluation.arithmetic import NO_STEP
from ntk_deq.evaluation.quantity import Outcome, Truth
from ntk_deq.language.declaration import Setting
from ntk_deq.language.types import Margin, Sort
from ntk_deq.verify.boundary import Boundary
from ntk_deq.verify.judge import IMPLICIT, Judgement, Standing
from ntk_deq.verify.results import ConclusionRecord, Evidence, HypothesisRecord, Start, Support, TrainingRecord


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
    endless: int = 0  # instances on which it is true as a comparison with an infinity is
    nothing: int = 0  # instances on which it is true because it speaks of no step
    at_equality: set[str] = field(default_factory=set)  # hypotheses that were an equality where it was true

    def add(self, outcome: Outcome) -> None:
        """Count an outcome and keep its margin."""
        self.counts[outcome.truth] += 1
        self.nothing += outcome.truth is Truth.TRUE and outcome.reason == NO_STEP
        self.identity = self.identity and outcome.identity
        if outcome.comparison is not None:
            margin = outcome.comparison.margin
            self.endless += outcome.truth is Truth.TIGHT and math.isinf(margin.hi)
            self.margins.append((margin.lo, margin.hi, outcome.comparison.scale))
            if self.worst is None or margin.lo < self.worst.lo:
                self.worst = margin

    @property
    def confirmed(self) -> bool:
        """Whether some instance bears the conclusion out: certain and not tight, or an identity."""
        return self.counts[Truth.TRUE] > self.nothing or (self.identity and self.counts[Truth.TIGHT] > 0)


_OPEN_WORDS = {
    **dict.fromkeys(("<", ">"), "a strict inequality whose narrow ball contains zero"),
    **dict.fromkeys(("<=", ">="), "an inequality whose ball contains zero"),
    "==": "an identity whose ball contains zero, so that the two sides may differ",
    "!=": "two sides whose difference has a ball that contains zero, so that they may be equal",
}
FEW, FEW_OF_MANY, MANY = 5, 10, 40
"""So few instances that meet the hypotheses are little support, or so few where so many were tried."""

FAR = 3
"""So many instances at least should be far from equality."""

CLOSE = 1e-6
"""Relative margin up to which an instance counts as close to equality."""

RUNS_KEPT = 6
"""Training runs of one claim that the report shows: the first ones, those of a counterexample in front."""


_ENDLESS = "hold at infinity, which is no support"


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
        self._clear = 0
        self._nearby: list[float] = []
        # Of a conclusion that says, among other things, that values are equal, no margin is ever clear.
        self._identities = {
            n for n, f in claim.conclude.items() if any("==" in node.operators for node in f.expr.walk())
        }
        self._families: dict[str, set[str]] = {s.name: set() for s in claim.settings}
        self._sizes: dict[str, set[tuple[int, ...]]] = {s.name: set() for s in claim.settings}
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
        self._support(judgement)
        self.starts += [] if judgement.start is None else [judgement.start]
        self.estimated.update(judgement.estimated)
        if len(self.runs) < RUNS_KEPT or Truth.FALSE in truths:
            self.runs = (
                [*judgement.runs, *self.runs][:RUNS_KEPT] if Truth.FALSE in truths else [*self.runs, *judgement.runs]
            )
        known = [(name, o.comparison) for name, o in judgement.hypotheses.items() if o.comparison is not None]
        equalities = {name for name, comparison in known if comparison.margin == Margin(0.0, 0.0)}
        for name, outcome in judgement.conclusions.items():
            self.conclusions[name].add(outcome)
            if outcome.truth is Truth.TRUE:
                self.conclusions[name].at_equality |= equalities
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

    def _support(self, judgement: Judgement) -> None:
        """Count what an instance that meets the hypotheses adds to the support of a verdict."""
        instance = judgement.instance
        self._nearby += [judgement.nearby] if judgement.nearby < math.inf else []
        self._families[instance.setting].add(_kind(instance.family))
        self._sizes[instance.setting].add(tuple(instance.sizes.values()))
        ordered = [o.comparison for name, o in judgement.conclusions.items() if name not in self._identities]
        self._clear += all(c is None or CLOSE * c.scale < c.margin.lo < math.inf for c in ordered)

    def support(self, searched: int, verdict: Verdict) -> Support:
        """Return what a verdict rests on, with a remark where that is little for one that holds.

        Args:
            searched: Instances that the adversarial search scored.
            verdict: The verdict.
        """
        families, sizes = (sum(map(len, found.values())) for found in (self._families, self._sizes))
        clear = None if self._identities == self.conclusions.keys() else self._clear
        alone = min(self._nearby, default=0.0)
        found = Support(self.met, clear, families, sizes, searched, nearby=len(self._nearby), alone=alone)
        return replace(found, remark="; ".join(self._lacks(found)) if verdict is Verdict.HOLDS else "")

    def _lacks(self, found: Support) -> Iterator[str]:
        """Yield in words what the support of a verdict lacks."""
        if self.met < FEW or (self.met < FEW_OF_MANY and self.instances >= MANY):
            yield f"{self.met} of {self.instances} instances meet the hypotheses"
        if found.clear is not None and found.clear < min(FAR, self.met):
            yield "all are close to equality" if not found.clear else f"{found.clear} are not close to equality"
        endless = max((tally.endless for tally in self.conclusions.values()), default=0)
        if endless:
            yield f"{endless} {_ENDLESS}"
        for setting in self.claim.settings:
            tried, met = self.by_setting[setting.name]
            if not setting.universal or not met or tried < MANY // 2:
                continue
            tensors = any(variable.type.sort is Sort.MATRIX for variable in setting.free.values())
            if tensors and len(self._families[setting.name]) == 1:
                yield f"one kind of instance only in {setting.name}, {next(iter(self._families[setting.name]))}"
            if len(self._sizes[setting.name]) == 1 and not all(span.fixed for span in setting.sizes.values()):
                shown = ", ".join(map(str, next(iter(self._sizes[setting.name]))))
                yield f"one choice of {', '.join(setting.sizes)} only in {setting.name}, {shown}"

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
            reason = f"{len(self.counterexamples)} of {self.met} instances that meet the hypotheses break it"
            return Verdict.REFUTED, "; ".join([reason, *self._remarks()])
        if stopped:
            return Verdict.UNDECIDED, stopped
        if self.met == 0:
            return self._nothing_met()
        if self.doubts:
            return Verdict.UNDECIDED, self._doubt()
        if self.unconfirmed:
            return Verdict.UNDECIDED, self._bears_out()
        return Verdict.HOLDS, ""

    @property
    def undecided(self) -> Judgement | None:
        """The instance that the reason of an undecided verdict speaks of."""
        if self.doubts:
            return self.doubts[0]
        return self.unsure_example if self.met == 0 else None

    @property
    def unconfirmed(self) -> tuple[str, ...]:
        """The conclusions that no instance bears out for certain."""
        return tuple(name for name, tally in self.conclusions.items() if not tally.confirmed)

    def lacking(self, reason: str) -> tuple[str, ...]:
        """Return the conclusions that no instance bears out, where that is the reason of the verdict and nothing else.

        Instances of another depth of a claim with families may bear them out.
        """
        return self.unconfirmed if self.unconfirmed and reason == self._bears_out() else ()

    def _bears_out(self) -> str:
        name = self.unconfirmed[0]
        endless = f", or {_ENDLESS}" if self.conclusions[name].endless else ""
        return f"no instance bears out {name!r} for certain: all are tight, or two sides near zero{endless}"

    def untested(self) -> tuple[str, ...]:
        """Say which strict conclusions were never true for certain where a hypothesis is an equality."""
        boundary = Boundary(self.claim)
        remarks = []
        for name in boundary.strict:
            missing = [weak for weak in boundary.weak if weak not in self.conclusions[name].at_equality]
            if missing:
                equal = " and ".join(map(repr, missing))
                verb = "is an equality" if len(missing) == 1 else "are equalities"
                remarks.append(f"{name!r} is strict, and was not tested where {equal} {verb}")
        return tuple(remarks)

    def _remarks(self) -> Iterator[str]:
        """Say of counterexamples that there is no step to be true of, that theirs may be one of several equilibria, ...

        ... and what to write for another order of symmetric matrices, where a conclusion broke that orders them.
        """
        broken = [(n, o) for j in self.counterexamples for n, o in j.conclusions.items() if o.truth is Truth.FALSE]
        if any(NO_STEP in outcome.reason for _, outcome in broken):
            yield f"some of them since a `for some` is about nothing: {NO_STEP}"
        if all(judgement.nearby < math.inf for judgement in self.counterexamples):
            yield "the claim speaks of every equilibrium; that of a counterexample is one, and there may be others"
        notes = entrywise_notes(self.claim)
        yield from (f"{name}: {note}" for name, note in notes.items() if name in dict(broken))

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
        detail = first.reason or self._open_words(first)
        return (
            f"{len(self.doubts)} of {self.instances} instances are undecided; first, {first.instance.setting} #"
            f"{first.instance.index} ({first.instance.family}), {', '.join(names)}: {kind}: {detail}"
        )

    @staticmethod
    def _open_words(first: Judgement) -> str:
        """Say in words which comparison of a judgement without a reason is open."""
        of_hypotheses = first.standing is Standing.UNSURE
        outcomes = first.hypotheses if of_hypotheses else first.conclusions
        undecided = [o for o in outcomes.values() if o.truth not in (Truth.TRUE, Truth.FALSE)]
        worst = min(undecided, key=lambda o: o.truth, default=None)
        relation = "" if worst is None or worst.comparison is None else worst.comparison.relation
        return _OPEN_WORDS.get(relation, "a statement that could not be decided")

    def worst_margin(self) -> Margin | None:
        """Return the smallest margin: of the counterexamples if there are some, else of all that met the hypotheses."""
        if self.counterexamples:
            broken = [o for j in self.counterexamples for o in j.conclusions.values() if o.truth is Truth.FALSE]
            margins = [o.comparison.margin for o in broken if o.comparison is not None]
        else:
            margins = [tally.worst for tally in self.conclusions.values() if tally.worst is not None]
        return min(margins, key=lambda margin: margin.lo, default=None)

    def setting_records(self) -> tuple[dict[str, object], ...]:
        """Return what the report shows of the settings."""
        return tuple(setting_record(s, *self.by_setting[s.name]) for s in self.claim.settings)

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


def setting_record(setting: Setting, instances: int, met: int) -> dict[str, object]:
    """Return what the report shows of a setting, sizes as the file gives them."""
    members = {n: "" if s.over is None else f"[{s.over.letter}] for {s.over.text}" for n, s in setting.sizes.items()}
    return {
        "name": setting.name,
        "model": setting.model.name if setting.model is not None else None,
        "universal": setting.universal,
        "instances": instances,
        "met": met,
        "sizes": {f"{letter}{members[letter]}": [span.low, span.high] for letter, span in setting.sizes.items()},
    }


def closeness_of(outcome: Outcome) -> float:
    """Return the margin of an outcome relative to its scale; infinity where there is none."""
    found = outcome.comparison
    return found.margin.lo / found.scale if found is not None and found.scale > 0 else math.inf


def closeness(judgement: Judgement) -> float:
    """Return the smallest margin of the conclusions relative to its scale: how close an instance is to equality."""
    return min(map(closeness_of, judgement.conclusions.values()), default=math.inf)


def _kind(family: str) -> str:
    """Return what kind of instance a family's text says, without numbers and without what was changed afterwards."""
    return re.sub(r"[-+]?\d[\d.e^+-]*", "#", family.split(";")[0])
