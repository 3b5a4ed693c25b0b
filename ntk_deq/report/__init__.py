"""Verdicts written down for people and machines: terminal, JSON lines, JUnit, one-file HTML. Imports no torch.

terminal.py, console.py    lines as claims are judged
jsonl.py, junit.py         results.jsonl, written and read back, and junit.xml
html.py, templates/        report.html: formulas, margins drawn (margins.py, axes.py), counterexamples
runs.py, curves.py         training runs on the page
check.py                   what `check` prints; other commands print with what does their work, in `cli`

Here: the words, signs and colours that stand for verdicts and for training runs, the same in every report.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ntk_deq.claims.claim import Verdict
from ntk_deq.language.format import short_decimal
from ntk_deq.language.run import RUN_KINDS, told_in
from ntk_deq.language.types import Margin
from ntk_deq.report.console import one_line, short_number

if TYPE_CHECKING:
    from ntk_deq.verify.results import ClaimResult, ConclusionRecord, Rate, Start, TrainingRecord


@dataclass(frozen=True, slots=True)
class VerdictLook:
    """How a verdict is shown: a sign that reads without colour, an ASCII stand-in, a terminal style, a meaning."""

    sign: str
    ascii_sign: str
    style: str
    meaning: str


LOOKS: dict[Verdict, VerdictLook] = {
    Verdict.PROVED: VerdictLook("■", "#", "bold green", "an argument covers the whole domain"),
    Verdict.HOLDS: VerdictLook("✓", "+", "green", "true on every instance tried that meets the hypotheses"),
    Verdict.REFUTED: VerdictLook("✗", "x", "red", "one instance meets every hypothesis and breaks a conclusion"),
    Verdict.VACUOUS: VerdictLook("∅", "0", "yellow", "no instance tried meets the hypotheses"),
    Verdict.UNDECIDED: VerdictLook("?", "?", "yellow", "the numerical error does not decide, or a budget ran out"),
    Verdict.ERROR: VerdictLook("!", "!", "bold magenta", "the product itself failed on this claim"),
    Verdict.ILL_FORMED: VerdictLook("≠", "~", "bold magenta", "the formula does not type-check"),
}

EXIT_MEANINGS: dict[int, str] = {
    0: "every claim came out as expected",
    1: "some verdict is against expectation",
    2: "interrupted",
    3: "internal error",
    4: "usage or claim-file error",
    5: "no claim selected",
    6: "nothing wrong, but something vacuous or undecided where `holds` was expected",
}


def count_verdicts(results: Iterable[ClaimResult]) -> dict[Verdict, int]:
    """Return how many results have each verdict, in the order of the verdicts, zeros left out."""
    counts = dict.fromkeys(Verdict, 0)
    for result in results:
        counts[result.verdict] += 1
    return {verdict: count for verdict, count in counts.items() if count}


def is_alarming(result: ClaimResult) -> bool:
    """Return whether a result is a reason for alarm: against expectation, and not merely open where it was to hold."""
    still_open = result.verdict in (Verdict.VACUOUS, Verdict.UNDECIDED)
    return not result.as_expected and not (still_open and result.expected in (Verdict.HOLDS, Verdict.PROVED))


def verdict_style(verdict: Verdict, results: Iterable[ClaimResult]) -> str:
    """Return the terminal style of a verdict that `results` share; none of alarm where each of them expects it."""
    calm = verdict is Verdict.REFUTED and all(result.as_expected for result in results if result.verdict is verdict)
    return "default" if calm else LOOKS[verdict].style


def exit_style(code: int) -> str:
    """Return the terminal style of an exit code: all is well, something is open, something is wrong."""
    return {0: "bold green", 6: "bold yellow"}.get(code, "bold red")


def expectation(result: ClaimResult) -> str:
    """Return in words whether the verdict is the expected one: `as expected`, or what was expected instead."""
    return "as expected" if result.as_expected else f"expected {result.expected}"


def replay_command(path: str) -> str:
    """Return the command that judges a recorded counterexample again.

    Example:
        >>> replay_command("my results/R.yaml")
        "verify-claims replay 'my results/R.yaml'"
    """
    return shlex.join(["verify-claims", "replay", path])


def second_look(result: ClaimResult) -> str:
    """Return in words how many instances were evaluated again, or "" where none was.

    It counts evaluations: a verdict may rest on the first ones alone.
    """
    exact = f"exact arithmetic decided {result.exact}" if result.exact else ""
    if not result.refined:
        return exact
    what = "1 instance was" if result.refined == 1 else f"{result.refined} instances were"
    decided = "none of them" if not result.settled else f"{result.settled} of them"
    again = f"{what} evaluated again at {result.precision} bits, which decided {decided}"
    return f"{again}; {exact}" if exact else again


def little_support(result: ClaimResult) -> str:
    """Return in words why a verdict rests on little, or "" where it does not."""
    return f"little support: {result.support.remark}" if result.support.remark else ""


def members_tried(result: ClaimResult) -> str:
    """Return in words which functions were tried where a claim quantifies over functions, or "" where it does not."""
    found: dict[str, dict[str, None]] = {}
    for depth in result.depths:
        for name, member in depth.members.items():
            found.setdefault(name, {})[member] = None
    listed = "; ".join(f"{name}: {', '.join(members)}" for name, members in found.items())
    return f"members tried, of sets that have more: {listed}" if listed else ""


def remarks(result: ClaimResult) -> str:
    """Return in words what a verdict does not say: which functions it is about, which equilibria; "" for neither."""
    here = [f"here {line.name} = {line.text}" for line in result.statement if line.section == "member"]
    return "; ".join(filter(None, (*here, members_tried(result), several_equilibria(result))))


def several_equilibria(result: ClaimResult) -> str:
    """Return in words that there may be other equilibria than those that were judged, or "" where there are none."""
    support = result.support
    if not support.nearby:
        return ""
    what = f"{support.nearby} of {support.met} instances" if support.nearby < support.met else "all instances"
    return f"equilibria: on {what} one that was found from zero, alone near by; there may be others farther away"


def shown_margin(result: ClaimResult) -> tuple[Margin | None, float]:
    """Return the margin that a report shows of a result, and the scale that it is relative to (0: unknown).

    It is that of the counterexample where one is shown, and else the worst of all instances: what shrinking came from
    may break the claim by more than what it came to. Where it is shown that nothing exists there is none.
    """
    broken = result.counterexample
    if broken is not None and broken.argument and not broken.relation:
        return None, 0.0
    return worst_margin(result) if broken is None else (broken.margin, broken.scale)


def worst_margin(result: ClaimResult) -> tuple[Margin | None, float]:
    """Return the worst margin of all instances that were tried, before any shrinking, and its scale (0: unknown)."""
    worst = result.worst_margin
    return worst, scale_of(worst, result.conclusions)


def scale_of(margin: Margin | None, records: Iterable[ConclusionRecord]) -> float:
    """Return the scale of a margin among those of `records` (0: unknown)."""
    scales = (
        scale
        for record in records
        for lo, hi, scale in record.margins
        if margin is not None and (lo, hi) == (margin.lo, margin.hi)
    )
    return next(scales, 0.0)


def suite_name(result: ClaimResult) -> str:
    """Return a short name for where a claim comes from: its source's title, else its claim file, else `claims`."""
    title = result.source.get("title")
    if isinstance(title, str) and title.strip():
        return title.strip()
    return result.position.rsplit(":", 2)[0] or "claims"


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
        >>> from ntk_deq.verify.results import Rate
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
        >>> from ntk_deq.verify.results import Start
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


def terminal_lines(records: tuple[TrainingRecord, ...]) -> list[str]:
    """Return what the terminal says of a claim's runs: one line a run of its slowest instance, two at most."""
    shown = slowest_runs(records)[:2]
    lines = []
    for record in shown:
        lead = "" if len(records) == 1 else f"{one_line(f'{record.setting} {record.index} {record.role}')}: "
        lines.append(f"{lead}{rates_words(record)}; {ending(record)}")
    if lines and len(shown) < len(records):
        lines[-1] += f" ({len(records)} runs in all)"
    return lines
