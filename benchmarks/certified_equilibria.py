"""Certified equilibria and adjoints held against solutions in 1024-bit ball arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import flint
import torch
from flint import arb, arb_mat
from torch import Tensor

from benchmarks.certified_checks import Check
from ntk_deq.systems import (
    CertifiedEquilibrium,
    EquilibriumModel,
    ImplicitReLU,
    LinearImplicit,
    Proof,
    certified_adjoint,
    certified_equilibrium,
)

BITS = 1024
MAX_STEPS = 2000  # on the edge of contraction a solve never ends; what it has then is to be certified all the same
_ROUNDS = 60  # patterns tried from the float one on; the truth is far from it only where many entries are near zero

# Lipschitz constants: none, small, towards the edge of contraction, on it, and beyond.
CONTRACTIONS = (0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 1 - 1e-6, 1 - 1e-10, 1.0, 1.1, 1.5, 3.0)
SCALES = (1.0, 1.0, 1.0, 1e-3, 1e3, 1e-100, 1e100)


@dataclass(frozen=True)
class Instance:
    """A model with inputs."""

    name: str
    model: EquilibriumModel
    X: Tensor


def _shape(kind: int, matrix: Tensor) -> Tensor:
    """Return a matrix of one of a few kinds made from a Gaussian one."""
    match kind:
        case 0 | 1 | 2:
            return matrix
        case 3:
            return matrix.abs()
        case 4:
            return torch.triu(matrix, 1)
        case 5:
            return matrix[:, :1] @ matrix[:1]
        case 6:
            return (2 * matrix).round()
    return torch.linalg.qr(matrix)[0]


def instance(seed: int, index: int) -> Instance:
    """Draw instance number `index`; the two models take turns."""
    g = torch.Generator().manual_seed(seed * 1_000_003 + index + 1)

    def whole(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=g))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=g)

    N, d, m = whole(1, 5), whole(1, 6), whole(1, 17)
    wanted, scale, kind = CONTRACTIONS[whole(0, 12)], SCALES[whole(0, 7)], whole(0, 8)
    square = _shape(kind, normal(m, m))
    size = float(torch.linalg.matrix_norm(square, 2)) or 1.0
    X, b = normal(N, d) * scale, normal(m)
    if kind == 6:  # whole numbers hit kinks
        X = (2 * X).round()
    model: EquilibriumModel
    if index % 2:
        gamma = 0.5 if kind == 6 else 0.05 + 0.9 * float(torch.rand((), dtype=torch.float64, generator=g))
        A = square * (wanted / size / gamma) if kind != 6 else square / 2.0 ** whole(0, 5)
        W = normal(d, m) if kind != 6 else (2 * normal(d, m)).round()
        model = ImplicitReLU(W=W, A=A, b=b, gamma=gamma)
    else:
        model = LinearImplicit(W=square * (wanted / size), U=normal(m, d), b=b)
    name = f"seed {seed}, equilibrium {index}: {model.signature.name}, N={N}, d={d}, m={m}, q={wanted}, scale={scale}"
    return Instance(name, model, X)


@dataclass(frozen=True)
class Truth:
    """The map z -> act(z L + c) and readout of an instance, exactly."""

    weight: arb_mat
    source: arb_mat
    readout: arb_mat
    relu: bool


def _exact(tensor: Tensor) -> arb_mat:
    return arb_mat(*tensor.shape, [arb(v) for v in tensor.reshape(-1).tolist()])


def _cut(matrix: arb_mat) -> arb_mat:
    return arb_mat(matrix.nrows(), matrix.ncols(), [value.max(arb(0)) for value in matrix.entries()])


def truth_of(model: EquilibriumModel, X: Tensor) -> Truth:
    """Write the map of a registered model down once more, from its definition."""
    p = {name: _exact(t if t.dim() == 2 else t[None]) for name, t in model.parameters().items()}
    if isinstance(model, ImplicitReLU):
        return Truth(p["A"] * arb(float(model.gamma)), _cut(_exact(X) * p["W"]), p["b"], True)
    return Truth(p["W"].transpose(), _exact(X) * p["U"].transpose(), p["b"], False)


def _row(matrix: arb_mat, n: int) -> arb_mat:
    return arb_mat(1, matrix.ncols(), [matrix[n, j] for j in range(matrix.ncols())])


def _system(weight: arb_mat, active: list[bool]) -> arb_mat:
    """Return I - L D."""
    m = weight.nrows()
    return arb_mat(m, m, [(i == j) - (weight[i, j] if active[j] else arb(0)) for i in range(m) for j in range(m)])


def solved_row(truth: Truth, n: int, active: list[bool]) -> tuple[arb_mat, list[bool], arb_mat] | None:
    """Return the equilibrium of a sample, its pattern and its pre-activations, from the first pattern that fits."""
    m = truth.weight.nrows()
    source = _row(truth.source, n)
    for _ in range(_ROUNDS):
        right = arb_mat(1, m, [source[0, j] if active[j] else arb(0) for j in range(m)])
        try:
            z = _system(truth.weight, active).transpose().solve(right.transpose()).transpose()
        except ZeroDivisionError:
            return None
        pre = z * truth.weight + source
        # An entry whose ball contains zero fits either way: at 1024 bits it is zero, or nothing here could tell.
        wrong = [j for j in range(m) if truth.relu and (pre[0, j] < 0 if active[j] else pre[0, j] > 0)]
        if not wrong:
            return z, active, pre
        active = [on != (j in wrong) for j, on in enumerate(active)]
    return None


def _outside(rows: list[arb_mat], centre: Tensor, radius: float) -> bool:
    near = centre.reshape(-1).tolist()
    entries = itertools.chain.from_iterable(row.entries() for row in rows)
    total = sum(((a - c) * (a - c) for a, c in zip(entries, near, strict=True)), arb(0))
    return bool(total > arb(radius) * arb(radius))


def check_instance(drawn: Instance, *, max_steps: int = MAX_STEPS) -> Iterator[Check]:
    """Yield the checks of one equilibrium: the ball, the derivatives said to be certain, the adjoint."""
    found = certified_equilibrium(drawn.model, drawn.X, max_steps=max_steps)
    if found.proof is Proof.NONE:
        yield Check("equilibrium: none", False, informative=False)
        return
    adjoint = certified_adjoint(drawn.model, drawn.X, found, max_steps=max_steps)
    with flint.ctx.workprec(BITS):
        truth = truth_of(drawn.model, drawn.X)
        start = (found.slopes.middle > 0).tolist()
        rows = [solved_row(truth, n, active if truth.relu else [True] * len(active)) for n, active in enumerate(start)]
        kind = f"equilibrium: {found.proof}"
        solved = [row for row in rows if row is not None]
        if len(solved) < len(rows):
            yield Check(kind, False, undecided=True)
            return
        yield Check(kind, _outside([z for z, _, _ in solved], found.value, found.radius))
        yield Check("certain derivatives", _wrong_pattern(found, solved) if truth.relu else False)
        if adjoint.proof is Proof.NONE:
            yield Check("adjoint", False, informative=False)
            return
        yield Check("adjoint", _outside(_adjoints(truth, solved), adjoint.value, adjoint.radius))


def _wrong_pattern(found: CertifiedEquilibrium, solved: list[tuple[arb_mat, list[bool], arb_mat]]) -> bool:
    low, high = found.slopes.low.tolist(), found.slopes.high.tolist()
    return any(
        (pre[0, j] > 0 and high[n][j] == 0) or (pre[0, j] < 0 and low[n][j] == 1)
        for n, (_, _, pre) in enumerate(solved)
        for j in range(pre.ncols())
    )


def _adjoints(truth: Truth, solved: list[tuple[arb_mat, list[bool], arb_mat]]) -> list[arb_mat]:
    """Return v with v = b' + (v .* d) L' for each sample, the derivative at zero being zero."""
    result = []
    for _, active, pre in solved:
        slopes = [on and (not truth.relu or bool(pre[0, j] > 0)) for j, on in enumerate(active)]
        result.append(_system(truth.weight, slopes).solve(truth.readout.transpose()).transpose())
    return result
