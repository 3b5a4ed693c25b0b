"""Claims that float64 balls leave open and more bits decide, from the file to the report."""

import dataclasses
import json
from pathlib import Path

import flint
import pytest
import torch

from ntk_deq.claims.claim import Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.cli.main import main
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Truth
from ntk_deq.report import second_look
from ntk_deq.verify import refine
from ntk_deq.verify.judge import Standing, judge_instance
from ntk_deq.verify.results import Evidence
from ntk_deq.verify.runner import Options, judge

CPU = torch.device("cpu")

# a'a + I has the eigenvalue 1 on the complement of a: exactly 1 is the smallest singular value, for every a. With an
# exponential on either side exact arithmetic has no say in it, and only bits help.
FILE = """
suite: close calls
settings:
  rows:
    sizes: {n: 2..3}
    domain: {a: "real[1, n]"}
  networks:
    model: implicit-relu
    sizes: {N: 1..2, d: 1..2, m: 1..2}
    domain: {W: real, A: real, b: real, X: real, y: real, gamma: "(0, 1)"}
claims:
  - id: close.true
    title: A bound just below
    setting: rows
    assume: {filled: min(abs(a)) > 0}
    conclude: sigma_min(a'*a + I(n)) + exp(1) > 1 - 1e-22 + exp(1)
  - id: close.false
    title: A bound just above
    setting: rows
    expect: refuted
    assume: {filled: min(abs(a)) > 0}
    conclude: sigma_min(a'*a + I(n)) + exp(1) > 1 + 1e-22 + exp(1)
  - id: close.equal
    title: An equality said to be strict
    setting: rows
    expect: undecided
    assume: {filled: min(abs(a)) > 0}
    conclude: exp(1)^2*norm(a) > exp(2)*norm(a)
  - id: close.algebraic
    title: An equality of roots said to be strict, which exact arithmetic decides
    setting: rows
    expect: refuted
    assume: {filled: min(abs(a)) > 0}
    conclude: sqrt(2)*sqrt(3)*norm(a) > sqrt(6)*norm(a)
  - id: close.representable
    title: A strict inequality that is an equality between floats
    setting: rows
    expect: refuted
    assume: {filled: min(abs(a)) > 0}
    conclude: sigma_min(a'*a + I(n)) > 1
  - id: close.hypothesis
    title: A hypothesis that only more bits decide
    setting: rows
    assume: {filled: min(abs(a)) > 0, close: sigma_min(a'*a + I(n)) + exp(1) > 1 - 1e-22 + exp(1)}
    conclude: norm(a) > 0
  - id: close.equilibrium
    title: An equilibrium satisfies its equation to more digits than floats have
    setting: networks
    assume: {well-posed: gamma*norm(A) < 1}
    conclude: fro(Z - next(Z)) < 1e-25
"""


@pytest.fixture(scope="module")
def claims(tmp_path_factory):
    path = tmp_path_factory.mktemp("close") / "close.yaml"
    path.write_text(FILE, encoding="utf-8")
    return {claim.id: claim for claim in load_suite(path).claims}


def judged(claim, precision, **options):
    return judge(claim, Options(instances=12, search=0, precision=precision, **options))


@pytest.mark.parametrize(
    ("name", "coarse", "fine"),
    [
        ("close.true", Verdict.UNDECIDED, Verdict.HOLDS),
        ("close.false", Verdict.UNDECIDED, Verdict.REFUTED),
        ("close.equal", Verdict.UNDECIDED, Verdict.UNDECIDED),
        ("close.hypothesis", Verdict.UNDECIDED, Verdict.HOLDS),
        ("close.equilibrium", Verdict.UNDECIDED, Verdict.HOLDS),
    ],
)
def test_more_bits_decide_what_floats_leave_open_and_no_more(claims, name, coarse, fine):
    first, again = judged(claims[name], 53), judged(claims[name], 128)
    assert (first.verdict, again.verdict) == (coarse, fine), (first.reason, again.reason)
    assert (first.refined, first.settled) == (0, 0)
    assert again.refined > 0
    assert again.precision == 128
    assert (again.settled > 0) is (fine is not Verdict.UNDECIDED)
    if fine is not Verdict.UNDECIDED:
        assert again.evidence is Evidence.CERTIFIED


