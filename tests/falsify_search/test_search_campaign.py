"""The search as a whole: budgets, determinism, what may move, what is returned."""

from __future__ import annotations

import math

import pytest
import torch
from search_harness import PlainScorer, Values, free, instance_of, interval, setting_of
from torch import Tensor

from ntk_deq.errors import Position
from ntk_deq.evaluation.instance import Instance
from ntk_deq.falsify.search import Space
from ntk_deq.falsify.search.campaign import SearchResult, search
from ntk_deq.falsify.search.starts import plain_instance, random_vectors, size_choices, structured_instances
from ntk_deq.language.declaration import Draw, Setting
from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.parser import parse
from ntk_deq.language.types import SizeRange, matrix

REALS = setting_of(free("x"), free("y"))


def on_disc(v: Values) -> Tensor:
    return 1 - v["x"] ** 2 - v["y"] ** 2


def beyond(level: float) -> PlainScorer:
    """The goal 3x + 4y <= level on the unit disc, broken for levels below 5."""
    return PlainScorer(lambda v: (level - 3 * v["x"] - 4 * v["y"]) / 5, hypotheses=(on_disc,))


def values_of(result: SearchResult) -> list[dict[str, object]]:
    return [{name: v.tolist() for name, v in found.values.items()} for found in result.candidates]


def test_a_narrow_counterexample_is_found_and_meets_the_hypothesis() -> None:
    result = search(REALS, {}, score=beyond(4.999), starts=[], budget=3000, seed=0)
    assert result.candidates
    for found in result.candidates:
        x, y = found.values["x"].item(), found.values["y"].item()
        assert x * x + y * y <= 1
        assert 3 * x + 4 * y > 4.999
    assert result.best.margin < 0 <= result.best.feasible
    assert not result.confirmed


def test_a_true_claim_has_no_candidates_and_near_misses_close_to_equality() -> None:
    result = search(REALS, {}, score=beyond(5.0), starts=[], budget=2000, seed=0)
    assert result.candidates == ()
    x, y = (result.near_misses[0].values[name].item() for name in "xy")
    assert 3 * x + 4 * y > 4.999
    assert 0 <= result.best.margin < 1e-3


def test_the_budget_bounds_the_number_of_evaluations() -> None:
    for budget in (1, 7, 100, 1500):
        scorer = beyond(5.0)
        result = search(REALS, {}, score=scorer, starts=[], budget=budget, seed=0)
        # What is measured of the hypotheses alone counts, too.
        assert budget / 2 < result.evaluations == scorer.asked <= budget


def test_points_scored_together_are_cheap() -> None:
    alone, together = beyond(5.0), beyond(5.0)
    together.cost = lambda base, columns=None: (1.0, 1 / 128)  # type: ignore[method-assign]
    few, many = (search(REALS, {}, score=s, starts=[], budget=300, seed=0).evaluations for s in (alone, together))
    assert many > 10 * few


def test_the_same_arguments_give_the_same_result_and_another_seed_another() -> None:
    first, second = (search(REALS, {}, score=beyond(4.9), starts=[], budget=900, seed=3) for _ in range(2))
    assert values_of(first) == values_of(second)
    assert first.best == second.best
    other = search(REALS, {}, score=beyond(4.9), starts=[], budget=900, seed=4)
    assert values_of(first) != values_of(other)


def test_a_confirmed_candidate_ends_the_search_and_comes_first() -> None:
    tried: list[Instance] = []

    def confirm(found: Instance) -> bool:
        tried.append(found)
        return len(tried) == 2

    scorer = beyond(3.0)
    result = search(REALS, {}, score=scorer, starts=[], budget=5000, seed=0, confirm=confirm)
    assert result.confirmed
    assert result.candidates[0] is tried[1]
    assert result.evaluations == scorer.asked < 5000


def test_a_judge_that_never_confirms_is_asked_few_times() -> None:
    tried: list[Instance] = []
    result = search(
        REALS, {}, score=beyond(1.0), starts=[], budget=3000, seed=0, confirm=lambda i: bool(tried.append(i))
    )
    assert not result.confirmed
    assert 0 < len(tried) < 12
    assert 0 < len(result.candidates) <= 3


def test_starts_are_looked_at_first() -> None:
    needle = instance_of(x=0.123456, y=-0.654321)
    scorer = PlainScorer(
        lambda v: torch.where((v["x"] == needle.values["x"]) & (v["y"] == needle.values["y"]), -1.0, 1.0).double()
    )
    assert search(REALS, {}, score=scorer, starts=[], budget=300, seed=0).candidates == ()
    result = search(REALS, {}, score=scorer, starts=[needle], budget=300, seed=0)
    assert values_of(result) == [{"x": 0.123456, "y": -0.654321}]


def test_each_goal_is_pursued_although_another_one_is_closer() -> None:
    def tight(v: Values) -> Tensor:
        return 1e-6 + 0 * v["x"]

    def loose(v: Values) -> Tensor:
        return 1 - v["x"].abs() / 1e4

    result = search(REALS, {}, score=PlainScorer(tight, loose), starts=[], budget=3000, seed=0)
    assert abs(result.candidates[0].values["x"].item()) > 1e4


def test_a_claim_that_is_flat_is_given_up_early() -> None:
    result = search(REALS, {}, score=PlainScorer(lambda v: 0 * v["x"]), starts=[], budget=100_000, seed=0)
    assert result.evaluations < 2000


