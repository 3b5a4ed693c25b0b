"""The parts of the documentation that are written by docs/generate.py are up to date."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import pytest
from doc_blocks import ROOT

from ntk_deq.cli.main import main
from ntk_deq.language.domain import DISTRIBUTIONS, DomainKind
from ntk_deq.language.functions import FUNCTIONS

REMEDY = "run `python docs/generate.py`"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["PAGE", "GALLERY"])
def test_page_is_up_to_date(generator, page):
    text = getattr(generator, page).read_text("utf-8")
    assert generator.page(text) == text, REMEDY


def test_every_part_stands_in_the_pages_once(generator):
    text = generator.PAGE.read_text("utf-8") + generator.GALLERY.read_text("utf-8")
    found = re.findall(r"<!-- generated: ([\w-]+) -->", text)
    missing = generator.PARTS.keys() - {*found}
    assert not missing, (
        "write `<!-- generated: NAME -->` and `<!-- end -->` where each belongs, and run docs/generate.py"
    )
    assert sorted(found) == sorted(generator.PARTS)


def test_a_stale_part_is_replaced_and_the_rest_is_not(generator):
    stale = "before\n<!-- generated: limits -->\nold\n<!-- end -->\nafter\n"
    fresh = generator.page(stale)
    assert fresh.startswith("before\n<!-- generated: limits -->\n| what | at most |\n")
    assert fresh.endswith("|\n<!-- end -->\nafter\n")
    assert "old" not in fresh


def test_an_unknown_part_is_an_error(generator):
    with pytest.raises(KeyError, match="lmits"):
        generator.page("<!-- generated: lmits -->\n<!-- end -->")


def test_schema_file_is_what_the_command_prints(generator, capsys):
    assert main(["schema"]) == 0
    assert capsys.readouterr().out == generator.SCHEMA.read_text("utf-8"), REMEDY


def test_the_reference_names_every_function_distribution_and_domain(generator):
    text = generator.PAGE.read_text("utf-8")
    for function in FUNCTIONS.values():
        assert f"| `{function.signature}` |" in text
    for distribution in DISTRIBUTIONS.values():
        assert f"| `{distribution.usage}` |" in text
    for kind in DomainKind:
        assert kind is DomainKind.INTERVAL or f"| `{kind.value}" in text


def test_a_bar_in_a_cell_is_escaped(generator):
    assert generator.table(["a"], [["x | y"]]).splitlines()[-1] == r"| x \| y |"
