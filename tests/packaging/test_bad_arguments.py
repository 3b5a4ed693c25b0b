"""Public functions refuse arguments of the wrong kind by name, whatever comes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import ntk_deq as nd

F64 = torch.float64
MODEL = nd.system("implicit-relu").random(d=3, m=4, generator=torch.Generator().manual_seed(0))
X, Y = torch.eye(3, dtype=F64), torch.ones(3, dtype=F64)
ONES = torch.ones(3, 2, dtype=F64)
LOSSES = torch.exp(-torch.arange(9, dtype=F64))


def half(z: torch.Tensor) -> torch.Tensor:
    return z / 2


CALLS: dict[str, tuple[Callable[..., object], dict[str, object]]] = {
    "ntk_gram": (nd.ntk_gram, {"model": MODEL, "X1": X, "parameters": ("W",), "method": "structured", "rtol": 1e-9}),
    "predict": (nd.predict, {"model": MODEL, "X": X}),
    "loss_gradients": (nd.loss_gradients, {"model": MODEL, "X": X, "y": Y}),
    "gradient_descent": (nd.gradient_descent, {"model": MODEL, "X": X, "y": Y, "step": 0.01, "steps": 2}),
    "lipschitz_bounds": (nd.lipschitz_bounds, {"model": MODEL, "X": X, "box": (-1.0, 1.0), "rounds": 1, "seed": 0}),
    "landscape": (nd.landscape, {"model": MODEL, "X": X, "y": Y, "points": 3, "dimensions": 1, "reach": 0.5}),
    "neighbourhood_width": (
        nd.neighbourhood_width,
        {"model": MODEL, "X": X, "y": Y, "rise": 0.1, "directions": 1, "resolution": 2},
    ),
    "solve_fixed_point": (nd.solve_fixed_point, {"step": half, "initial": ONES, "max_steps": 99, "contraction": 0.5}),
    "fixed_point": (nd.fixed_point, {"step": half, "initial": ONES, "max_steps": 99}),
    "iterate": (nd.iterate, {"step": {"z[0]": "a", "z[k+1]": "z[k]/2"}, "steps": 2, "values": {"a": 1.0}}),
    "prox": (nd.prox, {"phi": "abs(u)", "x": Y, "mu": 1.0}),
    "moreau_envelope": (nd.moreau_envelope, {"phi": "norm1(u)", "x": Y, "mu": 1.0}),
    "measured_rate": (nd.measured_rate, {"at": torch.arange(9, dtype=F64), "loss": LOSSES, "tail": 1.0}),
    "judge": (nd.judge, {"claim": None, "options": nd.Options()}),
    "judge_claims": (lambda **given: list(nd.judge_claims(**given)), {"claims": (), "options": nd.Options()}),
    "judge_in_workers": (
        lambda **given: list(nd.judge_in_workers(**given)),
        {"claims": (), "options": nd.Options(), "jobs": 1},
    ),
    "load_suite": (nd.load_suite, {"path": "claims.yaml"}),
    "system": (nd.system, {"name": "implicit-relu"}),
}
MORE = {"measured_rate": {"start": 0.0, "stop": 8.0, "floor": 0.0}, "system": {"path": None, "depth": None}}
WRONG = [3.5, "q", [1], object(), np.ones((3, 3)), torch.ones(2, dtype=torch.int64)]
FLOATS = {"rtol", "step", "rise", "reach", "contraction", "mu", "tail", "start", "stop", "floor"}


@pytest.mark.parametrize("call", CALLS)
def test_every_argument_of_the_wrong_kind_is_refused(call):
    function, good = CALLS[call]
    for name in {**good, **MORE.get(call, {})}:
        for value in WRONG:
            if not (isinstance(value, float) and name in FLOATS):
                with pytest.raises(nd.NtkDeqError):
                    function(**{**good, name: value})
