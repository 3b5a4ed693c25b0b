"""A training run in words and numbers: its rates, its ending, what it carries; the same in every report."""

from __future__ import annotations

import math

from ntk_deq.language.format import short_decimal
from ntk_deq.language.run import RUN_KINDS
from ntk_deq.report.console import one_line, short_number
from ntk_deq.report.runs.curves import told_in
from ntk_deq.verify.results import Rate, Start, TrainingRecord

_ROLES = {
    "run": "the whole run",
    "window": "a window of descent",
    "continuation": "flow to the end",
}

_STATUSES = {
    "steps": "all steps taken",
    "horizon": "horizon reached",
    "well-posedness-lost": "well-posedness lost",
    "step-underflow": "step too small for the precision",
    "stationary": "the gradient is zero there",
    "unsolved": "an equilibrium was not found",
}


def short_rate(value: float, *, digits: int = 2) -> str:
    """Return a rate or a step size; small ones as a power of ten, since rates are compared by size.

    Example:
        >>> short_rate(0.00123), short_rate(0.25), short_rate(3.0), short_rate(float("nan"))
        ('1.2e-3', '0.25', '3', 'nan')
    """
    if not math.isfinite(value) or value == 0 or 1e-2 <= abs(value) < 1e4:
        return short_number(value, digits=digits + 1)
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def short_share(value: float) -> str:
    """Return a share of a bound; one that is not the bound itself is never shown as 1.

    Example:
        >>> short_share(0.4321), short_share(1.0), short_share(1 - 1e-9), short_share(1.00001)
        ('0.432', '1', '0.9999…', '1.000…')
    """
    text = short_rate(value)
    return text if text != "1" or value == 1 else short_decimal(value, digits=4, cut=4)


def rate_parts(rate: Rate) -> tuple[str, ...]:
    """Return value, lower and upper end of a rate, to as many digits as tell the ends apart; else the value alone."""
    for digits in (2, 3, 4):
        value, low, high = (short_rate(end, digits=digits) for end in (rate.value, rate.low, rate.high))
        if low != high:
            return value, low, high
    return (short_rate(rate.value),)


def rate_interval(rate: Rate) -> str:
    """Return a rate with its interval.

    Example:
        >>> rate_interval(Rate(0.0041, 0.0040, 0.0042)), rate_interval(Rate(0.5, 0.5, 0.5))
        ('4.1e-3 (4.0e-3 to 4.2e-3)', '0.5')
    """
    parts = rate_parts(rate)
    return f"{parts[0]} ({parts[1]} to {parts[2]})" if len(parts) == 3 else parts[0]


def rate_ratio(record: TrainingRecord) -> float | None:
    """Return measured over predicted rate; None where one is missing or the predicted one is not positive."""
    if record.predicted is None or record.measured is None or not record.predicted.value > 0:
        return None
    return record.measured.value / record.predicted.value


def instantaneous_range(record: TrainingRecord) -> tuple[float, float] | None:
    """Return the smallest and largest rate from the kernel, or None where none was computed."""
    finite = [value for value in record.instantaneous if math.isfinite(value)]
    return (min(finite), max(finite)) if finite else None


def short_index(value: float, record: TrainingRecord) -> str:
    """Return a step or time of a run.

    Example:
        >>> from types import SimpleNamespace
        >>> short_index(12.345, SimpleNamespace(method="gradient-flow", step=None))
        '12.3'
        >>> short_index(12345.0, SimpleNamespace(method="gradient-descent"))
        '12345'
    """
    return short_count(value) if told_in(record).index.whole else short_rate(value)


def short_count(value: float) -> str:
    """Return a number of steps: in full up to seven digits, as a power of ten beyond.

    Example:
        >>> short_count(1234567.0), short_count(1.5e9), short_count(float("inf"))
        ('1234567', '1.5e9', 'inf')
    """
    return str(round(value)) if abs(value) < 1e7 else short_rate(value)


def ending(record: TrainingRecord) -> str:
    """Return where and why a run stopped."""
    how = "at rest, judged to" if at_rest(record) else "stopped at"
    return f"{how} {told_in(record).letter} = {short_index(record.end, record)}: {status_word(record)}"


