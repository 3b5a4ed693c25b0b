"""Claims judged in several processes, which can be ended: by a limit, by the user, by the death of the run.

Here is the side of the run: it hands out claims, hears of results, watches time and memory, and ends processes.
`worker` makes one and is what happens inside; it says how much memory there is and what a process holds. The results
are those of one process, in the order of the file.

A worker judges one claim after another. Its processor time and its memory are limited, so that an operation which
outlasts a limit ends with its worker, and the claim is undecided, or what it was known to be by then. A worker that
dies for another reason costs its claim one retry.
"""

from __future__ import annotations

import importlib
import os
import signal
import time
from collections import deque
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from ntk_deq.claims.claim import Claim, IllFormed, Verdict
from ntk_deq.errors import ArgumentError
from ntk_deq.files import sweep
from ntk_deq.verify.options import LIVES, Options, check_claims
from ntk_deq.verify.pool.worker import (
    Heard,
    Judge,
    Message,
    Task,
    Write,
    Written,
    active_seconds,
    can_fork,
    held_memory,
    memory_text,
    receive,
    send,
    signals_held,
    start_process,
    work,
)
from ntk_deq.verify.results import ClaimResult
from ntk_deq.verify.runner import ENDED, Known, Listener, Overseer, bare_result, judge
from ntk_deq.verify.twins import twin_of

WAITING = 10
"""Times the limit, and a minute more, that a worker may wait for something, such as a file on a network."""

MINUTE = 60.0
FASTEST = 4e9  # bytes a second by which the memory of a process grows at most, about
SHORTEST, LONGEST = 0.02, 0.1  # seconds between two looks at the workers
CREEP = 4  # a worker that still holds a quarter of its memory after a claim is replaced by a new one
LONG = 10  # a claim counts as long where it takes a tenth of what each worker has to do


def judge_in_workers(
    claims: Sequence[Claim | IllFormed],
    options: Options,
    *,
    jobs: int,
    memory: int | None = None,
    threads: int = 1,
    costs: Mapping[str, float] | None = None,
    listener: Listener | None = None,
) -> Generator[ClaimResult, None, None]:
    """Yield the result of each claim in order, judged by worker processes of this machine.

    Unless a limit is hit, the results do not depend on the number of workers. Where this is interrupted, claims that
    were judged out of turn are still yielded, before the interruption goes on.

    Args:
        claims: Checked claims.
        options: How to judge. The time limit counts processor time of the worker's thread; an operation that outlasts
            it is ended before twice the limit, and a second.
        jobs: Workers at most.
        memory: Bytes that a worker may hold beside what it was born with, or None: any number.
        threads: Threads of one matrix product in a worker.
        costs: Seconds that claims are known to take, by id, so that none is waited for in the end.
        listener: Hears of progress.

    Raises:
        ArgumentError: `jobs`, `threads` or `memory` is not a positive whole number.
    """
    for name, value in {"jobs": jobs, "threads": threads, "memory": memory}.items():
        if isinstance(value, bool) or not (
            (isinstance(value, int) and value > 0) or (value is None and name == "memory")
        ):
            raise ArgumentError(f"`{name}` of judge_in_workers must be an integer > 0. Got {value!r}.")
    check_claims(claims, options, "judge_in_workers")
    return _Pool(claims, options, jobs, memory, threads, costs or {}, listener or Overseer()).results()


@dataclass
class _Worker:
    """A process, and what the run knows of it."""

    process: BaseProcess
    connection: Connection
    task: Task
    began: float = 0.0
    active: float = 0.0  # seconds that it was active before its task
    born_with: int | None = None  # bytes that it held before its first claim
    known: Known | None = None
    total: int = 0
    done: int = 0
    ended: str = ""  # why the run has ended it

    @property
    def grown(self) -> int:
        """Bytes that it holds beside what it was born with; 0 where that is not known."""
        held = held_memory(self.process.pid or 0)
        return 0 if held is None or self.born_with is None else held - self.born_with

    @property
    def waited(self) -> float:
        """Seconds of its task in which it neither ran nor wanted to; by the clock where no more is known."""
        return time.perf_counter() - self.began - active_seconds(self.process.pid or 0) + self.active

    @property
    def so_far(self) -> str:
        """How far its claim is, in words; empty where nothing was heard of that."""
        return f", after {self.done} of {self.total} instances" if self.total else ""


