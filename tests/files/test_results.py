"""Files of results: what is written is read back, and nothing else is read."""

import hashlib
import json
from pathlib import Path

import pytest

from ntk_deq.errors import ArgumentError
from ntk_deq.files.results import LARGEST_FILE, Producer, matrix_text, read_results, write_results

ROOT = Path(__file__).parents[2]
PRODUCER = Producer("figures.test", {"seeds": [0, 1]}, "0.1.0", "a" * 64)


def test_what_is_written_is_read_back(tmp_path):
    values = {"a": 1.5, "b": [1, 2.25, -3e-7], "c": [[1.0, None], [2.0, 3.0]]}
    write_results(tmp_path / "deep" / "r.json", PRODUCER, values)
    found = read_results(tmp_path / "deep" / "r.json")
    assert found.values == values
    assert found.producer == PRODUCER
    assert found.sha256 == hashlib.sha256((tmp_path / "deep" / "r.json").read_bytes()).hexdigest()


def test_a_producer_hashes_its_script(tmp_path):
    script = tmp_path / "s.py"
    script.write_text("print(1)\n")
    assert Producer.of("s", script, {}).sha256 == hashlib.sha256(b"print(1)\n").hexdigest()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"a": float("nan")}, "finite number or null"),
        ({"a": []}, "not empty"),
        ({"a": [[1], [1, 2]]}, "nested evenly"),
        ({"a": True}, "finite number"),
        ({"a": "1"}, "finite number"),
        ({"a": [[[[1]]]]}, "nested 3 deep"),
        ({"a b": 1}, "letters, digits and underscores"),
    ],
)
def test_what_is_no_result_is_not_written(tmp_path, values, message):
    with pytest.raises(ArgumentError, match=message):
        write_results(tmp_path / "r.json", PRODUCER, values)
    assert not (tmp_path / "r.json").exists()


def head(**changes):
    return {"name": "x", "arguments": {}, "version": "1", "sha256": "0" * 64} | changes


def text_of(value):
    return json.dumps({"producer": head(), "values": {"a": 0.125}}).replace("0.125", value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no file of results"),
        ("[" * 100_000, "is no file of results"),
        ("3", "must hold `producer` and `values`"),
        (json.dumps({"values": {"a": 1}}), "must hold `producer` and `values`"),
        (json.dumps({"producer": head(), "values": {"a": 1}, "code": "x"}), "and nothing else"),
        (json.dumps({"producer": head(), "values": {}}), "at least one"),
        (json.dumps({"producer": head(), "values": {"a": "import os"}}), "finite number"),
        (json.dumps({"producer": head(more=1), "values": {"a": 1}}), "`producer` of"),
        (json.dumps({"producer": head(name=3), "values": {"a": 1}}), "must be a str. Got 3"),
        (json.dumps({"producer": head(sha256="abc"), "values": {"a": 1}}), "64 hexadecimal digits"),
        (text_of("NaN"), "NaN is no number"),
        (text_of("1e999"), "finite number"),
        (text_of('1, "a": 2'), "a key stands twice"),
        ("1" * (LARGEST_FILE + 1), "at most 2000000 bytes"),
    ],
)
def test_other_files_are_refused(tmp_path, text, message):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(ArgumentError, match=message):
        read_results(tmp_path / "r.json")


def test_constants_are_small_and_complete():
    assert matrix_text([[1, 2], [3, 4.5]]) == "[1, 2; 3, 4.5]"
    assert matrix_text([1e-7]) == "[1e-07]"
    assert matrix_text([0.0] * 257) is None
    assert matrix_text([[[1]]]) is None
    assert matrix_text([1.0, None]) is None


def stored():
    return sorted((ROOT / "checks" / "results").glob("*.json"))


@pytest.mark.parametrize("path", stored(), ids=lambda path: path.name)
def test_stored_results_are_those_of_the_script_as_it_is(path):
    """A script that was changed since has to be run again: `python -m NAME`."""
    producer = read_results(path).producer
    script = ROOT.joinpath(*producer.name.split(".")).with_suffix(".py")
    assert producer.sha256 == hashlib.sha256(script.read_bytes()).hexdigest()


def test_results_are_there():
    assert [path.name for path in stored()] == ["deq_digits.json", "solver_comparison.json"]
