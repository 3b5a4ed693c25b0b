"""Counterexamples of the papers' claims, shrunk with certified balls at every step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from shrink_samples import paper_claim, tensor

from ntk_deq.claims.claim import Claim
from ntk_deq.claims.load import load_suite
from ntk_deq.errors import ArgumentError
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Truth
from ntk_deq.falsify import instance_at
from ntk_deq.verify.counterexamples import minimise_counterexample, plainest_counterexample
from ntk_deq.verify.judge import Judgement, Standing, judge_instance, refutes

CPU = torch.device("cpu")
PLAIN = {0.0, 1.0, -1.0, 0.5, -0.5, 0.25, 2.0}


def judged(claim: Claim, index: int, dtype: torch.dtype = torch.float64) -> Judgement:
    return judge_instance(claim, instance_at(claim.settings[0], claim.given, index, 0), device=CPU, dtype=dtype)


def entries(instance: Instance) -> set[float]:
    return {x for value in instance.values.values() for x in value.flatten().tolist()}


@pytest.mark.parametrize(("name", "index"), [("R.S4M", 109), ("R.S4M", 36), ("R.S4P", 47)])
def test_random_counterexamples_of_the_printed_bounds_end_at_size_one(name: str, index: int) -> None:
    claim = paper_claim(name)
    start = judged(claim, index)
    found = minimise_counterexample(claim, claim.settings[0], start, device=CPU)
    assert refutes(found)
    assert set(found.instance.sizes.values()) == {1}
    assert entries(found.instance) <= PLAIN
    again = judge_instance(claim, found.instance, device=CPU)
    assert again.standing is Standing.MET
    assert again.conclusions["conclusion"].comparison == found.conclusions["conclusion"].comparison


def test_an_equality_that_breaks_a_strict_sign_is_kept_while_everything_shrinks() -> None:
    claim = paper_claim("R.L3.2")
    values = {
        "W": torch.ones(2, 3),
        "A": 0.75 * torch.eye(3),
        "b": torch.arange(3.0),
        "X": torch.ones(2, 2),
        "y": torch.ones(2),
        "gamma": tensor(0.375),
        "M": tensor(0.75),
    }
    instance = Instance("any", "by hand", {"N": 2, "d": 2, "m": 3}, {k: v.double() for k, v in values.items()}, 0)
    start = judge_instance(claim, instance, device=CPU)
    assert refutes(start)
    found = minimise_counterexample(claim, claim.settings[0], start, device=CPU)
    assert set(found.instance.sizes.values()) == {1}
    assert found.instance.values["A"].tolist() == [[1.0]]
    assert found.instance.values["M"].item() == 1.0
    assert found.conclusions["(6)"].truth is Truth.FALSE


def test_of_several_the_plainest_after_shrinking_is_given() -> None:
    claim = paper_claim("R.S4P")
    starts = [judged(claim, index) for index in (47, 109)]
    found = plainest_counterexample(claim, starts, device=CPU)
    assert refutes(found)
    assert set(found.instance.sizes.values()) == {1}
    assert entries(found.instance) <= {0.0, 0.5, 1.0}


def test_large_plain_counterexamples_do_not_hide_a_small_one(tmp_path: Path) -> None:
    """Two permutations that do not commute have no smaller such pair within them; random matrices shrink further."""
    file = tmp_path / "commuting.yaml"
    file.write_text("""
suite: commuting
settings:
  s: {sizes: {n: 1..4}, domain: {A: "real[n, n]", B: "real[n, n]"}}
claims:
  - {id: C, setting: s, conclude: A*B == B*A}
