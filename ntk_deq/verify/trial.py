"""One claim on trial: stored instances, the ladder, the search for a counterexample, and its shrinking."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from ntk_deq.claims.claim import Claim, Verdict
from ntk_deq.errors import DataError, NtkDeqError
from ntk_deq.evaluation.environment import DeadlineError
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Truth
from ntk_deq.falsify import distinct_instances, instance_at
from ntk_deq.files import own_folder
from ntk_deq.language.declaration import Setting
from ntk_deq.verify.boundary import boundary_instances
from ntk_deq.verify.counterexamples import (
    Attack,
    InstanceStore,
    find_counterexamples,
    find_satisfying,
    plainest_counterexample,
)
from ntk_deq.verify.existence.decision import ExistenceStage
from ntk_deq.verify.existence.numbers import prove_uniform
from ntk_deq.verify.feasible import Feasible, exact_solutions, further_instances, planned
from ntk_deq.verify.formulas import DRAWN_SHARE
from ntk_deq.verify.judge import Judgement, Standing, judge_instance, refutes
from ntk_deq.verify.options import Options
from ntk_deq.verify.prover import Proof, prove_claim
from ntk_deq.verify.refine import Refiner
from ntk_deq.verify.replay import FOLDER, write_counterexample
from ntk_deq.verify.results import Evidence
from ntk_deq.verify.tally import Tally, closeness
from ntk_deq.verify.twins import twin_of
from ntk_deq.verify.witness import plainness

AFTER_REFUTATION = 20
"""Instances still tried once a counterexample is found: for a plainer one, and for the margin plot."""

NONE_SOUGHT, NONE_SHARE = 100, 20
"""Further instances on which it is asked whether nothing exists; one of them costs what so many of the search do."""

WRITING = 10.0
"""Seconds that the judgement which a counterexample is written down with may take, where the time limit has run out."""


STARTS = 6  # instances from which the search of a setting starts: the tightest ones, or the nearest


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that memory could not be had: Python's own, or PyTorch's by its type or its words."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def _nothing(_: object) -> None:
    """Hear of progress and say nothing."""


@dataclass
class Trial:
    """The state of one claim's judgement.

    Attributes:
        claim: The claim.
        options: How it is judged.
        started: When that began, on the clock of `time.perf_counter`.
        heard: Called with the number of instances judged so far.
        tally: What came out.
        refiner: The second judgement of what floats leave undecided.
        evaluations: Instances that the search scored.
        plainest: The counterexample to show.
        proof: What the proof of a claim about real numbers came to; None for other claims.
        stopped: Why not everything planned was done, or an empty text.
        warnings: What went wrong beside the judgement, in words: files that could not be read or written.
        store: Counterexamples and near misses of earlier runs, or None.
        close: By setting: the instances that the search may start from.
        chosen: By setting: the first instance whose constants were chosen.
        deadline: When to give up, on the clock of `time.thread_time`, or None.
        ended: Whether every stage is over.
        entered: Called with what is done from now on, in words; with "" where instances are judged that were planned.
        first: Instances that are judged before all others.
    """

    claim: Claim
    options: Options
    started: float = field(default_factory=time.perf_counter)
    heard: Callable[[int], None] = _nothing
    tally: Tally = field(init=False)
    refiner: Refiner = field(init=False)
    evaluations: int = 0
    plainest: Judgement | None = None
    proof: Proof | None = None
    stopped: str = ""
    warnings: list[str] = field(default_factory=list)
    store: InstanceStore | None = None
    close: dict[str, list[Judgement]] = field(default_factory=dict)
    chosen: dict[str, Instance] = field(default_factory=dict)
    deadline: float | None = field(init=False)
    ended: bool = False
    entered: Callable[[str], None] = _nothing
    first: tuple[Instance, ...] = ()

    def __post_init__(self) -> None:
        """Begin with nothing tried."""
        self.twin = twin_of(self.claim)
        limit = self.options.time_limit
        self.deadline = None if limit is None else time.thread_time() + limit
        self.tally = Tally(self.claim)
        self.judging = self.options.judging(self.deadline)
        self.refiner = Refiner(
            self.claim,
            self.options.precision,
            dtype=self.options.dtype,
            seed=self.options.seed,
            deadline=self.deadline,
        )
        if self.options.store is not None:
            self.store = InstanceStore(Path(self.options.store), self.warnings)

    def run(self) -> None:
        """Go through every stage; what stops one early is kept in `stopped`."""
        try:
            self.entered("proving")
            self._prove()
            self.entered("")
            self._stored()
            self._ladder()
            self.entered("at the boundary")
            self._boundary()
            self._search()
        except DeadlineError:
            self.stopped = f"the time limit of {self.options.time_limit:g} s ran out {self.so_far}"
        except DataError as error:
            self.stopped = f"its data cannot be had: {error}"
        except NtkDeqError as error:
            self.stopped = str(error)
        except RecursionError:
            self.stopped = "its definitions rest on each other too deeply to be evaluated; write some of them out"
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            self.stopped = f"an operation needs more memory than there is, {self.so_far}"
        self._shrink()
        self.keep()
        self.ended = True

    def judged(self, instance: Instance) -> Judgement:
        """Judge an instance, a second time in higher precision where floats leave it undecided, and count it."""
        return self._refined(judge_instance(self.claim, instance, **self.judging))

    def _refined(self, judgement: Judgement) -> Judgement:
        """Count a judgement, with more bits where floats leave it undecided."""
        return self._count(self.refiner.refine(judgement))

    def _count(self, judgement: Judgement) -> Judgement:
        judgement = self._with_proven(judgement)
        self.tally.add(judgement)
        self.heard(self.tally.instances)
        self._remember(judgement)
        return judgement

    def _with_proven(self, judgement: Judgement) -> Judgement:
        """Return a judgement in which the conclusions that are proven are true, whatever balls leave open.

        Raises:
            RuntimeError: One is false where the hypotheses are met.
        """
        proven = {} if self.proof is None else self.proof.proven
        known = {name: o for name, o in judgement.conclusions.items() if name in proven and o.truth is not Truth.TRUE}
        if judgement.standing is not Standing.MET or not known:
            return judgement
        if any(outcome.truth is Truth.FALSE for outcome in known.values()):
            raise RuntimeError(f"an instance contradicts the proof of {next(iter(known))!r}: one of the two is wrong")
        true = {name: replace(outcome, truth=Truth.TRUE, reason="") for name, outcome in known.items()}
        return replace(judgement, conclusions={**judgement.conclusions, **true})

    def _remember(self, judgement: Judgement) -> None:
        """Keep the instances of each setting that the search may start from: those closest to equality."""
        if judgement.standing is not Standing.MET:
            return
        kept = self.close.setdefault(judgement.instance.setting, [])
        kept.append(judgement)
        kept.sort(key=closeness)
        del kept[STARTS:]

    def _prove(self) -> None:
        """Try to prove a claim about real numbers; a witness that the proof finds is counted as an instance."""
        if self.options.boxes == 0:
            return
        if self.claim.uniform and self.claim.sought:
            self.proof = prove_uniform(self.claim, deadline=self.deadline)
            return
        self.proof = prove_claim(self.claim, budget=self.options.boxes, deadline=self.deadline)
        if self.proof is not None and self.proof.counterexample is not None:
            self._count(self.proof.counterexample)

    @property
    def so_far(self) -> str:
        """How many instances were judged, in words."""
        total = sum(count for _, count in planned(self.claim, self.options))
        return f"after {self.tally.instances} of {total} instances"

    def verdict(self, stopped: str = "") -> tuple[Verdict, Evidence, str]:
        """Return the verdict, its evidence and its reason: those of a proof, or what the instances say.

        Args:
            stopped: Why the judgement ends here, where it does so before its end.

        Raises:
            RuntimeError: An instance contradicts the proof.
        """
        proof = self.proof
        if proof is not None and proof.verdict is Verdict.REFUTED and proof.counterexample is None:
            return proof.verdict, proof.evidence, proof.reason
        if proof is None or proof.verdict not in (Verdict.PROVED, Verdict.VACUOUS):
            verdict, reason = self.tally.verdict(stopped=self.stopped or stopped)
            if proof is not None and proof.broken and verdict in (Verdict.HOLDS, Verdict.VACUOUS):
                words = f"with the witness given, {proof.reason}" if self.claim.witness else proof.reason
                return Verdict.UNDECIDED, self.tally.evidence(), words
            if verdict is Verdict.UNDECIDED and not self.stopped:
                reason = self.refiner.existence.trend() or reason
            if verdict is Verdict.VACUOUS and self.evaluations:
                reason += f"; a search among {self.evaluations} more found none"
            return verdict, self.tally.evidence(), reason
        if self.tally.counterexamples or (proof.verdict is Verdict.VACUOUS and self.tally.met):
            raise RuntimeError(f"an instance contradicts the proof ({proof.reason}): one of the two is wrong")
        return proof.verdict, proof.evidence, proof.reason

    def _stored(self) -> None:
        for instance in (*self.first, *(() if self.store is None else self.store.stored_instances(self.claim))):
            self.judged(instance)

    def _ladder(self) -> None:
        left = AFTER_REFUTATION if self.options.shrink else 0
        feasible = Feasible(self.claim, self.options, self.deadline)
        for setting, count in planned(self.claim, self.options):
            for instance in self._instances(setting, count):
                self.judged(feasible(setting, instance))
                left -= bool(self.tally.counterexamples)
                if left < 0:
                    return
        aims = self.twin.aims and self.claim.choose is not None and self.claim.choose.aims
        if aims and self.chosen and self.options.search != 0 and not self.tally.counterexamples:
            self._aim()

    def _instances(self, setting: Setting, count: int) -> Iterator[Instance]:
        """Yield instances of the ladder; distinct ones where each is a run."""
        given, seed = self.claim.given, self.options.seed
        if self.claim.costly:
            for instance in distinct_instances(setting, given, count=count, seed=seed):
                yield self._chosen(setting, instance)
        else:
            yield from (self._chosen(setting, instance_at(setting, given, index, seed)) for index in range(count))

    def _chosen(self, setting: Setting, instance: Instance) -> Instance:
        """Return the instance with its free constants chosen, where the claim says for what."""
        if self.claim.choose is None:
            return instance
        from ntk_deq.verify.training.choose import choose_constants

        chosen = choose_constants(self.claim, setting, instance, seed=self.options.seed, **self.judging)
        if chosen is not instance:
            self.chosen.setdefault(setting.name, chosen)
        return chosen

    def _aim(self) -> None:
        """Judge further choices of the constants, on draws of their own, and on short runs where these decide."""
        from ntk_deq.verify.training.choose import DRAWS, choose_constants, shared_out

        seed = self.options.seed
        counts = {setting.name: count for setting, count in planned(self.claim, self.options)}
        short = replace(self.claim, run=self.claim.run and self.twin.brief(self.claim.run))
        for setting, aim, number in shared_out(self.claim, self.chosen):
            near, same = self.chosen[setting.name], False
            for draw in range(DRAWS):
                index = counts[setting.name] + DRAWS * number + draw
                instance = instance_at(setting, self.claim.given, index, seed)
                chosen = choose_constants(
                    self.claim, setting, instance, seed=seed, aim=aim, near=near, same=same, **self.judging
                )
                if chosen is not instance:
                    near, same = chosen, True
                    self._count(self._briefly(short, chosen, aim.words))
                if self.tally.counterexamples:
                    return

    def _briefly(self, short: Claim, instance: Instance, aim: str) -> Judgement:
        """Judge an instance on a short run, or on the whole one where that leaves a conclusion open or breaks it."""
        whole = self.claim
        for claim in (short, whole):
            judgement = judge_instance(claim, instance, **self.judging)
            truths = [outcome.truth for outcome in judgement.conclusions.values()]
            if judgement.standing is not Standing.MET or min(truths) >= Truth.TIGHT:
                break
        if claim is whole:
            judgement = self.refiner.refine(judgement)
        return replace(judgement, start=judgement.start and replace(judgement.start, aim=aim, brief=claim is short))

    def _boundary(self) -> None:
        """Judge instances that were constructed with a hypothesis as an equality, where a conclusion is strict."""
        proved = self.proof is not None and self.proof.verdict is Verdict.PROVED
        for setting in self.claim.settings:
            if self.tally.counterexamples or proved:
                return
            asked = self.claim, setting, self.options.seed, self.deadline
            for instance in (*exact_solutions(*asked), *boundary_instances(*asked)):
                judgement = judge_instance(self.claim, instance, **self.judging)
                self._refined(self.refiner.decide(judgement))
                if self.tally.counterexamples:
                    return

    def _search(self) -> None:
        """Look for a counterexample where the ladder found none, and for an instance that meets the hypotheses."""
        for setting in self.claim.settings:
            proved = self.proof is not None and self.proof.verdict is Verdict.PROVED
            if self.tally.counterexamples or proved or self.options.search == 0:
                return
            if self.claim.sought == self.claim.conclude.keys():  # no formula says how well an instance does
                self._search_for_none(setting)
                continue
            self.entered("searching")
            asked, seed = self.options.search, self.options.seed
            budget = asked if asked is None or setting.universal else asked // DRAWN_SHARE
            starts = [judgement.instance for judgement in self.close.get(setting.name, [])]
            if not starts:
                starts = self._satisfying(setting, budget)
            if self.claim.costly and self.claim.choose is None:
                from ntk_deq.verify.training.sweep import sweep

                self._take(sweep(self.claim, setting, starts, seed=seed, search=self.options.search, **self.judging))
            # What is drawn does not move, and the scalars of a training run are swept.
            if self.claim.costly and not (starts and setting.universal):
                continue
            if self.tally.counterexamples or not (starts or setting.universal):
                continue
            self._take(find_counterexamples(self.claim, setting, starts, seed=seed, budget=budget, **self.judging))

    def _take(self, attack: Attack) -> None:
        """Count what a search came to."""
        self.evaluations += attack.evaluations
        for judgement in (*attack.counterexamples, *attack.others):
            self._refined(judgement)

    def _search_for_none(self, setting: Setting) -> None:
        """Look among further instances for one on which nothing of what the claim says exists does."""
        count = next(count for own, count in planned(self.claim, self.options) if own is setting)
        asked = NONE_SOUGHT if self.options.search is None else self.options.search // NONE_SHARE
        feasible = Feasible(self.claim, self.options, self.deadline)
        stage = ExistenceStage(self.claim, refuting=True, deadline=self.deadline)
        numbers = range(count, count + asked)
        for instance in further_instances(self.claim, setting, numbers, self.options.seed, feasible):
            judgement = judge_instance(self.claim, instance, **self.judging)
            self.evaluations += 1
            found = stage.decide(judgement, self.options.dtype)
            if refutes(found):
                self._count(found)
                return

    def _satisfying(self, setting: Setting, budget: int | None) -> list[Instance]:
        """Instances that meet the hypotheses, searched for only on demand."""
        if not self.options.satisfy:
            return []
        nearest = self.tally.nearest
        found = find_satisfying(
            self.claim,
            setting,
            [] if nearest is None or nearest.instance.setting != setting.name else [nearest.instance],
            seed=self.options.seed,
            budget=budget,
            **self.judging,
        )
        self.evaluations += found.evaluations
        judgements = [self.judged(instance) for instance in found.candidates[:STARTS]]
        return [j.instance for j in judgements if j.standing is Standing.MET]

    def _shrink(self) -> None:
        if self.tally.counterexamples:
            self.entered("shrinking")
        # Where each is a run, each look at another instance would be another run.
        if self.tally.counterexamples and (self.claim.costly or not self.options.shrink):
            self.plainest = min(self.tally.counterexamples, key=plainness)
        elif self.tally.counterexamples:
            found, bits = self.tally.counterexamples, self.options.precision
            self.plainest = plainest_counterexample(self.claim, found, precision=bits, **self.judging)

    def saved(self) -> str | None:
        """Write the counterexample to a file that `verify-claims replay` reads; return its path, or None and warn."""
        options, out = self.options, self.options.out
        if self.plainest is None or out is None:
            return None
        deadline = self.deadline and max(self.deadline, time.thread_time() + WRITING)
        try:
            Path(out).mkdir(parents=True, exist_ok=True)
            path = own_folder(Path(out) / FOLDER) / f"{self.claim.id}.yaml"
            write_counterexample(path, self.claim, self.plainest, seed=options.seed, **options.judging(deadline))
        except (OSError, NtkDeqError) as error:
            self.warnings.append(f"the counterexample is not written down: {error}")
            return None
        return str(path)

    def keep(self) -> None:
        """Keep the counterexample, or what came closest to one, for the next run."""
        if self.store is None:
            return
        near = [j for kept in self.close.values() for j in kept[:2]]
        for judgement in [self.plainest] if self.plainest is not None else near:
            self.store.keep(self.claim, judgement, seed=self.options.seed, **self.options.judging())
