"""The house: imports go down its floors and in no circle, those inside functions and for types alone included."""

from __future__ import annotations

import ast
import graphlib
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

import ntk_deq

ROOT = Path(ntk_deq.__file__).parent
PROJECT = ROOT.parent / "pyproject.toml"


@cache
def modules() -> dict[str, ast.Module]:
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imported(tree: ast.Module, known: dict[str, ast.Module]) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in known:
            found |= {name if (name := f"{node.module}.{alias.name}") in known else node.module for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & known.keys()
    return found


def packages(module: str) -> set[str]:
    """Return the packages that a module lies in: whoever imports it imports these first."""
    parts = module.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts))}


@cache
def graph() -> dict[str, set[str]]:
    """Return what each module imports; the root, whose names are imported when they are asked for, is left out."""
    known = modules()
    edges = {}
    for name, tree in known.items():
        targets = imported(tree, known)
        around = set().union(*map(packages, targets)) - packages(name)
        edges[name] = (targets | around) - {name, "ntk_deq"}
    del edges["ntk_deq"]
    return edges


def floors() -> dict[str, int]:
    """Return the floor of each package and module below the root, as the project file states them, the cellar 0."""
    contracts = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return {name.strip(): floor for floor, row in enumerate(reversed(layers)) for name in row.split(":")}


def top(module: str) -> str:
    return ".".join(module.split(".")[:2])


def test_every_package_has_a_floor():
    assert {top(name) for name in graph()} == floors().keys()


def test_no_import_goes_up():
    floor = floors()
    upward = {
        (name, target)
        for name, targets in graph().items()
        for target in targets
        if floor[top(target)] > floor[top(name)]
    }
    assert upward == set()


def test_there_is_no_circle():
    assert list(graphlib.TopologicalSorter(graph()).static_order())  # raises CycleError, which names the circle


def test_no_file_is_too_long_to_be_one_subject():
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in ROOT.rglob("*.py")}
    assert {str(path.relative_to(ROOT)): count for path, count in lines.items() if count > 450} == {}


def test_imports_inside_functions_count():
    tree = ast.parse("def f():\n    from ntk_deq.verify import trial\n    import ntk_deq.cli\n")
    assert imported(tree, modules()) == {"ntk_deq.verify.trial", "ntk_deq.cli"}


def test_the_maps_of_packages_name_what_is_there():
    known = modules()
    for package in floors():
        text = ast.get_docstring(known[package]) or ""
        folder = ROOT.joinpath(*package.split(".")[1:])
        named = re.findall(r"\b([a-z_/]+\.(?:py|yaml))\b", text) if folder.is_dir() else []
        missing = [name for name in named if not list(folder.rglob(name.rsplit("/", 1)[-1]))]
        assert missing == [], package
    assert "judge.py" in (ast.get_docstring(known["ntk_deq.verify"]) or "")


@pytest.mark.long
def test_judging_a_claim_enters_few_files():
    """R.S4M, which takes an equilibrium, Kronecker products and a search; the map of `verify` names where to look."""
    from ntk_deq.claims.load import load_suite
    from ntk_deq.verify.runner import Options, judge

    (claim,) = (c for c in load_suite(ROOT.parent / "checks" / "implicit_relu.yaml").claims if c.id == "R.S4M")
    entered = set()

    def called(frame, event, _):
        if event == "call" and frame.f_code.co_name != "<module>":
            entered.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        judge(claim, Options(instances=6, search=20))
    finally:
        sys.setprofile(before)
    assert len({path for path in entered if path.startswith(f"{ROOT}/")}) <= 145
    listed = (ast.get_docstring(modules()["ntk_deq.verify"]) or "").split("\n\n")[2]
    assert len(re.findall(r"\b\w+(?:\.py|/)", listed)) <= 20
