"""Files from which a run goes on after it was killed.

Ctrl-C during a run: it ends between two steps, with everything reached.
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from ntk_deq.dynamics.record import TrainingRun
from ntk_deq.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from pathlib import Path


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; the run goes on."""


def check_interval(seconds: object) -> None:
    """Refuse a time between two checkpoints that is none.

    Args:
        seconds: What was given as `checkpoint_every`.

    Raises:
        ArgumentError: It is no number >= 0.

    Example:
        >>> check_interval(-1)
        Traceback (most recent call last):
            ...
        ntk_deq.errors.ArgumentError: `checkpoint_every` must be a number of seconds >= 0. Got -1.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise ArgumentError(f"`checkpoint_every` must be a number of seconds >= 0. Got {seconds!r}.")


def fresh_checkpoint(path: str | Path) -> Callable[[TrainingRun], None]:
    """Return what writes checkpoints to a file that does not exist yet, since it may hold another run's results.

    Raises:
        ArgumentError: The file exists, its folder does not, or its name does not end in `.npz`.

    Example:
        >>> write = fresh_checkpoint("new.npz")
    """
    if not str(path).endswith(".npz"):
        raise ArgumentError(f"`checkpoint` must be the name of an .npz file. Got {str(path)!r}.")
    if os.path.exists(path):
        raise ArgumentError(
            f"`checkpoint` must be a file that does not exist yet. Got {str(path)!r}, which is there: take its run up "
            "with `resume`, or choose another name."
        )
    if not os.path.isdir(os.path.dirname(path) or "."):
        raise ArgumentError(f"`checkpoint` must lie in a folder that exists. Got {str(path)!r}.")
    return checkpoint_to(path)


def checkpoint_to(path: str | Path) -> Callable[[TrainingRun], None]:
    """Return what writes checkpoints to a file; a full disk is no reason to give up the run.

    Example:
        >>> write = checkpoint_to("run.npz")
    """

    def write(run: TrainingRun) -> None:
        try:
            importlib.import_module("ntk_deq.dynamics.storage").save_run(run, path)
        except DataError as error:
            warnings.warn(
                f"No checkpoint at step {run.end:g}. {error} The run goes on.", CheckpointWarning, stacklevel=2
            )

    return write


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
