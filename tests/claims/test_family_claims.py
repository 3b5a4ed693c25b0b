"""Claims with families: how they are written, what is wrong with them, what they are at each depth."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from ntk_deq.claims.claim import Claim, IllFormed
from ntk_deq.claims.depths import at_depth
from ntk_deq.claims.families import claim_for
from ntk_deq.claims.load import load_suite
from ntk_deq.claims.mutation import follows, mutants
from ntk_deq.claims.statement import claim_file, differences, fingerprint, statement_lines
from ntk_deq.files.yaml import to_yaml
from ntk_deq.report.check import render_check

FILE = """suite: t
settings:
  net:
    sizes: {{{sizes}}}
    domain: {{{domain}}}
claims:
  - id: C
    setting: net
{extra}    conclude: "{statement}"
"""
SIZES = 'L: 1..3, N: 2, n: "1..3 for l in 0..L"'
DOMAIN = 'X: "real[n[0], N]", W: "real[n[l], n[l-1]] for l in 1..L"'
FORWARD = '{"z[0]": X, "z[l] for l in 1..L": "relu(W[l]*z[l-1])"}'


def claim_of(
    folder: Path, statement="fro(X) >= 0", *, sizes=SIZES, domain=DOMAIN, let="", more=""
) -> Claim | IllFormed:
    extra = (f"    let: {let}\n" if let else "") + more
    path = folder / "a.yaml"
    path.write_text(FILE.format(statement=statement, sizes=sizes, domain=domain, extra=extra))
    return load_suite(path).claims[0]


def problem(claim: Claim | IllFormed) -> str:
    assert isinstance(claim, IllFormed)
    return messages(claim)[0]


def messages(claim: Claim | IllFormed) -> list[str]:
    assert isinstance(claim, IllFormed)
    return [f"{problem.message} {problem.hint}" for problem in claim.problems]


class TestBadInput:
    @pytest.mark.parametrize(
        ("statement", "message"),
        [
            ("norm(W[L+1]) >= 0", "`W[L+1]` is W[2], which is no member of `W`, which has W[1] at L = 1."),
            ("norm(W[0]) >= 0", "`W[0]` is no member of `W`"),
            ("norm(W[2]) >= 0", "`W[2]` is no member of `W`, which has W[1] at L = 1."),
            ("norm(W[l-1]) >= 0 for all l in 1..L", "which has W[1] at L = 1, l = 1."),
            ("max(norm(W[l]) for l in 2..L) >= 0", "`max` over an empty range has no value at L = 1."),
            ("norm(W) >= 0", "`W` is a family: it has the members W[l] for l in 1..L."),
            ("norm(W[1][k]) >= 0 for all k", "nothing here has steps"),
            ("norm(W[k]) >= 0", "unknown letter of an index `k`"),
            ("norm(X[1]) >= 0", "`X` is no family, and nothing here has steps."),
            ("sum(norm(W[X]) for X in 1..L) >= 0", "`X` has a meaning already and cannot run over a range."),
            ("sum(norm(W[j]) for j in 1..L, 3) >= 0", "what `sum` takes over a range must be its only argument."),
            ("norm(W[j]*W[j+1]) >= 0 for all j in 1..L-1", "inner sizes n[j-1] and n[j+1] differ."),
        ],
    )
    def test_statements(self, tmp_path, statement, message):
        assert message in problem(claim_of(tmp_path, statement))

    def test_a_range_may_start_behind_the_letter_of_its_member(self, tmp_path):
        let = '{"s[l] for l in 1..L": "sum(norm(W[j]) for j in l+1..L)"}'
        claim = claim_of(tmp_path, "s[L] <= s[1]", let=let)
        assert isinstance(claim, Claim)
        depth = next(d for d in claim.depths if dict(d.letters)["L"] == 3)
        assert at_depth(claim, depth).let["s[1]"].text == "norm(W[2]) + norm(W[3])"

    @pytest.mark.parametrize("domain", ['a: "[0, 1] for l in 1..L"', 'a: {domain: "[0, 1]", for: "l in 1..L"}'])
    def test_a_closed_interval_is_the_domain_of_a_family(self, tmp_path, domain):
        assert isinstance(claim_of(tmp_path, "a[L] <= 1", domain=domain), Claim)

    def test_the_place_is_that_of_the_member(self, tmp_path):
        claim = claim_of(tmp_path, "norm(X) + norm(W[L+1]) >= 0")
        assert isinstance(claim, IllFormed)
        assert (claim.problems[0].position.line, claim.problems[0].position.column) == (9, 31)

    @pytest.mark.parametrize(
        ("let", "statement", "message"),
        [
            (
                '{"z[0]": X, "z[l] for l in 1..L": "W[l]*z[l]"}',
                "norm(z[L]) >= 0",
                "inner sizes n[l-1] and n[l] differ.",
            ),
            (
                '{"z[l] for l in 1..L": "W[l]*z[l-1]"}',
                "norm(z[L]) >= 0",
                "none of its members is defined without others",
            ),
            ('{"z[0]": X, "z[l] for l in 0..L": "W[l]*z[l-1]"}', "norm(z[L]) >= 0", "`z[0]` is defined twice"),
            (FORWARD, "norm(z) >= 0", "`z` is a family: it has the members z[0], z[l] for l in 1..L."),
            (
                FORWARD,
                "norm(z[L+1]) >= 0",
                "`z[L+1]` is z[2], which is no member of `z`, which has z[0], z[1] at L = 1.",
            ),
            (
                '{"z[0]": X, "z[l] for l in 1..L": "relu(W[l]*z[l-1]) + 0*u[l]", '
                '"u[0]": X, "u[l] for l in 1..L": "z[l]*1 + W[l]*u[l-1]"}',
                "norm(z[L]) >= 0",
                "is defined by itself at L = 1: ",
            ),
            ('{"u[l] for l in 1..K": "W[l]*1"}', "norm(u[1]) >= 0", "`K` is no size letter"),
            ('{"z[0]": X, z: X}', "norm(z[0]) >= 0", "that is a definition without members"),
            ('{"z[l+1] for l in 0..L-1": "W[l+1]*1"}', "norm(z[1]) >= 0", "the members of a range are written"),
            ('{"W[0]": X}', "norm(W[1]) >= 0", "cannot define `W`: that is a variable of setting net"),
            (
                '{"z[0]": X, "z[l] for l in 1..L": "W[l]\'*z[l-1]"}',
                "norm(z[L]) >= 0",
                "inner sizes n[l] and n[l-1] differ",
            ),
            ('{"z[0]": X, "z[1]": "W[1]*z[0]*1", "z[2]": "X"}', "norm(z[0]) >= 0", "by its other members"),
            ('{"z[0][1]": X}', "norm(X) >= 0", "`let.z[0][1]` gives a step of a recursion, and the claim has none."),
        ],
    )
    def test_definitions(self, tmp_path, let, statement, message):
        assert message in " ".join(messages(claim_of(tmp_path, statement, let=let)))

    @pytest.mark.parametrize(
        ("sizes", "domain", "message"),
        [
            (SIZES.replace("1..3,", "0..3,", 1), DOMAIN, "with 1 <= lo <= hi"),
            (SIZES.replace("1..3,", "1..300,", 1), DOMAIN, "at most 8 depths in a setting. net has 300: L = 1..300."),
            (SIZES.replace("1..3,", "100,", 1), DOMAIN, "at most 64 members. Got l in 0..L with 101 at L = 100."),
            (
                SIZES,
                DOMAIN.replace("1..L", "1..K"),
                "`K` in `l in 1..K` is no size letter, so that the range is not known",
            ),
            (SIZES, DOMAIN.replace("l in 1", "N in 1"), "`N` is a size letter and cannot run over a range."),
            (SIZES, DOMAIN.replace("n[0]", "n"), "`n` is a family of sizes: write n[0]"),
            (SIZES, DOMAIN.replace("n[l],", "n[k],"), "the size n[k] is not among `sizes`"),
            (SIZES, DOMAIN.replace("n[l],", "n[l+1],"), "there is no size n[2] at L = 1."),
            (SIZES, DOMAIN.replace("n[0]", "m[0]"), "the size m[0] is not among `sizes`"),
            (SIZES, DOMAIN.replace("1..L", "1..2*L"), "an index may be made of"),
            (SIZES, 'X: {shape: "[n[0], N]", over: "l in 1..L"}', "must be a domain such as"),
            (SIZES.replace("1..3 for", "3..1 for"), DOMAIN, "with 1 <= lo <= hi"),
            (SIZES.replace("0..L", "0..l"), DOMAIN, "cannot depend on `l`"),
        ],
    )
    def test_declarations(self, tmp_path, sizes, domain, message):
        claim = claim_of(tmp_path, "norm(X) >= 0", sizes=sizes, domain=domain)
        assert message in " ".join(messages(claim))

    def test_a_family_in_a_model_that_has_none(self, tmp_path):
        path = tmp_path / "a.yaml"
        path.write_text(
            "suite: t\nsettings:\n  s: {model: implicit-relu, sizes: {N: 1, d: 1, m: 1},"
            ' init: {W: "normal(0, 1) for l in 1..2"}}\n'
            "claims:\n  - {id: C, setting: s, conclude: norm(W) >= 0}\n"
        )
        assert "W is a single matrix d x m, and no family" in problem(load_suite(path).claims[0])


class TestForms:
    def test_a_line_and_a_mapping_are_the_same(self, tmp_path):
        line = claim_of(tmp_path, "norm(W[1]) >= 0")
        mapping = claim_of(
            tmp_path,
            "norm(W[1]) >= 0",
            sizes='L: 1..3, N: 2, n: {range: [1, 3], for: "l in 0..L"}',
            domain='X: "real[n[0], N]", W: {shape: "[n[l], n[l-1]]", for: "l in 1..L"}',
        )
        assert isinstance(line, Claim)
        assert isinstance(mapping, Claim)
        assert fingerprint(line) == fingerprint(mapping)

    def test_draws_use_the_letter_and_the_sizes_of_members(self, tmp_path):
        path = tmp_path / "a.yaml"
        path.write_text(
            """suite: t
