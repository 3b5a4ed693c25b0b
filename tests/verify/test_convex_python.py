"""Proximal maps, envelopes and conjugates from Python."""

from __future__ import annotations

import math

import pytest
import torch

import ntk_deq as nd
from ntk_deq.errors import ArgumentError
from ntk_deq.evaluation.convex.proximal import Proof

X = torch.tensor([3.0, 0.25, -1.5], dtype=torch.float64)


def test_a_formula_is_certified() -> None:
    found = nd.prox("sum(abs(u))", X, 0.5)
    assert found.status is Proof.CERTIFIED
    wanted = torch.sign(X) * (X.abs() - 0.5).clamp_min(0)
    assert float(torch.linalg.vector_norm(found.value - wanted)) <= found.error + 1e-300
    assert found.error < 1e-14


def test_formulas_and_functions_of_tensors_agree() -> None:
    formula = nd.prox("sum(softplus(A*u))", X, 2.0, values={"A": torch.diag(X)})
    function = nd.prox(lambda u: torch.nn.functional.softplus(X * u).sum(), X, 2.0, convex=True)
    assert function.status is Proof.CONVEX
    assert float(torch.linalg.vector_norm(formula.value - function.value)) <= 1.01 * (formula.error + function.error)
    envelopes = [
        nd.moreau_envelope(phi, X, 2.0, convex=True)
        for phi in ("sum(softplus(u))", lambda u: torch.nn.functional.softplus(u).sum())
    ]
    assert abs(float(envelopes[0].value - envelopes[1].value)) < 1e-12


def test_conjugates() -> None:
    assert float(nd.conjugate("fro(u)^2/2", X).value) == pytest.approx(float(X.square().sum()) / 2, abs=1e-12)
    assert nd.conjugate("sum(abs(u))", X).status is Proof.INFINITE
    assert float(nd.conjugate("sum(abs(u))", X).value) == math.inf
    estimated = nd.conjugate(lambda u: (u**2).sum() / 2, X)
    assert estimated.status is Proof.ESTIMATED
    assert estimated.error == math.inf


def test_what_is_not_proven_says_why() -> None:
    found = nd.prox("-sum(abs(u))", X)
    assert found.status is Proof.UNKNOWN
    assert "not seen to be convex" in found.reason
    assert nd.prox("log(-1 - sum(u)^2)", X).status in (Proof.NONE, Proof.UNKNOWN)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nd.prox("sum(abs(u))", X, 0.0), "`mu` must be a number > 0"),
        (lambda: nd.prox("sum(abs(u))", X.float()), "`x` must be a float64"),
        (lambda: nd.conjugate("sum(abs(u))", X[None, None]), "`y` must be a float64"),
        (lambda: nd.prox("abs(v)", X), "unknown name `v`"),
        (lambda: nd.prox("2*u", X), "a number is needed"),
        (lambda: nd.prox("sum(u)", X, values={"u": X}), "which is the argument"),
        (lambda: nd.prox(lambda u: u, X), "must return one number"),
        (lambda: nd.prox(3, X), "a formula in u, or a function of a tensor. Got int"),
        (lambda: nd.prox("sum(abs(u))", [1.0]), "`x` must be a float64 tensor. Got list"),
        (lambda: nd.prox("sum(abs(u))", X, "1"), "`mu` must be a number > 0. Got '1'"),
        (lambda: nd.prox("dot(a, u)", X, values={"a": X.float()}), "`a` must be a float64 number"),
        (lambda: nd.prox(lambda u: u.float().sum(), X), "must return torch.float64"),
        (lambda: nd.prox(lambda u: 1.0, X), "a tensor of one number. Got float"),
        (lambda: nd.prox(torch.sum, X, values={"a": X}), "is for the names of a formula"),
    ],
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()
