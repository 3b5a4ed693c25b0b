"""The commands `verify-claims` and `convergence-figures`; the only package that prints.

    arguments.py    what may be said; select.py: which claims; main.py: which command
    session.py      `run`: judged claim by claim into a results folder
    mutate.py, replay.py, figures.py    the other commands

Here: how a command becomes a process: output that may go nowhere, interruptions, and the exit codes of
`verify-claims`, which its `--help` explains.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from select import select as wait_until_ready
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from ntk_deq.errors import shortened

if TYPE_CHECKING:
    from rich.console import Console

EXIT_OK = 0
EXIT_UNEXPECTED = 1
EXIT_INTERRUPTED = 2
EXIT_INTERNAL = 3
EXIT_USAGE = 4
EXIT_EMPTY = 5
EXIT_OPEN = 6


def refused(console: Console, why: object) -> int:
    """Say on a line of its own why nothing was done; return the exit code of that."""
    console.print(f"verify-claims: {shortened(str(why))}", markup=False, highlight=False)
    return EXIT_USAGE


_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
_AGAIN = 2.0  # seconds; a signal that follows another within these says no more than the first one did


def run_process(name: str, main: Callable[[Sequence[str]], int]) -> None:
    """Run a command on the words of this process and exit with its code.

    Args:
        name: The command's name.
        main: What takes the words after it and returns the exit code.
    """
    Interruption.ends_the_process = True
    _hold_descriptors()
    sys.stdout, sys.stderr = _unfailing(sys.stdout), _unfailing(sys.stderr)
    try:
        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        code = EXIT_INTERRUPTED
    for number in _heard_signals():  # all is written: what is left is to end
        signal.signal(number, signal.SIG_IGN)
    gc.freeze()  # so that the interpreter looks for no circles on its way out
    sys.exit(code)


class UnfailingFile(io.FileIO):
    """Standard output or error that never fails.

    Once it cannot be written to (its reader has gone, the disk is full, the terminal is closed), what is said is lost
    and the work goes on: results and exit code matter more.
    """

    lost = False

    def write(self, data: Any, /) -> int:
        """Write what can be written; say that all was."""
        if not self.lost:
            try:
                while (written := super().write(data)) is None:  # a pipe that does not wait for its reader
                    wait_until_ready([], [self], [])
                return written
            except OSError:
                self.lost = True
        return memoryview(data).nbytes


def _unfailing(stream: TextIO | None) -> TextIO:
    """Return a stream in the place of a standard one: it never fails, and escapes what it cannot encode."""
    if stream is None:  # closed when the process began
        return open(os.devnull, "w", encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    raw = UnfailingFile(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _hold_descriptors() -> None:
    """Open what is closed of the three standard descriptors, or the next file that is opened gets its number."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, descriptor)
            if null != descriptor:
                os.close(null)


def _heard_signals() -> Iterator[signal.Signals]:
    """Yield the signals that interrupt a run; one that is ignored from the start, as under `nohup`, stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        return  # no other thread may say what a signal does
    for name in _SIGNALS:
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            yield number


class Interruption:
    """Ctrl-C, SIGTERM and SIGHUP while a run is on: the first one ends the judging, none ends the writing.

    In its block, a signal raises KeyboardInterrupt until `over` is called, though not soon after another one, and not
    in a block of `held`: `noted` says that one came there.

    Attributes:
        noted: Whether one came in a block of `held`.
        ends_the_process: Whether the process ends with the block, so that after a signal no other one may cut its end.
    """

    ends_the_process = False

    def __init__(self) -> None:
        self.noted = False
        self._judging = True
        self._held = False
        self._last = -_AGAIN
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        self._before = {number: signal.signal(number, self._hear) for number in _heard_signals()}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ending = self.ends_the_process and self._last >= 0
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if ending else handler)

    def over(self) -> None:
        """Say that nothing is judged any more: what is left must be written whole."""
        self._judging = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let no signal end the block; `noted` tells afterwards."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def _hear(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self._judging or now - self._last < _AGAIN:
            return
        self._last = now
        if self._held:
            self.noted = True
        else:
            raise KeyboardInterrupt
