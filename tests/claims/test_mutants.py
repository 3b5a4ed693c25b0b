"""Mutants: what a claim takes over from another, what it may change, and where the other is looked for."""

from __future__ import annotations

import pytest

from ntk_deq.claims.claim import Claim, IllFormed, Verdict
from ntk_deq.claims.inheritance import inherit
from ntk_deq.claims.load import load_suite
from ntk_deq.errors import ClaimFileError
from ntk_deq.files.yaml import plain, read_text

BASE = """
suite: base
source: {title: The paper}
settings:
  any: {model: implicit-relu, sizes: {N: 1..6, d: 1..6, m: 1..6}}
  wide: {model: implicit-relu, sizes: {N: 2, d: 2, m: 9}}
claims:
- id: R
  title: A bound
  where: Lemma 1
  setting: any
  given: {t: (0, 1)}
  let: {gamma0: gamma*norm(A), two: t + 2}
  assume: {well-posed: gamma0 < 1, (2): norm(b) >= 1}
  conclude: {(i): norm(Z) <= two*norm(Phi)/(1 - gamma0)}
  run: {method: fixed-point, steps: 3}
  tags: [lemma]
  note: as printed
  expect: holds
"""


@pytest.fixture
def mutants(tmp_path):
    def write(*mutants, head=BASE):
        path = tmp_path / "base.yaml"
        path.write_text(head + "\n".join(f"- {mutant}" for mutant in mutants))
        return load_suite(path).claims[1:]

    return write


def texts(formulas):
    return {name: formula.text for name, formula in formulas.items()}


class TestOverrides:
    def test_everything_is_taken_over_but_id_and_expectation(self, mutants):
        (claim,) = mutants("{id: M, mutates: R}")
        assert isinstance(claim, Claim)
        assert (claim.id, claim.mutates, claim.expect) == ("M", "R", Verdict.REFUTED)
        assert (claim.title, claim.where, claim.note, claim.tags) == ("A bound", "Lemma 1", "as printed", ("lemma",))
        assert list(claim.given) == ["t"]
        assert texts(claim.assume) == {"well-posed": "gamma0 < 1", "(2)": "norm(b) >= 1"}
        assert claim.run.steps == 3
        assert claim.source == {"title": "The paper"}

    def test_entries_are_replaced_added_and_dropped_one_by_one(self, mutants):
        (claim,) = mutants(
            "{id: M, mutates: R, let: {two: t + three, three: 3}, assume: {well-posed: null}, "
            "conclude: {(i): norm(Z) <= two}, given: {t: positive}, run: null, expect: holds, title: Another}"
        )
        assert texts(claim.let) == {"three": "3", "two": "t + three"}
        assert texts(claim.assume) == {"(2)": "norm(b) >= 1"}
        assert texts(claim.conclude) == {"(i)": "norm(Z) <= two"}
        assert claim.given["t"].domain.text == "positive"
        assert (claim.run, claim.expect, claim.title) == (None, Verdict.HOLDS, "Another")

    def test_inherited_names_may_become_unused_and_are_left_out(self, mutants):
        (claim,) = mutants("{id: M, mutates: R, assume: {well-posed: }, conclude: {(i): norm(Z) <= 1}}")
        assert (claim.let, claim.given) == ({}, {})

    def test_own_names_that_are_unused_are_warned_of(self, mutants):
        (claim,) = mutants("{id: M, mutates: R, let: {mine: 1}}")
        assert [p.message for p in claim.warnings] == ["`let.mine` is used nowhere."]

    def test_another_setting(self, mutants):
        (claim,) = mutants("{id: M, mutates: R, setting: [any, wide]}")
        assert [setting.name for setting in claim.settings] == ["any", "wide"]

    def test_a_mutant_of_a_mutant(self, mutants):
        _, claim = mutants("{id: M, mutates: R, assume: {(2): null}}", "{id: MM, mutates: M, let: {two: 5}}")
        assert texts(claim.assume) == {"well-posed": "gamma0 < 1"}
        assert texts(claim.let) == {"gamma0": "gamma*norm(A)", "two": "5"}
        assert claim.given == {}
        assert claim.mutates == "M"

    def test_a_single_formula_is_called_conclusion(self):
        base, mutant = (read_text(text) for text in ("{id: a, conclude: x > 0}", "{id: b, conclude: x > 1}"))
        merged, problems = inherit(base, mutant, "a")
        assert not problems
        assert plain(merged)["conclude"] == {"conclusion": "x > 1"}

    def test_places_are_those_where_things_were_written(self, mutants):
        (claim,) = mutants("{id: M, mutates: R, conclude: {(i): norm(Z) <= two}}")
        assert claim.assume["well-posed"].position.line == 14
        assert claim.conclude["(i)"].position.line > 19


