"""Claims that something exists: with a witness, without, refuted by a proof, left undecided; bad input."""

from __future__ import annotations

from pathlib import Path

import pytest
from flint import fmpq

from ntk_deq.claims.claim import Claim, IllFormed, Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.claims.statement import claim_file, differences, statement_lines
from ntk_deq.verify.existence.contradiction import Row, solve_linear
from ntk_deq.verify.options import Options
from ntk_deq.verify.replay import read_counterexample, replay
from ntk_deq.verify.runner import judge

HEAD = """suite: existence
settings:
  square: {sizes: {n: 1..3}, domain: {W: "real[n, n]"}}
  wide: {sizes: {n: 1..2, m: 1..3}, domain: {A: "real[n, m]", c: "real[n]"}}
  number: {domain: {x: real}}
  numbers: {domain: {a: real, b: real, c: real, d: real}}
  net: {model: implicit-relu, sizes: {N: 2, d: 2, m: 2}}
claims:
"""


def claims(tmp_path, *entries):
    file = tmp_path / "claims.yaml"
    file.write_text(HEAD + "".join(f"  - {{id: C{k}, {entry}}}\n" for k, entry in enumerate(entries)))
    return load_suite(str(file)).claims


def claim(tmp_path, entry) -> Claim:
    (found,) = claims(tmp_path, entry)
    assert isinstance(found, Claim), found.problems
    return found


def judged(tmp_path, entry, **options):
    return judge(claim(tmp_path, entry), Options(**{"instances": 12, "search": 20, **options}))


PARTS = 'setting: square, exists: {S: "symmetric[n, n]", K: "skew[n, n]"}, conclude: W == S + K'
PARTS_WITNESS = f"{PARTS}, witness: {{S: (W + W')/2, K: (W - W')/2}}"
SOLVABLE = 'setting: wide, exists: {v: "real[m]"}, conclude: A*v == c'


class TestWitness:
    def test_one_that_serves(self, tmp_path):
        result = judged(tmp_path, PARTS_WITNESS)
        assert result.verdict is Verdict.HOLDS

    def test_one_outside_its_domain_is_noticed(self, tmp_path):
        result = judged(tmp_path, f"{PARTS}, witness: {{S: W, K: W - W}}")
        assert result.verdict is Verdict.UNDECIDED
        assert "does not show that there is none" in result.reason

    def test_half_of_it_refutes_nothing(self, tmp_path):
        result = judged(tmp_path, f"{PARTS}, witness: {{S: (W + W')/4, K: (W - W')/4}}")
        assert result.verdict is Verdict.UNDECIDED

    def test_one_without_a_value_is_not_passed_over(self, tmp_path):
        """At x = 0 there is no y, and the quotient has no value: the instance is none that the claim leaves out."""
        entry = "setting: number, exists: {y: real}, witness: {y: 1/x}, conclude: x*y == 1"
        result = judged(tmp_path, entry, instances=40)
        assert result.verdict is Verdict.REFUTED
        assert result.counterexample is not None
        assert result.counterexample.values == {"x": 0.0}

    def test_the_hypothesis_mends_it(self, tmp_path):
        entry = "setting: number, assume: x != 0, exists: {y: real}, witness: {y: 1/x}, conclude: x*y == 1"
        assert judged(tmp_path, entry).verdict in (Verdict.HOLDS, Verdict.PROVED)

    def test_a_false_conclusion_about_the_instance_alone_is_refuted(self, tmp_path):
        entry = 'setting: square, exists: {B: "real[n, n]"}, witness: {B: W}, conclude: {a: B == W, b: norm(W) <= 1}'
        assert judged(tmp_path, entry).verdict is Verdict.REFUTED


