"""The command line of `verify-claims`, as argparse sees it. Imports nothing heavy: `--help` must be quick."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable, Collection, Sequence

from ntk_deq.errors import nearest_name, shortened
from ntk_deq.package import __version__

COMMANDS = ("run", "check", "replay", "mutate", "schema")

_NO_COMMANDS = {
    "list": "verify-claims FILE --list",
    "help": "verify-claims --help",
    "version": "verify-claims --version",
    "verify": "verify-claims FILE",
}

_MOST = 10_000_000  # as for `instances` in a claim file
_LEAST_MEMORY = 10_000_000

_DESCRIPTION = """\
Judge the claims of a claim file: draw instances, check hypotheses, measure margins, give verdicts.

  verify-claims FILE            judge every claim of FILE (the same as `verify-claims run FILE`)
  verify-claims check FILE      validate FILE and print each formula with its shapes; runs nothing
  verify-claims replay INSTANCE [FILE]
                                judge a recorded counterexample again, and compare it with the claim in FILE
  verify-claims mutate FILE     judge mutants of the claims of FILE: each ought to be refuted
  verify-claims schema          print the JSON Schema of claim files, for an editor
"""

_EPILOG = """\
exit codes:
  0  every claim as expected
  1  some verdict against expectation
  2  interrupted by Ctrl-C, SIGTERM or SIGHUP (results so far are kept and marked)
  3  an internal error on some claim (its trace is in the report)
  4  a usage or claim-file error
  5  no claim selected
  6  nothing wrong, but something vacuous or undecided that was expected to hold or to be proved
"""

SELECTION_HELP = (
    "select claims, with and, or, not and parentheses: R.T4.2 is that claim alone, 'R.T4.2*' is matched against whole "
    "ids and tags, and a word that is no id is looked for in them"
)

_REPLAY_EPILOG = """\
exit codes:
  0  the instance refutes again, with the recorded margin, and the claim in FILE, if given, states the same
  1  it does not, or the claim states something else
  4  a file that cannot be used, or the time limit ran out
