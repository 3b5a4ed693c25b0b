"""The smallest size or scalar that meets the hypotheses: found, bisected, and honest where there is none."""

import json

import pytest
import torch

from ntk_deq import cli as exit_codes
from ntk_deq.claims.load import load_suite
from ntk_deq.cli.main import main
from ntk_deq.verify.results import FindingKind
from ntk_deq.verify.runner import Options, judge
from ntk_deq.verify.smallest import check_names

torch.set_num_threads(1)

FILE = """
suite: smallest
settings:
  plain:
    sizes: {m: 1..20, n: 3}
    domain: {A: "real[m, m]", c: positive, t: real}
  drawn:
    sizes: {m: 1..40}
    init: {v: "beta*ones[m]"}
  spread:
    sizes: {m: 2}
    init: {v: "normal(0, beta - 1)"}
  ones:
    sizes: {m: 1..40}
    init: {v: "ones[m]"}
claims:
  - {id: size, setting: plain, assume: {big: 2*m > 13}, conclude: "norm(A) >= 0"}
  - {id: size.rest, setting: plain, assume: {big: m*n >= 21 and c >= 1 and trace(A) >= c}, conclude: "norm(A) >= 0"}
  - {id: size.none, setting: plain, assume: {big: m >= 21}, conclude: "norm(A) >= 0"}
  - {id: scalar, setting: plain, assume: {big: c >= 3 and trace(A) >= c}, conclude: "norm(A) >= 0"}
  - {id: scalar.negative, setting: plain, assume: {big: t >= -5}, conclude: "norm(A) >= 0"}
  - {id: scalar.none, setting: plain, assume: {big: c <= -1}, conclude: "norm(A) >= 0"}
  - {id: width, setting: drawn, given: {beta: positive}, choose: {minimize: beta}, assume: {big: "norm(v)^2 >= 16",
     small: beta <= 1}, conclude: "norm(v) >= 0"}
  - {id: gaps, setting: plain, assume: {big: (m - 5)^2*(m - 13)^2 <= 0 or m >= 19}, conclude: "norm(A) >= 0"}
  - {id: whole, setting: ones, given: {q: integer 1..40}, assume: {big: q >= 17}, conclude: "q*norm(v) >= 0",
     choose: {minimize: q}}
  - {id: across, setting: plain, assume: {big: t^2 >= 4 and t >= -10 and (t >= 0 or t <= -7)},
     conclude: "norm(A) >= 0"}
  - {id: spread, setting: spread, given: {beta: "[1, 20)"}, assume: {any: norm(v) >= 0}, conclude: "norm(v) >= 0"}
  - {id: scale.within, setting: drawn, given: {beta: "[12, 20)"}, assume: {big: norm(v) >= 9}, conclude: "norm(v) >= 0"}
  - {id: scale, setting: drawn, given: {beta: positive}, assume: {big: norm(v) >= 10*sqrt(m)}, conclude: "norm(v) >= 0"}
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text(FILE)
    return path


def found(path, claim_id, *names, **options):
    (claim,) = (c for c in load_suite(str(path)).claims if c.id == claim_id)
    findings = judge(claim, Options(smallest=names, **{"instances": 30, "search": 100, **options})).findings
    assert all(finding.kind is FindingKind.SMALLEST for finding in findings)
    return findings


@pytest.mark.parametrize(("claim_id", "value"), [("size", 7), ("size.rest", 7), ("width", 16), ("gaps", 5)])
def test_the_smallest_size_is_found_by_bisection(path, claim_id, value):
    (finding,) = found(path, claim_id, "m", search=20)
    assert finding.detail["value"] == value
    assert finding.detail["sizes"]["m"] == value
    assert f"the smallest m that met the hypotheses is {value}: " in finding.text
    assert f"at {value - 1} none of " in finding.text


def test_no_size_of_the_range_is_said_so(path):
    (finding,) = found(path, "size.none", "m", search=20)
    assert finding.text == "no m among 1 to 9, 11, 15, 20 met the hypotheses, with 30 instances for each"
    assert finding.detail["value"] is None


@pytest.mark.parametrize(
    ("claim_id", "name", "low", "high"),
    [
        ("scalar", "c", 3, 3.1),
        ("scalar.negative", "t", -5, -4.5),
        ("scale", "beta", 10, 10.2),
        ("scale.within", "beta", 12, 12.2),
        ("spread", "beta", 1, 1.05),
        ("whole", "q", 17, 17),
        ("across", "t", -10, -9.8),
    ],
)
def test_the_smallest_scalar_is_near_the_least_one(path, claim_id, name, low, high):
    (finding,) = found(path, claim_id, name)
    assert low <= finding.detail["value"] <= high
    assert low <= finding.detail["scalars"][name] <= high


def test_no_scalar_is_said_so(path):
    (finding,) = found(path, "scalar.none", "c")
    assert finding.text.startswith("no c that met the hypotheses was found, with 30 instances and searches")


def test_a_range_that_begins_there(path):
    (finding,) = found(path, "scale", "m")
    assert finding.text.endswith("; its range begins there")


def test_names_of_other_claims_are_passed_over(path):
    assert found(path, "size", "beta") == ()


def test_the_time_limit_ends_it(path):
    (finding,) = found(path, "scalar", "c", time_limit=1e-9)
    assert "the time limit ran out; nothing had met the hypotheses by then" in finding.text


def test_a_name_that_no_claim_has(path):
    claims = load_suite(str(path)).claims
    with pytest.raises(ValueError, match=r"`--smallest` takes sizes with a range.*: beta, c, m, q, t. Got 'n'"):
        check_names(claims, ["m", "n"])


def test_the_command(path, tmp_path, capsys):
    arguments = [
        str(path),
        "-k",
        "width",
        "--no-store",
        "--out",
        str(tmp_path / "out"),
        "--instances",
        "30",
        "--search",
        "100",
        "--smallest",
    ]
    assert main([*arguments, "m, beta"]) == exit_codes.EXIT_OK
    shown = " ".join(capsys.readouterr().out.split())
    assert "finding: the smallest m that met the hypotheses is 16: " in shown
    written = json.loads((tmp_path / "out" / "results.jsonl").read_text())["findings"]
    assert [finding["kind"] for finding in written] == ["smallest", "smallest"]
    assert main([*arguments, "k"]) == exit_codes.EXIT_USAGE
    with pytest.raises(SystemExit):
        main([*arguments, ","])
    assert (tmp_path / "out" / "results.jsonl").read_text()  # nothing is lost by a command that cannot run
