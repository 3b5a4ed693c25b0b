"""The loss of the small convolutional DEQ on a plane of 51 x 51 points, on 512 images: time, centre, unsolved points.

The network is that of `figures.deq_digits`, trained for 40 steps first, which is not counted. Besides, a small plane
along the principal directions of its path of training, which says how far the path is off the plane.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import torch
from torch import Tensor, nn

import ntk_deq as nd
from benchmarks.machine import print_machine, verdict
from figures.deq_digits import BUDGET, REACH, RTOL, SMALL, SOLVER, deq, digits, network, trained

MOST = 600  # seconds


def main() -> int:
    """Print what was measured and return the number of missed targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=51)
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--workers", type=int, default=2, help="processes that share the points")
    given = parser.parse_args()
    print_machine()
    X, y = digits(2000, seed=0)
    model, path = deq(*network(SMALL, 0)), list[dict[str, Tensor]]()
    for part in range(4):
        trained(model, X, y, steps=10, seed=part)
        path.append({name: value.detach().clone() for name, value in model.parameters().items()})
    some, classes = X[: given.samples], y[: given.samples]
    options = {
        "loss": nn.functional.cross_entropy,
        "solver": SOLVER,
        "rtol": RTOL,
        "max_steps": BUDGET,
        "unsolved": "last",
    }
    print(
        f"{given.points} x {given.points} points, {given.samples} images, {BUDGET} steps of Anderson at most, "
        f"{given.workers} processes"
    )
    start, used = time.perf_counter(), _used()

    def progress(done: int, total: int) -> None:
        if done % (10 * given.points) == 0:
            print(f"  {done} of {total} points, {time.perf_counter() - start:.0f} s", flush=True)

    generator = torch.Generator().manual_seed(7)
    found = nd.landscape(
        model,
        some,
        classes,
        points=given.points,
        reach=REACH,
        generator=generator,
        workers=given.workers,
        progress=progress,
        **options,
    )
    seconds, used = time.perf_counter() - start, _used() - used
    print(found)
    print(f"{seconds:.0f} s, {used:.0f} s of processor time, {used / found.loss.numel() * 1e3:.0f} ms a point")
    walk = nd.landscape(model, some, classes, points=5, path=path[:-1], **options)
    assert walk.off_plane is not None
    print(walk)
    print(f"path of training: off its principal plane by {float(walk.off_plane.max()):.3g} of its reach at most")
    half = given.points // 2
    return verdict("the centre is the model", float(found.loss[half, half]) == found.centre) + verdict(
        f"at most {MOST} s", seconds <= MOST
    )


def _used() -> float:
    """Return the processor time of this process and of those it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    sys.exit(main())
