"""What happens in a worker: one claim after another is judged, and the run hears what is known meanwhile."""

from __future__ import annotations

import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from ntk_deq.claims.claim import Claim, Verdict
from ntk_deq.claims.families import claim_for
from ntk_deq.verify.judge import Judgement
from ntk_deq.verify.options import Options
from ntk_deq.verify.pool.process import settle
from ntk_deq.verify.results import ClaimResult
from ntk_deq.verify.runner import Known, Overseer, bare_result, judge
from ntk_deq.verify.trial import WRITING, Trial

ENDING = 1.5
"""Processor time, as a share of the limit, after which an operation that outlasts the limit is ended..."""

GRACE = 0.5  # ...and so many seconds more, for what is done in the end anyway

KNOWN_EVERY = 0.2
"""Seconds of processor time after which the run is told anew what is known..."""

KNOWN_SHARE = 100  # ...or so many times what telling it took, should that be longer

_HEARD_EVERY = 0.05  # seconds between two messages on how many instances are judged


@dataclass(frozen=True)
class Judge:
    """The task to judge a claim, by its place; a long one may be judged before its turn."""

    place: int
    early: bool = False


@dataclass(frozen=True)
class Write:
    """The task to write down a counterexample that was found in another worker, which then was ended."""

    place: int
    broken: Judgement


@dataclass(frozen=True)
class Started:
    """A claim's judgement begins, with so many instances planned."""

    total: int


@dataclass(frozen=True)
class Done:
    """So many instances are judged."""

    count: int


@dataclass(frozen=True)
class Entered:
    """Something else is done from now on."""

    stage: str


@dataclass(frozen=True)
class Written:
    """What became of a counterexample that was to be written down."""

    replay: str | None
    warnings: tuple[str, ...]


Task = Judge | Write
Message = Started | Done | Entered | Known | ClaimResult | Written


def send(connection: Connection, content: Task | Message) -> None:
    """Send a task or a message.

    By plain pickle: PyTorch's own way for tensors hands over open files, which are gone when a worker is ended.

    Raises:
        OSError: The other side is gone.
    """
    connection.send_bytes(pickle.dumps(content))


def receive(connection: Connection) -> Any:
    """Receive a task or a message: of a pipe between the run and a process that it started, which nobody else holds.

    Raises:
        EOFError, OSError: The other side is gone.
    """
    return pickle.loads(connection.recv_bytes())


def work(
    connection: Connection,
    others: Sequence[Connection],
    parent: int,
    claims: Mapping[int, Claim],
    options: Options,
    threads: int,
) -> None:
    """Do the tasks that come, until the run ends this process or is gone.

    Args:
        connection: To the run.
        others: Ends of connections that this process was born with and does not need.
        parent: Process id of the run.
        claims: The claims of the run, by their places.
        options: How to judge them.
        threads: Threads of one matrix product.
    """
    settle(parent)
    for other in others:
        other.close()
    torch.set_num_threads(threads)
    try:
        while True:
            task: Task = receive(connection)
            claim = claims[task.place]
            reporter = _Reporter(connection, threads if options.device == "cpu" else threads + 1)
            outcome = _done(task, claim, options, reporter)
            try:
                send(connection, outcome)
            except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
                # The boundary of a worker: a result that cannot be handed over is a fault of the product.
                reason, trace = "its result cannot be handed over", traceback.format_exc()
                send(connection, bare_result(claim, options, Verdict.ERROR, reason, trace=trace))
    except (EOFError, OSError):
        os._exit(1)  # the run is gone


def _done(task: Task, claim: Claim, options: Options, reporter: _Reporter) -> ClaimResult | Written:
    try:
        if isinstance(task, Judge):
            return judge(claim, options, reporter, overseer=reporter)
        reporter.allow(WRITING)
        broken = task.broken.instance
        trial = Trial(claim_for(claim, broken.setting, broken.sizes), options, time.perf_counter(), lambda done: None)
        trial.plainest = task.broken
        trial.keep()
        return Written(trial.saved(), tuple(trial.warnings))
    finally:
        reporter.allow(None)


class _Reporter(Overseer):
    """Tells the run how far a judgement is and what is known, and has the system end it where it takes too long.

    Args:
        connection: To the run.
        threads: Threads that may be at work at once: the system counts the time of all.
    """

    def __init__(self, connection: Connection, threads: int) -> None:
        self._connection, self._threads = connection, threads
        self._next_known = self._next_done = 0.0

    def claim_started(self, claim_id: str, total: int) -> None:
        """Pass it on."""
        self._send(Started(total))

    def instance_done(self, claim_id: str, done: int) -> None:
        """Pass it on, not too often."""
        now = time.perf_counter()
        if now >= self._next_done:
            self._next_done = now + _HEARD_EVERY
            self._send(Done(done))

    def stage_entered(self, claim_id: str, stage: str) -> None:
        """Pass it on."""
        self._send(Entered(stage))

    def claim_judged(self, claim_id: str) -> None:
        """The result says so."""

    def claim_finished(self, result: ClaimResult) -> None:
        """The result says so."""

    def tick(self) -> None:
        """The run has a clock of its own."""

    def allow(self, seconds: float | None) -> None:
        """Let the system end this process by SIGPROF some time after the limit, also in the middle of an operation."""
        if hasattr(signal, "setitimer"):
            last = 0.0 if seconds is None else (ENDING * seconds + GRACE) * self._threads
            signal.setitimer(signal.ITIMER_PROF, min(last, _LONGEST))

    def keep(self, known: Callable[[], Known], *, pressing: bool = False) -> None:
        """Tell the run what is known, at once or now and then."""
        now = time.thread_time()
        if pressing or now >= self._next_known:
            self._send(known())
            self._next_known = now + max(KNOWN_EVERY, KNOWN_SHARE * (time.thread_time() - now))

    def _send(self, message: Message) -> None:
        try:
            send(self._connection, message)
        except OSError:  # the run is gone: no boundary may take this for a failure of the judgement
            os._exit(1)


_LONGEST = 1e8  # seconds; what a timer takes everywhere
