"""Load a claim file and select from it; every way of failing is said and becomes an exit code."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ntk_deq.claims.claim import Claim, IllFormed, Setting, Suite
from ntk_deq.claims.errors import ClaimFileError
from ntk_deq.claims.load import load_suite
from ntk_deq.cli.exit_codes import EXIT_EMPTY, EXIT_USAGE
from ntk_deq.cli.select import select_claims
from ntk_deq.errors import ArgumentError, shortened
from ntk_deq.extras import PACKAGES, install_line, is_installed
from ntk_deq.report.console import say
from ntk_deq.report.terminal import render_problems

_NAMED = 10  # claims that a warning names


def warn_of_missing_extras(claims: Sequence[Claim | IllFormed], console: Console) -> None:
    """Say once, before claims are judged, which of them want a package that is not there, and what installs it.

    Args:
        claims: The claims to be judged.
        console: Where it is said.
    """
    if is_installed("mnist"):
        return
    wanting = [claim.id for claim in claims if isinstance(claim, Claim) and any(map(_has_digits, claim.settings))]
    if not wanting:
        return
    named = ", ".join(wanting[:_NAMED]) + (f" and {len(wanting) - _NAMED} more" if len(wanting) > _NAMED else "")
    count, verb = ("1 claim", "needs") if len(wanting) == 1 else (f"{len(wanting)} claims", "need")
    why = f"{count} {verb} the digits of {PACKAGES['mnist']}, which is not installed, and may stay undecided"
    say(console, (f"{why}: {named}", "yellow"))
    # Not broken at the width, so that it can be copied.
    console.print(f"install it with: {install_line('mnist')}", markup=False, highlight=False, soft_wrap=True)


def _has_digits(setting: Setting) -> bool:
    return setting.images is not None and setting.images.source == "mnist"


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
        console.print(f"verify-claims: {shortened(str(error))}", markup=False, highlight=False)
        return EXIT_USAGE
    if not claims:
        console.print("verify-claims: no claim selected", markup=False)
        return EXIT_EMPTY
    return suite, claims
