"""Which mutants follow from their claims: known cases, and exact checks that nothing else is ever said to follow."""

import random
from fractions import Fraction

import pytest
from mutation_harness import Silent, claim, speaks

from ntk_deq.claims.claim import variable_ranges
from ntk_deq.claims.load import load_suite
from ntk_deq.claims.mutation import follows, mutants
from ntk_deq.language.ranges import Ranges
from ntk_deq.language.types import INFINITY, Range, power_range
from ntk_deq.verify.findings import worth_mutating
from ntk_deq.verify.runner import Options, judge


def following(folder, body, rule):
    """Return the changes of the mutants of a rule that follow from the claim, and those that may not."""
    original = claim(folder, body)
    yes, no = [], []
    for mutation in mutants(original, rules=[rule]):
        (yes if follows(original, mutation.claim) else no).append(mutation.after)
    return yes, no


@pytest.mark.parametrize(
    ("body", "rule", "weaker", "stronger"),
    [
        # A larger bound, a smaller bound, and a bound of unknown sign.
        ("conclude: abs(x) <= 2*p", "double", ["abs(x) <= 4*p"], []),
        ("conclude: abs(x) <= 2*p", "halve", [], ["abs(x) <= 1*p"]),
        ("conclude: abs(x) <= 2*y", "double", [], ["abs(x) <= 4*y"]),
        ("conclude: p >= 2*q", "halve", ["p >= 1*q"], []),
        # Signs of inequalities, in a conclusion and in a hypothesis.
        ("conclude: p < q", "weak", ["p <= q"], []),
        ("conclude: p <= q", "strict", [], ["p < q"]),
        ("assume: p <= q, conclude: p <= 2*q", "strict", ["p < q"], ["p < 2*q"]),
        ("assume: p <= q, conclude: x <= y", "hypothesis", [], [""]),
        # The sign of 1 - u is known from u's interval, that of 1 - p from a hypothesis.
        ("conclude: x <= p/(1 - u)", "factor", [], ["x <= p", "x <= 1/(1 - u)"]),
        ("conclude: x <= p*(1 - u)", "factor", ["x <= p"], ["x <= 1 - u"]),
        ("conclude: x <= y*(1 - u)", "factor", [], ["x <= y", "x <= 1 - u"]),
        ("assume: p < 1, conclude: x <= q/(1 - p)", "double", ["x <= 2*(q/(1 - p))"], ["x <= q/(2 - p)", "p < 2"]),
        ("conclude: x <= q/(1 - p)", "double", [], ["x <= 2*(q/(1 - p))", "x <= q/(2 - p)"]),
        # Equality of p and 1 is left out by the quotient in the conclusion.
        ("assume: p < 1, conclude: x <= q/(1 - p)", "weak", ["p <= 1"], []),
        ("assume: p < 1, conclude: x <= q*(1 - p)", "weak", [], ["p <= 1"]),
        # Without the quotient the claim would speak of y = 0 too.
        ("conclude: p <= q - (y/y)^2", "term", [], ["p <= q", "p <= -(y/y)^2"]),
        ("conclude: p <= q - (u/u)^2", "term", ["p <= q"], ["p <= -(u/u)^2"]),
        # Powers of a number below 1 and of one above 1.
        ("conclude: x <= u^3", "exponent", ["x <= u^2"], ["x <= u^4"]),
        ("conclude: x <= w^3", "exponent", ["x <= w^4"], ["x <= w^2"]),
        # Through definitions, hypotheses included: a larger k makes the hypothesis stronger and the bound weaker.
        (
            "let: {k: 2*p}, assume: k < 1, conclude: x <= q/(1 - k)",
            "double",
            ["x <= 2*(q/(1 - k))", "4*p"],
            ["x <= q/(2 - k)", "k < 2"],
        ),
        (
            "let: {k: 2*y}, assume: k < 1, conclude: x <= q/(1 - k)",
            "halve",
            ["k < 0.5"],
            ["x <= q/(1 - k)/2", "x <= q/(0.5 - k)", "1*y"],
        ),
        # What is true whatever the claim says, and what a negation turns round.
        ("conclude: x <= y or p > 0", "flip", [], ["x >= y or p > 0", "x <= y or p < 0"]),
        ("conclude: not p <= q", "strict", ["not p < q"], []),
        ("conclude: not p < q", "weak", [], ["not p <= q"]),
        ("conclude: x <= max(p, q)", "extreme", [], ["x <= min(p, q)"]),
        ("conclude: x <= min(p, q)", "extreme", ["x <= max(p, q)"], []),
    ],
)
def test_known_cases(tmp_path, body, rule, weaker, stronger):
    found = following(tmp_path, f"setting: scalars, {body}", rule)
    assert found == (weaker, stronger)


