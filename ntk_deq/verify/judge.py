"""Judge a claim on one instance: hypotheses first, then conclusions; in balls, or for small instances exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Unpack

import torch

from ntk_deq.certified.algebraic import UndecidedError
from ntk_deq.certified.precise import working_precision
from ntk_deq.claims.claim import Claim
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.arithmetic import NO_STEP, conjunction
from ntk_deq.evaluation.balls import evaluate_truth
from ntk_deq.evaluation.environment import LOCAL, Environment, Notes, OutsideClaimError
from ntk_deq.evaluation.exact import ExactNames, decided
from ntk_deq.evaluation.existence import declared_modulus
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.margins import parts
from ntk_deq.evaluation.quantity import Outcome, Truth
from ntk_deq.language.fixed_point_map import modulus_statement
from ntk_deq.language.tree import Formula
from ntk_deq.verify.equations.proven import solve
from ntk_deq.verify.formulas import Judging, exact_names, instance_environment
from ntk_deq.verify.results import Start, TrainingRecord
from ntk_deq.verify.runs import Course, NoRunError
from ntk_deq.verify.twins import twin_of

_MODULUS, _MODULUS_ASIDE = "monotone", "monotone, as declared"
CPU = torch.device("cpu")
OPEN = (Truth.UNSURE, Truth.STRICT_TIGHT, Truth.NEAR_ZERO)
"""What is said of a conclusion that an instance neither bears out nor breaks."""

ELSEWHERE = "monotone at other values"
"""What the same hypothesis is called about the values that `at` puts in, and those along a run."""

_REACHED = "(implicit) the declared modulus m is above zero, and the weight of the layer has I - W >= m I"
IMPLICIT = {
    "differentiable": "(implicit) no argument of relu is zero where a derivative is taken, and no eigenvalue repeated",
    "equilibrium": "(implicit) a fixed point of the map is found, and shown to be the only one near by",
    _MODULUS: _REACHED,
    _MODULUS_ASIDE: _REACHED,
    ELSEWHERE: f"{_REACHED}, at other values too",
    "defined": "(implicit) every quotient, inverse, root and logarithm exists, and every step that is named",
}


FAILING = "the witness given breaks it, which does not show that there is none"
"""Why a conclusion stays open that the formula under `witness` does not meet."""

NOT_SOUGHT = "no witness is given"
"""Why a conclusion is open before what is said to exist is looked for."""

NO_LATER_STEP = "the loss is zero at the start, where the run ends: there is no later step"


class Standing(StrEnum):
    """How an instance stands to a claim's hypotheses, implicit ones included."""

    MET = "met"
    UNMET = "unmet"
    UNSURE = "unsure"


@dataclass(frozen=True)
class Judgement:
    """What a claim says of one instance.

    Attributes:
        instance: The instance.
        standing: Whether it meets the hypotheses for certain.
        hypotheses: Outcomes by name, in order, up to the first that fails; implicit ones appear where they fail.
        conclusions: Outcomes by name of those that have a value here; empty where the hypotheses fail.
        reason: Why it is unsure, if it is.
        estimated: Operations whose error bound is an estimate, each with the reason.
        runs: The training runs that the conclusions were judged on.
        start: Their start.
        nearby: Within which distance the equilibrium is known to be the only one, where no more is known; else inf.
        found: Floats next to values that are proven to be such as the claim says exist.
    """

    instance: Instance
    standing: Standing
    hypotheses: Mapping[str, Outcome]
    conclusions: Mapping[str, Outcome] = field(default_factory=dict)
    reason: str = ""
    estimated: Mapping[str, str] = field(default_factory=dict)
    runs: tuple[TrainingRecord, ...] = ()
    start: Start | None = None
    nearby: float = math.inf
    found: Mapping[str, torch.Tensor] = field(default_factory=dict)


