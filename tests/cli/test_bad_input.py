"""All that a claim file can get wrong: one clear message with its place, the others still judged, no traceback."""

import gzip
import struct

import numpy as np
import pytest
from command_line_harness import BODIES, HEAD, call, results, suite

QUICK = ("--search", "0", "--no-store")
FEW = ("--instances", "8", *QUICK)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder, text, name="suite.yaml"):
    path = folder / name
    if isinstance(text, bytes):
        path.write_bytes(text)
    else:
        path.write_text(text, encoding="utf-8")
    return str(path)


def laughs():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 12)]
    return "suite: s\n" + "\n".join(lines) + "\nclaims: []\n"


GOOD = "claims:\n  - {id: a, setting: plain, conclude: norm(A) <= fro(A)}\n"

WHOLE_FILE = {
    "not YAML": ("suite: [s\nclaims: {\n", ":2:", "This is not YAML"),
    "a tab": ("suite: s\nclaims:\n\t- {id: a}\n", ":3:1:", "This is not YAML"),
    "no text": (b"\xff\xfe\x00\x01\x02" * 9, ":1:", ""),
    "a PNG": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(40), ":1:", ""),
    "a zip": (gzip.compress(b"suite: s"), ":1:", ""),
    "empty": ("", ":1:", ""),
    "a list": ("- a\n- b\n", ":1:1:", ""),
    "a word": ("hello\n", ":1:1:", ""),
    "duplicate key": ("suite: s\nsuite: t\nclaims: []\n", ":2:1:", "suite"),
    "unknown key": ("suite: s\nclaim: []\n", ":2:1:", "did you mean `claims`?"),
    "yes for a list": ("suite: s\nclaims: yes\n", ":2:9:", "claims"),
    "billion laughs": (laughs(), ":2:5:", "YAML anchors are not allowed"),
    "ten thousand brackets": ("suite: s\nclaims: " + "[" * 10_000 + "]" * 10_000 + "\n", ":2:", ""),
    "two documents": ("suite: s\nclaims: []\n---\nsuite: t\n", ":3:", ""),
    "code": ("suite: !!python/object/apply:os.system [true]\nclaims: []\n", ":1:8:", ""),
    "includes itself": ("suite: s\ninclude: [suite.yaml]\n", ":2:11:", "include itself"),
    "includes elsewhere": ("suite: s\ninclude: [../../etc/*.yaml]\n", ":2:11:", "below the folder of the file"),
}


@pytest.mark.parametrize("name", WHOLE_FILE)
@pytest.mark.parametrize("command", ["run", "check"])
def test_a_file_that_cannot_be_used(capsys, folder, name, command):
    text, place, message = WHOLE_FILE[name]
    ran = call(capsys, command, write(folder, text))
    assert ran.code == 4
    assert f"suite.yaml{place}" in "".join(ran.raw.split())  # a long path is broken anywhere
    assert message in ran.out
    assert len(ran.raw) < 3000
    assert not (folder / "results").exists()


DEEP = "(" * 5_000 + "c" + ")" * 5_000
DEEPER = "(" * 10_000 + "c" + ")" * 10_000
LONG = " + ".join(["c"] * 20_000)
MINUS = "-" * 10_000 + "c"
TOWER = "^".join(["c"] * 3_000)

