"""Recursions as claim files give them: what is accepted, and what is said of each mistake."""

from __future__ import annotations

import pytest

from ntk_deq.claims.claim import Claim
from ntk_deq.claims.depths import at_depth
from ntk_deq.claims.load import load_suite

HEAD = """
suite: t
settings:
  s:
    sizes: {n: 1..3, T: 5}
    domain: {W: "real[n, n]", z0: "real[n]", a: real}
claims:
  - id: R
    setting: s
    let:
"""
DECAY = ["z[0]: z0", "z[k+1]: z[k]/2"]


def claim_of(tmp_path, entries, *, run="{method: recursion, steps: 5}", conclude="norm(z[k]) >= 0 for all k"):
    path = tmp_path / "claims.yaml"
    lines = "".join(f"      {entry}\n" for entry in entries)
    path.write_text(f"{HEAD}{lines}    run: {run}\n    conclude: {conclude}\n", encoding="utf-8")
    (claim,) = load_suite(str(path)).claims
    return claim


def message_of(tmp_path, entries, **kwargs):
    """What is said of a claim that is not well-formed: every problem on a line."""
    claim = claim_of(tmp_path, entries, **kwargs)
    assert not isinstance(claim, Claim), "the claim is well-formed"
    return "\n".join(f"{problem.message} {problem.hint or ''}".strip() for problem in claim.problems)


def test_a_recursion_is_a_claim(tmp_path):
    claim = claim_of(tmp_path, DECAY)
    assert isinstance(claim, Claim)
    assert list(claim.let) == ["z[0]", "z[k+1]"]
    assert claim.recursions.first("z") == 0


def test_what_a_rule_uses_is_read_from_the_index_and_not_from_the_order_of_lines(tmp_path):
    entries = ["u[k+1]: u[k] + z[k+1]", "z[k+1]: W*u[k]", "u[0]: z0"]
    claim = claim_of(tmp_path, entries)
    assert isinstance(claim, Claim)
    assert claim.recursions.first("z") == 1
    known = []
    for at in claim.recursions.unfolded("u", 1, known):
        known.append(at)
    assert known == [("u", 0), ("z", 1), ("u", 1)]


def test_two_starts_allow_to_look_back_twice(tmp_path):
    claim = claim_of(tmp_path, ["z[0]: z0", "z[1]: z0", "z[k+1]: 2*z[k] - z[k-1]", "b[k]: 1/(k+1)"])
    assert isinstance(claim, Claim)
    assert set(claim.recursions.uses("z", 2)) == {("z", 1), ("z", 0)}


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (["z[0]: z0", "z[k+1]: z[k+1]/2"], "`z[1]` rests on itself: z[1] -> z[1]."),
        (
            ["z[0]: z0", "z[k+1]: y[k+1]", "y[k+1]: z[k+1]"],
            "rests on itself: z[1] -> y[1] -> z[1].",
        ),
        (["z[0]: z0", "z[k+1]: z[k+2]"], "`z[k+2]` runs ahead of `z[k+1]`, which it is to give."),
        (["z[0]: z0", "z[k+1]: 2*z[k] - z[k-1]"], "`z` begins at `z[0]`. give `z[1]` a start of its own"),
        (["z[k+1]: z0 + z[k]"], "a start is missing: `z[1]` needs `z[0]`"),
        (["z[1]: z0", "z[k+1]: z[k]/2"], "the start `z[0]` is missing"),
        (["W[0]: z0", "W[k+1]: W[k]", "z[k]: W[k]"], "`let` cannot define `W`: that is a variable of setting s."),
        (["z[0]: z0", "z[k+1]: z[k]*z[k]'"], "`z` is matrix n x n, and by its other entry vector n."),
        (["z[0]: z0", "z[k+1]: z[k] >= 0"], "Got a statement."),
        (["z[0]: z0", "z[a+1]: z[a]"], "`a` has a meaning already and cannot be a step index."),
        (["z[0]: z0", "z[k+1]: z[k]", "z[j+1]: z[j]"], "`z` is given twice, by `z[k+1]` too."),
        (["z[0]: z0", "z[k+1]: z"], "`z` has a value at a step only. write z[...]"),
        (["z[0]: z0", "z[k+1]: W[k]*z[k]"], "`W` does not change with the step. what carries a step: path_length, z"),
        (["z[0]: z0", "z[2*k]: z[k]"], "letters with + and - only."),
        (["z[0]: z0", "z[k+j]: z[k]"], "a letter plus or minus a number."),
        (["z: z0"], "nothing there has an index."),
        (["z[0]: q*z0", "z[k+1]: z[k]/2", "q: norm(z[3])"], "rests on itself"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_a_mistake_is_named(tmp_path, entries, said):
    assert said in message_of(tmp_path, entries)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("{method: recursion}", "steps"),
        ("{method: recursion, steps: 0}", "`run.steps` of claim R must be a number >= 1. Got 0."),
        ("{method: recursion, steps: 1000000}", "10000"),
        ("{method: recursion, steps: .inf}", "whole number"),
    ],
)
def test_a_budget_is_needed_and_has_an_end(tmp_path, run, said):
    assert said in message_of(tmp_path, DECAY, run=run)


