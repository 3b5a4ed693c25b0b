"""Floats as exact text: small whole numbers and fractions as people write them, all others in hexadecimal."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from ntk_deq.errors import ArgumentError

_SHORT = 9  # characters up to which a whole number or a fraction is written as such
_EXPONENT = 1100  # no double needs more, and no larger power is ever computed
_DECIMAL = re.compile(r"([-+]?)([0-9]{1,40})(?:\.([0-9]{1,40}))?(?:[eE]([-+]?[0-9]{1,4}))?")
_FRACTION = re.compile(r"([-+]?)([0-9]{1,40})/([0-9]{1,40})")
_HEXADECIMAL = re.compile(r"([-+]?)0[xX]([0-9a-fA-F]{1,20})(?:\.([0-9a-fA-F]{1,20}))?[pP]([-+]?[0-9]{1,5})")

ALLOWED = "a whole number, a fraction such as 3/4, a decimal or a hexadecimal float such as 0x1.8p-3, held by a double"


def number_text(number: float) -> str:
    """Return the text of a finite float, from which `read_number` gets the same bits.

    Raises:
        ArgumentError: It is infinite or no number.

    Example:
        >>> [number_text(x) for x in (2.0, -0.75, 0.1, -0.0, 5e-324)]
        ['2', '-3/4', '0x1.999999999999ap-4', '-0x0p+0', '0x0.0000000000001p-1022']
    """
    if not math.isfinite(number):
        raise ArgumentError(f"A number to write down must be finite. Got {number}.")
    if number == 0:
        return "0" if math.copysign(1.0, number) > 0 else _hexadecimal(number)
    top, bottom = number.as_integer_ratio()
    if abs(top) < 10**_SHORT and bottom < 10**_SHORT:
        text = str(top) if bottom == 1 else f"{top}/{bottom}"
        if len(text) <= _SHORT:
            return text
    return _hexadecimal(number)


def read_number(text: str) -> float:
    """Return the float that a text says exactly.

    Raises:
        ArgumentError: It is not the text of a finite number, or no double has that value.

    Example:
        >>> read_number("1/8"), read_number("-0x1.8p-3"), read_number("2.5e-1")
        (0.125, -0.1875, 0.25)
    """
    exact, negative = _exact(text)
    try:
        number = float(exact)
    except OverflowError:
        number = math.inf
    if number != exact:
        raise ArgumentError(f"A number must be {ALLOWED} exactly. Got {_shown(text)}.")
    return -0.0 if exact == 0 and negative else number


def bound_text(bound: float) -> str:
    """Return a bound of a margin as a hexadecimal float, or as inf or -inf.

    Example:
        >>> bound_text(-0.5), bound_text(math.inf)
        ('-0x1p-1', 'inf')
    """
    return _hexadecimal(bound) if math.isfinite(bound) else str(float(bound))


def read_bound(text: str) -> float:
    """Return the bound that `bound_text` wrote.

    Raises:
        ArgumentError: It is neither a number nor an infinity.

    Example:
        >>> read_bound("-inf")
        -inf
    """
    return float(text) if text in ("inf", "-inf") else read_number(text)


def _hexadecimal(number: float) -> str:
    mantissa, _, exponent = number.hex().partition("p")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{exponent}"


def _exact(text: str) -> tuple[Fraction, bool]:
    """Return the rational number that a text says, and whether it has a minus sign."""
    if match := _HEXADECIMAL.fullmatch(text):
        sign, whole, part, exponent = match[1], match[2], match[3] or "", int(match[4])
        value, power, base = Fraction(int(whole + part, 16)), exponent - 4 * len(part), 2
    elif match := _FRACTION.fullmatch(text):
        sign, value, power, base = match[1], Fraction(int(match[2]), int(match[3]) or 1), 0, 2
        if int(match[3]) == 0:
            raise ArgumentError(f"A fraction must not divide by zero. Got {_shown(text)}.")
    elif match := _DECIMAL.fullmatch(text):
        sign, whole, part, exponent = match[1], match[2], match[3] or "", int(match[4] or 0)
        value, power, base = Fraction(int(whole + part)), exponent - len(part), 10
    else:
        raise ArgumentError(f"A number must be {ALLOWED}. Got {_shown(text)}.")
    if abs(power) > _EXPONENT + 80:
        raise ArgumentError(f"A number must be {ALLOWED}. Got {_shown(text)}, beyond the range of doubles.")
    value *= Fraction(base) ** power
    return (-value if sign == "-" else value), sign == "-"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")
