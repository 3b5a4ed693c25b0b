"""Plain numbers: their weight, their order, and roundings that stay exact."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from ntk_deq.falsify.domains import within
from ntk_deq.falsify.scalars import ROUNDINGS, order, plain_numbers, plainer, rounded, small_numbers, weight
from ntk_deq.language.domain import Domain, DomainKind

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(FINITE)
def test_weight_does_not_see_the_sign_and_is_zero_at_zero_only(number: float) -> None:
    assert weight(number) == weight(-number)
    assert (weight(number) == 0) == (number == 0)


@given(st.integers(-1000, 1000), st.integers(-30, 30))
def test_weight_counts_the_bits_of_the_odd_part_and_the_exponent(odd: int, exponent: int) -> None:
    odd = 2 * odd + 1
    assert weight(odd * 2.0**exponent) == abs(odd).bit_length() + abs(exponent)


def test_small_numbers_are_sorted_distinct_and_start_as_people_count() -> None:
    assert small_numbers()[:5] == (0.0, 1.0, -1.0, 0.5, 2.0)
    assert list(small_numbers()) == sorted(set(small_numbers()), key=order)


@given(FINITE, st.sampled_from(ROUNDINGS))
def test_rounding_keeps_to_the_bits_and_to_half_a_unit(number: float, bits: int) -> None:
    found = rounded(number, bits)
    for value in found:
        top = abs(Fraction(value).numerator)
        assert (top // (top & -top if top else 1)).bit_length() <= bits
    if number and found and abs(number) < 1e300:
        # A number below the smallest normal one may have no rounding within half a unit that is a double itself.
        unit = Fraction(2) ** (max(weight_exponent(number), -1074) - bits)
        assert abs(Fraction(found[0]) - Fraction(number)) <= max(unit, Fraction(2) ** -1074)


def weight_exponent(number: float) -> int:
    """The e with 2^(e - 1) <= |number| < 2^e."""
    top = abs(Fraction(number))
    exponent = top.numerator.bit_length() - top.denominator.bit_length() + 1
    return exponent if top < Fraction(2) ** exponent and top >= Fraction(2) ** (exponent - 1) else exponent - 1


def test_every_plain_number_of_a_domain_lies_in_it() -> None:
    for domain in (
        Domain(DomainKind.INTERVAL, Fraction(1, 3), Fraction(2, 3)),
        Domain(DomainKind.INTERVAL, Fraction(-5), None, high_open=True),
        Domain(DomainKind.INTEGER, Fraction(3), Fraction(9)),
        Domain(DomainKind.POSITIVE),
    ):
        numbers = plain_numbers(domain)
        assert numbers
        assert all(within(domain, x) for x in numbers)


@given(st.lists(FINITE), FINITE)
def test_plainer_numbers_are_plainer(numbers: list[float], limit: float) -> None:
    assert all(order(x) < order(limit) for x in plainer(numbers, than=limit))
