"""The words, signs and colours that stand for verdicts, the same in every report."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from ntk_deq.claims.claim import Verdict
from ntk_deq.language.interval import Margin
from ntk_deq.verify.results import ClaimResult, ConclusionRecord


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
    """Return in words what a verdict does not say: which functions were tried, which equilibria; "" for neither."""
    return "; ".join(filter(None, (members_tried(result), several_equilibria(result))))


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
