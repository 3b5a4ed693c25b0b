"""A worker: a process of the pool, and what happens in it.

The process is made from this one where that is safe, else started afresh; it never outlives this one. In it one claim
after another is judged, and the run hears what is known meanwhile. How much memory is free, and how much a process
holds, in bytes, is known on Linux, where `/proc` says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from ntk_deq.claims.claim import Claim, Verdict
from ntk_deq.claims.families import claim_for
from ntk_deq.verify.judge import Judgement
from ntk_deq.verify.options import Options
from ntk_deq.verify.results import ClaimResult
from ntk_deq.verify.runner import Known, Overseer, bare_result, judge
from ntk_deq.verify.trial import WRITING, Trial

_HELD = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_DEATH_OF_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


def can_fork(*, device: str, threads: int) -> bool:
    """Whether a copy of this process can judge claims.

    Not with CUDA, which does not survive a fork, nor with several threads a product, since those of this process would
    be missing; nor outside Linux, where system libraries do not allow it.
    """
    return sys.platform == "linux" and device == "cpu" and threads == 1


def start_process(target: Callable[..., None], arguments: tuple[Any, ...], *, fork: bool) -> BaseProcess:
    """Start a process that calls `target`, as a copy of this one or afresh; hold signals meanwhile (`signals_held`)."""
    context = multiprocessing.get_context("fork") if fork else multiprocessing.get_context("spawn")
    process: BaseProcess = context.Process(target=target, args=arguments, daemon=True)
    with warnings.catch_warnings():
        # Python 3.12 and later warn of any other thread, such as idle ones of NumPy, which a copy does without.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    return process


def active_seconds(pid: int) -> float:
    """Return the seconds that a process has run or has waited for a core; 0 where they are not known."""
    try:
        ran, queued, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    except (OSError, ValueError):
        return 0.0
    return (int(ran) + int(queued)) / 1e9


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Hold back interruptions, so that no process is half started, or ended and not known to be."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def settle(parent: int) -> None:
    """Make this process one of a pool: the run alone decides when it ends, and it ends with the run.

    An interruption from the keyboard reaches every process of a terminal, and is for the run to handle.

    Args:
        parent: The process id of the run.
    """
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    for name in ("SIGTERM", "SIGPROF"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_OF_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it died before this process was tied to it
        os._exit(1)


SHARE = 0.8
"""The share of the free memory that the workers together may use: the rest is for the run itself and for others."""

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def default_memory(jobs: int) -> int | None:
    """Return the memory that each of `jobs` workers may use where nobody says how much, or None: not known here."""
    free = free_memory()
    return None if free is None else int(SHARE * free / jobs)


def free_memory() -> int | None:
    """Return the memory that can be had, by the machine and by the limit of a container, or None: not known here."""
    known = [_available(), *(_left(Path(limit), Path(used)) for limit, used in _CGROUPS)]
    return min((size for size in known if size is not None), default=None)


def held_memory(pid: int) -> int | None:
    """Return the memory that a process holds by itself, without what it shares with files; None: it is not known."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return None
    return (int(fields[1]) - int(fields[2])) * _PAGE if len(fields) > 2 else None


def memory_text(size: float) -> str:
    """Return a number of bytes in words.

    Example:
        >>> memory_text(8.25e9), memory_text(5e8)
        ('8.25 GB', '500 MB')
    """
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"


def _available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024 * int(found[0]) if found else None


def _left(limit: Path, used: Path) -> int | None:
    """What a container's limit leaves; None where it has none: its file is missing, or says `max`."""
    try:
        return max(0, int(limit.read_text()) - int(used.read_text()))
    except (OSError, ValueError):
        return None


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
class Heard:
    """What the run's listener is to hear of a claim: the name of one of its methods, and what that takes."""

    method: str
    value: Any


@dataclass(frozen=True)
class Written:
    """What became of a counterexample that was to be written down."""

    replay: str | None
    warnings: tuple[str, ...]


Task = Judge | Write
Message = Heard | Known | ClaimResult | Written


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
        trial = Trial(claim_for(claim, broken.setting, broken.sizes), options)
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
        self._send(Heard("claim_started", total))

    def instance_done(self, claim_id: str, done: int) -> None:
        """Pass it on, not too often."""
        now = time.perf_counter()
        if now >= self._next_done:
            self._next_done = now + _HEARD_EVERY
            self._send(Heard("instance_done", done))

    def stage_entered(self, claim_id: str, stage: str) -> None:
        """Pass it on."""
        self._send(Heard("stage_entered", stage))

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
