"""Boxes cover the domain, and nothing that is proved breaks at a sample."""

import random
from fractions import Fraction

import pytest
from proof_harness import claims_of, problem_of

from ntk_deq.claims.claim import Verdict
from ntk_deq.prove import Side
from ntk_deq.prove.box import Box, middle, spread
from ntk_deq.prove.cases import eliminate
from ntk_deq.prove.enclosure import Point, truth_at
from ntk_deq.prove.problem import Problem, problems
from ntk_deq.verify.prover import prove_claim

SIDES = [
    Side(None, None),
    Side(Fraction(0), None, True),
    Side(Fraction(5), None),
    Side(None, Fraction(-3)),
    Side(Fraction(1, 3), Fraction(2, 3)),
    Side(Fraction(0), Fraction(10**12)),
    Side(Fraction(-7), Fraction(10**6)),
    Side(Fraction(10), Fraction(41)),
    Side(Fraction(1) - Fraction(1, 2**60), Fraction(1)),
    Side(Fraction(1), Fraction(10**18), whole=True),
    Side(Fraction(-4), Fraction(-3), whole=True),
]


@pytest.mark.parametrize("side", SIDES)
def test_cutting_loses_no_number_and_ends_up_small(side: Side) -> None:
    box, depth = Box({"x": side}), 0
    rng = random.Random(2)
    while not box.sides["x"].single and depth < 40:
        now = box.sides["x"]
        at = middle(now)
        left, right = (part.sides["x"] for part in box.cut("x", at))
        assert left.high == at
        assert (left.low, left.low_open) == (now.low, now.low_open)
        assert (right.high, right.high_open) == (now.high, now.high_open)
        assert right.low == (at + 1 if now.whole else at)
        assert not left.high_open
        assert not right.low_open
        assert now.low is None or left.low is None or left.high > left.low or now.whole
        box = box.cut("x", at)[rng.randrange(2)]
        depth += 1
    assert spread(box.sides["x"]) < 4


DOMAINS = {
    "x": ["positive", "real", "nonnegative", "(0, 1)", "[0, 1]", "[1, inf)", "(-inf, 2]", "[1/3, 2/3]", "(-1, 1)"],
    "y": ["positive", "real", "(0, 1)", "[0, 2]"],
    "k": ["integer 1..3", "integer -3..40"],
}
OPERATIONS = "+ - * / + - * ^2 ^3 ^(1/2) sqrt exp log abs max min ^-1 ^(1/3)".split()


def _expression(rng: random.Random, depth: int, names: list[str]) -> str:
    if depth == 0 or rng.random() < 0.25:
        return rng.choice([*names, *names, "1", "2", "1/2", "0", "-1"])
    operation, inner = rng.choice(OPERATIONS), _expression(rng, depth - 1, names)
    if operation in "+-*/":
        return f"({inner} {operation} {_expression(rng, depth - 1, names)})"
    if operation[0] == "^":
        return f"({inner}){operation}"
    if operation in ("max", "min"):
        return f"{operation}({inner}, {_expression(rng, depth - 1, names)})"
    return f"{operation}({inner})"


def _statement(rng: random.Random, names: list[str]) -> str:
    a, b = (_expression(rng, 1, names) for _ in range(2))
    likely = [
        f"{a}*{b} <= ({a})^2/2 + ({b})^2/2",
        f"sqrt(({a})^2) == abs({a})",
        f"max({a}, {b}) >= {a}",
        f"exp({a}) >= 1 + {a}",
        f"({a})^2 + ({b})^2 >= 3/2*({a})*({b})",
    ]
    relation = rng.choice(["<=", "<", ">=", "==", "!="])
    any_two = f"{_expression(rng, 2, names)} {relation} {_expression(rng, 2, names)}"
    return rng.choice([*likely, any_two, any_two, any_two])


def _suite(rng: random.Random, count: int) -> str:
    settings, claims = [], []
    for i in range(count):
        names = rng.choice([["x"], ["x", "y"], ["x", "k"]])
        listed = ", ".join(f'{name}: "{rng.choice(DOMAINS[name])}"' for name in names)
        settings.append(f"  s{i}: {{domain: {{{listed}}}}}")
        hypothesis = f'assume: "{_statement(rng, names)}", ' if rng.random() < 0.4 else ""
        claims.append(f'  - {{id: C{i}, setting: s{i}, {hypothesis}conclude: "{_statement(rng, names)}"}}')
    return "\n".join(["suite: t", "settings:", *settings, "claims:", *claims, ""])


def _points(rng: random.Random, problem: Problem, count: int) -> list[Point]:
    found = []
    for _ in range(count):
        point = {}
        for name, v in problem.variables.items():
            low, high = v.low if v.low is not None else Fraction(-20), v.high if v.high is not None else Fraction(20)
            share = rng.choice([Fraction(0), Fraction(1), Fraction(1, 2), Fraction(rng.randint(0, 999), 999)])
            nice = [Fraction(n) for n in (0, 1, -1, 2)] + [Fraction(1, 2), Fraction(9, 4)]
            value = rng.choice(nice) if rng.random() < 0.3 else low + (high - low) * share
            point[name] = Fraction(round(value)) if v.whole else value
        if all(v.contains(point[name]) for name, v in problem.variables.items()):
            found.append(point)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_nothing_that_is_proved_breaks_at_a_sample(seed: int) -> None:
    rng = random.Random(seed)
    decided = 0
    for claim in claims_of(_suite(rng, 25)):
        proof = prove_claim(claim, budget=40)
        assert proof is not None
        if proof.verdict not in (Verdict.PROVED, Verdict.VACUOUS):
            continue
        decided += 1
        for problem in problems(claim, claim.settings[0]):
            for point in _points(rng, problem, 60):
                needed = [f for h in problem.hypotheses for f in (h.defined, h.formula)]
                if not all(truth_at(formula, point) is True for formula in needed):
                    continue
                assert proof.verdict is Verdict.PROVED, (claim.conclude, point)
                for conclusion in problem.conclusions:
                    assert truth_at(conclusion.defined, point) is not False, (claim.conclude, point)
                    assert truth_at(conclusion.formula, point) is not False, (claim.conclude, point)
    assert decided >= 5


def test_equations_give_their_variables_back() -> None:
    problem = problem_of("z > 0", assume="z == x + y and y == 2*x", x="positive", y="real", z="real")
    reduced = eliminate(problem)
    (left,) = reduced.problem.variables
    point = {"x": Fraction(3), "y": Fraction(6), "z": Fraction(9)}
    assert reduced.restored({left: point[left]}) == point


def test_hypotheses_about_one_variable_narrow_its_range() -> None:
    problem = problem_of("x > 0", assume="x > 1 and 2*x <= 5", x="real")
    (variable,) = eliminate(problem).problem.variables.values()
    assert (variable.low, variable.low_open, variable.high, variable.high_open) == (1, True, Fraction(5, 2), False)
    contradictory = problem_of("x > 0", assume="x > 3 and x < 2", x="real")
    (variable,) = eliminate(contradictory).problem.variables.values()
    assert variable.low is not None or variable.high is not None  # one of them narrows it, both would leave nothing
