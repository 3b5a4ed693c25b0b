"""The folder that a run writes to: held so that no second run writes there, and cleared of what earlier runs wrote.

What is removed shows by its first bytes that this tool wrote it. Anything else in the place of a file that will be
written is left alone and refused before anything is judged: a file of somebody else, a folder, a link.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ntk_deq.cli.figures import DRAWN_BY
from ntk_deq.cli.figures import FOLDER as FIGURES
from ntk_deq.errors import ArgumentError
from ntk_deq.files.atomic import is_partial
from ntk_deq.verify.replay import FOLDER as COUNTEREXAMPLES
from ntk_deq.verify.replay.values import ARCHIVE_MARK

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
        ArgumentError: Another run holds it.
        OSError: It cannot be made.
    """
    folder = Path(name)
    folder.mkdir(parents=True, exist_ok=True)
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
