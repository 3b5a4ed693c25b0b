"""Instance files: written and read back bit for bit, self-contained, the same margin on other processors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from replay_samples import CPU, ROOT, judged, record_of, sample_claim, sample_file, sample_instance, tensor

from ntk_deq.claims.claim import Claim
from ntk_deq.claims.load import load_suite
from ntk_deq.claims.statement import claim_file, differences, fingerprint
from ntk_deq.errors import ArgumentError, ClaimFileError
from ntk_deq.evaluation.instance import Instance
from ntk_deq.falsify import instance_at
from ntk_deq.files.yaml import to_yaml
from ntk_deq.verify import replay as rejudge
from ntk_deq.verify.judge import judge_instance, refutes
from ntk_deq.verify.replay import make_record, read_counterexample, replay, write_counterexample
from ntk_deq.verify.replay.record import RecordKind, write_record
from ntk_deq.verify.replay.values import number_text


def same(left: Instance, right: Instance) -> bool:
    values = all(
        left.values[k].shape == right.values[k].shape
        and left.values[k].numpy().tobytes() == right.values[k].numpy().tobytes()
        for k in left.values
    )
    return values and left.values.keys() == right.values.keys() and left.sizes == right.sizes


def test_a_file_says_everything_that_was_put_into_it(tmp_path: Path) -> None:
    claim = sample_claim(tmp_path)
    written = record_of(tmp_path / "found.yaml", claim)
    read = read_counterexample(tmp_path / "found.yaml")
    assert same(read.instance, written.instance)
    assert replace(read, claim=claim, instance=written.instance) == written
    assert read.kind is RecordKind.COUNTEREXAMPLE
    assert read.conclusion == "bound"
    assert read.claim.title == "The norm, halved"
    assert read.claim.source["authors"] == ["Ada", "Björn"]
    assert fingerprint(read.claim) == fingerprint(claim)
    assert read.precision == 128


EXTREMES = [5e-324, -5e-324, 2.2250738585072014e-308, 1e300, -1e300, 1.7976931348623157e308, -0.0, 0.1, 1 / 3, 2.0**53]


def test_extreme_values_come_back_bit_for_bit(tmp_path: Path) -> None:
    claim = sample_claim(tmp_path)
    record = record_of(tmp_path / "found.yaml", claim)
    extreme = sample_instance(A=[EXTREMES], M=5e-324, c=2.0**-1074 * 5)
    write_record(tmp_path / "extreme.yaml", replace(record, instance=extreme))
    assert same(read_counterexample(tmp_path / "extreme.yaml").instance, extreme)


@pytest.mark.parametrize("exponent", [-1074, -600, 0, 600, 1000])
def test_a_margin_of_any_magnitude_is_reproduced(tmp_path: Path, exponent: int) -> None:
    path = sample_file(
        tmp_path, A=tensor([[1.0, 0.0]]) * 2.0 ** (exponent // 2) * 2.0 ** (exponent - exponent // 2), M=2.0**1001
    )
    replayed = replay(read_counterexample(path))
    assert replayed.identical
    assert replayed.reproduced


def test_a_large_value_goes_into_an_archive_beside_the_file(tmp_path: Path) -> None:
    value = torch.randn(20, 21, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    value[0, 0] = -0.0
    path = sample_file(tmp_path, A=value, v=torch.ones(20, dtype=torch.float64), M=100.0)
    assert "npz: found.npz" in path.read_text(encoding="utf-8")
    with np.load(tmp_path / "found.npz", allow_pickle=False) as archive:
        assert archive.files == ["A"]
    record = read_counterexample(path)
    assert record.instance.values["A"].numpy().tobytes() == value.numpy().tobytes()
    assert replay(record).identical


def test_the_margin_is_judged_once_more_and_does_not_depend_on_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rejudge, "SMALL", 512)
    value = torch.randn(20, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    path = sample_file(tmp_path, A=torch.cat([value, value], 1), v=torch.ones(20, dtype=torch.float64), M=100.0)
    record = read_counterexample(path)
    assert record.precision is None  # too large for many bits
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert replay(record).identical
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_other_vector_units_and_libraries_give_the_same_bits(tmp_path: Path) -> None:
    value = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    path = sample_file(tmp_path, A=value, v=[0.3, 0.7, -1.1, 1e-9], M=100.0)
    # The oldest code paths that the libraries have: what a processor without AVX would run.
    old = {"MKL_CBWR": "COMPATIBLE", "ATEN_CPU_CAPABILITY": "default", "OPENBLAS_CORETYPE": "Prescott"}
    command = [sys.executable, "-c", "from ntk_deq.cli.main import run; run()", "replay", str(path)]
    done = subprocess.run(command, env={**os.environ, **old}, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bit for bit" in done.stdout


def test_every_claim_of_the_suite_can_be_written_down(tmp_path: Path) -> None:
    count = 0
    for file in ("checks/implicit_relu.yaml", "checks/mutants/matrix_facts.yaml", "tests/suite/false.yaml"):
        for claim in load_suite(ROOT / file).claims[::3]:
            if not isinstance(claim, Claim):
                continue
            path = tmp_path / "one.yaml"
            path.write_text(to_yaml(claim_file(claim)), encoding="utf-8")
            (again,) = load_suite(path).claims
            assert isinstance(again, Claim), again.problems
            assert differences(claim, again) == []
            assert fingerprint(again) == fingerprint(claim)
            count += 1
    assert count > 20


def test_a_near_miss_and_an_instance_outside_the_hypotheses(tmp_path: Path) -> None:
    claim = sample_claim(tmp_path)
    record = make_record(claim, judged(claim, sample_instance(A=[[0.0, 0.0]])), seed=0)
    assert record.kind is RecordKind.NEAR_MISS
    write_record(tmp_path / "near.yaml", record)
    assert replay(read_counterexample(tmp_path / "near.yaml")).reproduced
    outside = judged(claim, sample_instance(M=0.01))
    with pytest.raises(ArgumentError, match="must reach the conclusions"):
        make_record(claim, outside, seed=0)


def test_only_yaml_names_are_written(tmp_path: Path) -> None:
    claim = sample_claim(tmp_path)
    with pytest.raises(ArgumentError, match=r"must end with \.yaml\. Got found\.txt"):
        write_counterexample(tmp_path / "found.txt", claim, judged(claim, sample_instance()), seed=0)


def test_nothing_half_written_is_left(tmp_path: Path) -> None:
    claim = sample_claim(tmp_path)
    (tmp_path / "taken.yaml").mkdir()
    with pytest.raises(OSError, match="taken"):
        write_counterexample(tmp_path / "taken.yaml", claim, judged(claim, sample_instance()), seed=0)
    assert not list(tmp_path.glob("*.partial")) + list(tmp_path.glob(".*"))


def test_in_single_precision_the_file_replays_in_single_precision(tmp_path: Path) -> None:
    claim = sample_claim(tmp_path)
    instance = sample_instance(A=[[1 / 3, 0.1]])
    judgement = judge_instance(claim, instance, device=CPU, dtype=torch.float32)
    assert refutes(judgement)
    record = write_counterexample(tmp_path / "single.yaml", claim, judgement, seed=0, dtype=torch.float32)
    assert record.dtype == "float32"
    assert replay(read_counterexample(tmp_path / "single.yaml")).identical
    double = make_record(claim, judged(claim, instance), seed=0)
    assert double.margin != record.margin


def test_a_structured_setting_is_read_with_its_rounded_members(tmp_path: Path) -> None:
    claim = sample_claim(tmp_path, name="sample.squares")
    found = [instance_at(claim.settings[0], {}, index, 0) for index in range(1, 60, 2)]
    rounded = next(i for i in found if i.rounded and refutes(judged(claim, i)))
    path = tmp_path / "sample.squares.yaml"
    write_counterexample(path, claim, judged(claim, rounded), seed=0)
    read = read_counterexample(path)
    assert read.instance.rounded == rounded.rounded
    assert same(read.instance, rounded)
    assert replay(read).identical


DRAWS = """
suite: drawn
settings:
  s: {sizes: {N: 2, d: 3}, data: {X: "sphere[N, d]", c: 1/10}}
