"""Instance files from a stranger: each defect is one clear error with its place, and nothing runs."""

from __future__ import annotations

import io
import pickle
import re
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from replay_samples import judged, sample_claim, sample_file, tensor

from ntk_deq.errors import ClaimFileError
from ntk_deq.evaluation.instance import Instance
from ntk_deq.verify.replay import read_counterexample, write_counterexample

Edit = tuple[str, str]


def damaged(folder: Path, *edits: Edit) -> Path:
    path = sample_file(folder)
    text = path.read_text(encoding="utf-8")
    for pattern, replacement in edits:
        changed = re.sub(pattern, lambda match, new=replacement: new, text, count=1, flags=re.MULTILINE)
        assert changed != text, pattern
        text = changed
    path.write_text(text, encoding="utf-8")
    return path


def the_problem(path: Path) -> str:
    started = time.perf_counter()
    with pytest.raises(ClaimFileError) as caught:
        read_counterexample(path)
    assert time.perf_counter() - started < 5  # a limit stops it, not the end of memory or patience
    assert len(caught.value.problems) == 1, [str(p.message) for p in caught.value.problems]
    (problem,) = caught.value.problems
    assert problem.position.file == str(path)
    assert len(problem.message) < 500
    return f"{problem.position.line}: {problem.message}"


