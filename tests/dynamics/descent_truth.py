"""Gradient descent in ball arithmetic of thousands of bits, from the definitions of the models: the truth."""

from __future__ import annotations

from dataclasses import dataclass

import flint
import torch
from flint import acb_mat, arb, arb_mat

from ntk_deq.dynamics.proven import CertifiedDescent
from ntk_deq.systems import ImplicitReLU, LinearImplicit

ROUNDS = 50  # patterns tried for the state of one sample


@dataclass(frozen=True)
class Exact:
    """The exact run at one step."""

    parameters: dict[str, arb_mat]
    state: arb_mat
    loss: arb


def matrix(tensor: torch.Tensor) -> arb_mat:
    """Return the matrix that floats are; a vector becomes a column."""
    wide = tensor.reshape(tensor.shape[0], -1)
    return arb_mat(*wide.shape, [arb(v) for v in wide.double().flatten().tolist()])


def row(a: arb_mat, n: int) -> arb_mat:
    return arb_mat(1, a.ncols(), [a[n, j] for j in range(a.ncols())])


def positive(a: arb) -> bool:
    """Whether a number is above zero; exact zeros are not."""
    if a > 0:
        return True
    if a <= 0:
        return False
    raise AssertionError("more bits are needed to tell a sign")


def masked(a: arb_mat, on: list[list[bool]]) -> arb_mat:
    return arb_mat(
        a.nrows(), a.ncols(), [a[i, j] if on[i][j] else arb(0) for i in range(a.nrows()) for j in range(a.ncols())]
    )


def solved_row(L: arb_mat, c: arb_mat, active: list[bool], relu: bool) -> tuple[arb_mat, list[bool], arb_mat]:
    """Return z = act(z L + c), its pattern and D (I - L D)^-1."""
    m = L.nrows()
    for _ in range(ROUNDS):
        system = arb_mat(m, m, [(i == j) - (L[i, j] if active[j] else arb(0)) for i in range(m) for j in range(m)])
        inverse = system.inv()
        z = masked(c, [active]) * inverse
        pre = z * L + c
        signs = [positive(pre[0, j]) for j in range(m)] if relu else [True] * m
        if signs == active:
            return z, active, masked(inverse, [[on] * m for on in active])
        active = signs
    raise AssertionError("no pattern fits")


class ExactDescent:
    """The exact run of a registered model, step by step.

    Args:
        model: Gives the start, as exact floats.
        X: Inputs.
        y: Targets.
        eta: The step size.
        bits: Working precision; a step costs about two bits of it.
        shift: Added to the parameters before the first step, by name.
    """

    def __init__(self, model, X, y, eta, *, bits: int, shift: dict[str, arb_mat] | None = None) -> None:
        self.relu = isinstance(model, ImplicitReLU)
        assert self.relu or isinstance(model, LinearImplicit)
        self.gamma = arb(float(model.gamma)) if self.relu else arb(1)
        self.bits = bits
        with flint.ctx.workprec(bits):
            self.X, self.y, self.eta = matrix(X), matrix(y), eta if isinstance(eta, arb) else arb(eta)
            self.p = {name: matrix(value) for name, value in model.parameters().items()}
            for name, value in (shift or {}).items():
                self.p[name] = self.p[name] + value
        self.active = [[True] * model.parameters()["b"].shape[0] for _ in range(len(X))]

    def look(self) -> Exact:
        """Return the present step and work out the gradients there."""
        with flint.ctx.workprec(self.bits):
            N, m = self.X.nrows(), self.p["b"].nrows()
            if self.relu:
                inner = self.X * self.p["W"]
                alive = [[positive(inner[n, j]) for j in range(m)] for n in range(N)]
                L, source = self.p["A"] * self.gamma, masked(inner, alive)
            else:
                alive = [[True] * m for _ in range(N)]
                L, source = self.p["W"].transpose(), self.X * self.p["U"].transpose()
            rows, adjoints = [], []
            for n in range(N):
                z, self.active[n], inverse = solved_row(L, row(source, n), self.active[n], self.relu)
                rows += z.entries()
                adjoints.append((inverse * self.p["b"]).entries())
            Z = arb_mat(N, m, rows)
            residual = Z * self.p["b"] - self.y
            T = arb_mat(N, m, [residual[n, 0] * adjoints[n][j] for n in range(N) for j in range(m)])
            by_weight, by_source = Z.transpose() * T * self.gamma, self.X.transpose() * masked(T, alive)
            self.gradients = {"b": Z.transpose() * residual}
            if self.relu:
                self.gradients |= {"A": by_weight, "W": by_source}
            else:
                self.gradients |= {"W": by_weight.transpose(), "U": by_source.transpose()}
            return Exact(dict(self.p), Z, sum((r * r for r in residual.entries()), arb(0)) / 2)

    def advance(self) -> None:
        """Take a step."""
        with flint.ctx.workprec(self.bits):
            self.p = {name: self.p[name] - self.gradients[name] * self.eta for name in self.p}


def squares(a: arb_mat) -> arb:
    return sum((x * x for x in a.entries()), arb(0))


def extremes(a: arb_mat) -> tuple[arb, arb] | None:
    """Return the extreme singular values; None where eigenvalues cannot be told apart."""
    gram = a * a.transpose() if a.nrows() <= a.ncols() else a.transpose() * a
    if gram.nrows() == 1:
        return gram[0, 0].sqrt(), gram[0, 0].sqrt()
    try:
        values = sorted((v.real for v in acb_mat(gram).eig()), key=lambda v: float(v.mid()))
    except ValueError:
        return None
    return values[0].max(arb(0)).sqrt(), values[-1].sqrt()


def outside(value: arb, bounds: torch.Tensor) -> bool:
    low, high = bounds.tolist()
    return bool(value < low) or (high < float("inf") and bool(value > high))


def violations(run: CertifiedDescent, exact: ExactDescent, *, spectra_every: int = 20) -> list[str]:
    """Return every bound that the exact run certainly breaks; all iterates must have been kept."""
    found = []
    for k in range(run.steps + 1):
        truth = exact.look()
        with flint.ctx.workprec(exact.bits):
            total = arb(0)
            for name, value in truth.parameters.items():
                gap = squares(value - matrix(run.iterates[k][name]))
                total += gap
                bound = arb(float(run.errors[name][k]))
                if gap > bound * bound:
                    found.append(f"{name}[{k}]")
            bound = arb(float(run.error[k]))
            if total > bound * bound:
                found.append(f"theta[{k}]")
            assert total.rad() < 1e-40, "more bits are needed"
            if outside(truth.loss, run.losses[k]):
                found.append(f"L[{k}]")
            if k % spectra_every == 0 or k == run.steps:
                found += _spectra(run, truth, k)
        if k < run.steps:
            exact.advance()
    return found


def _spectra(run: CertifiedDescent, truth: Exact, k: int) -> list[str]:
    found = []
    for name, value in truth.parameters.items():
        norm = extremes(value)
        if norm is not None and outside(norm[1], run.norms[name][k]):
            found.append(f"norm({name}[{k}])")
    smallest = extremes(truth.state)
    if smallest is not None and outside(smallest[0], run.sigma_min[k]):
        found.append(f"sigma_min(Z[{k}])")
    return found
