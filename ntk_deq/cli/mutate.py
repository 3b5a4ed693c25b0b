"""The command `verify-claims mutate`: judge mutants of claims, and say which of them the checker lets live."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import torch
from rich.console import Console

from ntk_deq.claims.claim import Claim, IllFormed, Suite
from ntk_deq.claims.mutation import RULE_MEANINGS
from ntk_deq.cli import EXIT_EMPTY, EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_OK, EXIT_UNEXPECTED, EXIT_USAGE
from ntk_deq.cli.process import Interruption
from ntk_deq.cli.select import selected_claims, warn_of_missing_extras
from ntk_deq.cli.session import clear_mutate, held_folder
from ntk_deq.errors import ArgumentError, nearest_name, shortened
from ntk_deq.files.atomic import append_line, replace_file
from ntk_deq.report.console import say
from ntk_deq.report.mutants import mutant_object, mutants_markdown, render_mutant, render_summary
from ntk_deq.verify.mutation import Fate, MutantResult, judge_mutants, worth_mutating
from ntk_deq.verify.runner import Options


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
            say(console, f"verify-claims: {shortened(str(error))}")
            return EXIT_USAGE
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
            for result in judge_mutants(claim, options, rules=rules, most=most):
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
