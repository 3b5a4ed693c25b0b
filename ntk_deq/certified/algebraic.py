"""Real algebraic numbers whose sign is always right: rationals, roots of whole polynomials, and formulas of them.

A number that is no rational is kept as its formula, with balls of any precision and what a separation bound needs: it
is U/L for algebraic integers U and L of the field K that its radicals and roots generate, and every conjugate of U and
of L is bounded. If U is not zero, then the product of its conjugates, a whole number, is not zero either, and

    |x| >= 1 / (bottom * top^(D - 1)),   D >= [K : Q].

So a ball that contains zero and is narrower than that proves that the number is zero.

References:
    C. Burnikel, R. Fleischer, K. Mehlhorn, S. Schirra (2000), A strong and easily computable separation bound for
    arithmetic expressions involving radicals; C. Burnikel, S. Funke, K. Mehlhorn, S. Schirra, S. Schmitt (2001) for
    quotients and roots of polynomials.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import cast

from flint import acb, arb, fmpq, fmpz, fmpz_poly

from ntk_deq.certified.scalar import bits_inside
from ntk_deq.errors import NtkDeqError

MOST_BITS = 8192
"""Bits of the finest balls: a number whose separation bound asks for more has no sign that is decided here."""

MOST_POWER = 100
"""Largest whole exponent."""

MOST_ROOT = 8
"""Largest order of a radical."""

_FIRST_BITS = 64
_UNPROMISING = 512  # bits up to which a number is told from zero where the separation bound is out of reach


class UndecidedError(NtkDeqError):
    """A number is not known to be algebraic, or its sign would take more than the limits allow."""


class UndefinedError(NtkDeqError):
    """A number does not exist: a quotient by zero, a root of a negative number."""


class Algebraic:
    """A real algebraic number, given by a formula.

    Attributes:
        top: Bound of the conjugates of the numerator U, at least 1.
        bottom: Bound of the conjugates of the denominator L; L itself where `whole`.
        whole: Whether L is the whole number `bottom`.
        generators: Radicals and roots that generate the field, each with a bound of its degree over those before.
    """

    def __init__(
        self,
        top: int,
        bottom: int,
        whole: bool,
        generators: dict[Algebraic, int],
        computed: Callable[[int], arb],
        *,
        degree: int = 1,
    ) -> None:
        self.top, self.bottom, self.whole = max(top, 1), max(bottom, 1), whole
        self.generators = {**generators, self: degree} if degree > 1 else generators
        self._computed = computed
        self._ball: tuple[int, arb] = (0, arb(0))
        self._sign: int | None = None

    @property
    def separation(self) -> int:
        """A number b such that the number is zero or at least 2^-b in absolute value."""
        degree = math.prod(self.generators.values())
        return self.bottom.bit_length() + (degree - 1) * self.top.bit_length()

    def ball(self, bits: int) -> arb:
        """Return a ball that contains the number, computed with so many bits.

        Raises:
            UndecidedError: The formula is too deep.
        """
        if self._ball[0] != bits:
            try:
                with bits_inside(bits):
                    self._ball = (bits, self._computed(bits))
            except RecursionError:
                raise UndecidedError("a formula of too many operations") from None
        return self._ball[1]

    def sign(self) -> int:
        """Return -1, 0 or 1.

        Raises:
            UndecidedError: The separation bound asks for too many bits.
        """
        if self._sign is None:
            self._sign = self._decided()
        return self._sign

    def _decided(self) -> int:
        separation, bits = self.separation, _FIRST_BITS
        most = MOST_BITS if separation < MOST_BITS else _UNPROMISING
        while bits <= most:
            ball = self.ball(bits)
            if ball > 0:
                return 1
            if ball < 0:
                return -1
            with bits_inside(_FIRST_BITS):
                if ball.is_finite() and ball.abs_upper() < arb(2) ** -separation:
                    return 0
            bits *= 2
        raise UndecidedError("it would take too many bits to tell a number from zero")

    def __neg__(self) -> Algebraic:
        return Algebraic(self.top, self.bottom, self.whole, self.generators, lambda bits: -self.ball(bits))

    def __add__(self, other: Number) -> Number:
        if isinstance(other, fmpq):
            if other == 0:
                return self
            other = _as_algebraic(other)
        # U1/L1 + U2/L2 over the least common denominator, where the denominators are whole numbers.
        whole = self.whole and other.whole
        bottom = math.lcm(self.bottom, other.bottom) if whole else self.bottom * other.bottom
        top = self.top * (bottom // self.bottom) + other.top * (bottom // other.bottom)
        generators = self.generators | other.generators
        return Algebraic(top, bottom, whole, generators, lambda bits: self.ball(bits) + other.ball(bits))

    __radd__ = __add__

    def __sub__(self, other: Number) -> Number:
        return self + (-other)

    def __rsub__(self, other: Number) -> Number:
        return -self + other

    def __mul__(self, other: Number) -> Number:
        if isinstance(other, fmpq):
            if other == 0:
                return other
            other = _as_algebraic(other)
        return Algebraic(
            self.top * other.top,
            self.bottom * other.bottom,
            self.whole and other.whole,
            self.generators | other.generators,
            lambda bits: self.ball(bits) * other.ball(bits),
        )

    __rmul__ = __mul__


Number = fmpq | Algebraic
"""An exact real number."""


def _as_algebraic(number: fmpq) -> Algebraic:
    return Algebraic(abs(int(number.p)), int(number.q), True, {}, lambda bits: arb(number))


def sign(number: Number) -> int:
    """Return -1, 0 or 1.

    Raises:
        UndecidedError: It would take too many bits.

    Example:
        >>> difference = root(fmpq(2), 2) * root(fmpq(3), 2) - root(fmpq(6), 2)
        >>> sign(difference), sign(difference + fmpq(1, 10**40)), sign(fmpq(-1, 3))
        (0, 1, -1)
    """
    if isinstance(number, fmpq):
        return (number > 0) - (number < 0)
    return number.sign()


def enclosure(number: Number, bits: int) -> arb:
    """Return a ball that contains a number, computed with so many bits."""
    if isinstance(number, fmpq):
        with bits_inside(bits):
            return arb(number)
    return number.ball(bits)


def absolute(number: Number) -> Number:
    """Return the absolute value."""
    return -number if sign(number) < 0 else number


def inverse(number: Number) -> Number:
    """Return 1/number.

    Raises:
        UndefinedError: It is zero.
    """
    if sign(number) == 0:
        raise UndefinedError("a division by zero")
    if isinstance(number, fmpq):
        return 1 / number
    generators = number.generators
    return Algebraic(number.bottom, number.top, False, generators, lambda bits: 1 / _apart(number, bits))


def _apart(number: Algebraic, bits: int) -> arb:
    """Return the ball of a number that is not zero; finer than asked for where it takes that to exclude zero."""
    ball = number.ball(bits)
    while ball.contains(0) and bits < MOST_BITS:
        bits *= 2
        ball = number.ball(bits)
    return ball


def power(number: Number, exponent: int) -> Number:
    """Return a whole power; the power 0 is 1.

    Raises:
        UndefinedError: A negative power of zero.
        UndecidedError: The exponent is too large.
    """
    if abs(exponent) > MOST_POWER:
        raise UndecidedError(f"a power beyond {MOST_POWER}")
    if exponent < 0:
        return inverse(power(number, -exponent))
    if isinstance(number, fmpq):
        return number**exponent
    if exponent == 0:
        return fmpq(1)
    half = power(number, exponent // 2)
    return half * half * number if exponent % 2 else half * half


def root(number: Number, order: int) -> Number:
    """Return the root of a number that is not negative.

    Raises:
        UndefinedError: The number is negative.
        UndecidedError: The order is too large.

    Example:
        >>> root(fmpq(9, 4), 2)
        3/2
    """
    if order > MOST_ROOT:
        raise UndecidedError(f"a root of an order beyond {MOST_ROOT}")
    which = sign(number)
    if which < 0:
        raise UndefinedError("a root of a negative number")
    if which == 0:
        return fmpq(0)
    return _radical_of_rational(number, order) if isinstance(number, fmpq) else _radical(number, order)


@lru_cache(maxsize=256)  # the same radical is the same generator, so that the field does not grow
def _radical_of_rational(number: fmpq, order: int) -> Number:
    top, bottom = (part.root(order) for part in (number.p, number.q))
    if top**order == number.p and bottom**order == number.q:
        return fmpq(top, bottom)
    return _radical(_as_algebraic(number), order)


def _radical(radicand: Algebraic, order: int) -> Algebraic:
    # (U/L)^(1/k) = (U L^(k-1))^(1/k) / L.
    top = int(fmpz(radicand.top * radicand.bottom ** (order - 1)).root(order)) + 1
    return Algebraic(
        top,
        radicand.bottom,
        radicand.whole,
        radicand.generators,
        lambda bits: _apart(radicand, bits).root(order),
        degree=order,
    )


def real_roots(polynomial: fmpz_poly) -> list[Number]:
    """Return the real roots of a polynomial with whole coefficients, the first of which is 1; each once, ascending.

    Example:
        >>> [float(enclosure(x, 64)) for x in real_roots(fmpz_poly([0, -2, 0, 1]))]
        [-1.4142135623730951, 0.0, 1.4142135623730951]
    """
    if max(abs(int(entry)) for entry in polynomial.coeffs()).bit_length() > MOST_BITS:
        raise UndecidedError("a polynomial with too long coefficients")
    found: list[Number] = []
    for factor, _ in polynomial.factor()[1]:
        found += _roots_of_factor(tuple(factor.coeffs()))
    bits = _FIRST_BITS
    while True:  # roots of different irreducible factors differ, so that some precision tells them apart
        balls = [enclosure(number, bits) for number in found]
        order = sorted(range(len(found)), key=lambda i: balls[i].mid())
        if all(balls[a] < balls[b] for a, b in pairwise(order)):
            return [found[i] for i in order]
        if bits >= MOST_BITS:
            raise UndecidedError("it would take too many bits to tell two eigenvalues apart")
        bits *= 2


@lru_cache(maxsize=256)
def _roots_of_factor(coefficients: tuple[fmpz, ...]) -> tuple[Number, ...]:
    """Return the real roots of an irreducible monic polynomial."""
    factor = fmpz_poly(list(coefficients))
    if factor.degree() == 1:
        return (fmpq(-factor[0]),)
    with bits_inside(_FIRST_BITS):
        everywhere = _complex_roots(factor)
        # Every conjugate of a root is a root.
        top = max(_whole_above(abs(point)) for point in everywhere)
    count = sum(point.imag.is_zero() for point in everywhere)
    balls: dict[int, list[arb]] = {}

    def computed(bits: int) -> list[arb]:
        if bits not in balls:
            balls.clear()
            real = (point.real for point in _complex_roots(factor) if point.imag.is_zero())
            balls[bits] = sorted(real, key=lambda ball: ball.mid())
        return balls[bits]

    def at(place: int) -> Callable[[int], arb]:
        return lambda bits: computed(bits)[place]

    return tuple(Algebraic(top, 1, True, {}, at(place), degree=factor.degree()) for place in range(count))


def _whole_above(ball: arb) -> int:
    """Return a whole number that is larger than a ball of numbers that are not negative."""
    mantissa, exponent = (int(part) for part in ball.abs_upper().man_exp())
    return (mantissa << exponent if exponent >= 0 else mantissa >> -exponent) + 1


def _complex_roots(factor: fmpz_poly) -> list[acb]:
    """Return the roots of an irreducible polynomial; the imaginary part of a real one is zero exactly."""
    found = cast(list[tuple[acb, int]], factor.complex_roots())  # flint's stubs leave out the multiplicities
    return [point for point, _ in found]