def test_of_a_cycle_nothing_else_is_said(tmp_path):
    assert "\n" not in message_of(tmp_path, ["z[0]: z0", "z[k+1]: y[k+1]", "y[k+1]: z[k+1]"])


def test_a_step_beyond_the_budget_is_an_error(tmp_path):
    assert "beyond the 5 steps" in message_of(tmp_path, DECAY, conclude="norm(z[6]) >= 0")


def test_a_recursion_that_nothing_uses_is_a_warning(tmp_path):
    claim = claim_of(tmp_path, [*DECAY, "w[0]: z0", "w[k+1]: w[k]"])
    assert isinstance(claim, Claim)
    assert [problem.message for problem in claim.warnings] == ["`let.w` is used nowhere."]


def test_an_index_without_a_run_says_what_is_missing(tmp_path):
    text = message_of(tmp_path, DECAY, run="{method: fixed-point, steps: 3}")
    assert "run" in text


SWEEP = ["V[l][0] for l in 0..2: z0", "V[0][k+1]: V[0][k]", "V[l][k+1] for l in 1..2: V[l][k]/2 + V[l-1][k+1]/2"]


def test_a_family_is_swept_in_the_order_of_its_indices(tmp_path):
    claim = claim_of(tmp_path, SWEEP, conclude="norm(V[l][k]) >= 0 for all l in 0..2 for all k")
    assert isinstance(claim, Claim)
    (depth,) = claim.depths
    written = at_depth(claim, depth)
    assert sorted(written.recursions.rules) == ["V[0]", "V[1]", "V[2]", "path_length"]
    assert set(written.recursions.uses("V[2]", 4)) == {("V[2]", 3), ("V[1]", 4)}


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([*SWEEP[:1], "V[l][k+1] for l in 0..2: V[2-l][k+1]"], "rests on itself"),
        ([*SWEEP[:1], "V[l][k+1] for l in 0..2: V[l][k+2]"], "runs ahead of"),
        ([*SWEEP[1:]], "a start is missing"),
        (
            [*SWEEP[:2], "V[l][k+1] for l in 1..2: V[l][k]*V[l][k]'"],
            "V[l] is vector n by its other members. Got matrix n x n.",
        ),
        ([*SWEEP[:2], "V[l][k+1] for l in 1..2: V[l-1]"], "has a value at a step only"),
    ],
)
def test_a_mistake_in_a_sweep_is_named(tmp_path, entries, said):
    assert said in message_of(tmp_path, entries, conclude="norm(V[0][k]) >= 0 for all k")
