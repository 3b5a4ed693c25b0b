"""Peak memory of the structured kernel at N = m = 1000, in matrices of N x m, from two independent measures."""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.instances import relu_model, sphere
from benchmarks.machine import print_machine, print_table, verdict
from ntk_deq.quantities import ntk_gram

TARGET = 12
SIZE = 1000
MATRIX_BYTES = SIZE * SIZE * 8
# glibc then gives every freed tensor back to the system at once, so that the resident set shows live memory only.
RETURNING = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
CLEAR_PEAK = Path("/proc/self/clear_refs")


class LiveStorages(TorchDispatchMode):
    """Counts the bytes of every storage that an operation under the mode makes, for as long as it lives."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.peak = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def ignore(self, tensors: Sequence[Tensor]) -> None:
        """Leave out storages that were there before."""
        for tensor in tensors:
            self._known[id(tensor.untyped_storage())] = weakref.ref(tensor.untyped_storage())

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation and note the storages of its results."""
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._note(leaf.untyped_storage())
        return result

    def _note(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()
        if key in self._known:
            return
        self.now += size
        self.peak = max(self.peak, self.now)

        def gone(_: object) -> None:
            self.now -= size
            del self._known[key]

        self._known[key] = weakref.ref(storage, gone)


def storages_peak(d: int) -> float:
    """Return the peak of live tensor storages beyond inputs and parameters, results included."""
    model, X = relu_model(d, SIZE), sphere(SIZE, d)
    mode = LiveStorages()
    mode.ignore([X, *model.parameters().values()])
    with mode:
        ntk_gram(model, X)
    return mode.peak / MATRIX_BYTES


def process_peak(d: int) -> float:
    """Return the growth of this process's largest resident set, which also counts what libraries allocate inside."""
    ntk_gram(relu_model(5, 40), sphere(40, 5))  # loads the libraries and starts the threads
    model, X = relu_model(d, SIZE), sphere(SIZE, d)
    before = resident()
    CLEAR_PEAK.write_text("5")  # Linux: the peak starts again from here
    kernel = ntk_gram(model, X)
    grown = resident("VmHWM") - before
    del kernel  # the result counts, so it lives until here
    return grown / MATRIX_BYTES


def resident(field: str = "VmRSS") -> int:
    """Return a field of the process's status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024


def main() -> int:
    """Print both measures and return the number of missed targets."""
    print_machine()
    print(f"N = m = {SIZE}, float64; one matrix = {MATRIX_BYTES / 1e6:.0f} MB; beyond inputs and parameters")
    rows, worst = [], 0.0
    for d in (50, SIZE):
        command = [sys.executable, "-m", "benchmarks.kernel_memory", str(d)]
        process = float(subprocess.run(command, env=RETURNING, check=True, capture_output=True, text=True).stdout)
        storages = storages_peak(d)
        rows.append([str(d), f"{storages:.2f}", f"{process:.2f}"])
        worst = max(worst, storages, process)
    print_table(["d", "live tensor storages", "resident set of a fresh process"], rows)
    return verdict(f"peak of {worst:.2f} matrices <= {TARGET}", worst <= TARGET)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(process_peak(int(sys.argv[1])))
    else:
        sys.exit(main())