@dataclass
class _Pool:
    """The workers, what they are to do, and what came out."""

    claims: Sequence[Claim | IllFormed]
    options: Options
    jobs: int
    memory: int | None
    threads: int
    costs: Mapping[str, float]
    listener: Listener
    _idle: list[_Worker] = field(default_factory=list)
    _busy: list[_Worker] = field(default_factory=list)
    _tasks: deque[Task] = field(default_factory=deque)
    _long: deque[int] = field(default_factory=deque)  # places of claims that come first, in half of the workers
    _results: dict[int, ClaimResult] = field(default_factory=dict)
    _unwritten: dict[int, ClaimResult] = field(default_factory=dict)  # results whose counterexample has no file yet
    _deaths: dict[int, list[str]] = field(default_factory=dict)
    _turn: int = 0
    _looked: float = field(default_factory=time.perf_counter)

    def results(self) -> Generator[ClaimResult, None, None]:
        """Yield all results in order; no worker is left at the end, however that comes."""
        self._long.extend(long_ones(self._well_formed, self.costs, self.jobs))
        self._tasks.extend(Judge(place) for place in self._well_formed if place not in self._long)
        for place, claim in enumerate(self.claims):
            if isinstance(claim, IllFormed):
                self._results[place] = judge(claim, self.options)
        if self._fork:
            _import_ahead(self._well_formed.values())
        try:
            while self._turn < len(self.claims):
                self._employ()
                while self._turn in self._results:
                    result = self._next()
                    yield result
                    if self.options.stop_early and not result.as_expected:
                        return
                if self._busy:
                    self._hear()
                    self._watch()
        except KeyboardInterrupt:
            self._end_all()
            for place in sorted(self._results):  # what was judged out of turn
                self._turn = place
                yield self._next()
            raise
        finally:
            self._end_all()

    @property
    def _fork(self) -> bool:
        return can_fork(device=self.options.device, threads=self.threads)

    @property
    def _well_formed(self) -> dict[int, Claim]:
        return {place: claim for place, claim in enumerate(self.claims) if isinstance(claim, Claim)}

    def _next(self) -> ClaimResult:
        result = self._results.pop(self._turn)
        self._turn += 1
        self.listener.claim_finished(result)
        return result

    def _employ(self) -> None:
        """Hand out tasks as long as there are some and workers to do them."""
        while (self._tasks or self._long) and len(self._busy) < self.jobs:
            task = self._next_task()
            try:
                worker = self._idle.pop() if self._idle else self._start(task)
            except OSError:  # the system allows no more processes
                if not self._busy:
                    self._do_here(task)
                    return
                self.jobs = len(self._busy)
                self._tasks.appendleft(task)
                return
            worker.task, worker.began = task, time.perf_counter()
            worker.active = active_seconds(worker.process.pid or 0)
            worker.known, worker.total, worker.done = None, 0, 0
            self._busy.append(worker)
            try:
                send(worker.connection, task)
            except OSError:  # it died while it had nothing to do
                self._end(worker)
                self._tasks.appendleft(task)

    def _do_here(self, task: Task) -> None:
        """Do without workers: limits are those that a judgement keeps by itself."""
        if isinstance(task, Judge):
            self._finish(task.place, judge(self.claims[task.place], self.options, self.listener))
        else:
            self._finish_unwritten(task.place, "no process can be made")

    def _next_task(self) -> Task:
        at_long_ones = sum(isinstance(worker.task, Judge) and worker.task.early for worker in self._busy)
        if self._long and (not self._tasks or at_long_ones < self.jobs // 2):
            return Judge(self._long.popleft(), early=True)
        return self._tasks.popleft()

    def _start(self, task: Task) -> _Worker:
        ours, theirs = Pipe()
        # Ends of pipes that a copy of this process is born with; left open, they would keep the others' from closing.
        others = [ours, *(worker.connection for worker in (*self._busy, *self._idle))] if self._fork else []
        arguments = (theirs, others, os.getpid(), self._well_formed, self.options, self.threads)
        with theirs, signals_held():
            process = start_process(work, arguments, fork=self._fork)
            worker = _Worker(process, ours, task)
            self._idle.append(worker)  # from now on it is among those that are ended
        return self._idle.pop()

    def _hear(self) -> None:
        """Wait a moment for what the workers say."""
        said = wait([worker.connection for worker in self._busy], self._patience())
        for worker in [worker for worker in self._busy if worker.connection in said]:
            try:
                message = receive(worker.connection)
            except (EOFError, OSError):
                self._lost(worker)
            else:
                self._take(worker, message)
        self.listener.tick()

    def _patience(self) -> float:
        """Seconds until the memory of the workers is to be looked at again."""
        if self.memory is None:
            return LONGEST
        room = self.memory - max(worker.grown for worker in self._busy)
        return min(max(room / FASTEST, SHORTEST), LONGEST)

    def _take(self, worker: _Worker, message: Message) -> None:
        place = worker.task.place
        if isinstance(message, Heard):
            if message.method == "claim_started":
                worker.total = message.value
                if worker.born_with is None:
                    worker.born_with = held_memory(worker.process.pid or 0)
            elif message.method == "instance_done":
                worker.done = message.value
            getattr(self.listener, message.method)(self.claims[place].id, message.value)
        elif isinstance(message, Known):
            worker.known, worker.done = message, message.result.instances
        else:
            self._rest(worker)
            if isinstance(message, Written):
                warnings = (*self._unwritten[place].warnings, *message.warnings)
                message = replace(self._unwritten[place], replay=message.replay, warnings=warnings)
            self._finish(place, message)

    def _rest(self, worker: _Worker) -> None:
        """Keep a worker for the next task, or end it where it holds on to memory."""
        if self.memory is not None and CREEP * worker.grown > self.memory:
            self._end(worker)
        else:
            self._busy.remove(worker)
            self._idle.append(worker)

    def _finish(self, place: int, result: ClaimResult) -> None:
        """Keep a result until its turn comes."""
        for death in self._deaths.get(place, [])[: LIVES - 1]:
            warning = f"its worker was ended ({death}), and it was judged again in another one"
            result = replace(result, warnings=(*result.warnings, warning))
        self._results[place] = result
        self.listener.claim_judged(result.id)

    def _finish_unwritten(self, place: int, why: str) -> None:
        result = self._unwritten[place]
        warning = f"the counterexample is not written down: {why}"
        self._finish(place, replace(result, warnings=(*result.warnings, warning)))

    def _watch(self) -> None:
        """End the workers that hold too much memory, or wait for something that does not come."""
        limit = self.options.time_limit
        stopped = max(0.0, time.perf_counter() - self._looked - MINUTE)  # as by Ctrl-Z, together with the workers
        self._looked = time.perf_counter()
        for worker in self._busy:
            worker.active -= stopped
            if self.memory is not None and worker.grown > self.memory:
                size = memory_text(self.memory)
                worker.ended = f"an operation needs more than the {size} of memory that a worker may use"
            elif limit is not None and worker.waited > WAITING * limit + MINUTE:
                worker.ended = f"the time limit of {limit:g} s ran out: it has waited for {worker.waited:.0f} s"
            if worker.ended:
                worker.process.kill()  # that it is gone is heard next

    def _lost(self, worker: _Worker) -> None:
        """Judge the claim of a worker that is gone again, or see what is known of it."""
        self._end(worker)
        task, code = worker.task, worker.process.exitcode or 0
        reason, verdict = worker.ended, Verdict.UNDECIDED
        if not reason and self.options.time_limit is not None and code == -getattr(signal, "SIGPROF", 0):
            reason = f"the time limit of {self.options.time_limit:g} s ran out in the middle of an operation"
        if isinstance(task, Write):
            self._finish_unwritten(task.place, reason or f"its worker was ended ({_death(code)})")
            return
        if not reason:
            deaths = self._deaths.setdefault(task.place, [])
            deaths.append(_death(code))
            if len(deaths) < LIVES:
                self._tasks.appendleft(task)
                return
            reason = f"{len(deaths)} workers were ended ({' and '.join(dict.fromkeys(deaths))})"
            # Whoever kills may want the memory back; a worker that fails by itself is a fault of the product.
            verdict = Verdict.UNDECIDED if set(deaths) == {_KILLED} else Verdict.ERROR
        self._cut_short(worker, verdict, reason + worker.so_far)

    def _cut_short(self, worker: _Worker, verdict: Verdict, reason: str) -> None:
        """Make a result of what is known of a claim whose worker is gone for good."""
        place, known = worker.task.place, worker.known
        if known is None:
            result = bare_result(self.claims[place], self.options, verdict, reason)
        elif known.result.verdict is Verdict.UNDECIDED and known.result.reason == ENDED:
            result = replace(known.result, verdict=verdict, reason=reason)
        else:
            warning = f"its judgement was cut short: {reason}"
            result = replace(known.result, warnings=(*known.result.warnings, warning))
        result = replace(result, seconds=time.perf_counter() - worker.began)
        if known is not None and known.broken is not None:
            self._unwritten[place] = result
            self._tasks.appendleft(Write(place, known.broken))
        else:
            self._finish(place, result)

    def _end(self, worker: _Worker) -> None:
        """End a worker, and take away what it has half written."""
        with signals_held():
            worker.process.kill()
            worker.process.join()
            worker.connection.close()
            if worker in self._idle:
                self._idle.remove(worker)
                return
            self._busy.remove(worker)
            for folder in (self.options.out, self.options.store):
                if folder is not None:
                    sweep(Path(folder), worker.process.pid or 0)

    def _end_all(self) -> None:
        with signals_held():
            for worker in (*self._busy, *self._idle):
                self._end(worker)


def _import_ahead(claims: Collection[Claim]) -> None:
    """Import what every judgement needs some time, so that each worker is born with it, and no limit counts it."""
    for claim in claims:
        twin_of(claim)  # with all of training, where one has a run
    if any(claim.trains or any(node.name in ("grad", "jac") for node in claim.nodes()) for claim in claims):
        importlib.import_module("torch._dynamo")  # which torch.func asks for, by which many slopes are computed


_KILLED = "SIGKILL, as by a system short of memory"


def _death(code: int) -> str:
    """Say how a process ended, by its exit code."""
    if code == -getattr(signal, "SIGKILL", 9):
        return _KILLED
    known = {signal_.value: signal_.name for signal_ in signal.Signals}
    return known.get(-code, f"exit code {code}")


def long_ones(claims: Mapping[int, Claim], costs: Mapping[str, float], jobs: int) -> list[int]:
    """Return the places of claims that half of the workers judge before all others, the longest first.

    A long claim that comes late would be waited for by all workers but one. The other half judge in the order of the
    file, so that results appear from the start.

    Args:
        claims: Claims by place.
        costs: Seconds that claims are known to take, by id. Of those not known, claims whose
            instances are runs count as long.
        jobs: Workers.
    """
    share = sum(costs.get(claim.id, 0.0) for claim in claims.values()) / jobs
    found = {
        place: costs.get(claim.id, float("inf"))
        for place, claim in claims.items()
        if (LONG * costs[claim.id] > share if claim.id in costs else claim.costly)
    }
    return sorted(found, key=lambda place: -found[place]) if jobs > 1 else []
