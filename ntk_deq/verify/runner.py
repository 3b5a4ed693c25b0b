"""Judge claims one after another, and report each as it ends; on a Dask cluster, too."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import torch

from ntk_deq.claims.claim import Claim, IllFormed, Verdict, is_membership
from ntk_deq.claims.statement import StatementLine, statement_lines
from ntk_deq.errors import ArgumentError
from ntk_deq.evaluation.instance import Instance
from ntk_deq.package import install_line
from ntk_deq.verify.depths import DepthResults, planned_depths, shallower_counterexample, shared_options
from ntk_deq.verify.feasible import planned
from ntk_deq.verify.judge import Judgement
from ntk_deq.verify.options import LIVES, Options, check_claims
from ntk_deq.verify.results import ClaimResult, Evidence, Finding
from ntk_deq.verify.trial import WRITING, Trial, is_out_of_memory
from ntk_deq.verify.witness import (
    counterexample_witness,
    nearest_witness,
    plainness,
    tightest_witness,
    undecided_witness,
    written_out,
)

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Listener", "Options", "judge", "judge_claims", "judge_on_cluster", "planned"]


class Listener(Protocol):
    """Hears of progress; the terminal report is one. What derives from it need not hear everything."""

    def claim_started(self, claim_id: str, total: int) -> None:
        """Say that a claim's judgement begins and how many instances it plans."""
        return

    def instance_done(self, claim_id: str, done: int) -> None:
        """Say how many instances of a claim are judged."""
        return

    def stage_entered(self, claim_id: str, stage: str) -> None:
        """Say what is done with a claim from now on, as in `searching`; "": instances that were planned are judged."""
        return

    def claim_judged(self, claim_id: str) -> None:
        """Say that a claim's judgement has ended; its result is handed over when its turn comes."""
        return

    def claim_finished(self, result: ClaimResult) -> None:
        """Hand over a claim's result."""
        return

    def tick(self) -> None:
        """Say that time passes while nothing else is heard."""
        return


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


class Overseer(Listener):
    """Looks after a judgement from outside; this one hears nothing and leaves it alone, with its own limits."""

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
    check_claims(claims, options, "judge_claims")
    listener = listener or Overseer()
    for claim in claims:
        result = judge(claim, options, listener)
        listener.claim_judged(claim.id)
        listener.claim_finished(result)
        yield result
        if options.stop_early and not result.as_expected:
            return


def judge_on_cluster(
    address: str,
    claims: Sequence[Claim | IllFormed],
    options: Options,
    listener: Listener | None = None,
    *,
    jobs: int = 2,
    threads: int = 1,
) -> Generator[ClaimResult, None, None]:
    """Return an iterator over the results of the claims, in order, judged by the workers of a Dask cluster.

    Limits are those that a judgement keeps by itself: an operation that outlasts one is not ended. A claim whose worker
    dies is judged again; one of which as many workers die as the cluster allows, two on this machine, is an error.

    Args:
        address: The scheduler's address, or `local` for a cluster on this machine.
        claims: Checked claims.
        options: How; `stop_early` leaves the claims after the first unexpected verdict unjudged.
        listener: Hears of finished claims.
        jobs: Workers of a cluster on this machine.
        threads: Threads of one matrix product.

    Raises:
        ArgumentError: The extra `dask` is not installed, or the address is none.
    """
    try:
        import dask
        from distributed import Client
    except ModuleNotFoundError as error:
        raise ArgumentError(f"`--dask` needs the package distributed: {install_line('dask')}") from error
    if address != "local":
        try:
            client = Client(address)
        except ValueError as error:
            raise ArgumentError(f"`--dask` takes `local` or tcp://HOST:PORT. Got {address!r}: {error}.") from error
        return _gather(client, claims, options, listener or Overseer(), threads)
    with dask.config.set({"distributed.scheduler.allowed-failures": LIVES - 1}):
        client = Client(n_workers=jobs, threads_per_worker=1, dashboard_address=None)
    return _gather(client, claims, options, listener or Overseer(), threads)


