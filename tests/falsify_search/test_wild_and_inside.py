"""Matrices at which bounds fail, instances moved into hypotheses, and climbs from corner to corner."""

from __future__ import annotations

import pytest
import torch
from search_harness import PlainScorer, Values, free, instance_of, interval, objective_of, setting_of
from torch import Tensor

from ntk_deq.evaluation.instance import Instance
from ntk_deq.falsify.domains import contains
from ntk_deq.falsify.exact_builders import WILD
from ntk_deq.falsify.search import Space
from ntk_deq.falsify.search import descents as climbing
from ntk_deq.falsify.search.archive import Archive, Place
from ntk_deq.falsify.search.feasible import Inside, Repair
from ntk_deq.falsify.search.objective import Meter, Objective, combined
from ntk_deq.falsify.search.starts import plain_instance, wild_instances, wild_member
from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.types import SizeRange, matrix

REAL, POSITIVE = Domain(DomainKind.REAL), Domain(DomainKind.POSITIVE)
DOMAINS = (
    *(REAL, POSITIVE, interval(0, 1), interval(-1, 2, low_open=True), Domain(DomainKind.NONNEGATIVE)),
    *(Domain(kind) for kind in (DomainKind.SYMMETRIC, DomainKind.SKEW, DomainKind.PSD, DomainKind.DIAGONAL)),
)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda d: f"{d.kind.value} {d.low}")
@pytest.mark.parametrize("name", list(WILD))
def test_wild_members_lie_in_their_domain(domain: Domain, name: str) -> None:
    for size in (1, 2, 5):
        member = wild_member(domain, (size, size), name, generator())
        assert member is None or (member.shape == (size, size) and contains(domain, member))
    vector = (
        None if domain.kind in (DomainKind.SYMMETRIC, DomainKind.SKEW, DomainKind.PSD, DomainKind.DIAGONAL) else (3,)
    )
    if vector is not None:
        member = wild_member(domain, vector, name, generator())
        assert member is None or (member.shape == vector and contains(domain, member))


def test_wild_families_are_what_they_are_called() -> None:
    hadamard = wild_member(REAL, (4, 4), "Hadamard", generator())
    assert hadamard is not None
    assert torch.equal(hadamard.T @ hadamard, 4 * torch.eye(4, dtype=torch.float64))
    reflection = wild_member(REAL, (3, 3), "reflection", generator())
    assert reflection is not None
    assert torch.equal(reflection @ reflection, 9 * torch.eye(3, dtype=torch.float64))
    tiny = wild_member(REAL, (3, 3), "shift with a tiny corner", generator())
    assert tiny is not None
    eigenvalue = torch.linalg.eigvals(tiny).abs().max().item()
    assert eigenvalue == pytest.approx(tiny[2, 0].item() ** (1 / 3), rel=1e-4)
    jordan = wild_member(REAL, (3, 3), "Jordan block", generator())
    assert jordan is not None
    assert torch.linalg.eigvals(jordan).abs().max().item() < 1 <= torch.linalg.matrix_norm(jordan, 2).item()


def pair_setting() -> dict[str, Free]:
    return {name: Free(name, matrix("n", "n"), REAL) for name in "AB"}


def test_themes_hold_the_pairs_that_no_single_draw_gives() -> None:
    variables = pair_setting()
    setting = setting_of(*variables.values(), sizes={"n": SizeRange(1, 4)})
    base = plain_instance(setting, {}, {"n": 4})
    found = list(wild_instances(base, variables, 200, generator()))
    assert len(found) == 200

    def some(left: Tensor, right: Tensor) -> bool:
        return any(torch.equal(i.values["A"], left) and torch.equal(i.values["B"], right) for i in found)

    shift, corner = torch.ones(4, 4).double().triu(1).tril(1), torch.zeros(4, 4).double()
    corner[3, 0] = 2.0**-24
    ones = torch.ones(4, 4, dtype=torch.float64)
    assert some(shift, corner)
    assert some(corner, shift)
    assert some(ones, ones)
    hadamard = wild_member(REAL, (4, 4), "Hadamard", generator())
    assert hadamard is not None
    assert some(hadamard, hadamard)
    assert some(hadamard, torch.eye(4, dtype=torch.float64))


