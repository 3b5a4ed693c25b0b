"""Files of results: whole lines only, whole files only, never through a link."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ntk_deq.files import append_line, replace_file


@pytest.mark.parametrize("room", range(0, 9, 2))
def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    path = tmp_path / "lines"
    append_line(path, "first\n")
    real, left = os.write, [room]

    def write(descriptor: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(descriptor, data[: left[0]])
        left[0] -= written
        return written

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space left"):
        append_line(path, "the second\n")
    assert path.read_bytes() == b"first\n"
    left[0] = 100
    append_line(path, "third\n")
    assert path.read_bytes() == b"first\nthird\n"


@pytest.mark.parametrize("stop", [OSError, KeyboardInterrupt])
def test_what_stops_the_pushing_to_the_disk_takes_the_line_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: type[BaseException]
) -> None:
    def fsync(descriptor: int) -> None:
        raise stop

    append_line(tmp_path / "lines", "first\n")
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(stop):
        append_line(tmp_path / "lines", "second\n")
    assert (tmp_path / "lines").read_bytes() == b"first\n"


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        (b"", b""),
        (b"cut", b""),
        (b"a\ncut", b"a\n"),
        (b"a\n" + b"x" * 200_000, b"a\n"),
        (b"x" * 200_000 + b"\ny", b"x" * 200_000 + b"\n"),
        (b"a\nb\n", b"a\nb\n"),
    ],
)
def test_an_unfinished_line_is_cut_off(tmp_path: Path, before: bytes, kept: bytes) -> None:
    (tmp_path / "lines").write_bytes(before)
    append_line(tmp_path / "lines", "new\n")
    assert (tmp_path / "lines").read_bytes() == kept + b"new\n"


def test_no_line_goes_through_a_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious\n")
    (tmp_path / "soft").symlink_to(precious)
    with pytest.raises(OSError, match="soft"):
        append_line(tmp_path / "soft", "line\n")
    os.link(precious, tmp_path / "hard")
    append_line(tmp_path / "hard", "line\n")
    assert precious.read_bytes() == b"precious\n"
    assert (tmp_path / "hard").read_bytes() == b"precious\nline\n"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is no file"):
        append_line(tmp_path / "pipe", "line\n")


def test_a_file_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    (tmp_path / "soft").symlink_to(precious)
    (tmp_path / "soft.partial").symlink_to(precious)
    os.link(precious, tmp_path / "hard")
    replace_file(tmp_path / "soft", "new \ud800")
    replace_file(tmp_path / "hard", "new")
    assert precious.read_bytes() == b"precious"
    assert (tmp_path / "soft").read_bytes() == b"new ?"
    assert not (tmp_path / "soft").is_symlink()
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        replace_file(tmp_path / "folder", "new")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "hard", "precious", "soft", "soft.partial"]