def _gather(
    client: Client, claims: Sequence[Claim | IllFormed], options: Options, listener: Listener, threads: int
) -> Generator[ClaimResult, None, None]:
    from distributed import KilledWorker

    with client:
        futures = [client.submit(_judged, claim, options, threads, pure=False) for claim in claims]
        for claim, future in zip(claims, futures, strict=True):
            try:
                result: ClaimResult = future.result()
            except KilledWorker:
                result = bare_result(claim, options, Verdict.ERROR, "its workers on the cluster died")
            listener.claim_finished(result)
            yield result
            if options.stop_early and not result.as_expected:
                client.cancel(futures)
                return


def _judged(claim: Claim | IllFormed, options: Options, threads: int) -> ClaimResult:
    torch.set_num_threads(threads)
    return judge(claim, options)


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
    check_claims([claim], options, "judge")
    if isinstance(claim, IllFormed):
        reason = "; ".join(f"{p.position}: {p.message}" for p in claim.problems)
        return bare_result(claim, options, Verdict.ILL_FORMED, reason)
    listener, overseer = listener or Overseer(), overseer or Overseer()
    if claim.depths:
        return _judge_depths(claim, options, listener, overseer)
    return _Judging(claim, options, listener, overseer).result()


class _Depth(Overseer):
    """Passes on what is heard and known of one depth, as of the claim with families.

    Args:
        listener: Who hears it.
        overseer: Who keeps it.
        so_far: What the depths before came to.
        before: Instances that were planned for them.
    """

    def __init__(self, listener: Listener, overseer: Overseer, so_far: DepthResults, before: int = 0) -> None:
        self._listener, self._overseer, self._so_far, self._before = listener, overseer, so_far, before

    def instance_done(self, claim_id: str, done: int) -> None:
        """Add the instances of the depths before."""
        self._listener.instance_done(claim_id, self._before + done)

    def stage_entered(self, claim_id: str, stage: str) -> None:
        """Pass it on."""
        self._listener.stage_entered(claim_id, stage)

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


def _judge_depths(claim: Claim, options: Options, listener: Listener, overseer: Overseer) -> ClaimResult:
    """Judge a claim with families for one depth after the other, until one breaks it."""
    found = DepthResults(claim)
    try:
        parts = planned_depths(claim, options)
        own = shared_options(options, len(parts))
        listener.claim_started(claim.id, sum(count for _, count in parts))
        done = 0
        for part, count in parts:
            depth = _Depth(listener, overseer, found, done)
            found.add(part, _Judging(part, own, depth, depth).result())
            done += count
            if found.results[-1].verdict in (Verdict.REFUTED, Verdict.ERROR):
                break
        fewer = shallower_counterexample([part for part, _ in parts], found.results, own)
        if fewer is not None:
            place, start = fewer
            alone = _Depth(Overseer(), overseer, found)
            again = _Judging(parts[place][0], own, alone, alone, first=(start,)).result()
            found.results[place] = again if again.verdict is Verdict.REFUTED else found.results[place]
        result = found.merged(whole=len(found.results) == len(parts))
        judged = list(zip((part for part, _ in parts), found.results, strict=False))
        return _with_findings(result, claim, options, overseer, judged)
    except Exception as error:  # the boundary, as for a claim without families
        return _failed(error, claim, options, found.started)


