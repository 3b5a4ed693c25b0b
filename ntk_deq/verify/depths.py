"""Judge a claim with families: for each of its depths the ordinary claim that it is there, and add the results up.

The smallest depth comes first, so that a counterexample is as shallow as can be; instances, search and time are shared
out among the depths.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ntk_deq.claims.claim import Claim, Depth, Verdict
from ntk_deq.claims.depths import at_depth
from ntk_deq.claims.statement import statement_lines
from ntk_deq.evaluation.instance import Instance, shape_of
from ntk_deq.falsify.domains import contains
from ntk_deq.language.families import member_name
from ntk_deq.verify.feasible import planned
from ntk_deq.verify.judge import judge_instance, refutes
from ntk_deq.verify.options import Options
from ntk_deq.verify.results import (
    ClaimResult,
    ConclusionRecord,
    Evidence,
    HypothesisRecord,
    Support,
    TriedDepth,
    Witness,
)
from ntk_deq.verify.tally import setting_record

LEAST = 8
"""Instances of a depth at least, unless the claim asks for fewer in all."""

_WEAKEST = (Evidence.NUMERIC, Evidence.CERTIFIED, Evidence.SYMBOLIC)
_RUNS = 6  # training runs that a result keeps
Pairs = Sequence[tuple[Depth, ClaimResult]]


def planned_depths(claim: Claim, options: Options) -> list[tuple[Claim, int]]:
    """Return the claim of each depth, with how many instances it gets."""
    found = []
    for depth in claim.depths:
        written = at_depth(claim, depth)
        alike = sum(other.setting == depth.setting for other in claim.depths)
        ((_, whole),) = planned(written, options)
        share = max(min(LEAST, whole), -(-whole // alike))
        asked = claim.instances or options.instances or options.usual
        # A setting with draws takes a part of what is asked for; a claim on training takes it as it is.
        own = share if written.settings[0].universal or claim.trains else max(share, -(-asked // alike))
        written = replace(written, instances=own)
        found.append((written, planned(written, options)[0][1]))
    return found


def shared_options(options: Options, depths: int) -> Options:
    """Return how one of several depths is judged: without findings, which are about the claim as a whole."""
    search = options.search if not options.search else max(1, options.search // depths)
    limit = None if options.time_limit is None else options.time_limit / depths
    return replace(options, search=search, time_limit=limit, findings=False, smallest=())


def shallower_counterexample(
    parts: Sequence[Claim], results: Sequence[ClaimResult], options: Options
) -> tuple[int, Instance] | None:
    """Return what is left of the last depth's counterexample at the smallest depth at which it still is one.

    Members that follow each other are left out of every family, those behind them move up, and matrices are cut, or
    filled with zeros, so that they fit. A depth was searched before deeper ones; this finds what the search missed.

    Args:
        parts: The claim at each depth.
        results: What each depth came to, as far as they were judged.
        options: How a depth is judged.

    Returns:
        The place of the smaller depth, and the instance; None where there is none.
    """
    deep, witness = parts[len(results) - 1], results[-1].counterexample
    if witness is None or not options.shrink or deep.costly or deep.sought or not deep.settings[0].universal:
        return None
    if deep.depth is None or deep.depth.members or None in witness.values.values():
        return None
    for place, part in enumerate(parts[: len(results) - 1]):
        for instance in _fewer_members(witness, deep, part):
            if refutes(judge_instance(part, instance, **options.judging())):
                return place, instance
    return None


def _fewer_members(witness: Witness, deep: Claim, part: Claim) -> Iterator[Instance]:
    """Yield an instance with members left out, for each place where they may be; of one letter fewer."""
    assert deep.depth is not None
    assert part.depth is not None
    more, fewer = dict(deep.depth.letters), dict(part.depth.letters)
    changed = [letter for letter in more if more[letter] != fewer.get(letter)]
    if part.depth.setting != deep.depth.setting or len(changed) != 1 or fewer[changed[0]] > more[changed[0]]:
        return
    (setting,), dropped = part.settings, more[changed[0]] - fewer[changed[0]]
    variables = {**setting.free, **part.given}
    for place in range(max(more.values()) + 2):

        def old(name: str, place: int = place) -> str:
            family, _, index = name.removesuffix("]").partition("[")
            return name if not index or int(index) < place else member_name(family, int(index) + dropped)

        sizes = {letter: witness.sizes.get(old(letter), span.low) for letter, span in setting.sizes.items()}
        sizes = {
            letter: min(max(size, setting.sizes[letter].low), setting.sizes[letter].high)
            for letter, size in sizes.items()
        }
        if any(old(name) not in witness.values for name in variables):
            continue
        values = {
            name: _fitted(witness.values[old(name)], shape_of(free.type, sizes, name=name))
            for name, free in variables.items()
        }
        if all(contains(free.domain, values[name]) for name, free in variables.items()):
            family = f"{witness.family}, with fewer members"
            yield Instance(setting.name, family, sizes, values, witness.index)


def _fitted(value: Any, shape: tuple[int, ...]) -> Tensor:
    """Return a value cut, or filled with zeros, to a shape."""
    old = torch.tensor(value, dtype=torch.float64)
    new = torch.zeros(shape, dtype=torch.float64)
    common = tuple(slice(min(a, b)) for a, b in zip(old.shape, shape, strict=True))
    new[common] = old[common]
    return new


@dataclass
class DepthResults:
    """What the depths of a claim came to so far.

    Attributes:
        claim: The claim with families.
        started: When its judgement began, on the clock of `time.perf_counter`.
        results: By depth, in the order in which they are judged.
        silent: By depth, the conclusions that say nothing there, as those about all members of an empty range.
    """

    claim: Claim
    started: float = field(default_factory=time.perf_counter)
    results: list[ClaimResult] = field(default_factory=list)
    silent: list[frozenset[str]] = field(default_factory=list)

    def add(self, part: Claim, result: ClaimResult) -> None:
        """Add the result of the next depth.

        Args:
            part: The claim written out for it.
            result: What it came to.
        """
        self.results.append(result)
        self.silent.append(says_nothing(part))

    def merged(self, *, last: ClaimResult | None = None, whole: bool = True) -> ClaimResult:
        """Return the result of the claim.

        Args:
            last: The result of a depth that is not over, or None.
            whole: Whether all depths are judged; if not, what is known holds for the others only.
        """
        results = [*self.results, *([] if last is None else [last])]
        pairs = list(zip(self.claim.depths, results, strict=False))
        silent = [*self.silent, frozenset[str]()][: len(results)]
        verdict, reason, at = _verdict(pairs, silent, whole=whole)
        first = at or results[0]
        counted = [r for r in results if r.verdict in (Verdict.HOLDS, Verdict.PROVED) or r.lacking] or [first]
        own = [f"{w.position}: {w.message}" for w in self.claim.warnings]
        shown = [first] if verdict in (Verdict.REFUTED, Verdict.ERROR) else counted
        return replace(
            first,
            verdict=verdict,
            evidence=min(
                (r.evidence for r in shown if r.evidence in _WEAKEST), key=_WEAKEST.index, default=Evidence.NONE
            ),
            reason=reason,
            **_summed(results, "instances", "met", "tight", "unsure", "refined", "settled", "exact", "searched"),
            worst_margin=min((r.worst_margin for r in shown if r.worst_margin), key=lambda m: m.lo, default=None),
            seconds=time.perf_counter() - self.started,
            estimated={k: v for r in results for k, v in r.estimated.items()},
            untested=tuple(dict.fromkeys(f"{text} (at {d})" for d, r in pairs for text in r.untested)),
            support=_support(pairs, silent, verdict),
            settings=_settings(self.claim, pairs),
            hypotheses=_hypotheses(self.claim, results),
            conclusions=_conclusions(self.claim, results),
            tightest=None if first.counterexample else next((r.tightest for r in results if r.tightest), None),
            nearest=first.nearest if verdict is Verdict.VACUOUS else None,
            undecided=first.undecided if verdict is Verdict.UNDECIDED else None,
            statement=statement_lines(self.claim, next((self._variant(d) for d, r in pairs if r is at), None)),
            warnings=tuple(dict.fromkeys([*own, *(text for r in results for text in r.warnings)])),
            starts=tuple(start for r in results for start in r.starts),
            runs=tuple(run for r in (first, *(r for r in results if r is not first)) for run in r.runs)[:_RUNS],
            depths=tuple(_tried(depth, result) for depth, result in pairs),
        )

    def _variant(self, depth: Depth) -> Claim | None:
        return None if depth.variant is None else self.claim.variants[depth.variant]


def _verdict(pairs: Pairs, silent: Sequence[frozenset[str]], *, whole: bool) -> tuple[Verdict, str, ClaimResult | None]:
    """Return the verdict of a claim, its reason, and the depth that it comes from where it comes from one.

    A fault or a counterexample at one depth is one of the claim; what is undecided at one depth is undecided, unless
    all that is missing there are instances that bear a conclusion out, and another depth has them, as with any other
    size; a depth at which no instance meets the hypotheses counts only where all are such.
    """
    borne_out = _borne_out(pairs, silent)
    for verdict in (Verdict.ERROR, Verdict.REFUTED, Verdict.UNDECIDED):
        for depth, result in pairs:
            if result.verdict is verdict and not (result.lacking and borne_out.issuperset(result.lacking)):
                return verdict, _at(depth, result.reason), result
    if not whole:
        return Verdict.UNDECIDED, "its judgement was ended", None
    empty = [(depth, result) for depth, result in pairs if result.verdict is Verdict.VACUOUS]
    mute = sum(_is_mute(result, own) for (_, result), own in zip(pairs, silent, strict=True))
    if empty and len(empty) + mute == len(pairs):
        return Verdict.VACUOUS, _at(empty[0][0], empty[0][1].reason), empty[0][1]
    # That no instance of a depth was found is no proof that there is none; a set has more functions than were tried.
    if any(result.verdict is not Verdict.PROVED or depth.members for depth, result in pairs):
        return Verdict.HOLDS, "", None
    return Verdict.PROVED, "; ".join(dict.fromkeys(result.reason for _, result in pairs)), None


def says_nothing(claim: Claim) -> frozenset[str]:
    """Return the conclusions of a claim that speak of none of its variables: at this depth, a range is empty."""
    return frozenset(name for name, formula in claim.conclude.items() if not formula.names)


def _is_mute(result: ClaimResult, silent: frozenset[str]) -> bool:
    """Whether a depth bears nothing out, since no conclusion says anything there."""
    names = {record.name for record in result.conclusions}
    return result.verdict is not Verdict.VACUOUS and bool(names) and names <= silent


def _borne_out(pairs: Pairs, silent: Sequence[frozenset[str]]) -> set[str]:
    """Return the conclusions that some instance of some depth bears out for certain."""
    found: set[str] = set()
    for (_, result), own in zip(pairs, silent, strict=True):
        if result.verdict is Verdict.HOLDS or result.lacking:
            found |= {record.name for record in result.conclusions} - {*result.lacking, *own}
    return found


def _at(depth: Depth, reason: str) -> str:
    return f"at {depth}: {reason}" if depth.letters else reason


def _support(pairs: Pairs, silent: Sequence[frozenset[str]], verdict: Verdict) -> Support:
    """Return what all depths together rest on; little support of one depth is said with the depth."""
    remarks = []
    for (depth, result), mute in zip(pairs, silent, strict=True):
        if result.verdict is Verdict.VACUOUS:
            remarks.append(f"vacuous at {depth}")
        elif _is_mute(result, mute):
            remarks.append(f"nothing is said at {depth}")
        elif result.support.remark:
            remarks.append(_at(depth, result.support.remark))
    own = [result.support for _, result in pairs]
    found = Support(**_summed(own, "met", "families", "sizes", "searched"))
    clear = None if any(support.clear is None for support in own) else sum(support.clear or 0 for support in own)
    return replace(found, clear=clear, remark="; ".join(remarks) if verdict is Verdict.HOLDS else "")


def _settings(claim: Claim, pairs: Sequence[tuple[Depth, ClaimResult]]) -> tuple[dict[str, object], ...]:
    """Return the records of the settings, counts of all depths added."""
    records = []
    for setting in claim.settings:
        own = [record for depth, result in pairs if depth.setting == setting.name for record in result.settings]
        instances, met = (sum(record[key] for record in own) for key in ("instances", "met"))
        records.append(setting_record(setting, instances, met))
    return tuple(records)


def _hypotheses(claim: Claim, results: Iterable[ClaimResult]) -> tuple[HypothesisRecord, ...]:
    found: dict[str, HypothesisRecord] = {}
    for record in (record for result in results for record in result.hypotheses):
        text = claim.assume[record.name].text if record.name in claim.assume else record.text
        both = [found.get(record.name, HypothesisRecord(record.name, text, 0, 0, 0)), record]
        nearest = max((own.nearest for own in both if own.nearest is not None), key=lambda m: m.hi, default=None)
        found[record.name] = replace(both[1], nearest=nearest, **_summed(both, "held", "failed", "unsure"))
    return tuple(found.values())


def _conclusions(claim: Claim, results: Iterable[ClaimResult]) -> tuple[ConclusionRecord, ...]:
    found: dict[str, ConclusionRecord] = {}
    for record in (record for result in results for record in result.conclusions):
        text = claim.conclude[record.name].text
        both = [found.get(record.name, ConclusionRecord(record.name, text, None, (), 0, 0, 0, 0)), record]
        worst = min((own.worst for own in both if own.worst is not None), key=lambda m: m.lo, default=None)
        margins = (*both[0].margins, *record.margins)
        counts = _summed(both, "true", "false", "tight", "unsure")
        found[record.name] = replace(both[0], worst=worst, margins=margins, **counts)
    return tuple(found.values())


def _summed(records: Sequence[object], *names: str) -> dict[str, Any]:
    """Return sums of the numbers of records, by the names of these."""
    return {name: sum(getattr(record, name) for record in records) for name in names}


def _tried(depth: Depth, result: ClaimResult) -> TriedDepth:
    return TriedDepth(
        depth.setting,
        dict(depth.letters),
        result.verdict,
        result.instances,
        result.met,
        result.searched,
        result.seconds,
        result.reason,
        dict(depth.members),
    )
