"""What the prover says of claims with traps in them, and when it must not say `proved`."""

import math
import random
import time
from dataclasses import replace
from fractions import Fraction

import pytest
from proof_harness import BUDGET, claim_of, claims_of, prove, verdict

from ntk_deq.claims.claim import Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.prove import simplest
from ntk_deq.verify.prover import applicable, prove_claim
from ntk_deq.verify.results import Evidence
from ntk_deq.verify.runner import Options, judge

UNDEFINED = [
    ("1/x > 0 or 1/x <= 0", {"x": "real"}),
    ("1/(x - 1) == 1/(x - 1)", {"x": "positive"}),
    ("x/x == 1", {"x": "nonnegative"}),
    ("0*log(x) == 0", {"x": "real"}),
    ("log(x) <= x", {"x": "[-1, 1]"}),
    ("sqrt(x)^2 == x", {"x": "real"}),
    ("sqrt(x - 1/2) >= 0", {"x": "(0, 1)"}),
    ("(x - 1)^(1/3) <= x", {"x": "real"}),
    ("x^-2 > 0", {"x": "real"}),
    ("x^y > 0", {"x": "nonnegative", "y": "positive"}),
    ("1 <= 2 or log(x) > 0", {"x": "real"}),
    ("max(1/x, 1) >= 1", {"x": "[-1, 1]"}),
    ("1/(x^2 - 2) + x^2 >= x^2 - 100000", {"x": "(1, 2)"}),
    ("huber(x, t) >= 0", {"x": "real", "t": "real"}),
    ("slope(sqrt, x) > 0", {"x": "nonnegative"}),
    ("1/sin_free == 1/sin_free", {"sin_free": "[0, 1]"}),
]


@pytest.mark.parametrize(("conclude", "domains"), UNDEFINED, ids=[text for text, _ in UNDEFINED])
def test_a_formula_undefined_inside_the_domain_is_never_proved(conclude: str, domains: dict[str, str]) -> None:
    assert verdict(conclude, **domains) in ("undecided", "refuted")


def test_a_hypothesis_does_not_vouch_for_its_own_meaning() -> None:
    assert verdict("x != 0", assume="1/x > 0", x="real") == "undecided"
    assert verdict("x >= 1", assume="x > 0 and log(x) > 0", x="real") == "undecided"  # log(-1) stands in it
    text = """
suite: t
settings: {s: {domain: {x: real}}}
claims: [{id: C, setting: s, assume: {sign: x > 0, log: log(x) > 0}, conclude: x >= 1}]
"""
    found = prove_claim(claims_of(text)[0], budget=100)
    assert found is not None
    assert found.verdict is Verdict.PROVED


@pytest.mark.parametrize(
    ("conclude", "assume", "domains"),
    [
        ("1/(1 - g) >= 1", "g < 1", {"g": "nonnegative"}),
        ("x/(1 - g) <= 2*x", "g <= 1/2", {"g": "positive", "x": "positive"}),
        ("1/log(x) > 0", "x > 1", {"x": "real"}),
        ("log(x)/log(x) == 1", "x > 1", {"x": "real"}),
    ],
)
def test_hypotheses_give_formulas_their_meaning(conclude: str, assume: str, domains: dict[str, str]) -> None:
    assert verdict(conclude, assume=assume, **domains) == "proved"


CLOSED_ENDS = [
    ("x < 1", "[0, 1]", "refuted"),
    ("x < 1", "[0, 1)", "proved"),
    ("x > 0", "[0, 1]", "refuted"),
    ("x > 0", "(0, 1]", "proved"),
    ("x <= 1", "[0, 1]", "proved"),
    ("exp(x) > 1", "[0, 1]", "refuted"),
    ("exp(x) > 1", "(0, 1]", "proved"),
    ("exp(-x) > 0", "[0, inf)", "proved"),
    ("exp(-x) >= 1/1000000", "[0, inf)", "refuted"),
    ("x*exp(-x) < 1/2", "[0, inf)", "proved"),
    ("x^2 + exp(x) > 1/2", "(-inf, inf)", "proved"),
    ("x - log(x) >= 1", "[1/3, 3]", "proved"),
    ("1/x >= 1/4", "(0, 4]", "proved"),
    ("1/x > 1/4", "(0, 4]", "refuted"),
    ("1/x > 1/3", "(0, 3]", "undecided"),  # it breaks at 3, where balls around floats cannot tell,
]


@pytest.mark.parametrize(("conclude", "domain", "expected"), CLOSED_ENDS)
def test_ends_closed_open_and_infinite(conclude: str, domain: str, expected: str) -> None:
    assert verdict(conclude, x=domain) == expected


