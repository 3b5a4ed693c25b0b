"""The command `verify-claims replay`: judge a recorded counterexample again."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rich.console import Console

from ntk_deq.claims.claim import Claim, IllFormed
from ntk_deq.claims.load import load_suite
from ntk_deq.cli import EXIT_OK, EXIT_UNEXPECTED, EXIT_USAGE
from ntk_deq.errors import ClaimFileError, NtkDeqError, shortened
from ntk_deq.files.problems import did_you_mean
from ntk_deq.report.check import render_problem, render_problems
from ntk_deq.report.replay import render_comparison, render_replay
from ntk_deq.verify.replay import compare, read_counterexample, replay
from ntk_deq.verify.replay.record import Record


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
    except RecursionError:
        _say(console, "the definitions of the claim rest on each other too deeply to be evaluated")
    except (NtkDeqError, OSError, MemoryError) as error:
        _say(console, str(error) or "the instance does not fit into memory")
    return EXIT_USAGE


def _compare(arguments: argparse.Namespace, record: Record, console: Console, deadline: float) -> int:
    suite = load_suite(arguments.file, allow_data=[Path(p) for p in arguments.data])
    now = next((claim for claim in suite.claims if claim.id == record.claim.id), None)
    if isinstance(now, IllFormed):
        for problem in now.problems:
            render_problem(console, problem)
        return EXIT_USAGE
    if not isinstance(now, Claim):
        hint = did_you_mean(record.claim.id, [claim.id for claim in suite.claims])
        _say(console, f"{arguments.file} has no claim {record.claim.id}{f'; {hint}' if hint else ''}")
        return EXIT_USAGE
    comparison = compare(record, now, deadline=deadline)
    render_comparison(console, comparison, arguments.file, record.claim.id)
    return EXIT_UNEXPECTED if comparison.changes else EXIT_OK


def _say(console: Console, message: str) -> None:
    console.print(f"verify-claims: {shortened(message)}", markup=False, highlight=False)
