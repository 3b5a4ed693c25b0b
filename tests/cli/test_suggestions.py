"""Misspelt commands and options: what was meant is said, and nothing is run."""

import pytest
from command_line_harness import BODIES, call, suite


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("lst", "suite.yaml"), "no command and no file 'lst'; did you mean `verify-claims FILE --list`?"),
        (("list",), "did you mean `verify-claims FILE --list`?"),
        (("chekc", "suite.yaml"), "did you mean `verify-claims check`?"),
        (("mutat", "suite.yaml", "--max", "3"), "did you mean `verify-claims mutate`?"),
        (("help",), "did you mean `verify-claims --help`?"),
        (("--lst", "suite.yaml"), "unrecognized arguments: --lst; did you mean --list?"),
        (("suite.yaml", "--instance=3", "--serch=0"), "unrecognized arguments: --serch=0; did you mean --search?"),
        (("mutate", "suite.yaml", "--rule-names", "flip", "--shrnk"), "unrecognized arguments: --rule-names flip"),
        (("mutate", "suite.yaml", "--shrnk"), "unrecognized arguments: --shrnk; did you mean --shrink?"),
        (("check", "suite.yaml", "--qqq"), "unrecognized arguments: --qqq\n"),
    ],
)
def test_a_misspelt_word_gets_a_suggestion(capsys, folder, words, hint):
    suite(folder, f"id: a, {BODIES['holds']}")
    ran = call(capsys, *words)
    assert ran.code == 4
    assert hint in ran.err
    assert not (folder / "results").exists()


def test_a_file_may_be_called_as_a_command_is_spelt(capsys, folder):
    suite(folder, f"id: a, {BODIES['holds']}", name="lst")
    assert call(capsys, "lst", "--list").raw == "a\n"
