"""Files from strangers, read without trust, and files of ours, written whole.

Here: regular files only, of a size that fits, so that none can make a reader wait; a file that we write is there as a
whole or not at all, also where several processes write the same one, and never through a link.

archives.py    `.npz` without pickle
yaml.py        strict YAML with the place of every node, read and written
results.py     numbers that an experiment wrote, with who wrote them
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import IO, BinaryIO

from ntk_deq.errors import ArgumentError

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_DESCRIPTOR = re.compile(r"/(?:dev|proc/(?:self|[0-9]+))/fd/([0-9]{1,9})")
# A pipe that nobody writes to would block even the call that opens it. Systems without pipes in folders lack the flag.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; links are followed.

    Args:
        path: The file.

    Raises:
        OSError: There is no such file, it cannot be opened, or it is a folder, a pipe, a socket or a device; `strerror`
            says which.

    Example:
        >>> open_regular(Path("/"))
        Traceback (most recent call last):
            ...
        IsADirectoryError: [Errno 21] it is a folder: '/'
    """
    try:
        _check_kind(os.stat(path).st_mode, path)  # before it is opened, since opening a device may set it going
        descriptor = os.open(path, _FLAGS)
    except ValueError:
        raise OSError(errno.EINVAL, "its name holds a NUL", repr(str(path))) from None
    try:
        _check_kind(os.fstat(descriptor).st_mode, path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def descriptor_named(path: Path) -> int | None:
    """Return the open descriptor of this process that a path names, as shells write `<(...)`; None: it names none.

    Args:
        path: The path, as the user gave it.

    Example:
        >>> descriptor_named(Path("/dev/fd/63")), descriptor_named(Path("/dev/stdin")), descriptor_named(Path("63"))
        (63, 0, None)
    """
    if str(path) == "/dev/stdin":
        return 0
    match = _DESCRIPTOR.fullmatch(str(path))
    return None if match is None else int(match[1])


def open_named(path: Path) -> BinaryIO:
    """Open a file that the user named: a regular one, or an open descriptor whatever is behind it.

    A pipe can be read once, and reading it waits for the one who writes to it.

    Args:
        path: The path, as the user gave it.

    Raises:
        OSError: As for `open_regular`, or there is no such descriptor.

    Example:
        >>> open_named(Path("/dev/fd/987654321"))
        Traceback (most recent call last):
            ...
        OSError: [Errno 9] Bad file descriptor
    """
    number = descriptor_named(path)
    return open_regular(path) if number is None else os.fdopen(os.dup(number), "rb")


def _check_kind(mode: int, path: Path) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    for is_kind, name in _KINDS:
        if is_kind(mode):
            raise OSError(errno.EINVAL, f"it is {name}, no regular file", str(path))


_PARTIAL = re.compile(r"\..+\.[0-9]+-[0-9a-f]{8}\.partial")


def write_whole(path: Path, content: bytes | Callable[[IO[bytes]], object], *, durable: bool = False) -> None:
    """Write a file in one step: a reader sees the old one or the whole new one. A link at `path` is replaced.

    Args:
        path: The file.
        content: What it holds, or what writes that to a stream.
        durable: Whether it is on the disk before this returns, so that it outlives a power failure.

    Raises:
        OSError: It cannot be written; nothing is left behind.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as stream:  # never what is there already, such as a link
            if isinstance(content, bytes):
                stream.write(content)
            else:
                content(stream)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if durable and os.name == "posix":  # a folder cannot be opened elsewhere
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the new name, too
        finally:
            os.close(folder)


def is_partial(path: Path) -> bool:
    """Whether a file is what `write_whole` leaves behind where it is killed."""
    return _PARTIAL.fullmatch(path.name) is not None and path.is_file() and not path.is_symlink()


def out_folder(path: Path) -> Path:
    """Return the folder that `--out` names, made where it is missing.

    Raises:
        ArgumentError: It is a file, or it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"`--out` must name a folder, one that is there or can be made. Got {path}: {error.strerror}."
        raise ArgumentError(what) from error
    return path


def own_folder(path: Path) -> Path:
    """Return a folder, made where it is missing, that is no link: what is written or removed there is nowhere else.

    Raises:
        OSError: It is a link or a file, or it cannot be made.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a link, and nothing is written through one", str(path))
    path.mkdir(exist_ok=True)
    return path


def sweep(folder: Path, pid: int) -> None:
    """Remove what a process that was ended has half written in a folder or below it."""
    with contextlib.suppress(OSError):
        for path in folder.rglob(f".*.{pid}-*.partial"):
            path.unlink(missing_ok=True)


_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)  # no link; Windows: bytes as they are


def replace_file(path: str | Path, text: str) -> None:
    """Write `text` to a file in one step: a reader sees the old file or the whole new one.

    Raises:
        OSError: It cannot be written; nothing is left behind.
    """
    write_whole(Path(path), text.encode("utf-8", errors="replace"))


def append_line(path: str | Path, line: str) -> None:
    """Append a line to a file and push it to the disk, all of it or nothing; an unfinished last line is cut off first.

    Args:
        path: The file; it is made where it is missing, its folder must exist. Where it has a second name (a hard link),
            this name gets a file of its own.
        line: ASCII text that ends with a newline.

    Raises:
        OSError: The path is a link or no file, or the line cannot be written, as on a full disk; what was there before
            is as it was.
    """
    target = Path(path)
    descriptor = _opened(target)
    if os.fstat(descriptor).st_nlink > 1:
        os.close(descriptor)
        write_whole(target, target.read_bytes())
        descriptor = _opened(target)
    try:
        size = _end_of_lines(descriptor)
        try:
            os.ftruncate(descriptor, size)
            left = memoryview(line.encode("ascii"))
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        except BaseException:
            os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | _PLAIN, 0o666)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no file", str(path))


def _end_of_lines(descriptor: int) -> int:
    """Return where the last whole line of a file ends; a run that was killed while writing leaves a part of one."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(end - 65536, 0)
        os.lseek(descriptor, start, os.SEEK_SET)
        found = os.read(descriptor, end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