def test_a_strict_equality_stays_open_at_any_precision(claims):
    result = judged(claims["close.equal"], 1024)
    assert result.verdict is Verdict.UNDECIDED
    assert result.settled == 0
    assert result.conclusions[0].false == result.conclusions[0].true == 0


@pytest.mark.parametrize("bits", [64, 128, 1024])
def test_an_equality_of_roots_is_refuted_by_exact_arithmetic(claims, bits):
    result = judged(claims["close.algebraic"], bits)
    assert result.verdict is Verdict.REFUTED
    assert (result.counterexample.margin.lo, result.counterexample.margin.hi) == (0.0, 0.0)
    assert result.exact > 0
    assert result.conclusions[0].true == 0
    assert judged(claims["close.algebraic"], 53).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("bits", [64, 128, 192, 1024])
def test_a_representable_equality_is_refuted_by_a_margin_of_exactly_zero(claims, bits):
    result = judged(claims["close.representable"], bits)
    assert result.verdict is Verdict.REFUTED
    assert (result.counterexample.margin.lo, result.counterexample.margin.hi) == (0.0, 0.0)
    assert result.conclusions[0].true == 0


def test_a_refutation_needs_bits_enough_for_its_margin(claims):
    result = judged(claims["close.false"], 64)
    assert result.verdict is Verdict.UNDECIDED
    assert judged(claims["close.false"], 256).verdict is Verdict.REFUTED
    margin = judged(claims["close.false"], 128).counterexample.margin
    assert -1.01e-22 < margin.lo <= margin.hi < -0.99e-22


def test_judging_again_gives_the_same_result(claims):
    one, two = (dataclasses.replace(judged(claims["close.false"], 128), seconds=0.0) for _ in range(2))
    assert one == two
    assert flint.ctx.prec == 128


def test_float32_instances_are_judged_as_the_floats_they_became(claims):
    result = judged(claims["close.true"], 128, dtype=torch.float32)
    assert result.verdict is Verdict.HOLDS
    assert result.settled > 0


def row(values):
    tensor = torch.tensor([values], dtype=torch.float64)
    return Instance("rows", "by hand", {"n": len(values)}, {"a": tensor}, 0)


def test_a_decided_instance_is_not_judged_again(claims):
    refiner = refine.Refiner(claims["close.hypothesis"], 128)
    unmet = judge_instance(claims["close.hypothesis"], row([0.0, 1.0]), device=CPU)
    assert unmet.standing is Standing.UNMET
    assert refiner.refine(unmet) is unmet
    assert refiner.tried == 0


def test_the_caps(claims, monkeypatch):
    open_one = judge_instance(claims["close.equal"], row([1.0, 2.0]), device=CPU)
    assert open_one.conclusions["conclusion"].truth is Truth.STRICT_TIGHT
    refiner = refine.Refiner(claims["close.equal"], 128)
    for _ in range(refine.HOPELESS + 5):
        assert refiner.refine(open_one) is open_one
    assert refiner.tried == refine.HOPELESS
    monkeypatch.setattr(refine, "MOST", 2)
    settling = judge_instance(claims["close.true"], row([1.0, 2.0]), device=CPU)
    refiner = refine.Refiner(claims["close.true"], 128)
    outcomes = [refiner.refine(settling) is not settling for _ in range(4)]
    assert outcomes == [True, True, False, False]
    monkeypatch.setattr(refine, "SMALL", 1)
    assert refine.Refiner(claims["close.true"], 128).refine(settling) is settling


