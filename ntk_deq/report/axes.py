"""The signed logarithmic axis of margin plots: zero has a band of its own, decades run outward on both sides.

The axes of a training run's plot on the page: logarithmic values, and steps that may run over decades.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from ntk_deq.language.format import short_decimal
from ntk_deq.language.notation.mathml import to_mathml
from ntk_deq.language.tree import Expr, Kind, Span
from ntk_deq.language.types import Margin
from ntk_deq.report.console import margin_words, short_margin, short_number

# Relative margins below this are rounding noise of float64 (2^-53 is about 1.1e-16): no decade is spent on them.
_FINEST = 1e-17

# A relative margin is at most 2 in size unless a side nearly vanishes; what lies beyond this stands on the end.
_COARSEST = 1e6

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class SignedLogAxis:
    """Maps a number to a place between `left` and `right`.

    `place(x) = zero +- (band/2 + unit * log10(1 + |x|/threshold))` for x != 0, and `zero` itself for x = 0.

    Attributes:
        left, right: Ends, in the plot's units.
        zero: Where 0 lies.
        band: Width of the band kept for what cannot be told from zero.
        unit: Width of a decade.
        threshold: Magnitude below which the axis is linear.
        low, high: The numbers at the two ends (low <= 0 <= high).
    """

    left: float
    right: float
    zero: float
    band: float
    unit: float
    threshold: float
    low: float
    high: float

    @classmethod
    def covering(cls, values: Iterable[float], *, left: float, right: float, band: float) -> SignedLogAxis:
        """Return the axis on which every finite value has its place; a side without values keeps a short stub.

        Args:
            values: The numbers to show; those that are not finite do not widen the axis.
            left: Left end.
            right: Right end, greater than `left` + 2 `band`.
            band: Width of the band around zero.
        """
        finite = [min(max(v, -_COARSEST), _COARSEST) for v in values if math.isfinite(v)]
        sizes = [abs(v) for v in finite if abs(v) > _FINEST]
        smallest = min(sizes, default=1.0)
        threshold = 10.0 ** math.floor(math.log10(smallest))
        low, high = min(finite, default=0.0), max(finite, default=0.0)
        decades_low = math.log10(1 + max(-low, 0.0) / threshold)
        decades_high = math.log10(1 + max(high, 0.0) / threshold)
        # A side that holds nothing still gets a twelfth of the axis, so that zero never sits on the edge.
        stub = max(decades_low + decades_high, 1.0) / 11
        decades_low, decades_high = max(decades_low * 1.04, stub), max(decades_high * 1.04, stub)
        unit = (right - left - band) / (decades_low + decades_high)
        return cls(
            left=left,
            right=right,
            zero=left + decades_low * unit + band / 2,
            band=band,
            unit=unit,
            threshold=threshold,
            low=-threshold * (10.0**decades_low - 1),
            high=threshold * (10.0**decades_high - 1),
        )

    def place(self, value: float) -> float:
        """Return where `value` lies; numbers beyond an end, infinities included, lie on that end."""
        if value == 0:
            return self.zero
        if math.isinf(value):
            return self.right if value > 0 else self.left
        distance = self.band / 2 + self.unit * math.log10(1 + abs(value) / self.threshold)
        return min(max(self.zero + math.copysign(distance, value), self.left), self.right)

    def ticks(self, *, spacing: float) -> list[tuple[float, str]]:
        """Return (place, label) of zero and of powers of ten at least `spacing` apart."""
        ticks = [(self.zero, "0")]
        for sign, end in ((1, self.high), (-1, -self.low)):
            if end <= self.threshold:
                continue
            last = self.zero
            top = math.floor(math.log10(end))
            bottom = round(math.log10(self.threshold))
            step = max(1, math.ceil(spacing / self.unit))
            exponents = [k for k in range(top, bottom - 1, -1) if (top - k) % step == 0]
            for exponent in reversed(exponents):
                place = self.place(sign * 10.0**exponent)
                if abs(place - last) >= spacing:
                    ticks.append((place, power_label(exponent, negative=sign < 0)))
                    last = place
        return sorted(ticks)


def power_label(exponent: int, *, negative: bool = False) -> str:
    """Return the label of plus or minus a power of ten.

    Example:
        >>> power_label(-3), power_label(0), power_label(1, negative=True)
        ('10⁻³', '1', '−10')
    """
    body = {0: "1", 1: "10"}.get(exponent, "10" + str(exponent).translate(_SUPERSCRIPTS))
    return ("−" if negative else "") + body


# Width that zero keeps on an axis of spread steps, as a share of a decade's.
_ZERO_BAND = 0.4


@dataclass(frozen=True, slots=True)
class LogScale:
    """Maps positive numbers to places, a decade as wide as any other.

    Attributes:
        low: log10 of the number at `start`.
        high: log10 of the number at `stop`, greater than `low`.
        start: Place of the low end.
        stop: Place of the high end; below `start` for an axis that runs upward in SVG.
    """

    low: float
    high: float
    start: float
    stop: float

    @classmethod
    def covering(cls, values: Iterable[float], *, start: float, stop: float) -> LogScale:
        """Return the scale that holds every positive finite value, one decade at least, with a little room."""
        logs = [math.log10(value) for value in values if value > 0 and math.isfinite(value)]
        low, high = min(logs, default=-1.0), max(logs, default=0.0)
        middle, half = (low + high) / 2, max(high - low, 1.0) * 0.53
        return cls(middle - half, middle + half, start, stop)

    def place(self, value: float) -> float:
        """Return where a positive number lies; one beyond an end lies on that end."""
        part = (math.log10(value) - self.low) / (self.high - self.low) if value > 0 else 0.0
        return self.start + (self.stop - self.start) * min(max(part, 0.0), 1.0)

    def ticks(self, *, spacing: float) -> list[tuple[float, str]]:
        """Return (place, label) of powers of ten at least `spacing` apart; of numbers between, too, if there is one."""
        unit = abs(self.stop - self.start) / (self.high - self.low)
        step = max(1, math.ceil(spacing / unit))
        first = math.ceil(self.low / step) * step
        powers = [(self.place(10.0**k), power_label(k)) for k in range(first, math.floor(self.high) + 1, step)]
        if len(powers) > 1:
            return powers
        between = (1, 2, 5) if unit * math.log10(2) >= spacing else (1, 3) if unit * math.log10(3) >= spacing else (1,)
        parts = [(k + math.log10(m), k, m) for k in range(math.floor(self.low), first + 1) for m in between]
        return [
            (self.place(10.0**at), power_label(k) if m == 1 else f"{m}·{power_label(k)}" if k else str(m))
            for at, k, m in parts
            if self.low <= at <= self.high
        ]


@dataclass(frozen=True, slots=True)
class StepScale:
    """Maps steps or times to places: evenly, or a decade as wide as any other beyond the first step.

    Attributes:
        first: The smallest positive step where they are spread over decades, else 0.
        last: The last step.
        start: Place of 0.
        stop: Place of `last`.
    """

    first: float
    last: float
    start: float
    stop: float

    @classmethod
    def covering(cls, at: tuple[float, ...], *, spread: bool, start: float, stop: float) -> StepScale:
        """Return the scale of the steps `at`, which increase from 0."""
        first = next((value for value in at if value > 0), 0.0) if spread else 0.0
        return cls(first, at[-1] if at[-1] > 0 else 1.0, start, stop)

    def place(self, value: float) -> float:
        """Return where a step lies."""
        return self.start + (self.stop - self.start) * min(max(self._part(value), 0.0), 1.0)

    def ticks(self, *, spacing: float) -> list[tuple[float, str]]:
        """Return (place, label) of zero and of round steps at least `spacing` apart."""
        if self.first:
            powers = range(math.ceil(math.log10(self.first) - 1e-9), math.floor(math.log10(self.last) + 1e-9) + 1)
            marks = [(self.place(10.0**k), power_label(k)) for k in powers]
        else:
            step = _round_step(self.last * spacing / (self.stop - self.start))
            count = math.floor(self.last / step * (1 + 1e-9))
            marks = [(self.place(i * step), short_number(i * step)) for i in range(1, count + 1)]
        kept = [(self.start, "0")]
        for place, label in marks:
            if place - kept[-1][0] >= spacing * (1 - 1e-9):
                kept.append((place, label))
        return kept

    def _part(self, value: float) -> float:
        if not self.first:
            return value / self.last
        whole = _ZERO_BAND + math.log10(self.last / self.first)
        if value <= self.first:
            return _ZERO_BAND * value / self.first / whole
        return (_ZERO_BAND + math.log10(value / self.first)) / whole


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= least * (1 - 1e-9))


# The elements of MathML Core that formulas are made of; nothing here can load or run anything.
_MATHML = frozenset(
    "math mrow mi mo mn ms mtext mspace mpadded mphantom mstyle merror mfrac msqrt mroot msub msup msubsup munder "
    "mover munderover mmultiscripts mprescripts none mtable mtr mtd menclose semantics annotation".split()
)

_NAMESPACE = "{http://www.w3.org/1998/Math/MathML}"


@dataclass(frozen=True)
class Cell:
    """A number of a matrix: short to read, exact in the tool tip."""

    short: str
    exact: str


def typeset_number(text: str) -> str:
    """Return a number written in ASCII with a true minus sign, `±` and `∞`.

    Example:
        >>> typeset_number("-0.5 +/- 1e-17"), typeset_number("-inf")
        ('−0.5 ± 1e−17', '−∞')
    """
    text = re.sub(r"-(?=[\d.]|inf)", "−", text.replace("+/-", "±"))
    return re.sub(r"\binf\b", "∞", text)


def number_cell(value: float) -> Cell:
    """Return a measured number as a cell, rounded to four digits."""
    return Cell(typeset_number(short_number(value)), repr(float(value)))


def value_cell(value: float) -> Cell:
    """Return a value of an instance as a cell: the number itself, or its first digits with an ellipsis."""
    return Cell(typeset_number(short_decimal(value)), repr(float(value)))


def margin_cell(margin: Margin | None, scale: float = 0.0) -> Cell:
    """Return a margin ball as a cell, also relative to its scale where that is known; its tool tip has both ends."""
    if margin is None:
        return Cell("–", "no margin")
    words = margin_words(margin, scale) if scale else short_margin(margin)
    return Cell(typeset_number(words), f"[{margin.lo!r}, {margin.hi!r}]")


def safe_mathml(text: str) -> Markup | None:
    """Return MathML as markup where it parses and holds MathML elements only, without handlers or links; else None."""
    if not text.strip() or "<!" in text or "<?" in text:
        return None
    whole = text if text.lstrip().startswith("<math") else f"<math>{text}</math>"
    try:
        root = ET.fromstring(whole)
    except ET.ParseError:
        return None
    for element in root.iter():
        name = str(element.tag).removeprefix(_NAMESPACE)
        if name not in _MATHML or any(k.lower().startswith("on") or "href" in k.lower() for k in element.attrib):
            return None
        if name == "annotation" and len(element):
            return None
    return Markup(whole)


def symbol(name: str) -> Markup | None:
    """Return the name of a variable typeset, or None where it is not a name of the claim language.

    Example:
        >>> print(symbol("gamma0"))
        <math display="block"><msub><mi>γ</mi><mn>0</mn></msub></math>
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        return None
    return safe_mathml(to_mathml(Expr(Kind.NAME, Span(0, len(name)), name=name)))