settings:
  s:
    sizes: {L: 2, n: "2..3 for l in 0..L"}
    init: {W: {draw: "c[l]*normal(0, l/n[l-1])", shape: "[n[l], n[l-1]]", for: "l in 1..L"}, c: "1/l for l in 1..L"}
claims:
  - {id: C, setting: s, conclude: "sum(norm(W[l])/c[l] for l in 1..L) >= 0"}
"""
        )
        claim = load_suite(path).claims[0]
        assert isinstance(claim, Claim)
        draws = at_depth(claim, claim.depths[0]).settings[0].draws
        assert {name: draw.text for name, draw in draws.items()} == {
            "W[1]": "c[1]*normal(0, 1/n[0])",
            "W[2]": "c[2]*normal(0, 2/n[1])",
            "c[1]": "1/1",
            "c[2]": "1/2",
        }

    def test_a_claim_file_of_its_own_states_the_same(self, tmp_path):
        claim = claim_of(
            tmp_path,
            "norm(z[L]) >= 0",
            let=FORWARD,
            more='    given: {c: "positive for l in 1..L"}\n' + ('    assume: "c[l] <= 1 for all l in 1..L"\n'),
        )
        assert isinstance(claim, Claim)
        path = tmp_path / "b.yaml"
        path.write_text(to_yaml(claim_file(claim)))
        again = load_suite(path).claims[0]
        assert isinstance(again, Claim)
        assert not differences(claim, again)
        deep = claim.depths[1]
        assert claim_file(at_depth(claim, deep)) == claim_file(claim)
        assert fingerprint(at_depth(claim, deep)) == fingerprint(at_depth(again, deep)) != fingerprint(claim)

    def test_what_check_and_the_report_show(self, tmp_path):
        claim = claim_of(tmp_path, "fro(z[L]) <= prod(norm(W[l]) for l in 1..L)*fro(X) for all j in 1..L", let=FORWARD)
        claim = claim_of(tmp_path, "fro(z[L]) <= prod(norm(W[l]) for l in L..1)*fro(X)", let=FORWARD)
        assert isinstance(claim, Claim)
        lines = {line.name: line for line in statement_lines(claim)}
        assert r"\left(\prod_{l = L}^{1} \left\|W_{l}\right\|\right)" in lines["conclusion"].latex
        assert "<munderover><mo>∏</mo>" in lines["conclusion"].mathml
        assert lines["z[l] for l in 1..L"].latex == r"\operatorname{relu}\left(W_{l} z_{l - 1}\right)"
        console = Console(width=120, record=True, file=io.StringIO())
        render_check(console, load_suite(tmp_path / "a.yaml"), [claim])
        shown = console.export_text()
        assert "depths   L = 1; L = 2; L = 3" in shown
        assert "let z[0] matrix n[0] x N X z[l] for l in 1..L matrix n[l] x N" in " ".join(shown.split())
        assert "names    X matrix n[0] x N, W[l] matrix n[l] x n[l-1]" in shown

    def test_quantifiers_in_print(self, tmp_path):
        claim = claim_of(tmp_path, "norm(W[l]) >= 0 for some l in 1..L for all j in 1..L")
        assert isinstance(claim, Claim)
        (line,) = statement_lines(claim)
        assert line.latex.endswith(r"\geq 0, \quad \exists l = 1, \ldots, L, \quad \forall j = 1, \ldots, L")
        assert "∃" in line.mathml
        assert "∀" in line.mathml


class TestDefinitions:
    def test_members_rest_on_each_other_across_families_and_backwards(self, tmp_path):
        let = (
            '{"z[0]": X, "h[l] for l in 1..L": "W[l]*z[l-1]", "z[j] for j in 1..L": "relu(h[j])", '
            '"d[L]": "z[L]", "d[l] for l in 0..L-1": "W[l+1]\'*d[l+1]", "s[0]": "0", '
            '"s[l] for l in 1..L": "s[l-1] + norm(d[l])"}'
        )
        claim = claim_of(tmp_path, "s[L] + norm(d[0]) >= 0", let=let)
        assert isinstance(claim, Claim)
        types = {name: str(formula.expr.type) for name, formula in claim.let.items()}
        assert types["h[l] for l in 1..L"] == types["d[l] for l in 0..L-1"] == "matrix n[l] x N"
        assert types["z[j] for j in 1..L"] == "matrix n[j] x N"
        assert types["s[l] for l in 1..L"] == "scalar"
        deep = at_depth(claim, claim.depths[2])
        order = list(deep.let)
        assert order.index("h[3]") < order.index("z[3]") < order.index("d[3]") < order.index("d[0]")
        assert deep.let["d[2]"].text == "W[3]'*d[3]"

    def test_members_given_one_by_one(self, tmp_path):
        let = '{"z[0]": X, "z[1]": "relu(W[1]*z[0])", out: "z[1]"}'
        claim = claim_of(tmp_path, "norm(out) >= 0", let=let)
        assert isinstance(claim, Claim)
        assert str(claim.let["out"].expr.type) == "matrix n[1] x N"

    def test_an_unused_definition_is_a_warning_and_dropped(self, tmp_path):
        claim = claim_of(tmp_path, "norm(X) >= 0", let=FORWARD)
        assert isinstance(claim, Claim)
        assert not claim.let
        assert "is used nowhere" in claim.warnings[0].message


class TestDepths:
    def test_what_counts_as_a_depth(self, tmp_path):
        claim = claim_of(
            tmp_path,
            "sum(c^k for k in 0..K) >= norm(X)",
            sizes="K: 1..2, N: 2, m: 1..3",
            domain='X: "real[m, N]", c: real',
        )
        assert isinstance(claim, Claim)
        assert [str(depth) for depth in claim.depths] == ["K = 1", "K = 2"]

    def test_ranges_between_numbers_have_one_depth_without_letters(self, tmp_path):
        claim = claim_of(tmp_path, "norm(A[1]*A[2]) >= 0", sizes="m: 2", domain='A: "real[m, m] for l in 1..2"')
        assert isinstance(claim, Claim)
        assert [depth.letters for depth in claim.depths] == [()]

    def test_a_claim_without_families_has_none(self, tmp_path):
        claim = claim_of(tmp_path, "norm(X) >= 0", sizes="L: 1..3", domain='X: "real[L, L]"')
        assert isinstance(claim, Claim)
        assert not claim.depths
        assert claim_for(claim, "net", {"L": 2}) is claim

    def test_the_claim_of_an_instance(self, tmp_path):
        claim = claim_of(tmp_path, "norm(W[1]) >= 0")
        assert isinstance(claim, Claim)
        found = claim_for(claim, "net", {"L": 2, "N": 2, "n[0]": 1, "n[1]": 1, "n[2]": 1})
        assert found.depth == claim.depths[1]
        assert list(found.settings[0].sizes) == ["L", "N", "n[0]", "n[1]", "n[2]"]
        with pytest.raises(LookupError):
            claim_for(claim, "net", {"L": 9})

    def test_several_settings_have_depths_of_their_own(self, tmp_path):
        path = tmp_path / "a.yaml"
        path.write_text(
            """suite: t
