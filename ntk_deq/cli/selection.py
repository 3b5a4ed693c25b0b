"""Load a claim file and select from it; every way of failing is said and becomes an exit code."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from ntk_deq.claims.claim import Claim, IllFormed, Suite
from ntk_deq.claims.errors import ClaimFileError
from ntk_deq.claims.load import load_suite
from ntk_deq.cli.exit_codes import EXIT_EMPTY, EXIT_USAGE
from ntk_deq.cli.select import select_claims
from ntk_deq.errors import ArgumentError
from ntk_deq.report.terminal import render_problems


def selected_claims(
    arguments: argparse.Namespace, path: Path, console: Console
) -> tuple[Suite, list[Claim | IllFormed]] | int:
    """Return the suite in `path` and the claims that `-k` selects, or the exit code where that cannot be.

    Args:
        arguments: The command line; `data` and `select` are read.
        path: The claim file.
        console: Where problems are said.
    """
    try:
        suite = load_suite(path, allow_data=[Path(p) for p in arguments.data])
        claims = select_claims(suite.claims, arguments.select)
    except ClaimFileError as error:
        render_problems(console, error.problems)
        return EXIT_USAGE
    except ArgumentError as error:
        console.print(f"verify-claims: {error}", markup=False, highlight=False)
        return EXIT_USAGE
    if not claims:
        console.print("verify-claims: no claim selected", markup=False)
        return EXIT_EMPTY
    return suite, claims
