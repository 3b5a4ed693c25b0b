"""Judge claims one after another, and report each as it ends."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from ntk_deq.claims.claim import Claim, IllFormed, Setting, Verdict
from ntk_deq.verify.judge import Judgement
from ntk_deq.verify.results import ClaimResult, Evidence, StatementLine, Support, Witness
from ntk_deq.verify.statement import statement_lines
from ntk_deq.verify.tally import Tally
from ntk_deq.verify.trial import Feasible, Options, Trial, planned
from ntk_deq.verify.witness import counterexample_witness, nearest_witness, tightest_witness, written_out

__all__ = ["Feasible", "Listener", "Options", "judge", "judge_claims", "planned"]


class Listener(Protocol):
    """Hears of progress; the terminal report is one."""

    def claim_started(self, claim_id: str, total: int) -> None:
        """Say that a claim's judgement begins and how many instances it plans."""

    def instance_done(self, done: int) -> None:
        """Say how many instances are judged."""

    def claim_finished(self, result: ClaimResult) -> None:
        """Hand over a claim's result."""


def judge_claims(
    claims: Sequence[Claim | IllFormed], options: Options, listener: Listener | None = None
) -> Iterator[ClaimResult]:
    """Yield the result of each claim in order; a failure of the product on one leaves the others alone."""
    for claim in claims:
        result = judge(claim, options, listener)
        if listener is not None:
            listener.claim_finished(result)
        yield result
        if options.stop_early and not result.as_expected:
            return


def judge(claim: Claim | IllFormed, options: Options, listener: Listener | None = None) -> ClaimResult:
    """Judge one claim.

    Args:
        claim: A checked claim; an ill-formed one gets its verdict at once.
        options: How.
        listener: Hears of progress.

    Returns:
        The verdict with everything that backs it up. An exception inside becomes the verdict `error` with its trace.
    """
    started = time.perf_counter()
    if isinstance(claim, IllFormed):
        reason = "; ".join(f"{p.position}: {p.message}" for p in claim.problems)
        return _bare(claim, options, Verdict.ILL_FORMED, reason)
    if listener is not None:
        listener.claim_started(claim.id, sum(count for _, count in planned(claim, options)))
    trial = Trial(claim, options, started, listener.instance_done if listener is not None else _nothing)
    statement: tuple[StatementLine, ...] = ()
    try:
        statement = statement_lines(claim)
        trial.run()
        result = _result(trial, statement)
        if options.findings:
            from ntk_deq.verify.findings import findings  # which judges variants of the claim by this function

            result = replace(result, findings=findings(claim, options, result))
        if options.smallest:
            from ntk_deq.verify.smallest import smallest_findings

            # A limit of its own: the judgement may have used up the other one.
            deadline = None if options.time_limit is None else time.perf_counter() + options.time_limit
            found = tuple(smallest_findings(claim, options.smallest, options, deadline=deadline))
            result = replace(result, findings=(*result.findings, *found))
        return result
    except Exception:  # the boundary: whatever the product did wrong here, the other claims are still judged
        trace = traceback.format_exc()
        reason = trace.strip().splitlines()[-1]
        return _bare(claim, options, Verdict.ERROR, reason, started=started, trace=trace, statement=statement)


def _nothing(done: int) -> None:
    """Hear of progress and say nothing."""


def _result(trial: Trial, statement: tuple[StatementLine, ...]) -> ClaimResult:
    claim, options, tally = trial.claim, trial.options, trial.tally
    verdict, evidence, reason = trial.verdict()
    shown = trial.plainest
    conclusions = tally.conclusion_records()
    replay = trial.saved()
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


def _bare(
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
