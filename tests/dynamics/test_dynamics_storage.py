"""Records as files: whole or not at all, data only, and what a kill leaves behind."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import subprocess
import sys
import textwrap
import zipfile

import numpy as np
import pytest
import torch
from dynamics_samples import drawn

from ntk_deq import files
from ntk_deq.dynamics import (
    CheckpointWarning,
    Recorder,
    RecordError,
    RunStatus,
    TrainingRun,
    every,
    gradient_descent,
    resume,
    storage,
)
from ntk_deq.errors import ArgumentError
from ntk_deq.systems import ImplicitReLU

RECORD = ["norm", "displacement"]


class KilledError(Exception):
    """Stands for a signal that ends the process."""


def kill_at(k):
    def on_step(step, point):
        if step == k:
            raise KilledError

    return on_step


def same(one, two):
    """Equal bit by bit, but for the time taken."""
    for field in dataclasses.fields(TrainingRun):
        if field.name not in ("snapshots", "series", "continuation", "seconds", "detail", "settings"):
            assert getattr(one, field.name) == getattr(two, field.name), field.name
    for a, b in zip(one.snapshots, two.snapshots, strict=True):
        assert (a.at, a.loss, a.path, a.path_length) == (b.at, b.loss, b.path, b.path_length)
        assert all(torch.equal(a.parameters[name], b.parameters[name]) for name in b.parameters)
    assert one.series.keys() == two.series.keys()
    for name, series in two.series.items():
        assert torch.equal(one[name].at, series.at)
        assert torch.equal(one[name].values, series.values)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.npz"


@pytest.fixture
def run(relu):
    return gradient_descent(*relu, step=0.02, steps=30, record=RECORD)


def rewritten(path, change):
    """Change the header of a record."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(arrays["header"].tobytes())
    change(header)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(path, **arrays)