"""


class UsageParser(argparse.ArgumentParser):
    """A parser whose errors exit with 4, the code of a usage error; one of a command is `parser` in what it reads."""

    def error(self, message: str) -> None:  # type: ignore[override]
        """Say what is wrong, and exit."""
        self.print_usage()
        self.exit(4, f"{self.prog}: {shortened(message)}\n")

    def refuse(self, words: Sequence[str]) -> None:
        """Say which words are not understood, and for the first one which option is spelt like it; exit."""
        name = words[0].partition("=")[0]
        near = nearest_name(name, self._option_string_actions) if name.startswith("--") else None
        hint = f"; did you mean {near}?" if near else ""
        self.error(f"unrecognized arguments: {' '.join(words)}{hint}")


def build_parser() -> UsageParser:
    """Return the parser; the command comes first and defaults to `run`."""
    parser = UsageParser(
        prog="verify-claims",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ntk_deq {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="{" + ",".join(COMMANDS) + "}", parser_class=UsageParser)
    _add_run(commands.add_parser("run", help="judge the claims of a file", add_help=True))
    check = commands.add_parser("check", help="validate a claim file and print its formulas with their shapes")
    _add_file(check)
    _add_selection(check)
    _add_replay(
        commands.add_parser(
            "replay",
            help="judge a recorded counterexample again",
            epilog=_REPLAY_EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    _add_mutate(commands.add_parser("mutate", help="judge mutants of the claims of a file"))
    schema = commands.add_parser("schema", help="print the JSON Schema of claim files")
    schema.add_argument("--output", metavar="FILE", help="write it to FILE instead of standard output")
    for own in commands.choices.values():
        own.set_defaults(parser=own)
    return parser


def _add_data(parser: argparse.ArgumentParser, reader: str) -> None:
    parser.add_argument(
        "--data",
        type=_existing,
        metavar="PATH",
        action="append",
        default=[],
        help=f"a data file or folder that {reader} may read",
    )


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", help="a claim file (YAML)")
    parser.add_argument("--papers", action="store_true", help="use the suite of the papers that the package carries")
    _add_data(parser, "the claim file")


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-k",
        dest="select",
        metavar="EXPR",
        help=SELECTION_HELP,
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    cores = os.cpu_count() or 1
    _add_file(parser)
    _add_selection(parser)
    parser.add_argument("--list", action="store_true", help="list the selected claims and stop")
    parser.add_argument("--seed", type=_natural, default=0, help="seed of every draw (default 0)")
    parser.add_argument(
        "--instances",
        type=_positive,
        help="instances a claim and domain (default 200; 24 of a claim on training, 6 where its data are drawn)",
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default cpu)")
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64", help="default float64")
    parser.add_argument(
        "--precision",
        type=_whole(53, 4096, "from 53 to 4096"),
        default=128,
        metavar="BITS",
        help="judge undecided small instances again with BITS bits, 53 to 4096; 53 means not (default 128)",
    )
    parser.add_argument(
        "--threads",
        type=_whole(1, cores, f"from 1 to {cores}, the processors here"),
        default=1,
        help="threads of one matrix product (default 1: instances are small)",
    )
    parser.add_argument(
        "-j",
        "--jobs",
        type=_positive,
        metavar="N",
        help="claims judged at once, each in a process of its own (default: as many as there are cores; 1 with CUDA); "
        "the results are the same whatever N",
    )
    parser.add_argument(
        "--time-limit",
        type=_seconds,
        default=600.0,
        metavar="S",
        help="seconds of processor time a claim (default 600); one that runs over it is undecided unless refuted",
    )
    parser.add_argument(
        "--memory",
        type=_bytes,
        metavar="SIZE",
        help="memory that judging a claim may take, such as 500M or 4G (default: its share of what is free); "
        "one that needs more is undecided unless refuted",
    )
    parser.add_argument(
        "--findings",
        action="store_true",
        help="say which hypotheses matter and which bounds have room, where a claim holds (a run a hypothesis more)",
    )
    parser.add_argument(
        "--search",
        type=_natural,
        metavar="N",
        help="how long to search for a counterexample, a claim and domain, in instances looked at one by one; many "
        "small ones together cost little; 0: none (default: about a second, counted so that runs can be repeated)",
    )
    parser.add_argument(
        "--satisfy", action="store_true", help="where no instance meets the hypotheses, search for one that does"
    )
    parser.add_argument(
        "--smallest",
        type=listed("names of sizes or scalars"),
        metavar="NAME[,NAME]",
        default=(),
        help="find the smallest width or scale, say m or beta, at which the hypotheses of each claim are met",
    )
    parser.add_argument(
        "--store",
        type=_folder,
        metavar="DIR",
        default=".ntk_deq",
        help="where counterexamples are kept for later runs (.ntk_deq/)",
    )
    parser.add_argument(
        "--no-store", dest="store", action="store_const", const=None, help="keep none, and try none of earlier runs"
    )
    parser.add_argument("-x", dest="stop_early", action="store_true", help="stop at the first unexpected verdict")
    parser.add_argument(
        "--allow",
        type=listed("among vacuous, undecided", ("vacuous", "undecided")),
        default=(),
        metavar="V[,V]",
        help="verdicts that are no failure though unexpected: vacuous, undecided",
    )
    parser.add_argument(
        "--out", type=_folder, metavar="DIR", default="results", help="where results go (default results/)"
    )
    parser.add_argument("--dask", metavar="ADDRESS", help="judge on a Dask cluster (extra `dask`)")


def _add_replay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("instance", metavar="INSTANCE", help="a counterexample that a run has written (YAML)")
    parser.add_argument("file", metavar="FILE", nargs="?", help="a claim file: does its claim still state the same?")
    _add_data(parser, "FILE")
    parser.add_argument(
        "--time-limit", type=_seconds, default=600.0, metavar="S", help="seconds that it may take (default 600)"
    )


def _add_mutate(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    _add_selection(parser)
    parser.add_argument(
        "--rules", metavar="R[,R]", help="rules to make mutants by, such as halve,flip,hypothesis (default all)"
    )
    parser.add_argument("--max", type=_positive, metavar="N", help="mutants judged a claim at most (default all)")
    parser.add_argument("--seed", type=_natural, default=0, help="seed of every draw (default 0)")
    parser.add_argument(
        "--instances",
        type=_positive,
        help="instances a mutant and domain (default 60; 24 of a claim on training, 6 where its data are drawn)",
    )
    parser.add_argument(
        "--search",
        type=_natural,
        metavar="N",
        help="how long to search for a counterexample, a mutant and domain; 0: none (default: as `run`)",
    )
    parser.add_argument(
        "--shrink",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="look for the plainest counterexample of each mutant; else the first one ends its judgement (default)",
    )
    parser.add_argument("--time-limit", type=_seconds, default=60.0, metavar="S", help="seconds a mutant (default 60)")
    parser.add_argument(
        "--out", type=_folder, metavar="DIR", default="results", help="where results go (default results/)"
    )


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; a first word that is no command is the file of `run`."""
    words = list(argv)
    parser = build_parser()
    if words and words[0] not in COMMANDS and words[0] not in ("-h", "--help", "--version"):
        _check_command(parser, words[0])
        words.insert(0, "run")
    if not words:
        parser.print_help()
        parser.exit(4)
    arguments, left = parser.parse_known_args(words)
    if arguments.command == "replay" and arguments.file is None and len(left) == 1 and not left[0].startswith("-"):
        arguments.file, left = left[0], []  # FILE after an option: argparse takes both words in one place only
    if left:
        arguments.parser.refuse(left)
    if arguments.command in ("run", "check", "mutate") and bool(arguments.file) == arguments.papers:
        parser.error("give a claim FILE, or --papers for the suite that the package carries (one of the two)")
    return arguments


