"""The axes of a training run's plot on the page: logarithmic values, and steps that may run over decades."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ntk_deq.report.axis import power_label
from ntk_deq.report.text import short_number

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
        """Return (place, label) of powers of ten at least `spacing` apart."""
        unit = abs(self.stop - self.start) / (self.high - self.low)
        step = max(1, math.ceil(spacing / unit))
        first = math.ceil(self.low / step) * step
        return [(self.place(10.0**k), power_label(k)) for k in range(first, math.floor(self.high) + 1, step)]


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
