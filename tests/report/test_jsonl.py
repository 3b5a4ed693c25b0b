"""The JSON-lines store: one object a claim, infinities as text, nothing lost by an interruption."""

from __future__ import annotations

import json
import math

import pytest
from sample_results import HOSTILE, INFO, all_results, hostile, refuted_unexpected, undecided

from ntk_deq.errors import DataError
from ntk_deq.language.types import Margin
from ntk_deq.report.jsonl import MARGIN_LIMIT, append_result, json_safe, read_results, result_to_dict, write_run_info
from ntk_deq.verify.results import ConclusionRecord

FIRST_KEYS = [
    "id", "verdict", "evidence", "expected", "as_expected", "instances", "met", "tight", "unsure", "worst_margin",
    "seed", "seconds", "reason",
]  # fmt: skip


def test_every_result_is_one_line_that_reads_back(tmp_path):
    path = tmp_path / "results.jsonl"
    results = all_results()
    for result in results:
        append_result(path, result)
    lines = path.read_text("ascii").splitlines()
    assert len(lines) == len(results)
    assert read_results(path) == [result_to_dict(result) for result in results]
    assert [entry["id"] for entry in read_results(path)] == [result.id for result in results]


def test_the_promised_keys_come_first_and_have_the_promised_forms():
    entry = result_to_dict(refuted_unexpected())
    assert list(entry)[: len(FIRST_KEYS)] == FIRST_KEYS
    low, high = entry["worst_margin"]
    assert low <= high < 0
    assert (entry["verdict"], entry["expected"], entry["as_expected"]) == ("refuted", "holds", False)
    assert entry["counterexample"]["values"]["A"] == [[0.0, -0.7071067811865476], [0.7071067811865476, 0.0]]
    assert entry["counterexample"]["margin"] == entry["worst_margin"]
    assert entry["conclusions"][0]["worst"] == [-0.03125, -0.03125]


def test_infinities_are_strings_and_no_margin_is_null():
    entry = result_to_dict(undecided())
    assert entry["worst_margin"] == ["-inf", "inf"]
    assert float(entry["worst_margin"][0]) == -math.inf
    assert (entry["undecided"]["conclusion"], entry["undecided"]["values"]["gamma"]) == ("(6)", 0.5)
    assert entry["undecided"]["hypotheses"] == [["well-posed", "0.375 < 1"]]
    assert result_to_dict(all_results()[3])["worst_margin"] is None
    text = json.dumps(result_to_dict(hostile()), allow_nan=False)
    assert json.loads(text)["tightest"]["values"][HOSTILE] == [["nan", "inf"]]


def test_a_number_keeps_every_bit():
    values = [0.1 + 0.2, 5e-324, 1.7976931348623157e308, -0.0]
    assert json.loads(json.dumps(json_safe(values))) == values
    assert math.copysign(1.0, json.loads(json.dumps(json_safe(-0.0)))) == -1.0


def test_long_lists_of_margins_are_thinned_but_keep_the_worst():
    margins = tuple((float(i), float(i), 1.0) for i in range(1, 5000))
    margins = (*margins[:1234], (-7.0, -7.0, 1.0), *margins[1234:])
    record = ConclusionRecord("c", "a <= b", Margin(-7.0, -7.0), margins, 4999, 1, 0, 0)
    entry = json_safe_conclusion(record)
    assert len(entry["margins"]) <= MARGIN_LIMIT
    assert [-7.0, -7.0, 1.0] in entry["margins"]
    assert entry["margins_total"] == 5000


def json_safe_conclusion(record: ConclusionRecord) -> dict[str, object]:
    result = undecided()
    return result_to_dict(type(result)(**{**vars(result), "conclusions": (record,)}))["conclusions"][0]


def test_an_unfinished_last_line_is_left_out_and_repaired_by_the_next_append(tmp_path):
    path = tmp_path / "results.jsonl"
    first, second, third = all_results()[:3]
    append_result(path, first)
    append_result(path, second)
    whole = path.read_bytes()
    last_line = len(whole) - whole.index(b"\n") - 1
    for cut in (2, 5, last_line - 1, last_line):
        path.write_bytes(whole[:-cut])
        assert [e["id"] for e in read_results(path)] == [first.id]
    path.write_bytes(whole[:-20])
    assert [e["id"] for e in read_results(path)] == [first.id]
    append_result(path, third)
    assert [e["id"] for e in read_results(path)] == [first.id, third.id]


def test_a_whole_last_line_without_its_newline_counts(tmp_path):
    path = tmp_path / "results.jsonl"
    append_result(path, all_results()[0])
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert len(read_results(path)) == 1


@pytest.mark.parametrize(
    ("line", "said"), [(b"{broken", "2: not a JSON object"), (b"[1]", "2: a result must be a JSON object")]
)
def test_damage_elsewhere_is_an_error_with_file_and_line(tmp_path, line, said):
    path = tmp_path / "results.jsonl"
    append_result(path, all_results()[0])
    path.write_bytes(path.read_bytes() + line + b"\n" + path.read_bytes())
    with pytest.raises(DataError, match=said):
        read_results(path)


def test_an_empty_file_has_no_results(tmp_path):
    path = tmp_path / "results.jsonl"
    path.touch()
    assert read_results(path) == []


def test_run_info_goes_to_a_file_of_its_own(tmp_path):
    path = tmp_path / "run.json"
    write_run_info(path, INFO, all_results(), exit_code=1)
    entry = json.loads(path.read_text("utf-8"))
    assert entry["versions"] == INFO.versions
    assert entry["verdicts"] == {
        "proved": 1, "holds": 1, "refuted": 2, "vacuous": 1, "undecided": 1, "error": 1, "ill-formed": 1,
    }  # fmt: skip
    assert entry["unexpected"] == ["R.S4M", "R.T4.4", "R.L3.2", "R.L4.1", "R.BAD"]
    assert (entry["claims"], entry["exit_code"], entry["seed"]) == (8, 1, 7)
    assert list(tmp_path.iterdir()) == [path]
