"""`verify-claims replay`: what it prints, its exit codes, and what it says of a claim that has changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from replay_samples import SUITE, claim_of, judged, sample_claim, sample_file, sample_instance, suite_file

from ntk_deq.claims.statement import differences, fingerprint
from ntk_deq.cli.main import main
from ntk_deq.verify.replay import compare, read_counterexample, replay


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long names of temporary folders must not be broken in two."""
    monkeypatch.setenv("COLUMNS", "500")


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    code = main(["replay", *map(str, words)])
    return code, " ".join(capsys.readouterr().out.split())


def edited(path: Path, pattern: str, replacement: str) -> Path:
    text = path.read_text(encoding="utf-8")
    changed = re.sub(pattern, replacement, text, count=1, flags=re.MULTILINE)
    assert changed != text
    path.write_text(changed, encoding="utf-8")
    return path


def test_a_counterexample_is_reproduced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, sample_file(tmp_path))
    assert code == 0
    for said in (
        'sample.norm: The norm, halved (Lemma "1", (2))',
        "A = [ 1 0.5 ] v = [ 3 ]",
        "c = 0.75, M = 2, k = 1",
        "n = 1, m = 2; setting plain, instance 5, seed 3; by hand",
        "hypotheses (1): 1.11803398874…",
        "<= 2 true, margin 0.882",
        "yes: 0.75 > 0 true",
        "conclusions bound: 1.11803398874…",
        "<= 0.559016994374… ± ",
        "false, margin -0.559",
        "identical to the recorded one, bit for bit",
        "counterexample reproduced: refuted",
    ):
        assert said in out, (said, out)


def test_without_a_scale_of_its_own_the_folder_does_not_matter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sample_file(tmp_path)
    (tmp_path / "sample.yaml").unlink()  # the claim file is gone: the instance file says it all
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = path.rename(elsewhere / "moved.yaml")
    monkeypatch.chdir(elsewhere)
    assert run(capsys, moved.name)[0] == 0


@pytest.mark.parametrize(
    ("pattern", "replacement", "code", "said"),
    [
        (r"^  A: .*$", "  A: [[0, 0]]", 1, "counterexample not reproduced: no counterexample, the conclusions are not"),
        (r"^  M: 2$", "  M: 1", 1, "counterexample not reproduced: no counterexample, a hypothesis fails"),
        (r"^margin: .*$", "margin: [-0x1p+0, 0x0p+0]", 0, "not bit-identical to [-0x1p+0, 0x0p+0], a ball of the same"),
        (
            r"^margin: .*$",
            "margin: [0x1p+0, inf]",
            1,
            "not bit-identical to [0x1p+0, inf], which has no number in common",
        ),
        (r"^fingerprint: .*$", "fingerprint: abc", 0, "the file was edited, or a model changed"),
        (r'half: "norm\(A\)/2"', 'half: "norm(A)*2"', 1, "counterexample not reproduced"),
        (r"^precision: 128$", "precision: null", 0, "counterexample reproduced: refuted"),
    ],
)
def test_an_edited_file_is_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pattern: str, replacement: str, code: int, said: str
) -> None:
    path = edited(sample_file(tmp_path), pattern, replacement)
    found, out = run(capsys, path)
    assert (found, said in out) == (code, True), out


def test_options_may_stand_between_the_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, suite = sample_file(tmp_path), suite_file(tmp_path, SUITE)
    assert main(["replay", str(path), "--time-limit", "60", str(suite)]) == 0
    assert "states sample.norm in the same way" in " ".join(capsys.readouterr().out.split())
    for words in (["a.yaml", "b.yaml"], ["--fast"], [str(suite), "b.yaml"]):
        with pytest.raises(SystemExit) as stop:
            main(["replay", str(path), "--time-limit", "60", *words])
        assert stop.value.code == 4
        assert "unrecognized arguments: " in capsys.readouterr().err