def bounded(v: Values) -> Tensor:
    return 3 - v["x"] - v["y"]


def test_instances_are_placed_anywhere_inside_and_at_the_edge() -> None:
    setting = setting_of(free("x", POSITIVE), free("y", POSITIVE))
    scorer = PlainScorer(lambda v: v["x"], hypotheses=(bounded,))
    base = instance_of(x=1.0, y=1.0)
    rows = {"x": torch.full((400,), 50.0).double(), "y": torch.logspace(-3, 3, 400, dtype=torch.float64)}
    placed, met = Inside(setting, {}, scorer).place(base, rows, generator())
    assert met.double().mean() > 0.95
    total = (placed["x"] + placed["y"])[met]
    assert bool((total <= 3).all())
    assert bool((torch.minimum(placed["x"], placed["y"]) > 0).all())
    assert 0.1 < (total > 2.99).double().mean() < 0.9  # the edge is reached, and not by all
    assert (total < 2).double().mean() > 0.1
    assert placed["x"][met].unique().numel() > 50


def test_tensors_are_scaled_up_as_well_as_down() -> None:
    variables = {"A": Free("A", matrix("n", "n"), REAL)}
    setting = setting_of(*variables.values(), sizes={"n": SizeRange(2, 2)})

    def large(v: Values) -> Tensor:
        return torch.linalg.matrix_norm(v["A"], ord=2) - 7

    scorer = PlainScorer(lambda v: v["A"].sum((-2, -1)), hypotheses=(large,), uses=("A",))
    base = plain_instance(setting, {}, {"n": 2})
    found = Inside(setting, {}, scorer).instances(base, [base] * 20, generator())
    assert len(found) == 20
    assert all(torch.linalg.matrix_norm(i.values["A"], ord=2) >= 7 for i in found)


def test_a_repair_reaches_what_shrinking_cannot() -> None:
    # Only x between 20 and 21 will do: no halving leads there from 64.
    setting = setting_of(free("x", POSITIVE))

    def window(v: Values) -> Tensor:
        return 0.5 - (v["x"] - 20.5).abs()

    scorer = PlainScorer(lambda v: v["x"], hypotheses=(window,), uses=("x",))
    for index in range(8):
        start = Instance("s", "x = 64", {}, {"x": torch.tensor(64.0, dtype=torch.float64)}, index)
        candidates = list(Repair(setting, {}, scorer, seed=0, effort=600).candidates(start))
        assert all(20 <= candidate.values["x"].item() <= 21 for candidate in candidates)
    # That window lies between the points of the line, and may be missed; one that holds such a point is not.
    wide = PlainScorer(lambda v: v["x"], hypotheses=(lambda v: 8 - (v["x"] - 30).abs(),), uses=("x",))
    wide.cost = lambda base, columns=None: (1.0, 1 / 128)  # type: ignore[method-assign]
    start = Instance("s", "x = 64", {}, {"x": torch.tensor(64.0, dtype=torch.float64)}, 2)
    assert list(Repair(setting, {}, wide, seed=0, effort=600).candidates(start))


def test_the_repair_is_the_same_for_the_same_seed() -> None:
    setting = setting_of(free("x", POSITIVE), free("y", POSITIVE))
    scorer = PlainScorer(lambda v: v["x"], hypotheses=(bounded,))
    start = Instance("s", "large", {}, {n: torch.tensor(90.0, dtype=torch.float64) for n in "xy"}, 6)
    first, second = (
        [
            {n: v.item() for n, v in c.values.items()}
            for c in Repair(setting, {}, scorer, seed=1, effort=600).candidates(start)
        ]
        for _ in range(2)
    )
    assert first == second
    assert first


