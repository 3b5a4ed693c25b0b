"""Records that somebody changed: whatever stands in one, loading it and going on with it ends, in our own errors."""

import copy
import json
import signal
import zlib
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from ntk_deq.dynamics import RecordError, TrainingRun, gradient_descent, gradient_flow, resume
from ntk_deq.errors import NtkDeqError

ODD = [None, True, -1, 0, 2.5, 10**400, 1e308, float("nan"), float("inf"), -0.0, "", "x", [], {}, [0], {"a": 1}]

EVERY = pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.long)])


class HangError(Exception):
    """A call took too long."""


@contextmanager
def within(seconds):
    def ring(number, frame):
        raise HangError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=["gradient-descent", "gradient-flow"])
def stored(request, relu, tmp_path):
    path = tmp_path / "run.npz"
    if request.param == "gradient-descent":
        run = gradient_descent(*relu, step=0.02, steps=4, record=["norm"], keep=[2], snapshots=4)
    else:
        run = gradient_flow(*relu, horizon=0.1, snapshots=3, record=["norm"])
    run.save(path)
    return path


def parts(path):
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return arrays, json.loads(arrays.pop("header").tobytes())


def write(path, arrays, header):
    np.savez(path, **arrays, header=np.frombuffer(json.dumps(header).encode(), dtype=np.uint8))


def places(value, path=()):
    """Every place in a header, as the keys that lead there."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def used(path):
    """Load a record, print it and go on with it, which may fail in our own ways only."""
    try:
        with within(10):
            run = TrainingRun.load(path)
            repr(run), run._repr_html_(), run["loss"], run.parameters
            flow = run.method == "gradient-flow"
            resume(run, **({"horizon": 0.12} if flow else {"steps": 8}))
    except NtkDeqError:
        return False
    return True


def test_as_it_was_it_goes_on(stored):
    assert used(stored)


@EVERY
def test_values_of_a_header(stored, every):
    arrays, header = parts(stored)
    for place in list(places(header))[::every]:
        changed = copy.deepcopy(header)
        at = changed
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] = ODD[zlib.crc32(repr(place).encode()) % len(ODD)]  # another one for each place
        write(stored, arrays, changed)
        used(stored)


@EVERY
def test_arrays_of_a_record(stored, every):
    arrays, header = parts(stored)
    for name, array in list(arrays.items())[::every]:
        for other in (array.ravel()[:0], array.ravel()[:1], array.astype("f4"), array.astype("i8"), array * np.nan,
                      array + 1e300, array[None], np.array("x"), array.astype("c16")):  # fmt: skip
            write(stored, {**arrays, name: other}, header)
            used(stored)
        write(stored, {key: value for key, value in arrays.items() if key != name}, header)
        with pytest.raises(RecordError, match="damaged"):
            TrainingRun.load(stored)


def test_work_that_is_no_number(relu, tmp_path):
    """A solver that expects NaN iterations would never look at its residual."""
    path = tmp_path / "run.npz"
    gradient_descent(*relu, step=0.02, steps=4).save(path)
    arrays, header = parts(path)
    for odd in (float("nan"), float("inf"), 10**12, 0, -1, 2.5):
        header["run"]["continuation"]["field"]["forward"]["expected"] = odd
        write(path, arrays, header)
        with pytest.raises(RecordError, match="`expected` must be a"), within(10):
            resume(path, steps=8)


def test_a_record_in_memory_is_checked_as_well(relu):
    run = gradient_descent(*relu, step=0.02, steps=4)
    run.continuation["field"]["forward"]["states"] = [torch.ones(1, 1)]
    with pytest.raises(RecordError, match="damaged"):
        resume(run, steps=8)
