"""Each method on problems whose solutions are known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from search_harness import PlainScorer, Values, free, instance_of, interval, objective_of
from torch import Tensor

from ntk_deq.falsify.search import descents
from ntk_deq.falsify.search.campaign import METHODS
from ntk_deq.language.domain import Domain, DomainKind

VARIABLES = {"x": free("x"), "y": free("y")}
ALL = pytest.mark.parametrize("name", list(METHODS))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def bowl(v: Values) -> Tensor:
    return (v["x"] - 3) ** 2 + 10 * (v["y"] + 1) ** 2 - 0.1


@ALL
def test_a_bowl_is_descended(name: str) -> None:
    method, smooth = METHODS[name].method, METHODS[name].smooth
    objective = objective_of(PlainScorer(bowl), instance_of(x=0.0, y=0.0), VARIABLES, smooth=smooth)
    found = method(objective, torch.zeros(2, dtype=torch.float64), 600, generator())
    assert found[0][0] < -0.09
    assert [value for value, _ in found] == sorted(value for value, _ in found)
    assert float(bowl({"x": found[0][1][0], "y": found[0][1][1]})) == pytest.approx(found[0][0])


@ALL
def test_the_same_generator_gives_the_same_points(name: str) -> None:
    method, smooth = METHODS[name].method, METHODS[name].smooth

    def run() -> list[tuple[float, list[float]]]:
        objective = objective_of(PlainScorer(bowl), instance_of(x=0.0, y=0.0), VARIABLES, smooth=smooth)
        found = method(objective, torch.ones(2, dtype=torch.float64), 150, generator(7))
        return [(value, vector.tolist()) for value, vector in found]

    assert run() == run()


@ALL
def test_a_budget_is_kept(name: str) -> None:
    method, smooth = METHODS[name].method, METHODS[name].smooth
    for budget in (1, 5, 100):
        scorer = PlainScorer(bowl)
        objective = objective_of(scorer, instance_of(x=0.0, y=0.0), VARIABLES, budget=budget, smooth=smooth)
        method(objective, torch.zeros(2, dtype=torch.float64), 10_000, generator())
        assert 0 < scorer.asked <= budget


@ALL
def test_nothing_to_move_is_no_failure(name: str) -> None:
    method, smooth = METHODS[name].method, METHODS[name].smooth
    objective = objective_of(PlainScorer(bowl), instance_of(x=0.0, y=0.0), {}, smooth=smooth)
    assert method(objective, torch.zeros(0, dtype=torch.float64), 50, generator()) == []


@pytest.mark.parametrize("name", ["gradient", "evolution"])
def test_a_plateau_of_undefined_points_is_no_failure(name: str) -> None:
    method, smooth = METHODS[name].method, METHODS[name].smooth
    scorer = PlainScorer(lambda v: v["x"] * math.nan)
    objective = objective_of(scorer, instance_of(x=0.0, y=0.0), VARIABLES, smooth=smooth)
    for value, vector in method(objective, torch.zeros(2, dtype=torch.float64), 120, generator()):
        assert value >= 100
        assert bool(torch.isfinite(vector).all())


def test_gradients_follow_the_edge_of_a_disc_to_its_corner() -> None:
    # The largest 3x + 4y on the unit disc is 5, at (3/5, 4/5).
    scorer = PlainScorer(lambda v: 5 - 3 * v["x"] - 4 * v["y"], hypotheses=(lambda v: 1 - v["x"] ** 2 - v["y"] ** 2,))
    objective = objective_of(scorer, instance_of(x=0.0, y=0.0), VARIABLES)
    _, point = descents.descend(objective, torch.tensor([0.5, -0.5], dtype=torch.float64), 400, generator())[0]
    assert torch.allclose(point, torch.tensor([0.6, 0.8], dtype=torch.float64), atol=1e-3)
    assert float(1 - (point**2).sum()) >= 0


def test_gradients_leave_an_objective_without_derivatives_to_others() -> None:
    scorer = PlainScorer(bowl)
    scorer.differentiable = False
    objective = objective_of(scorer, instance_of(x=0.0, y=0.0), VARIABLES)
    assert descents.descend(objective, torch.zeros(2, dtype=torch.float64), 100, generator()) == []
    assert scorer.asked == 0


def test_evolution_finds_its_way_along_a_curved_valley() -> None:
    def valley(v: Values) -> Tensor:
        return 100 * (v["y"] - v["x"] ** 2) ** 2 + (1.2345 - v["x"]) ** 2

    objective = objective_of(PlainScorer(valley), instance_of(x=0.0, y=0.0), VARIABLES)
    ((value, point),) = descents.evolve(objective, torch.tensor([-1.0, 1.0], dtype=torch.float64), 3000, generator())
    assert value < 1e-8
    assert point[0].item() == pytest.approx(1.2345, abs=1e-3)


def test_evolution_moves_a_single_coordinate() -> None:
    objective = objective_of(PlainScorer(lambda v: (v["x"] - 2) ** 2), instance_of(x=0.0, y=5.0), {"x": free("x")})
    ((value, point),) = descents.evolve(objective, torch.zeros(1, dtype=torch.float64), 400, generator())
    assert point.shape == (1,)
    assert value < 1e-6


def test_evolution_writes_no_file_and_leaves_global_randomness_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cma_signals.in").write_text("{'timeout': 0}")  # a file that the package would obey
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    objective = objective_of(PlainScorer(bowl), instance_of(x=0.0, y=0.0), VARIABLES)
    assert descents.evolve(objective, torch.zeros(2, dtype=torch.float64), 400, generator())[0][0] < -0.09
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    assert [file.name for file in tmp_path.iterdir()] == ["cma_signals.in"]


def test_moves_reach_a_value_far_away_by_doubling() -> None:
    scorer = PlainScorer(lambda v: 1 - v["x"].abs() / 1e6)
    objective = objective_of(scorer, instance_of(x=1.0, y=0.0), VARIABLES, smooth=False)
    value, _ = descents.try_moves(objective, torch.ones(2, dtype=torch.float64), 2000, generator())[0]
    assert value < 0


def test_moves_find_equal_entries_and_zeros() -> None:
    scorer = PlainScorer(lambda v: (v["x"] - v["y"]).abs().clamp_max(1) - 0.5 * (v["x"] == v["y"]))
    objective = objective_of(scorer, instance_of(x=0.3, y=7.7), VARIABLES, smooth=False)
    value, point = descents.try_moves(objective, torch.tensor([0.3, 7.7], dtype=torch.float64), 500, generator())[0]
    assert value < 0
    assert point[0] == point[1]


def test_moves_tighten_a_hypothesis_to_the_last_float() -> None:
    bound = math.pi
    scorer = PlainScorer(lambda v: 1 + 0 * v["x"], hypotheses=(lambda v: v["x"] - bound,), uses=("x",))
    objective = objective_of(scorer, instance_of(x=6.0), {"x": free("x", Domain(DomainKind.POSITIVE))}, smooth=False)
    found = descents.try_moves(objective, torch.tensor([6.0], dtype=torch.float64), 1000, generator())
    assert bound in [vector.item() for _, vector in found]


def test_moves_stay_inside_their_domain() -> None:
    scorer = PlainScorer(lambda v: -v["x"], uses=("x",))
    variables = {"x": free("x", interval(0, 1))}
    objective = objective_of(scorer, instance_of(x=0.5), variables, smooth=False)
    value, point = descents.try_moves(objective, torch.tensor([0.5], dtype=torch.float64), 300, generator())[0]
    assert value == -1.0
    assert objective.space.decode(point.unsqueeze(0))["x"].item() == 1.0