def test_a_bad_file_is_a_usage_error_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = edited(sample_file(tmp_path), r"^  m: 2$", "  m: 1000000000")
    code, out = run(capsys, path)
    assert code == 4
    assert f"{path.name}:{path.read_text(encoding='utf-8').splitlines().index('  m: 1000000000') + 1}:" in out
    assert out.endswith("1 problem")
    assert run(capsys, tmp_path / "missing.yaml")[0] == 4
    assert run(capsys, tmp_path)[0] == 4


def test_the_same_claim_in_other_words_is_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sample_file(tmp_path)
    text = SUITE.replace("The norm, halved", "Another title").replace("norm(A)/2", "(norm( A ))/2.0")
    text = text.replace('c: "(0, 1]"', 'c: "(0,1]"').replace("setting: plain\n", "setting: [plain]\n    tags: [x]\n")
    code, out = run(capsys, path, suite_file(tmp_path, text))
    assert code == 0, out
    assert "sample.yaml states sample.norm in the same way" in out


CHANGES = {
    "a constant": ("half: norm(A)/2", "half: norm(A)/4", "let.half: `norm(A)/2` then, `norm(A)/4` now", "refuted"),
    "it now holds": ("half: norm(A)/2", "half: norm(A)*2", "let.half", "no counterexample, the conclusions are not"),
    "a hypothesis": ("fro(A) <= M*k", "fro(A) <= M*k/4", "assume.(1)", "no counterexample, a hypothesis fails"),
    "a new hypothesis": ('"yes": c > 0', '"yes": c > 0\n      new: n == m', "assume.new: nothing then", "fails"),
    "a domain": ('c: "(0, 1]"', 'c: "(0, 1/2]"', "setting plain, c: `(0, 1]` then, `(0, 1/2]` now", None),
    "sizes": ("n: 1..40", "n: 3..40", "setting plain, sizes", None),
    "a variable": ('v: "real[n]"', 'v: "real[m]"', "setting plain, v: `real[n]` then, `real[m]` now", None),
}


@pytest.mark.parametrize("case", CHANGES, ids=lambda name: name.replace(" ", "-"))
def test_a_claim_that_has_changed_is_said_to_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    old, new, difference, verdict = CHANGES[case]
    path = sample_file(tmp_path)
    assert old in SUITE
    code, out = run(capsys, path, suite_file(tmp_path, SUITE.replace(old, new)))
    assert code == 1
    assert "this counterexample is of another version of the claim" in out
    assert difference in out, out
    if verdict is None:
        assert "the claim there does not speak of this instance" in out
    else:
        assert verdict in out.split("on the claim there: ")[1]


def test_a_file_without_the_claim_or_with_a_broken_one_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sample_file(tmp_path)
    code, out = run(capsys, path, suite_file(tmp_path, SUITE.replace("id: sample.norm", "id: sample.norms")))
    assert code == 4
    assert "has no claim sample.norm; did you mean `sample.norms`?" in out
    code, out = run(capsys, path, suite_file(tmp_path, SUITE.replace("norm(A)/2", "nrom(A)/2")))
    assert code == 4
    assert "nrom" in out
    assert run(capsys, path, tmp_path / "missing.yaml")[0] == 4


def test_a_time_limit_stops_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, sample_file(tmp_path), "--time-limit", "1e-9")
    assert code == 4
    assert "the time limit ran out" in out


def test_differences_and_fingerprints_agree(tmp_path: Path) -> None:
    claim = sample_claim(tmp_path)
    marks = {fingerprint(claim)}
    for old, new, difference, _ in CHANGES.values():
        changed = claim_of(suite_file(tmp_path, SUITE.replace(old, new)), "sample.norm")
        assert any(difference in found for found in differences(claim, changed))
        marks.add(fingerprint(changed))
    assert len(marks) == 1 + len(CHANGES)


def test_the_library_says_the_same_as_the_command(tmp_path: Path) -> None:
    record = read_counterexample(sample_file(tmp_path))
    replayed = replay(record)
    assert (replayed.refuted, replayed.identical, replayed.consistent, replayed.reproduced) == (True,) * 4
    claim = claim_of(tmp_path / "sample.yaml", "sample.norm")
    assert compare(record, claim).changes == ()
    assert judged(claim, record.instance).conclusions == judged(claim, sample_instance()).conclusions
