"""Free constants chosen by an optimiser: where the optimum is known, where nothing is feasible, the same every time."""

from dataclasses import replace

import pytest
import torch

from ntk_deq.claims.load import load_suite
from ntk_deq.errors import ArgumentError
from ntk_deq.falsify import instance_at
from ntk_deq.verify.scoring import ClaimScorer
from ntk_deq.verify.training.choose import choose_constants

FILE = """
suite: t
settings:
  plain:
    sizes: {{n: 3}}
    domain: {{v: "real[n]"}}
  drawn:
    sizes: {{n: 3}}
    domain: {{}}
    init: {{v: "normal(0, 1)*beta"}}
claims:
  - id: T
    title: t
    setting: {setting}
    given: {given}
    choose: {choose}
    assume: {assume}
    conclude: norm(v) >= 0
"""


def chosen(tmp_path, **parts):
    path = tmp_path / "claims.yaml"
    path.write_text(FILE.format(**parts))
    (claim,) = load_suite(str(path)).claims
    assert hasattr(claim, "choose"), claim
    setting = claim.settings[0]
    instance = instance_at(setting, claim.given, 3, 0)
    return claim, setting, instance, choose_constants(claim, setting, instance, seed=0)


def test_the_optimum_on_an_edge_of_two_hypotheses(tmp_path):
    claim, _, instance, found = chosen(
        tmp_path,
        setting="plain",
        given="{a: positive, c: positive}",
        choose="{maximize: a*c}",
        assume="{first: a + c <= 2, second: c <= 1/2}",
    )
    assert claim.choose.maximize
    # On a + c = 2 the product grows up to c = 1/2, where a = 3/2.
    assert float(found.values["a"] * found.values["c"]) == pytest.approx(0.75, rel=0.05)
    assert float(found.values["a"] + found.values["c"]) <= 2
    assert torch.equal(found.values["v"], instance.values["v"])
    assert "chosen: a = " in found.family


def test_a_far_and_narrow_feasible_region_is_reached(tmp_path):
    *_, found = chosen(
        tmp_path,
        setting="plain",
        given="{a: positive, c: positive, e: positive}",
        choose="{maximize: e}",
        assume="{scale: a >= 1e6*c, product: a*c >= 1e4, step: e <= 1/(a*c)}",
    )
    assert float(found.values["e"]) == pytest.approx(1e-4, rel=0.1)


def test_what_is_drawn_follows_the_chosen_scale(tmp_path):
    claim, setting, instance, found = chosen(
        tmp_path,
        setting="drawn",
        given="{beta: positive}",
        choose="{minimize: beta}",
        assume="{large: norm(v) >= 1000}",
    )
    ratio = found.values["beta"] / instance.values["beta"]
    assert torch.allclose(found.values["v"], instance.values["v"] * ratio, rtol=1e-12)
    assert 1000 <= float(found.values["v"].norm()) <= 1050
    score = ClaimScorer(replace(claim, conclude={}), setting)(found, {})
    assert bool((score.hypotheses > 0).all())


@pytest.mark.parametrize(
    ("domain", "best"), [("[12, 20)", 12.0), ("(12, 20)", 12.0), ("(0, 1)", 0.0), ("integer 3..9", 3.0)]
)
def test_a_chosen_constant_stays_in_its_domain(tmp_path, domain, best):
    """The optimum is at an end: neither rounding to few digits nor a far coordinate gets beyond it."""
    *_, claim_found = chosen(
        tmp_path, setting="drawn", given=f'{{beta: "{domain}"}}', choose="{minimize: beta}", assume="{any: beta >= 0}"
    )
    value = float(claim_found.values["beta"])
    lowest, openly = best, domain.startswith("(")
    assert value > lowest if openly else value >= lowest
    assert value <= 1.2 * best + 0.01
    assert value == int(value) or not domain.startswith("integer")


def test_an_objective_of_any_size_is_one(tmp_path):
    """Far from its optimum 1/a is 1e12; a logarithm of it over the least float would overflow."""
    *_, found = chosen(
        tmp_path, setting="plain", given="{a: positive}", choose="{maximize: 1/a}", assume="{small: a >= 1e-12}"
    )
    assert float(found.values["a"]) == pytest.approx(1e-12, rel=0.1)


def test_nothing_feasible_leaves_the_instance(tmp_path):
    *_, instance, found = chosen(
        tmp_path,
        setting="plain",
        given="{a: positive}",
        choose="{maximize: a}",
        assume="{never: a + 1 <= 1/2}",
    )
    assert found is instance


def test_the_same_choice_every_time(tmp_path):
    parts = {
        "setting": "plain",
        "given": "{a: positive, c: positive}",
        "choose": "{maximize: a*c}",
        "assume": "{first: a + c <= 2}",
    }
    first, second = (chosen(tmp_path, **parts)[-1] for _ in range(2))
    assert {n: v.tolist() for n, v in first.values.items()} == {n: v.tolist() for n, v in second.values.items()}


def test_a_claim_that_chooses_nothing(tmp_path):
    claim, setting, instance, _ = chosen(
        tmp_path, setting="plain", given="{a: positive}", choose="{maximize: a}", assume="{first: a <= 1}"
    )
    with pytest.raises(ArgumentError, match="must have `choose`"):
        choose_constants(replace(claim, choose=None), setting, instance, seed=0)
