"""JUnit XML: what passes, fails, errs and is skipped, and that it is valid whatever the claims say."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET

import pytest
from sample_results import HOSTILE, INFO, all_results, holds

from ntk_deq.claims.claim import Verdict
from ntk_deq.report.junit import junit_xml, write_junit


def cases(results):
    root = ET.fromstring(junit_xml(results, INFO).encode("utf-8"))
    return root.find("testsuite"), root.findall(".//testcase")


def test_each_claim_is_a_case_under_its_source():
    suite, found = cases(all_results())
    assert len(found) == 8
    assert suite.attrib["name"] == "Implicit ReLU networks"
    assert found[0].attrib["name"].startswith("R.L5.1 Closed form")
    assert found[0].attrib["classname"].startswith("Gradient Descent Optimizes")
    assert float(found[0].attrib["time"]) == 1.25


def test_children_and_counts_agree():
    suite, found = cases(all_results())
    kinds = [[child.tag for child in case if child.tag != "system-out"] for case in found]
    assert kinds == [[], [], ["failure"], ["skipped"], ["skipped"], ["error"], ["error"], []]
    assert {k: suite.attrib[k] for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "8",
        "failures": "1",
        "errors": "2",
        "skipped": "2",
    }


@pytest.mark.parametrize(
    ("verdict", "expected", "kind"),
    [
        (Verdict.HOLDS, Verdict.HOLDS, None),
        (Verdict.PROVED, Verdict.HOLDS, None),
        (Verdict.REFUTED, Verdict.REFUTED, None),
        (Verdict.VACUOUS, Verdict.VACUOUS, None),
        (Verdict.ILL_FORMED, Verdict.ILL_FORMED, None),
        (Verdict.REFUTED, Verdict.HOLDS, "failure"),
        (Verdict.HOLDS, Verdict.REFUTED, "failure"),
        (Verdict.HOLDS, Verdict.PROVED, "failure"),
        (Verdict.VACUOUS, Verdict.HOLDS, "skipped"),
        (Verdict.UNDECIDED, Verdict.HOLDS, "skipped"),
        (Verdict.ERROR, Verdict.HOLDS, "error"),
        (Verdict.ILL_FORMED, Verdict.REFUTED, "error"),
    ],
)
def test_outcome_by_verdict_and_expectation(verdict, expected, kind):
    result = dataclasses.replace(holds(), verdict=verdict, expected=expected, reason="because of this")
    _, (case,) = cases([result])
    found = [child for child in case if child.tag != "system-out"]
    assert [child.tag for child in found] == ([kind] if kind else [])
    if kind:
        assert "because of this" in found[0].attrib["message"]
        assert f"expected {expected}" in found[0].attrib["message"]


def test_hostile_text_stays_text():
    result = dataclasses.replace(all_results()[2], id=HOSTILE, title=HOSTILE, reason=HOSTILE)
    _, (case,) = cases([result])
    assert case.attrib["name"].startswith('<script>alert("x")</script>')
    assert all(ch >= " " for ch in case.attrib["name"])
    assert "\x00" not in case.find("failure").text
    assert len(list(case)) == 1


def test_the_failure_shows_both_sides_and_how_to_get_the_instance_again():
    _, found = cases(all_results())
    text = found[2].find("failure").text
    assert "0.71875 +/- 1e-17 >= 0.75" in text
    assert "instance 41" in text
    assert "seed 7" in text
    assert "checks/bad.yaml:14:26: unknown function `sigma_mim`" in found[6].find("error").text
    assert "ZeroDivisionError" in found[5].find("error").text


def test_no_results_make_an_empty_valid_suite(tmp_path):
    path = tmp_path / "junit.xml"
    write_junit(path, [], INFO)
    root = ET.parse(path).getroot()
    assert root.find("testsuite").attrib["tests"] == "0"
    assert root.findall(".//testcase") == []
    properties = {p.attrib["name"]: p.attrib["value"] for p in root.iter("property")}
    assert properties["version.torch"] == "2.13.0+cpu"
    assert properties["interrupted"] == "false"
