"""A small convolutional DEQ on MNIST digits: the numbers of experiments 4.1 and 4.2 of the thesis, in small.

    python -m figures.deq_digits [--seeds 0 1 2] [--steps 40] [--out checks/results/deq_digits.json]

The cell is the thesis' (4.1), z = norm(relu(z + norm(x + V * norm(relu(U * z))))), with group norm, where x is a
convolution of the image. Trained are the DEQ and weight-tied networks that repeat the cell 6, 11 and 18 times, from one
start and on the same batches. Measured, for every seed: relative residuals of Picard and Anderson at the start, for
weights of standard deviation 0.01 and 1; lengths and dimensions of trajectories before and after training; widths of
the neighbourhood in which the loss rises by at most `RISE`; and for the first seed the loss on a plane.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor, nn

import ntk_deq as nd
from ntk_deq.equilibrium import Anderson
from ntk_deq.errors import EquilibriumError
from ntk_deq.files.results import Producer, write_results
from ntk_deq.systems import ModuleModel

SIDE, CHANNELS, GROUPS, CLASSES = 7, 8, 4, 10
SMALL, LARGE = 0.01, 1.0
REPEATS = (6, 11, 18)
FOLLOWED, REACHED = 60, 1e-3  # solver steps that are followed, and the relative residual that counts as arrived
RISE, DIRECTIONS = 0.5, 4
GRID, REACH = 51, 1.0
SOLVER, RTOL, MOST, BUDGET = Anderson(memory=10), 1e-2, 200, 60


class Cell(nn.Module):
    """The map of (4.1), with weights drawn with a standard deviation."""

    def __init__(self, deviation: float, generator: torch.Generator) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False) for _ in range(2))
        self.read = nn.Conv2d(1, CHANNELS, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(GROUPS, CHANNELS) for _ in range(3))
        for layer in (self.first, self.second):
            layer.weight.data = deviation * torch.randn(layer.weight.shape, generator=generator)
        self.read.weight.data = torch.randn(self.read.weight.shape, generator=generator) / 3
        self.read.bias.data.zero_()

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        """Return the next state."""
        inner = self.norms[0](torch.relu(self.first(z)))
        found: Tensor = self.norms[2](torch.relu(z + self.norms[1](self.read(x) + self.second(inner))))
        return found


def readout(generator: torch.Generator) -> nn.Module:
    """Return a linear readout of ten classes."""
    layer = nn.Linear(CHANNELS * SIDE**2, CLASSES)
    layer.weight.data = torch.randn(layer.weight.shape, generator=generator) / layer.in_features**0.5
    layer.bias.data.zero_()
    return nn.Sequential(nn.Flatten(), layer)


class Repeated(nn.Module):
    """The weight-tied network that applies the cell a number of times."""

    def __init__(self, cell: nn.Module, read: nn.Module, repeats: int) -> None:
        super().__init__()
        self.cell, self.read, self.repeats = cell, read, repeats

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of the classes."""
        z = x.new_zeros(len(x), CHANNELS, SIDE, SIDE)
        for _ in range(self.repeats):
            z = self.cell(z, x)
        found: Tensor = self.read(z)
        return found


def network(deviation: float, seed: int) -> tuple[Cell, nn.Module]:
    """Return cell and readout for a seed."""
    generator = torch.Generator().manual_seed(seed)
    return Cell(deviation, generator), readout(generator)


def deq(cell: nn.Module, read: nn.Module) -> ModuleModel:
    """Return the equilibrium of a cell as a model."""
    return nd.equilibrium_module(cell, read, width=(CHANNELS, SIDE, SIDE), inputs=(1, SIDE, SIDE))


