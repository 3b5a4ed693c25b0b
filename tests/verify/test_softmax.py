"""softmax of every column: values, balls, many bits, derivatives, claims and scripts."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flint import arb
from verify_harness import distance, environment, informed, judge_all, randn, value_of

from ntk_deq import certified as ct
from ntk_deq.certified.precise import as_ball, precise
from ntk_deq.certified.precise.matrix import working_precision
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.derivatives.derivative import derivative
from ntk_deq.evaluation.functions.matrices import softmax_ball
from ntk_deq.evaluation.quantity import Matrix
from ntk_deq.language.parser import parse
from ntk_deq.verify.printer import Code, Printer

F64 = torch.float64


def softmax(a: torch.Tensor) -> torch.Tensor:
    return torch.softmax(a.double(), dim=0)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_values_of_columns(scale: float, dtype: torch.dtype) -> None:
    for shape in ((3, 2), (4, 1), (1, 3), (1, 1)):
        a = (randn(*shape, seed=1) * scale).to(dtype)
        found = softmax_ball(ct.Ball(a))
        assert distance(Matrix(ct.Ball(found.centre.double(), found.radius), 1.0), softmax(a)) <= 1e-15
        assert found.radius <= (1e-15 if dtype is F64 else 1e-6)


@pytest.mark.parametrize("radius", [1e-9, 0.25, 4.0])
def test_balls_hold_the_softmax_of_everything_within(radius: float) -> None:
    a = randn(3, 2, seed=2)
    image = value_of("softmax(A)", environment({"A": a}, radius={"A": radius}))
    for trial in range(20):
        step = randn(3, 2, seed=trial)
        step[:, trial % 2] *= 0.0 if trial > 10 else 1.0
        moved = a + step * (radius * (1 - 1e-9) / float(torch.linalg.vector_norm(step)))
        assert distance(image, softmax(moved)) <= 1e-15


def test_the_bound_of_the_slope_is_met() -> None:
    """Two equal entries have the Jacobian [[1, -1], [-1, 1]]/4, of norm 1/2."""
    h = 1e-6
    a, b = torch.zeros(2, 1, dtype=F64), torch.tensor([[h], [-h]], dtype=F64)
    ratio = torch.linalg.vector_norm(softmax(b) - softmax(a)) / torch.linalg.vector_norm(b)
    assert float(ratio) == pytest.approx(0.5, rel=1e-9)


def test_many_bits() -> None:
    a = randn(3, 2, seed=3) * 20
    with working_precision(300):
        fine = replace(environment(), precision=300)
        fine.variables["A"] = Matrix(as_ball(precise(a)), 1.0)
        image = value_of("softmax(A)", fine)
        assert all(entry.rad() < arb(2) ** -280 * entry for entry in image.ball.flat)
        columns = image.ball.flat[0::2], image.ball.flat[1::2]
        assert all(sum(column, arb(0)).contains(1) for column in columns)
    assert distance(Matrix(image.ball, 1.0), softmax(a)) <= 1e-15


@pytest.mark.parametrize("radius", [0.0, 1e-4])
def test_derivatives(radius: float) -> None:
    a, w = randn(3, 2, seed=4), randn(3, 2, seed=5)
    env = environment({"A": a, "W": w}, radius={"A": radius})
    gradient = derivative(parse("grad(sum(hadamard(softmax(2*A), W)), A)"), env)
    jacobian = derivative(parse("jac(softmax(A), A)"), env)
    assert env.notes.estimated == {}
    assert informed(gradient)
    for trial in range(4):
        step = randn(3, 2, seed=trial)
        moved = (a + step * (radius * (1 - 1e-9) / float(torch.linalg.vector_norm(step)))).requires_grad_()
        (plain,) = torch.autograd.grad((torch.softmax(2 * moved, 0) * w).sum(), moved)
        assert distance(gradient, plain) <= 1e-15
        own = torch.autograd.functional.jacobian(softmax, moved.detach())
        assert distance(jacobian, own.permute(1, 0, 3, 2).reshape(6, 6)) <= 1e-15


def test_claims(tmp_path: Path) -> None:
    settings = '  s: {sizes: {n: 1..3, m: 1..2}, domain: {A: "real[n, m]", B: "real[n, m]", v: "real[n]"}}'
    claims = """
  - {id: columns, setting: s, conclude: "ones(1, n)*softmax(A) == ones(1, m)"}
  - {id: lipschitz, setting: s, conclude: "fro(softmax(A) - softmax(B)) <= fro(A - B)/2"}
  - {id: gradient, setting: s, conclude: "grad(log(sum(exp(v))), v) == softmax(v)"}
  - {id: steep, setting: s, conclude: "fro(softmax(A) - softmax(B)) <= fro(A - B)/4"}
  - {id: shifted, setting: s, conclude: "softmax(shift(v, 2)) == softmax(v)"}
  - {id: small, setting: s, conclude: "softmax(v) <= 9/10*ones(n)"}
"""
    found = judge_all(tmp_path, claims, settings, search=100)
    verdicts = {name: str(result.verdict) for name, result in found.items()}
    refuted = dict.fromkeys(("steep", "small"), "refuted")
    assert verdicts == dict.fromkeys(("columns", "lipschitz", "gradient", "shifted"), "holds") | refuted
    assert {str(result.evidence) for result in found.values()} == {"certified"}


class _Bare(Printer):
    def name(self, name: str) -> Code:
        return Code(name, (3, 2))

    def special(self, expr: object) -> Code:
        raise NotImplementedError

    def size(self, name: str) -> int:
        raise NotImplementedError


def test_numpy_code() -> None:
    a = randn(3, 2, seed=6)
    code = _Bare().code(parse("softmax(A)"))
    assert code.shape == (3, 2)
    script = f"import numpy as np\nA = np.array({a.tolist()!r})\nprint({code.text}.tolist())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True)
    assert torch.allclose(torch.tensor(json.loads(done.stdout), dtype=F64), softmax(a), rtol=1e-14)


def test_no_information_and_too_much() -> None:
    assert not softmax_ball(ct.Ball(torch.zeros(2, 2, dtype=F64), float("inf"))).is_finite
    with pytest.raises(LimitError, match="65,536"):
        softmax_ball(ct.Ball(torch.zeros(2**16 + 1, 1, dtype=F64)))
