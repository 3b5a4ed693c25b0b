"""Claim files that are small and would cost much: globs over links, long chains of mutants, thousands of problems."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ntk_deq.claims import documents, load
from ntk_deq.claims import inheritance as inherit
from ntk_deq.claims.claim import Claim, IllFormed
from ntk_deq.claims.load import load_suite
from ntk_deq.errors import ClaimFileError, Position, Problem
from ntk_deq.report.check import SHOWN, render_problems

SETTING = "suite: s\nsettings: {p: {domain: {x: real}}}\nclaims:\n"


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


class TestGlobs:
    def including(self, folder, pattern):
        return written(folder / "top.yaml", f"suite: s\ninclude: ['{pattern}']\n")

    def claims(self, path):
        return [claim.id for claim in load_suite(path).claims]

    @pytest.mark.parametrize("levels", [13, 24, 200])
    def test_deep_ones_are_refused(self, tmp_path, levels):
        for number in range(3):
            (tmp_path / f"loop{number}").symlink_to(".")
        with pytest.raises(ClaimFileError, match=f"at most 12 levels deep. Got {levels}"):
            load_suite(self.including(tmp_path, "/".join(["*"] * levels)))

    def test_links_among_folders_do_not_multiply(self, tmp_path, monkeypatch):
        """Three links at each of eleven levels are 177,147 ways to one and the same folder."""
        for number in range(3):
            (tmp_path / f"loop{number}").symlink_to(".")
        written(tmp_path / "one.yaml", SETTING + "- {id: a, setting: p, conclude: x^2 >= 0}\n")
        listed = []
        real = documents.os.listdir
        monkeypatch.setattr(documents.os, "listdir", lambda path: listed.append(path) or real(path))
        assert self.claims(self.including(tmp_path, "/".join(["*"] * 11) + "/one.yaml")) == ["a"]
        assert len(listed) == 11

    def test_a_glob_that_looks_at_too_much(self, tmp_path, monkeypatch):
        monkeypatch.setattr(documents, "MAX_LOOKED", 10)
        for number in range(11):
            written(tmp_path / f"{number}.txt", "")
        with pytest.raises(ClaimFileError, match="looks into more than 10 files and folders"):
            load_suite(self.including(tmp_path, "*"))

    def test_too_many_files_are_said_once(self, tmp_path, monkeypatch):
        monkeypatch.setattr(documents, "MAX_FILES", 5)
        for number in range(20):
            written(tmp_path / f"c{number}.yaml", SETTING + f"- {{id: c{number}, setting: p, conclude: x^2 >= 0}}\n")
        with pytest.raises(ClaimFileError) as caught:
            load_suite(self.including(tmp_path, "c*.yaml"))
        assert [problem.message for problem in caught.value.problems] == ["A suite may have at most 5 files."]

    @pytest.mark.parametrize(
        ("pattern", "found"),
        [
            ("sub/*.yaml", ["a", "b"]),
            ("*/[b]?yaml", ["b"]),
            ("sub/./a.yaml", ["a"]),
            ("s?b/*", ["a", "b"]),
            ("sub//a.yaml", ["a"]),
            ("lin*/b.yaml", ["b"]),
        ],
    )
    def test_what_matches(self, tmp_path, pattern, found):
        (tmp_path / "sub").mkdir()
        (tmp_path / "link").symlink_to("sub")
        for name in "ab":
            written(tmp_path / "sub" / f"{name}.yaml", SETTING + f"- {{id: {name}, setting: p, conclude: x^2 >= 0}}\n")
        assert self.claims(self.including(tmp_path, pattern)) == found


class TestChains:
    def chain(self, folder, length, last="", first="conclude: x^2 >= 0"):
        claims = [f"- {{id: a0, setting: p, {first}}}"]
        claims += [f"- {{id: a{i}, mutates: a{i - 1}{last if i == length - 1 else ''}}}" for i in range(1, length)]
        return written(folder / "a.yaml", SETTING + "\n".join(claims) + "\n")

    def test_each_claim_inherits_once(self, tmp_path, monkeypatch):
        calls = []
        monkeypatch.setattr(load, "inherit", lambda *given: calls.append(given) or inherit.inherit(*given))
        claims = load_suite(self.chain(tmp_path, load.MAX_CHAIN + 1, ", title: last")).claims
        assert len(calls) == load.MAX_CHAIN
        assert all(isinstance(claim, Claim) for claim in claims)
        assert (claims[-1].title, claims[-2].title) == ("last", "")
        assert claims[-1].conclude["conclusion"].text == "x^2 >= 0"

    def test_a_long_chain_is_cut(self, tmp_path, monkeypatch):
        calls = []
        monkeypatch.setattr(load, "inherit", lambda *given: calls.append(given) or inherit.inherit(*given))
        claims = load_suite(self.chain(tmp_path, 600)).claims
        assert len(calls) == load.MAX_CHAIN
        whole, cut = claims[: load.MAX_CHAIN + 1], claims[load.MAX_CHAIN + 1 :]
        assert all(isinstance(claim, Claim) for claim in whole)
        said = "A mutant may rest on a chain of at most 100 claims. This one is longer."
        assert {tuple(problem.message for problem in claim.problems) for claim in cut} == {(said,)}

    def test_what_is_wrong_in_the_middle_is_told_by_all_after_it(self, tmp_path):
        claims = ["- {id: a0, setting: p, conclude: x^2 >= 0}", "- {id: a1, mutates: a0, run: null}",
                  "- {id: a2, mutates: a1}", "- {id: a3, mutates: a2, assume: {q: x > 0}}"]  # fmt: skip
        suite = load_suite(written(tmp_path / "a.yaml", SETTING + "\n".join(claims) + "\n"))
        said = [[p.message for p in claim.problems] if isinstance(claim, IllFormed) else [] for claim in suite.claims]
        assert [len(messages) for messages in said] == [0, 1, 1, 2]
        assert "`run` cannot be dropped" in said[1][0]
        assert "`assume.q` replaces nothing" in said[3][1]

    def test_a_circle_names_few(self, tmp_path):
        claims = [f"- {{id: a{i}, mutates: a{(i + 1) % 90}}}" for i in range(90)]
        suite = load_suite(written(tmp_path / "a.yaml", SETTING + "\n".join(claims) + "\n"))
        (problem,) = suite.claims[0].problems
        assert problem.message.count("->") == 10
        assert len(problem.message) < 200


class TestProblems:
    def test_the_first_are_printed_and_all_are_counted(self):
        console = Console(file=io.StringIO(), width=100)
        problems = [Problem(Position("a.yaml", line, 1), "wrong") for line in range(1, 90_001)]
        render_problems(console, problems)
        lines = console.file.getvalue().splitlines()
        assert sum("wrong" in line for line in lines) == SHOWN
        assert lines[-1] == f"90000 problems, of which the first {SHOWN} are shown"

    def test_few_are_all_printed(self):
        console = Console(file=io.StringIO(), width=100)
        render_problems(console, [Problem(Position("a.yaml", 1, 1), "wrong")] * SHOWN)
        assert console.file.getvalue().splitlines()[-1] == f"{SHOWN} problems"

    def test_a_file_of_doubled_keys(self, tmp_path, capsys):
        from ntk_deq.cli.main import main

        doubled = ", ".join(["a: 1"] * 30_000)
        path = written(tmp_path / "a.yaml", f"suite: s\nsource: {{title: t, {doubled}}}\n")
        assert main(["check", str(path)]) == 4
        out = capsys.readouterr().out
        assert len(out) < 20_000
        assert "problems, of which the first 50 are shown" in out