class TestFiles:
    def test_round_trip(self, run, path):
        run.save(path)
        read = TrainingRun.load(path)
        same(read, run)
        assert read.settings == run.settings
        assert (read.detail, read.seconds) == (run.detail, run.seconds)
        assert [entry.name for entry in path.parent.iterdir()] == ["run.npz"]

    def test_a_record_without_continuation(self, run, path):
        run.slice(0, 20).save(path)
        assert TrainingRun.load(path).continuation is None

    def test_text_paths(self, run, path):
        run.save(str(path))
        same(TrainingRun.load(str(path)), run)

    def test_saved_runs_go_on(self, relu, run, path):
        run.save(path)
        whole = gradient_descent(*relu, step=0.02, steps=80, record=RECORD)
        same(resume(path, steps=80), whole)
        same(TrainingRun.load(path), whole)  # the file was kept up to date

    @pytest.mark.parametrize("of", ["A", "W", "X", "y"])
    def test_saved_runs_of_columns_go_on(self, path, of):
        generator = torch.Generator().manual_seed(0)

        def normal(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        given = {"A": torch.linalg.qr(normal(32, 32))[0].contiguous(), "W": normal(4, 32), "b": normal(32) / 4}
        given |= {"X": normal(30, 4), "y": normal(30)}
        given[of] = given[of].T.contiguous().T if of != "y" else torch.stack([given[of]] * 2, 1)[:, 0]
        assert not given[of].is_contiguous()
        X, y = given.pop("X"), given.pop("y")
        model = ImplicitReLU(**given, gamma=0.9)
        whole = gradient_descent(model, X, y, step=1e-5, steps=40, until=0.0)
        gradient_descent(model, X, y, step=1e-5, steps=20, until=0.0).save(path)
        same(resume(path, steps=40), whole)

    @pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9, 0.999])
    def test_cut_off(self, run, path, share):
        run.save(path)
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(RecordError, match="damaged, cut off, or no record"):
            TrainingRun.load(path)

    def test_flipped_bits(self, run, path):
        run.save(path)
        content = bytearray(path.read_bytes())
        place = len(content) // 2
        content[place : place + 64] = bytes(64)
        path.write_bytes(content)
        with pytest.raises(RecordError, match="damaged"):
            TrainingRun.load(path)

    @pytest.mark.parametrize("number", [0, 2, "1", None])
    def test_another_format(self, run, path, number):
        run.save(path)
        rewritten(path, lambda header: header.update(format=number, version="9.0"))
        before = path.read_bytes()
        for read in (TrainingRun.load, resume):
            with pytest.raises(RecordError, match=r"has the format .* \(written by ntk_deq 9\.0\)"):
                read(path)
        assert path.read_bytes() == before

    @pytest.mark.parametrize("device", ["cuda:1", "cuda:64", "cuda:-1", "cuda:x", "cudaXYZ", "cuda", "mps:0"])
    def test_a_device_that_is_not_there(self, run, path, device, monkeypatch):
        run.save(path)
        rewritten(path, lambda header: _on(header["run"], device))
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        same(TrainingRun.load(path), run)

    def test_another_file(self, path):
        np.savez(path, W=np.eye(2))
        with pytest.raises(RecordError, match="no record of a training run"):
            TrainingRun.load(path)
        np.savez(path, header=np.frombuffer(b'{"kind": "else"}', dtype=np.uint8))
        with pytest.raises(RecordError, match="no record of a training run"):
            TrainingRun.load(path)

    def test_unknown_and_missing_fields(self, run, path):
        for change in (lambda h: h["run"].update(more=1), lambda h: h["run"].pop("status")):
            run.save(path)
            rewritten(path, change)
            with pytest.raises(RecordError, match="damaged"):
                TrainingRun.load(path)

    def test_no_pickle_is_opened(self, path):
        class Bomb:
            def __reduce__(self):
                return os.abort, ()

        np.savez(path, header=np.array([Bomb()], dtype=object))
        with pytest.raises(RecordError):
            TrainingRun.load(path)

    def test_compressed_files_are_refused(self, path):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("header.npy", bytes(100_000))
        with pytest.raises(RecordError, match="compressed"):
            TrainingRun.load(path)

    def test_the_name_that_stands_for_tensors(self, run, path):
        named = dataclasses.replace(run, settings={**run.settings, "__tensor__": 1})
        with pytest.raises(RecordError, match="Nothing in a record can be called '__tensor__'"):
            named.save(path)
        assert not path.exists()

    def test_names(self, run, tmp_path):
        with pytest.raises(RecordError, match=r"must end in \.npz"):
            run.save(tmp_path / "run.pt")
        with pytest.raises(RecordError, match="There is no record at"):
            TrainingRun.load(tmp_path / "missing.npz")
        with pytest.raises(RecordError, match="cannot be written"):
            run.save(tmp_path / "missing" / "run.npz")
        assert list(tmp_path.iterdir()) == []


def _on(value, device):
    """Say of every tensor in a header that it was on a device."""
    if isinstance(value, dict) and "__tensor__" in value:
        value["device"] = device
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _on(part, device)


def full(descriptor):
    raise OSError(errno.ENOSPC, "No space left on device")


class TestFullDisk:
    def test_save(self, run, path, monkeypatch):
        run.save(path)
        before = path.read_bytes()
        monkeypatch.setattr(files.os, "fsync", full)
        with pytest.raises(RecordError, match="No space left on device"):
            run.save(path)
        assert path.read_bytes() == before
        assert [entry.name for entry in path.parent.iterdir()] == ["run.npz"]

    def test_killed_while_writing(self, run, path, monkeypatch):
        run.save(path)
        before = path.read_bytes()

        def killed(stream, arrays):
            stream.write(b"half of it")
            raise KeyboardInterrupt

        monkeypatch.setattr(storage, "write_archive", killed)
        with pytest.raises(KeyboardInterrupt):
            run.save(path)
        assert path.read_bytes() == before

    def test_checkpoints_are_given_up_and_the_run_is_not(self, relu, path, monkeypatch):
        whole = gradient_descent(*relu, step=0.02, steps=30)
        monkeypatch.setattr(files.os, "fsync", full)
        with pytest.warns(CheckpointWarning, match=r"No checkpoint at step .*No space left on device"):
            run = gradient_descent(*relu, step=0.02, steps=30, checkpoint=path, checkpoint_every=0)
        same(run, whole)
        assert list(path.parent.iterdir()) == []