def test_without_derivatives_the_other_methods_have_the_budget() -> None:
    scorer = beyond(4.99)
    scorer.differentiable = False
    result = search(REALS, {}, score=scorer, starts=[], budget=3000, seed=0)
    assert 1000 < result.evaluations <= 3000  # what moves points into the hypotheses is paid for as well
    assert result.candidates


def test_infeasible_points_guide_and_never_count() -> None:
    # Feasible points make a box of width 1e-3 far from every start; outside it the goal is broken everywhere.
    def inside(v: Values) -> Tensor:
        return (5e-4 - torch.maximum((v["x"] - 7.3).abs(), (v["y"] + 4.4).abs())) / 10

    scorer = PlainScorer(lambda v: torch.where(inside(v) >= 0, 0.5, -0.5), hypotheses=(inside,))
    result = search(REALS, {}, score=scorer, starts=[], budget=4000, seed=0)
    assert result.candidates == ()
    assert [i.values["x"].item() for i in result.near_misses] == [pytest.approx(7.3, abs=1e-3)]


def test_satisfying_finds_a_narrow_feasible_set() -> None:
    conditions = (on_disc, lambda v: v["x"] + v["y"] - 1.414)
    scorer = PlainScorer(lambda v: 1 + 0 * v["x"], hypotheses=conditions)
    result = search(REALS, {}, score=scorer, starts=[], budget=4000, seed=0, satisfying=True)
    assert result.candidates
    x, y = (result.candidates[0].values[name].item() for name in "xy")
    assert x * x + y * y <= 1
    assert x + y >= 1.414


def test_satisfying_returns_the_nearest_instance_where_nothing_satisfies() -> None:
    conditions = (on_disc, lambda v: v["x"] + v["y"] - 1.5)
    scorer = PlainScorer(lambda v: 1 + 0 * v["x"], hypotheses=conditions)
    result = search(REALS, {}, score=scorer, starts=[], budget=3000, seed=0, satisfying=True)
    assert result.candidates == ()
    assert result.nearest is not None
    # The worse of the two margins is best at x = y with 1 - 2x^2 = 2x - 3/2.
    assert result.best.feasible == pytest.approx(1 - 2 * ((6**0.5 - 1) / 2) ** 2, abs=0.02)


def test_nothing_movable_is_scored_once_or_so() -> None:
    scorer = PlainScorer(lambda v: 1 + 0 * v["x"], uses=())
    result = search(REALS, {}, score=scorer, starts=[], budget=1000, seed=0)
    assert result.evaluations < 100


def test_drawn_data_stay_as_they_were_drawn() -> None:
    drawn = Draw("W", matrix("m", "m"), parse("normal(0, 1)"), "normal(0, 1)")
    setting = Setting("s", None, {"m": SizeRange(2, 3)}, {}, {"W": drawn}, None, Position("", 1, 1))
    given = {"M": Free("M", free("M").type, Domain(DomainKind.POSITIVE))}
    scorer = PlainScorer(lambda v: v["M"] - v["W"].abs().sum((-2, -1)) / 100, uses=("M", "W"))
    result = search(setting, given, score=scorer, starts=[], budget=600, seed=0)
    assert result.candidates
    assert len({str(batch["W"][0].tolist()) for batch in scorer.seen}) == 3
    assert all(bool((batch["W"] == batch["W"][0]).all()) for batch in scorer.seen)
    assert all(bool((batch["M"] > 0).all()) for batch in scorer.seen)


def test_every_instance_scored_lies_in_its_domain() -> None:
    setting = setting_of(free("x", interval(0, 1)), free("y", Domain(DomainKind.POSITIVE)))
    scorer = PlainScorer(lambda v: v["x"] * v["y"] - 1 + 2 * v["y"])
    search(setting, {}, score=scorer, starts=[], budget=1500, seed=0)
    for batch in scorer.seen:
        assert bool(((batch["x"] >= 0) & (batch["x"] <= 1) & (batch["y"] > 0)).all())


def test_small_sizes_come_first_and_those_of_starts_are_never_left_out() -> None:
    ranges = {"n": SizeRange(1, 9), "m": SizeRange(2, 9), "p": SizeRange(1, 1)}
    start = Instance("s", "", {"n": 9, "m": 8, "p": 1}, {}, 0)
    chosen = size_choices(ranges, [start], 6)
    totals = [sum(sizes.values()) for sizes in chosen]
    assert totals == sorted(totals)
    assert chosen[0] == {"n": 1, "m": 2, "p": 1}
    assert chosen[-1] == start.sizes
    assert len(chosen) == 6


def test_starting_points_fit_their_sizes_and_domains() -> None:
    setting = setting_of(
        free("x", interval(0, 1, low_open=True)),
        Free("A", matrix("n", "n"), Domain(DomainKind.SKEW)),
        sizes={"n": SizeRange(1, 4)},
    )
    generator = torch.Generator().manual_seed(0)
    base = plain_instance(setting, {}, {"n": 3})
    for case in (base, *structured_instances(setting, {}, {"n": 3}, 10, generator)):
        assert case.values["A"].shape == (3, 3)
        assert torch.equal(case.values["A"], -case.values["A"].T)
        assert 0 < case.values["x"].item() <= 1
    vectors = random_vectors(Space(setting.free, base, smooth=True), 50, generator)
    assert vectors.shape == (50, 4)
    assert bool((vectors == vectors.round()).all(1).any())
    assert math.isfinite(float(vectors.abs().max()))
