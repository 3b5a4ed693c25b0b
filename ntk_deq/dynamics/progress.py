"""A progress bar for long runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

# A look at the clock costs less than a look at the terminal.
_SECONDS = 0.1

Show = Callable[[float, float], None]


@contextmanager
def progress_bar(shown: bool, title: str, total: float | None) -> Iterator[Show | None]:
    """Show a bar while the context lasts; yields what to call with the step (or time) and the loss, or None.

    Args:
        shown: Whether to show one.
        title: What it says before the bar.
        total: The last step or time, where it is known.

    Example:
        >>> with progress_bar(False, "gradient-descent", 10) as show:
        ...     print(show)
        None
    """
    if not shown:
        yield None
        return
    # Here, so that a run without a bar does not wait for the terminal's library.
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    place = TextColumn("{task.fields[place]}")
    columns = (TextColumn("{task.description}"), BarColumn(), place, TimeRemainingColumn())
    with Progress(*columns, TextColumn("loss {task.fields[loss]:.3e}"), transient=True) as bar:
        task = bar.add_task(title, total=total, loss=float("nan"), place=_place(0, total))
        last = -_SECONDS

        def show(at: float, loss: float) -> None:
            nonlocal last
            now = perf_counter()
            if now - last >= _SECONDS:
                last = now
                bar.update(task, completed=at, loss=loss, place=_place(at, total))

        yield show


def _place(at: float, total: float | None) -> str:
    """Return how far a run is: `3/100` steps, `0.25/0.5` of the time."""
    return "/".join(
        f"{number:,}" if isinstance(number, int) else f"{number:.3g}" for number in (at, total) if number is not None
    )