def digits(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return images N x 1 x side x side between 0 and 1, and classes."""
    from ntk_deq.data import load_images, resize_area

    every = load_images("mnist")
    images, labels = torch.tensor(every.images).double(), torch.tensor(every.labels)
    chosen = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))[:count]
    small = resize_area(images[chosen], SIDE)
    return (small / small.max()).float().unsqueeze(1), labels[chosen].long()


def trained(model: ModuleModel | nn.Module, X: Tensor, y: Tensor, *, steps: int, seed: int) -> tuple[float, int]:
    """Train in place by Adam; return the last loss, and the steps that were left out for want of an equilibrium."""
    weights = (
        [value for value in model.parameters().values()] if isinstance(model, ModuleModel) else list(model.parameters())
    )
    optimiser = torch.optim.Adam(weights, lr=2e-3)
    generator, left, last = torch.Generator().manual_seed(seed), 0, float("nan")
    for _ in range(steps):
        batch = torch.randint(len(X), (64,), generator=generator)
        try:
            if isinstance(model, ModuleModel):
                scores = nd.predict(model, X[batch], solver=SOLVER, rtol=RTOL, max_steps=MOST)
            else:
                scores = model(X[batch])
            loss = nn.functional.cross_entropy(scores, y[batch])
            optimiser.zero_grad()
            loss.backward()
        except EquilibriumError:
            left += 1
            continue
        optimiser.step()
        last = float(loss.detach())
    return last, left


def residuals(deviation: float, seed: int, X: Tensor, solver: str) -> dict[str, list[float] | float]:
    """Return the mean relative residual per step at the start, the steps to `REACHED`, and by how much it rises.

    "Steadier" is the sum of all rises of the mean's logarithm (base 10), over all steps: 0 where it only falls.
    """
    found = nd.trajectory(deq(*network(deviation, seed)), X, steps=FOLLOWED, solver=solver).relative_residual
    mean = found.double().mean(dim=1)
    arrived = torch.nonzero(mean <= REACHED)
    moves = mean.log10().diff()
    return {
        "curve": mean.tolist(),
        "steps": float(arrived[0]) if len(arrived) else float(FOLLOWED),
        "rises": float(moves.clamp(min=0).sum()),
    }


def main() -> int:
    """Run the experiment and write its results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--samples", type=int, default=32, help="images on which losses and trajectories are measured")
    parser.add_argument("--grid", type=int, default=GRID)
    parser.add_argument("--out", default="checks/results/deq_digits.json")
    given = parser.parse_args()
    torch.manual_seed(0)  # group norm draws nothing; for what torch may draw while it makes layers
    start = time.process_time()
    X, y = digits(2000, seed=0)
    looked = X[: given.samples]
    values: dict[str, object] = {}
    rows: dict[str, list[object]] = {}

    def keep(name: str, value: object) -> None:
        rows.setdefault(name, []).append(value)

    for seed in given.seeds:
        for name, deviation in (("small", SMALL), ("large", LARGE)):
            for solver in ("picard", "anderson"):
                found = residuals(deviation, seed, looked, solver)
                keep(f"{solver}_steps_{name}", found["steps"])
                keep(f"{solver}_rises_{name}", found["rises"])
                keep(f"{solver}_curve_{name}", found["curve"])
        measured(seed, given, X, y, keep, values)
        print(f"seed {seed}: {time.process_time() - start:.0f} s of processor time", flush=True)
    values |= rows
    arguments = {name: value for name, value in vars(given).items() if name != "out"}
    write_results(given.out, Producer.of("figures.deq_digits", __file__, arguments), values)
    print(f"{given.out}: {time.process_time() - start:.0f} s of processor time")
    return 0


def measured(
    seed: int,
    given: argparse.Namespace,
    X: Tensor,
    y: Tensor,
    keep: Callable[[str, object], None],
    values: dict[str, object],
) -> None:
    """Train the DEQ and the weight-tied networks of one seed, and measure trajectories, widths and planes."""
    cell, read = network(SMALL, seed)
    looked, classes = X[: given.samples], y[: given.samples]
    tied = {str(k): Repeated(deepcopy(cell), deepcopy(read), k) for k in REPEATS}
    model, loss = deq(cell, read), nn.functional.cross_entropy
    first = model.parameters()
    before = nd.trajectory(
        model, looked, classes, parameters={k: v.detach().clone() for k, v in first.items()}, steps=FOLLOWED
    )
    last, left = trained(model, X, y, steps=given.steps, seed=seed)
    keep("deq_train_loss", last)
    keep("deq_steps_left_out", float(left))
    after = nd.trajectory(model, looked, classes, steps=FOLLOWED)
    for name, found in (("before", before), ("after", after)):
        keep(f"path_length_{name}", float(found.path_length.mean()))
        keep(f"dimension_{name}", found.dimension)
        keep(f"feature_dimension_{name}", found.features.dimension)
        keep(f"residual_{name}", float(found.relative_residual[-1].mean()))
        if seed == given.seeds[0]:
            shown = torch.bincount(classes, minlength=CLASSES).topk(3).indices.sort().values.tolist()
            values["path_labels"] = shown
            for label in shown:
                rows = found.coordinates(label)[::2, :6]
                values[f"path_{name}_{label}"] = [
                    [[round(float(x), 3) for x in point] for point in step] for step in rows
                ]
                values[f"explained_{name}_{label}"] = found.classes[label].explained
    # Away from the trained network equilibria are often not found: then the states after `BUDGET` steps count.
    options = {"loss": loss, "solver": SOLVER, "rtol": RTOL, "max_steps": BUDGET, "unsolved": "last"}
    some = model.solve(looked, solver=SOLVER, rtol=RTOL, max_steps=BUDGET, raise_on_failure=False)
    keep("images_unsolved", float((~some.converged).sum()))
    for name, net in {**tied, "deq": model}.items():
        if name != "deq":
            keep(f"tied_{name}_train_loss", trained(net, X, y, steps=given.steps, seed=seed)[0])
        net = net.eval() if isinstance(net, nn.Module) else net
        width = nd.neighbourhood_width(
            net,
            looked,
            classes,
            rise=RISE,
            directions=DIRECTIONS,
            resolution=5,
            generator=torch.Generator().manual_seed(100 + seed),
            **options,
        )
        keep(f"width_{name}", width.mean)
        keep(f"widths_{name}", width.widths.tolist())
        keep(f"width_capped_{name}", float(width.capped))
        if seed == given.seeds[0]:
            plane = nd.landscape(
                net,
                looked,
                classes,
                points=given.grid,
                reach=REACH,
                generator=torch.Generator().manual_seed(7),
                **options,
            )
            values[f"plane_{name}"] = [[_rounded(x) for x in row] for row in plane.loss.tolist()]
            values[f"plane_unsolved_{name}"] = float(plane.unsolved)
            values["plane_at"] = plane.at[0].tolist()


def _rounded(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None


if __name__ == "__main__":
    sys.exit(main())
