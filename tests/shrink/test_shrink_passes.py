"""The shrinker on predicates of our own: sizes, structure, coupled variables, what may not be changed."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
import torch
from shrink_samples import SQUARE_KINDS, UNIT, free, instance_of, setting_of, square, tensor

from ntk_deq.errors import ArgumentError
from ntk_deq.evaluation.instance import Instance
from ntk_deq.falsify import instance_at
from ntk_deq.falsify.domains import contains
from ntk_deq.falsify.shrink import ShrinkResult, shrink
from ntk_deq.falsify.shrink.tensors import measure
from ntk_deq.language.declaration import Draw, Setting
from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.parser import parse
from ntk_deq.language.types import matrix


def fully(instance: Instance, setting: Setting, predicate: object, **given: Free) -> ShrinkResult:
    """Shrink with checks that hold for every predicate."""
    tried: list[Instance] = []
    accepted = [instance]

    def refutes(candidate: Instance) -> bool:
        tried.append(candidate)
        found = bool(predicate(candidate))  # type: ignore[operator]
        if found:
            accepted.append(candidate)
        return found

    result = shrink(instance, setting, given, refutes, budget=2000)
    assert result.evaluations == len(tried) <= 2000
    assert len(result.steps) == len(accepted) - 1
    assert all(measure(b) < measure(a) for a, b in itertools.pairwise(accepted))
    for candidate in tried:
        for letter, span in setting.sizes.items():
            assert span.low <= candidate.sizes[letter] <= span.high
        for name, variable in {**setting.free, **given}.items():
            if name not in candidate.rounded:
                assert contains(variable.domain, candidate.values[name]), (name, candidate.values[name])
    assert predicate(result.instance)  # type: ignore[operator]
    return result


def test_sizes_go_down_to_what_the_predicate_needs() -> None:
    setting = setting_of(free("A", shape=matrix("N", "m")), N=(1, 6), m=(1, 6))
    value = torch.zeros(6, 6, dtype=torch.float64)
    value[4, 1], value[2, 5] = 3.7, -2.2
    found = fully(instance_of({"N": 6, "m": 6}, A=value), setting, lambda i: (i.values["A"] < 0).any())
    assert found.instance.sizes == {"N": 1, "m": 1}
    assert found.instance.values["A"].tolist() == [[-1.0]]
    assert found.complete


def test_a_pair_of_rows_that_only_fail_together_is_kept() -> None:
    setting = setting_of(free("v", shape=matrix("N")), N=(1, 8))
    start = instance_of({"N": 8}, v=[1.0, 0.0, 5.5, 0.0, 0.0, -7.25, 0.0, 0.0])
    found = fully(start, setting, lambda i: i.values["v"].max() > 2 and i.values["v"].min() < -2)
    assert found.instance.sizes == {"N": 2}
    assert sorted(found.instance.values["v"].tolist()) == [-3.0, 3.0]


@pytest.mark.parametrize("columns_first", [True, False])
def test_an_axis_of_a_product_of_letters_loses_the_entries_of_the_index(columns_first: bool) -> None:
    variables = (free("Z", shape=matrix("N", "m")), free("z", shape=matrix(matrix("N").rows * matrix("m").rows)))
    setting = setting_of(*variables, N=(1, 4), m=(1, 4))
    value = torch.arange(1.0, 13.0, dtype=torch.float64).reshape(3, 4)

    def flat(matrix_value: torch.Tensor) -> torch.Tensor:
        return (matrix_value.T if columns_first else matrix_value).flatten()

    start = instance_of({"N": 3, "m": 4}, Z=value, z=flat(value).clone())
    found = fully(start, setting, lambda i: torch.equal(i.values["z"], flat(i.values["Z"])) and i.values["z"].all())
    assert found.instance.sizes == {"N": 1, "m": 1}
    assert found.instance.values["z"].tolist() == [1.0]


def test_variables_that_need_each_other_go_down_together() -> None:
    setting = setting_of(square("A"), n=(1, 4))
    bound = free("M", DomainKind.POSITIVE)
    start = instance_of({"n": 1}, A=[[5.25]], M=5.25)
    found = fully(start, setting, lambda i: i.values["A"].norm() == i.values["M"], M=bound)
    assert found.instance.values["A"].tolist() == [[1.0]]
    assert found.instance.values["M"].item() == 1.0


def test_two_signs_that_hold_each_other_up_go_together() -> None:
    setting = setting_of(free("x"), free("w"))
    found = fully(instance_of(x=-3.0, w=-5.0), setting, lambda i: i.values["x"] * i.values["w"] > 0)
    assert (found.instance.values["x"].item(), found.instance.values["w"].item()) == (1.0, 1.0)


@pytest.mark.parametrize("kind", SQUARE_KINDS)
def test_structure_survives(kind: DomainKind) -> None:
    setting = setting_of(square("A", kind), n=(1, 5))
    starts = [instance_at(setting, {}, index, 3) for index in range(20, 60)]
    for start in [i for i in starts if i.sizes["n"] > 2 and i.values["A"].any()][:4]:
        found = fully(start, setting, lambda i: i.values["A"].any())
        numbers = found.instance.values["A"].abs().flatten().tolist()
        assert sorted(numbers) == ([0.0, 0.0, 1.0, 1.0] if kind is DomainKind.SKEW else [1.0])


def test_a_random_orthogonal_matrix_becomes_an_exact_one() -> None:
    setting = setting_of(square("Q", DomainKind.ORTHOGONAL), n=(2, 4))
    start = next(i for i in (instance_at(setting, {}, k, 0) for k in range(1, 80, 2)) if i.rounded)
    found = fully(start, setting, lambda i: True)
    assert not found.instance.rounded
    assert found.instance.values["Q"].tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_unit_rows_keep_their_length_when_a_column_goes() -> None:
    setting = setting_of(free("X", DomainKind.UNIT_ROWS, matrix("N", "d")), N=(1, 4), d=(1, 4))
    start = next(i for i in (instance_at(setting, {}, k, 0) for k in range(1, 80, 2)) if i.rounded and i.sizes["d"] > 1)
    found = fully(start, setting, lambda i: True)
    assert found.instance.values["X"].tolist() == [[1.0]]


def test_a_low_rank_is_found_where_it_is_enough() -> None:
    setting = setting_of(free("A", shape=matrix("n", "m")), n=(3, 3), m=(3, 3))
    start = instance_of({"n": 3, "m": 3}, A=torch.linspace(-2.3, 4.1, 9, dtype=torch.float64).reshape(3, 3))
    found = fully(start, setting, lambda i: torch.linalg.matrix_rank(i.values["A"]) >= 1)
    assert sorted(found.instance.values["A"].flatten().tolist()) == [0.0] * 8 + [1.0]


@pytest.mark.parametrize(
    ("domain", "start", "limit", "expected"),
    [
        (UNIT, 0.8371, 0.6, 0.75),
        (Domain(DomainKind.POSITIVE), 1e-200, 0.0, 1.0),
        (Domain(DomainKind.REAL), 123.456, 100.0, 128.0),
        (Domain(DomainKind.INTEGER), 77.0, 5.0, 6.0),
        (Domain(DomainKind.REAL), 1e300, 0.3, 1.0),
    ],
)
def test_scalars_take_plain_values_of_their_domain(domain: Domain, start: float, limit: float, expected: float) -> None:
    found = fully(instance_of(c=start), setting_of(free("c", domain)), lambda i: i.values["c"].item() > limit)
    assert found.instance.values["c"].item() == expected


def test_a_closed_end_is_tried() -> None:
    domain = Domain(DomainKind.INTERVAL, Fraction(0), Fraction(5, 8))
    found = fully(instance_of(c=0.62), setting_of(free("c", domain)), lambda i: i.values["c"].item() > 0.61)
    assert found.instance.values["c"].item() == 0.625


def test_drawn_variables_their_scalars_and_their_sizes_stay() -> None:
    setting = setting_of(free("beta"), free("b", shape=matrix("m")), N=(1, 5), m=(1, 5))
    draw = Draw("X", matrix("N", "N"), parse("beta*normal(0, 1)"), "beta*normal(0, 1)")
    setting = Setting("s", None, setting.sizes, setting.free, {"X": draw}, None, setting.position)
    start = instance_of({"N": 3, "m": 4}, beta=0.7, b=[0.3, 0.4, 0.5, 0.6], X=torch.full((3, 3), 0.7))
    found = fully(start, setting, lambda i: True)
    assert found.instance.sizes == {"N": 3, "m": 1}
    assert found.instance.values["beta"].item() == 0.7
    assert torch.equal(found.instance.values["X"], start.values["X"])
    assert found.instance.values["b"].tolist() == [0.0]


def test_the_budget_is_kept_and_what_was_reached_is_returned() -> None:
    setting = setting_of(free("A", shape=matrix("N", "m")), N=(1, 6), m=(1, 6))
    start = instance_of({"N": 6, "m": 6}, A=torch.full((6, 6), 0.1, dtype=torch.float64))
    for budget in (0, 1, 2, 5):
        calls = []
        result = shrink(start, setting, {}, lambda i: calls.append(i) or i.values["A"].sum() > 0.3, budget=budget)  # noqa: B023
        assert len(calls) == result.evaluations <= budget
        assert not result.complete
        assert result.instance.values["A"].sum() > 0.3
    with pytest.raises(ArgumentError, match="`budget` of shrink must be an integer >= 0"):
        shrink(start, setting, {}, lambda i: True, budget=-1)


def test_it_is_deterministic_and_has_nothing_to_do_twice() -> None:
    setting = setting_of(square("A"), free("c", UNIT), n=(1, 4))
    start = instance_of({"n": 3}, A=torch.linspace(-0.7, 2.9, 9).double().reshape(3, 3), c=0.37)

    def refutes(i: Instance) -> bool:
        return bool(i.values["A"].trace() * i.values["c"] > 0.2 or i.values["A"].trace() < -0.2)

    assert refutes(start)
    first, second = (shrink(start, setting, {}, refutes) for _ in range(2))
    assert first.steps == second.steps
    assert first.evaluations == second.evaluations
    again = shrink(first.instance, setting, {}, refutes)
    assert again.steps == ()
    assert again.instance is first.instance


def test_no_negative_zero_is_left_where_something_was_shrunk() -> None:
    setting = setting_of(free("v", shape=matrix("N")), N=(1, 4))
    found = fully(instance_of({"N": 3}, v=[-0.0, 2.0, -0.0]), setting, lambda i: len(i.values["v"]) > 1)
    assert not torch.signbit(found.instance.values["v"]).any()


def test_the_words_say_where_it_came_from() -> None:
    found = fully(instance_of(c=3.0), setting_of(free("c")), lambda i: i.values["c"] > 0)
    assert found.instance.family == "shrunk from: as written"
    assert found.instance.index == 7
    assert found.steps == ("c scaled by 2^-1", "c = 1") or found.steps[-1] == "c = 1"


def test_a_variable_that_is_empty_of_entries_to_change_is_left() -> None:
    setting = setting_of(square("A", DomainKind.SKEW), n=(1, 1))
    found = fully(instance_of({"n": 1}, A=tensor([[0.0]])), setting, lambda i: True)
    assert found.steps == ()
