"""The command `convergence-figures`: draw the training runs that `verify-claims` has stored."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ntk_deq.cli import EXIT_EMPTY, EXIT_OK, EXIT_USAGE, run_process
from ntk_deq.cli.arguments import SELECTION_HELP, UsageParser, listed
from ntk_deq.cli.select import compile_selection
from ntk_deq.errors import NtkDeqError
from ntk_deq.package import __version__

if TYPE_CHECKING:
    from ntk_deq.report.jsonl import StoredRuns
    from ntk_deq.verify.results import TrainingRecord

NAME = "convergence-figures"
FOLDER = "figures"
"""Name of the folder beside the results that gets the figures, where nobody says which."""

DRAWN_BY = f"ntk_deq {NAME}"
"""What the files of figures say of where they come from."""

_LEAST_POINTS = 2  # judged steps that make a curve

_DESCRIPTION = """\
Draw the training runs that `verify-claims` has stored: one figure a run, with the loss against the bound of the theorem
and the other quantities as shares of their bounds, and an overview of predicted against measured rates. It draws what
the results hold and computes nothing again; the same results give the same files.
"""

_EPILOG = """\
exit codes:
  0  every selected run is drawn
  2  interrupted
  4  a usage error, or results that cannot be read in full (what can be read is drawn)
  5  no training run stored, or none selected
"""


def run() -> None:
    """Run the command line of this process and exit with its code."""
    run_process(NAME, main)


def main(argv: Sequence[str]) -> int:
    """Run `convergence-figures` with the given words; return its exit code (`--help` lists them)."""
    parser = _parser()
    arguments, left = parser.parse_known_args(argv)
    if left:
        parser.refuse(left)
    try:
        return _draw(arguments)
    except (NtkDeqError, OSError) as error:
        return _complain(error, EXIT_USAGE)


def _parser() -> UsageParser:
    parser = UsageParser(
        prog=NAME, description=_DESCRIPTION, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"ntk_deq {__version__}")
    parser.add_argument(
        "results",
        metavar="RESULTS",
        nargs="?",
        default="results",
        help="the folder that a run wrote, or its results.jsonl (default results/)",
    )
    parser.add_argument(
        "-k",
        dest="select",
        metavar="EXPR",
        help=SELECTION_HELP,
    )
    parser.add_argument(
        "--format",
        dest="formats",
        type=lambda text: listed("among pdf, png, svg", ("pdf", "png", "svg"))(text.lower()),
        default=("pdf", "png"),
        metavar="F[,F]",
        help="among pdf, png, svg, separated by commas (default pdf,png)",
    )
    parser.add_argument("--out", metavar="DIR", help="where the figures go (default figures/ beside the results)")
    return parser


def _draw(arguments: argparse.Namespace) -> int:
    from ntk_deq.report.jsonl import stored_runs

    claims, errors = stored_runs(arguments.results)
    selected = None
    if arguments.select is not None:
        selected = compile_selection(arguments.select, [claim.id for claim in claims])
    for error in errors:
        _complain(error, EXIT_USAGE)
    chosen = [claim for claim in claims if selected is None or selected(claim)]
    if not chosen:
        if claims:
            said = f"`-k` selects none of the {_counted(len(claims), 'claim')} with training runs"
        else:
            said = f"no training run is stored in {arguments.results}"
        return _complain(said, EXIT_USAGE if errors else EXIT_EMPTY)
    results = Path(arguments.results)
    beside = results if results.is_dir() else results.parent
    _draw_all(chosen, Path(arguments.out) if arguments.out is not None else None, beside, arguments.formats)
    return EXIT_USAGE if errors else EXIT_OK


def _draw_all(claims: Sequence[StoredRuns], chosen: Path | None, beside: Path, formats: Sequence[str]) -> None:
    from ntk_deq.files import out_folder, own_folder
    from ntk_deq.plots import has_rate, rates_figure, run_figure, save_figure
    from ntk_deq.plots.panels import holds_steps
    from ntk_deq.plots.style import paper_style

    with paper_style():  # a missing matplotlib is said before a folder is made
        if chosen is None:
            out = own_folder(beside / FOLDER)
        else:
            out = out_folder(chosen)
    drawn = short = far = 0
    for stem, claim, record in _stems(claims):
        if len(record.at) < _LEAST_POINTS:
            short += 1
            continue
        if not holds_steps(record.at):
            far += 1
            continue
        figure = run_figure(record, claim=claim.id, title=claim.title)
        _say(save_figure(figure, out / stem, formats, creator=DRAWN_BY))
        drawn += 1
    rows = [(_row_name(claim, record), record) for claim in claims for record in claim.records if has_rate(record)]
    if len(rows) > 1:
        _say(save_figure(rates_figure(rows), out / "rates", formats, creator=DRAWN_BY))
    said = [f"{_counted(drawn, 'run')} drawn"]
    if short:
        said.append(f"{_counted(short, 'run')} that ended at the start left out")
    if far:
        said.append(f"{_counted(far, 'run')} at steps or times that no axis holds left out")
    print("; ".join(said))


def _stems(claims: Sequence[StoredRuns]) -> Iterator[tuple[str, StoredRuns, TrainingRecord]]:
    """Yield each run with the name of its files, unique also where upper and lower case are one."""
    from ntk_deq.plots import file_stem

    taken: set[str] = set()
    for claim in claims:
        for record in claim.records:
            base = file_stem(claim.id, record.setting, str(record.index), record.role)
            stem, number = base, 2
            while stem.casefold() in taken:
                stem, number = f"{base}-{number}", number + 1
            taken.add(stem.casefold())
            yield stem, claim, record


def _row_name(claim: StoredRuns, record: TrainingRecord) -> str:
    role = "" if record.role == "run" else f", {record.role}"
    return f"{claim.id}, {record.setting} {record.index}{role}"


def _say(files: Sequence[Path]) -> None:
    print("  ".join(map(str, files)))


def _counted(number: int, word: str) -> str:
    return f"1 {word}" if number == 1 else f"{number} {word}s"


def _complain(what: object, code: int) -> int:
    from ntk_deq.report.console import printable

    print(printable(f"{NAME}: {what}"), file=sys.stderr)
    return code
