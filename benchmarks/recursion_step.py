"""A step of a recursion at n = 200 in torch, beside its own products.

The rule is that of forward-backward splitting, z[k+1]: relu(z[k] - alpha*(F*z[k] - c)), on a state of 200 x 200. The
formulas run as the search and the estimates run them; the products alone are what nothing can save.
"""

from __future__ import annotations

import argparse
import sys

import torch

from benchmarks.machine import medians, print_machine, print_table, verdict
from ntk_deq.errors import Position
from ntk_deq.evaluation.floats import TensorNames, at_step
from ntk_deq.language.parser import parse
from ntk_deq.language.recursion import recursions_in
from ntk_deq.language.tree import Formula

ROUNDS, STEPS, MOST = 7, 50, 1.5
RULE = {"z[0]": "z0", "z[k+1]": "relu(z[k] - alpha*(F*z[k] - c))"}


def main() -> int:
    """Print both times and whether their ratio is within the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--order", type=int, default=200)
    parser.add_argument("--columns", type=int, default=200)
    arguments = parser.parse_args()
    order, columns = arguments.order, arguments.columns
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

    print_machine()
    with torch.no_grad():
        times = medians([formulas, products], ROUNDS)
    ratio = times[0] / times[1]
    rows = zip(("formulas", "products"), times, strict=True)
    print_table(("what", "a step"), [(name, f"{1e6 * seconds / STEPS:.0f} us") for name, seconds in rows])
    return verdict(f"{ratio:.2f} times its products, at most {MOST}", ratio <= MOST)


if __name__ == "__main__":
    sys.exit(main())