A_ROW = r"^  A: .*$"
CASES: dict[str, tuple[list[Edit], str]] = {
    "size far out of range": ([(r"^  m: 2$", "  m: 1000000")], r"`sizes\.m` must be in 1\.\.40, .* Got 1000000"),
    "size beyond any limit": ([(r"^  m: 2$", "  m: 1000000000")], r"`sizes\.m` .* must be a number <= 1000000"),
    "size of a thousand digits": ([(r"^  m: 2$", "  m: " + "9" * 1000)], r"`sizes\.m` .* must be a whole number"),
    "negative size": ([(r"^  m: 2$", "  m: -2")], r"`sizes\.m` .* must be a number >= 1"),
    "fractional size": ([(r"^  m: 2$", "  m: 2.0")], r"`sizes\.m` .* must be a whole number"),
    "missing size": ([(r"^  m: 2\n", "")], r"`sizes\.m` must be in 1\.\.40, .* Got nothing"),
    "unknown size": ([(r"^  m: 2$", "  m: 2\n  q: 2")], r"setting plain has no size `q`"),
    "huge sizes that the file allows itself": (
        [
            (r"^  m: 2$", "  m: 900000"),
            (r'm: "1\.\.40"', 'm: "1..1000000"'),
            (r'n": 1$', 'n": 1000'),
            (r'n": "1\.\.40"', 'n": "1..1000"'),
            (r"^  v: .*$", "  v: [" + "1," * 999 + "1]"),
            (A_ROW, "  A: {npz: a.npz}"),
        ],
        r"would be 1000 x 900000, 900000000 entries; at most",
    ),
    "NaN": ([(A_ROW, "  A: [[1, nan]]")], r"`values\.A`: A number must be .* Got 'nan'"),
    "YAML NaN": ([(A_ROW, "  A: [[1, .nan]]")], r"`values\.A`: A number must be .* Got '\.nan'"),
    "infinity": ([(A_ROW, "  A: [[1, inf]]")], r"`values\.A`: A number must be .* Got 'inf'"),
    "overflow": ([(A_ROW, "  A: [[1, 0x1p1024]]")], r"`values\.A`: A number must be .* exactly"),
    "no double": ([(A_ROW, "  A: [[1, 0.1]]")], r"`values\.A`: A number must be .* exactly\. Got '0\.1'"),
    "a number in quotes": ([(A_ROW, "  A: [[1, '2']]")], r"`values\.A` must have a number here, without quotes"),
    "a mapping for a number": ([(A_ROW, "  A: [[1, {a: 1}]]")], r"`values\.A` must have a number here"),
    "too many rows": ([(A_ROW, "  A: [[1, 2], [3, 4]]")], r"`values\.A` must be a list of 1 rows.* Got 2 of them"),
    "too few columns": ([(A_ROW, "  A: [[1]]")], r"`values\.A` must be a list of 2 numbers.* Got 1 of them"),
    "flat matrix": ([(A_ROW, "  A: [1]")], r"`values\.A` must be a list of 2 numbers.* Got something else"),
    "a list for a scalar": ([(r"^  c: .*$", "  c: [1]")], r"`values\.c` must have a number here"),
    "missing variable": ([(r"^  c: .*\n", "")], r"the variable `c` of claim sample\.norm is missing"),
    "unknown variable": ([(r"^  c: ", "  B: 1\n  c: ")], r"has no variable `B`; it has A, v, c, M, k"),
    "outside an interval": ([(r"^  c: .*$", "  c: 3/2")], r"`values\.c` does not lie in its domain: \(0, 1\]"),
    "at an open end": ([(r"^  c: .*$", "  c: 0")], r"`values\.c` does not lie in its domain: \(0, 1\]"),
    "no whole number": ([(r"^  k: .*$", "  k: 3/2")], r"`values\.k` does not lie in its domain: integer 1\.\.9"),
    "rounded where nothing rounds": ([(r"^sizes:", "rounded: [c]\nsizes:")], r"`rounded`: a variable of .* is exact"),
    "rounded where nothing is": ([(r"^sizes:", "rounded: [z]\nsizes:")], r"`rounded`: claim .* has no variable `z`"),
    "unknown model": (
        [(r"^      sizes:", "      model: implicit-rleu\n      sizes:")],
        r"Unknown model 'implicit-rleu'",
    ),
    "alias": ([(r"^setting: plain", "setting: &x plain"), ], r"YAML anchors are not allowed"),
    "merge key": ([(r"^sizes:", "<<: {a: 1}\nsizes:")], r"YAML merge keys"),
    "tag": ([(r"^setting: plain", "setting: !!python/name:os.system plain")], r"YAML tags are not allowed"),
    "unknown key": ([(r"^seed: 3", "seed: 3\nexec: rm")], r"Unknown key `exec` in an instance file"),
    "duplicate key": ([(r"^seed: 3", "seed: 3\nseed: 4")], r"The key `seed` is here twice"),
    "another format": ([(r"^format: 1", "format: 2")], r"`format` of an instance file must be one of 1\. Got 2"),
    "another claim": (
        [(r"^claim: sample.norm", "claim: other")],
        r"`claim` must be the id in `statement`, sample\.norm",
    ),
    "another setting": (
        [(r"^setting: plain", "setting: plane")],
        r"`setting` must be one of the claim's: plain. Got plane",
    ),
    "another conclusion": ([(r"^conclusion: bound", "conclusion: bond")], r"`conclusion` must be one of the claim's"),
    "margin reversed": ([(r"^margin: .*$", "margin: [1, 0]")], r"`margin` must be \[lo, hi\] with lo <= hi"),
    "step that is no number": ([(r"^margin: ", "step: {t: soon}\nmargin: ")], r"`step\.t`: A number must be"),
    "step of lists": ([(r"^margin: ", "step: {t: [1]}\nmargin: ")], r"`step\.t`: A number must be"),
    "margin of three": ([(r"^margin: .*$", "margin: [0x0p+0, 0x0p+0, 0x0p+0]")], r"`margin` .* at most 2 entries"),
    "margin that is no number": ([(r"^margin: .*$", "margin: [nan, 0x0p+0]")], r"`margin`: A number must be"),
    "margin of lists": ([(r"^margin: .*$", "margin: [[1], 2]")], r"`margin`: A number must be"),
    "precision too high": ([(r"^precision: 128", "precision: 100000")], r"`precision.*` .* must be a number <= 4096"),
    "formula with an unknown function": ([(r'half: "norm\(A\)/2"', 'half: "nrom(A)/2"')], r"nrom"),
    "formula that is code": ([(r'half: "norm\(A\)/2"', "half: \"__import__('os').system('true')\"")], r"`let\.half`"),
    "statement that includes": (
        [(r"^  suite: sample.norm", "  suite: s\n  include: ['*.yaml']")],
        r"`include` is not allowed",
    ),
    "statement that mutates a file": (
        [(r"^  suite: sample.norm", "  suite: s\n  base: found.yaml")],
        r"`base` is not allowed",
    ),
    "statement that is text": ([(r"(?s)^statement:\n.*", "statement: hello\n")], r"claim file must be a mapping"),
    "statement without claims": (
        [(r"(?s)^  claims:\n.*", "  claims: []\n")],
        r"`statement` must hold one claim. Got 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda name: name.replace(" ", "-"))
def test_each_defect_is_one_clear_error(tmp_path: Path, case: str) -> None:
    edits, message = CASES[case]
    assert re.search(message, the_problem(damaged(tmp_path, *edits))), the_problem(tmp_path / "found.yaml")


def test_an_alias_is_refused(tmp_path: Path) -> None:
    path = damaged(tmp_path, (A_ROW, "  A: *rows"))
    assert "alias" in the_problem(path)


def test_data_files_of_a_statement_are_never_looked_for_outside(tmp_path: Path) -> None:
    image = "      images: {source: npz, images: /etc/passwd, side: 2, count: 1}\n"
    path = damaged(tmp_path, (r"^      sizes:", image + "      sizes:"))
    with pytest.raises(ClaimFileError, match="data file must lie in the folder of the claim file"):
        read_counterexample(path)


@pytest.mark.parametrize(
    "content", [b"", b"\x00\x01", b"\xff\xfe", b"[" * 100000, b"a: b", b"- 1", pickle.dumps({"a": 1})]
)
def test_what_is_no_instance_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.yaml"
    path.write_bytes(content)
    with pytest.raises(ClaimFileError):
        read_counterexample(path)
    with pytest.raises(ClaimFileError, match="There is no file"):
        read_counterexample(tmp_path / "missing.yaml")


def archive_case(folder: Path, name: str = "a.npz", entry: str | None = None) -> Path:
    return damaged(folder, (A_ROW, f"  A: {entry or f'{{npz: {name}}}'}"))


def savez(path: Path, **arrays: object) -> None:
    np.savez(path, **arrays)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    [
        "../a.npz",
        "/tmp/a.npz",
        "sub/a.npz",
        "..\\\\a.npz",
        "a.npy",
        ".npz",
        ".a.npz",
        "a.npz/",
        "~/a.npz",
        "C:a.npz",
        "a.NPZ",
    ],
)
def test_an_archive_is_a_plain_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "sub").mkdir()
    savez(tmp_path / "sub" / "a.npz", A=np.ones((1, 2)))
    assert "must be the plain name of an .npz file" in the_problem(archive_case(tmp_path, f'"{name}"'))


