"""Judge claims one after another, and report each as it ends."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from ntk_deq.claims.claim import Claim, IllFormed, Setting, Verdict
from ntk_deq.errors import DataError, NtkDeqError
from ntk_deq.falsify.instance import Instance
from ntk_deq.falsify.ladder import instance_at
from ntk_deq.falsify.repair import shrink_variants
from ntk_deq.verify.environment import DeadlineError
from ntk_deq.verify.judge import Judgement, hypotheses_fail, judge_instance
from ntk_deq.verify.refine import DEFAULT_BITS, Refiner
from ntk_deq.verify.results import ClaimResult, Evidence, StatementLine
from ntk_deq.verify.statement import statement_lines
from ntk_deq.verify.tally import Tally
from ntk_deq.verify.witness import counterexample_witness, nearest_witness, plainness, tightest_witness

AFTER_REFUTATION = (
    20  # instances still tried once a counterexample is found: for a smaller one, and for the margin plot
)
DRAWN_SHARE = 10  # a distribution setting gets one instance for this many of a domain setting, and at least...
DRAWN_LEAST = 8


@dataclass(frozen=True)
class Options:
    """How to judge.

    Attributes:
        seed: Seed of every draw.
        instances: Instances for each domain setting of a claim (a claim's own `instances` wins).
        device, dtype: Where and in which precision instances are evaluated.
        time_limit: Seconds for each claim, or None; a claim that runs over it is undecided.
        stop_early: Stop at the first verdict against expectation.
        precision: Bits with which undecided small instances are judged again; 53: none are.
        findings: Whether to look, where a claim holds, for hypotheses that do not matter and for bounds with room.
    """

    seed: int = 0
    instances: int = 200
    device: str = "cpu"
    dtype: torch.dtype = torch.float64
    time_limit: float | None = None
    stop_early: bool = False
    precision: int = DEFAULT_BITS
    findings: bool = False


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
    plan = planned(claim, options)
    if listener is not None:
        listener.claim_started(claim.id, sum(count for _, count in plan))
    tally = Tally(claim)
    refiner = Refiner(claim, options.precision)
    statement: tuple[StatementLine, ...] = ()
    try:
        statement = statement_lines(claim)
        stopped = _try_instances(claim, plan, tally, refiner, options, started, listener)
        result = _result(claim, tally, refiner, options, stopped, statement, time.perf_counter() - started)
        if options.findings:
            from ntk_deq.verify.findings import findings  # which judges variants of the claim by this function

            return replace(result, findings=findings(claim, options, result))
        return result
    except Exception:  # the boundary: whatever the product did wrong here, the other claims are still judged
        trace = traceback.format_exc()
        reason = trace.strip().splitlines()[-1]
        return _bare(claim, options, Verdict.ERROR, reason, started=started, trace=trace, statement=statement)


def planned(claim: Claim, options: Options) -> list[tuple[Setting, int]]:
    """Return how many instances each setting of a claim gets."""
    count = claim.instances or options.instances
    return [(s, count if s.universal else min(count, max(DRAWN_LEAST, count // DRAWN_SHARE))) for s in claim.settings]


def _try_instances(
    claim: Claim,
    plan: list[tuple[Setting, int]],
    tally: Tally,
    refiner: Refiner,
    options: Options,
    started: float,
    listener: Listener | None,
) -> str:
    """Judge the planned instances; return why some were left out, or an empty text."""
    left = AFTER_REFUTATION
    deadline = None if options.time_limit is None else started + options.time_limit
    try:
        for setting, count in plan:
            for index in range(count):
                instance = instance_at(setting, claim.given, index, options.seed)
                instance = feasible(claim, setting, instance, options, deadline)
                judgement = _judge_instance(claim, instance, options, deadline)
                tally.add(refiner.refine(judgement, dtype=options.dtype, deadline=deadline))
                if listener is not None:
                    listener.instance_done(tally.instances)
                left -= bool(tally.counterexamples)
                if left < 0:
                    return ""
    except DeadlineError:
        total = sum(n for _, n in plan)
        return f"the time limit of {options.time_limit:g} s ran out after {tally.instances} of {total} instances"
    except DataError as error:
        return f"its data cannot be had: {error}"
    except NtkDeqError as error:
        return str(error)
    except RecursionError:
        return "its definitions rest on each other too deeply to be evaluated; write some of them out"
    return ""


def _judge_instance(claim: Claim, instance: Instance, options: Options, deadline: float | None) -> Judgement:
    device = torch.device(options.device)
    return judge_instance(claim, instance, device=device, dtype=options.dtype, deadline=deadline)


def feasible(claim: Claim, setting: Setting, instance: Instance, options: Options, deadline: float | None) -> Instance:
    """Return the instance, or the first shrunk variant of it on which no hypothesis certainly fails."""
    if not setting.universal or not claim.assume:
        return instance

    def fails(candidate: Instance) -> bool:
        device = torch.device(options.device)
        return hypotheses_fail(claim, candidate, device=device, dtype=options.dtype, deadline=deadline)

    if not fails(instance):
        return instance
    return next((v for v in shrink_variants(instance, setting, claim.given) if not fails(v)), instance)


def _result(
    claim: Claim,
    tally: Tally,
    refiner: Refiner,
    options: Options,
    stopped: str,
    statement: tuple[StatementLine, ...],
    seconds: float,
) -> ClaimResult:
    verdict, reason = tally.verdict(stopped=stopped)
    smallest = min(tally.counterexamples, key=plainness, default=None)
    conclusions = tally.conclusion_records()
    return ClaimResult(
        id=claim.id,
        title=claim.title,
        where=claim.where,
        verdict=verdict,
        evidence=tally.evidence(),
        estimated=dict(tally.estimated),
        expected=claim.expect,
        instances=tally.instances,
        met=tally.met,
        tight=tally.tight,
        unsure=tally.unsure,
        worst_margin=tally.worst_margin(),
        refined=refiner.tried,
        settled=refiner.settled,
        precision=options.precision,
        seed=options.seed,
        seconds=seconds,
        reason=reason,
        tags=claim.tags,
        mutates=claim.mutates,
        note=claim.note,
        settings=tuple(_setting_record(s, tally) for s in claim.settings),
        hypotheses=tally.hypothesis_records(),
        conclusions=conclusions,
        counterexample=counterexample_witness(smallest) if smallest is not None else None,
        tightest=tightest_witness(tally.tightest) if tally.tightest is not None and smallest is None else None,
        nearest=nearest_witness(tally.nearest) if tally.nearest is not None and tally.met == 0 else None,
        statement=statement,
        source=dict(claim.source),
        position=str(claim.position),
        dtype=str(options.dtype).removeprefix("torch."),
        device=options.device,
    )


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