claims:
  - {id: f, setting: s, conclude: fro(X)^2 >= N + c^2}
"""


def test_a_draw_is_read_with_its_distance(tmp_path: Path) -> None:
    claim = sample_claim(tmp_path, DRAWS, "f")
    instance = instance_at(claim.settings[0], {}, 0, 0)
    assert instance.rounded.keys() == {"X", "c"}
    path = tmp_path / "f.yaml"
    write_counterexample(path, claim, judged(claim, instance), seed=0)
    read = read_counterexample(path)
    assert read.instance.rounded == instance.rounded
    assert replay(read).identical
    text = path.read_text()
    for pattern, other, message in (
        (r"c: 0x[^\n]*p-5[0-9]", "c: -1", "`rounded.c` must be a number >= 0"),
        (r"rounded:\n(  .*\n)+", "rounded: [X, c]\n", "must say how far the draw X may be off"),
    ):
        path.write_text(re.sub(pattern, other, text, count=1))
        with pytest.raises(ClaimFileError) as caught:
            read_counterexample(path)
        assert any(message in problem.message for problem in caught.value.problems)


def test_a_member_farther_from_its_domain_than_the_file_says_is_refused(tmp_path: Path) -> None:
    claim = sample_claim(tmp_path, name="sample.squares")
    found = [instance_at(claim.settings[0], {}, index, 0) for index in range(1, 60, 2)]
    rounded = next(i for i in found if i.rounded and refutes(judged(claim, i)))
    path = tmp_path / "sample.squares.yaml"
    write_counterexample(path, claim, judged(claim, rounded), seed=0)
    name, off = next(iter(rounded.rounded.items()))
    text = path.read_text()
    assert number_text(off) in text
    path.write_text(text.replace(number_text(off), number_text(off / 2), 1))
    with pytest.raises(ClaimFileError) as caught:
        read_counterexample(path)
    assert f"`values.{name}` does not lie in its domain" in caught.value.problems[0].message
    listed = re.sub(r"rounded:\n(  .*\n)+", f"rounded: [{', '.join(rounded.rounded)}]\n", text)
    path.write_text(listed)
    assert read_counterexample(path).instance.rounded == rounded.rounded


SYSTEMS = """
suite: systems
systems:
  left-out:
    variables: {W: {shape: "[n, n]", role: parameter}, c: {shape: "[n]", role: input}}
    equilibrium: {z: "relu(W*z + c) - softplus(W'*z)/2"}
  monotone:
    reference: a paper
    variables: {W: {shape: "[n, n]", role: parameter, domain: skew}, c: {shape: "[n, N]", role: input}}
    equilibrium: {z: "relu(3*W*z + c)"}
    monotone: 1/2
  without:
    variables: {c: {shape: "[n]", role: parameter}}
    define: {z: 2*c}
settings:
  left-out: {model: left-out, sizes: {n: 2}}
  monotone: {model: monotone, sizes: {n: 2, N: 2}}
  without: {model: without, sizes: {n: 2}}
claims: [{id: S, setting: NAME, conclude: fro(z) <= 0}]
"""


@pytest.mark.parametrize("name", ["left-out", "monotone", "without"])
def test_a_file_carries_its_system(tmp_path: Path, name: str) -> None:
    (tmp_path / "claims.yaml").write_text(SYSTEMS.replace("NAME", name))
    (claim,) = load_suite(tmp_path / "claims.yaml").claims
    found = (judge_instance(claim, instance_at(claim.settings[0], {}, k, 0), device=CPU) for k in range(20))
    broken = next(judgement for judgement in found if refutes(judgement))
    path = tmp_path / "out.yaml"
    write_counterexample(path, claim, broken, seed=0, dtype=torch.float64, device=CPU)
    (tmp_path / "claims.yaml").unlink()
    replayed = replay(read_counterexample(path))
    assert replayed.record.claim.settings[0].model == claim.settings[0].model
    assert replayed.reproduced
    assert replayed.identical