@pytest.mark.parametrize(
    ("conclusion", "rule", "weaker"),
    [
        (
            "norm(A*B) <= norm(A)*norm(B)",
            "norm",
            ["norm(A)*norm(B) -> fro(A)*norm(B)", "norm(A)*norm(B) -> norm(A)*fro(B)"],
        ),
        ("fro(A) <= 1", "norm", ["fro(A) <= 1 -> norm(A) <= 1"]),
        ("norm(v) <= 1", "norm", ["norm(v) <= 1 -> fro(v) <= 1"]),  # a vector has one length
        ("sigma_min(A) <= 1", "spectral", []),
        ("sigma_min(A) >= c", "spectral", ["sigma_min(A) >= c -> sigma_max(A) >= c"]),
        ("norm(A' - B) <= fro(B')", "transpose", ["norm(A' - B) <= fro(B') -> norm(A' - B) <= fro(B)"]),
        ("norm1(A') <= 1", "transpose", []),
        ("norm(kron(A, B)) <= 1", "swap", ["norm(kron(A, B)) -> norm(kron(B, A))"]),
        ("lambda_max(kron(A, B)) <= 1", "swap", []),
        ("trace(kron(A, B)) <= 1", "swap", ["trace(kron(A, B)) -> trace(kron(B, A))"]),
        ("trace(kron(R, R')) <= 1", "swap", []),  # rows and columns move in different ways
        ("norm(-A) <= 1", "sign", ["norm(-A) <= 1 -> norm(A) <= 1"]),
        ("lambda_max(-A) <= 1", "sign", []),
        ("norm(A - B) <= 1", "sign", []),
        # A divisor that may be zero stays a reason not to speak of an instance.
        ("fro(B) <= fro(A)/norm(A)", "factor", []),
        ("fro(B) <= fro(A)/(1 + norm(A))", "factor", ["fro(A)/(1 + norm(A)) -> fro(A)"]),
        ("min(A) <= c", "extreme", []),
        ("max(A) <= c", "extreme", ["max(A) <= c -> min(A) <= c"]),
    ],
)
def test_known_cases_on_matrices(tmp_path, conclusion, rule, weaker):
    original = claim(tmp_path, f'setting: matrices, conclude: "{conclusion}"')
    found = [f"{m.before} -> {m.after}" for m in mutants(original, rules=[rule]) if follows(original, m.claim)]
    assert found == weaker


_NAMES = {
    "x": [Fraction(k, 2) for k in range(-4, 5)],
    "y": [Fraction(k, 3) for k in range(-4, 5)],
    "p": [Fraction(k, 4) for k in (1, 2, 3, 4, 7, 12)],
    "q": [Fraction(k, 3) for k in (1, 2, 3, 5, 9)],
    "u": [Fraction(1, 8), Fraction(1, 2), Fraction(7, 8)],
    "w": [Fraction(1), Fraction(3, 2), Fraction(3)],
}


