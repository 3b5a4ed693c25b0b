"""One run at a time writes to a results folder, clears it of earlier runs, and touches nothing that is not its own."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from processes import eventually

from ntk_deq.claims.claim import Claim
from ntk_deq.cli import session
from ntk_deq.cli.main import main
from ntk_deq.cli.session import drop_unmentioned, held_folder
from ntk_deq.errors import ArgumentError
from ntk_deq.report.jsonl import read_results
from ntk_deq.verify.pool import worker
from ntk_deq.verify.replay.values import archive_bytes, read_array
from ntk_deq.verify.results import ClaimResult

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

    monkeypatch.setattr(session.fcntl, "flock", unsupported)
    with held_folder(str(tmp_path / "a")) as first, held_folder(str(tmp_path / "a")) as second:
        assert first == second


def test_systems_without_this_lock_hold_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "fcntl", None)
    with held_folder(str(tmp_path / "b")) as first, held_folder(str(tmp_path / "b")) as second:
        assert first == second


def test_a_folder_is_let_go_of_where_the_run_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), held_folder(str(tmp_path / "c")):
        raise ZeroDivisionError
    with held_folder(str(tmp_path / "c")), pytest.raises(ArgumentError, match="another run is writing to"):
        held_folder(str(tmp_path / "c")).__enter__()


RUN = ("run", "--instances", "4", "--search", "0", "--no-store")
BROKEN = FILE.replace("x + 1 > 1", "x + 1 < 1").replace("conclude", "expect: refuted, conclude")


@pytest.fixture(autouse=True)
def _a_wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """No message breaks inside a path, however long the temporary folder's name is."""
    monkeypatch.setenv("COLUMNS", "500")


def told(words: Sequence[object], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main([str(word) for word in words])
    return code, " ".join(capsys.readouterr().out.split())


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


OWN = [
    *(("run", name) for name in ("results.jsonl", "junit.xml", "report.html", "run.json")),
    *(("mutate", name) for name in ("mutants.jsonl", "mutants.md")),
]


@pytest.mark.parametrize(("command", "name"), OWN)
@pytest.mark.parametrize("kind", ["folder", "link", "dangling link", "link to a folder", "pipe", "another's file"])
def test_what_is_in_the_way_is_refused_before_anything_is_judged_or_removed(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str], command: str, name: str, kind: str
) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    words = [command, file, *RUN[1 : -1 if command == "mutate" else None], "--out", out]
    assert main([str(word) for word in words]) != 4
    (elsewhere / "folder").mkdir(parents=True)
    (elsewhere / "file").write_text("precious", encoding="utf-8")
    target = out / name
    target.unlink()
    {
        "folder": target.mkdir,
        "link": lambda: target.symlink_to(elsewhere / "file"),
        "dangling link": lambda: target.symlink_to(elsewhere / "missing"),
        "link to a folder": lambda: target.symlink_to(elsewhere / "folder"),
        "pipe": lambda: os.mkfifo(target),
        "another's file": lambda: target.write_text("precious", encoding="utf-8"),
    }[kind]()
    before = content(out), content(elsewhere)
    capsys.readouterr()
    code, out_text = told(words, capsys)
    assert code == 4
    assert f"{name} is in the way: it is " in out_text.replace("/ ", "/")
    assert "judging" not in out_text
    assert (content(out), content(elsewhere)) == before
    assert not (elsewhere / "missing").exists()