settings:
  a: {sizes: {L: 1..2, m: 2}, domain: {A: "real[m, m] for l in 1..L"}}
  b: {sizes: {L: 3, m: 2}, domain: {A: "psd[m, m] for l in 1..L"}}
claims:
  - {id: C, setting: [a, b], conclude: "norm(A[L]) >= 0"}
"""
        )
        claim = load_suite(path).claims[0]
        assert isinstance(claim, Claim)
        assert [(depth.setting, str(depth)) for depth in claim.depths] == [
            ("a", "L = 1"),
            ("a", "L = 2"),
            ("b", "L = 3"),
        ]


class TestMutants:
    def test_rules_change_what_stands_below_a_sum(self, tmp_path):
        claim = claim_of(tmp_path, "sum(2*norm(W[l]) for l in 1..L) <= sum(2*fro(W[l]) for l in 1..L)")
        assert isinstance(claim, Claim)
        found = list(mutants(claim))
        assert all(mutation.claim.depths == claim.depths for mutation in found)
        afters = {mutation.after for mutation in found}
        assert any("norm(W[l])*norm" not in after and "1*fro(W[l])" in after for after in afters)
        assert not any("W[0]" in after for after in afters)

    def test_an_index_outside_its_range_is_no_mutant(self, tmp_path):
        claim = claim_of(tmp_path, "norm(W[l]) <= fro(W[l]) for all l in 1..L")
        assert isinstance(claim, Claim)
        assert not [m for m in mutants(claim, rules=["step"])]

    def test_what_follows_at_every_depth(self, tmp_path):
        claim = claim_of(tmp_path, "sum(norm(W[l]) for l in 1..L) <= sum(fro(W[l]) for l in 1..L)")
        assert isinstance(claim, Claim)
        weaker = {m.after: follows(claim, m.claim) for m in mutants(claim, rules=["double", "halve"])}
        assert weaker == {
            "sum(norm(W[l]) for l in 1..L) <= 2*sum(fro(W[l]) for l in 1..L)": True,
            "sum(norm(W[l]) for l in 1..L) <= sum(fro(W[l]) for l in 1..L)/2": False,
        }

    def test_a_mutant_replaces_the_part_that_it_names(self, tmp_path):
        path = tmp_path / "a.yaml"
        text = FILE.format(statement="norm(z[L]) >= 0", sizes=SIZES, domain=DOMAIN, extra=f"    let: {FORWARD}\n")
        path.write_text(text + '  - id: M\n    mutates: C\n    let: {"z[l] for l in 1..L": "W[l]*z[l-1]"}\n')
        mutant = load_suite(path).claims[1]
        assert isinstance(mutant, Claim)
        assert {name: formula.text for name, formula in mutant.let.items()} == {
            "z[0]": "X",
            "z[l] for l in 1..L": "W[l]*z[l-1]",
        }