class TestSought:
    def test_linear_equations(self, tmp_path):
        result = judged(tmp_path, f"{SOLVABLE}, assume: {{rank: rank(A) == n}}")
        assert result.verdict is Verdict.HOLDS
        assert result.tightest is not None
        assert [found.name for found in result.tightest.computed_values] == ["v"]

    def test_none_by_a_rank(self, tmp_path):
        result = judged(tmp_path, SOLVABLE)
        assert result.verdict is Verdict.REFUTED
        assert result.counterexample is not None
        assert "the rank with the right side is larger" in result.counterexample.argument

    def test_none_beside_a_bound(self, tmp_path):
        result = judged(tmp_path, 'setting: square, exists: {B: "nonnegative[n, n]"}, conclude: B == W')
        assert result.verdict is Verdict.REFUTED

    def test_semidefinite_parts(self, tmp_path):
        entry = "setting: square, assume: W == W', exists: {P: 'psd[n, n]', Q: 'psd[n, n]'}, conclude: W == P - Q"
        assert judged(tmp_path, entry).verdict is Verdict.HOLDS

    def test_no_square_is_negative(self, tmp_path):
        result = judged(tmp_path, "setting: square, exists: {B: 'real[n, n]'}, conclude: B'*B == -I(n)", instances=4)
        assert result.verdict is Verdict.REFUTED

    def test_a_norm_below_zero(self, tmp_path):
        result = judged(tmp_path, "setting: square, exists: {B: 'real[n, n]'}, conclude: norm(B - W) < 0", instances=4)
        assert result.verdict is Verdict.REFUTED

    def test_a_root_near_floats(self, tmp_path):
        entry = "setting: square, exists: {R: 'psd[n, n]'}, conclude: R*R == W*W' + I(n)"
        assert judged(tmp_path, entry).verdict is Verdict.HOLDS

    def test_a_search_that_fails_refutes_nothing(self, tmp_path):
        """There is such a y only for some x, and no argument here says that there is none for the others."""
        result = judged(tmp_path, "setting: number, exists: {y: real}, conclude: sin(y) + exp(y) == x", instances=6)
        assert result.verdict in (Verdict.UNDECIDED, Verdict.HOLDS)
        result = judged(tmp_path, "setting: number, exists: {y: real}, conclude: cos(y)^2 == 2 + x^2", instances=6)
        assert result.verdict is Verdict.UNDECIDED
        assert "nor a proof that none is" in result.reason


class TestWritten:
    def test_a_claim_reads_back(self, tmp_path):
        before = claim(tmp_path, PARTS_WITNESS)
        data = claim_file(before)["claims"][0]
        assert data["exists"] == {"S": "symmetric[n, n]", "K": "skew[n, n]"}
        assert data["witness"] == {"S": "(W + W')/2", "K": "(W - W')/2"}
        assert "let" not in data
        assert list(data["conclude"]) == ["conclusion"]
        assert differences(before, claim(tmp_path, PARTS)) != []

    def test_quantifiers_in_order(self, tmp_path):
        lines = statement_lines(claim(tmp_path, f"{SOLVABLE}, assume: {{rank: rank(A) == n}}"))
        assert [line.section for line in lines] == ["assume", "exists", "conclude"]
        lines = {line.section: line for line in statement_lines(claim(tmp_path, PARTS))}
        assert lines["exists"].text == "∃ K in skew[n, n]"
        assert "∃" in lines["exists"].mathml
        assert lines["exists"].latex.startswith(r"\exists K \in")

    def test_mutants_inherit(self, tmp_path):
        entries = [PARTS_WITNESS, "mutates: C0, witness: {K: W - W}", "mutates: C0, witness: null"]
        found = claims(tmp_path, *entries)
        assert [sorted(c.exists) for c in found] == [["K", "S"]] * 3
        assert [c.witness["K"].text for c in found[:2]] == ["(W - W')/2", "W - W"]
        assert found[2].witness == {}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('exists: {B: "real[n, n]"}, witness: {B: "ones(n)"}, conclude: B == W', "must be a matrix n x n"),
        ('exists: {B: "real[n, n]"}, witness: {B: B + W}, conclude: B == W', "defined by itself: B -> B"),
        ('exists: {B: "real[n, n]"}, let: {S: B + W}, witness: {B: S}, conclude: B == W', "defined by itself"),
        ('exists: {W: "real[n, n]"}, conclude: W == W', "that is a variable of setting square"),
        ("exists: {n: positive}, conclude: n > 0", "that is a size letter of setting square"),
        ('exists: {B: "real[n, n]"}, conclude: W == W', "`exists.B` is used in no conclusion"),
        ("witness: {B: W}, conclude: W == W", "`witness.B` belongs to no variable under `exists`"),
        ('exists: {B: "real[n, n]"}, assume: B == W, conclude: B == W', "hypotheses come before it"),
        ('exists: {B: "real[n, n]", C: "real[n, n]"}, witness: {B: W}, conclude: B == C', "`C` is missing"),
        ('exists: {k: "integer 1..5"}, witness: {k: 2}, conclude: k >= 0', "a whole number is not certified"),
        ('let: {B: W}, exists: {B: "real[n, n]"}, conclude: B == W', "that is a name under `exists`"),
        ("given: {B: positive}, exists: {B: positive}, conclude: B > 0", "that is a name under `given`"),
        ('exists: {B: "real[n, n]"}, conclude: "norm(grad(trace(B*W), B)) >= 0"', "is no free variable"),
        ('exists: {B: "real[n, n] for l in 1..2"}, conclude: norm(W) >= 0', "a family is not judged here"),
        ('exists: {B: "real[n, n]"}, conclude: {"(witness) x": B == W}', "must not begin with"),
    ],
)
def test_bad_input(tmp_path, entry, message):
    (found,) = claims(tmp_path, f"setting: square, {entry}")
    assert isinstance(found, IllFormed)
    assert message in " ".join(problem.message for problem in found.problems)


