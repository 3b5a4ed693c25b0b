"""`verify-claims mutate`: fates, tables, files, exit codes, bad input."""

import json
import re

import pytest
from mutation_harness import HEAD, claim

from ntk_deq.claims.claim import Verdict
from ntk_deq.cli.main import main
from ntk_deq.cli.mutate import mutants_markdown, score_text
from ntk_deq.verify.findings import Fate, Score, judge_mutants, score, worth_mutating
from ntk_deq.verify.runner import Options, judge

SHARP = "setting: matrices, conclude: 'norm(A*B) <= norm(A)*norm(B)'"
BLUNT = "setting: matrices, conclude: 'norm(A) <= 8*fro(A)'"


def run(capsys, folder, *bodies, words=()):
    path = folder / "mutated.yaml"
    path.write_text(HEAD + "".join(f"  - {{{body}}}\n" for body in bodies), encoding="utf-8")
    try:
        code = main(["mutate", str(path), "--instances", "12", "--search", "40", "--out", str(folder / "out"), *words])
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    text = re.sub(r"\s+", " ", captured.out + captured.err)
    assert "Traceback" not in text
    return code, text


def lines(folder):
    return [json.loads(line) for line in (folder / "out" / "mutants.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_sharp_bound_kills_every_mutant(tmp_path, capsys):
    code, text = run(capsys, tmp_path, f"id: S, {SHARP}", words=["--rules", "halve,double,flip,strict"])
    assert code == 0, text
    assert "mutation score 100.0%: 3 of 3 refuted; 1 more follow from their claims" in text
    fates = {entry["id"]: entry["fate"] for entry in lines(tmp_path)}
    assert fates == {"S~flip-1": "killed", "S~strict-1": "killed", "S~halve-1": "killed", "S~double-1": "weaker"}


def test_a_mutant_is_shrunk_on_request_only(tmp_path, capsys):
    looked_at = {}
    for switch in ("--shrink", "--no-shrink"):
        code, _ = run(capsys, tmp_path, f"id: S, {SHARP}", words=["--rules", "flip", switch])
        assert code == 0
        (entry,) = lines(tmp_path)
        looked_at[switch] = entry
    run(capsys, tmp_path, f"id: S, {SHARP}", words=["--rules", "flip"])
    assert lines(tmp_path)[0]["instances"] == looked_at["--no-shrink"]["instances"]
    assert "shrunk from" not in looked_at["--no-shrink"]["counterexample"]["family"]
    assert looked_at["--no-shrink"]["instances"] < looked_at["--shrink"]["instances"]


def test_survivors_are_listed_with_their_closest_margin(tmp_path, capsys):
    code, text = run(capsys, tmp_path, f"id: B, {BLUNT}", words=["--rules", "halve"])
    assert code == 1
    assert "1 not refuted: B~halve-1 conclude conclusion: norm(A) <= 8*fro(A) -> norm(A) <= 4*fro(A); survived" in text
    (entry,) = lines(tmp_path)
    assert (entry["rule"], entry["section"], entry["source"]) == ("halve", "conclude", "8")
    assert (entry["before"], entry["after"]) == ("norm(A) <= 8*fro(A)", "norm(A) <= 4*fro(A)")
    # norm(A) = fro(A) for a matrix of rank one: 3/4 of the right side is left.
    assert entry["closest"] == pytest.approx(0.75, abs=1e-3)
    report = (tmp_path / "out" / "mutants.md").read_text(encoding="utf-8")
    assert "| B | 0 | 1 | 0 | 0% |" in report
    assert "## Not refuted" in report


def test_only_claims_that_should_hold_are_mutated(tmp_path, capsys):
    false = "id: F, expect: refuted, setting: matrices, conclude: 'norm(A) > 8*fro(A)'"
    code, text = run(capsys, tmp_path, false, words=["--rules", "halve"])
    assert code == 5
    assert "expected to hold" in text
    code, text = run(capsys, tmp_path, false, f"id: S, {SHARP}", "id: bad, setting: matrices, conclude: 'fro(A) >= A*'",
                     words=["--rules", "halve"])  # fmt: skip
    assert code == 0, text
    assert "mutating 1 claim; 2 of 3 left out" in text


def test_selection_cap_and_seed(tmp_path, capsys):
    bodies = (f"id: S, {SHARP}", f"id: B, {BLUNT}")
    code, _ = run(capsys, tmp_path, *bodies, words=["-k", "S", "--max", "2"])
    assert code == 0
    entries = lines(tmp_path)
    assert {entry["claim"] for entry in entries} == {"S"}
    assert sum(entry["fate"] != "weaker" for entry in entries) == 2
    run(capsys, tmp_path, *bodies, words=["-k", "S", "--max", "2"])
    for a, b in zip(entries, lines(tmp_path), strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rules", "halv"], "Did you mean 'halve'?"),
        (["--max", "0"], "must be a whole number from 1 to"),
        (["-k", "and"], "-k"),
        (["-k", "nothing"], "no claim selected"),
    ],
)
def test_bad_words(tmp_path, capsys, words, said):
    code, text = run(capsys, tmp_path, f"id: S, {SHARP}", words=words)
    assert code in (4, 5)
    assert said in text


def test_a_file_in_the_way_and_a_missing_file(tmp_path, capsys):
    (tmp_path / "out").write_text("in the way", encoding="utf-8")
    assert run(capsys, tmp_path, f"id: S, {SHARP}")[0] == 4
    assert main(["mutate", str(tmp_path / "nowhere.yaml"), "--out", str(tmp_path / "o")]) == 4
    capsys.readouterr()


def test_fates_follow_the_verdicts(tmp_path):
    original = claim(tmp_path, SHARP)

    def judged_as(verdict):
        def fake(mutant, options):
            return type(real)(**{**real.__dict__, "verdict": verdict})

        real = judge(original, Options(instances=2, search=0))
        return [r.fate for r in judge_mutants(original, Options(), fake, rules=["flip"])]

    assert judged_as(Verdict.PROVED) == [Fate.SURVIVED]
    assert judged_as(Verdict.VACUOUS) == [Fate.VACUOUS]
    assert judged_as(Verdict.UNDECIDED) == [Fate.UNDECIDED]
    assert judged_as(Verdict.ERROR) == [Fate.ERROR]
    assert worth_mutating(original)


def test_what_follows_is_not_judged(tmp_path):
    original = claim(tmp_path, SHARP)

    def never(mutant, options):
        raise AssertionError("judged")

    (result,) = judge_mutants(original, Options(), never, rules=["double"])
    assert (result.fate, result.result, result.closest) == (Fate.WEAKER, None, None)
    assert score([result]).value is None
    assert score_text(Score({Fate.WEAKER: 1})) == "no mutant was judged; 1 more follow from their claims"


def test_markdown_cells_hold_any_text(tmp_path):
    original = claim(tmp_path, SHARP)
    results = list(judge_mutants(original, Options(instances=4, search=0), judge, rules=["halve"]))
    text = mutants_markdown(results, title="<b>|x|</b>", command="verify-claims mutate f")
    assert "# Mutants of &lt;b&gt;\\|x\\|&lt;/b&gt;" in text
