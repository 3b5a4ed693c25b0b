"""Loading suites: claims typed in every setting, wrong ones set apart, includes, limits, and no exception but one."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ntk_deq.claims import documents, load
from ntk_deq.claims.claim import Claim, IllFormed, Verdict
from ntk_deq.claims.describe import describe_systems
from ntk_deq.claims.load import load_suite
from ntk_deq.errors import ClaimFileError
from ntk_deq.language.domain import DomainKind
from ntk_deq.language.tree import Kind

HEAD = """
suite: example
source: {title: A title, url: "https://example.org"}
settings:
  plain: {sizes: {n: 1..6, m: 1..6}, domain: {P: "real[n, m]", S: "symmetric[n, n]", c: positive}}
  any: {model: implicit-relu, sizes: {N: 1..6, d: 1..6, m: 1..6}}
  huge: {sizes: {n: 1000000}, domain: {v: "real[n]"}}
claims:
"""


@pytest.fixture
def suite(tmp_path):
    def write(claims, head=HEAD, name="suite.yaml", **options):
        path = tmp_path / name
        path.write_text(head + textwrap.dedent(claims).lstrip("\n"), encoding="utf-8")
        return load_suite(path, **options)

    return write


def only(suite):
    (claim,) = suite.claims
    return claim


def messages(claim):
    assert isinstance(claim, IllFormed), claim
    assert all(problem.claim == claim.id for problem in claim.problems)
    return [problem.message for problem in claim.problems]


class TestGood:
    def test_a_claim_is_typed_and_its_definitions_sorted(self, suite):
        claim = only(
            suite("""
            - id: R.S4M
              title: A bound
              where: section 4
              setting: any
              let:
                Mt: gamma * kron(b', I(N)) * inv(Q) * D * kron(I(m), Z)
                gamma0: gamma * norm(A)
                Q: I(N*m) - gamma * D * kron(A', I(N))
                D: diag(step(vec(gamma*Z*A + X*W)))
              assume: {well-posed: gamma0 < 1}
              conclude: sigma_min(Mt) >= gamma/(1 - gamma0) * norm(b) * min(diag(D)) * sigma_min(Z)
              tags: [lemma, kernel]
              instances: 40
            """)
        )
        assert isinstance(claim, Claim)
        assert str(claim.let["Mt"].expr.type) == "matrix N x m^2"
        order = list(claim.let)
        assert order.index("D") < order.index("Q") < order.index("Mt")
        assert claim.conclude["conclusion"].expr.kind is Kind.COMPARE
        assert all(node.type is not None for node in claim.conclude["conclusion"].expr.walk())
        assert (claim.expect, claim.tags, claim.instances) == (Verdict.HOLDS, ("lemma", "kernel"), 40)
        assert claim.source["title"] == "A title"
        assert claim.where == "section 4"
        assert claim.position.line == 9

    def test_the_order_of_the_file_is_kept_where_it_is_one(self, suite):
        claim = only(suite("- {id: a, setting: plain, let: {z: c, b: z, y: 2, x: y + b}, conclude: x > 0}"))
        assert list(claim.let) == ["z", "b", "y", "x"]

    def test_numbers_are_expressions_and_keep_their_digits(self, suite):
        claim = only(suite("- {id: a, setting: plain, let: {e: 0.10}, conclude: c > -e}"))
        assert claim.let["e"].text == "0.10"
        assert str(claim.let["e"].expr.value) == "1/10"

    def test_given_in_every_form(self, suite):
        claim = only(
            suite(
                "- {id: a, setting: plain, given: {t: '(0, 1]', s: [-1, 1/2], k: integer 1..5, R: 'psd[n, n]', "
                "v: '[0, inf) [m]'}, conclude: t + s + k + norm(R) + norm(v) >= 0}"
            )
        )
        t, s, k, R, v = (claim.given[name] for name in "tskRv")
        assert (t.domain.low_open, t.domain.high_open, str(t.type)) == (True, False, "scalar")
        assert (s.domain.low, str(s.domain.high), s.domain.low_open) == (-1, "1/2", False)
        assert (k.domain.kind, k.domain.low, k.domain.high) == (DomainKind.INTEGER, 1, 5)
        assert (R.domain.kind, str(R.type)) == (DomainKind.PSD, "matrix n x n")
        assert (v.domain.high, v.domain.high_open, str(v.type)) == (None, True, "vector m")

    def test_a_run_lets_the_state_carry_a_step(self, suite):
        claim = only(
            suite("""
            - id: a
              setting: any
              run: {method: fixed-point, steps: 30}
              assume: gamma*norm(A) < 1
              conclude: norm(Z[l+1] - Z[l]) <= gamma*norm(A)*norm(Z[l] - Z[l-1]) for all l
            """)
        )
        assert (str(claim.run.kind), claim.run.steps) == ("fixed-point", 30)
        assert claim.conclude["conclusion"].expr.kind is Kind.FOR_ALL

    def test_a_claim_may_have_several_settings(self, suite):
        claim = only(
            suite(
                "- {id: a, setting: [any, tall], conclude: norm(Phi) >= 0}",
                head=HEAD.replace("claims:", "  tall: {model: implicit-relu, sizes: {N: 9, d: 2, m: 3}}\nclaims:"),
            )
        )
        assert [setting.name for setting in claim.settings] == ["any", "tall"]


class TestIllFormed:
    @pytest.mark.parametrize(
        ("body", "column", "message", "hint"),
        [
            ("conclude: sigma_mim(P) > 0", 37, "unknown function `sigma_mim`", "did you mean `sigma_min`?"),
            ("conclude: norm(Q) > 0", 42, "unknown name `Q`", None),
            ("conclude: norm(P*P) > 0", 43, "inner sizes m and n differ", "transpose the right factor: '"),
            ("conclude: c + 1", 37, "a statement is needed here", None),
            ("conclude: c > 0, given: {k: real}", 52, "`given.k` is used nowhere", None),
            ("conclude: c > a, let: {a: b, b: a}", 50, "`let.a` is defined by itself: a -> b -> a.", None),
            ("conclude: ones > 0, let: {ones: 1}", 53, "`let` cannot define `ones`: that is a function", None),
            (
                "conclude: n > c, let: {n: 1}",
                50,
                "`let` cannot define `n`: that is a size letter of setting plain",
                None,
            ),
            ("conclude: c > 0, let: {c: 1}", 50, "`let` cannot define `c`: that is a variable of setting plain", None),
            (
                "conclude: c > k, let: {k: 1}, given: {k: real}",
                50,
                "`let` cannot define `k`: that is a name under",
                None,
            ),
            ("conclude: c > 0, let: {for: 1}", 50, "`let` cannot define `for`: that is a word of the language", None),
            ("conclude: c > k, given: {k: 'real[q]'}", 55, "`given.k`: setting plain has no size q", None),
            ("conclude: c > k, given: {k: 'psd[n, m]'}", 55, "psd needs a square matrix. Got matrix n x m", None),
            ("conclude: c > k, given: {k: positve}", 55, "Got 'positve'", "did you mean `positive`?"),
            ("conclude: c > k, given: {k: (2, 1)}", 55, "(2, 1) is empty", None),
            ("conclude: c > k, given: {k: '(0, x)'}", 60, "a bound of an interval must be a number", None),
            ("conclude: c > k, given: {k: '(0, 1/0)'}", 60, "a bound of an interval must be a number", None),
            ("conclude: P >> P", 40, "unexpected '>'", "write psd(A - B) for the order of symmetric matrices"),
            ("conclude: P ⪰ P", 39, "unexpected character '⪰'", "write psd(A - B) for the order of symmetric matrices"),
            ("conclude: c > no", 41, "unknown name `no`", "did you mean `norm`?"),
            ("conclude: yes", 37, "Got the word 'yes' (only true and false are booleans)", None),
            (
                "conclude: c > 0, run: {method: fixed-point, steps: 2}",
                44,
                "`run` needs a model; setting plain has none",
                None,
            ),
            ("conclude: norm(I(1000000000)) > 0", 42, "1000000000000000000 entries; at most 134217728", None),
            ("conclude: c > 0 for all k", 37, "nothing here has steps", None),
            ("conclude: c > 0, tags: [a], tags: [b]", 55, "The key `tags` is here twice", None),
            ("conclude: c > 0, colour: red", 44, "Unknown key `colour`", None),
            ("conclude: c > 0, domain: {}", 44, "Unknown key `domain`", "it stands in an entry of `settings`"),
            ("conclude: c > 0, equilibrium: {}", 44, "`equilibrium`", "it stands in an entry of `systems`"),
        ],
    )
    def test_one_problem_with_its_place(self, suite, body, column, message, hint):
        found = suite(f"- {{id: a, setting: plain, {body}}}\n- {{id: ok, setting: plain, conclude: c > 0}}")
        wrong, good = found.claims
        assert isinstance(good, Claim)
        assert message in "\n".join(messages(wrong))
        problem = next(p for p in wrong.problems if message in p.message)
        assert (problem.position.line, problem.position.column) == (9, column), body
        if hint is not None:
            assert problem.hint == hint

    def test_an_unused_definition_is_a_warning_with_its_place(self, suite):
        claim = only(suite("- {id: a, setting: plain, conclude: c > 0, let: {k: 1}}"))
        assert isinstance(claim, Claim)
        (warning,) = claim.warnings
        assert (warning.message, warning.claim) == ("`let.k` is used nowhere.", "a")
        assert (warning.position.line, warning.position.column) == (9, 50)
        assert claim.let == {}

    def test_an_unused_name_near_an_unknown_one(self, suite):
        claim = only(suite("- {id: a, setting: plain, let: {gamma0: c}, conclude: gama0 > 0}"))
        hints = {problem.message: problem.hint for problem in claim.problems}
        assert hints == {
            "`conclude.conclusion`: unknown name `gama0`.": "did you mean `gamma0`?",
            "`let.gamma0` is used nowhere.": "`gama0` is used and not defined; is `gamma0` meant?",
        }

    def test_a_broken_definition_is_reported_once(self, suite):
        claim = only(
            suite("- {id: a, setting: plain, let: {k: norm(P*P), l: k + 1}, assume: k > 0, conclude: l + k > 0}")
        )
        assert len(claim.problems) == 1

    def test_all_problems_of_a_claim_are_collected(self, suite):
        claim = only(
            suite("- {id: a, setting: plain, let: {k: c +, l: 3}, assume: {(1): nrom(P), (2): 'P'}, conclude: c > l}")
        )
        assert len(claim.problems) == 3

    def test_the_position_inside_quotes(self, suite):
        claim = only(suite('- {id: a, setting: plain, conclude: "1 <= nrom(P)"}'))
        (problem,) = claim.problems
        assert problem.position.column == 43
        assert problem.source[slice(*problem.span)] == "nrom"

    def test_with_several_settings_the_wrong_one_is_named(self, suite):
        head = HEAD.replace("claims:", "  other: {sizes: {n: 2, m: 3}, domain: {P: 'real[m, m]', c: real}}\nclaims:")
        claim = only(suite("- {id: a, setting: [plain, other], conclude: norm(P*P) > c}", head=head))
        (message,) = messages(claim)
        assert message.endswith("(in setting plain)")

    def test_a_name_that_is_a_number_here_and_a_matrix_there(self, suite):
        head = HEAD.replace("claims:", "  other: {sizes: {n: 2, m: 3}, domain: {P: real, c: real}}\nclaims:")
        claim = only(suite("- {id: a, setting: [plain, other], let: {q: 2*P}, conclude: norm(q) > c}", head=head))
        assert "matrix in setting plain, scalar in other" in messages(claim)[0]

    def test_unknown_and_repeated_settings(self, suite):
        claim = only(suite("- {id: a, setting: [plian, plain, plain], conclude: c > 0}"))
        assert [p.hint for p in claim.problems] == ["did you mean `plain`?", None]
        assert "listed twice" in messages(claim)[1]

    def test_products_that_no_memory_holds(self, suite):
        found = suite("""
        - {id: outer, setting: huge, conclude: norm(v*v') > 0}
        - {id: kron, setting: huge, conclude: "norm(kron(v, v)) > 0"}
        - {id: inner, setting: huge, conclude: "v'*v >= 0"}
        """)
        outer, kron, inner = found.claims
        assert "1000000 x 1000000" in messages(outer)[0]
        assert "1000000000000 entries" in messages(kron)[0]
        assert isinstance(inner, Claim)

    def test_an_expression_10000_deep(self, suite):
        found = suite(
            f"- {{id: a, setting: plain, conclude: '{'(' * 5000}c{')' * 5000} > 0'}}\n"
            f"- {{id: b, setting: plain, conclude: '{'-' * 10000}c > 0'}}\n"
            "- {id: ok, setting: plain, conclude: c > 0}"
        )
        assert [type(claim) for claim in found.claims] == [IllFormed, IllFormed, Claim]
        assert all("deep" in messages(claim)[0] for claim in found.claims[:2])

    def test_ids_stay_unique(self, suite):
        found = suite("""
        - {id: a, setting: plain, conclude: c > 0}
        - {id: a, setting: plain, conclude: c > 1}
        - {setting: plain, conclude: c > 0}
        - 3
        """)
        first, second, third, fourth = found.claims
        assert isinstance(first, Claim)
        assert "used twice in the suite; first at" in messages(second)[0]
        assert messages(third) == ["Claim suite.yaml:11 needs the key `id`."]
        assert messages(fourth) == ["Claim suite.yaml:12 must be a mapping (`name: value` lines). Got 3."]
        assert len({claim.id for claim in found.claims}) == 4

    def test_expectation_and_title_survive(self, suite):
        claim = only(suite("- {id: a, title: T, where: W, expect: ill-formed, setting: plain, conclude: norm(Q) > 0}"))
        assert (claim.title, claim.where, claim.expect) == ("T", "W", Verdict.ILL_FORMED)


class TestFileErrors:
    def problems(self, path):
        with pytest.raises(ClaimFileError) as caught:
            load_suite(path)
        assert str(caught.value)
        return [problem.message for problem in caught.value.problems]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("suit: a", "Unknown key `suit` in a claim file"),
            ("- a", "A claim file must be a mapping"),
            ("just words", "A claim file must be a mapping"),
            ("suite: a\nclaims: 3", "`claims` of a claim file must be a list. Got 3."),
            ("suite: a\nsuite: b", "The key `suite` is here twice"),
            ("suite: a\nclaims: []\nclaims: []", "The key `claims` is here twice"),
            ("suite: a\nsettings: {s: {}, s: {}}", "The key `s` is here twice"),
            ("suite: a\nsource: {titel: b}", "Unknown key `titel`"),
            ("suite: a\nclaims: !x []", "tags are not allowed"),
            ("suite: [", "not YAML"),
            ("\x89PNG\r\n\x1a\n", "not allowed in YAML"),
        ],
    )
    def test_an_unusable_file(self, tmp_path, text, message):
        path = tmp_path / "a.yaml"
        path.write_text(text, encoding="utf-8")
        assert any(message in found for found in self.problems(path))

    def test_missing(self, tmp_path):
        assert "There is no file" in self.problems(tmp_path / "none.yaml")[0]


class TestIncludes:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path):
        self.top = tmp_path / "top"
        (self.top / "checks").mkdir(parents=True)
        (tmp_path / "outside.yaml").write_text("suite: outside")

    def write(self, name, text):
        (self.top / name).write_text(text)

    def claim(self, name):
        return f"settings: {{s: {{domain: {{c: positive}}}}}}\nclaims: [{{id: {name}, setting: s, conclude: c > 0}}]"

    def problems(self, name="top.yaml"):
        with pytest.raises(ClaimFileError) as caught:
            load_suite(self.top / name)
        return [problem.message for problem in caught.value.problems]

    def test_own_claims_first_then_the_included_ones_sorted(self):
        self.write("top.yaml", "suite: t\ninclude: [checks/*.yaml]\n" + self.claim("top"))
        self.write("checks/b.yaml", "suite: b\nsource: {title: B}\n" + self.claim("b"))
        self.write("checks/a.yaml", "suite: a\n" + self.claim("a"))
        found = load_suite(self.top / "top.yaml")
        assert [claim.id for claim in found.claims] == ["top", "a", "b"]
        assert found.claims[2].source == {"title": "B"}
        names = [name.removeprefix(f"{self.top}/") for name in found.files]
        assert names == ["top.yaml", "checks/a.yaml", "checks/b.yaml"]
        assert found.claims[1].position.file.endswith("checks/a.yaml")

    def test_a_file_reached_twice_counts_once(self):
        self.write("top.yaml", "suite: t\ninclude: [checks/a.yaml, checks/*.yaml]")
        self.write("checks/a.yaml", "suite: a\n" + self.claim("a"))
        assert len(load_suite(self.top / "top.yaml").claims) == 1

    def test_ids_are_unique_over_files(self):
        self.write("top.yaml", "suite: t\ninclude: [checks/*.yaml]\n" + self.claim("a"))
        self.write("checks/a.yaml", "suite: a\n" + self.claim("a"))
        _, second = load_suite(self.top / "top.yaml").claims
        assert "used twice" in messages(second)[0]

    @pytest.mark.parametrize(
        ("include", "message"),
        [
            ("none/*.yaml", "no file matches"),
            ("../outside.yaml", "without `..` and `**`"),
            ("checks/../../outside.yaml", "without `..` and `**`"),
            ("/etc/passwd", "without `..` and `**`"),
            ("~/a.yaml", "without `..` and `**`"),
            ("'**/*.yaml'", "without `..` and `**`"),
            ('"a\\0b"', "without `..` and `**`"),
            ('""', "without `..` and `**`"),
            ("link.yaml", "a link to a place outside"),
            ("notes.txt", "is no .yaml or .yml file"),
            ("'*.yaml'", "include itself"),
            (".", "is no path or glob of files"),
        ],
    )
    def test_what_may_not_be_included(self, include, message):
        self.write("top.yaml", f"suite: t\ninclude: [{include}]")
        self.write("notes.txt", "hello")
        if "link" in include:
            (self.top / "link.yaml").symlink_to(self.top.parent / "outside.yaml")
        found = self.problems()
        assert any(message in text for text in found), found

    def test_cycles_over_several_files(self):
        self.write("a.yaml", "suite: a\ninclude: [b.yaml]")
        self.write("b.yaml", "suite: b\ninclude: [a.yaml]")
        assert self.problems("a.yaml") == ["`include`: 'a.yaml' makes a.yaml include itself."]

    def test_problems_of_all_files_are_collected(self):
        self.write("top.yaml", "suite: t\ninclude: [checks/*.yaml, none.yaml]")
        self.write("checks/a.yaml", "suit: a")
        self.write("checks/b.yaml", "a: &x 1")
        found = self.problems()
        assert len(found) == 4
        assert any("anchors" in text for text in found)

    def test_a_loop_of_links(self):
        (self.top / "x.yaml").symlink_to(self.top / "y.yaml")
        (self.top / "y.yaml").symlink_to(self.top / "x.yaml")
        assert len(self.problems("x.yaml")) == 1

    def test_number_and_size_of_files_are_bounded(self, monkeypatch):
        self.write("top.yaml", "suite: t\ninclude: [checks/*.yaml]")
        for name in "abcd":
            self.write(f"checks/{name}.yaml", "suite: " + name)
        monkeypatch.setattr(documents, "MAX_FILES", 3)
        assert any("at most 3 files" in text for text in self.problems())
        monkeypatch.setattr(documents, "MAX_FILES", 300)
        monkeypatch.setattr(documents, "_MAX_TOTAL", 50)
        assert any("at most 50 bytes together" in text for text in self.problems())


class TestLimits:
    def test_number_of_claims(self, suite, monkeypatch):
        monkeypatch.setattr(load, "MAX_CLAIMS", 2)
        with pytest.raises(ClaimFileError, match=r"at most 2 claims\. Got 3"):
            suite("\n".join(f"- {{id: a{i}, setting: plain, conclude: c > 0}}" for i in range(3)))

    def test_number_of_problems(self, suite, monkeypatch):
        monkeypatch.setattr(load, "MAX_PROBLEMS", 3)
        with pytest.raises(ClaimFileError, match="More than 3 problems") as caught:
            suite("\n".join(f"- {{id: a{i}, setting: plain, conclude: x > {i}}}" for i in range(50)))
        assert len(caught.value.problems) == 5

    def test_number_of_entries_of_a_section(self, suite):
        lets = ", ".join(f"l{i}: c" for i in range(301))
        claim = only(suite(f"- {{id: a, setting: plain, let: {{{lets}}}, conclude: c > 0}}"))
        assert messages(claim) == [
            "`let` of claim a must be a list or mapping with at most 300 entries. Got a mapping."
        ]

    def test_several_settings_count_several_times(self, suite, monkeypatch):
        text = "- {id: a, setting: [plain, twin], conclude: c > 0}"
        head = HEAD.replace("claims:", "  twin: {domain: {c: real}}\nclaims:")
        assert isinstance(only(suite(text, head=head)), Claim)
        monkeypatch.setattr(load, "MAX_TEXT", 40)
        with pytest.raises(ClaimFileError, match="may have at most 40 characters"):
            suite(text, head=head)

    def test_mutants_cannot_multiply_a_file(self, suite, monkeypatch):
        monkeypatch.setattr(load, "MAX_TEXT", 10_000)
        base = f"- {{id: a0, setting: plain, conclude: '{' + '.join(['c'] * 200)} > 0'}}\n"
        chain = "\n".join(f"- {{id: a{i}, mutates: a{i - 1}}}" for i in range(1, 60))
        with pytest.raises(ClaimFileError, match="inherited ones included"):
            suite(base + chain)


def test_loading_imports_neither_torch_nor_numpy_nor_sympy():
    code = (
        "import sys, ntk_deq.claims.load, ntk_deq.claims.describe, ntk_deq.claims.schema;"
        "print([m for m in ('torch', 'numpy', 'sympy', 'rich', 'flint') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


WORDS = st.sampled_from(
    "suite: settings: claims: - id: let: given: assume: conclude: setting: sizes: domain: init: data: images: model: "
    "run: mutates: base: include: implicit-relu plain any a b c n m N P real (0,1) 1..6 [ ] { } : , 3 0.5 yes null "
    "'x' \"y\" &a *a <<: !t # norm(P) c>0 Z[l] 1/0 I(10^9) ^ ' ' \n \n \n-".split(" ")
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(WORDS, max_size=30), st.integers(0, len(HEAD)), st.sampled_from([" ", "\n", "\n  ", ""]))
def test_any_text_loads_or_gives_a_claim_file_error(tmp_path, words, cut, glue):
    path = tmp_path / "random.yaml"
    path.write_text(HEAD[:cut] + glue.join(words) + HEAD[cut:], encoding="utf-8")
    try:
        found = load_suite(path)
    except ClaimFileError:
        return
    assert len({claim.id for claim in found.claims}) == len(found.claims)
    describe_systems(found.claims)