def _check_command(parser: UsageParser, word: str) -> None:
    """Refuse a first word that is no file and is spelt like a command, or like an option that is taken for one."""
    near = nearest_name(word, (*COMMANDS, *_NO_COMMANDS)) if word.isalpha() and not os.path.exists(word) else None
    if near is not None:
        meant = _NO_COMMANDS.get(near, f"verify-claims {near}")
        parser.error(f"there is no command and no file {word!r}; did you mean `{meant}`?")


def _whole(least: int, most: float, allowed: str) -> Callable[[str], int]:
    """Return what reads a whole number between two limits, which are told as `allowed` where it is another one."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number. Got {text!r}.") from None
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"must be a whole number {allowed}. Got {text}.")
        return number

    return read


_natural = _whole(0, math.inf, ">= 0")
_positive = _whole(1, _MOST, f"from 1 to {_MOST:,}")


def listed(allowed: str, among: Collection[str] = ()) -> Callable[[str], tuple[str, ...]]:
    """Return what reads words separated by commas, each once; where there are any, they are among those given."""

    def read(text: str) -> tuple[str, ...]:
        words = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not words or (among and not set(words) <= set(among)):
            raise argparse.ArgumentTypeError(f"must be {allowed}, separated by commas. Got {text!r}.")
        return words

    return read


def _existing(text: str) -> str:
    if not text or not os.path.exists(text):
        raise argparse.ArgumentTypeError(f"there is no file or folder {text[:200]!r}.")
    return text


def _folder(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("must be the name of a folder. Got nothing.")
    return text


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds > 0. Got {text!r}.")
    return number


def _bytes(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)([MGT])B?", text.strip())
    size = 0 if match is None else int(float(match[1]) * {"M": 1e6, "G": 1e9, "T": 1e12}[match[2]])
    if size < _LEAST_MEMORY:
        raise argparse.ArgumentTypeError(f"must be a size of at least 10M, such as 500M or 4G. Got {text!r}.")
    return size