@pytest.mark.parametrize("name", ["results.jsonl", "junit.xml", "report.html", "run.json", "counterexamples/S.yaml"])
def test_a_second_name_of_a_file_keeps_what_it_had(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    file.write_text(BROKEN, encoding="utf-8")
    words = [*RUN, file, "--out", tmp_path / "out", "--seed"]
    assert told([*words, 0], capsys)[0] == 0
    before = (tmp_path / "out" / name).read_bytes()
    os.link(tmp_path / "out" / name, tmp_path / "second")
    assert told([*words, 1], capsys)[0] == 0
    assert (tmp_path / "second").read_bytes() == before
    assert (tmp_path / "out" / name).stat().st_nlink == 1


@pytest.mark.parametrize("name", ["counterexamples", "figures"])
def test_a_linked_folder_is_neither_written_to_nor_cleared(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    file.write_text(BROKEN, encoding="utf-8")
    words = [*RUN, file, "--out", tmp_path / "out"]
    assert told(words, capsys)[0] == 0
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "out" / "counterexamples").rename(elsewhere)
    (elsewhere / "a.svg").write_text(session.DRAWN_BY, encoding="utf-8")
    (tmp_path / "out" / name).symlink_to(elsewhere)
    before = content(elsewhere)
    code, out = told(words, capsys)
    assert (code == 4, "is in the way: it is a link" in out) == (
        (True, True) if name == "counterexamples" else (False, False)
    )
    assert content(elsewhere) == before


def test_a_linked_counterexample_is_replaced(tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(BROKEN, encoding="utf-8")
    (tmp_path / "precious").write_text("precious", encoding="utf-8")
    kept = tmp_path / "out" / "counterexamples" / "S.yaml"
    kept.parent.mkdir(parents=True)
    kept.symlink_to(tmp_path / "precious")
    assert told([*RUN, file, "--out", tmp_path / "out"], capsys)[0] == 0
    assert (tmp_path / "precious").read_text(encoding="utf-8") == "precious"
    assert not kept.is_symlink()
    assert kept.read_text(encoding="utf-8").startswith("# A counterexample of S.")


def test_only_what_earlier_runs_wrote_goes(tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    others = {
        "notes.md": "mine",
        "results.csv": "mine",
        ".mine.partial": "mine",
        "figures/a.svg": "<svg/>",
        "figures/mine.txt": session.DRAWN_BY,
        "counterexamples/mine.yaml": "format: 1",
        "counterexamples/mine.npz": "mine",
        "mutants.jsonl": '{"id": "S.m1"}',
    }
    stale = {
        "counterexamples/T.yaml": "# A counterexample of T. To judge it again: verify-claims replay T.yaml",
        "counterexamples/T.npz": "PK",
        "counterexamples/.T.yaml.12-0123abcd.partial": "# A",
        ".junit.xml.4321-0123abcd.partial": "<?xml",
        "figures/b.svg": f"<dc:title>{session.DRAWN_BY}</dc:title>",
        "figures/rates.pdf": "x" * 200_000 + session.DRAWN_BY + "x" * 1000,
        "junit.xml": "",  # nothing is lost
    }
    for name, text in (others | stale).items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text, encoding="utf-8")
    assert told([*RUN, file, "--out", out], capsys)[0] == 0
    found = content(out)
    assert {name: found.get(name, b"").decode() for name in others} == others
    assert set(found) == {*others, "results.jsonl", "junit.xml", "report.html", "run.json"}


TWO = f"{FILE}  - {{id: T, setting: s, conclude: x + 1 < 1}}\n".replace("x + 1 > 1", "x + 1 < 1")


@pytest.mark.skipif(sys.platform != "linux", reason="workers are made by fork, so that they judge as the test says")
def test_a_run_that_stops_early_leaves_no_counterexample_that_its_results_do_not_name(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(TWO, encoding="utf-8")
    kept = tmp_path / "out" / "counterexamples"
    judge = worker.judge

    def judged_last(claim: Claim, *rest: Any, **options: Any) -> ClaimResult:
        if claim.id == "S":
            eventually(lambda: (kept / "T.yaml").exists())
        return judge(claim, *rest, **options)

    monkeypatch.setattr(worker, "judge", judged_last)
    (tmp_path / "out" / "counterexamples").mkdir(parents=True)
    (kept / "mine.yaml").write_text("mine", encoding="utf-8")
    words = [*RUN, file, "--out", tmp_path / "out", "-j", 2]
    assert told([*words, "-x"], capsys)[0] == 1
    (result,) = read_results(tmp_path / "out" / "results.jsonl")
    assert result["replay"] == str(kept / "S.yaml")
    assert sorted(path.name for path in kept.iterdir()) == ["S.yaml", "mine.yaml"]
    assert told(words, capsys)[0] == 1
    assert sorted(path.name for path in kept.iterdir()) == ["S.yaml", "T.yaml", "mine.yaml"]


def test_the_archive_of_a_counterexample_that_was_never_written_goes(tmp_path: Path) -> None:
    kept = tmp_path / "counterexamples"
    kept.mkdir()
    own, other = archive_bytes({"A": torch.eye(2, dtype=torch.float64)}), io.BytesIO()
    np.savez(other, A=np.eye(2))
    for name in ("S", "T"):
        (kept / f"{name}.npz").write_bytes(own)
    (kept / "mine.npz").write_bytes(other.getvalue())
    drop_unmentioned(tmp_path, [str(kept / "S.yaml")])
    assert sorted(path.name for path in kept.iterdir()) == ["S.npz", "mine.npz"]
    assert torch.equal(read_array(kept, "S.npz", "A", (2, 2)), torch.eye(2, dtype=torch.float64))


def test_figures_that_were_drawn_go_with_the_next_run(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    from ntk_deq.plots import save_figure

    folder = tmp_path / "out" / "figures"
    folder.mkdir(parents=True)
    save_figure(Figure(), folder / "drawn", ["pdf", "png", "svg"], creator=session.DRAWN_BY)
    save_figure(Figure(), folder / "own", ["pdf", "png", "svg"])
    assert told([*RUN, file, "--out", tmp_path / "out"], capsys)[0] == 0
    assert sorted(path.name for path in folder.iterdir()) == ["own.pdf", "own.png", "own.svg"]


def test_a_usage_error_removes_nothing(tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*RUN, file, "--out", tmp_path / "out"]
    assert told(words, capsys)[0] == 0
    before = content(tmp_path / "out")
    for wrong in (["--smallest", "nonsense"], ["--device", "nonsense"], ["-k", "nonsense"]):
        assert told([*words, *wrong], capsys)[0] in (4, 5)
    assert content(tmp_path / "out") == before


@pytest.mark.parametrize("option", ["--out", "--store"])
def test_a_folder_needs_a_name(file: Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["run", str(file), option, " "])
    assert stop.value.code == 4
    assert f"argument {option}: must be the name of a folder. Got nothing." in capsys.readouterr().err


@pytest.mark.parametrize("beyond", ["short.yaml", "short.yaml/below"])
def test_a_file_in_the_place_of_the_folder(file: Path, beyond: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = told([*RUN, file, "--out", file.parent / beyond], capsys)
    assert code == 4
    assert "`--out` must name a folder, one that is there or can be made. Got" in said