SINGLE_CLAIM = {
    "unknown key": ("setting: plain, conclud: c == c", "conclud", "did you mean `conclude`?"),
    "duplicate key": ("setting: plain, conclude: c == c, conclude: c > c", "conclude", "twice"),
    "yes for a number": ("setting: plain, instances: yes, conclude: c == c", "instances", "boolean"),
    "yes for a formula": ("setting: plain, conclude: yes", "conclude", "boolean"),
    "text for a number": ("setting: plain, instances: many, conclude: c == c", "instances", "many"),
    "a negative number": ("setting: plain, instances: -3, conclude: c == c", "instances", "-3"),
    "unknown setting": ("setting: plane, conclude: c == c", "plane", "did you mean `plain`?"),
    "unknown function": ("setting: plain, conclude: sigma_mim(A) >= 0", "sigma_mim", "did you mean `sigma_min`?"),
    "misspelt name": ("setting: net, conclude: fro(yhatt) >= 0", "yhatt", "did you mean `yhat`?"),
    "misspelt variable": ("setting: net, conclude: 'fro(grad(L, WW)) >= 0'", "WW", "did you mean `W`?"),
    "shape mismatch": ("setting: plain, conclude: fro(A*v*A) >= 0", "vector n", "matrix n x n"),
    "sum of shapes": ("setting: plain, conclude: fro(A + v) >= 0", "matrix n x n", "vector n"),
    "no statement": ("setting: plain, conclude: fro(A)", "a statement is needed here", ""),
    "not a formula": ("setting: plain, conclude: fro(A >= 0", "suite.yaml", "close the bracket"),
    "wrong arity": ("setting: plain, conclude: 'fro(A, A) >= 0'", "`fro` takes", "Got 2"),
    "unused variable": ("setting: plain, given: {k: real}, conclude: c == c", "`given.k` is used nowhere", ""),
    "circular definition": ("setting: plain, let: {a: b, b: a}, conclude: a > 0", "a -> b -> a", ""),
    "a size of 1e9": ("setting: plain, conclude: 'trace(I(1000000000)) > 0'", "1000000000", ""),
    "unknown domain": ("setting: plain, given: {t: reel}, conclude: t == t", "reel", "did you mean `real`?"),
    "unknown verdict": ("setting: plain, expect: maybe, conclude: c == c", "expect", "refuted"),
    "unknown method": ("setting: net, run: {method: newton, steps: 3}, conclude: c == c", "method", "fixed-point"),
    "too deep": (f"setting: plain, conclude: {DEEP} == c", "nested more than 100 levels deep", ""),
    "deeper still": (f"setting: plain, conclude: {DEEPER} == c", "at most 20000 characters", ""),
    "too long": (f"setting: plain, conclude: {LONG} == c", "at most 20000 characters", ""),
    "ten thousand signs": (f"setting: plain, conclude: c == {MINUS}", "nested more than 100 levels deep", ""),
    "a tower of powers": (f"setting: plain, conclude: {TOWER} == c", "nested more than 100 levels deep", ""),
    "a huge number": ("setting: plain, conclude: c < 1e9999", "between -400 and 400", ""),
}


@pytest.mark.parametrize("name", SINGLE_CLAIM)
def test_a_claim_that_is_wrong_leaves_the_others_to_be_judged(capsys, folder, name):
    body, first, second = SINGLE_CLAIM[name]
    path = suite(folder, f"id: good, {BODIES['holds']}", f"id: bad, {body}", f"id: fine, {BODIES['refuted']}")
    ran = call(capsys, path, *FEW)
    assert ran.code == 4
    good, bad, fine = results(folder)
    assert (good["verdict"], bad["verdict"], fine["verdict"]) == ("holds", "ill-formed", "refuted")
    assert {problem["position"]["line"] for problem in bad["problems"]} == {8}
    told = " ".join(f"{problem['message']} {problem['hint'] or ''}" for problem in bad["problems"]) + bad["reason"]
    assert first in told
    assert second in told
    assert len(told) < 2000
    assert "suite.yaml:8:" in "".join(ran.raw.split())  # a long path is broken anywhere
    assert call(capsys, "check", path).code == 4


def setting_head(line):
    good = 'plain: {sizes: {n: 1..3}, domain: {A: "real[n, n]", c: real}}'
    return f"suite: s\nsettings:\n  {good}\n  bad: {line}\nclaims:\n"


SETTING = {
    "unknown key": ("{sises: {n: 1}, domain: {c: real}}", "sises", "did you mean `sizes`?"),
    "unknown model": (
        "{model: implicit-rule, sizes: {N: 1, d: 1, m: 1}}",
        "implicit-rule",
        "did you mean `implicit-relu`?",
    ),
    "unknown init": (
        "{model: linear-implicit, sizes: {N: 1, d: 1, m: 1}, init: {W: 'norml(0, 1)'}}",
        "norml",
        "did you mean `normal`?",
    ),
    "yes for a size": ("{sizes: {n: yes}, domain: {c: real}}", "sizes.n", "boolean"),
    "a size of 1e9": ("{sizes: {n: 1000000000}, domain: {c: real}}", "sizes.n", "1000000"),
    "a matrix of 1e9 entries": ("{sizes: {n: 40000}, domain: {B: 'real[n, n]', c: real}}", "1600000000 entries", ""),
    "an empty range": ("{sizes: {n: 3..1}, domain: {c: real}}", "sizes.n", "lo <= hi"),
    "a missing size": ("{model: linear-implicit, sizes: {N: 1}}", "size d", ""),
    "a domain that does not fit": ("{sizes: {n: 1..2, m: 1..2}, domain: {B: 'psd[n, m]', c: real}}", "square", ""),
    "no such file": (
        "{model: linear-implicit, sizes: {N: 4, d: 9, m: 2}, images: {source: npz, images: gone.npz}}",
        "gone.npz",
        "",
    ),
    "a file elsewhere": (
        "{model: linear-implicit, sizes: {N: 4, d: 9, m: 2}, images: {source: npz, images: /etc/passwd}}",
        "/etc/passwd",
        "",
    ),
}


