"""A step of gradient descent: products done, its time against theirs, and against torchdeq's implicit layer.

torchdeq must not come with its own torch. Put it beside the environment, not into it; without it that line is skipped:

    pip install --no-deps --target FOLDER torchdeq==0.1.0
    PYTHONPATH=FOLDER python -m benchmarks.descent_step
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from benchmarks.machine import print_machine, print_table, verdict
from ntk_deq.dynamics import FieldPoint, gradient_descent
from ntk_deq.systems import ImplicitReLU

PRODUCTS, OVERHEAD, FASTER = 8, 1.7, 5
RTOL = 1e-10
CONSTANT = 0.5  # C1 = C2 = C3 of the theorem
WARM_UP = 30
EVERY = 10
_STATES = 15


@dataclass(frozen=True)
class Instance:
    """A model with orthonormal inputs, signs as targets, and the step that Theorem 4.4 allows with C1 = C2 = C3."""

    model: ImplicitReLU
    X: Tensor
    y: Tensor
    step: float


def instance(N: int, m: int, beta: float, device: str = "cpu") -> Instance:
    """Draw W ~ beta N(0, 1), b ~ N(0, 1/m), and A of norm 1 beside gamma = 1/2, so that gamma ||A|| = 1/2."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    A, W, b = normal(m, m), beta * normal(N, m), normal(m) / m**0.5
    A = A.to(device)
    A /= torch.linalg.matrix_norm(A, ord=2)
    X = torch.linalg.qr(normal(N, N))[0].contiguous()
    y = normal(N).sign()
    model = ImplicitReLU(W=W.to(device), A=A, b=b.to(device), gamma=0.5)
    return Instance(model, X.to(device), y.to(device), theorem_step(model, X))


def theorem_step(model: ImplicitReLU, X: Tensor, constant: float = CONSTANT) -> float:
    """Return the second bound of (20), 2 (1 - g)^2 l / (l1^4 l3^2 fro(X)^2), the smaller one."""
    l1 = float(torch.linalg.matrix_norm(model.W, ord=2)) + constant
    l2 = float(torch.linalg.matrix_norm(model.A, ord=2)) + constant
    l3 = float(model.b.norm()) + constant
    g = float(model.gamma) * l2
    kappa = 1 + g**2 / (1 - g) ** 2 * l1**2 / l2**2
    bound = kappa * (kappa / l1**2 + 1 / l3**2) ** -2
    return 2 * (1 - g) ** 2 * bound / (l1**4 * l3**2 * float(X.norm()) ** 2)


