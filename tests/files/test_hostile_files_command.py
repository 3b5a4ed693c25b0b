"""The command that tries hostile files: a few of each kind go through it here, and it notices what it looks for."""

from __future__ import annotations

import copy
import random
import signal
import time

import pytest

from benchmarks import hostile_files
from benchmarks.hostile_files import Kind, fuzz, samples
from benchmarks.hostile_mutations import damaged, damaged_value
from ntk_deq.errors import ArgumentError


@pytest.fixture
def alarm():
    before = {number: signal.signal(number, hostile_files._alarm) for number in (signal.SIGALRM, signal.SIGPROF)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_few_of_each_kind(tmp_path, alarm, capsys):
    place = tmp_path / "place"
    place.mkdir()
    names = []
    for kind in samples(tmp_path):
        came, faults = fuzz(kind, 2, 5, place, None, float("inf"))
        names.append(kind.name)
        assert (came.total(), faults) == (2, 0), capsys.readouterr().out
    assert names == ["claim", "numbers", "data", "replay", "checkpoint", "stored run", "results", "store"]


def use(path):
    content = path.read_bytes()
    if content == b"foreign":
        raise KeyError("x")
    if content == b"hang":
        time.sleep(60)
    if content == b"work":
        while True:
            pass
    if content == b"code":
        hostile_files._expected(3, (0, 4))
    if content == b"ours":
        raise ArgumentError("x")
    return "used"


@pytest.mark.parametrize(
    ("content", "what", "faults"),
    [
        ("foreign", "fault", 1),
        ("hang", "hang", 1),
        ("work", "hang", 1),
        ("code", "fault", 1),
        ("ours", "ArgumentError", 0),
        ("", "used", 0),
    ],
)
def test_what_is_a_fault(tmp_path, alarm, monkeypatch, content, what, faults):
    monkeypatch.setattr(hostile_files, "WAITING" if content == "hang" else "LIMIT", 0.2)
    kind = Kind("kind", lambda place, rng: hostile_files._written(place / "a", content.encode()), use)
    came, found = fuzz(kind, 1, 0, tmp_path, tmp_path / "keep", float("inf"))
    assert (dict(came), found) == ({what: 1}, faults)
    assert (tmp_path / "keep").exists() == bool(faults)


def test_damage_can_be_repeated_and_changes_something():
    content = b"suite: s\nclaims:\n  - {id: a, conclude: x >= 0.5}\n" * 3
    found = [damaged(content, random.Random(seed)) for seed in range(200)]
    assert found == [damaged(content, random.Random(seed)) for seed in range(200)]
    assert sum(one != content for one in found) > 180
    assert len({*found}) > 150


def test_values_of_json_are_damaged_too():
    fresh = {"a": [1, 2.0, {"b": "c"}], "d": None}
    changed = [repr(damaged_value(copy.deepcopy(fresh), random.Random(seed))) for seed in range(200)]
    assert sum(one != repr(fresh) for one in changed) > 180
    assert len({*changed}) > 60