def refutes(judgement: Judgement) -> bool:
    """Return whether the instance meets every hypothesis and breaks a conclusion, both for certain."""
    broken = any(outcome.truth is Truth.FALSE for outcome in judgement.conclusions.values())
    return judgement.standing is Standing.MET and broken


def undecided(judgement: Judgement) -> bool:
    """Return whether it stays open if an instance meets the hypotheses, or if it bears out or breaks a conclusion."""
    if judgement.standing is Standing.UNSURE:
        return True
    return judgement.standing is Standing.MET and any(o.truth in OPEN for o in judgement.conclusions.values())


def judge_instance(
    claim: Claim,
    instance: Instance,
    *,
    device: torch.device = CPU,
    dtype: torch.dtype = torch.float64,
    deadline: float | None = None,
    precision: int | None = None,
    anew: bool = True,
) -> Judgement:
    """Evaluate every hypothesis and, unless one fails, every conclusion of `claim` on `instance`.

    Args:
        claim: The claim.
        instance: The instance.
        device: Where float matrices live.
        dtype: Type to which the instance's values are rounded.
        deadline: When to stop, on the clock of `time.thread_time`.
        precision: Bits of every matrix entry, as arb; None: floats of type `dtype` with a common radius.
        anew: Whether variables that the hypotheses give by equations are computed from the others first (in floats
            only); otherwise the instance says which of its values stand for a solution near them.

    Raises:
        DeadlineError: The deadline passed before the end.
        LimitError: With a `precision`: a matrix of a hypothesis or of every conclusion is too large for it, or a
            function has no form for it; a single such conclusion is left out.
    """
    notes = Notes(deadline=deadline)
    claim = twin_of(claim).prepared(claim)
    if precision is None:
        env = instance_environment(claim, instance, device=device, dtype=dtype, notes=notes)
        found = _judge(claim, *solve(claim, instance, env, dtype=dtype, anew=anew))
        return replace(found, nearby=notes.nearby)
    with working_precision(precision):
        env = instance_environment(claim, instance, device=CPU, dtype=dtype, notes=notes, precision=precision)
        found = _judge(claim, *solve(claim, instance, env, dtype=dtype, anew=False))
        return replace(found, nearby=notes.nearby)


def _judge(claim: Claim, instance: Instance, env: Environment) -> Judgement:
    hypotheses: dict[str, Outcome] = {}
    try:
        for name, outcome in _at_the_start(claim, env):
            hypotheses[name] = outcome
            if outcome.truth is Truth.FALSE:
                reason = "" if name in claim.assume else outcome.reason
                return Judgement(instance, Standing.UNMET, hypotheses, reason=reason)
        run = twin_of(claim).start(claim, env, instance)
        for name, formula in claim.assume.items():
            if name not in hypotheses:
                hypotheses[name] = run.certain_end(_outcome(formula, env), formula.expr)
                if hypotheses[name].truth is Truth.FALSE:
                    return Judgement(instance, Standing.UNMET, hypotheses)
    except OutsideClaimError as outside:
        return _outside(instance, hypotheses, [outside])
    except NoRunError as error:
        return _without_run(claim, instance, env, hypotheses, str(error))
    return _concluded(claim, instance, env, hypotheses, run)


_LOCAL = "it is judged with a local minimiser, which need not be the one that is meant"


def modulus_name(claim: Claim) -> str:
    """Return what the hypothesis is called that the modulus which a system declares is one; it stands in no claim."""
    return _MODULUS if _MODULUS not in claim.assume else _MODULUS_ASIDE


def _without_run(
    claim: Claim, instance: Instance, env: Environment, hypotheses: dict[str, Outcome], reason: str
) -> Judgement:
    """The judgement where the run that the conclusions speak of cannot begin: they are unsure, not passed over."""
    certain = all(o.truth is Truth.TRUE for o in hypotheses.values()) and claim.assume.keys() <= hypotheses.keys()
    conclusions = {name: Outcome(Truth.UNSURE, None, reason) for name in claim.conclude}
    standing = Standing.MET if certain else Standing.UNSURE
    return Judgement(instance, standing, hypotheses, conclusions, reason, estimated=env.notes.estimated)


