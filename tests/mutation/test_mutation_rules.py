"""The mutants of a claim: what each rule makes, what is left out, in which order."""

from collections import Counter

import pytest
from mutation_harness import claim

from ntk_deq.claims.claim import Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.claims.mutation import HYPOTHESIS, RULE_MEANINGS, mutants
from ntk_deq.claims.mutation_rules import RULES
from ntk_deq.errors import ArgumentError
from ntk_deq.language.format import format_expr
from ntk_deq.language.parser import parse


def changes(folder, body, rule, section="conclude"):
    """Return the changed formula's text for each mutant of a rule."""
    found = mutants(claim(folder, body), rules=[rule])
    return [getattr(m.claim, section)[m.where.name].text for m in found if m.where.section == section]


@pytest.mark.parametrize(
    ("conclusion", "rule", "expected"),
    [
        ("p <= 3*q", "halve", ["p <= 1.5*q"]),
        ("p <= 3*q", "double", ["p <= 6*q"]),
        ("p <= q", "halve", ["p <= q/2"]),  # a side without a constant has the constant 1
        ("p <= q", "double", ["p <= 2*q"]),
        ("p <= q/3 + 1", "double", ["p <= 2*(q/3 + 1)", "p <= q/6 + 1", "p <= q/3 + 2"]),
        ("p >= 0", "double", []),
        ("x < y <= p", "flip", ["x > y <= p", "x < y >= p"]),
        ("x == y", "flip", []),
        ("x <= y >= p", "strict", ["x < y >= p", "x <= y > p"]),
        ("x < y", "strict", []),
        ("x < y", "weak", ["x <= y"]),
        ("x*y*p <= q", "factor", ["x*y <= q", "x*p <= q", "y*p <= q"]),
        ("x <= p/q", "factor", ["x <= p", "x <= 1/q"]),
        ("x <= 2*p", "factor", ["x <= 2"]),  # without the 2 it is the halved one
        ("x <= 16*p", "factor", ["x <= 16", "x <= p"]),
        ("x + y - p <= q", "term", ["x + y <= q", "x - p <= q", "y - p <= q"]),
        ("x - y <= q", "term", ["x <= q", "-y <= q"]),
        ("x - y <= -q", "sign", ["x + y <= -q", "x - y <= q"]),
        ("x^2 <= q^-1", "exponent", ["x^3 <= q^(-1)", "x^1 <= q^(-1)", "x^2 <= q^0", "x^2 <= q^(-2)"]),
        ("x <= p^y", "exponent", ["x <= p^(y + 1)", "x <= p^(y - 1)"]),
        ("x <= max(p, min(q, y))", "extreme", ["x <= min(p, min(q, y))", "x <= max(p, max(q, y))"]),
    ],
)
def test_rules_on_numbers(tmp_path, conclusion, rule, expected):
    found = changes(tmp_path, f"setting: scalars, conclude: '{conclusion}'", rule)
    canonical = [format_expr(parse(text)) for text in expected]
    assert found == canonical


@pytest.mark.parametrize(
    ("conclusion", "rule", "expected"),
    [
        ("norm(A*B') <= 1", "transpose", ["norm(A*B) <= 1"]),
        ("norm(R'*A) <= 1", "transpose", []),  # the shapes would not fit
        ("norm(A*B) <= 1", "swap", ["norm(B*A) <= 1"]),
        ("norm(A*R) <= 1", "swap", []),
        ("norm(c*A) <= 1", "swap", []),  # scalars commute
        ("norm(kron(A, R)) <= 1", "swap", ["norm(kron(R, A)) <= 1"]),
        ("fro(A) <= norm(B)", "norm", ["norm(A) <= norm(B)", "fro(A) <= fro(B)"]),
        ("fro(A) <= norm(c)", "norm", ["norm(A) <= norm(c)"]),  # a number has no Frobenius norm
        (
            "sigma_min(A) <= lambda_max(B)",
            "spectral",
            ["sigma_max(A) <= lambda_max(B)", "sigma_min(A) <= lambda_min(B)"],
        ),
        ("trace(I(2*n)) <= 1", "halve", ["trace(I(2*n)) <= 0.5"]),  # a size is no constant
        ("norm(A^2) <= 1", "exponent", ["norm(A^3) <= 1", "norm(A^1) <= 1"]),
    ],
)
def test_rules_on_matrices(tmp_path, conclusion, rule, expected):
    found = changes(tmp_path, f'setting: matrices, conclude: "{conclusion}"', rule)
    assert found == expected


TRAINING = (
    "setting: net, given: {c: positive}, let: {e: 'c/norm(W[0])', H: Z*Z', a: e}, choose: {maximize: e}, "
    "run: {method: gradient-descent, step: e}, conclude: 'trace(H[k]) <= a*L[0]*2^k for all k'"
)


def test_steps_of_training_move_within_the_run(tmp_path):
    assert changes(tmp_path, TRAINING, "step") == [
        "trace(H[k + 1]) <= a*L[0]*2^k for all k",
        "trace(H[k - 1]) <= a*L[0]*2^k for all k",
        "trace(H[k]) <= a*L[0 + 1]*2^k for all k",
    ]
    assert changes(tmp_path, TRAINING, "step", "let") == []  # the step size is fixed before the run
    flow = TRAINING.replace("gradient-descent, step: e", "gradient-flow, horizon: e")
    assert changes(tmp_path, flow, "step") == []  # a flow has no next step


