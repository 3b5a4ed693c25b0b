"""Judge claims one after another, and report each as it ends."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ntk_deq.claims.claim import Claim, IllFormed, Verdict, is_membership
from ntk_deq.claims.statement import StatementLine, statement_lines
from ntk_deq.evaluation.instance import Instance
from ntk_deq.language.declaration import Setting
from ntk_deq.verify.depths import DepthResults, planned_depths, shallower_counterexample, shared_options
from ntk_deq.verify.feasible import Feasible, planned
from ntk_deq.verify.judge import Judgement
from ntk_deq.verify.options import Options
from ntk_deq.verify.results import ClaimResult, Evidence, Finding, Support, Witness
from ntk_deq.verify.tally import Tally
from ntk_deq.verify.trial import WRITING, Trial, is_out_of_memory
from ntk_deq.verify.witness import (
    counterexample_witness,
    nearest_witness,
    plainness,
    tightest_witness,
    undecided_witness,
    written_out,
)

__all__ = ["Feasible", "Listener", "Options", "judge", "judge_claims", "planned"]


class Listener(Protocol):
    """Hears of progress; the terminal report is one."""

    def claim_started(self, claim_id: str, total: int) -> None:
        """Say that a claim's judgement begins and how many instances it plans."""

    def instance_done(self, claim_id: str, done: int) -> None:
        """Say how many instances of a claim are judged."""

    def stage_entered(self, claim_id: str, stage: str) -> None:
        """Say what is done with a claim from now on, as in `searching`; "": instances that were planned are judged."""

    def claim_judged(self, claim_id: str) -> None:
        """Say that a claim's judgement has ended; its result is handed over when its turn comes."""

    def claim_finished(self, result: ClaimResult) -> None:
        """Hand over a claim's result."""

    def tick(self) -> None:
        """Say that time passes while nothing else is heard."""


@dataclass(frozen=True)
class Known:
    """What a judgement has come to so far, should it be ended from outside.

    Attributes:
        result: The result, as if it ended here.
        whole: Whether the verdict is the final one, and only findings are still looked for.
        broken: The counterexample of a result whose file is not yet written, or None.
    """

    result: ClaimResult
    whole: bool = False
    broken: Judgement | None = None


class Overseer:
    """Looks after a judgement from outside; this one leaves it alone, with the limits that it keeps by itself."""

    def allow(self, seconds: float | None) -> None:
        """Hear that the next stage may take so many seconds of processor time, or any number."""

    def keep(self, known: Callable[[], Known], *, pressing: bool = False) -> None:
        """Hear what is known now; it is worked out where the overseer wants it, always where it is `pressing`."""


ENDED = "its judgement was ended"
"""The reason of a result that is known before its judgement has come to a verdict."""


def judge_claims(
    claims: Sequence[Claim | IllFormed], options: Options, listener: Listener | None = None
) -> Iterator[ClaimResult]:
    """Yield the result of each claim in order; a failure of the product on one leaves the others alone.

    All of it happens in this process, so that `options.time_limit` is kept between operations only; `judge_in_workers`
    judges in processes of their own, which are ended where one operation outlasts the limit.
    """
    for claim in claims:
        result = judge(claim, options, listener)
        if listener is not None:
            listener.claim_judged(claim.id)
            listener.claim_finished(result)
        yield result
        if options.stop_early and not result.as_expected:
            return


def judge(
    claim: Claim | IllFormed,
    options: Options,
    listener: Listener | None = None,
    *,
    overseer: Overseer | None = None,
) -> ClaimResult:
    """Judge one claim in this process and thread.

    Args:
        claim: A checked claim; an ill-formed one gets its verdict at once.
        options: How. A single operation can outlast its `time_limit`, which is looked at between operations.
        listener: Hears of progress.
        overseer: Keeps what is known, and ends the process where an operation outlasts the limit; None: nobody does.

    Returns:
        The verdict with everything that backs it up. An exception inside becomes the verdict `error` with its trace.
    """
    if isinstance(claim, IllFormed):
        reason = "; ".join(f"{p.position}: {p.message}" for p in claim.problems)
        return bare_result(claim, options, Verdict.ILL_FORMED, reason)
    if claim.depths:
        return _judge_depths(claim, options, listener, overseer or Overseer())
    return _Judging(claim, options, listener, overseer or Overseer()).result()


