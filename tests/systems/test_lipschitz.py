"""Lipschitz bounds: a sandwich around constants that are known, and around what pairs of inputs attain."""

from __future__ import annotations

import pytest
import torch
from declared_systems import FEED_FORWARD, MONOTONE, OPT_EQ, OUTPUTS, SHAPED, SKIP, TWICE, drawn, normal

import ntk_deq as nd
from ntk_deq.errors import ArgumentError
from ntk_deq.language.declaration import ModelSignature, Role, Variable
from ntk_deq.systems import predict

ALL = (SKIP, MONOTONE, OPT_EQ, FEED_FORWARD, TWICE, OUTPUTS, SHAPED)


@pytest.mark.parametrize("signature", ALL, ids=lambda own: own.name)
def test_the_bounds_are_a_sandwich_that_pairs_of_inputs_respect(signature):
    model, X, _ = drawn(signature)
    found = nd.lipschitz_bounds(model, X)
    assert 0 < found.lower <= found.slope * (1 + 1e-6)
    assert found.lower <= found.upper < float("inf")
    rows = model.input_rows(X)
    for seed in range(5):
        other = rows + normal(*rows.shape, seed=seed)
        moved = model.target_rows(predict(model, model.inputs_of(other))) - model.target_rows(predict(model, X))
        apart = torch.linalg.vector_norm(moved.reshape(len(rows), -1), dim=1)
        quotients = apart / torch.linalg.vector_norm(other - rows, dim=1)
        assert float(quotients.max()) <= found.upper


def test_linear_networks_are_known_exactly():
    model = nd.LinearImplicit.random(3, 5, generator=torch.Generator().manual_seed(0))
    exact = torch.linalg.vector_norm(model.b @ torch.linalg.solve(torch.eye(5).double() - model.W, model.U))
    found = nd.lipschitz_bounds(model, torch.eye(3, dtype=torch.float64))
    assert found.lower == pytest.approx(float(exact), rel=1e-9)
    assert found.upper >= float(exact)
    assert found.how.startswith("monotone")  # which says more here than the contraction by 1/2


def test_a_monotone_weight_is_bounded_where_it_does_not_contract():
    skew = torch.tensor([[0.0, 5.0], [-5.0, 0.0]], dtype=torch.float64)
    model, _, _ = drawn(SKIP, sizes={"N": 4, "d": 2, "m": 2})
    far = model.with_parameters({"W": skew})
    # An equilibrium of the averaged map, which plain steps do not find.
    found = nd.quantities.lipschitz._upper(far)
    assert found[1] == "monotone 1"
    assert found[0] == pytest.approx(float(torch.linalg.vector_norm(far.u) * torch.linalg.matrix_norm(far.U, 2)))


def test_the_ascent_stays_in_a_box_and_finds_more_than_it_starts_with():
    model, X, _ = drawn(FEED_FORWARD)
    inside = nd.lipschitz_bounds(model, X, box=(-0.5, 0.5))
    assert all(float(end.abs().max()) <= 0.5 for end in inside.pair)
    start, climbed = (nd.lipschitz_bounds(model, X, rounds=rounds) for rounds in (0, 30))
    assert climbed.slope >= start.slope
    assert climbed.upper == start.upper


def test_the_result_is_shown_and_wrong_arguments_are_said():
    model, X, _ = drawn(SKIP)
    found = nd.lipschitz_bounds(model, X)
    assert repr(found).startswith("LipschitzBounds(model=skip, lower=")
    assert "<caption>Lipschitz constant of the predictions</caption>" in found._repr_html_()
    with pytest.raises(ArgumentError, match=r"`box` of lipschitz_bounds must be two finite numbers"):
        nd.lipschitz_bounds(model, X, box=(1.0, 0.0))
    with pytest.raises(ArgumentError, match=r"`rounds` of lipschitz_bounds must be an integer >= 0"):
        nd.lipschitz_bounds(model, X, rounds=-1)


@pytest.mark.parametrize(
    ("image", "yhat"),
    [("tanh(Z*A + X*U)", "hadamard(ones(N)*b', Z)*b"), ("tanh(Z*A + ones(N)*b')", "hadamard(Z, X*U)*b")],
)
def test_an_entrywise_product_has_no_constant_that_is_too_small(image, yhat):
    signature = ModelSignature(
        "product",
        "A network with an entrywise product",
        ("N", "d", "m"),
        (
            Variable("A", ("m", "m"), Role.PARAMETER, ""),
            Variable("U", ("d", "m"), Role.PARAMETER, ""),
            Variable("b", ("m",), Role.PARAMETER, ""),
            Variable("X", ("N", "d"), Role.INPUT, ""),
            Variable("y", ("N",), Role.TARGET, ""),
        ),
        "Z",
        ("N", "m"),
        image,
        "norm(A)",
        {"yhat": yhat, "L": "norm(yhat - y)^2/2"},
    )
    found = nd.lipschitz_bounds(*drawn(signature)[:2])
    assert 0 < found.lower <= found.upper