def test_an_archive_that_is_a_link_or_missing_is_refused(tmp_path: Path) -> None:
    path = archive_case(tmp_path)
    assert "there is no file a.npz beside this one, or it is a link" in the_problem(path)
    savez(tmp_path / "real.npz", A=np.ones((1, 2)))
    (tmp_path / "a.npz").symlink_to(tmp_path / "real.npz")
    assert "or it is a link" in the_problem(path)


@pytest.mark.parametrize("entry", ["{npz: a.npz, shape: [1, 2]}", "{}", "{npz: [a.npz]}", "{file: a.npz}", "a.npz"])
def test_the_reference_to_an_archive_has_one_form(tmp_path: Path, entry: str) -> None:
    assert re.search("npz: NAME|must be a list of 1 rows", the_problem(archive_case(tmp_path, entry=entry)))


class _Runs:
    """Runs when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return (Path.touch, (Path("ran"),))


BAD_ARRAYS: dict[str, tuple[object, str]] = {
    "wrong shape": (np.ones((2, 1)), r"must hold float64 numbers of shape \(1, 2\)\. Got float64, shape \(2, 1\)"),
    "wrong type": (np.ones((1, 2), dtype=np.float32), r"Got float32"),
    "big endian": (np.ones((1, 2), dtype=">f8"), r"Got >f8"),
    "objects": (np.array([[_Runs(), 1]], dtype=object), r"Python objects, which are never opened"),
    "NaN": (np.array([[1, np.nan]]), r"must hold finite numbers"),
    "infinity": (np.array([[1, np.inf]]), r"must hold finite numbers"),
    "text": (np.array([["a", "b"]]), r"must hold float64 numbers"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS, ids=lambda name: name.replace(" ", "-"))
def test_an_archive_holds_the_numbers_that_it_should(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    array, message = BAD_ARRAYS[case]
    path = archive_case(tmp_path)
    savez(tmp_path / "a.npz", A=array)
    assert re.search(message, the_problem(path))
    assert not (tmp_path / "ran").exists()


def test_a_bomb_or_a_damaged_archive_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = archive_case(tmp_path)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (1, 2)})
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("A.npy", header.getvalue() + bytes(30 * 2**20))
    assert "promises shape (1, 2), 16 bytes. Found 31457280" in the_problem(path)
    for content in (b"PK\x03\x04 not really", b"", b"\x93NUMPY", pickle.dumps(_Runs)):
        (tmp_path / "a.npz").write_bytes(content)
        assert "is damaged or holds no usable array" in the_problem(path)
    (tmp_path / "a.npz").write_bytes(bytes(3 * 2**20))
    assert "much larger" in the_problem(path)
    savez(tmp_path / "a.npz", B=np.ones((1, 2)))
    assert "holds no usable array 'A'" in the_problem(path)
    whole = io.BytesIO()
    savez(whole, A=np.ones((1, 2)))  # type: ignore[arg-type]
    (tmp_path / "a.npz").write_bytes(whole.getvalue()[:-30])
    assert "is damaged" in the_problem(path)


def test_a_right_archive_is_read(tmp_path: Path) -> None:
    path = archive_case(tmp_path)
    savez(tmp_path / "a.npz", A=np.array([[1.0, 0.5]]))
    assert torch.equal(read_counterexample(path).instance.values["A"], torch.tensor([[1.0, 0.5]], dtype=torch.float64))


POINT_SIX, POINT_EIGHT = (0.6).hex(), (0.8).hex()  # as floats; their squares sum to 1 after rounding only
SQUARES = {
    "asymmetric": (r"^  S: .*$", "  S: [[0, 1], [2, 0]]", "symmetric"),
    "not quite orthogonal": (
        r"^  Q: .*$",
        f"  Q: [[{POINT_SIX}, -{POINT_EIGHT}], [{POINT_EIGHT}, {POINT_SIX}]]",
        "orthogonal",
    ),
    "indefinite": (r"^  P: .*$", "  P: [[1, 2], [2, 1]]", "psd"),
}


@pytest.mark.parametrize("case", SQUARES, ids=lambda name: name.replace(" ", "-"))
def test_membership_of_a_domain_is_exact(tmp_path: Path, case: str) -> None:
    claim = sample_claim(tmp_path, name="sample.squares")
    unit = tensor([[1.0, 0.0], [0.0, 1.0]])
    instance = Instance("squares", "units", {"n": 2}, {"S": unit, "Q": unit, "P": unit}, 0)
    path = tmp_path / "found.yaml"
    write_counterexample(path, claim, judged(claim, instance), seed=0)
    pattern, line, kind = SQUARES[case]
    path.write_text(re.sub(pattern, line, path.read_text(encoding="utf-8"), flags=re.MULTILINE), encoding="utf-8")
    assert f"does not lie in its domain: {kind}" in the_problem(path)