""")
    (claim,) = load_suite(file).claims
    assert isinstance(claim, Claim)
    shift = torch.eye(4, dtype=torch.float64).roll(1, 0)
    signs = torch.diag(torch.tensor([1.0, 1.0, 1.0, -1.0], dtype=torch.float64))
    plain = Instance("s", "shift, signs", {"n": 4}, {"A": shift, "B": signs}, 0)
    plainer = Instance("s", "shift back, signs", {"n": 4}, {"A": shift.T, "B": signs}, 1)
    generator = torch.Generator().manual_seed(0)
    drawn = {name: torch.randn(2, 2, generator=generator, dtype=torch.float64) for name in "AB"}
    starts = [
        judge_instance(claim, i, device=CPU) for i in (plain, plainer, Instance("s", "random", {"n": 2}, drawn, 2))
    ]
    assert plainest_counterexample(claim, starts, device=CPU).instance.sizes == {"n": 2}


def test_no_budget_or_no_time_leaves_the_counterexample_as_it_was() -> None:
    claim = paper_claim("R.S4M")
    start = judged(claim, 36)
    for limits in ({"budget": 0}, {"deadline": 0.0}):
        assert minimise_counterexample(claim, claim.settings[0], start, device=CPU, **limits) is start


def test_a_judgement_that_refutes_nothing_is_refused() -> None:
    claim = paper_claim("R.S4M")
    with pytest.raises(ArgumentError, match=r"must refute R\.S4M\. Instance 1 does not"):
        minimise_counterexample(claim, claim.settings[0], judged(claim, 1), device=CPU)


def test_in_single_precision_the_numbers_shown_are_those_that_were_judged() -> None:
    claim = paper_claim("R.S4M")
    start = judged(claim, 36, torch.float32)
    assert refutes(start)
    values = {**start.instance.values, "b": torch.tensor([1 / 3], dtype=torch.float64)}
    odd = judge_instance(claim, replace(start.instance, values=values), device=CPU, dtype=torch.float32)
    assert refutes(odd)
    found = minimise_counterexample(claim, claim.settings[0], odd, device=CPU, dtype=torch.float32, budget=3)
    for value in found.instance.values.values():
        assert torch.equal(value, value.float().double())


STRICT = """
suite: strict
settings:
  pair: {sizes: {n: 1..3, m: 1..3}, domain: {A: "real[n, m]", B: "real[m, n]"}}
claims:
  - id: strict-trace
    setting: pair
    conclude: trace(A*B) < trace(B*A)
"""


def test_what_floats_leave_open_is_shrunk_with_more_bits(tmp_path: Path) -> None:
    path = tmp_path / "strict.yaml"
    path.write_text(STRICT, encoding="utf-8")
    claim = load_suite(path).claims[0]
    assert isinstance(claim, Claim)
    generator = torch.Generator().manual_seed(1)
    pair = {k: torch.rand(3, 3, generator=generator, dtype=torch.float64) for k in ("A", "B")}
    instance = Instance("pair", "random", {"n": 3, "m": 3}, pair, 0)
    assert judge_instance(claim, instance, device=CPU).conclusions["conclusion"].truth is Truth.STRICT_TIGHT
    start = judge_instance(claim, instance, device=CPU, precision=128)
    assert refutes(start)
    setting = claim.settings[0]
    found = minimise_counterexample(claim, setting, start, device=CPU, precision=128)
    assert refutes(found)
    assert found.instance.sizes == {"n": 1, "m": 1}
    assert entries(found.instance) == {0.0}
    # The first steps are undecided in floats, so that without more bits they would not be taken.
    assert refutes(judge_instance(claim, found.instance, device=CPU))


def test_what_single_precision_takes_off_a_draw_is_added_to_its_distance(tmp_path: Path) -> None:
    file = tmp_path / "claims.yaml"
    file.write_text(
        'suite: s\nsettings:\n  s: {sizes: {N: 2, d: 3}, domain: {c: positive}, data: {X: "sphere[N, d]"}}\nclaims:\n'
        "  - {id: f, setting: s, conclude: fro(X)^2 >= N + c}\n"
    )
    (claim,) = load_suite(file).claims
    assert isinstance(claim, Claim)
    start = judged(claim, 1, torch.float32)
    assert refutes(start)
    found = minimise_counterexample(claim, claim.settings[0], start, device=CPU, dtype=torch.float32).instance
    drawn = instance_at(claim.settings[0], claim.given, 1, 0)
    moved = float(torch.linalg.matrix_norm(found.values["X"] - drawn.values["X"]))
    assert moved > 1e-10
    assert found.rounded["X"] >= moved + drawn.rounded["X"]