@pytest.mark.parametrize("name", SETTING)
def test_a_setting_that_is_wrong_spoils_its_own_claims_only(capsys, folder, name):
    line, first, second = SETTING[name]
    path = suite(
        folder,
        "id: good, setting: plain, conclude: norm(A) <= fro(A)",
        "id: bad, setting: bad, conclude: 0 <= 1",
        head=setting_head(line),
    )
    ran = call(capsys, path, *FEW)
    good, bad = results(folder)
    assert good["verdict"] == "holds"
    told = bad["reason"]
    assert first in told + ran.out
    assert second in told + ran.out
    if bad["verdict"] == "ill-formed":
        assert ran.code == 4
        assert "suite.yaml:4:" in told
    else:  # what only shows when the data is opened
        assert (bad["verdict"], ran.code) == ("undecided", 6)
        assert name == "no such file"


class TestVerdictsWithAReason:
    def test_gamma_with_no_contraction(self, capsys, folder):
        wild = (
            "wild: {model: implicit-relu, sizes: {N: 2, d: 2, m: 2}, domain: {gamma: [3/4, 3/4]}, "
            "init: {A: 2*identity, W: 'normal(0, 1)', b: ones}, data: {X: 'normal(0, 1)', y: ones}}"
        )
        head = HEAD.replace("fixed:", f"{wild}\n  fixed:")
        path = suite(
            folder,
            "id: open, setting: wild, conclude: fro(Z) >= 0",
            "id: assumed, setting: wild, assume: {well-posed: gamma*norm(A) < 1}, conclude: fro(Z) >= 0",
            f"id: good, {BODIES['holds']}",
            head=head,
        )
        ran = call(capsys, path, *FEW)
        assert ran.code == 6
        unknown, assumed, good = results(folder)
        assert unknown["verdict"] == "undecided"
        known = "no certificate that the equilibrium exists: the contraction factor gamma*norm(A) = 1.5 is not below 1"
        assert known in unknown["reason"]
        assert assumed["verdict"] == "vacuous"
        assert assumed["reason"] == (
            "hypothesis 'well-posed' (gamma*norm(A) < 1) failed on 8 of 8 instances; the nearest instance lacks 0.5"
        )
        assert good["verdict"] == "holds"

    def test_more_samples_than_units(self, capsys, folder):
        path = suite(
            folder,
            "id: wide, setting: fixed, assume: {small: gamma*norm(A) < 1, wide: N <= m}, conclude: sigma_min(Z) >= 0",
            f"id: good, {BODIES['holds']}",
        )
        ran = call(capsys, path, "--instances", "40", *QUICK)
        assert ran.code == 6
        wide, good = results(folder)
        assert wide["verdict"] == "vacuous"
        assert "hypothesis 'wide' (N <= m) failed on" in wide["reason"]
        assert "the nearest instance lacks 2" in wide["reason"]
        assert (wide["nearest"]["lhs"], wide["nearest"]["relation"], wide["nearest"]["rhs"]) == ("4", "<=", "2")
        assert good["verdict"] == "holds"
        assert "wide: 4 <= 2 is false" in ran.out

    def test_a_matrix_that_grows_beyond_the_limit_later(self, capsys, folder):
        """The smallest instance fits, the largest does not: only the evaluation can tell."""
        head = 'suite: s\nsettings:\n  wide: {sizes: {n: 1..30000}, domain: {v: "real[n]"}}\nclaims:\n'
        path = suite(folder, "id: a, setting: wide, conclude: \"fro(v*v' + v*v') <= 3*norm(v)^2\"", head=head)
        ran = call(capsys, path, "--instances", "34", *QUICK)
        assert ran.code == 6
        (result,) = results(folder)
        assert result["verdict"] == "undecided"
        assert "at most 134,217,728 are allowed" in result["reason"]


def npz(folder, images, labels, **other):
    np.savez(folder / "data.npz", images=images, labels=labels, **other)