def _concluded(
    claim: Claim, instance: Instance, env: Environment, hypotheses: dict[str, Outcome], run: Course
) -> Judgement:
    """Evaluate the conclusions, along a run at more of its steps where those judged first do not show all of it."""
    notes = env.notes
    conclusions, gaps, limits = _conclusions(claim, env, run)
    finer = run.refined(conclusions)
    if finer is not None:
        run = finer
        conclusions, gaps, limits = _conclusions(claim, env, run)
    if limits and not conclusions:
        raise limits[0]
    if not conclusions:
        return _outside(instance, hypotheses, gaps)
    conclusions, records, start = run.finished(conclusions)
    if LOCAL in notes.estimated:  # what a local minimiser says may be otherwise at the one that is meant
        conclusions = {n: replace(o, truth=Truth.UNSURE, reason=_LOCAL) for n, o in conclusions.items()}
    if notes.elsewhere:
        hypotheses[ELSEWHERE] = Outcome(Truth.UNSURE, None, notes.elsewhere)
    # A hypothesis that is merely tight is not certain.
    certain = all(o.truth is Truth.TRUE for o in hypotheses.values())
    reasons = notes.unsure + [o.reason for o in conclusions.values() if o.reason and o.truth is not Truth.TRUE]
    standing = Standing.MET if certain else Standing.UNSURE
    reason = "; ".join(dict.fromkeys(reasons))
    return Judgement(
        instance,
        standing,
        hypotheses,
        conclusions,
        reason,
        estimated=notes.estimated,
        runs=records,
        start=start,
    )


def _conclusions(
    claim: Claim, env: Environment, run: Course
) -> tuple[dict[str, Outcome], list[OutsideClaimError], list[LimitError]]:
    """Evaluate the conclusions one by one; those without a value, and those beyond a limit, come apart."""
    conclusions, gaps, limits = {}, dict[str, OutsideClaimError](), list[LimitError]()
    sought = claim.sought
    for name, formula in claim.conclude.items():
        if name in sought:
            conclusions[name] = Outcome(Truth.UNSURE, None, NOT_SOUGHT)
            continue
        try:
            outcome = _outcome(formula, env)
            if run.only_starts and outcome.reason == NO_STEP:
                raise OutsideClaimError("defined", NO_LATER_STEP, certain=True)
            conclusions[name] = run.along(outcome, name)
        except OutsideClaimError as error:
            late = run.only_starts and error.hypothesis == "defined"
            outside = OutsideClaimError("defined", NO_LATER_STEP, certain=True) if late else error
            # A step after the end of the run, say. What has no derivative at a kink is passed over, as in other claims.
            if run.leaves_open and not outside.certain and outside.hypothesis != "differentiable":
                conclusions[name] = Outcome(Truth.UNSURE, None, str(outside))
            gaps[name] = outside
        except LimitError as limit:
            limits.append(limit)
    if claim.exists:
        conclusions, gaps = of_witnesses(claim, conclusions, gaps)
    return conclusions, list(gaps.values()), limits


def of_witnesses(
    claim: Claim, conclusions: Mapping[str, Outcome], gaps: Mapping[str, OutsideClaimError]
) -> tuple[dict[str, Outcome], dict[str, OutsideClaimError]]:
    """Return outcomes in which a witness that fails, or that has no value, refutes nothing: others may serve.

    Args:
        claim: A claim that says that something exists.
        conclusions: Outcomes with the witness in its place.
        gaps: The conclusions that have no value with it.
    """
    resting = claim.resting
    found = dict(conclusions)
    for name, outcome in conclusions.items():
        if name in resting and outcome.truth is Truth.FALSE:
            found[name] = replace(outcome, truth=Truth.UNSURE, reason=FAILING)
    found |= {name: Outcome(Truth.UNSURE, None, f"{FAILING}: {gap}") for name, gap in gaps.items() if name in resting}
    return found, {name: gap for name, gap in gaps.items() if name not in resting}


