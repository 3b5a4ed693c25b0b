"""One process of the pool: made from this one where that is safe, else started afresh; it never outlives this one.

How much memory is free, and how much a process holds, in bytes; known on Linux, where `/proc` says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

_HELD = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_DEATH_OF_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


class Process(Protocol):
    """What the pool asks of a process."""

    @property
    def pid(self) -> int | None:
        """Its number."""

    @property
    def exitcode(self) -> int | None:
        """How it ended, once it was joined: minus the number of a signal, if one ended it."""

    def kill(self) -> None:
        """End it at once."""

    def join(self) -> None:
        """Wait for its end."""


class _Forked:
    """A copy of this process, made in milliseconds: all that was imported is there.

    It ends without flushing what this process has not written yet, and without its exit handlers.
    """

    def __init__(self, target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.exitcode: int | None = None
        with warnings.catch_warnings():
            # Python 3.12 and later warn of any other thread, such as idle ones of NumPy, which a copy does without.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                target(*arguments)
                code = 0
            finally:
                os._exit(code)

    def kill(self) -> None:
        """End it at once."""
        if self.exitcode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def join(self) -> None:
        """Wait for its end."""
        if self.exitcode is None:
            try:
                _, status = os.waitpid(self.pid, 0)
                self.exitcode = os.waitstatus_to_exitcode(status)
            except ChildProcessError:  # somebody else has waited for it
                self.exitcode = 1


def can_fork(*, device: str, threads: int) -> bool:
    """Whether a copy of this process can judge claims.

    Not with CUDA, which does not survive a fork, nor with several threads a product, since those of this process would
    be missing; nor outside Linux, where system libraries do not allow it.
    """
    return sys.platform == "linux" and device == "cpu" and threads == 1


def start_process(target: Callable[..., None], arguments: tuple[Any, ...], *, fork: bool) -> Process:
    """Start a process that calls `target`; hold signals meanwhile (`signals_held`)."""
    if fork:
        return _Forked(target, arguments)
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments, daemon=True)
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
