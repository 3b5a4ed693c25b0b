"""A step of a recursion at n = 200 in torch, beside its own products.

The rule is that of forward-backward splitting, z[k+1]: relu(z[k] - alpha*(F*z[k] - c)), on a state of 200 x 200 and,
without a target, of 200 numbers, where torch's calls weigh as much as the product. The formulas run as the search and
the estimates run them; the products alone, of the same matrices, are what nothing can save. Processor time, in pairs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from statistics import median
from time import process_time

import torch

from benchmarks.machine import print_machine, print_table, verdict
from ntk_deq.errors import Position
from ntk_deq.evaluation.floats import TensorNames
from ntk_deq.evaluation.steps import at_step
from ntk_deq.language.parser import parse
from ntk_deq.language.recursion import recursions_in
from ntk_deq.language.tree import Formula

ROUNDS, STEPS, MOST = 15, 50, 1.5
RULE = {"z[0]": "z0", "z[k+1]": "relu(z[k] - alpha*(F*z[k] - c))"}


def main() -> int:
    """Print both times and whether their ratio is within the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--order", type=int, default=200)
    parser.add_argument("--columns", type=int, default=200)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print_machine()
    with torch.no_grad():
        pairs = [_pairs(arguments.order, columns) for columns in (1, arguments.columns)]
    rows = [
        (f"{arguments.order} x {columns}", *(f"{1e6 * median(column):.0f} us" for column in zip(*found, strict=True)))
        for columns, found in zip((1, arguments.columns), pairs, strict=True)
    ]
    print_table(("state", "a step", "its products"), rows)
    vector, ratio = (median(formulas / products for formulas, products in found) for found in pairs)
    print(f"a state of one column: {vector:.2f} times its products")
    return verdict(f"{ratio:.2f} times its products, at most {MOST}", ratio <= MOST)


def _pairs(order: int, columns: int) -> list[tuple[float, float]]:
    """Return the processor time of a step and of its products, time and again."""
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(order, n, generator=generator, dtype=torch.float64) for n in (order, columns, columns)]
    values = {"F": drawn[0] / order**0.5 + 2 * torch.eye(order, dtype=torch.float64), "c": drawn[1], "z0": drawn[2]}
    values["alpha"] = torch.tensor(0.1, dtype=torch.float64)
    let = {key: Formula(key, text, parse(text), Position("", 1, 1)) for key, text in RULE.items()}
    recursions = recursions_in(let)

    def formulas() -> None:
        names = TensorNames(values, {}, let, None, drawn[0].new_zeros(()), recursions=recursions)
        at_step("z", STEPS, names)

    def products() -> None:
        for _ in range(STEPS):
            values["F"] @ values["z0"]

    formulas()
    repeats = max(1, 200 // columns)
    return [(_seconds(formulas, repeats), _seconds(products, repeats)) for _ in range(ROUNDS)]


def _seconds(function: Callable[[], None], repeats: int) -> float:
    start = process_time()
    for _ in range(repeats):
        function()
    return (process_time() - start) / (repeats * STEPS)


if __name__ == "__main__":
    sys.exit(main())
