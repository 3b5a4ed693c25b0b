"""The command `verify-claims`.

The console that everything is printed on.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ntk_deq.cli import EXIT_OK, EXIT_USAGE, run_process
from ntk_deq.cli.arguments import parse_arguments

if TYPE_CHECKING:
    from ntk_deq.claims.claim import Claim, IllFormed


def run() -> None:
    """Run the command line of this process and exit with its code."""
    run_process("verify-claims", main)


def main(argv: Sequence[str]) -> int:
    """Run `verify-claims` with the given words; return its exit code (`verify-claims --help` lists them)."""
    arguments = parse_arguments(argv)
    if arguments.command == "schema":
        return _schema(arguments)
    console = Output()
    if arguments.command == "check":
        return _check(arguments, console)
    if arguments.command == "replay":
        from ntk_deq.cli.replay import run_replay

        return run_replay(arguments, console)
    if arguments.command == "mutate":
        from ntk_deq.cli.mutate import run_mutate

        return run_mutate(arguments, console, suite_path(arguments))
    return _run(arguments, console)


def suite_path(arguments: argparse.Namespace) -> Path:
    """Return the claim file that the command line names."""
    if not arguments.papers:
        return Path(arguments.file)
    carried = Path(__file__).parent.parent / "suite" / "paper_claims.yaml"
    # In a checkout installed with `pip install -e`, the suite lies at the top of the repository.
    return carried if carried.exists() else Path(__file__).parent.parent.parent / "paper_claims.yaml"


def _schema(arguments: argparse.Namespace) -> int:
    import json

    from ntk_deq.claims.validate import claim_file_schema

    text = json.dumps(claim_file_schema(), indent=2, ensure_ascii=False) + "\n"
    if arguments.output is None:
        try:
            text.encode(sys.stdout.encoding)
        except UnicodeEncodeError:
            text = json.dumps(claim_file_schema(), indent=2) + "\n"
        sys.stdout.write(text)
        return EXIT_OK
    try:
        Path(arguments.output).write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"verify-claims: cannot write {arguments.output}: {error.strerror}", file=sys.stderr)
        return EXIT_USAGE
    return EXIT_OK


def _check(arguments: argparse.Namespace, console: Console) -> int:
    from ntk_deq.claims.claim import IllFormed, Verdict
    from ntk_deq.cli.select import selected_claims
    from ntk_deq.report.check import render_check

    # Trees hold no circles, and looking for some among so many nodes takes a tenth of the time.
    gc.disable()
    try:
        selected = selected_claims(arguments, suite_path(arguments), console)
        if isinstance(selected, int):
            return selected
        suite, claims = selected
        render_check(console, suite, claims)
    finally:
        gc.enable()
    bad = [c for c in claims if isinstance(c, IllFormed) and c.expect is not Verdict.ILL_FORMED]
    return EXIT_USAGE if bad else EXIT_OK


def _run(arguments: argparse.Namespace, console: Console) -> int:
    from ntk_deq.cli.select import selected_claims

    selected = selected_claims(arguments, suite_path(arguments), console)
    if isinstance(selected, int):
        return selected
    suite, claims = selected
    if arguments.list:
        _list(claims, console)
        return EXIT_OK
    # NumPy's own threads, which are counted when it is first imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(arguments.threads))
    from ntk_deq.cli.session import run_session

    return run_session(arguments, suite, claims, console)


def _list(claims: Sequence[Claim | IllFormed], console: Console) -> None:
    from ntk_deq.report.console import one_line, say_line

    for claim in claims:
        tags = f"[{', '.join(claim.tags)}]" if claim.tags else ""
        say_line(console, "  ".join(filter(None, map(one_line, (claim.id, claim.title, tags)))))


_LENGTH = re.compile(r"0*[1-9][0-9]{0,4}")  # of a line or a screen


class Output(Console):
    """A console as wide as the terminal, or as COLUMNS says where that is a width: with 0 nothing would be shown."""

    def __init__(self) -> None:
        lengths = ("COLUMNS", "LINES")
        kept = {name: value for name, value in os.environ.items() if name not in lengths or _LENGTH.fullmatch(value)}
        super().__init__(_environ=kept)
