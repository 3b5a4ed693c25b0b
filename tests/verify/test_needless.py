"""True statements that came out undecided or vacuous hold, and a false one beside each does not."""

import pytest
from seeds import seeds
from verify_harness import judge_all

from ntk_deq.claims.claim import Verdict
from ntk_deq.verify.results import Evidence

SETTINGS = """
  symmetric: {sizes: {n: 1..3}, domain: {S: "symmetric[n, n]"}}
  start: {model: implicit-relu, sizes: {N: 3, d: 4, m: 6}, data: {X: orthonormal_rows, y: rademacher}, init: {W: "normal(0, 1/m)", A: zeros, b: "normal(0, 1/m)", gamma: 1/2}}
  rest: {model: implicit-relu, sizes: {N: 3, d: 4, m: 3}, data: {X: orthonormal_rows, y: rademacher}, init: {W: "normal(0, 1/m)", A: zeros, b: zeros, gamma: 1/2}}
  tall: {model: implicit-relu, sizes: {N: 4, d: 1, m: 1}, data: {X: ones, y: ones}, init: {W: ones, A: zeros, b: ones, gamma: 1/4}}
  few: {model: implicit-relu, sizes: {N: 4, d: 1, m: 1}}
  twins: {model: implicit-relu, sizes: {N: 2, d: 2, m: 3}, data: {X: duplicates(gaussian), y: ones}, init: {W: gaussian, A: orthogonal/3, b: gaussian, gamma: 1/2}}
  equal: {model: implicit-relu, sizes: {N: 2, d: 1, m: 3}, data: {X: ones, y: ones}, init: {W: rademacher, A: zeros, b: rademacher, gamma: 1/2}}
  falling: {model: implicit-relu, sizes: {N: 1, d: 1, m: 1}, domain: {gamma: (0, 1), A: "(-inf, 0]"}}
  any: {model: implicit-relu, sizes: {N: 1..2, d: 1..2, m: 1..3}, domain: {gamma: (0, 1)}}
  two: {model: implicit-relu, sizes: {N: 2, d: 2, m: 3}, data: {X: identity, y: ones}, init: {W: gaussian, A: identity/3, b: gaussian, gamma: 1/2}}
"""  # noqa: E501

