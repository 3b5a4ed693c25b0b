"""What every benchmark prints around its figures: the machine, the versions, a table, a verdict."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

# Enough that a call after another function's does not weigh in the median.
LEAST_SECONDS = 0.2


def print_machine() -> None:
    """Print the processor, the thread count and the versions that the figures belong to."""
    import torch

    cpu = Path("/proc/cpuinfo")
    names = [line for line in cpu.read_text().splitlines() if line.startswith("model name")] if cpu.exists() else []
    processor = names[0].partition(":")[2].strip() if names else platform.processor() or platform.machine()
    print(f"machine: {processor}, {torch.get_num_threads()} threads; {platform.system()} {platform.machine()}")
    print(f"versions: Python {platform.python_version()}, torch {torch.__version__}")


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print left-aligned columns."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, ["-" * width for width in widths], *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def verdict(what: str, reached: bool) -> int:
    """Print whether a target was met; return 0 or 1 to be summed into the exit code."""
    print(f"{'reached' if reached else 'MISSED'}: {what}")
    return 0 if reached else 1


def seconds(function: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    start = perf_counter()
    function()
    return perf_counter() - start


def medians(functions: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Return the median wall time of one call of each function, over rounds that alternate between the functions.

    In a round a function is called until `LEAST_SECONDS` are full, so that a short one is not judged by its first call
    after a long one has emptied the caches.
    """
    for function in functions:
        function()
    repeats = [max(1, math.ceil(LEAST_SECONDS / seconds(function))) for function in functions]
    timings: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, count, column in zip(functions, repeats, timings, strict=True):
            column += [seconds(function) for _ in range(count)]
    return [median(column) for column in timings]