class _DepthListener:
    """Passes on what is heard of one depth, as of the claim with families.

    Args:
        listener: Who hears it.
        before: Instances of the depths before.
    """

    def __init__(self, listener: Listener, before: int) -> None:
        self._listener, self._before = listener, before

    def claim_started(self, claim_id: str, total: int) -> None:
        """Say nothing: the claim has begun."""

    def instance_done(self, claim_id: str, done: int) -> None:
        """Add the instances of the depths before."""
        self._listener.instance_done(claim_id, self._before + done)

    def stage_entered(self, claim_id: str, stage: str) -> None:
        """Pass it on."""
        self._listener.stage_entered(claim_id, stage)

    def claim_judged(self, claim_id: str) -> None:
        """Say nothing: other depths follow."""

    def claim_finished(self, result: ClaimResult) -> None:
        """Say nothing: other depths follow."""

    def tick(self) -> None:
        """Pass it on."""
        self._listener.tick()


class _DepthOverseer(Overseer):
    """Keeps what is known of one depth, together with what the depths before came to."""

    def __init__(self, overseer: Overseer, so_far: DepthResults) -> None:
        self._overseer, self._so_far = overseer, so_far

    def allow(self, seconds: float | None) -> None:
        """Pass it on."""
        self._overseer.allow(seconds)

    def keep(self, known: Callable[[], Known], *, pressing: bool = False) -> None:
        """Keep the result of the claim."""

        def merged() -> Known:
            now = known()
            result = self._so_far.merged(last=now.result, whole=False)
            return Known(result, whole=now.whole and result.verdict is Verdict.REFUTED, broken=now.broken)

        self._overseer.keep(merged, pressing=pressing)


def _judge_depths(claim: Claim, options: Options, listener: Listener | None, overseer: Overseer) -> ClaimResult:
    """Judge a claim with families for one depth after the other, until one breaks it."""
    found = DepthResults(claim, options)
    try:
        parts = planned_depths(claim, options)
        own = shared_options(options, len(parts))
        if listener is not None:
            listener.claim_started(claim.id, sum(count for _, count in parts))
        done = 0
        for part, count in parts:
            heard = None if listener is None else _DepthListener(listener, done)
            found.add(part, judge(part, own, heard, overseer=_DepthOverseer(overseer, found)))
            done += count
            if found.results[-1].verdict in (Verdict.REFUTED, Verdict.ERROR):
                break
        fewer = shallower_counterexample([part for part, _ in parts], found.results, own)
        if fewer is not None:
            place, start = fewer
            again = _Judging(parts[place][0], own, None, _DepthOverseer(overseer, found), first=(start,)).result()
            found.results[place] = again if again.verdict is Verdict.REFUTED else found.results[place]
        result = found.merged(whole=len(found.results) == len(parts))
        for find in _depth_finders(claim, options, parts, found.results, overseer):
            known = Known(result, whole=True)
            overseer.keep(lambda known=known: known, pressing=True)  # type: ignore[misc]
            overseer.allow(options.time_limit)
            result = replace(result, findings=(*result.findings, *find(result)))
        return result
    except Exception as error:  # the boundary, as for a claim without families
        trace = traceback.format_exc()
        reason = "an operation needs more memory than there is"
        if is_out_of_memory(error):
            return bare_result(claim, options, Verdict.UNDECIDED, reason, started=found.started)
        reason = trace.strip().splitlines()[-1]
        return bare_result(claim, options, Verdict.ERROR, reason, started=found.started, trace=trace)


def _depth_finders(
    claim: Claim,
    options: Options,
    parts: Sequence[tuple[Claim, int]],
    results: Sequence[ClaimResult],
    overseer: Overseer,
) -> Iterator[Callable[[ClaimResult], Iterable[Finding]]]:
    """Yield what looks for findings about a claim with families, where they are asked for."""
    if options.findings:
        from ntk_deq.verify.findings import findings

        def variant(changed: Claim, how: Options) -> ClaimResult:
            # Each variant has a limit of its own, and so has what is looked at after it.
            overseer.allow(None if options.time_limit is None else 2 * options.time_limit)
            return judge(changed, how)

        yield lambda result: findings(claim, options, result, variant)
    if options.smallest:
        from ntk_deq.verify.smallest import smallest_over_depths

        judged = [(part, depth) for (part, _), depth in zip(parts, results, strict=False)]
        deadline = None if options.time_limit is None else time.thread_time() + options.time_limit
        yield lambda _: smallest_over_depths(claim, judged, options, deadline=deadline)