@dataclass
class Watch:
    """Times the steps of a run from its callback, and lets others have their turns in between.

    Attributes:
        fixed: Products of each step besides the iterations: Z'G, and X W and X'G with d in place of m.
        between: Others' turns, which return their times.
        seconds: Time of each step.
        products: Products of each step, N x m by m x m.
        others: Times of the others, in rounds.
        started: When the step at hand began.
    """

    fixed: float
    between: list[Callable[[], float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    products: list[float] = field(default_factory=list)
    others: list[list[float]] = field(default_factory=list)
    started: float = math.nan

    def __call__(self, k: int, point: FieldPoint) -> None:
        """Take the time since the last step."""
        if point.state.is_cuda:
            torch.cuda.synchronize()
        now = perf_counter()
        if k > WARM_UP:
            self.seconds.append(now - self.started)
            self.products.append(point.forward_steps + point.adjoint_steps + self.fixed)
            if (k - WARM_UP) % EVERY == 0:
                self.others.append([turn() for turn in self.between])
        self.started = perf_counter()


def product_time(N: int, m: int, like: Tensor, repeats: int = 20) -> float:
    """Return the time of an N x m by m x m product where it is done as in a step.

    A step has some fifteen states in hand (the last ones of both kinds, Phi, buffers), multiplies by A and by A', and
    comes back to each of them after others: a product of the same two matrices again and again would find them in the
    cache, and take less than the products that a step does.
    """
    states = [like.new_ones(N, m) for _ in range(_STATES)]
    weight = like.new_ones(m, m)
    start = perf_counter()
    for i in range(repeats):
        Z, out = states[2 * i % _STATES], states[(2 * i + 1) % _STATES]
        torch.mm(Z, weight if i % 2 else weight.T, out=out)
    if like.is_cuda:
        torch.cuda.synchronize()
    return (perf_counter() - start) / repeats


class TorchdeqLoop:
    """Descent by autograd through torchdeq's implicit layer; its adjoint cannot be warm-started."""

    def __init__(self, given: Instance, *, warm: bool) -> None:
        from torchdeq import get_deq

        self.layer = get_deq(
            ift=True, f_solver="fixed_point_iter", b_solver="fixed_point_iter", f_max_iter=500, b_max_iter=500,
            f_tol=RTOL, b_tol=RTOL, f_stop_mode="rel", b_stop_mode="rel",
        )  # fmt: skip
        self.layer.train()
        self.given, self.warm = given, warm
        self.parameters = [p.clone().requires_grad_() for p in given.model.parameters().values()]
        self.state = given.model.initial_state(given.X)

    def gradients(self) -> tuple[Tensor, ...]:
        """Return the gradients at the present parameters."""
        W, A, b = self.parameters
        given, gamma = self.given, float(self.given.model.gamma)
        Phi = torch.relu(given.X @ W)
        states, _ = self.layer(lambda Z: torch.relu(gamma * Z @ A + Phi), self.state)
        Z = states[-1]
        if self.warm:
            self.state = Z.detach()
        return torch.autograd.grad((Z @ b - given.y).square().sum() / 2, self.parameters)

    def __call__(self) -> float:
        """Take a step and return its time."""
        start = perf_counter()
        with torch.enable_grad():
            gradients = self.gradients()
        with torch.no_grad():
            for parameter, gradient in zip(self.parameters, gradients, strict=True):
                parameter -= self.given.step * gradient
        if self.state.is_cuda:
            torch.cuda.synchronize()
        return perf_counter() - start


def measure(given: Instance, steps: int, extrapolation: int, between: list[Callable[[], float]]) -> Watch:
    """Run descent with its default recorders and return the times."""
    d, m = given.model.W.shape
    watch = Watch(1 + 2 * d / m, between)
    gradient_descent(
        given.model, given.X, given.y, step=given.step, steps=WARM_UP + steps, rtol=RTOL, extrapolation=extrapolation,
        snapshots=8, on_step=watch,
    )  # fmt: skip
    return watch


def main() -> int:
    """Print the tables and return the number of missed targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--N", type=int, default=256)
    parser.add_argument("--m", type=int, default=512)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    N, m, device = given.N, given.m, given.device
    print_machine()
    print(f"N = {N}, m = {m}, d = {N}, gamma ||A|| = 0.5, float64 on {device}; equilibria and adjoints to {RTOL:g}")
    print(f"step: the bound of (20) with C1 = C2 = C3 = {CONSTANT}; means of {given.steps} steps after {WARM_UP}")
    print("products: N x m by m x m, iterations and Z'G, and X W and X'G as d/m of one each")
    rows = []
    for beta in (10.0, 1.0, m**-0.5):
        problem = instance(N, m, beta, device)
        for degree in (0, 2):
            watch = measure(problem, given.steps, degree, [])
            count = sum(watch.products) / len(watch.products)
            start = "plain" if degree == 0 else "extrapolated"
            rows.append([f"{beta:.3g}", f"{problem.step:.1e}", start, f"{count:.2f}"])
            if beta == 1.0 and degree == 2:
                mean = count
    print_table(["W ~ beta N(0, 1)", "step", "warm start", "products"], rows)
    problem = instance(N, m, 1.0, device)
    turns: list[Callable[[], float]] = [lambda: product_time(N, m, problem.X)]
    names = ["one product"]
    if importlib.util.find_spec("torchdeq") is None:
        print("torchdeq is skipped: it is not installed (see the top of this file)")
    else:
        first, second = TorchdeqLoop(problem, warm=False), TorchdeqLoop(problem, warm=True)
        expected = dict(zip(problem.model.parameters(), first.gradients(), strict=True))
        print(f"gradients of torchdeq agree to {agreement(problem, expected):.0e}")
        turns += [first, second]
        names += ["torchdeq, cold forward start", "torchdeq, warm forward start"]
    watch = measure(problem, given.steps, 2, turns)
    return mean_and_verdicts(watch, names, mean)


def agreement(given: Instance, expected: dict[str, Tensor]) -> float:
    """Return the largest relative difference of the gradients at the start."""
    found: dict[str, Tensor] = {}

    def keep(k: int, point: FieldPoint) -> None:
        found.update({name: value.clone() for name, value in point.gradients.items()})

    gradient_descent(given.model, given.X, given.y, step=given.step, steps=0, rtol=RTOL, on_step=keep)
    return max(float((found[name] - value).norm() / value.norm()) for name, value in expected.items())


def mean_and_verdicts(watch: Watch, names: list[str], mean: float) -> int:
    """Print times and verdicts; the median of rounds, in each of which all had their turn."""
    rounds = [
        (sum(watch.seconds[EVERY * i : EVERY * (i + 1)]), sum(watch.products[EVERY * i : EVERY * (i + 1)]), other)
        for i, other in enumerate(watch.others)
    ]
    step = median(seconds for seconds, _, _ in rounds) / EVERY
    overhead = median(seconds / (products * other[0]) for seconds, products, other in rounds)
    rows = [["a step of ours", f"{step * 1e3:.2f} ms", ""]]
    ratios = []
    for place, name in enumerate(names):
        ratio = median(other[place] / (seconds / EVERY) for seconds, _, other in rounds)
        ratios.append(ratio)
        rows.append([name, f"{median(o[place] for _, _, o in rounds) * 1e3:.2f} ms", f"{ratio:.2f}"])
    print_table(["", "time", "over ours"], rows)
    missed = verdict(f"at most {PRODUCTS} products a step ({mean:.2f})", mean <= PRODUCTS)
    missed += verdict(f"at most {OVERHEAD} times the products' time ({overhead:.2f})", overhead <= OVERHEAD)
    if len(ratios) > 1:
        faster = min(ratios[1:])
        missed += verdict(f"at least {FASTER} times faster than torchdeq ({faster:.1f})", faster >= FASTER)
    return missed


if __name__ == "__main__":
    sys.exit(main())
