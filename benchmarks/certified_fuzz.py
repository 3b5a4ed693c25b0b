"""Certified bounds against exact arithmetic on thousands of matrices and hundreds of equilibria.

Every ball, norm, singular value, eigenvalue, inverse and proof of definiteness is computed on matrices of 23 families
(random, graded, condition numbers up to 1e16, rank deficient, repeated and clustered singular values, scales from
1e-150 to 1e150, subnormal entries, long and thin), as exact matrices and as balls whose centre is off, and held against
whole numbers, rationals and ball arithmetic of 512 to 8192 bits. Any truth outside its ball is printed, and the exit
code is then 1.

With --weaken NAME a bound is weakened on purpose, and the run fails unless it finds that out. --weaken all plants every
mistake in turn.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from time import perf_counter

import torch

from benchmarks.certified_checks import Check, check_case
from benchmarks.certified_equilibria import MAX_STEPS, check_instance, instance
from benchmarks.certified_families import LARGEST, case
from benchmarks.certified_weakening import weakened, weakenings
from benchmarks.machine import print_machine, print_table, verdict

CHUNK = 25
MATRICES, EQUILIBRIA = 5000, 500


@dataclass
class Tally:
    """Counts by function, and the names of what went wrong."""

    checks: Counter[str] = field(default_factory=Counter)
    informative: Counter[str] = field(default_factory=Counter)
    undecided: Counter[str] = field(default_factory=Counter)
    violated: Counter[str] = field(default_factory=Counter)
    culprits: list[str] = field(default_factory=list)

    def add(self, name: str, check: Check) -> None:
        """Count one check."""
        self.checks[check.what] += 1
        self.informative[check.what] += check.informative
        self.undecided[check.what] += check.undecided
        if check.violated:
            self.violated[check.what] += 1
            self.culprits.append(f"{check.what}: {name}")

    def merge(self, other: Tally) -> None:
        """Add the counts of another tally."""
        for mine, theirs in (
            (self.checks, other.checks),
            (self.informative, other.informative),
            (self.undecided, other.undecided),
            (self.violated, other.violated),
        ):
            mine.update(theirs)
        self.culprits.extend(other.culprits)

    @property
    def violations(self) -> int:
        """All violations."""
        return self.violated.total()


def matrix_tally(seed: int, indices: range, weaken: str | None = None, *, largest: int = LARGEST) -> Tally:
    """Check some matrices, of sizes up to `largest`."""
    tally = Tally()
    with weakened(weaken):
        for index in indices:
            drawn = case(seed, index, largest=largest)
            for check in check_case(drawn):
                tally.add(drawn.name, check)
    return tally


def equilibrium_tally(seed: int, indices: range, weaken: str | None = None, *, max_steps: int = MAX_STEPS) -> Tally:
    """Check some equilibria, solved with at most `max_steps` steps."""
    tally = Tally()
    with weakened(weaken):
        for index in indices:
            drawn = instance(seed, index)
            for check in check_instance(drawn, max_steps=max_steps):
                tally.add(drawn.name, check)
    return tally


def _task(arguments: tuple[bool, int, range, str | None]) -> Tally:
    torch.set_num_threads(1)
    matrices, seed, indices, weaken = arguments
    return (matrix_tally if matrices else equilibrium_tally)(seed, indices, weaken)


def _tasks(
    seed: int, matrices: int, equilibria: int, weaken: str | None
) -> Iterator[tuple[bool, int, range, str | None]]:
    for is_matrix, total in ((True, matrices), (False, equilibria)):
        for first in range(0, total, CHUNK):
            yield is_matrix, seed, range(first, min(first + CHUNK, total)), weaken


def run(seed: int, matrices: int, equilibria: int, *, weaken: str | None = None, jobs: int = 1) -> Tally:
    """Check matrices and equilibria in some processes."""
    tally = Tally()
    tasks = list(_tasks(seed, matrices, equilibria, weaken))
    if jobs == 1:
        for done, task in enumerate(tasks, 1):
            tally.merge(_task(task))
            _progress(done, len(tasks))
        return tally
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for done, part in enumerate(pool.map(_task, tasks), 1):
            tally.merge(part)
            _progress(done, len(tasks))
    return tally


def _progress(done: int, total: int) -> None:
    if done % 20 == 0 and done < total:
        print(f"{done} of {total} parts done", file=sys.stderr, flush=True)


def _print(tally: Tally) -> None:
    head = ["function", "checks", "informative", "undecided", "violations"]
    rows = [
        [what, *(str(counter[what]) for counter in (tally.checks, tally.informative, tally.undecided, tally.violated))]
        for what in sorted(tally.checks)
    ]
    print_table(head, rows)
    for culprit in tally.culprits[:20]:
        print(f"VIOLATION {culprit}")


def plain(options: argparse.Namespace) -> int:
    """Run the bounds as they are; return 1 where a truth is outside its ball."""
    start = perf_counter()
    tally = run(options.seed, options.matrices, options.equilibria, jobs=options.jobs)
    _print(tally)
    drawn = f"{options.matrices} matrices, {options.equilibria} equilibria, seed {options.seed}"
    print(f"{drawn}: {perf_counter() - start:.0f} s")
    return verdict(f"0 violations in {tally.checks.total()} checks ({tally.violations} found)", tally.violations == 0)


def weaken(options: argparse.Namespace) -> int:
    """Plant one mistake or all, one after another; return the number that stayed unnoticed."""
    names = list(weakenings()) if options.weaken == "all" else [options.weaken]
    missed, rows = 0, []
    for name in names:
        mistake = weakenings()[name]
        on_matrices = mistake.on == "matrices"
        matrices, equilibria = (options.matrices, 0) if on_matrices else (0, options.equilibria)
        tally = run(options.seed, matrices, equilibria, weaken=name, jobs=options.jobs)
        worst = ", ".join(f"{what} {count}" for what, count in tally.violated.most_common(4))
        rows.append([name, mistake.what, str(tally.checks.total()), str(tally.violations), worst])
        missed += tally.violations == 0
    print_table(["weakened", "how", "checks", "violations", "most often in"], rows)
    return missed + verdict("every weakened bound is found out", missed == 0)


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.certified_fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--matrices", type=int, help=f"how many (default {MATRICES}; 400 with --weaken)")
    parser.add_argument("--equilibria", type=int, help=f"how many (default {EQUILIBRIA}; 100 with --weaken)")
    parser.add_argument("--seed", type=int, default=1, help="the run is reproducible from it (default 1)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1; 10 to 20 minutes with one)")
    parser.add_argument("--weaken", choices=["all", *weakenings()], help="plant a mistake, and see that it is found")
    options = parser.parse_args(arguments)
    options.matrices = options.matrices or (400 if options.weaken else MATRICES)
    options.equilibria = options.equilibria or (100 if options.weaken else EQUILIBRIA)
    print_machine()
    return weaken(options) if options.weaken else plain(options)


if __name__ == "__main__":
    sys.exit(main())