class _Judging:
    """One claim's judgement, stage by stage."""

    def __init__(
        self,
        claim: Claim,
        options: Options,
        listener: Listener | None,
        overseer: Overseer,
        *,
        first: tuple[Instance, ...] = (),
    ) -> None:
        self._claim, self._options = claim, options
        self._listener, self._overseer = listener, overseer
        self._trial = Trial(claim, options, time.perf_counter(), self._heard, entered=self._entered, first=first)
        self._statement: tuple[StatementLine, ...] = ()
        self._refuted = False

    def result(self) -> ClaimResult:
        """Go through all stages."""
        claim, options, overseer = self._claim, self._options, self._overseer
        if self._listener is not None:
            self._listener.claim_started(claim.id, sum(count for _, count in planned(claim, options)))
        overseer.allow(options.time_limit)
        try:
            self._statement = statement_lines(claim) if claim.origin is None else ()
            overseer.keep(self._known, pressing=True)
            self._trial.run()
            overseer.keep(self._known, pressing=self._refuted)
            overseer.allow(WRITING)
            result = _result(self._trial, self._statement, save=True)
            for find in self._finders():
                known = Known(result, whole=True)
                overseer.keep(lambda known=known: known, pressing=True)  # type: ignore[misc]
                overseer.allow(options.time_limit)
                result = replace(result, findings=(*result.findings, *find(result)))
            return result
        except Exception as error:  # the boundary: whatever the product did wrong here, others are still judged
            return self._failed(error)

    def _finders(self) -> Iterator[Callable[[ClaimResult], Iterable[Finding]]]:
        """Yield what looks for findings, where they are asked for."""
        claim, options = self._claim, self._options
        if options.findings:
            from ntk_deq.verify.findings import findings

            yield lambda result: findings(claim, options, result, self._variant)
        if options.smallest:
            from ntk_deq.verify.smallest import smallest_findings

            # A limit of its own: the judgement may have used up the other one.
            deadline = None if options.time_limit is None else time.thread_time() + options.time_limit
            yield lambda result: smallest_findings(claim, options.smallest, options, deadline=deadline)

    def _variant(self, claim: Claim, options: Options) -> ClaimResult:
        """Judge a variant of the claim; it has a limit of its own, and so has what is looked at after it."""
        self._overseer.allow(None if options.time_limit is None else 2 * options.time_limit)
        return judge(claim, options)

    def _entered(self, stage: str) -> None:
        if self._listener is not None:
            self._listener.stage_entered(self._claim.id, stage)

    def _heard(self, done: int) -> None:
        if self._listener is not None:
            self._listener.instance_done(self._claim.id, done)
        first = bool(self._trial.tally.counterexamples) and not self._refuted
        self._refuted |= first
        self._overseer.keep(self._known, pressing=first)

    def _known(self) -> Known:
        """What the result would be if the judgement ended now."""
        trial = self._trial
        try:
            broken = trial.plainest or min(trial.tally.counterexamples, key=plainness, default=None)
            return Known(_result(trial, self._statement, shown=broken), whole=trial.ended, broken=broken)
        except Exception as error:  # as in `result`, which will say the same
            return Known(self._failed(error), whole=True)

    def _failed(self, error: Exception) -> ClaimResult:
        claim, options, started = self._claim, self._options, self._trial.started
        if is_out_of_memory(error):
            reason = "an operation needs more memory than there is"
            return bare_result(claim, options, Verdict.UNDECIDED, reason, started=started, statement=self._statement)
        trace = traceback.format_exc()
        reason = trace.strip().splitlines()[-1]
        return bare_result(
            claim, options, Verdict.ERROR, reason, started=started, trace=trace, statement=self._statement
        )


