"""The HTML page: well-formed, self-contained, everything escaped, everything said."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import re
import sys
from html.parser import HTMLParser

import pytest
from sample_results import (
    HOSTILE,
    INFO,
    all_results,
    holds,
    hostile,
    refuted_expected,
    refuted_unexpected,
    undecided,
    vacuous,
)

from ntk_deq.claims.claim import Verdict
from ntk_deq.language.types import Margin
from ntk_deq.report.html import Anchors, report_html, safe_mathml, safe_url, typeset_number, write_html
from ntk_deq.verify.judge import IMPLICIT
from ntk_deq.verify.results import Computed, HypothesisRecord, Witness

VOID = {"meta", "link", "input", "br", "hr", "img"}


class Page(HTMLParser):
    """Collects elements and checks that tags nest."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.stack: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"double attribute in <{tag}>: {names}"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.stack
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if not self.stack or self.stack[-1] not in ("script", "style"):
            self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]


@pytest.fixture(scope="module")
def text() -> str:
    return report_html(all_results(), INFO)


@pytest.fixture(scope="module")
def page(text) -> Page:
    return Page(text)


def test_tags_nest_and_ids_are_unique(page):
    assert page.stack == []
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", i) for i in ids)
    referred = [i for _, attrs in page.elements for i in (attrs.get("aria-labelledby") or "").split()]
    assert set(referred) <= set(ids)


def test_local_links_have_their_targets(page):
    ids = {attrs["id"] for _, attrs in page.elements if "id" in attrs}
    links = [a["href"] for a in page.all("a") if (a.get("href") or "").startswith("#")]
    assert "#R.L5.1" in links
    assert {link[1:] for link in links} <= ids


def test_nothing_is_loaded_and_the_policy_admits_only_the_own_script(text, page):
    for tag, attrs in page.elements:
        assert "src" not in attrs
        assert "srcset" not in attrs
        assert "style" not in attrs
        assert not any(name.startswith("on") for name in attrs), tag
        if tag == "link":
            assert attrs["href"] == "data:,"
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL).group(1)
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL).group(1)
    assert set(re.findall(r"url\(([^)]*)\)", style)) == {"#ui-hatch", "#ui-strike"}  # patterns of the page itself
    assert "@import" not in style
    assert not re.search(r"fetch|XMLHttpRequest|import\(|eval|innerHTML", script)
    policy = next(m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    for kind, content in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_only_web_addresses_are_links(page):
    outside = {a["href"] for a in page.all("a") if not (a.get("href") or "").startswith("#")}
    assert outside == {"https://arxiv.org/abs/2205.07463"}


def test_hostile_text_is_shown_and_never_run(text, page):
    assert len(page.all("script")) == 1
    assert "<script>alert" not in text
    assert "{{ 7*7 }}" in "".join(page.texts)
    assert "49" not in "".join(page.texts).split("{{ 7*7 }}")[0][-40:]
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", text)
    searched = [b.get("data-search") or "" for b in page.all("tbody")]
    assert any('<script>alert("x")</script>' in s for s in searched)


def test_every_field_may_be_hostile():
    info = dataclasses.replace(
        INFO,
        **dict.fromkeys(("suite", "title", "command", "started", "device", "dtype"), HOSTILE),
        versions={HOSTILE: HOSTILE},
    )
    page = Page(report_html([hostile(), hostile()], info))
    assert page.stack == []
    assert len(page.all("script")) == 1
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)


def test_each_claim_has_its_row_and_details(page):
    rows = {b["data-id"]: b for b in page.all("tbody") if "data-id" in b}
    assert len(rows) == 8
    assert rows["R.S4M"]["data-expected"] == "no"
    assert rows["R.L5.1.m1"]["data-expected"] == "yes"
    assert len(page.all("details")) == 8
    assert rows["R.L3.2"]["data-margin"] == "-Infinity"
    assert rows["R.T4.4"]["data-margin"] == ""


