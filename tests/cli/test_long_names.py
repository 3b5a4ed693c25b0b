"""What a claim file or a command line can make thousands of characters long is not echoed whole."""

from __future__ import annotations

import pytest
from command_line_harness import call

LONG = "q" * 9000
KEY = "q" * 1000  # YAML ends a key there
HEAD = 'suite: s\nsettings: {p: {sizes: {n: 1..2}, domain: {x: real, A: "real[n, n]"}}}\nclaims:\n'
CLAIM = "- {id: a, setting: p, conclude: x^2 >= 0}\n"
FILES = {
    "name": HEAD + f"- {{id: a, setting: p, conclude: {LONG} >= 0}}\n",
    "function": HEAD + f"- {{id: a, setting: p, conclude: {LONG}(x) >= 0}}\n",
    "number": HEAD + f"- {{id: a, setting: p, conclude: x^2 + 1 > 0.{'9' * 9000}}}\n",
    "id": HEAD + f"- {{id: {LONG}, setting: p, conclude: x >= 0}}\n",
    "setting": HEAD + f"- {{id: a, setting: {LONG}, conclude: x >= 0}}\n",
    "base claim": HEAD + f"- {{id: a, mutates: {LONG}}}\n",
    "key": HEAD + f"- {{id: a, {KEY}: 3, setting: p, conclude: x >= 0}}\n",
    "entry": HEAD + CLAIM + f"- {{id: b, mutates: a, assume: {{{KEY}: x > 0}}}}\n",
    "domain": HEAD.replace("real", LONG, 1) + CLAIM,
    "shape": HEAD.replace("n, n", LONG) + CLAIM,
    "model": f"suite: s\nsettings: {{p: {{model: {LONG}}}}}\nclaims: [{{id: a, setting: p, conclude: 1 > 0}}]\n",
    "size": HEAD.replace("n: 1..2", f"{KEY}: 3") + CLAIM,
    "include": f"suite: s\ninclude: [{LONG}.yaml]\n",
    "base": f"suite: s\nbase: {LONG}.yaml\n",
    "tag": HEAD + f"- {{id: a, setting: p, conclude: !{LONG} x}}\n",
    "anchor": HEAD + f"- {{id: a, setting: p, conclude: &{LONG} x}}\n",
    "alias": HEAD + f"- {{id: a, setting: p, conclude: *{LONG}}}\n",
    "doubled key": HEAD + f"- {{id: a, setting: p, let: {{{KEY}: 1, {KEY}: 2}}, conclude: x > 0}}\n",
}
WORDS = (
    ["FILE", "-k", f"({LONG}"],
    ["FILE", "--device", LONG],
    ["FILE", "--smallest", LONG],
    ["FILE", "--seed", LONG],
    ["FILE", "--data", LONG],
    [f"--{LONG}", "FILE"],
    [f"/tmp/{LONG}"],
    ["replay", LONG],
    ["mutate", "FILE", "--rules", LONG],
)


@pytest.mark.parametrize("name", FILES)
def test_names_of_a_file(capsys, tmp_path, name):
    path = tmp_path / "a.yaml"
    path.write_text(FILES[name], encoding="utf-8")
    ran = call(capsys, "check", path)
    assert ran.code == 4
    assert len(ran.raw + ran.err) < 2500
    assert "q" * 30 in ran.out or name == "number"  # enough to find it by


@pytest.mark.parametrize("words", WORDS, ids=lambda words: words[-2][:20] if len(words) > 1 else "file")
def test_words_of_the_command_line(capsys, tmp_path, words):
    path = tmp_path / "a.yaml"
    path.write_text(HEAD + CLAIM, encoding="utf-8")
    ran = call(capsys, *(str(path) if word == "FILE" else word for word in words))
    assert ran.code == 4
    assert len(ran.raw + ran.err) < 3500


def test_a_path_of_usual_length_is_whole(capsys, tmp_path):
    path = tmp_path.joinpath(*["folder" * 5] * 6) / "a.yaml"
    assert str(path) in call(capsys, "check", path).raw.replace("\n", "")


def test_data_that_is_not_there(capsys, tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(HEAD + CLAIM, encoding="utf-8")
    for command in ("run", "check", "mutate"):
        ran = call(capsys, command, path, "--data", tmp_path / "absent")
        assert ran.code == 4
        assert "--data: there is no file or folder" in ran.err
    assert call(capsys, "check", path, "--data", tmp_path).code == 0
