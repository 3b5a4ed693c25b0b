"""Judge the selected claims of a suite and write everything down as it comes, in a folder of results.

The folder is held so that no second run writes there, and cleared of what earlier runs wrote. What is removed shows by
its first bytes that this tool wrote it. Anything else in the place of a file that will be written is left alone and
refused before anything is judged: a file of somebody else, a folder, a link.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import errno
import os
import platform
import re
import shlex
import sys
import time
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from rich.console import Console

from ntk_deq.claims.claim import Claim, IllFormed, Suite, Verdict
from ntk_deq.cli import (
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_OPEN,
    EXIT_UNEXPECTED,
    EXIT_USAGE,
    Interruption,
    refused,
)
from ntk_deq.cli.figures import DRAWN_BY
from ntk_deq.cli.figures import FOLDER as FIGURES
from ntk_deq.cli.select import warn_of_missing_extras
from ntk_deq.errors import ArgumentError, DataError
from ntk_deq.files import is_partial, out_folder
from ntk_deq.package import versions
from ntk_deq.report.html import write_html
from ntk_deq.report.jsonl import append_result, read_results, write_run_info
from ntk_deq.report.junit import write_junit
from ntk_deq.report.terminal import TerminalReport
from ntk_deq.verify.options import Options
from ntk_deq.verify.pool import judge_in_workers
from ntk_deq.verify.pool.worker import default_memory
from ntk_deq.verify.replay import FOLDER as COUNTEREXAMPLES
from ntk_deq.verify.replay.values import ARCHIVE_MARK
from ntk_deq.verify.results import ClaimResult, RunInfo
from ntk_deq.verify.smallest import check_names

try:
    import fcntl
except ImportError:  # a system without this kind of lock, such as Windows: two runs are not told apart there
    fcntl = None  # type: ignore[assignment]

RUN_FILES = ("results.jsonl", "junit.xml", "report.html", "run.json")
MUTATE_FILES = ("mutants.jsonl", "mutants.md")

_MARKS = {
    "results.jsonl": b'{"id": ',
    "junit.xml": b'<property name="version.ntk_deq"',
    "report.html": b'content="ntk_deq verify-claims"',
    "run.json": b'{\n  "suite": ',
    "mutants.jsonl": b'{"id": ',
    "mutants.md": b"# Mutants of ",
}
_HEAD = 2**16  # bytes of a file that are looked at; what comes before a mark is a few lines
_ENDINGS = (".pdf", ".png", ".svg")

_TAKEN = (errno.EWOULDBLOCK, errno.EACCES)


@contextmanager
def held_folder(name: str) -> Iterator[Path]:
    """Hold a results folder until the block ends; a run that is killed lets go of it too.

    Args:
        name: The folder.

    Raises:
        ArgumentError: Another run holds it, or it cannot be made.
    """
    folder = out_folder(Path(name))
    if fcntl is None:
        yield folder
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            os.close(handle)
            raise ArgumentError(
                f"another run is writing to {name}; wait for it, or give another folder by `--out`."
            ) from None
        # A network file system may know no locks: two runs are not told apart there either.
    try:
        yield folder
    finally:
        os.close(handle)


def clear_run(folder: Path) -> None:
    """Remove what an earlier `run` and `convergence-figures` after it left in a results folder.

    Raises:
        ArgumentError: Something that is not ours is in the way; nothing is removed then.
        OSError: A file cannot be removed, or the folder not be written to.
    """
    found = [*_in_the_way(folder, RUN_FILES), *_figures(folder / FIGURES)]
    kept = folder / COUNTEREXAMPLES
    if kept.is_symlink() or (kept.exists() and not kept.is_dir()):
        raise _refused(kept, "a link" if kept.is_symlink() else "no folder")
    if kept.is_dir() and not os.access(kept, os.W_OK | os.X_OK):
        raise _refused(kept, "a folder that cannot be written to")
    for path in (*found, *_counterexamples(kept)):
        path.unlink()
    _tidy(folder, kept, folder / FIGURES)


def drop_unmentioned(folder: Path, mentioned: Collection[str]) -> None:
    """Remove the counterexamples of a run that none of its results names.

    They are of claims that were judged out of turn when the run stopped, or whose worker was ended after writing.

    Args:
        folder: The results folder; no worker of the run writes there any more.
        mentioned: The counterexamples' files that results name.

    Raises:
        OSError: A file cannot be removed.
    """
    kept, names = folder / COUNTEREXAMPLES, {Path(file).stem for file in mentioned}
    for path in _counterexamples(kept):
        if path.stem not in names:
            path.unlink()
    _tidy(folder, kept)


def clear_mutate(folder: Path) -> None:
    """Remove what an earlier `mutate` left in a results folder; as `clear_run`."""
    for path in _in_the_way(folder, MUTATE_FILES):
        path.unlink()
    _tidy(folder)


def _in_the_way(folder: Path, names: Sequence[str]) -> list[Path]:
    """Return the files of earlier runs in the place of those that will be written.

    Raises:
        ArgumentError: There is something else.
    """
    found = []
    for path in (folder / name for name in names):
        if path.is_symlink():
            raise _refused(path, "a link")
        if path.exists():
            if not path.is_file():
                raise _refused(path, "a folder" if path.is_dir() else "no file")
            if not _marked(path, _MARKS[path.name]):
                raise _refused(path, "a file that this command did not write")
            found.append(path)
    return found


def _refused(path: Path, what: str) -> ArgumentError:
    return ArgumentError(f"{path} is in the way: it is {what}. Move it, or give another folder by `--out`.")


def _marked(path: Path, mark: bytes) -> bool:
    """Whether a file is empty, or has a mark among its first or last bytes (in a PDF they are the last)."""
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
        if not head or mark in head:
            return True
        stream.seek(0, os.SEEK_END)
        stream.seek(max(stream.tell() - _HEAD, 0))
        return mark in stream.read(_HEAD)


def _own_files(folder: Path, endings: Sequence[str]) -> list[Path]:
    if folder.is_symlink() or not folder.is_dir():
        return []
    return [p for p in sorted(folder.iterdir()) if p.suffix in endings and p.is_file() and not p.is_symlink()]


def _figures(folder: Path) -> list[Path]:
    return [path for path in _own_files(folder, _ENDINGS) if _marked(path, DRAWN_BY.encode())]


def _counterexamples(folder: Path) -> list[Path]:
    """Return the files of counterexamples, and the archives: beside one, or left alone by a worker that was killed."""
    files = [path for path in _own_files(folder, (".yaml",)) if _marked(path, b"# A counterexample of ")]
    stems = {path.stem for path in files}
    archives = _own_files(folder, (".npz",))
    return files + [path for path in archives if path.stem in stems or _marked(path, ARCHIVE_MARK)]


def _tidy(folder: Path, *below: Path) -> None:
    """Remove what killed runs left half-written, and folders that are empty now."""
    for place in (folder, *below):
        if place.is_symlink() or not place.is_dir():
            continue
        for path in filter(is_partial, place.iterdir()):
            path.unlink(missing_ok=True)
        if place != folder and not any(place.iterdir()):
            place.rmdir()


def run_session(
    arguments: argparse.Namespace, suite: Suite, claims: Sequence[Claim | IllFormed], console: Console
) -> int:
    """Judge `claims`, print them as they end, write the files of the results folder; return the exit code."""
    with ExitStack() as stack:
        interruption = stack.enter_context(Interruption())
        try:
            out = stack.enter_context(held_folder(arguments.out))
        except (OSError, ArgumentError) as error:
            return refused(console, error)
        return _session(arguments, suite, claims, console, out, interruption)


def _session(
    arguments: argparse.Namespace,
    suite: Suite,
    claims: Sequence[Claim | IllFormed],
    console: Console,
    out: Path,
    interruption: Interruption,
) -> int:
    try:
        options = _options(arguments)
        check_names(claims, options.smallest)
        stream = out / "results.jsonl"
        costs = _earlier_seconds(stream) if stream.is_file() and not stream.is_symlink() else {}
        report = TerminalReport(console, total=len(claims), id_width=max(len(c.id) for c in claims))
        judged = _results(arguments, claims, options, report, costs)
        clear_run(out)
        stream.touch(exist_ok=False)
    except (OSError, RuntimeError, ValueError) as error:
        return refused(console, error)
    warn_of_missing_extras(claims, console)
    results: list[ClaimResult] = []
    started = time.perf_counter()
    stamp = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    report.start()
    try:
        try:
            interrupted = _write_down(judged, stream, results, interruption)
        finally:
            judged.close()  # no worker is left then, and none writes
            report.stop()
            drop_unmentioned(out, [result.replay for result in results if result.replay is not None])
    except OSError as error:
        return refused(console, f"the results cannot be written: {error}")
    info = RunInfo(
        suite=suite.file,
        title=suite.title,
        command=shlex.join(["verify-claims", *sys.argv[1:]]),
        started=stamp,
        seconds=time.perf_counter() - started,
        seed=options.seed,
        versions=versions(),
        device=device_name(options.device),
        dtype=arguments.dtype,
        interrupted=interrupted,
    )
    paths = {"results": stream, "junit": out / "junit.xml", "report": out / "report.html"}
    code = EXIT_INTERRUPTED if interrupted else exit_code(results, arguments.allow)
    try:
        write_junit(paths["junit"], results, info)
        write_html(paths["report"], results, info)
        write_run_info(out / "run.json", info, results, exit_code=code)  # last: where it is, the others are whole
    except OSError as error:
        return refused(console, f"the results cannot be written: {error}")
    report.summary(results, info, paths, code)
    return code


def _write_down(
    judged: Generator[ClaimResult, None, None], stream: Path, results: list[ClaimResult], interruption: Interruption
) -> bool:
    """Append each result to the file and to `results` as it comes; return whether an interruption cut that short."""

    def write(result: ClaimResult) -> None:
        with interruption.held():
            append_result(stream, result)
            results.append(result)

    try:
        for result in judged:
            write(result)
            if interruption.noted:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        interruption.over()
        with contextlib.suppress(KeyboardInterrupt, StopIteration):
            write(judged.throw(KeyboardInterrupt))  # what was judged out of turn is handed over now, if it was not yet
            while True:
                write(next(judged))
        return True
    finally:
        interruption.over()
    return False


def _results(
    arguments: argparse.Namespace,
    claims: Sequence[Claim | IllFormed],
    options: Options,
    report: TerminalReport,
    costs: Mapping[str, float],
) -> Generator[ClaimResult, None, None]:
    judged = sum(isinstance(claim, Claim) for claim in claims)
    jobs = max(1, min(judged, arguments.jobs or _default_jobs(options.device, arguments.threads)))
    if arguments.dask is not None:
        from ntk_deq.verify.runner import judge_on_cluster

        return judge_on_cluster(arguments.dask, claims, options, report, jobs=jobs, threads=arguments.threads)
    memory = arguments.memory or default_memory(jobs)
    return judge_in_workers(
        claims, options, jobs=jobs, memory=memory, threads=arguments.threads, costs=costs, listener=report
    )


def _earlier_seconds(stream: Path) -> dict[str, float]:
    """Return how long claims took in the run whose results lie there, by id: it says which are worth an early start."""
    try:
        entries = read_results(stream)
    except (OSError, DataError):
        return {}
    known = {entry.get("id"): entry.get("seconds") for entry in entries if isinstance(entry.get("id"), str)}
    return {str(name): float(took) for name, took in known.items() if isinstance(took, int | float) and 0 <= took < 1e9}


def _default_jobs(device: str, threads: int) -> int:
    """Return how many workers there are where nobody says: as many as find a core, and one where all share a GPU."""
    if device != "cpu":
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // threads)


def _options(arguments: argparse.Namespace) -> Options:
    torch.set_num_threads(arguments.threads)
    return Options(
        seed=arguments.seed,
        instances=arguments.instances,
        device=_usable_device(arguments.device),
        dtype=getattr(torch, arguments.dtype),
        time_limit=arguments.time_limit,
        stop_early=arguments.stop_early,
        precision=arguments.precision,
        findings=arguments.findings,
        search=arguments.search,
        satisfy=arguments.satisfy,
        smallest=arguments.smallest,
        store=arguments.store,
        out=arguments.out,
    )


def _usable_device(name: str) -> str:
    """Return the name of a device that is there; one that is not is reported now, not in the middle of a claim."""
    match = re.fullmatch(r"cpu|cuda(?::([0-9]{1,3}))?", name)
    if match is None:
        raise ArgumentError(f"`--device` must be cpu, cuda or cuda:N. Got {name!r}.")
    found = torch.cuda.device_count() if name != "cpu" and torch.cuda.is_available() else 0
    if name != "cpu" and int(match[1] or 0) >= found:
        raise ArgumentError(f"`--device` {name} is not there: PyTorch {torch.__version__} sees {found} CUDA devices.")
    return name


def exit_code(results: Sequence[ClaimResult], allow: Collection[str]) -> int:
    """Return the exit code of a run that was not interrupted.

    Of several things gone wrong, the gravest counts: an internal error, then an ill-formed claim, then a verdict
    against expectation, then a claim left open where it was expected to hold.
    """
    unexpected = [r for r in results if not r.as_expected and r.verdict.value not in allow]
    verdicts = {r.verdict for r in unexpected}
    if Verdict.ERROR in verdicts:
        return EXIT_INTERNAL
    if Verdict.ILL_FORMED in verdicts:
        return EXIT_USAGE
    positive = (Verdict.HOLDS, Verdict.PROVED)
    still_open = [r for r in unexpected if r.verdict in (Verdict.VACUOUS, Verdict.UNDECIDED) and r.expected in positive]
    if len(still_open) < len(unexpected):
        return EXIT_UNEXPECTED
    return EXIT_OPEN if still_open else EXIT_OK


def device_name(device: str) -> str:
    """Return a device in words."""
    if device.startswith("cuda"):
        return f"{device} ({torch.cuda.get_device_name(torch.device(device))})"
    return f"{device} ({platform.machine()}, {torch.get_num_threads()} thread{'s' * (torch.get_num_threads() > 1)})"