def idx(array):
    head = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(np.uint8).tobytes()


class TestData:
    HEAD = """suite: s
settings:
  plain: {{sizes: {{n: 1..3}}, domain: {{A: "real[n, n]"}}}}
  digits:
    model: linear-implicit
    sizes: {{N: 4, d: 9, m: 2}}
    images: {images}
    init: {{W: 0.1*identity, U: "normal(0, 1)", b: ones}}
claims:
"""

    def judged(self, capsys, folder, images="{source: npz, images: data.npz}"):
        head = self.HEAD.format(images=images)
        path = suite(
            folder,
            "id: data, setting: digits, conclude: fro(Z) >= 0",
            "id: good, setting: plain, conclude: norm(A) <= fro(A)",
            head=head,
        )
        ran = call(capsys, path, *FEW)
        data, good = results(folder)
        assert good["verdict"] == "holds"
        return ran, data

    def images(self, seed=0):
        drawn = np.random.default_rng(seed)
        return drawn.random((20, 3, 3)), np.arange(20) % 2

    def test_good_data_is_judged(self, capsys, folder):
        npz(folder, *self.images())
        ran, data = self.judged(capsys, folder)
        assert (ran.code, data["verdict"]) == (0, "holds")

    @pytest.mark.parametrize(
        ("value", "word"), [(np.nan, "NaN"), (np.inf, "Inf"), (-np.inf, "Inf")], ids=["nan", "inf", "minus inf"]
    )
    def test_numbers_that_are_none(self, capsys, folder, value, word):
        images, labels = self.images()
        images[3, 1, 1] = value
        npz(folder, images, labels)
        ran, data = self.judged(capsys, folder)
        assert (ran.code, data["verdict"]) == (6, "undecided")
        assert "data.npz" in data["reason"]
        assert word.casefold() in data["reason"].casefold()

    @pytest.mark.parametrize(
        "content",
        [b"", b"PK\x03\x04 but no archive", b"\x00\x00\x08\x03" + bytes(12), b"id,label\n1,2\n", b"\x80\x04\x95pickle"],
        ids=["empty", "broken zip", "idx", "csv", "pickle"],
    )
    def test_a_file_that_is_not_what_it_says(self, capsys, folder, content):
        (folder / "data.npz").write_bytes(content)
        ran, data = self.judged(capsys, folder)
        assert (ran.code, data["verdict"]) == (6, "undecided")
        assert "data.npz" in data["reason"]

    def test_an_archive_of_pickled_objects_is_not_run(self, capsys, folder):
        class Bomb:
            def __reduce__(self):
                return (open, (str(folder / "exploded"), "w"))

        np.savez(folder / "data.npz", images=np.array([Bomb()], dtype=object), labels=np.array([0]))
        ran, data = self.judged(capsys, folder)
        assert (ran.code, data["verdict"]) == (6, "undecided")
        assert not (folder / "exploded").exists()

    @pytest.mark.parametrize("kind", ["labels missing", "wrong length", "wrong shape", "class missing", "too few"])
    def test_data_that_does_not_fit(self, capsys, folder, kind):
        images, labels = self.images()
        if kind == "labels missing":
            np.savez(folder / "data.npz", images=images)
        elif kind == "wrong length":
            npz(folder, images, labels[:7])
        elif kind == "wrong shape":
            npz(folder, images[:, :2], labels)
        elif kind == "class missing":
            npz(folder, images, labels * 0)
        else:
            npz(folder, images[:3], labels[:3])
        ran, data = self.judged(capsys, folder)
        assert (ran.code, data["verdict"]) == (6, "undecided")
        assert "data.npz" in data["reason"]

    @pytest.mark.parametrize("kind", ["truncated", "not idx", "labels for images", "good"])
    def test_idx_files(self, capsys, folder, kind):
        images, labels = self.images()
        whole = idx((255 * images).astype(int))
        content = {"truncated": whole[:-5], "not idx": b"GIF89a" + bytes(30), "labels for images": idx(labels)}
        (folder / "images.idx").write_bytes(content.get(kind, whole))
        (folder / "labels.idx").write_bytes(idx(labels))
        ran, data = self.judged(capsys, folder, "{source: idx, images: images.idx, labels: labels.idx}")
        assert (ran.code, data["verdict"]) == ((0, "holds") if kind == "good" else (6, "undecided"))
        assert kind == "good" or "images.idx" in data["reason"]
