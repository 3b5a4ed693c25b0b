"""Ctrl-C during a run: it ends between two steps, with everything reached."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """Whether the run has been asked to end."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Ask the run to end after this step; asked twice, stop where we are."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def deferred_interrupt() -> Iterator[Interruption]:
    """Turn the first Ctrl-C inside the context into a flag, so that no step is left half done.

    Only in the main thread, and only where nobody else handles the signal.

    Example:
        >>> with deferred_interrupt() as interruption:
        ...     interruption.asked
        False
    """
    interruption = Interruption()
    plain = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not (plain and threading.current_thread() is threading.main_thread()):
        yield interruption
        return
    signal.signal(signal.SIGINT, interruption.ask)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