def test_a_training_run_is_refused(tmp_path):
    run = "run: {method: gradient-descent, step: 1/100, steps: 3}"
    (found,) = claims(tmp_path, f'setting: net, exists: {{B: positive}}, {run}, conclude: "B >= L[0]"')
    assert isinstance(found, IllFormed)
    assert "`exists` is not judged along a training run" in found.problems[0].message


DECAY = (
    'setting: number, let: {"z[0]": "tanh(x)", "z[k+1]": "z[k]/2"}, run: {method: recursion, steps: 4}, '
    'exists: {B: nonnegative}, conclude: "z[k] <= B for all k"'
)


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ('witness: {B: "abs(z[0])"}', Verdict.HOLDS),
        ("witness: {B: 1}, uniform: true", Verdict.HOLDS),
        ('witness: {B: "abs(z[1])"}', Verdict.UNDECIDED),
    ],
)
def test_along_a_recursion_a_witness_is_judged(tmp_path, more, verdict):
    assert judged(tmp_path, f"{DECAY}, {more}").verdict is verdict


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("", "along a run nothing is looked for: `exists` needs a `witness` there"),
        (', witness: {B: "abs(z[0])"}, uniform: true', "`witness.B` must not depend on `x`"),
        (', witness: {B: "[z[0]; z[0]]"}', "must be a scalar"),
    ],
)
def test_along_a_recursion_a_witness_is_needed_and_looked_at(tmp_path, more, message):
    (found,) = claims(tmp_path, DECAY + more)
    assert isinstance(found, IllFormed)
    assert [message in problem.message for problem in found.problems] == [True]


class TestLinear:
    def test_a_strict_bound_that_only_touches(self):
        rows = [Row((fmpq(1),), fmpq(1), strict=True), Row((fmpq(-1),), fmpq(-1))]
        assert solve_linear([], rows, 1).contradiction == ((), (0, 1))

    def test_weak_ones_meet_in_a_point(self):
        rows = [Row((fmpq(1),), fmpq(1)), Row((fmpq(-1),), fmpq(-1))]
        assert solve_linear([], rows, 1).point == [fmpq(1)]

    def test_equalities_that_bounds_hide(self):
        """x >= 1, -x >= -1 and x + y > 1 with y <= 0 leave nothing."""
        one, zero = fmpq(1), fmpq(0)
        rows = [
            Row((one, zero), one),
            Row((-one, zero), -one),
            Row((one, one), one, strict=True),
            Row((zero, -one), zero),
        ]
        assert solve_linear([], rows, 2).contradiction is not None


@pytest.mark.parametrize(
    ("entry", "verdict"),
    [
        ("exists: {u: 'unit_rows[n]'}, conclude: dot(u, u) == 1", Verdict.HOLDS),
        ("exists: {u: 'unit_rows[n]'}, conclude: dot(u, u) == 2", Verdict.REFUTED),
        ("exists: {U: 'unit_rows[n, n]'}, conclude: trace(U*U') == n", Verdict.HOLDS),
        ("exists: {U: 'unit_rows[n, n]'}, conclude: trace(U*U') == n + 1", Verdict.REFUTED),
        ("exists: {U: 'orthogonal[n, n]'}, conclude: U*U' == 2*I(n)", Verdict.REFUTED),
    ],
)
def test_rows_of_norm_one(tmp_path, entry, verdict):
    assert judged(tmp_path, f"setting: square, {entry}", instances=6).verdict is verdict


def test_a_matrix_of_one_column_has_rows_of_its_own(tmp_path):
    """Each row of a unit_rows matrix has norm 1, and where there is one column each entry is 1 or -1."""
    entry = "setting: wide, assume: m == 1, exists: {U: 'unit_rows[n, m]'}, conclude: trace(U'*U) == n"
    assert judged(tmp_path, entry, instances=30).verdict is Verdict.HOLDS


def test_a_counterexample_is_replayed(tmp_path):
    result = judged(tmp_path, SOLVABLE, out=str(tmp_path / "results"))
    assert result.replay is not None
    replayed = replay(read_counterexample(Path(result.replay)))
    assert replayed.refuted
    assert replayed.reproduced
    (name,) = replayed.record.claim.exists
    assert name == "v"


@pytest.mark.parametrize("conclude", ["x*(a^2 + b^2) == c", "x*(abs(a) + abs(b)) == 1", "a*x == c or b*x == c"])
def test_what_is_missing_where_several_numbers_are_zero_is_found(tmp_path, conclude):
    """False at a = b = 0 and c = 1; that c and d are there makes it rarer."""
    result = judged(tmp_path, f"setting: numbers, exists: {{x: real}}, conclude: {conclude}", instances=40, search=None)
    assert result.verdict is Verdict.REFUTED