def _expression(draw, depth):
    if depth == 0 or draw.random() < 0.2:
        return draw.choice([*_NAMES, *_NAMES, "1", "2", "1/2", "k"])
    a, b = _expression(draw, depth - 1), _expression(draw, depth - 1)
    shape = draw.choice(
        ["({a} + {b})", "({a} - {b})", "({a})*({b})", "({a})/({b})", "({a})^2", "({a})^-1", "({a})^3", "max({a}, {b})",
         "min({a}, {b})", "abs({a})", "relu({a})", "(1 - {a})", "-({a})", "({a})/(1 + {b})", "({a})*u", "({a})/(1 - u)"]
    )  # fmt: skip
    return shape.format(a=a, b=b)


def _statement(draw):
    left, right = _expression(draw, 2), _expression(draw, 2)
    text = f"{left} {draw.choice(['<=', '<', '>=', '>', '=='])} {right}"
    extra = draw.random()
    if extra < 0.15:
        return f"({text}) {draw.choice(['and', 'or'])} ({_expression(draw, 1)} <= {_expression(draw, 1)})"
    return f"not ({text})" if extra < 0.22 else text


def test_whatever_follows_does_so_at_every_point(tmp_path):
    """Random claims and points, in exact arithmetic: where the mutant speaks and holds, so must the claim imply it."""
    draw = random.Random(20240)
    following_count = decided = 0
    for _ in range(24):
        parts = ", ".join(f"h{i}: '{_statement(draw)}'" for i in range(draw.randint(0, 2)))
        body = f"setting: scalars, let: {{k: '{_expression(draw, 2).replace('k', 'p')}'}}, assume: {{{parts}}}, "
        body += f"conclude: {{a: '{_statement(draw)}', b: 'k <= {_expression(draw, 1)}'}}"
        original = claim(tmp_path, body)
        points = [{name: draw.choice(values) for name, values in _NAMES.items()} for _ in range(40)]
        for mutation in mutants(original, most=40):
            if not follows(original, mutation.claim):
                continue
            following_count += 1
            for point in points:
                try:
                    assumed, concluded = speaks(mutation.claim, point)
                except Silent:
                    continue
                if assumed and not concluded:
                    # The mutant breaks here, so the claim must break here too.
                    assert speaks(original, point) == (True, False), (body, mutation.before, mutation.after, point)
                    decided += 1
    assert following_count > 60  # the check checks something
    assert decided > 40


def test_weaker_mutants_of_true_claims_are_never_refuted(tmp_path):
    bodies = [
        "conclude: 'rho(A) <= norm(A) <= fro(A)'",
        "conclude: 'sigma_min(A)*fro(B) <= fro(A*B) <= norm(A)*fro(B)'",
        "let: {k: 2*norm(A)}, assume: {s: k < 1}, conclude: {a: 'norm(inv(I(n) - A)) <= 1/(1 - k)'}",
        'conclude: "norm(R) == sqrt(lambda_max(R\'*R)) and trace(P) >= lambda_max(P)"',
    ]
    count = 0
    for body in bodies:
        original = claim(tmp_path, f"setting: matrices, {body}")
        for mutation in mutants(original):
            if follows(original, mutation.claim):
                count += 1
                assert judge(mutation.claim, Options(instances=12, search=0)).verdict != "refuted", mutation.after
    assert count >= 10


def test_part_r_has_mutants_of_both_kinds():
    """The mutants that follow are a minority, and the planted mistakes of the suite are not among them."""
    claims = {c.id: c for c in load_suite("checks/implicit_relu.yaml").claims}
    original = claims["R.L5.1"]
    found = list(mutants(original))
    weaker = [m for m in found if follows(original, m.claim)]
    assert 5 <= len(weaker) < len(found) / 2
    compared = 0
    for planted in load_suite("checks/mutants/implicit_relu.yaml").claims:
        base = claims.get(planted.mutates)
        if base is None or not worth_mutating(base) or base.settings != planted.settings:
            continue
        if all(getattr(base, part).keys() == getattr(planted, part).keys() for part in ("let", "assume", "conclude")):
            compared += 1
            assert not follows(base, planted), planted.id
    assert compared > 5


