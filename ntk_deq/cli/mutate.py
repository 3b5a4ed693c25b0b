"""The command `verify-claims mutate`: judge mutants of claims, and say which of them the checker lets live."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ntk_deq.claims.claim import Claim, IllFormed, Suite
from ntk_deq.claims.mutation import RULE_MEANINGS
from ntk_deq.cli import (
    EXIT_EMPTY,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_UNEXPECTED,
    EXIT_USAGE,
    Interruption,
    refused,
)
from ntk_deq.cli.select import selected_claims, warn_of_missing_extras
from ntk_deq.cli.session import clear_mutate, held_folder
from ntk_deq.errors import ArgumentError, nearest_name
from ntk_deq.files import append_line, replace_file
from ntk_deq.report.console import Piece, one_line, say, say_hanging, short_number, short_seconds
from ntk_deq.report.jsonl import json_safe
from ntk_deq.verify.findings import Fate, MutantResult, Score, judge_mutants, score, worth_mutating
from ntk_deq.verify.runner import Options, judge

_STYLES = {
    Fate.KILLED: "green",
    Fate.SURVIVED: "bold red",
    Fate.VACUOUS: "yellow",
    Fate.UNDECIDED: "yellow",
    Fate.ERROR: "bold magenta",
    Fate.WEAKER: "dim",
}
_INTERRUPTED = "Interrupted: not every mutant was judged."
_WIDTH = max(map(len, Fate))
_COLUMNS = (Fate.KILLED, Fate.SURVIVED, Fate.VACUOUS, Fate.UNDECIDED, Fate.ERROR, Fate.WEAKER)


def change(result: MutantResult) -> str:
    """Return what was changed, on one line: `(6): 1 - gamma0 -> 1 + gamma0`."""
    mutation = result.mutation
    after = mutation.after or "(removed)"
    return one_line(f"{mutation.where}: {mutation.before} -> {after}")


def outcome(result: MutantResult) -> str:
    """Return in words what backs a fate up."""
    judged = result.result
    if judged is None:
        return "follows from the claim"
    if result.fate is Fate.KILLED:
        witness = judged.counterexample
        sizes = ", ".join(f"{name} = {size}" for name, size in witness.sizes.items()) if witness is not None else ""
        return f"refuted at {sizes}" if sizes else "refuted"
    if result.fate is Fate.SURVIVED:
        closest = "no margin" if result.closest is None else f"closest relative margin {short_number(result.closest)}"
        return f"holds on {judged.met} of {judged.instances} instances, {closest}"
    return one_line(judged.reason)


def mutant_object(result: MutantResult) -> dict[str, Any]:
    """Return a mutant and its fate as a JSON-safe object."""
    mutation, judged = result.mutation, result.result
    entry: dict[str, Any] = {
        "id": mutation.claim.id,
        "claim": result.parent,
        "rule": mutation.rule,
        "fate": result.fate.value,
        "section": mutation.where.section,
        "formula": mutation.where.name,
        "span": [mutation.where.span.start, mutation.where.span.stop],
        "source": mutation.where.text,
        "before": mutation.before,
        "after": mutation.after,
        "closest": result.closest,
        "outcome": outcome(result),
    }
    if judged is not None:
        for name in ("verdict", "instances", "met", "worst_margin", "seed", "seconds", "reason", "counterexample"):
            entry[name] = getattr(judged, name)
    return json_safe(entry)


def render_mutant(console: Console, result: MutantResult) -> None:
    """Print the line of a mutant; what did not die says why."""
    head: list[Piece] = [(f"{result.fate.ljust(_WIDTH)} ", _STYLES[result.fate]), (result.mutation.claim.id, "bold")]
    say_hanging(console, ["  "], [*head, f"  {change(result)}"])
    if result.fate not in (Fate.KILLED, Fate.WEAKER):
        say(console, (outcome(result), "dim"), indent=2 + _WIDTH + 1)


def render_summary(
    console: Console, results: Sequence[MutantResult], *, seconds: float, interrupted: bool = False
) -> None:
    """Print how many mutants of each claim and of each rule were refuted, what survived, and the score."""
    for title, groups in (("claim", by_claim(results)), ("rule", by_rule(results))):
        console.print()
        for line in _table(title, groups):
            say(console, line, wrap=False)
    left = [result for result in results if result.fate not in (Fate.KILLED, Fate.WEAKER)]
    if left:
        console.print()
        say(console, (f"{len(left)} not refuted:", "bold red"))
        for result in left:
            say(console, f"{result.mutation.claim.id}  {change(result)}; {result.fate}: {outcome(result)}", indent=2)
    console.print()
    say(console, f"{score_text(score(results))} in {short_seconds(seconds)}")
    if interrupted:
        say(console, (_INTERRUPTED, "bold red"))


def score_text(found: Score) -> str:
    """Return a score in words.

    Example:
        >>> score_text(Score({Fate.KILLED: 9, Fate.SURVIVED: 1, Fate.WEAKER: 5}))
        'mutation score 90.0%: 9 of 10 refuted; 5 more follow from their claims'
    """
    weaker = found.counts.get(Fate.WEAKER, 0)
    more = f"; {weaker} more follow from their claims" if weaker else ""
    if found.value is None:
        return f"no mutant was judged{more}"
    return f"mutation score {found.value:.1%}: {found.counts[Fate.KILLED]} of {found.judged} refuted{more}"


def by_claim(results: Iterable[MutantResult]) -> dict[str, Score]:
    """Return the score of each claim, in order."""
    return _grouped(results, lambda result: result.parent)


def by_rule(results: Iterable[MutantResult]) -> dict[str, Score]:
    """Return the score of each rule, in the order of the rules."""
    found = _grouped(results, lambda result: result.mutation.rule)
    return {rule: found[rule] for rule in RULE_MEANINGS if rule in found}


def _grouped(results: Iterable[MutantResult], key: Callable[[MutantResult], str]) -> dict[str, Score]:
    groups: dict[str, list[MutantResult]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return {name: score(group) for name, group in groups.items()}


def _shown_columns(groups: dict[str, Score]) -> list[Fate]:
    always = (Fate.KILLED, Fate.SURVIVED, Fate.WEAKER)
    return [fate for fate in _COLUMNS if fate in always or any(s.counts[fate] for s in groups.values())]


def _percent(found: Score) -> str:
    return "-" if found.value is None else f"{found.value:.0%}"


def _table(title: str, groups: dict[str, Score]) -> Iterator[str]:
    columns = _shown_columns(groups)
    width = max([len(title), *map(len, groups)])
    yield "  ".join([title.ljust(width), *(fate.value for fate in columns), "score"])
    for name, found in groups.items():
        cells = [str(found.counts[fate]).rjust(len(fate)) for fate in columns]
        yield "  ".join([name.ljust(width), *cells, _percent(found).rjust(5)])


def mutants_markdown(results: Sequence[MutantResult], *, title: str, command: str, interrupted: bool = False) -> str:
    """Return a report in Markdown: the score, tables by claim and by rule, every mutant that was not refuted.

    Args:
        results: Every mutant.
        title: What was mutated.
        command: How to get the report again.
        interrupted: Whether there are mutants that were not judged.
    """
    lines = [f"# Mutants of {_cell(title)}", "", f"`{command}`", "", f"{score_text(score(results))}.", ""]
    lines += [f"**{_INTERRUPTED}**", ""] if interrupted else []
    for heading, groups in (("claim", by_claim(results)), ("rule", by_rule(results))):
        columns = _shown_columns(groups)
        lines += [f"| {heading} | {' | '.join(columns)} | score |", f"|---|{'---:|' * (len(columns) + 1)}"]
        for name, found in groups.items():
            meaning = f": {RULE_MEANINGS[name]}" if heading == "rule" else ""
            cells = " | ".join(str(found.counts[fate]) for fate in columns)
            lines.append(f"| {_cell(name)}{meaning} | {cells} | {_percent(found)} |")
        lines.append("")
    left = [result for result in results if result.fate not in (Fate.KILLED, Fate.WEAKER)]
    lines += _listing("Not refuted", left)
    lines += _listing("Weaker by nature: they follow from their claims", [r for r in results if r.fate is Fate.WEAKER])
    return "\n".join(lines).rstrip() + "\n"


def _listing(heading: str, results: Sequence[MutantResult]) -> list[str]:
    if not results:
        return []
    lines = [f"## {heading}", "", "| mutant | change | outcome |", "|---|---|---|"]
    for result in results:
        said = f"{result.fate}: {outcome(result)}" if result.fate is not Fate.WEAKER else outcome(result)
        lines.append(f"| {_cell(result.mutation.claim.id)} | {_cell(change(result))} | {_cell(said)} |")
    return [*lines, ""]


def _cell(text: str) -> str:
    """Return a text that cannot break a table or be read as HTML."""
    text = one_line(text).replace("\\", "\\\\")
    for sign in "|*_[]`":
        text = text.replace(sign, "\\" + sign)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def run_mutate(arguments: argparse.Namespace, console: Console, path: Path) -> int:
    """Judge the mutants of the selected claims of the file at `path`.

    Returns:
        0 where every mutant that is not weaker by nature was refuted, 1 where not, 3 where judging one failed; 2, 4 and
        5 as for `run`.
    """
    selection = selected_claims(arguments, path, console)
    if isinstance(selection, int):
        return selection
    suite, selected = selection
    with ExitStack() as stack:
        try:
            rules = chosen_rules(arguments.rules)
            interruption = stack.enter_context(Interruption())
            out = stack.enter_context(held_folder(arguments.out))
        except (ArgumentError, OSError) as error:
            return refused(console, error)
        return _mutate(arguments, suite, selected, rules, console, out, interruption)


def _mutate(
    arguments: argparse.Namespace,
    suite: Suite,
    selected: Sequence[Claim | IllFormed],
    rules: Sequence[str] | None,
    console: Console,
    out: Path,
    interruption: Interruption,
) -> int:
    claims = [claim for claim in selected if isinstance(claim, Claim) and worth_mutating(claim)]
    if not claims:
        say(
            console,
            "verify-claims: no claim selected that is expected to hold: a mutant of a false claim shows nothing",
        )
        return EXIT_EMPTY
    warn_of_missing_extras(claims, console)
    _announce(console, claims, len(selected) - len(claims), selected)
    torch.set_num_threads(1)
    options = Options(
        seed=arguments.seed,
        instances=arguments.instances,
        usual=60,
        search=arguments.search,
        shrink=arguments.shrink,
        time_limit=arguments.time_limit,
    )
    started = time.perf_counter()
    results: list[MutantResult] = []
    try:
        clear_mutate(out)
        interrupted = _judge_all(claims, arguments.max, rules, options, console, out, results, interruption)
        render_summary(console, results, seconds=time.perf_counter() - started, interrupted=interrupted)
        command = shlex.join(["verify-claims", *sys.argv[1:]])
        text = mutants_markdown(results, title=suite.title or suite.file, command=command, interrupted=interrupted)
        replace_file(out / "mutants.md", text)
    except (ArgumentError, OSError) as error:
        say(console, f"verify-claims: the results cannot be written: {error}")
        return EXIT_USAGE
    for name in ("mutants.jsonl", "mutants.md"):
        say(console, str(out / name))
    return EXIT_INTERRUPTED if interrupted else exit_code(results)


def _judge_all(
    claims: Sequence[Claim],
    most: int | None,
    rules: Sequence[str] | None,
    options: Options,
    console: Console,
    out: Path,
    results: list[MutantResult],
    interruption: Interruption,
) -> bool:
    """Judge the mutants of each claim; print each, write it down and add it to `results` as it comes.

    Returns:
        Whether an interruption cut that short.
    """
    stream = out / "mutants.jsonl"
    stream.touch(exist_ok=False)
    try:
        for claim in claims:
            say(console, (claim.id, "bold"), f"  {claim.title}")
            for result in judge_mutants(claim, options, judge, rules=rules, most=most):
                with interruption.held():
                    append_line(stream, json.dumps(mutant_object(result), ensure_ascii=True, allow_nan=False) + "\n")
                    results.append(result)
                    render_mutant(console, result)
                if interruption.noted:
                    return True
    except KeyboardInterrupt:
        return True
    finally:
        interruption.over()
    return False


def _announce(console: Console, claims: Sequence[Claim], left_out: int, selected: Sequence[Claim | IllFormed]) -> None:
    count = "1 claim" if len(claims) == 1 else f"{len(claims)} claims"
    rest = f"; {left_out} of {len(selected)} left out, as not expected to hold" if left_out else ""
    say(console, (f"mutating {count}{rest}", "dim"))


def chosen_rules(text: str | None) -> list[str] | None:
    """Return the names of rules separated by commas, or None for all.

    Raises:
        ArgumentError: A name is unknown.

    Example:
        >>> chosen_rules("halve, double")
        ['halve', 'double']
    """
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in RULE_MEANINGS:
            near = nearest_name(name, list(RULE_MEANINGS))
            hint = f" Did you mean {near!r}?" if near else ""
            raise ArgumentError(f"`--rules` takes names among {', '.join(RULE_MEANINGS)}. Got {name!r}.{hint}")
    return names


def exit_code(results: Sequence[MutantResult]) -> int:
    """Return the exit code of a run that was not interrupted."""
    fates = {result.fate for result in results}
    if Fate.ERROR in fates:
        return EXIT_INTERNAL
    return EXIT_OK if fates <= {Fate.KILLED, Fate.WEAKER} else EXIT_UNEXPECTED