def test_whole_numbers_are_not_reals() -> None:
    assert verdict("(2*n - 1)^2 >= 1", n="integer -1000..1000") == "proved"
    assert verdict("(2*n - 1)^2 >= 1", n="[-1000, 1000]") == "refuted"
    assert verdict("exp(n) != 2", n="integer 0..100000") == "proved"
    assert verdict("n^2 != 4", n="integer -1000..1000") == "refuted"
    assert verdict("2^k >= k + 1", k="integer 0..20") == "proved"


def test_size_letters_count_as_whole_numbers() -> None:
    assert verdict("1 + sqrt(24*N + 2) <= 6*sqrt(N)", sizes="N: 2..64", x="real") == "proved"
    found = prove("1 + sqrt(24*N + 2) <= 6*sqrt(N)", sizes="N: 1..64", x="real")
    assert found.verdict is Verdict.REFUTED
    assert found.counterexample is not None
    assert found.counterexample.instance.sizes == {"N": 1}


def test_hypotheses_that_exclude_everything_make_a_claim_vacuous_not_proved() -> None:
    for assume in ("x > 2", "x^2 + 1 <= 0", "exp(x) < 1", "x == 3"):
        assert verdict("x == 17", assume=assume, x="[0, 1]") == "vacuous"


def test_a_meeting_point_that_is_not_found_leaves_the_claim_undecided() -> None:
    # The only point that meets the hypothesis is the root of 2, which no box has as its middle.
    assert verdict("x > 1", assume="x^2 == 2", x="positive") == "undecided"


def test_equations_are_solved_for_a_variable() -> None:
    found = prove("exp(x)*exp(y) >= 1 + s", assume="s == x + y", x="real", y="real", s="real")
    assert found.verdict is Verdict.PROVED
    refuted = prove("exp(s) > 1 + s", assume="s == x + y", x="real", y="real", s="real")
    assert refuted.verdict is Verdict.REFUTED
    assert refuted.counterexample is not None
    values = {name: value.item() for name, value in refuted.counterexample.instance.values.items()}
    assert values["s"] == values["x"] + values["y"] == 0
    assert verdict("y < 1", assume="x + y == 1", x="positive", y="real") == "proved"
    assert verdict("y > 0", assume="x + y == 1", x="positive", y="real") == "refuted"


def test_the_budget_is_kept_and_named() -> None:
    found = prove("x^t*y^(1 - t) <= t*x + (1 - t)*y", x="positive", y="positive", t="(0, 1)", budget=37)
    assert found.verdict is Verdict.UNDECIDED
    assert found.evidence is Evidence.NONE
    assert found.boxes == 37
    assert "37 boxes" in found.reason


def test_a_deadline_that_has_passed_leaves_it_undecided() -> None:
    claim = claim_of("exp(x) >= 1 + x", x="real")
    found = prove_claim(claim, budget=100, deadline=time.thread_time() - 1)
    assert found is not None
    assert found.verdict is Verdict.UNDECIDED
    assert "time limit" in found.reason


def test_a_strict_comparison_is_shown_in_boxes() -> None:
    found = prove("x*exp(-x) < 1/2", x="[0, 4]")  # the least value of the margin is 1/2 - 1/e, at 1
    assert found.evidence is Evidence.CERTIFIED


def test_the_same_claim_gives_the_same_outcome() -> None:
    for conclude in ("exp(x)*y >= y + x*y", "x*log(x) >= -1/2", "x*log(x) >= -1/3"):
        claim = claim_of(conclude, x="positive", y="positive") if "y" in conclude else claim_of(conclude, x="positive")
        first, second = (prove_claim(claim, budget=200) for _ in range(2))
        assert first is not None
        assert second is not None
        assert replace(first, counterexample=None) == replace(second, counterexample=None)


def test_every_setting_must_be_shown() -> None:
    text = """
suite: t
settings:
  small: {domain: {x: "[0, 1]"}}
  large: {domain: {x: "[0, 2]"}}
claims:
  - {id: C, setting: [small, large], conclude: x <= 1}
  - {id: D, setting: [small, large], conclude: x <= 2}
"""
    claims = claims_of(text)
    broken, held = (prove_claim(claim, budget=100) for claim in claims)
    assert broken is not None
    assert held is not None
    assert (broken.verdict, held.verdict) == (Verdict.REFUTED, Verdict.PROVED)
    assert broken.counterexample is not None
    assert broken.counterexample.instance.setting == "large"