def test_the_page_says_what_a_reader_needs(page):
    words = " ".join(" ".join(page.texts).split())
    for needed in (
        "5 of 8 claims came out against expectation.",
        "31 January 2025, 09:30 UTC",
        "1 min 23 s",
        "R.S4M refuted, expected holds",
        "Counterexample",
        "0.71875 ± 1e−17 ≥ 0.75 is false",
        "Undecided instance",
        "0.625 ± 2e−17 > 0.625 is open",
        "Nearest to meeting the hypotheses",
        "Tightest instance",
        "too large to print",
        "instance 41, seed 7",
        "Tianxiang Gao, Hongyang Gao",
        "mutant of R.L5.1",
        "did you mean `sigma_min`?",
        "N = 1…6",
        "ZeroDivisionError",
    ):
        assert needed in words, needed


def test_numbers_are_short_and_their_tool_tips_exact(page):
    titles = [attrs.get("title") for attrs in page.all("td")]
    assert "-0.7071067811865476" in titles
    assert "0.30000000000000004" in [attrs.get("title") for attrs in page.all("dd")]


def test_a_margin_is_shown_relative_to_its_scale_too():
    refuted = refuted_expected()
    broken = dataclasses.replace(refuted.counterexample, margin=Margin(-0.5, -0.5), scale=4.0)
    shown = report_html([dataclasses.replace(refuted, counterexample=broken)], INFO)
    assert '−0.5<span class="relative">relative −0.12</span></td>' in shown
    assert "margin −0.5 (relative −0.12)" in shown


def test_formulas_are_typeset_with_source_and_latex_beside_them(text, page):
    assert len(page.all("math")) > 10
    words = "".join(page.texts)
    assert "sigma_min(Z) >= sigma_min(Phi)/(1 + gamma0)" in words
    assert r"\frac{\sigma_{\min}(\Phi)}{1 + \gamma_0}" in words
    assert "<msub><mi>γ</mi><mn>0</mn></msub>" in text


def test_plots_have_titles_and_descriptions(page):
    plots = [attrs for attrs in page.all("svg") if attrs.get("class") == "plot"]
    assert len(plots) == 6
    assert all(attrs["role"] == "img" for attrs in plots)
    assert any("170 true, 17 tight" in t for t in page.texts)


def test_headlines():
    clean = [holds()]
    assert "The one claim came out as expected." in report_html(clean, INFO)
    assert "No claim was judged." in report_html([], INFO)
    cut = report_html(clean, dataclasses.replace(INFO, interrupted=True))
    assert "interrupted before its end" in cut
    assert 'class="headline mild"' in cut


def tones(*results):
    """The classes of the headline, of each badge and of each chip."""
    text = report_html(results, INFO)
    found = [re.findall(rf'class="{name}([^"]*)"', text) for name in ("headline ", "badge ", "chip ")]
    return found[0][0], found[1], found[2]


def test_alarm_is_for_what_is_wrong():
    assert tones(refuted_expected()) == ("good", ["v-refuted expected"], ["v-refuted expected"])
    assert tones(refuted_unexpected()) == ("bad", ["v-refuted"], ["v-refuted"])
    both = tones(refuted_expected(), refuted_unexpected())
    assert both == ("bad", ["v-refuted expected", "v-refuted"], ["v-refuted"])
    assert tones(undecided())[0] == tones(vacuous(), holds())[0] == "mild"  # exit 6: nothing wrong
    assert tones(dataclasses.replace(vacuous(), expected=Verdict.REFUTED))[0] == "bad"


def test_remarks_stand_where_they_are_read():
    result = dataclasses.replace(holds(), untested=("'(i)' is strict",), note="A repair of the printed bound.")
    text = report_html([result], INFO)
    statement = text.index("<h2>Statement</h2>")
    assert text.index("not tested: ") < statement
    assert text.index("A repair of the printed bound.") < statement


def test_a_counterexample_shows_what_follows_from_it_and_a_script():
    computed = (
        Computed("ZZ", [[0.1, 1 / 3]], 2e-16), Computed("gamma0", "0.50 ± 0.02"), Computed("M", None),
    )  # fmt: skip
    witness = dataclasses.replace(
        refuted_unexpected().counterexample,
        hypotheses=(("well-posed", "0.5 < 1"),), computed_values=computed, script=f"print('<b>')  # {HOSTILE}",
    )  # fmt: skip
    text = report_html([dataclasses.replace(refuted_unexpected(), counterexample=witness)], INFO)
    words = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())
    assert "Hypotheses well-posed 0.5 < 1" in words
    assert "ZZ 1 × 2 ± 2e−16 0.1 0.3333" in words
    assert "0.50 ± 0.02" in words
    assert "M too large to print" in words
    assert "copy as Python print('<b>')" in words
    assert "print('<b>')" not in text
    without = dataclasses.replace(witness, script="", unwritten="the derivative of `rho` is not written out")
    text = report_html([dataclasses.replace(refuted_unexpected(), counterexample=without)], INFO)
    assert "no script with NumPy alone: the derivative of `rho` is not written out" in text
    assert "copy as Python" not in text