def test_ranges_of_parts_of_a_claim(tmp_path):
    body = "setting: matrices, given: {M: positive}, let: {g: c*M, D: diag(relu(v))}, assume: {s: g < 1}, "
    body += "conclude: {a: 'min(D) <= 1/(1 - g)', b: 'norm(A)^2 >= 1 - c^3'}"
    original = claim(tmp_path, body)
    ranges = Ranges(original.let, variable_ranges(original))
    for formula in original.assume.values():
        ranges.suppose(formula.expr)
    left, right = original.conclude["a"].expr.args
    assert ranges.of(left) == Range(low=Fraction(0))
    assert ranges.of(right) == Range(low=Fraction(1), low_open=True, high_open=True)
    left, right = original.conclude["b"].expr.args
    assert ranges.of(left).above(0, or_at=True)
    assert ranges.of(right) == Range(Fraction(0), Fraction(1), low_open=True, high_open=True)


def test_interval_arithmetic_holds_every_value():
    draw = random.Random(7)
    ends = [Fraction(k, 2) for k in range(-4, 5)]

    def interval():
        low, high = sorted(draw.sample(ends, 2))
        if draw.random() < 0.3:
            return Range(low, INFINITY), [low + k for k in range(4)]
        return Range(low, high, low_open=draw.random() < 0.5, high_open=draw.random() < 0.5), [
            low + (high - low) * Fraction(k, 8) for k in range(1, 8)
        ]

    def holds(found, value):
        inside = found.low < value or (found.low == value and not found.low_open)
        return inside and (value < found.high or (value == found.high and not found.high_open))

    for _ in range(120):
        (a, xs), (b, ys) = interval(), interval()
        for x in xs:
            assert holds(a.hull(b), x)
            assert x == 0 or holds(a.reciprocal(), 1 / x)
            assert all(holds(power_range(a, Range.point(k)), x**k) for k in (0, 2, 3))
            assert x == 0 or holds(power_range(a, Range.point(-2)), x**-2)
            for y in ys:
                assert holds(a + b, x + y)
                assert holds(a - b, x - y)
                assert holds(a * b, x * y)
                assert not (holds(a, y) and holds(b, y)) or holds(a.meet(b), y)


def test_long_numbers_are_given_up():
    big = Range.point(10**400)
    for _ in range(5):
        big = big * big
    assert big.high == INFINITY


DESCENT = "run: {method: gradient-descent, step: e}, let: {e: p/8}, conclude: 'L[k] <= e for all k'"
DEFINED = (
    "run: {method: gradient-flow}, let: {q: 1/norm(A)}, assume: norm(A) > 1, conclude: '0 <= p*L[t]^2 + q^2 for all t'"
)
HALF = "L[k] <= e/2 for all k"


@pytest.mark.parametrize(
    ("body", "rule", "weaker", "stronger"),
    [
        # With another step size it is another run, of which the claim says nothing.
        (DESCENT, "halve", [], [HALF, "p/4"]),
        (DESCENT.replace("step: e", "step: p"), "halve", ["p/4"], [HALF]),
        (DESCENT.replace("descent, step", "flow, horizon"), "halve", [], [HALF, "p/4"]),
        # norm(A) > 1 at the start, where q has a value; of q[t] the claim says that it has one.
        (DEFINED, "term", ["p*L[t]^2"], []),
        (DEFINED.replace("q^2", "q[t]^2"), "term", ["q[t]^2"], ["p*L[t]^2"]),
    ],
)
def test_training_claims(tmp_path, body, rule, weaker, stronger):
    yes, no = following(tmp_path, f"setting: net, given: {{p: positive}}, {body}", rule)
    assert (yes, no) == (weaker, stronger)