def test_only_claims_about_numbers_are_taken_up() -> None:
    assert applicable(claim_of("x <= y or not x == y", x="real", y="real"))
    for claim in load_suite("checks/matrix_facts.yaml").claims:
        assert not applicable(claim)
        assert prove_claim(claim, budget=10) is None
    drawn = """
suite: t
settings: {s: {init: {x: "normal(0, 1)"}}}
claims: [{id: C, setting: s, conclude: x^2 >= 0}]
"""
    assert not applicable(claims_of(drawn)[0])


def test_large_numbers_and_exponents_do_not_stall_it() -> None:
    started = time.process_time()
    assert verdict("x^1000000 >= 0", x="real") in ("proved", "undecided")
    assert verdict("x^(1/1000003) > 0", x="positive") in ("proved", "undecided")
    assert verdict("(1 + x)^60*(1 + y)^60 >= 1 + 60*x*y", x="positive", y="positive", budget=5) in (
        "proved",
        "undecided",
    )
    assert verdict("2^(2^40*x) > 0", x="[0, 1]") in ("proved", "undecided")
    assert time.process_time() - started < 20  # it takes 1 s; multiplying out would take hours


BROKEN_BETWEEN_FLOATS = [
    ("(x - 1/3)^2 > 0", "real", "x = 1/3"),
    ("x*(2/3 - x) < 1/9", "(0, 1)", "x = 1/3"),
    ("x != 2/3", "(0, 1)", "x = 2/3"),
    ("abs(7*x - 2) > 0", "(-inf, 1)", "x = 2/7"),
]


@pytest.mark.parametrize(("conclude", "domain", "where"), BROKEN_BETWEEN_FLOATS, ids=lambda text: text)
def test_a_claim_that_breaks_where_no_float_is_does_not_hold(conclude: str, domain: str, where: str) -> None:
    claim = claim_of(conclude, x=domain)
    proof = prove_claim(claim, budget=BUDGET)
    assert proof is not None
    assert (proof.verdict, proof.broken) == (Verdict.UNDECIDED, True)
    assert proof.reason == f"it breaks at {where}, and no float64 number is that: no instance can show it"
    result = judge(claim, Options(instances=8, search=0, boxes=BUDGET))
    assert (result.verdict, result.reason) == (Verdict.UNDECIDED, proof.reason)


def test_the_point_is_named_with_its_whole_numbers() -> None:
    proof = prove("(y - k)^2 + 1/9 > 2*(y - k)/3", k="integer -3..3", y="(-inf, 0)")
    assert proof.broken
    named = dict(part.split(" = ") for part in proof.reason.removeprefix("it breaks at ").split(", and")[0].split(", "))
    assert Fraction(named["y"]) - Fraction(named["k"]) == Fraction(1, 3)


def test_hypotheses_that_no_float_meets_do_not_make_a_false_claim_vacuous() -> None:
    # The equation is solved: x is known to lie in a ball around a float, and 1/4 is not in it.
    result = judge(claim_of("x == 1/4", assume="x == 1/3", x="real"), Options(instances=8, search=0))
    assert result.verdict is Verdict.REFUTED
    squared = judge(claim_of("x == 1/4", assume="9*x^2 - 6*x + 1 == 0", x="real"), Options(instances=8, search=0))
    assert squared.verdict is Verdict.UNDECIDED
    assert "it breaks at x = 1/3" in squared.reason


def test_fractions_between_two_numbers() -> None:
    generator = random.Random(0)
    for _ in range(300):
        low = Fraction(generator.randint(-400, 400), generator.randint(1, 40))
        high = low + Fraction(generator.randint(1, 60), generator.randint(1, 400))
        found = simplest(low, high)
        assert low < found < high
        below = [Fraction(math.floor(low * d) + 1, d) for d in range(1, found.denominator)]
        assert all(candidate >= high for candidate in below)
    assert simplest(None, Fraction(1, 2)) == 0
    assert simplest(None, Fraction(0)) == -1
    assert simplest(Fraction(-7, 2), None) == 0
    assert simplest(Fraction(7, 2), None) == 4


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("tanh(x) <= 1", True),
        ("slope(sigmoid, x) <= 1/4", True),
        ("leaky_relu(x, 1/2) + softthreshold(x, 1) + huber(x, 2) >= x", True),
        ("softplus(shift(x, 1)) > 0", True),
        ("sin(x) <= 1", False),
        ("arccos(tanh(x)) >= 0", False),
        ("erf(x) + arctan(x) + sign(x) <= 4", False),
        ("x <= pi + abs(x)", False),
        ("slope(erf, x) <= 2", False),
    ],
)
def test_functions_without_terms_are_left_to_the_instances(text: str, known: bool) -> None:
    assert applicable(claim_of(text, x="real")) == known
