"""Settings whose variables are numbers that an experiment stored."""

import pytest

from ntk_deq.claims.load import load_suite
from ntk_deq.files.results import Producer, write_results
from ntk_deq.verify.results import Evidence, Verdict
from ntk_deq.verify.runner import Options, judge

CLAIMS = """
suite: s
settings:
  stored: {results: RESULTS}
claims:
  - id: E
    title: fewer steps
    setting: stored
    conclude: CONCLUDE
"""


@pytest.fixture
def claim(tmp_path):
    folder = tmp_path / "results"
    values = {"small": [8, 9, 10.5], "large": [60.0, 60, 60], "one": 0.1, "tenth": 0.1, "table": [[1, 2], [3, 4]]}
    more = {"gap": [1.0, None], "long": [0.0] * 300, "deep": [[[1.0]]]}
    write_results(folder / "r.json", Producer("figures.x", {}, "0.1.0", "b" * 64), values | more)

    def loaded(conclude="small < large", results="results/r.json", extra=""):
        file = tmp_path / "c.yaml"
        text = CLAIMS.replace("RESULTS", results).replace("CONCLUDE", f'"{conclude}"')
        file.write_text(text + extra)
        (found,) = load_suite(file).claims
        return found

    return loaded


@pytest.mark.parametrize(
    ("conclude", "verdict"),
    [
        ("small < large", Verdict.HOLDS),
        ("large < small", Verdict.REFUTED),
        ("small{2} == 9", Verdict.HOLDS),
        ("small{3} <= 10.4", Verdict.REFUTED),
        ("one < 1/9", Verdict.HOLDS),
        ("one == tenth", Verdict.HOLDS),
        ("table{2, 1} > table{1, 2}", Verdict.HOLDS),
        ("det(table) == -2", Verdict.HOLDS),
    ],
)
def test_stored_numbers_are_judged_as_they_are_written(claim, conclude, verdict):
    result = judge(claim(conclude), Options(instances=10, search=10))
    assert result.verdict is verdict
    assert result.evidence is Evidence.NUMERIC  # never certified or proved: they were measured
    (reason,) = result.estimated.values()
    assert reason.startswith(
        "numbers of results/r.json, measured by figures.x of ntk_deq 0.1.0 (script bbbbbbbbbbbb, file "
    )


@pytest.mark.parametrize("name", ["gap", "long", "deep", "missing"])
def test_numbers_that_are_missing_or_too_many_have_no_name(claim, name):
    found = claim(f"norm({name}) > 0")
    assert found.problems
    assert name in found.problems[0].message


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ("../r.json", "must lie in the folder of the claim file"),
        ("/etc/passwd", "must lie in the folder of the claim file"),
        ("results/none.json", "No such file"),
        ("c.yaml", "is no file of results"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(claim, results, message):
    assert any(message in problem.message for problem in claim(results=results).problems)


def test_a_name_that_is_taken_is_said(tmp_path):
    write_results(tmp_path / "r.json", Producer("x", {}, "1", "b" * 64), {"n": 3.0, "x": 1.0})
    (tmp_path / "c.yaml").write_text(
        "suite: s\nsettings:\n  a: {sizes: {n: 2}, domain: {x: real}, results: r.json}\n"
        "claims:\n  - {id: E, title: t, setting: a, conclude: x*x >= 0}\n"
    )
    (found,) = load_suite(tmp_path / "c.yaml").claims
    text = " ".join(problem.message for problem in found.problems)
    assert "n of r.json is a size letter, too" in text
    assert "x of r.json is given by `domain`, too" in text