def at_rest(record: TrainingRecord) -> bool:
    """Return whether a run stays where it started for ever, rather than having stopped."""
    return record.status == "stationary" and record.certified and record.path_length[-1] == 0


def status_word(record: TrainingRecord) -> str:
    """Return why a run stopped, as words."""
    return _STATUSES.get(record.status) or one_line(record.status).replace("-", " ")


def role_words(record: TrainingRecord) -> str:
    """Return what a run carries of the verdict."""
    return _ROLES.get(record.role, one_line(record.role))


def method_words(record: TrainingRecord) -> str:
    """Return a run's method."""
    kind = RUN_KINDS.get(record.method)
    return one_line(record.method) if kind is None else kind.title


def rates_words(record: TrainingRecord) -> str:
    """Return the predicted and the measured rate side by side, or what there is of them; of a recursion its steps."""
    if told_in(record).written:
        return f"steps 0 to {record.steps} of the recursion"
    parts = []
    if record.predicted is not None:
        parts.append(f"predicted {short_rate(record.predicted.value)}")
    if record.measured is not None:
        parts.append(f"measured {rate_interval(record.measured)}")
    else:
        parts.append("not measured")
    ratio = rate_ratio(record)
    if ratio is not None:
        parts.append(f"ratio {short_rate(ratio, digits=1)}")
    return f"rate {', '.join(parts)}"


def run_name(record: TrainingRecord) -> str:
    """Return what tells a run from the others of its claim.

    Example:
        >>> from types import SimpleNamespace
        >>> run_name(SimpleNamespace(setting="tiny", index=3, method="gradient-descent", role="window"))
        'tiny 3, a window of descent'
    """
    return f"{one_line(record.setting)} {record.index}, {role_words(record)}"


def starts_words(starts: tuple[Start, ...]) -> str | None:
    """Return how far from degenerate the starts of runs are whose constants were chosen; None where none were.

    Example:
        >>> start = Start("tiny", 1, "largest gamma", {}, {}, 0.25, (), brief=True)
        >>> starts_words((start,))
        'constants chosen for 1 further aim, contraction at the start 0.25; 1 of 1 judged on a short run'
    """
    aims = {start.aim for start in starts if start.aim}
    if not aims:
        return None
    parts = [f"constants chosen for {len(aims)} further aim{'s' * (len(aims) > 1)}"]
    factors = [start.contraction for start in starts if start.contraction is not None]
    if factors:
        parts.append(f"contraction at the start {_range(factors)}")
    met: dict[str, list[float]] = {}
    for start in starts:
        for condition in start.conditions:
            met.setdefault(condition.name, []).append(condition.factor)
    parts += [f"{one_line(name)} met by a factor of {_range(values)}" for name, values in met.items()]
    brief = sum(start.brief for start in starts)
    return f"{', '.join(parts)}; {brief} of {len(starts)} judged on a short run"


def _range(values: list[float]) -> str:
    low, high = (short_rate(value) for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def slowest_runs(records: tuple[TrainingRecord, ...]) -> list[TrainingRecord]:
    """Return the runs of the instance that is slowest for what the claim states; of the first one without a ratio."""

    def rank(record: TrainingRecord) -> float:
        ratio = rate_ratio(record)
        return math.inf if ratio is None or math.isnan(ratio) else ratio

    if not records:
        return []
    worst = min(records, key=rank)
    return [r for r in records if (r.setting, r.index) == (worst.setting, worst.index)]


def terminal_lines(records: tuple[TrainingRecord, ...], *, limit: int = 2) -> list[str]:
    """Return what the terminal says of a claim's runs: one line a run of its slowest instance, at most `limit`.

    Args:
        records: The claim's runs.
        limit: The most lines.
    """
    shown = slowest_runs(records)[:limit]
    lines = []
    for record in shown:
        lead = "" if len(records) == 1 else f"{one_line(f'{record.setting} {record.index} {record.role}')}: "
        lines.append(f"{lead}{rates_words(record)}; {ending(record)}")
    if lines and len(shown) < len(records):
        lines[-1] += f" ({len(records)} runs in all)"
    return lines