def _outside(instance: Instance, hypotheses: dict[str, Outcome], gaps: list[OutsideClaimError]) -> Judgement:
    """The judgement of an instance on which a hypothesis, or every conclusion, has no value."""
    certain = all(gap.certain for gap in gaps)
    for gap in gaps:
        hypotheses[gap.hypothesis] = Outcome(Truth.FALSE if gap.certain else Truth.UNSURE, None, str(gap))
    return Judgement(
        instance, Standing.UNMET if certain else Standing.UNSURE, hypotheses, reason="; ".join(map(str, gaps))
    )


def hypotheses_fail(claim: Claim, instance: Instance, **how: Unpack[Judging]) -> bool:
    """Whether some hypothesis certainly fails on `instance`; conclusions are not evaluated."""
    try:
        _, env = _posed(claim, instance, **how)
        return any(outcome.truth is Truth.FALSE for _, outcome in _at_the_start(claim, env))
    except OutsideClaimError:
        return True


def standing_instance(claim: Claim, instance: Instance, **how: Unpack[Judging]) -> tuple[Standing, Instance]:
    """Return how an instance stands to the hypotheses, and the instance with what these give by equations.

    Hypotheses about every step of a training run are left out.
    """
    instance, env = _posed(claim, instance, **how)
    try:
        truths = [outcome.truth for _, outcome in _at_the_start(claim, env)]
    except OutsideClaimError as outside:
        return Standing.UNMET if outside.certain else Standing.UNSURE, instance
    if Truth.FALSE in truths:
        return Standing.UNMET, instance
    return Standing.MET if all(truth is Truth.TRUE for truth in truths) else Standing.UNSURE, instance


def _posed(
    claim: Claim,
    instance: Instance,
    *,
    device: torch.device = CPU,
    dtype: torch.dtype = torch.float64,
    deadline: float | None = None,
) -> tuple[Instance, Environment]:
    """Return an instance with what the hypotheses give by equations, and its environment."""
    env = instance_environment(claim, instance, device=device, dtype=dtype, notes=Notes(deadline=deadline))
    return solve(claim, instance, env, dtype=dtype, anew=True)


def _at_the_start(claim: Claim, env: Environment) -> Iterator[tuple[str, Outcome]]:
    """Yield the outcomes of the hypotheses that can be known without a run, one that is known to fail first.

    That the modulus which a system declares is one counts as one where it is not certain.
    """
    twin = twin_of(claim)
    twin.begin(claim, env)
    declared = declared_modulus(env)
    if declared is not None and declared.truth is not Truth.TRUE:
        yield modulus_name(claim), declared
    for name, formula in sorted(claim.assume.items(), key=lambda item: item[0] != env.failing):
        if not twin.waits(formula, claim):
            yield name, _hypothesis(formula, env)


def _hypothesis(formula: Formula, env: Environment) -> Outcome:
    """Return the outcome of a hypothesis; equations that variables were computed from are true by that."""
    places = {place: variables for (name, place), variables in env.met.items() if name == formula.name}
    if not places:
        return _outcome(formula, env)
    solved = Outcome(Truth.TRUE, None, f"solved for {', '.join(dict.fromkeys(places.values()))}")
    rest = [part for place, part in enumerate(parts(formula.name, formula.expr)) if place not in places]
    return conjunction([solved, *(_outcome(replace(formula, expr=part.alone), env) for part in rest)])


def _outcome(formula: Formula, env: Environment) -> Outcome:
    try:
        outcome = evaluate_truth(formula.expr, env)
    except LimitError as error:
        if env.precision is not None:  # there is a first judgement to keep
            raise
        return Outcome(Truth.UNSURE, None, str(error))
    return replace(outcome, truth=Truth.UNSURE, reason=_LOCAL) if LOCAL in env.notes.estimated else outcome


_CERTAIN = (Truth.TRUE, Truth.FALSE)