def test_judgements_that_contradict_each_other_are_an_error(claims, monkeypatch):
    claim = claims["close.true"]
    first = judge_instance(claim, row([1.0, 2.0]), device=CPU)
    certain = dataclasses.replace(first.hypotheses["filled"], truth=Truth.FALSE)
    wrong = dataclasses.replace(first, hypotheses={"filled": certain})
    with pytest.raises(RuntimeError, match="a bound is wrong"):
        refine.Refiner(claim, 128).refine(wrong)


def test_the_precision_is_restored_where_judging_fails(claims, monkeypatch):
    def broken(*args, **kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr("ntk_deq.verify.judge._judge", broken)
    with pytest.raises(ZeroDivisionError):
        judge_instance(claims["close.true"], row([1.0, 2.0]), device=CPU, precision=512)
    assert flint.ctx.prec == 128


def test_the_reports_say_so(tmp_path, capsys):
    path = tmp_path / "close.yaml"
    path.write_text(FILE.replace("expect: undecided", "expect: holds"), encoding="utf-8")
    words = ["--instances", "12", "--search", "0", "--precision", "192", "--out", str(tmp_path / "out")]
    code = main([str(path), *words])
    lines = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    entry = next(line for line in lines if line["id"] == "close.true")
    assert (entry["verdict"], entry["precision"]) == ("holds", 192)
    assert 0 < entry["settled"] <= entry["refined"]
    said = "evaluated again at 192 bits, which decided"
    assert said in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{said} none of them" in shown  # of the claim that is against expectation, the only one with details
    assert code == 6


@pytest.mark.parametrize("bits", ["52", "4097", "many"])
def test_the_command_line_refuses_other_precisions(bits, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["claims.yaml", "--precision", bits])
    assert stopped.value.code == 4
    assert "whole number" in capsys.readouterr().err


def test_the_words(claims):
    result = judged(claims["close.true"], 53)
    assert second_look(result) == ""
    one = dataclasses.replace(result, refined=1, settled=0, precision=128)
    assert second_look(one) == "1 instance was evaluated again at 128 bits, which decided none of them"
    many = dataclasses.replace(result, refined=9, settled=7, precision=256)
    assert second_look(many) == "9 instances were evaluated again at 256 bits, which decided 7 of them"


def test_two_sides_near_zero_where_a_hypothesis_is_open():
    """z1 = 2/3 is no float: only exact arithmetic sees that the loss is 0, as `L <= 0` asks; then 0 <= 0 is left."""
    claims = load_suite(Path(__file__).parents[2] / "checks/implicit_relu_training_steps.yaml").claims
    claim = next(claim for claim in claims if claim.id == "R.T4.4b.42-decay")
    values = {"W": [[1, 0, 0]], "A": [[-1, -1, 1], [0, 0, 0], [0, 0, 0]], "b": [1, 1, 1], "X": [[1]], "y": [1]}
    numbers = {"gamma": 0.5, "C1": 0, "C2": 0, "C3": 0, "alpha0": 1, "eta": 1, "s": 0, "r": 0}
    tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in {**values, **numbers}.items()}
    first = judge_instance(claim, Instance("region", "given", {"N": 1, "d": 1, "m": 3}, tensors, 0), device=CPU)
    assert first.standing is Standing.UNSURE
    refined = refine.Refiner(claim, 128).refine(first)
    assert refined.standing is Standing.MET
    assert [outcome.truth for outcome in refined.conclusions.values()] == [Truth.NEAR_ZERO]
    # An instance that does not meet it is not let in: one unit more of y, and the loss is 1/2.
    off = {**tensors, "y": torch.tensor([2.0], dtype=torch.float64)}
    other = judge_instance(claim, Instance("region", "given", {"N": 1, "d": 1, "m": 3}, off, 0), device=CPU)
    assert refine.Refiner(claim, 128).refine(other).standing is Standing.UNMET
