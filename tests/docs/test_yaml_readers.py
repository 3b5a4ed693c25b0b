"""Every claim file that we ship or show is read alike by every YAML reader, and is what the schema asks for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from doc_blocks import ROOT, all_blocks
from ruamel.yaml import YAML

from ntk_deq.claims.load import load_suite
from ntk_deq.files.yaml import plain, read_text

SHIPPED = [
    ROOT / "paper_claims.yaml",
    *sorted((ROOT / "checks").glob("**/*.yaml")),
    *sorted((ROOT / "benchmarks").glob("**/*.yaml")),
    *sorted((ROOT / "tests").glob("**/*.yaml")),
]
BLOCKS = [block for block in all_blocks() if block.info.startswith("yaml")]
SCHEMA = ROOT / "docs" / "claim-file.schema.json"
MODELINE = "# yaml-language-server: $schema="


def texts():
    yield from ((str(path.relative_to(ROOT)), path.read_text("utf-8")) for path in SHIPPED)
    for number, block in enumerate(BLOCKS):
        yield f"{block.page.name}:{block.claim_file or number}", block.body


def readings(text):
    """Return a text as PyYAML (YAML 1.1) and ruamel.yaml (YAML 1.2) read it."""
    return yaml.safe_load(text), YAML(typ="safe", pure=True).load(text)


@pytest.mark.parametrize(("name", "text"), [*texts()], ids=lambda value: value if len(value) < 100 else "")
def test_every_reader_reads_the_same(name, text):
    if text.startswith("#") and len(text.splitlines()) == 1:
        return  # a modeline alone
    ours = plain(read_text(text, name))
    for reading in readings(text):
        assert same(ours, reading), name


def same(one, other):
    """Whether two readings agree in every value and its type."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The shipped files, and the documented ones that are whole, on the disk."""
    folder = tmp_path_factory.mktemp("shown")
    files = list(SHIPPED)
    for number, block in enumerate(block for block in BLOCKS if block.claim_file is not None):
        files.append(folder / f"{number}.yaml")
        files[-1].write_text(block.body, encoding="utf-8")
    assert len(files) > 20
    return files


def checked(files, schema=SCHEMA):
    command = [sys.executable, "-m", "check_jsonschema", "--schemafile", str(schema), *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_published_schema_takes_them_all(written):
    ran = checked(written)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    "text",
    [
        "suite: s\nsettings: {p: {domain: {c: (0, 1)}}}\n",
        "suite: s\nclaims: [{id: a, setting: p}]\n",
        "suite: s\nclaims: [{id: a, setting: p, conclude: x > 0, asume: y > 0}]\n",
        "suite: s\nsettings: {p: {sizes: {n: 0..3}}}\n",
    ],
)
def test_the_published_schema_refuses_mistakes(tmp_path, text):
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    assert checked([tmp_path / "a.yaml"]).returncode == 1


def test_the_modeline_is_documented_as_it_works():
    for page in ("README.md", "docs/claim-language.md"):
        assert f"{MODELINE}claim-file.schema.json" in (ROOT / page).read_text("utf-8")


class TestSplitValues:
    TEXT = (
        "suite: s\nsettings: {p: {domain: {c: (0, 1), d: real}}}\nclaims: [{id: a, setting: p, conclude: c + d > d}]\n"
    )

    def test_a_value_that_others_split_is_read_and_warned_of(self, tmp_path):
        (tmp_path / "a.yaml").write_text(self.TEXT, encoding="utf-8")
        suite = load_suite(tmp_path / "a.yaml")
        assert suite.claims[0].settings[0].free["c"].domain.text == "(0, 1)"
        (warning,) = suite.warnings
        assert (warning.position.line, warning.position.column, warning.hint) == (2, 28, "put it in quotes")
        assert "Other readers of YAML" in warning.message
        assert not same(plain(read_text(self.TEXT)), readings(self.TEXT)[1])

    def test_quotes_end_the_warning(self, tmp_path):
        text = self.TEXT.replace("(0, 1)", '"(0, 1)"')
        (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
        assert load_suite(tmp_path / "a.yaml").warnings == ()
        assert same(plain(read_text(text)), readings(text)[1])

    def test_many_are_not_all_told(self, tmp_path):
        entries = ", ".join(f"c{number}: (0, 1)" for number in range(100))
        (tmp_path / "a.yaml").write_text(f"suite: s\nsettings: {{p: {{domain: {{{entries}}}}}}}\n", encoding="utf-8")
        assert len(load_suite(tmp_path / "a.yaml").warnings) == 20


@pytest.mark.parametrize("number", ["017", "-08", "0x1F", "0o17", "0b11", "1_000", "1:30", "12:30:15", "007.5"])
def test_numbers_that_readers_take_differently(tmp_path, number):
    path = tmp_path / "a.yaml"
    head = "suite: s\nsettings: {p: {domain: {x: real}}}\nclaims:\n  - {id: a, setting: p, conclude: x > 0, "
    path.write_text(f"{head}let: {{a: {number}}}}}\n", encoding="utf-8")
    (claim,) = load_suite(path).claims
    (problem,) = [problem for problem in claim.problems if "Readers of YAML disagree" in problem.message]
    assert number in problem.message
    assert (problem.position.line, problem.position.column) == (4, len(head.splitlines()[-1]) + len("let: {a: ") + 1)
    path.write_text(f'{head}title: "{number}"}}\n', encoding="utf-8")
    assert load_suite(path).claims[0].title == number


def test_a_schema_of_todays_command(tmp_path, capsys):
    from ntk_deq.cli.main import main

    assert main(["schema", "--output", str(tmp_path / "s.json")]) == 0
    assert (tmp_path / "s.json").read_bytes() == Path(SCHEMA).read_bytes()