def decided_exactly(claim: Claim, judgement: Judgement, *, dtype: torch.dtype) -> Judgement:
    """Return a judgement with what it leaves open decided exactly; the given one where nothing more is.

    Args:
        claim: The claim.
        judgement: A judgement in balls.
        dtype: Type to which the instance's values were rounded for it.
    """
    if not undecided(judgement):
        return judgement
    names = exact_names(claim, judgement.instance, dtype)
    if names is None:
        return judgement
    hypotheses = _hypotheses(claim, judgement, names)
    if hypotheses is None:
        return judgement
    if any(outcome.truth is Truth.FALSE for outcome in hypotheses.values()):
        return Judgement(judgement.instance, Standing.UNMET, hypotheses, estimated=judgement.estimated)
    conclusions, outside = _exact_conclusions(claim, judgement, names)
    if claim.exists:
        conclusions, outside = of_witnesses(claim, conclusions, outside)
    if not conclusions:
        if set(claim.conclude) - outside.keys():
            return judgement
        gaps = {error.hypothesis: Outcome(Truth.FALSE, None, str(error)) for error in outside.values()}
        return Judgement(judgement.instance, Standing.UNMET, {**hypotheses, **gaps})
    met = all(outcome.truth is Truth.TRUE for outcome in hypotheses.values())
    standing = Standing.MET if met else Standing.UNSURE
    reasons = [o.reason for o in (*hypotheses.values(), *conclusions.values()) if o.reason and o.truth in OPEN]
    settled = not undecided(replace(judgement, standing=standing, conclusions=conclusions))
    reason = "" if settled else "; ".join(dict.fromkeys(reasons)) or judgement.reason
    return replace(judgement, standing=standing, hypotheses=hypotheses, conclusions=conclusions, reason=reason)


def _hypotheses(claim: Claim, judgement: Judgement, names: ExactNames) -> dict[str, Outcome] | None:
    """Return the outcomes of all hypotheses, up to one that fails; None where one that was not reached stays open."""
    outcomes = {name: o for name, o in judgement.hypotheses.items() if name == ELSEWHERE}  # nothing decides that
    declared = modulus_name(claim)
    statements = {name: formula.expr for name, formula in claim.assume.items()}
    if declared in judgement.hypotheses and names.model is not None and names.model.weight is not None:
        assert names.model.monotone is not None  # as it was asked for
        statements = {declared: modulus_statement(names.model.weight, names.model.monotone), **statements}
    for name, expr in statements.items():
        before = judgement.hypotheses.get(name)
        if before is not None and before.truth in _CERTAIN:
            outcomes[name] = before
            continue
        try:
            found = decided(expr, names)
        except UndecidedError:
            if before is None:
                return None
            outcomes[name] = before
            continue
        except OutsideClaimError as outside:
            return {**outcomes, outside.hypothesis: Outcome(Truth.FALSE, None, str(outside))}
        # That a hypothesis is an equality does not matter once it is certain.
        outcomes[name] = replace(found, truth=Truth.TRUE) if found.truth is Truth.TIGHT else found
        if found.truth is Truth.FALSE:
            return outcomes
    return outcomes


def _exact_conclusions(
    claim: Claim, judgement: Judgement, names: ExactNames
) -> tuple[dict[str, Outcome], dict[str, OutsideClaimError]]:
    """Return the outcomes of the conclusions, and those that have no value; neither where one was never judged."""
    outcomes: dict[str, Outcome] = {}
    outside: dict[str, OutsideClaimError] = {}
    for name in judgement.conclusions or claim.conclude:
        before = judgement.conclusions.get(name)
        if before is not None and before.truth not in OPEN:
            outcomes[name] = before
            continue
        try:
            outcomes[name] = decided(claim.conclude[name].expr, names)
        except UndecidedError:
            if before is None:
                return {}, {}
            outcomes[name] = before
        except OutsideClaimError as error:
            outside[name] = error
    return outcomes, outside