@pytest.mark.parametrize("order", [3, 5])
def test_climbing_finds_the_largest_determinant_of_signs(order: int) -> None:
    largest = {3: 4.0, 5: 48.0}[order]  # Hadamard's maximal determinant problem
    variables = {"A": Free("A", matrix("n", "n"), REAL)}
    setting = setting_of(*variables.values(), sizes={"n": SizeRange(order, order)})
    scorer = PlainScorer(
        lambda v: 1.25 - torch.linalg.det(v["A"]).abs() / v["A"].abs().amax((-2, -1)) ** order / largest, uses=("A",)
    )
    base = plain_instance(setting, {}, {"n": order})
    objective = objective_of(scorer, base, variables, budget=60_000, smooth=False)
    found = climbing.climb(objective, objective.space.encode(base), 60_000, generator())
    assert found[0][0] == pytest.approx(0.25, abs=1e-12)
    assert found == sorted(found, key=lambda pair: pair[0])


def test_climbing_keeps_to_closed_ends() -> None:
    variables = {name: free(name, interval(0, 1)) for name in "xy"}
    scorer = PlainScorer(lambda v: 2 - v["x"] - (v["y"] - 0.5) ** 2)
    objective = objective_of(scorer, instance_of(x=0.5, y=0.5), variables, smooth=False)
    found = climbing.climb(objective, torch.tensor([0.3, 0.4], dtype=torch.float64), 2000, generator())
    assert found[0][0] == pytest.approx(0.75)


def test_one_variable_changes_and_the_others_follow() -> None:
    """From r at its edge r = s a change of s alone leaves the hypothesis; r goes along, and little else moves."""
    setting = setting_of(free("r", POSITIVE), free("s", POSITIVE), free("t", POSITIVE))
    scorer = PlainScorer(lambda v: v["r"], hypotheses=(lambda v: v["r"] - v["s"],), uses=("r", "s", "t"))
    scorer.needs = (frozenset({"r", "s"}),)
    start = instance_of(r=1.0, s=1.0, t=3.0)
    others = {name: torch.full((200,), 5.0, dtype=torch.float64) for name in "rst"}
    moved = Inside(setting, {}, scorer).changed(start, [start] * 200, others, generator())
    assert len(moved) > 100
    assert all(i.values["r"] >= i.values["s"] for i in moved)
    followed = [i for i in moved if i.values["s"] > 1]
    assert followed
    assert any(i.values["r"] < 1.01 * i.values["s"] for i in followed)
    assert all(i.values["t"] in (3.0, 5.0) for i in moved)


def test_a_place_remembers_two_ties() -> None:
    base = instance_of(x=0.0)
    variables = {"x": free("x")}
    place, space = Place(base, variables, set()), Space(variables, base, smooth=False)
    found = torch.tensor([0.0, 4e-7, 8e-7, 0.3, 0.4, -0.1], dtype=torch.float64)
    vectors = torch.arange(len(found), dtype=torch.float64).unsqueeze(1)
    for value, vector in zip(found, vectors, strict=True):
        place.remember(0, space, value.reshape(1), vector.unsqueeze(0))
    values = [value for value, _ in place.pools[0]]
    assert values[0] == pytest.approx(-0.1)
    assert sum(0 <= value < 1e-6 for value in values) <= 2
    assert [value for value, _ in place.leading(0)] == pytest.approx([-0.1, 0.3, 0.4])
    del place.pools[0][0]
    assert place.best(0) == 0.25  # a tie leads nowhere


def test_once_an_edge_was_refused_edges_count_as_outside() -> None:
    """Where a hypothesis holds up to rounding only, a broken goal draws the search no more."""
    scorer = PlainScorer(lambda v: v["x"] - 10, hypotheses=(lambda v: 0 * v["x"],), uses=("x",))
    variables = {"x": free("x")}
    base = instance_of(x=0.0)
    refused: list[Instance] = []
    archive = Archive(scorer, lambda found: bool(refused.append(found)))
    objective = Objective(Space(variables, base, smooth=False), scorer, 0, archive, Meter(100), "test")
    assert archive.edge == 0
    with torch.no_grad():
        scores = objective.score(torch.zeros(1, 1, dtype=torch.float64))
    assert len(refused) == 1
    assert archive.edge > 0
    assert float(combined(scores, 0)[0]) < 0 < float(objective.value(scores)[0])
