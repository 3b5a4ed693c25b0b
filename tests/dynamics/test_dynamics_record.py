"""Slices of the record of a training run: what is of the slice, what of the run, and what no slice can be."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from ntk_deq.dynamics import TrainingRun, train
from ntk_deq.errors import ArgumentError
from ntk_deq.systems import LinearImplicit


@pytest.fixture(scope="module")
def run():
    one = torch.ones(1, 1, dtype=torch.float64)
    model = LinearImplicit(W=one / 2, U=one, b=one[0])
    return train(model, one, 3 * one[0], step=1e-4, steps=200, until=0.0, progress=False)


@pytest.fixture(scope="module")
def flow():
    one = torch.ones(1, 1, dtype=torch.float64)
    model = LinearImplicit(W=one / 2, U=one, b=one[0])
    return train(model, one, 3 * one[0], method="gradient-flow", horizon=0.1, tolerance=1e-6, progress=False)


def test_a_slice_ends_at_its_last_snapshot(run):
    part = run[30:150]
    last = part.snapshots[-1]
    assert (part.snapshots[0].at, last.at) == pytest.approx((30, 150), abs=15)
    assert part.end == last.at < 150
    assert (part.loss, part.parameters) == (last.loss, last.parameters)
    at = part["loss"].at.tolist()
    assert at == list(range(30, 151))
    assert part.loss == part["loss"].values[at.index(part.end)].item()
    assert (run.whole, part.whole) == (True, False)


@pytest.mark.parametrize("which", ["run", "flow"])
def test_what_a_slice_says_of_itself_and_of_the_whole_run(which, request):
    run = request.getfixturevalue(which)
    part = run[run.end / 8 : run.end / 2]
    for name in ("status", "steps", "evaluations", "seconds", "error", "forward_iterations", "adjoint_iterations"):
        assert getattr(part, name) == getattr(run, name)
    letter = "k" if which == "run" else "t"
    first, last = part.snapshots[0], part.snapshots[-1]
    rows = dict(line.strip().split(": ", 1) for line in repr(part).splitlines()[1:])
    assert rows["loss"] == f"{first.loss:.6g} at {letter} = {first.at:g} to {last.loss:.6g} at {letter} = {last.at:g}"
    assert rows["steps"].startswith(f"{run.steps}, ")
    for name in ("steps", "iterations", "error"):
        assert name not in rows or rows[name].endswith(" in the whole run")
    assert rows["path length"] == f"{last.path_length:.6g} from the start of the run"
    whole = dict(line.strip().split(": ", 1) for line in repr(run).splitlines()[1:])
    assert "whole" not in repr(run)
    assert whole["loss"].endswith(f"at {letter} = {run.end:g}")
    said = f"The part from {letter} = {run.end / 8:g} to {run.end / 2:g} of a run that ended so: {run.detail}"
    assert part.detail == said


def test_open_ends_reach_to_the_start_and_the_end(run):
    assert run[:]["loss"].at.tolist() == run["loss"].at.tolist()
    assert run[30:].detail.startswith("The part from k = 30 of a run")
    assert run[30:].end == run[30 : 10**400].end == run[30 : math.inf].end == 200
    assert run[:150]["loss"].at[0] == 0
    # The series of a slice go on past its last snapshot, also in a slice of it.
    assert run[30:150][40:]["loss"].at.tolist() == list(range(40, 151))


def test_ends_may_be_numbers_of_numpy_and_torch(run):
    ends = (30, 30.0, np.int64(30), np.float32(30), torch.tensor(30), run["loss"].at[30])
    assert [run[end:]["loss"].at[0].item() for end in ends] == [30] * len(ends)


@pytest.mark.parametrize("bad", ["a", -5, -0.5, -math.inf, math.nan, True, 1j, [1], torch.ones(2), -(10**400)])
def test_ends_that_are_none(run, bad):
    for name, ask in itertools.product(("start", "stop"), (run.slice, run["loss"].slice)):
        ends = {"start": 0, "stop": 10} | {name: bad}
        with pytest.raises(
            ArgumentError, match=f"`{name}` of a slice must be a step or time >= 0, counted from 0. Got"
        ):
            ask(**ends)
    with pytest.raises(ArgumentError, match="`start` of a slice must be a step or time >= 0"):
        run[bad:]
    with pytest.raises(ArgumentError, match="`stop` of a slice must be a step or time >= 0"):
        run[:bad]


def test_a_start_beyond_every_step(run):
    with pytest.raises(ArgumentError, match="must hold a snapshot"):
        run[10**400 :]


def test_a_slice_is_a_slice_after_it_was_saved(run, tmp_path):
    run[30:150].save(tmp_path / "part.npz")
    part = TrainingRun.load(tmp_path / "part.npz")
    assert not part.whole
    assert repr(part) == repr(run[30:150])
