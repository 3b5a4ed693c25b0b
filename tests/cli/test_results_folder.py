"""Two runs never write into one results folder at once."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ntk_deq.cli import results_folder
from ntk_deq.cli.main import main
from ntk_deq.cli.results_folder import held_folder
from ntk_deq.errors import ArgumentError

FILE = """
suite: short
settings:
  s: {domain: {x: positive}}
claims:
  - {id: S, setting: s, conclude: x + 1 > 1}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "short.yaml"
    path.write_text(FILE, encoding="utf-8")
    return path


@pytest.mark.parametrize("command", ["run", "mutate"])
def test_a_folder_that_another_run_holds_is_refused(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    words = [command, str(file), "--instances", "4", "--search", "0", "--out", str(tmp_path / "out")]
    with held_folder(str(tmp_path / "out")):
        assert main(words) == 4
    assert "another run is writing to" in " ".join(capsys.readouterr().out.split())
    assert list((tmp_path / "out").iterdir()) == []
    assert main(words) != 4  # the folder is free again
    assert main(words) != 4


def test_a_file_system_without_locks_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(results_folder.fcntl, "flock", unsupported)
    with held_folder(str(tmp_path / "a")) as first, held_folder(str(tmp_path / "a")) as second:
        assert first == second


def test_systems_without_this_lock_hold_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results_folder, "fcntl", None)
    with held_folder(str(tmp_path / "b")) as first, held_folder(str(tmp_path / "b")) as second:
        assert first == second


def test_a_folder_is_let_go_of_where_the_run_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), held_folder(str(tmp_path / "c")):
        raise ZeroDivisionError
    with held_folder(str(tmp_path / "c")), pytest.raises(ArgumentError, match="another run is writing to"):
        held_folder(str(tmp_path / "c")).__enter__()


@pytest.mark.parametrize("option", ["--out", "--store"])
def test_a_folder_needs_a_name(file: Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["run", str(file), option, " "])
    assert stop.value.code == 4
    assert f"argument {option}: must be the name of a folder. Got nothing." in capsys.readouterr().err