class TestWrong:
    @pytest.mark.parametrize(
        ("mutant", "message", "hint"),
        [
            (
                "assume: {wel-posed: null}",
                "drops nothing: claim R has no such entry (assume of R: well-posed, (2)).",
                "did you mean `well-posed`?",
            ),
            ("assume: {(3): 1 < 2}", "`assume.(3)` replaces nothing", "did you mean `(2)`?"),
            ("conclude: 1 < 2", "`conclude.conclusion` replaces nothing", None),
            ("let: {three: null}", "`let.three` drops nothing", None),
            ("given: {u: null}", "`given.u` drops nothing", None),
            ("instances: null", "`instances` cannot be dropped: claim R has none.", None),
            ("let: {gamma0: nrom(A)}", "unknown function `nrom`", "did you mean `norm`?"),
            ("given: {t: null}", "unknown name `t`", None),
            ("colour: red", "Unknown key `colour` in claim M", None),
            ("conclude: null", "Claim M needs the key `conclude`.", None),
            ("assume: [1]", "`assume.assumption` of claim M must be an expression", None),
        ],
    )
    def test_an_override_that_does_nothing_is_an_error(self, mutants, mutant, message, hint):
        (claim,) = mutants(f"{{id: M, mutates: R, {mutant}}}")
        assert isinstance(claim, IllFormed)
        (problem,) = [p for p in claim.problems if message in p.message]
        assert hint is None or problem.hint == hint
        assert claim.expect is Verdict.REFUTED

    def test_an_unknown_base_is_the_only_thing_said(self, mutants):
        (claim,) = mutants("{id: M, mutates: RR}")
        (problem,) = claim.problems
        assert "names no claim of the suite or of `base`. Got `RR`" in problem.message
        assert problem.hint == "did you mean `R`?"

    def test_circles(self, mutants):
        found = mutants("{id: a, mutates: b}", "{id: b, mutates: a}", "{id: c, mutates: c}")
        assert [claim.problems[0].message for claim in found] == [
            "A claim cannot mutate itself: a -> b -> a.",
            "A claim cannot mutate itself: b -> a -> b.",
            "A claim cannot mutate itself: c -> c.",
        ]

    def test_a_mutant_of_a_broken_claim_is_broken(self, mutants):
        (claim,) = mutants("{id: M, mutates: R}", head=BASE.replace("norm(b)", "nrom(b)"))
        assert "unknown function `nrom`" in claim.problems[0].message


class TestBaseFile:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path):
        self.top = tmp_path / "a" / "b" / "top"
        (self.top / "mutants" / "deep" / "deeper").mkdir(parents=True)
        (self.top / "base.yaml").write_text(BASE)

    def load(self, name, text):
        (self.top / name).write_text("suite: mutants\n" + text)
        return load_suite(self.top / name)

    def problems(self, *arguments):
        with pytest.raises(ClaimFileError) as caught:
            self.load(*arguments)
        return [problem.message for problem in caught.value.problems]

    MUTANT = "base: {}\nclaims: [{{id: M, mutates: R}}]"

    @pytest.mark.parametrize(
        ("name", "base"),
        [
            ("m.yaml", "base.yaml"),
            ("mutants/m.yaml", "../base.yaml"),
            ("mutants/deep/m.yaml", "../../base.yaml"),
            ("m.yaml", "./base.yaml"),
        ],
    )
    def test_claims_and_settings_come_from_it_and_it_is_not_judged(self, name, base):
        suite = self.load(name, self.MUTANT.format(base))
        (claim,) = suite.claims
        assert isinstance(claim, Claim), claim.problems
        assert claim.settings[0].name == "any"
        assert len(suite.files) == 1
        assert claim.assume["well-posed"].position.file.endswith("top/base.yaml")
        assert claim.source == {"title": "The paper"}

    def test_a_setting_of_its_own_does_not_replace_an_inherited_one(self):
        own = "settings: {any: {domain: {c: real}}, small: {model: implicit-relu, sizes: {N: 1, d: 1, m: 1}}}\n"
        claims = "base: base.yaml\nclaims: [{id: M, mutates: R}, {id: M2, mutates: R, setting: [small, wide]}]"
        first, second = self.load("m.yaml", own + claims).claims
        assert first.settings[0].model is not None
        assert [setting.sizes["m"].high for setting in second.settings] == [1, 9]

    def test_base_and_include_of_the_same_file_agree(self):
        (self.top / "mutants" / "m.yaml").write_text("suite: m\n" + self.MUTANT.format("../base.yaml"))
        suite = self.load("all.yaml", "include: [base.yaml, mutants/*.yaml]")
        assert [(claim.id, type(claim)) for claim in suite.claims] == [("R", Claim), ("M", Claim)]

    def test_the_base_of_a_base(self):
        (self.top / "m.yaml").write_text("suite: m\n" + self.MUTANT.format("base.yaml"))
        (claim,) = self.load("mm.yaml", "base: m.yaml\nclaims: [{id: MM, mutates: M}]").claims
        assert isinstance(claim, Claim), claim.problems

    def test_two_files_that_are_each_other_s_base(self):
        (self.top / "x.yaml").write_text("suite: x\nbase: y.yaml\nclaims: [{id: X, mutates: Y}]")
        (claim,) = self.load("y.yaml", "base: x.yaml\nclaims: [{id: Y, mutates: X}]").claims
        assert "cannot mutate itself: Y -> X -> Y" in claim.problems[0].message

    @pytest.mark.parametrize(
        "base", ["../../../base.yaml", "/etc/hosts.yaml", "../base.txt", "a/../../base.yaml", "~/x.yaml", '"a\\0.yaml"']
    )
    def test_what_it_may_not_be(self, base):
        (self.top / "base.txt").write_text(BASE)
        (found,) = self.problems("mutants/m.yaml", self.MUTANT.format(base))
        assert "`base` must be a relative path to a .yaml or .yml file, at most 2 folders up." in found

    def test_a_link_that_leads_out(self, tmp_path):
        (tmp_path / "far.yaml").write_text(BASE)
        (self.top / "link.yaml").symlink_to(tmp_path / "far.yaml")
        assert "`base` must be" in self.problems("m.yaml", self.MUTANT.format("link.yaml"))[0]

    def test_missing_or_broken(self):
        assert "There is no file" in self.problems("m.yaml", self.MUTANT.format("none.yaml"))[0]
        (self.top / "broken.yaml").write_text("suit: x")
        assert any("Unknown key `suit`" in text for text in self.problems("m.yaml", self.MUTANT.format("broken.yaml")))