def _with_findings(
    result: ClaimResult,
    claim: Claim,
    options: Options,
    overseer: Overseer,
    depths: Sequence[tuple[Claim, ClaimResult]] = (),
) -> ClaimResult:
    """Return a result with the findings that are asked for; each search for some has a limit of its own."""

    def variant(changed: Claim, how: Options) -> ClaimResult:
        # Each variant has a limit of its own, and so has what is looked at after it.
        overseer.allow(None if options.time_limit is None else 2 * options.time_limit)
        return judge(changed, how)

    def further() -> Iterable[Finding]:
        from ntk_deq.verify.findings import findings

        return findings(claim, options, result, variant)

    def smallest() -> Iterable[Finding]:
        from ntk_deq.verify.smallest import smallest_findings, smallest_over_depths

        # A limit of its own: the judgement may have used up the other one.
        deadline = None if options.time_limit is None else time.thread_time() + options.time_limit
        if claim.depths:
            return smallest_over_depths(claim, depths, options, deadline=deadline)
        return smallest_findings(claim, options.smallest, options, deadline=deadline)

    for asked, find in ((options.findings, further), (options.smallest, smallest)):
        if asked:
            known = Known(result, whole=True)
            overseer.keep(lambda known=known: known, pressing=True)  # type: ignore[misc]
            overseer.allow(options.time_limit)
            result = replace(result, findings=(*result.findings, *find()))
    return result


def _failed(
    error: Exception, claim: Claim, options: Options, started: float, statement: tuple[StatementLine, ...] = ()
) -> ClaimResult:
    """Return the result of a claim on which the product failed, or that takes more memory than there is."""
    if is_out_of_memory(error):
        reason = "an operation needs more memory than there is"
        return bare_result(claim, options, Verdict.UNDECIDED, reason, started=started, statement=statement)
    trace = traceback.format_exc()
    reason = trace.strip().splitlines()[-1]
    return bare_result(claim, options, Verdict.ERROR, reason, started=started, trace=trace, statement=statement)


class _Judging:
    """One claim's judgement, stage by stage."""

    def __init__(
        self, claim: Claim, options: Options, listener: Listener, overseer: Overseer, first: tuple[Instance, ...] = ()
    ) -> None:
        self._claim, self._options = claim, options
        self._listener, self._overseer = listener, overseer
        entered = partial(listener.stage_entered, claim.id)
        self._trial = Trial(claim, options, heard=self._heard, entered=entered, first=first)
        self._statement: tuple[StatementLine, ...] = ()
        self._refuted = False

    def result(self) -> ClaimResult:
        """Go through all stages."""
        claim, options, overseer = self._claim, self._options, self._overseer
        self._listener.claim_started(claim.id, sum(count for _, count in planned(claim, options)))
        overseer.allow(options.time_limit)
        try:
            self._statement = statement_lines(claim) if claim.origin is None else ()
            overseer.keep(self._known, pressing=True)
            self._trial.run()
            overseer.keep(self._known, pressing=self._refuted)
            overseer.allow(WRITING)
            return _with_findings(_result(self._trial, self._statement, save=True), claim, options, overseer)
        except Exception as error:  # the boundary: whatever the product did wrong here, others are still judged
            return _failed(error, claim, options, self._trial.started, self._statement)

    def _heard(self, done: int) -> None:
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
            return Known(_failed(error, self._claim, self._options, trial.started, self._statement), whole=True)


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
    counterexample = None
    if shown is not None:  # with all that follows from it where it is the plainest, for people
        counterexample = written_out(claim, shown) if options.shrink else counterexample_witness(shown)
    asked = verdict is Verdict.UNDECIDED and not trial.stopped  # else the reason speaks of no instance
    return replace(
        bare_result(claim, options, verdict, reason, started=trial.started, statement=statement),
        evidence=evidence,
        estimated=dict(tally.estimated),
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
        searched=trial.evaluations,
        support=tally.support(trial.evaluations, verdict),
        lacking=tally.lacking(reason),
        replay=replay,
        warnings=(*(f"{w.position}: {w.message}" for w in claim.warnings), *trial.warnings),
        note=claim.note,
        settings=tally.setting_records(),
        hypotheses=tally.hypothesis_records(),
        conclusions=conclusions,
        counterexample=counterexample,
        tightest=tightest_witness(tally.tightest) if tally.tightest is not None and shown is None else None,
        nearest=nearest_witness(tally.nearest) if tally.nearest is not None and tally.met == 0 else None,
        undecided=undecided_witness(claim, tally.undecided) if tally.undecided is not None and asked else None,
        starts=tuple(tally.starts),
        runs=tuple(tally.runs),
    )


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