PAIRS = {
    "the readout passes no relu": (
        "setting: start, conclude: 'jac(yhat, b) == Z'",
        "setting: start, conclude: 'jac(yhat, b) == 2*Z'",
    ),
    "smooth in W at A = 0": (
        "setting: start, conclude: 'norm(jac(yhat, W)) <= norm(X)*norm(b)'",
        "setting: start, conclude: 'norm(jac(yhat, W)) <= norm(X)*norm(b)/100'",
    ),
    "at rest nothing matters": (
        "setting: rest, conclude: 'norm(jac(yhat, A)) == 0 and norm(jac(yhat, W)) == 0'",
        "setting: rest, conclude: 'norm(jac(yhat, A)) == 0 and norm(jac(yhat, b)) == 0'",
    ),
    "the units at rest": (
        "setting: rest, conclude: 'norm(jac(Z, W)) <= 1.0001'",
        "setting: rest, conclude: 'norm(jac(Z, W)) <= 1/100'",
    ),
    "more samples than units": (
        'setting: tall, conclude: "lambda_min(jac(yhat, b)*jac(yhat, b)\') == 0"',
        'setting: tall, conclude: "lambda_max(jac(yhat, b)*jac(yhat, b)\') == 0"',
    ),
    "more samples than parameters": (
        "setting: few, assume: gamma*norm(A) < 1, conclude: lambda_min(H) == 0 and det(H) == 0 and sigma_min(H) == 0, "
        "let: {H: \"jac(yhat, b)*jac(yhat, b)' + jac(yhat, A)*jac(yhat, A)'\"}",
        "setting: few, assume: gamma*norm(A) < 1, conclude: lambda_min(H) == 0, "
        'let: {H: "jac(yhat, b)*jac(yhat, b)\' + I(N)/64"}',
    ),
    "two samples that are one": (
        'setting: equal, conclude: "lambda_min(jac(yhat, W)*jac(yhat, W)\') == 0"',
        'setting: equal, conclude: "lambda_min(jac(yhat, W)*jac(yhat, W)\' + I(N)*1e-9) == 0"',
    ),
    "the gradient of an eigenvalue": (
        "setting: symmetric, conclude: 'trace(grad(lambda_max(S), S)) == 1'",
        "setting: symmetric, conclude: 'trace(grad(lambda_max(S), S)) == n'",
    ),
    "a negative weight": (
        "setting: falling, conclude: Z <= Phi",
        "setting: falling, conclude: Z >= Phi*(1 - gamma)",
    ),
    "rows below one": (
        "setting: any, assume: norminf(A') <= 1, conclude: norminf(Z') <= 2*norminf(Phi')/(1 - gamma)*m",
        "setting: any, assume: norminf(A') <= 1, conclude: norminf(Z') <= norminf(Phi')",
    ),
    "columns below one": (
        "setting: any, assume: norm1(A') <= 1, conclude: norminf(Z) <= 1.0001*norminf(Phi)/(1 - gamma)",
        "setting: any, assume: norm1(A') <= 1, conclude: norminf(Z) <= norminf(Phi)",
    ),
    "monotone": (
        "setting: any, assume: lambda_max(A + A') <= 0, conclude: fro(Z)^2 <= 1.0001*dot(vec(Z), vec(Phi))",
        "setting: any, assume: lambda_max(A + A') <= 0, conclude: fro(Z)^2 <= dot(vec(Z), vec(Phi))/4",
    ),
    "a square draw": ("setting: two, conclude: norm(X) == 1", "setting: two, conclude: norm(X) == 2"),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("seed", seeds(2))
def test_a_true_claim_holds_and_the_false_one_beside_it_does_not(tmp_path, name, seed):
    true, false = PAIRS[name]
    text = f"- {{id: t, {true}}}\n- {{id: f, {false}}}"
    found = judge_all(tmp_path, text, SETTINGS, instances=40, seed=seed, shrink=False)
    assert found["t"].verdict is Verdict.HOLDS, found["t"].reason
    assert found["f"].verdict is Verdict.REFUTED, found["f"].reason


def test_a_derivative_at_a_kink_that_matters_is_outside(tmp_path):
    """At A = 0 the units that are off start to move with A, one way only."""
    found = judge_all(tmp_path, "- {id: c, setting: start, conclude: 'norm(jac(yhat, A)) >= 0'}", SETTINGS)["c"]
    assert found.verdict is Verdict.VACUOUS
    assert (found.hypotheses[0].name, found.hypotheses[0].failed) == ("differentiable", found.instances)


def test_repeated_eigenvalues_are_outside_for_certain(tmp_path):
    text = "- {id: c, setting: symmetric, conclude: 'trace(grad(lambda_max(S), S)) == 1'}"
    found = judge_all(tmp_path, text, SETTINGS, instances=60)["c"]
    assert found.unsure == 0
    (hypothesis,) = found.hypotheses
    assert (hypothesis.name, hypothesis.unsure) == ("differentiable", 0)
    assert hypothesis.failed == found.instances - found.met > 0


def test_more_bits_reach_derivatives(tmp_path):
    text = '- {id: c, setting: twins, conclude: "lambda_min(jac(yhat, W)*jac(yhat, W)\') == 0"}'
    found = judge_all(tmp_path, text, SETTINGS)["c"]
    assert found.evidence is Evidence.CERTIFIED
    assert found.settled > 0
    assert judge_all(tmp_path, text, SETTINGS, precision=53)["c"].verdict is Verdict.UNDECIDED


def test_an_unused_definition_is_a_warning(tmp_path):
    text = "- {id: c, setting: symmetric, let: {k: 2, s: norm(S)}, conclude: s >= 0}"
    found = judge_all(tmp_path, text, SETTINGS)["c"]
    assert found.verdict is Verdict.HOLDS
    (warning,) = found.warnings
    assert warning.endswith("`let.k` is used nowhere.")
    assert "suite.yaml:" in warning


def test_a_refuted_order_of_symmetric_matrices_names_the_other_one(tmp_path):
    text = """
- {id: order, setting: symmetric, conclude: {a: "S*S >= 0", b: norm(S) >= 0}}
- {id: other, setting: symmetric, conclude: "S*S*S*S + I(n) > S*S"}
- {id: entries, setting: symmetric, conclude: {a: "S*S <= 1e99", b: trace(S) >= 0}}
"""
    found = judge_all(tmp_path, text.replace("S*S ", "S*S' ").replace('S*S"', "S*S'\""), SETTINGS)
    assert found["order"].verdict is Verdict.REFUTED
    assert (
        "a: `>=` compares symmetric matrices entry by entry; the order of quadratic forms is lambda_min(S*S') >= 0"
        in (found["order"].reason)
    )
    assert "entry by entry" not in found["entries"].reason  # the trace is what breaks


class TestWordsForWhatIsOpen:
    def test_an_identity_is_no_strict_inequality(self, tmp_path):
        """The hypothesis is an identity that rounding leaves open, and the conclusion is false."""
        settings = "  plain: {sizes: {n: 1..2}, domain: {x: positive}}"
        text = "- {id: c, setting: plain, assume: {same: (x^(1/3))^3 == x}, conclude: x < 0}"
        found = judge_all(tmp_path, text, settings)["c"]
        assert found.verdict is not Verdict.HOLDS
        assert "strict inequality" not in found.reason

    def test_a_strict_inequality_is_called_one(self, tmp_path):
        settings = "  plain: {sizes: {n: 1..2}, domain: {x: positive}}"
        text = "- {id: c, setting: plain, given: {t: [3, 3.5]}, conclude: (t^(1/3))^3 < t + 1e-60*x}"
        found = judge_all(tmp_path, text, settings)["c"]
        assert found.verdict is not Verdict.HOLDS
        if found.verdict is Verdict.UNDECIDED:
            assert "a strict inequality whose narrow ball contains zero" in found.reason


@pytest.mark.parametrize("conclude", ["L[k+1] <= L[k] for all k", "L[1] <= L[0]", "norm(b[2]) <= 9 and L[2] <= L[0]"])
def test_a_loss_of_zero_at_the_start_bears_nothing_out(tmp_path, conclude):
    """There is no step 1; instances that have one decide."""
    settings = """  net: {model: implicit-relu, sizes: {N: 1, d: 1, m: 1}, domain: {W: "[-1, 1]", A: "[-1, 1]",
        b: "[-1, 1]", X: "[-1, 1]", y: "[-1, 1]", gamma: "(0, 1/2]"}}"""
    run = "run: {method: gradient-descent, step: eta, steps: 3, beyond: false}"
    text = f'- {{id: c, setting: net, given: {{eta: "(0, 1/100]"}}, {run}, conclude: "{conclude}"}}'
    found = judge_all(tmp_path, text, settings, search=0)["c"]
    assert found.verdict is Verdict.HOLDS, found.reason
    assert 0 < found.met < found.instances
