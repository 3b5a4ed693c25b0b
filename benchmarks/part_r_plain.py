"""The static claims of part R in plain floating point, by the same structure and without any error bound.

Nothing of order N m is formed: kron(A', I(N)) is one block for each sample, and row n of M is gamma g_n (x) z_n.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from ntk_deq.equilibrium import fixed_point, solve_fixed_point
from ntk_deq.evaluation.floats import SOLVER

STEPS = 24


class Plain:
    """One instance; each quantity is computed once, when asked for, as the evaluator does."""

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        self.v = {name: v[:, None] if v.ndim == 1 else v for name, v in values.items()}
        self.gamma = float(values["gamma"])

    def _equilibrium(self, W: Tensor, A: Tensor, start: Tensor | None = None) -> Tensor:
        phi, scaled = torch.relu(self.v["X"] @ W), self.gamma * A
        q = self.gamma * float(torch.linalg.matrix_norm(A, 2))
        start = torch.zeros_like(phi) if start is None else start
        solved = solve_fixed_point(
            lambda z: torch.relu(z @ scaled + phi), start, solver=SOLVER, batch_dims=0, contraction=q, max_steps=20_000
        )
        return solved.value

    @cached_property
    def Z(self) -> Tensor:
        """The equilibrium."""
        return self._equilibrium(self.v["W"], self.v["A"])

    @cached_property
    def phi(self) -> Tensor:
        """The input features."""
        return torch.relu(self.v["X"] @ self.v["W"])

    @cached_property
    def D(self) -> Tensor:
        """Derivatives of the outer ReLU, N x m."""
        return (self.gamma * self.Z @ self.v["A"] + self.phi > 0).to(self.Z)

    @cached_property
    def E(self) -> Tensor:
        """Derivatives of the inner ReLU, N x m."""
        return (self.v["X"] @ self.v["W"] > 0).to(self.Z)

    @cached_property
    def Q(self) -> Tensor:
        """The blocks of Q, N x m x m."""
        one = torch.eye(self.Z.shape[1], dtype=self.Z.dtype)
        return one - self.gamma * self.D[:, :, None] * self.v["A"].mT

    @cached_property
    def inverse(self) -> Tensor:
        """The blocks of inv(Q)."""
        return torch.linalg.inv(self.Q)

    @cached_property
    def G(self) -> Tensor:
        """Row n is that of kron(b', I(N)) inv(Q) D, N x m."""
        return (self.v["b"].mT @ self.inverse)[:, 0] * self.D

    @cached_property
    def M(self) -> Tensor:
        """The matrix M of section 4, N x m^2."""
        return self.gamma * (self.G[:, :, None] * self.Z[:, None, :]).flatten(1)

    @cached_property
    def P(self) -> Tensor:
        """The matrix Pi of section 4, N x d m."""
        return ((self.G * self.E)[:, :, None] * self.v["X"][:, None, :]).flatten(1)

    @property
    def weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """What the derivatives are taken by."""
        return self.v["W"], self.v["A"], self.v["b"]

    def prediction(self, W: Tensor, A: Tensor, b: Tensor) -> Tensor:
        """Return the network's output, differentiable through the equilibrium."""

        def step(z: Tensor, W: Tensor, A: Tensor) -> Tensor:
            return torch.relu(self.gamma * z @ A + torch.relu(self.v["X"] @ W))

        return (fixed_point(step, self.Z.detach(), W, A, solver=SOLVER, batch_dims=0) @ b)[:, 0]

    def loss(self, W: Tensor, A: Tensor, b: Tensor) -> Tensor:
        """Return half the sum of squared residuals."""
        return 0.5 * ((self.prediction(W, A, b) - self.v["y"][:, 0]) ** 2).sum()


def _norm(a: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(a, 2)


def _sigma_min(a: Tensor) -> Tensor:
    return torch.linalg.svdvals(a)[..., -1].min()


def bounded_equilibrium(p: Plain) -> list[Tensor]:
    """R.L3.1."""
    again = p._equilibrium(p.v["W"], p.v["A"], p.v["S"])
    image = torch.relu(p.gamma * p.Z @ p.v["A"] + p.phi)
    found = [_norm(p.v["A"]), (image - p.Z).norm(), (again - p.Z).norm(), p.Z.norm(), p.phi.norm()]
    z = torch.zeros_like(p.Z)
    for _ in range(STEPS):
        z = torch.relu(p.gamma * z @ p.v["A"] + p.phi)
        found.append(z.norm())
    return found


def differences(p: Plain) -> list[Tensor]:
    """R.L3.1.decrease."""
    iterates = [torch.zeros_like(p.phi)]
    for _ in range(STEPS):
        iterates.append(torch.relu(p.gamma * iterates[-1] @ p.v["A"] + p.phi))
    return [_norm(p.v["A"])] + [(b - a).norm() for a, b in pairwise(iterates)]


def pairs(p: Plain) -> list[Tensor]:
    """R.L3.1.cauchy."""
    iterates = [torch.zeros_like(p.phi)]
    for _ in range(16):
        iterates.append(torch.relu(p.gamma * iterates[-1] @ p.v["A"] + p.phi))
    return [_norm(p.v["A"])] + [(a - b).norm() for i, a in enumerate(iterates) for b in iterates[i:]]


def eigenvalues(p: Plain) -> list[Tensor]:
    """R.L3.2."""
    return [_norm(p.v["A"]), torch.linalg.eigvals(p.Q).real.min(), _sigma_min(p.Q)]


def gradients(p: Plain) -> list[Tensor]:
    """R.L3.2g."""
    residual = p.Z @ p.v["b"] - p.v["y"]
    g = p.G * residual
    by_W, by_A, by_b = torch.func.grad(p.loss, argnums=(0, 1, 2))(*p.weights)
    formulas = (p.v["X"].mT @ (g * p.E), p.gamma * p.Z.mT @ g, p.Z.mT @ residual)
    return [_norm(p.v["A"])] + [(x - y).norm() for x, y in zip(formulas, (by_W, by_A, by_b), strict=True)]


def kernel(p: Plain) -> list[Tensor]:
    """R.L4.1."""
    residual = p.Z @ p.v["b"] - p.v["y"]
    jacobians = [J.flatten(1) for J in torch.func.jacrev(p.prediction, argnums=(0, 1, 2))(*p.weights)]
    gradients = torch.func.grad(p.loss, argnums=(0, 1, 2))(*p.weights)
    H = p.Z @ p.Z.mT + p.M @ p.M.mT + p.P @ p.P.mT
    other = sum(J @ J.mT for J in jacobians)
    moved = sum(J @ g.reshape(-1, 1) for J, g in zip(jacobians, gradients, strict=True))
    return [_norm(p.v["A"]), (H - other).norm(), (moved - H @ residual).norm(), torch.linalg.eigvalsh(H)[0]]


def feature_bound(p: Plain) -> list[Tensor]:
    """R.S4M."""
    return [_norm(p.v["A"]), _sigma_min(p.M), p.v["b"].norm(), p.D.min(), _sigma_min(p.Z)]


def input_bound(p: Plain) -> list[Tensor]:
    """R.S4P."""
    return [_norm(p.v["A"]), _sigma_min(p.P), p.v["b"].norm(), p.D.min(), p.E.min(), _sigma_min(p.v["X"])]


def perturbation(p: Plain) -> list[Tensor]:
    """R.L4.3."""
    W, A, Wb, Ab = (p.v[name] for name in ("W", "A", "Wb", "Ab"))
    other = p._equilibrium(Wb, Ab)
    return [_norm(x) for x in (W, Wb, A, Ab, p.Z - other, A - Ab, W - Wb)] + [p.v["X"].norm()]


def closed_form(p: Plain) -> list[Tensor]:
    """R.L5.1."""
    one = torch.eye(p.Z.shape[1], dtype=p.Z.dtype)
    closed = p.phi @ torch.linalg.inv(one - p.gamma * p.v["A"])
    return [_norm(p.v["A"]), (p.Z - closed).norm(), _sigma_min(p.Z), _sigma_min(p.phi)]


def linear_iterates(p: Plain) -> list[Tensor]:
    """R.L5.1.proof."""
    scaled, found = p.gamma * p.v["A"], [_norm(p.v["A"])]
    iterates = [torch.zeros_like(p.phi)]
    for _ in range(12):
        iterates.append(torch.relu(iterates[-1] @ scaled + p.phi))
        found.append((iterates[-1] - (iterates[-2] @ scaled + p.phi)).norm())
    one = torch.eye(len(scaled), dtype=scaled.dtype)
    return [*found, (iterates[2] - p.phi @ (scaled + one)).norm(), (iterates[1] - p.phi).norm()]


PLAIN: dict[str, Callable[[Plain], list[Tensor]]] = {
    "R.L3.1": bounded_equilibrium,
    "R.L3.1.decrease": differences,
    "R.L3.1.cauchy": pairs,
    "R.L3.2": eigenvalues,
    "R.L3.2g": gradients,
    "R.L4.1": kernel,
    "R.S4M": feature_bound,
    "R.S4M.repaired": feature_bound,
    "R.S4P": input_bound,
    "R.S4P.repaired": input_bound,
    "R.L4.3": perturbation,
    "R.L5.1": closed_form,
    "R.L5.1.proof": linear_iterates,
}
"""What to compute for each claim."""