def test_mutants_of_training_claims_keep_their_run_and_choice(tmp_path):
    original = claim(tmp_path, TRAINING)
    found = list(mutants(original))
    assert {m.rule for m in found} >= {"halve", "double", "factor", "exponent", "step", "flip"}
    for mutation in found:
        run, choose = mutation.claim.run, mutation.claim.choose
        assert (run.kind, run.steps, run.until) == (original.run.kind, original.run.steps, original.run.until)
        assert (run.step.text, choose.objective.text, choose.maximize) == ("e", "e", True)
        assert all(node.type is not None for node in run.step.expr.walk())


def test_a_mutant_that_leaves_nothing_to_carry_the_step_is_none(tmp_path):
    body = "setting: net, run: {method: gradient-flow}, let: {q: 'norm(A)*norm(X)'}, conclude: 'q[t] >= 0 for all t'"
    assert changes(tmp_path, body, "factor", "let") == ["norm(A)"]


def test_steps_move_by_one_and_stay_inside_no_other_rule(tmp_path):
    body = "setting: net, run: {method: fixed-point, steps: 3}, conclude: 'fro(Z[l+1] - Z[1]) >= 0 for all l'"
    found = changes(tmp_path, body, "step")
    assert found == [
        "fro(Z[l + 1 + 1] - Z[1]) >= 0 for all l",
        "fro(Z[l + 1 - 1] - Z[1]) >= 0 for all l",
        "fro(Z[l + 1] - Z[1 + 1]) >= 0 for all l",
        "fro(Z[l + 1] - Z[1 - 1]) >= 0 for all l",
    ]
    assert changes(tmp_path, body, "halve") == []


def test_a_removed_hypothesis_and_a_changed_definition(tmp_path):
    body = "setting: scalars, let: {k: 3*p}, assume: {a: k <= q, b: x <= y}, conclude: 'x <= k'"
    dropped = list(mutants(claim(tmp_path, body), rules=[HYPOTHESIS]))
    assert [list(m.claim.assume) for m in dropped] == [["b"], ["a"]]
    assert [(m.before, m.after) for m in dropped] == [("k <= q", ""), ("x <= y", "")]
    assert changes(tmp_path, body, "double", "let") == ["6*p"]


def test_every_mutant_differs_in_one_formula_is_typed_and_comes_once(tmp_path):
    suite = load_suite("checks/implicit_relu.yaml")
    original = next(c for c in suite.claims if c.id == "R.S4P.repaired")
    found = list(mutants(original))
    assert len(found) > 50
    texts = set()
    for mutation in found:
        changed = 0
        for section in ("let", "assume", "conclude"):
            before, after = getattr(original, section), getattr(mutation.claim, section)
            for name in before:
                text = format_expr(after[name].expr) if name in after else None
                changed += text != format_expr(before[name].expr)
                assert text is None or all(node.type is not None for node in after[name].expr.walk())
        assert changed == 1
        assert mutation.claim.expect is Verdict.REFUTED
        assert mutation.claim.mutates == original.id
        texts.add(
            tuple(
                format_expr(f.expr) for s in ("let", "assume", "conclude") for f in getattr(mutation.claim, s).values()
            )
        )
    assert len(texts) == len(found)
    assert len({m.claim.id for m in found}) == len(found)


def test_the_source_span_is_the_changed_piece(tmp_path):
    _, found = mutants(claim(tmp_path, "setting: scalars, conclude: 'x  <=  p * ( q+ 3 )'"), rules=["double"])
    where = found.where
    assert (where.section, where.name, where.text) == ("conclude", "conclusion", "3")
    assert "x  <=  p * ( q+ 3 )"[where.span.start : where.span.stop] == "3"


def test_caps_keep_some_of_each_rule_and_the_same_ids(tmp_path):
    body = "setting: scalars, assume: {a: x <= 3*y}, conclude: {c: 'p*q + 2*x <= 5*y - p', d: 'p < max(q, 4)'}"
    original = claim(tmp_path, body)
    everything = list(mutants(original))
    some = list(mutants(original, most=8))
    assert [m.claim.id for m in some] == [m.claim.id for m in everything[:8]]
    assert all(count == 1 for count in Counter(m.rule for m in some).values())
    assert max(Counter(m.rule for m in mutants(original, most_per_rule=2)).values()) == 2
    assert {m.claim.id for m in mutants(original, rules=["halve"])} <= {m.claim.id for m in everything}


def test_an_unknown_rule_names_the_nearest_one(tmp_path):
    with pytest.raises(ArgumentError, match="Did you mean 'halve'"):
        next(mutants(claim(tmp_path, "setting: scalars, conclude: x <= y"), rules=["halv"]))


def test_every_rule_has_a_meaning():
    assert RULE_MEANINGS.keys() == RULES.keys() | {HYPOTHESIS}
