"""Exact arguments about polynomials, against SymPy and against samples."""

import math
import random
from fractions import Fraction

import pytest
import sympy
from flint import fmpz_poly
from proof_harness import verdict

from ntk_deq.prove import signomial as sg
from ntk_deq.prove.positivity import Positivity, after_means, factored
from ntk_deq.prove.problem import Relation
from ntk_deq.prove.signomial import Fact, Monomial, Poly, TooLargeError, follows, positive_by_roots

POSITIVE, NONNEGATIVE, NONZERO = Relation.POSITIVE, Relation.NONNEGATIVE, Relation.NONZERO


def _poly(rng: random.Random) -> fmpz_poly:
    factors = [fmpz_poly([rng.randint(-3, 3), rng.choice([1, 1, 2])]) for _ in range(rng.randint(0, 3))]
    product = fmpz_poly([rng.randint(-4, 4) for _ in range(rng.randint(1, 4))])
    for factor in factors:
        product *= factor * (factor if rng.random() < 0.4 else 1)
    return product


def test_one_variable_is_decided_as_sympy_decides_it() -> None:
    rng = random.Random(5)
    x = sympy.Symbol("x", real=True)
    for _ in range(10):
        assumed, goal = _poly(rng), _poly(rng)
        found = follows([(assumed, NONNEGATIVE)], (goal, NONNEGATIVE))
        h, g = (sympy.Poly([int(c) for c in reversed(p.coeffs())] or [0], x).as_expr() for p in (assumed, goal))
        broken = sympy.Intersection(
            sympy.solveset(h >= 0, x, sympy.S.Reals) if h.has(x) else (sympy.S.Reals if h >= 0 else sympy.S.EmptySet),
            sympy.solveset(g < 0, x, sympy.S.Reals) if g.has(x) else (sympy.S.Reals if g < 0 else sympy.S.EmptySet),
        )
        assert found == (broken is sympy.S.EmptySet), (h, g, found, broken)


def test_failures_at_irrational_points_and_between_roots() -> None:
    two = fmpz_poly([-2, 0, 1])  # x^2 - 2
    assert not follows([], (two, NONZERO))
    assert follows([(two, NONNEGATIVE)], (fmpz_poly([0, 1]), NONZERO))
    between = fmpz_poly([2, -3, 1])  # (x - 1)(x - 2) < 0 between 1 and 2 only
    assert not follows([], (between, NONNEGATIVE))
    assert follows([(fmpz_poly([-2, 1]), NONNEGATIVE)], (between, NONNEGATIVE))
    assert not follows([(fmpz_poly([-2, 1]), NONNEGATIVE)], (between, POSITIVE))


def test_roots_that_nearly_meet_are_told_apart() -> None:
    tiny = 10**40
    close = fmpz_poly([-1, tiny]) * fmpz_poly([-1, tiny + 1])  # roots 1e-40 and a little less
    assert not follows([], (close, NONNEGATIVE))
    assert follows([(fmpz_poly([-1, tiny]), NONNEGATIVE)], (close, NONNEGATIVE))
    assert not follows([(fmpz_poly([-1, tiny + 1]), NONNEGATIVE)], (close, NONNEGATIVE))


def test_a_polynomial_of_high_degree_is_left_aside() -> None:
    with pytest.raises(TooLargeError):
        follows([], (fmpz_poly([1] * 200), NONNEGATIVE))


def test_numbers_are_taken_apart_into_primes_or_left_aside() -> None:
    for number in (1, 2, 360, 99_989 * 99_991, 104_729**2, 9_999_999_967):
        found = sg.prime_factors(number)
        assert math.prod(prime**count for prime, count in found) == number
        assert all(sympy.isprime(prime) for prime, _ in found)
    with pytest.raises(TooLargeError):
        sg.prime_factors(7 * (10**20 + 39) * (10**20 + 129))


def _sum(*terms: tuple[int, str]) -> Poly:
    """Return a sum from coefficients and texts such as `x^2 y`."""
    total: Poly = {}
    for c, text in terms:
        monomial: Monomial = ()
        for part in text.split():
            name, _, exponent = part.partition("^")
            monomial, _ = sg.times(monomial, ((name, int(exponent or 1)),))
        total = sg.add(total, {monomial: sg.rational(c)})
    return total


def _positive(monomial: Monomial) -> str:
    return "+"


def _real(monomial: Monomial) -> str:
    return (
        "0"
        if all(e.denominator == 1 and e.numerator % 2 == 0 for _, e in monomial) and monomial
        else "+?"[bool(monomial)]
    )