def test_an_empty_matrix_and_a_witness_without_comparison():
    witness = Witness("any", "", {"m": 0}, {"A": [], "B": [[]]}, "c", "", "", "", refuted_unexpected().worst_margin)
    text = report_html([dataclasses.replace(refuted_unexpected(), counterexample=witness)], INFO)
    assert text.count(">empty<") == 2
    assert "is false" not in text


def test_a_large_matrix_is_shown_by_its_first_entries():
    values = {"A": [[float(i * 40 + j) for j in range(40)] for i in range(30)]}
    witness = dataclasses.replace(refuted_unexpected().counterexample, values=values)
    text = report_html([dataclasses.replace(refuted_unexpected(), counterexample=witness)], INFO)
    assert "30 × 40" in text
    assert "first 8 × 8 entries" in text


def test_writing_replaces_the_file_whole(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    write_html(path, all_results(), INFO)
    assert path.read_text("utf-8").startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("mathml", "kept"),
    [
        ("<math><mi>x</mi></math>", True),
        ('<math display="block"><mi>x</mi></math>', True),
        ("<mi>x</mi>", True),
        ("", False),
        ("<math><mi>x</math>", False),
        ("<math><script>1</script></math>", False),
        ('<math><mi onclick="a()">x</mi></math>', False),
        ('<math><mi href="https://a.b">x</mi></math>', False),
        ('<math xmlns:x="http://www.w3.org/1999/xlink"><mi x:href="a">x</mi></math>', False),
        ("<math><semantics><annotation><mi>x</mi></annotation></semantics></math>", False),
        ('<!DOCTYPE m [<!ENTITY a "b">]><math><mi>&a;</mi></math>', False),
        ("<math></math><img/>", False),
        ('<math><svg xmlns="http://www.w3.org/2000/svg"/></math>', False),
    ],
)
def test_mathml_is_trusted_only_as_far_as_it_is_mathml(mathml, kept):
    assert (safe_mathml(mathml) is not None) is kept


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://arxiv.org/abs/1", True),
        ("http://example.org/a?b=1&c=2", True),
        ("javascript:alert(1)", False),
        (" https://a.b", False),
        ("java\nscript:alert(1)", False),
        ("data:text/html,x", False),
        ("//a.b/c", False),
        ("file:///etc/passwd", False),
        ("https://[bad", False),
        ("https://", False),
        (7, False),
        (None, False),
    ],
)
def test_safe_url(url, kept):
    assert safe_url(url) == (url if kept else None)


def test_anchors_are_valid_and_unique():
    anchors = Anchors()
    names = ["R.L5.1", "R.L5.1", "a b", "a-b", "<>", "ui-filter", "日本"]
    assert [anchors.take(name) for name in names] == [
        "R.L5.1",
        "R.L5.1-2",
        "a-b",
        "a-b-2",
        "claim",
        "claim-ui-filter",
        "claim-2",
    ]


def test_typeset_number_leaves_words_alone():
    assert typeset_number("A = -identity, -0.5, inf, -inf") == "A = -identity, −0.5, ∞, −∞"
    assert typeset_number("information") == "information"


def test_the_report_layer_imports_no_torch():
    import subprocess

    code = (
        "import sys, ntk_deq.report.html, ntk_deq.report.junit, ntk_deq.report.jsonl, ntk_deq.report.terminal;"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_an_implicit_hypothesis_is_counted_where_it_does_not_hold():
    implicit = HypothesisRecord("differentiable", IMPLICIT["differentiable"], 0, 7, 0, None)
    result = dataclasses.replace(holds(), hypotheses=(holds().hypotheses[0], implicit))
    said, met = (re.sub(r"\s+", " ", part) for part in report_html([result], INFO).split('class="hypothesis"')[:0:-1])
    assert "<b>7</b> failed" in said
    assert "held" not in said.split("</section>")[0]
    assert "<b>219</b> held" in met