class TestCheckpoints:
    @pytest.mark.parametrize("k", [1, 2, 3, 17, 29])
    def test_a_killed_run_goes_on_bit_by_bit(self, problem, path, k):
        model, X, y = problem
        whole = gradient_descent(model, X, y, step=0.02, steps=30, record=RECORD, snapshots=12)
        with pytest.raises(KilledError):
            gradient_descent(
                model, X, y, step=0.02, steps=30, record=RECORD, snapshots=12,
                checkpoint=path, checkpoint_every=0, on_step=kill_at(k),
            )  # fmt: skip
        left = TrainingRun.load(path)
        assert (left.status, left.steps) == (RunStatus.INTERRUPTED, k - 1)
        same(resume(path), whole)

    def test_killed_twice(self, relu, path):
        whole = gradient_descent(*relu, step=0.02, steps=30)
        with pytest.raises(KilledError):
            gradient_descent(*relu, step=0.02, steps=30, checkpoint=path, checkpoint_every=0, on_step=kill_at(10))
        with pytest.raises(KilledError):
            resume(path, checkpoint_every=0, on_step=kill_at(20))
        same(resume(path), whole)

    def test_killed_by_the_system(self, path):
        code = f"""
            import os, signal, sys
            sys.path.insert(0, {os.path.dirname(__file__)!r})
            import torch
            torch.set_num_threads(1)
            from dynamics_samples import drawn
            from ntk_deq.dynamics import gradient_descent
            def stop(k, point):
                if k == 12:
                    os.kill(os.getpid(), signal.SIGKILL)
            gradient_descent(*drawn("implicit-relu"), step=0.02, steps=30, checkpoint={str(path)!r},
                             checkpoint_every=0, on_step=stop)
        """
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
        assert done.returncode != 0
        whole = gradient_descent(*drawn("implicit-relu"), step=0.02, steps=30)
        same(resume(path), whole)

    def test_the_end_is_written(self, relu, path):
        run = gradient_descent(*relu, step=0.02, steps=30, checkpoint=path)
        same(TrainingRun.load(path), run)

    def test_another_runs_file_is_not_written_over(self, relu, run, path):
        run.save(path)
        with pytest.raises(ArgumentError, match="must be a file that does not exist yet"):
            gradient_descent(*relu, step=0.02, checkpoint=path)
        with pytest.raises(ArgumentError, match=r"must be the name of an \.npz file"):
            gradient_descent(*relu, step=0.02, checkpoint=path.with_suffix(".pt"))

    def test_own_recorders_must_be_given_again(self, relu, path):
        largest = Recorder("largest", lambda seen: seen.point.residual.abs().max(), every(2))
        options = {"step": 0.02, "record": ["norm", largest]}
        whole = gradient_descent(*relu, steps=30, **options)
        gradient_descent(*relu, steps=11, **options).save(path)
        with pytest.raises(ArgumentError, match="must hold the run's own recorders, largest"):
            resume(path, steps=30)
        same(resume(path, steps=30, record=[largest]), whole)

    def test_own_models_must_be_given_again(self, relu, path):
        class Mine(ImplicitReLU):
            pass

        model, X, y = relu
        mine = Mine(**model.parameters(), gamma=model.gamma)
        whole = gradient_descent(mine, X, y, step=0.02, steps=30)
        gradient_descent(mine, X, y, step=0.02, steps=11).save(path)
        with pytest.raises(ArgumentError, match="`model` of resume must be given"):
            resume(path, steps=30)
        same(resume(path, steps=30, model=mine), whole)