def test_means_take_what_is_there_and_not_more() -> None:
    squares = _sum((1, "x^2"), (1, "y^2"))
    assert after_means(squares, _sum((-2, "x y"))) == {}
    assert after_means(squares, {m: c + sg.rational(Fraction(1, 10**9)) for m, c in _sum((2, "x y")).items()}) is None
    assert after_means(_sum((4, "x^2"), (9, "y^2")), _sum((-12, "x y"))) == {}
    left = after_means(_sum((2, "x^2"), (1, "y^2")), _sum((-2, "x y")))
    assert left is not None
    assert left == _sum((1, "x^2"))
    cubes = _sum((2, "x^3"), (1, "y^3"))
    assert after_means(cubes, _sum((-3, "x^2 y"))) == {}  # 2/3 and 1/3
    assert after_means(cubes, _sum((-4, "x^2 y"))) is None
    assert after_means(squares, _sum((-1, "x"))) is None  # not between the two


def test_certificates_hold_at_every_sample() -> None:
    rng = random.Random(11)
    names, shown = ("x", "y"), 0
    for _ in range(150):
        poly, fact = (
            _sum(
                *(
                    (rng.choice([-2, -1, 1, 1, 2, 3]), rng.choice(["", "x", "y", "x y", "x^2", "y^2", "x^2 y"]))
                    for _ in range(4)
                )
            )
            for _ in range(2)
        )
        strict = rng.random() < 0.5
        if not Positivity(_positive, [Fact(fact, False)]).shows(poly, strict, 400):
            continue
        shown += 1
        for _ in range(60):
            at = {name: Fraction(rng.randint(1, 40), rng.randint(1, 8)) for name in names}
            if _value(fact, at) >= 0:
                assert _value(poly, at) >= 0
                assert not strict or _value(poly, at) > 0
    assert shown > 30


def _value(poly: Poly, at: dict[str, Fraction]) -> Fraction:
    total = Fraction(0)
    for monomial, c in poly.items():
        product = sg.fraction(c)
        for name, exponent in monomial:
            product *= at[name] ** int(exponent)
        total += product
    return total


def test_certificates_need_their_hypotheses_and_their_strictness() -> None:
    target, fact = _sum((1, "x"), (-1, "y")), _sum((1, "x"), (-1, "y"))
    assert Positivity(_positive, [Fact(fact, False)]).shows(target, False, 400)
    assert not Positivity(_positive, []).shows(target, False, 400)
    assert not Positivity(_positive, [Fact(fact, False)]).shows(target, True, 400)
    assert Positivity(_positive, [Fact(fact, True)]).shows(target, True, 400)
    square = _sum((1, "x^2"), (-2, "x y"), (1, "y^2"))
    assert Positivity(_real, []).shows(square, False, 400)
    assert not Positivity(_real, []).shows(square, True, 400)
    assert not Positivity(_real, []).shows(_sum((1, "x"), (1, "y")), False, 400)


def test_factors_multiply_back() -> None:
    for poly in (
        sg.multiply(_sum((1, "x"), (-2, "y")), _sum((3, "x^2"), (5, ""))),
        sg.shift(_sum((1, "x"), (-1, "y")), (("x", -3),)),
        sg.scale(sg.whole_power(_sum((1, "x"), (1, "y"), (-1, "")), 3), Fraction(-7, 3)),
    ):
        product = sg.constant(1)
        for factor, count in factored(poly):
            for _ in range(count):
                product = sg.multiply(product, factor)
        assert product == poly


def test_radicals_of_numbers_are_compared_exactly() -> None:
    assert (
        sg.add(sg.root_of_rational(Fraction(8), Fraction(1, 2)), sg.root_of_rational(Fraction(2), Fraction(1, 2)), -2)
        == {}
    )
    assert verdict("sqrt(2) + sqrt(3) > sqrt(5) + 9/10", x="real") == "proved"
    assert verdict("sqrt(2) + sqrt(3) > 3147/1000", x="real") == "refuted"
    assert verdict("sqrt(8)*x == 2*sqrt(2)*x", x="real") == "proved"
    assert verdict("x*sqrt(5 + 2*sqrt(6)) == x*(sqrt(2) + sqrt(3))", x="positive") in ("proved", "undecided")


def test_sums_in_one_atom_use_the_facts_in_it() -> None:
    target = sg.add(sg.atom("x", Fraction(1, 2)), sg.constant(-3))
    nine = sg.add(sg.atom("x"), sg.constant(-9))
    assert positive_by_roots(target, False, [Fact(nine, False)], "+")
    assert not positive_by_roots(target, True, [Fact(nine, False)], "+")
    assert positive_by_roots(target, True, [Fact(nine, True)], "+")
    assert not positive_by_roots(target, False, [], "+")
    assert not positive_by_roots(target, False, [Fact(nine, False)], "?")
