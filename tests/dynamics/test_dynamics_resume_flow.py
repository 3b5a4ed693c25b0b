"""Gradient flow taken up where it stopped; parts of a run; what `resume` refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flow_samples import distance, linear_problem, smooth_relu_problem, theorem_problem

from ntk_deq.dynamics import RunStatus, TrainingRun, gradient_descent, gradient_flow, resume
from ntk_deq.dynamics.recorders import Recorder, every
from ntk_deq.dynamics.storage import RecordError
from ntk_deq.errors import ArgumentError
from ntk_deq.systems import LinearImplicit

ONE = torch.ones(1, 1, dtype=torch.float64)


def small() -> tuple[LinearImplicit, torch.Tensor, torch.Tensor]:
    return LinearImplicit(W=ONE / 2, U=ONE.clone(), b=ONE[0].clone()), ONE, ONE[0]


def kinked_problem() -> Any:
    return theorem_problem(beta=20.0, gamma=0.5)


@pytest.mark.parametrize(
    "problem",
    [linear_problem, *(pytest.param(p, marks=pytest.mark.long) for p in (smooth_relu_problem, kinked_problem))],
)
def test_a_flow_taken_up_is_the_flow_to_the_end(problem: Any, tmp_path: Path) -> None:
    model, X, y = problem()
    how = {"until": 1e-3, "tolerance": 1e-6}
    whole = gradient_flow(model, X, y, **how)
    part = gradient_flow(model, X, y, **how, horizon=whole.end / 3, record=["displacement", "sigma_min"])
    part.save(tmp_path / "part.npz")
    joined = resume(tmp_path / "part.npz", horizon=10 * whole.end)
    assert (part.status, joined.status) == (RunStatus.HORIZON, RunStatus.LOSS_FLOOR)
    assert joined.end == pytest.approx(whole.end, rel=0.1)  # the floor is met at a step, and steps differ
    longer = gradient_flow(model, X, y, until=0.0, tolerance=1e-6, horizon=joined.end)
    assert longer.error is not None
    assert joined.error is not None
    assert distance(joined.parameters, longer.parameters) <= joined.error + longer.error
    assert joined.snapshots[-1].path_length == pytest.approx(longer.snapshots[-1].path_length, rel=1e-5)
    assert joined.steps > part.steps
    assert joined.evaluations > part.evaluations
    for name in ("loss", "displacement", "sigma_min"):
        at = joined[name].at
        assert bool((at[1:] > at[:-1]).all())
        assert at[-1] == joined.end
    moved = [float((joined.parameters[n] - value).norm()) for n, value in model.parameters().items()]
    assert joined["displacement"].values[-1].tolist() == pytest.approx(moved)
    assert [snapshot.at for snapshot in joined.snapshots] == sorted({snapshot.at for snapshot in joined.snapshots})
    assert TrainingRun.load(tmp_path / "part.npz").end == joined.end  # the file is kept up to date
    assert resume(joined) is joined
    again = resume(joined, until=1e-4)
    assert again.loss <= 1e-4 * whole.snapshots[0].loss
    assert again.settings["until"] == 1e-4


def test_a_flow_goes_on_after_its_budget() -> None:
    model, X, y = small()
    short = gradient_flow(model, X, y, steps=5, until=1e-4)
    assert short.status is RunStatus.STEPS
    assert resume(short) is short
    longer = resume(short, steps=500)
    assert longer.status is RunStatus.LOSS_FLOOR
    assert longer.steps > 5
    assert "Taken up at t = " in longer.detail


def test_a_flow_owns_what_it_goes_on_with() -> None:
    model, X, y = small()
    X, y = X.clone(), 3 * y
    short = gradient_flow(model, X, y, steps=3, until=1e-4)
    whole = resume(short, steps=10)
    for value in (X, y, *model.parameters().values()):
        value.zero_()
    again = resume(short, steps=10)
    assert all(torch.equal(again.parameters[name], value) for name, value in whole.parameters.items())


def test_what_a_flow_refuses() -> None:
    model, X, y = small()
    for start, wrong, message in (
        ({"model": None}, {}, "`model` of gradient-flow must be an equilibrium model"),
        ({"X": X.to_sparse()}, {}, "`X` of gradient-flow must be a dense tensor"),
        ({"X": [[1.0]]}, {}, "`X` of linear-implicit must be a torch tensor"),
        ({"X": X.long()}, {}, "`X` of linear-implicit must have dtype"),
        ({}, {"on_step": 5}, "`on_step` of gradient-flow must be callable"),
        ({}, {"record": 5}, "`record` must be a list"),
        ({}, {"horizon": 10**400}, "`horizon` of gradient-flow must be a number >= 2.23e-308"),
    ):
        with pytest.raises(ArgumentError, match=message):
            gradient_flow(**{"model": model, "X": X, "y": y, **start}, **{"horizon": 1.0, **wrong})
    run = gradient_flow(model, X, y, horizon=0.01)
    for options, message in (
        ({"horizon": -1.0}, "`horizon` of gradient-flow must be a number >= 2.23e-308"),
        ({"until": 2.0}, "`until` of gradient-flow"),
        ({"steps": -1}, "`steps` of gradient-flow"),
        ({"on_step": print}, "`on_step` of resume is for gradient-descent"),
    ):
        with pytest.raises(ArgumentError, match=message):
            resume(run, **options)
    descent = gradient_descent(model, X, y, step=0.01, steps=2)
    with pytest.raises(ArgumentError, match="`horizon` of resume is for gradient flow"):
        resume(descent, horizon=1.0)
    with pytest.raises(ArgumentError, match=r"`run` of resume must be a TrainingRun or the name of a file\. Got None"):
        resume(None)  # type: ignore[arg-type]


def test_the_recorders_given_at_first_may_be_given_again() -> None:
    model, X, y = small()
    own = Recorder("largest", lambda seen: seen.point.residual.abs().max(), every(2))
    run = gradient_descent(model, X, y, step=0.01, steps=4, record=["sigma_min", own])
    longer = resume(run, steps=8, record=["sigma_min", own])
    assert longer["largest"].at.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]
    with pytest.raises(ArgumentError, match="the run's own recorders, largest"):
        resume(run, steps=8, record=["sigma_min"])


def test_another_model_is_refused() -> None:
    model, X, y = small()
    run = gradient_descent(model, X, y, step=0.01, steps=4)
    two = torch.ones(2, dtype=torch.float64)
    wider = LinearImplicit(W=torch.diag(two) / 2, U=two[:, None], b=two)
    for other in (LinearImplicit(W=ONE / 3, U=ONE, b=ONE[0]), wider):
        with pytest.raises(ArgumentError, match=r"`model` of resume must be the model at the run's start\. Its `W`"):
            resume(run, steps=8, model=other)
    assert resume(run, steps=8, model=model).steps == 8


def test_parts_of_a_run() -> None:
    model, X, y = small()
    run = gradient_descent(model, X, y, step=0.01, steps=40)
    part = run[3:20]
    assert part["loss"].at.tolist() == [float(k) for k in range(3, 21)]
    assert "The part from k = 3 to 20 of a run that ended so: At step 40" in repr(part)
    assert run[:5]["loss"].at[-1] == 5
    assert run[30:].end == 40
    wrongs = {
        "no stride": slice(0, 10, 2),
        r"by its name, or for a part\. Got \[3\]": 3,
        "at most `stop`": slice(5, 2),
    }
    for message, wrong in wrongs.items():
        with pytest.raises(ArgumentError, match=message):
            run[wrong]  # type: ignore[index]


def test_a_checkpoint_needs_a_folder(tmp_path: Path) -> None:
    model, X, y = small()
    with pytest.raises(ArgumentError, match="`checkpoint` must lie in a folder that exists"):
        gradient_descent(model, X, y, step=0.01, steps=2, checkpoint=tmp_path / "none" / "run.npz")


DAMAGES = {
    "no snapshots": lambda run: run.update(snapshots=[]),
    "a step of text": lambda run: run.update(step="abc"),
    "an error of text": lambda run: run.update(error="x"),
    "steps that are no number": lambda run: run.update(steps=float("nan")),
    "a series without its steps": lambda run: run["series"]["loss"].update(at=1),
}
TEARS = {
    "no options": lambda state: state.update(options=None),
    "an option too many": lambda state: state["options"].update(more=1),
    "no data": lambda state: state.pop("X"),
    "nowhere": lambda state: state.update(here={}),
    "gradients of text": lambda state: state.update(gradients="x"),
    "few counts": lambda state: state.update(counts=[1]),
    "no record": lambda state: state.update(record=3),
    "no field": lambda state: state.update(field={}),
    "no keeper": lambda state: state.update(keeper={}),
    "no recording": lambda state: state.update(recording={}),
}


def tampered(path: Path, change: Any) -> Path:
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(arrays["header"].tobytes().decode())
    change(header["run"])
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    other = path.with_name("tampered.npz")
    np.savez(other, **arrays)
    return other


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model, X, y = small()
    gradient_descent(model, X, y, step=0.01, steps=4).save(tmp_path / "run.npz")
    return tmp_path / "run.npz"


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_record_that_no_run_writes_is_refused(saved: Path, damage: str) -> None:
    with pytest.raises(RecordError, match="damaged"):
        TrainingRun.load(tampered(saved, DAMAGES[damage]))


@pytest.mark.parametrize("tear", TEARS)
def test_a_torn_continuation_is_refused_and_the_rest_read(saved: Path, tear: str) -> None:
    other = tampered(saved, lambda run: TEARS[tear](run["continuation"]))
    assert TrainingRun.load(other).steps == 4
    with pytest.raises(RecordError, match="What the record holds to go on from is damaged"):
        resume(other, steps=8)
