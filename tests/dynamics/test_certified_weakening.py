"""Bounds of certified descent weakened on purpose: the comparison with the exact run must notice each of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from descent_truth import ExactDescent, matrix, violations
from flint import arb
from torch import Tensor

from ntk_deq.certified.dense import Ball
from ntk_deq.dynamics import proven as certified_point
from ntk_deq.dynamics.proven import curvature, operations
from ntk_deq.dynamics.proven import descent as certified_descent
from ntk_deq.systems import EquilibriumModel, ImplicitReLU, LinearImplicit


def of(rows: Any) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


@dataclass(frozen=True)
class Case:
    """A run whose bounds are close to the truth in one respect."""

    model: EquilibriumModel
    X: Tensor
    y: Tensor
    step: float | arb
    steps: int
    shift: dict[str, Tensor] | None = None
    true_step: float | None = None
    options: tuple[tuple[str, Any], ...] = ()

    def violations(self) -> list[str]:
        """Run and compare."""
        size = math.sqrt(sum(float((v * v).sum()) for v in (self.shift or {}).values())) * (1 + 1e-13)
        run = certified_descent.certified_descent(
            self.model,
            self.X,
            self.y,
            step=self.step,
            steps=self.steps,
            keep=range(self.steps + 1),
            start_error=size,
            **{"largest_error": 10.0, **dict(self.options)},
        )
        shift = {name: matrix(value) for name, value in (self.shift or {}).items()}
        eta = self.step if self.true_step is None else self.true_step
        exact = ExactDescent(self.model, self.X, self.y, eta, bits=300 + 8 * self.steps, shift=shift)
        return violations(run, exact, spectra_every=1)


def small(seed: int = 1) -> tuple[ImplicitReLU, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    model = ImplicitReLU.random(2, 3, generator=g)
    return model, torch.randn(3, 2, generator=g, dtype=torch.float64), torch.randn(3, generator=g, dtype=torch.float64)


def extreme_direction(
    model: EquilibriumModel, X: Tensor, y: Tensor, *, largest: bool, size: float
) -> dict[str, Tensor]:
    """Return a shift along an extreme eigenvector of the loss's Hessian, by automatic differentiation."""
    names = list(model.parameters())
    shapes = [model.parameters()[name].shape for name in names]

    def loss(flat: Tensor) -> Tensor:
        parts = dict(zip(names, flat.split([shape.numel() for shape in shapes]), strict=True))
        values = {name: parts[name].reshape(shape) for name, shape in zip(names, shapes, strict=True)}
        Z = model.initial_state(X)
        for _ in range(200):
            Z = model.step(Z, X, values)
        return ((model.readout(Z, values) - y) ** 2).sum() / 2

    start = torch.cat([model.parameters()[name].flatten() for name in names])
    vectors = torch.linalg.eigh(torch.autograd.functional.hessian(loss, start))[1]
    chosen = size * vectors[:, -1 if largest else 0]
    parts = chosen.split([shape.numel() for shape in shapes])
    return {name: part.reshape(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}


def scalar_model() -> ImplicitReLU:
    return ImplicitReLU(W=of([[0.8]]), A=of([[0.9]]), b=of([0.7]), gamma=0.75)


def rounding_case() -> Case:
    """Steps so short that the rounding of the update is nearly all of the error."""
    return Case(*small(), step=2.0**-30 * 1.3, steps=30)


def coarse_case() -> Case:
    """Solves so coarse that their residual is nearly all of the error, in a model where all signs agree."""
    return Case(scalar_model(), of([[1.0]]), of([0.3]), step=0.01, steps=3, options=(("rtol", 0.03),))


def bent_case() -> Case:
    """A residual so large that it alone makes the Hessian: the bound on the curvature is then sharp."""
    model, X, y = scalar_model(), of([[1.0]]), of([1000.0])
    return Case(model, X, y, step=1e-4, steps=1, shift=extreme_direction(model, X, y, largest=False, size=1e-6))


def bent_linear_case() -> Case:
    """The same in a linear model."""
    model, X, y = LinearImplicit(W=of([[0.6]]), U=of([[0.8]]), b=of([0.7])), of([[1.0]]), of([1000.0])
    return Case(model, X, y, step=1e-4, steps=1, shift=extreme_direction(model, X, y, largest=False, size=1e-6))


def stiff_case() -> Case:
    """A step too long for stability, with almost no residual."""
    model, X = scalar_model(), of([[1.0]])
    y = of([1.7])
    return Case(model, X, y, step=2.0, steps=1, shift=extreme_direction(model, X, y, largest=True, size=1e-6))


def outer_kink_case() -> Case:
    """Float and exact run on two sides of a kink of the outer relu."""
    model = ImplicitReLU(W=of([[1.0, -1.0]]), A=of([[0.3, 1e-9], [0.0, 0.2]]), b=of([0.5, 1.0]), gamma=0.5)
    shift = {"A": of([[0.0, -2e-9], [0.0, 0.0]])}
    return Case(model, of([[1.0]]), of([2.0]), step=0.1, steps=1, shift=shift)


def inner_kink_case() -> Case:
    """Likewise of the inner relu."""
    model = scalar_model().with_parameters({"W": of([[1e-9]])})
    return Case(model, of([[1.0]]), of([2.0]), step=0.1, steps=1, shift={"W": of([[-2e-9]])})


def zero_weight_case() -> Case:
    """A float pre-activation that is exactly zero, and an exact one that is not."""
    model = ImplicitReLU(W=of([[1.0, -1.0]]), A=torch.zeros(2, 2, dtype=torch.float64), b=of([0.5, 1.0]), gamma=0.5)
    return Case(model, of([[1.0]]), of([2.0]), step=0.1, steps=1, shift={"A": of([[0.0, 1e-9], [0.0, 0.0]])})


def shifted_case() -> Case:
    """An exact start away from the float one."""
    model, X, y = small()
    g = torch.Generator().manual_seed(5)
    shift = {k: 1e-5 * torch.randn(v.shape, generator=g, dtype=v.dtype) for k, v in model.parameters().items()}
    return Case(model, X, y, step=0.01, steps=3, shift=shift)


def drifting_case() -> Case:
    """Norms carried from one decomposition over many steps."""
    return Case(*small(), step=0.02, steps=40, options=(("share", 0.9),))


def uncertain_step_case() -> Case:
    """A step size known to lie in an interval only."""
    return Case(*small(), step=arb("0.05", "0.001"), true_step=0.0509, steps=3)


CASES: dict[str, Callable[[], Case]] = {
    "rounding": rounding_case,
    "coarse": coarse_case,
    "bent": bent_case,
    "bent linear": bent_linear_case,
    "stiff": stiff_case,
    "outer kink": outer_kink_case,
    "inner kink": inner_kink_case,
    "zero weight": zero_weight_case,
    "shifted": shifted_case,
    "drifting": drifting_case,
    "uncertain step": uncertain_step_case,
}


@pytest.mark.parametrize("name", CASES)
def test_sound_bounds_hold(name):
    assert CASES[name]().violations() == []


def test_every_case_holds_without_the_hessian(monkeypatch):
    monkeypatch.setattr(certified_descent, "is_small", lambda point: False)
    for case in CASES.values():
        assert case().violations() == []


def scaled(function: Callable[..., Any], factor: float) -> Callable[..., Any]:
    return lambda *args, **kwargs: factor * function(*args, **kwargs)


def halved_error(original: Callable[..., str]) -> Callable[..., str]:
    def advance(self: Any, *args: Any) -> str:
        reason = original(self, *args)
        self.error /= 2
        self.errors = {name: value / 2 for name, value in self.errors.items()}
        return reason

    return advance


def without(**fields: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a change of a function that puts something else into its result."""
    return lambda function: lambda *args, **kwargs: replace(function(*args, **kwargs), **fields)


def no_jump(*args: Any) -> curvature.Jump:
    return curvature.Jump(0, (0.0, 0.0, 0.0), torch.ones(1, 1, dtype=torch.bool))


def plain_norm(self: Any, matrix: Ball) -> tuple[float, float]:
    exact = operations.CarriedNorm()
    return BOUND(exact, Ball(matrix.centre))


BOUND = operations.CarriedNorm.bound
run = certified_descent

not_small = (run, "is_small", lambda point: False)


def swapped_row_multiples(factors: Ball, a: Ball) -> Ball:
    """Pair the norms and the radii of a product the wrong way round."""
    found = operations.row_multiples(factors, a)
    wrong = factors.fro * factors.radius + operations.longest_row(a) * a.radius
    return Ball(found.centre, wrong)


# What; the case and the bound in which it shows; what to put in place of what.
WEAKENINGS: dict[str, tuple[str, str, tuple[tuple[Any, str, Any], ...]]] = {
    "the update is exact": ("rounding", "theta", ((operations, "sum_error", lambda a, b, total: torch.zeros_like(a)),)),
    "the float state is the solution": ("coarse", "theta", ((certified_point, "_distance", lambda *args: 0.0),)),
    "a residual is a distance": ("coarse", "theta", ((run, "banach_bound", lambda residual, contraction: residual),)),
    "radii of a product in the wrong place": (
        "coarse",
        "theta",
        ((certified_point, "row_multiples", swapped_row_multiples),),
    ),
    "errors do not grow": ("bent", "theta", ((run, "_lipschitz", lambda bend, stiff: 1.0),)),
    "half the curvature": ("bent", "theta", ((run, "expansion", scaled(run.expansion, 0.5)),)),
    "half the curvature of a linear model": (
        "bent linear",
        "theta",
        (not_small, (curvature, "_summed", scaled(curvature._summed, 0.5))),
    ),
    "half the amplification": (
        "bent",
        "theta",
        (not_small, (run.CarriedStretch, "bounds", scaled(run.CarriedStretch.bounds, 0.5))),
    ),
    "half the smallest eigenvalue": (
        "bent",
        "theta",
        ((run.CertifiedRun, "_contraction", lambda self, low, high: 1 - 0.5 * self.eta * low),),
    ),
    "no residual in the Hessian": (
        "bent",
        "theta",
        ((run, "hessian", lambda *args: Ball(torch.zeros(3, 3, dtype=torch.float64))),),
    ),
    "half the error": ("bent", "theta", ((run.CertifiedRun, "advance", halved_error(run.CertifiedRun.advance)),)),
    "the state does not depend on the parameters": (
        "bent",
        "sigma_min(",
        ((run, "reach", without(state=0.0)(run.reach)),),
    ),
    "nothing is stiff": ("stiff", "theta", ((run, "_lipschitz", lambda bend, stiff: 1.0 + bend),)),
    "half the largest eigenvalue": (
        "stiff",
        "theta",
        ((run.CertifiedRun, "_contraction", lambda self, low, high: abs(1 - 0.5 * self.eta * high)),),
    ),
    "half the kernel": ("stiff", "theta", (not_small, (run, "kernel_gain", scaled(run.kernel_gain, 0.5)))),
    "half the quick bound on the kernel": ("stiff", "theta", (not_small, (run, "gain", scaled(run.gain, 0.25)))),
    "half the error, stiff": (
        "stiff",
        "theta",
        ((run.CertifiedRun, "advance", halved_error(run.CertifiedRun.advance)),),
    ),
    "outer kinks are nothing": ("outer kink", "theta", ((run, "kink_jump", no_jump),)),
    "inner kinks are nothing": ("inner kink", "theta", ((run, "kink_jump", no_jump),)),
    "every zero stays": ("zero weight", "theta", ((curvature, "_exact_zeros", lambda supposed, *rest: supposed),)),
    "the loss is that of the float iterate": ("shifted", "L[", ((run, "reach", without(residual=0.0)(run.reach)),)),
    "norms are those of the float iterate": (
        "shifted",
        "norm(",
        ((operations.CarriedNorm, "bound", plain_norm),),
    ),
    "carried norms do not move": ("drifting", "norm(", ((operations, "distance", lambda a, b: 0.0),)),
    "the step is its midpoint": (
        "uncertain step",
        "theta",
        ((certified_descent, "value_and_radius", lambda step: (float(step.mid()), 0.0)),),
    ),
}


@pytest.mark.parametrize("what", WEAKENINGS)
def test_a_weakened_bound_is_caught(what, monkeypatch):
    name, where, patches = WEAKENINGS[what]
    for module, attribute, replacement in patches:
        monkeypatch.setattr(module, attribute, replacement)
    assert any(found.startswith(where) for found in CASES[name]().violations())