def _result(
    trial: Trial, statement: tuple[StatementLine, ...], *, shown: Judgement | None = None, save: bool = False
) -> ClaimResult:
    """Return what a trial came to, with a file of its counterexample; one that has not ended shows `shown`."""
    claim, options, tally = trial.claim, trial.options, trial.tally
    verdict, evidence, reason = trial.verdict(stopped="" if trial.ended else ENDED)
    shown = trial.plainest or shown or (None if trial.proof is None else trial.proof.example)
    proven = {} if trial.proof is None else {k: how for k, how in trial.proof.proven.items() if not is_membership(k)}
    conclusions = tuple(replace(record, proven=proven.get(record.name, "")) for record in tally.conclusion_records())
    replay = trial.saved() if save else None
    asked = verdict is Verdict.UNDECIDED and not trial.stopped  # else the reason speaks of no instance
    return ClaimResult(
        id=claim.id,
        title=claim.title,
        where=claim.where,
        verdict=verdict,
        evidence=evidence,
        estimated=dict(tally.estimated),
        expected=claim.expect,
        instances=tally.instances,
        met=tally.met,
        tight=tally.tight,
        unsure=tally.unsure,
        worst_margin=tally.worst_margin(),
        refined=trial.refiner.tried,
        settled=trial.refiner.settled,
        exact=trial.refiner.exact,
        untested=tally.untested() if verdict is Verdict.HOLDS else (),
        precision=options.precision,
        seed=options.seed,
        seconds=trial.seconds,
        searched=trial.evaluations,
        support=_support(trial, verdict),
        lacking=tally.lacking(reason),
        replay=replay,
        warnings=(*(f"{w.position}: {w.message}" for w in claim.warnings), *trial.warnings),
        reason=reason,
        tags=claim.tags,
        mutates=claim.mutates,
        note=claim.note,
        settings=tuple(_setting_record(s, tally) for s in claim.settings),
        hypotheses=tally.hypothesis_records(),
        conclusions=conclusions,
        counterexample=_counterexample(claim, shown, options) if shown is not None else None,
        tightest=tightest_witness(tally.tightest) if tally.tightest is not None and shown is None else None,
        nearest=nearest_witness(tally.nearest) if tally.nearest is not None and tally.met == 0 else None,
        undecided=undecided_witness(claim, tally.undecided) if tally.undecided is not None and asked else None,
        statement=statement,
        source=dict(claim.source),
        position=str(claim.position),
        dtype=str(options.dtype).removeprefix("torch."),
        device=options.device,
        starts=tuple(tally.starts),
        runs=tuple(tally.runs),
    )


def _counterexample(claim: Claim, shown: Judgement, options: Options) -> Witness:
    """Return the record of a counterexample; with all that follows from it where it is the plainest, for people."""
    return written_out(claim, shown) if options.shrink else counterexample_witness(shown)


def _support(trial: Trial, verdict: Verdict) -> Support:
    """Return what the verdict rests on; that it is little is said of `holds` alone."""
    found = trial.tally.support(trial.evaluations)
    return found if verdict is Verdict.HOLDS else replace(found, remark="")


def _setting_record(setting: Setting, tally: Tally) -> dict[str, object]:
    instances, met = tally.by_setting[setting.name]
    return {
        "name": setting.name,
        "model": setting.model.name if setting.model is not None else None,
        "universal": setting.universal,
        "instances": instances,
        "met": met,
        "sizes": {letter: [r.low, r.high] for letter, r in setting.sizes.items()},
    }


def bare_result(
    claim: Claim | IllFormed,
    options: Options,
    verdict: Verdict,
    reason: str,
    *,
    started: float | None = None,
    trace: str | None = None,
    statement: tuple[StatementLine, ...] = (),
) -> ClaimResult:
    """The result of a claim that no instance could be judged for."""
    return ClaimResult(
        id=claim.id,
        title=claim.title,
        where=claim.where,
        verdict=verdict,
        evidence=Evidence.NONE,
        expected=claim.expect,
        instances=0,
        met=0,
        tight=0,
        unsure=0,
        worst_margin=None,
        seed=options.seed,
        seconds=0.0 if started is None else time.perf_counter() - started,
        reason=reason,
        tags=claim.tags,
        mutates=claim.mutates if isinstance(claim, Claim) else None,
        statement=statement,
        source=dict(claim.source),
        position=str(claim.position),
        dtype=str(options.dtype).removeprefix("torch."),
        device=options.device,
        trace=trace,
        problems=claim.problems if isinstance(claim, IllFormed) else (),
    )
