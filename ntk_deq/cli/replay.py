"""The command `verify-claims replay`: judge a recorded counterexample again."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from ntk_deq.claims.claim import Claim, IllFormed
from ntk_deq.claims.load import load_suite
from ntk_deq.cli import EXIT_OK, EXIT_UNEXPECTED, EXIT_USAGE, refused
from ntk_deq.errors import ClaimFileError, NtkDeqError
from ntk_deq.evaluation.quantity import Outcome, Truth
from ntk_deq.language.hints import did_you_mean
from ntk_deq.language.types import Margin
from ntk_deq.report.check import render_problem, render_problems
from ntk_deq.report.console import Piece, one_line, say, say_values, short_margin
from ntk_deq.verify.judge import IMPLICIT, Judgement, Standing
from ntk_deq.verify.replay import Comparison, Replay, compare, read_counterexample, replay
from ntk_deq.verify.replay.record import Record, RecordKind
from ntk_deq.verify.replay.values import bound_text
from ntk_deq.verify.witness import MAX_PRINTED

_TRUTH = {
    Truth.TRUE: ("true", "green"),
    Truth.FALSE: ("false", "red"),
    Truth.TIGHT: ("tight", "yellow"),
    Truth.NEAR_ZERO: ("tight", "yellow"),
    Truth.STRICT_TIGHT: ("tight", "yellow"),
    Truth.UNSURE: ("undecided", "yellow"),
}
_INDENT = 2


def render_replay(console: Console, replayed: Replay) -> None:
    """Print a replayed instance and what came of it.

    Args:
        console: Where.
        replayed: The replay.
    """
    record, instance = replayed.record, replayed.record.instance
    title = f": {one_line(record.claim.title)}" if record.claim.title else ""
    where = f" ({one_line(record.claim.where)})" if record.claim.where else ""
    say(console, (record.claim.id, "bold"), f"{title}{where}")
    made = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    say(console, (f"written by {made or 'an unknown version'}, on {record.device}", "dim"), indent=_INDENT)
    sizes = ", ".join(f"{name} = {size}" for name, size in instance.sizes.items())
    words = f"setting {instance.setting}, instance {instance.index}, seed {record.seed}"
    say(console, ("; ".join(part for part in (sizes, words, one_line(instance.family)) if part), "dim"), indent=_INDENT)
    shown = {name: v.tolist() if v.numel() <= MAX_PRINTED else None for name, v in instance.values.items()}
    say_values(console, shown, indent=_INDENT)
    drawn = [name for name in instance.values if name not in {**_setting_free(replayed), **record.claim.given}]
    if drawn:
        text = (
            f"{', '.join(drawn)}: drawn from a distribution or from data; the values of the file are taken as they are"
        )
        say(console, (text, "yellow"), indent=_INDENT)
    if instance.solved:
        named = ", ".join(name for name in instance.values if name in instance.solved)
        say(
            console,
            (f"{named}: what is judged is the solution of the hypotheses near these values", "dim"),
            indent=_INDENT,
        )
    _render_judgement(console, replayed.judgement)
    if replayed.edited:
        text = "the statement is not the one that the fingerprint was made of: the file was edited, or a model changed"
        say(console, (text, "yellow"), indent=_INDENT)
    _render_margin(console, replayed)


def render_comparison(console: Console, comparison: Comparison, file: str, claim_id: str) -> None:
    """Print whether the claim of a file still states what was recorded, and the instance's verdict on it.

    Args:
        console: Where.
        comparison: The comparison.
        file: The claim file.
        claim_id: The claim.
    """
    if not comparison.changes:
        say(console, (f"{file} states {claim_id} in the same way", "green"), indent=_INDENT)
        return
    say(console, (f"this counterexample is of another version of the claim: in {file},", "bold yellow"), indent=_INDENT)
    for change in comparison.changes:
        say(console, one_line(change), indent=2 * _INDENT)
    if comparison.judgement is None:
        say(console, "the claim there does not speak of this instance", indent=_INDENT)
        return
    _render_judgement(console, comparison.judgement)
    say(console, f"on the claim there: {verdict_of(comparison.judgement)}", indent=_INDENT)


def verdict_of(judgement: Judgement) -> str:
    """Return in words what one instance says of a claim."""
    truths = [outcome.truth for outcome in judgement.conclusions.values()]
    if judgement.standing is Standing.UNMET:
        return "no counterexample, a hypothesis fails"
    if judgement.standing is Standing.UNSURE:
        return "undecided, a hypothesis is not certain"
    if Truth.FALSE in truths:
        return "refuted"
    return "undecided" if Truth.UNSURE in truths else "no counterexample, the conclusions are not broken"


def _setting_free(replayed: Replay) -> Mapping[str, object]:
    record = replayed.record
    return record.claim.setting_named(record.instance.setting).free


def _render_judgement(console: Console, judgement: Judgement) -> None:
    for heading, outcomes in (("hypotheses", judgement.hypotheses), ("conclusions", judgement.conclusions)):
        if outcomes:
            say(console, (heading, "bold"), indent=_INDENT)
        for name, outcome in outcomes.items():
            say(console, *_outcome(name, outcome), indent=2 * _INDENT)


def _outcome(name: str, outcome: Outcome) -> list[Piece]:
    word, style = _TRUTH[outcome.truth]
    pieces: list[Piece] = [(f"{one_line(name)}: ", "cyan")]
    comparison = outcome.comparison
    if comparison is not None:
        steps = "".join(f", {letter} = {step}" for letter, step in comparison.steps)
        pieces.append(f"{comparison.lhs} {comparison.relation} {comparison.rhs}{steps}  ")
    pieces.append((word, style))
    if comparison is not None:
        pieces.append(f", margin {short_margin(comparison.margin)}")
    if outcome.reason or name in IMPLICIT:
        pieces.append((f" ({one_line(outcome.reason or IMPLICIT[name])})", "dim"))
    return pieces


def _render_margin(console: Console, replayed: Replay) -> None:
    recorded = _interval(replayed.record.margin)
    if replayed.margin is None and not replayed.record.relation:
        pass  # an argument, not two sides
    elif replayed.margin is None:
        say(console, (f"the margin {recorded} was recorded; none is reached now", "red"), indent=_INDENT)
    elif replayed.identical:
        say(console, f"margin {recorded}: ", ("identical to the recorded one, bit for bit", "green"), indent=_INDENT)
    else:
        agree = "a ball of the same number" if replayed.consistent else "which has no number in common with it"
        style = "yellow" if replayed.consistent else "red"
        say(
            console,
            f"margin {_interval(replayed.margin)}: ",
            (f"not bit-identical to {recorded}, {agree}", style),
            indent=_INDENT,
        )
    kind = replayed.record.kind
    wanted = "reproduced" if replayed.reproduced else "not reproduced"
    say(
        console,
        (f"{kind.value.replace('-', ' ')} {wanted}", "bold green" if replayed.reproduced else "bold red"),
        f": {verdict_of(replayed.judgement)}" if kind is RecordKind.COUNTEREXAMPLE else "",
        indent=_INDENT,
    )


def _interval(margin: Margin) -> str:
    return f"[{bound_text(margin.lo)}, {bound_text(margin.hi)}]"


def run_replay(arguments: argparse.Namespace, console: Console) -> int:
    """Replay `arguments.instance` and compare it with the claim in `arguments.file`, if given.

    Returns:
        0 where the instance does what it was recorded for, and the claim of FILE, if given, states the same; 1 where
        not; 4 where a file cannot be used, or the time limit ran out.
    """
    deadline = time.thread_time() + arguments.time_limit
    try:
        record = read_counterexample(Path(arguments.instance))
        replayed = replay(record, deadline=deadline)
        render_replay(console, replayed)
        code = EXIT_OK if replayed.reproduced else EXIT_UNEXPECTED
        if arguments.file is None:
            return code
        return max(code, _compare(arguments, record, console, deadline))
    except ClaimFileError as error:
        render_problems(console, error.problems)
        return EXIT_USAGE
    except RecursionError:
        return refused(console, "the definitions of the claim rest on each other too deeply to be evaluated")
    except (NtkDeqError, OSError, MemoryError) as error:
        return refused(console, str(error) or "the instance does not fit into memory")


def _compare(arguments: argparse.Namespace, record: Record, console: Console, deadline: float) -> int:
    suite = load_suite(arguments.file, allow_data=[Path(p) for p in arguments.data])
    now = next((claim for claim in suite.claims if claim.id == record.claim.id), None)
    if isinstance(now, IllFormed):
        for problem in now.problems:
            render_problem(console, problem)
        return EXIT_USAGE
    if not isinstance(now, Claim):
        hint = did_you_mean(record.claim.id, [claim.id for claim in suite.claims])
        return refused(console, f"{arguments.file} has no claim {record.claim.id}{f'; {hint}' if hint else ''}")
    comparison = compare(record, now, deadline=deadline)
    render_comparison(console, comparison, arguments.file, record.claim.id)
    return EXIT_UNEXPECTED if comparison.changes else EXIT_OK
