"""Recursions as they are judged: against closed forms and descent, where they diverge, where nothing is said."""

from __future__ import annotations

import pytest

from ntk_deq.claims.load import load_suite
from ntk_deq.report import terminal_lines
from ntk_deq.report.runs import loss_plot
from ntk_deq.verify.results import Evidence, Verdict
from ntk_deq.verify.runner import Options, judge

SCALARS = """
suite: t
settings:
  s:
    domain: {a: "(0, 1/2]", x0: "[1, 2]"}
  m:
    sizes: {n: 1..3}
    domain: {Q: "real[n, n]", u: "real[n]", a: "(0, 1/2]"}
"""


def result_of(tmp_path, claim, *, instances=12, **options):
    path = tmp_path / "claims.yaml"
    path.write_text(SCALARS + "claims:\n" + claim, encoding="utf-8")
    (read,) = load_suite(str(path)).claims
    assert hasattr(read, "let"), read
    return judge(read, Options(instances=instances, search=0, **options))


def scalar_claim(conclude, rule="a*x[k]", assume="", steps=40):
    assumed = f"    assume: {assume}\n" if assume else ""
    return (
        '  - id: R\n    setting: s\n    let: {"x[0]": x0, "x[k+1]": "' + rule + '"}\n'
        f"{assumed}    run: {{method: recursion, steps: {steps}}}\n    conclude: {conclude}\n"
    )


@pytest.mark.parametrize(
    ("conclude", "verdict"),
    [
        ("x[k] == a^k*x0 for all k", Verdict.HOLDS),
        ("x[k+1] < x[k] for all k", Verdict.HOLDS),
        ("x[k] <= a^(k+1)*x0 for all k", Verdict.REFUTED),
        ("x[j] <= x[k] for all j, k with k <= j", Verdict.HOLDS),
        ("x[40] <= 2*a^40", Verdict.HOLDS),
        ("x[k] <= 1/4 for some k", Verdict.HOLDS),
        ("x[k] <= 1/4 for some k with k <= 3", Verdict.HOLDS),
        ("x[k] < 1/4 for some k with k <= 1", Verdict.REFUTED),
        ("x[k] <= 0 for some k", Verdict.UNDECIDED),  # a later step may be
        ("x[k] <= 0 for some k with k <= 40", Verdict.REFUTED),
        ("x[k] <= 0 for some k with k <= 41", Verdict.UNDECIDED),
        ("x[k] <= 2 for some k with k <= 0 - 1", Verdict.REFUTED),  # over nothing
        ("x[k] <= 2 for some k with k <= x0 - 3", Verdict.REFUTED),
        ("x[k] <= 0 or x[k] >= 0 for all k with k >= 50", Verdict.UNDECIDED),  # over nothing: nothing bears it out
        ("not (x[k] >= 0 for all k)", Verdict.UNDECIDED),  # seen up to the budget only
        ("(x[j] <= x[k] for some j with j <= k) for all k", Verdict.HOLDS),
        ("(x[j] <= x0*a^(k-2) for some j with j <= k) for all k with k >= 2", Verdict.HOLDS),
        ("(x[j] < x[k] for some j with j <= k) for all k", Verdict.REFUTED),
        ("(x[j] < x[k] for some j with j > k) for all k", Verdict.UNDECIDED),  # at k = 40 a later step is smaller
        ("(x[j] < x[k] for some j with j > k and j <= 40) for all k", Verdict.REFUTED),
        ("x[k] <= x0 for all k with k <= 40", Verdict.HOLDS),
        ("x[k] <= x0 for all k with k <= 41", Verdict.UNDECIDED),  # a range with an end is seen whole
        ("x[k+1] <= x[k] for all k with k <= 40", Verdict.UNDECIDED),
        ("x[k] <= x0 for all k with k <= x0 + 41", Verdict.UNDECIDED),
        ("(x[k] <= x[j] for all j) for some k", Verdict.UNDECIDED),  # a step after the last may be smaller
        ("(x[k] <= x[j] for all j with j <= k + 1) for some k", Verdict.UNDECIDED),
        ("(x[k] <= x[j] for all j with j <= 40) for some k", Verdict.HOLDS),
        ("(x[j] <= x0 for all j with j <= k + 1) for all k with k <= 40", Verdict.UNDECIDED),
        ("x[k] >= 1.0e-9 for all k", Verdict.REFUTED),  # small steps are not near zero
        ("path_length[k] == x0 - x[k] for all k", Verdict.HOLDS),
        ("sum(x[k] for k in 0..3) <= 2*x0", Verdict.HOLDS),
        ("max(x[k] for k in 1..3) == a*x0", Verdict.HOLDS),
    ],
)
def test_what_is_known_of_a_geometric_sequence(tmp_path, conclude, verdict):
    result = result_of(tmp_path, scalar_claim(conclude))
    assert result.verdict is verdict, result.reason
    assert verdict is Verdict.UNDECIDED or result.evidence == "certified"


def test_for_some_over_nothing_is_false_and_says_so(tmp_path):
    result = result_of(tmp_path, scalar_claim("x[k] <= 2 for some k with k <= x0 - 3"))
    assert "no step" in result.reason + str(result.counterexample)


def test_a_hypothesis_about_every_step_refutes_nothing(tmp_path):
    result = result_of(tmp_path, scalar_claim("x[2] > 1", assume="x[k] >= 0 for all k"))
    assert result.verdict is Verdict.UNDECIDED
    assert "speaks of every step" in result.reason
    bounded = result_of(tmp_path, scalar_claim("x[2] > 1", assume="x[k] >= 0 for all k with k <= 40"))
    assert bounded.verdict is Verdict.REFUTED


@pytest.mark.parametrize("rule", ["x[k]^2*exp(x[k])", "1/(x[k] - x[k])", "exp(exp(x[k]))"])
def test_what_diverges_bears_nothing_out(tmp_path, rule):
    result = result_of(tmp_path, scalar_claim("x[k] >= 0 for all k", rule=rule, steps=60))
    assert result.verdict in (Verdict.UNDECIDED, Verdict.VACUOUS)
    assert result.verdict is Verdict.VACUOUS or "breaks off" in result.reason


def test_steps_that_lose_bits_are_known_all_the_same(tmp_path):
    # Balls of 53 bits know nothing of the logistic map after fifty steps.
    result = result_of(tmp_path, scalar_claim("0 <= x[k] <= 1 for all k", rule="4*x[k]*(1 - x[k])"), instances=4)
    assert result.verdict is Verdict.REFUTED  # it starts in [1, 2]
    claim = """
  - id: R
    setting: s
    let: {"x[0]": a, "x[k+1]": "4*x[k]*(1 - x[k])", "y[0]": a, "y[k+1]": "4*y[k] - 4*y[k]^2"}
    run: {method: recursion, steps: 200}
    conclude: {same: "x[k] == y[k] for all k", inside: "0 <= x[k] for all k"}
"""
    result = result_of(tmp_path, claim, instances=6)
    assert result.verdict is Verdict.HOLDS, result.reason
    assert result.evidence == "certified"


def test_descent_is_the_recursion_that_it_is(tmp_path):
    claim = """
  - id: R
    setting: m
    let:
      f: norm(Q*u)^2/2
      g: grad(f, u)
      v[0]: u
      v[k+1]: v[k] - a*at(g, u = v[k])
      w[0]: u
      w[k+1]: w[k] - a*(Q'*Q*w[k])
    run: {method: recursion, steps: 30}
    conclude: norm(v[k] - w[k]) <= 1.0e-12*(1 + norm(w[k])) for all k
"""
    result = result_of(tmp_path, claim, instances=8)
    assert result.verdict is Verdict.HOLDS, result.reason


def test_a_recursion_is_reported_and_drawn(tmp_path):
    result = result_of(tmp_path, scalar_claim("x[k] <= 2*a^k for all k"), instances=2)
    record = result.runs[0]
    assert (record.method, record.steps, record.at[0], record.at[-1]) == ("recursion", 40, 0, 40)
    assert record.certified
    assert record.curves[0].bound[0] == 2
    assert len(record.loss) == len(record.at) == len(record.path_length) <= 64
    assert record.path_length[-1] == pytest.approx(record.loss[0] - record.loss[-1])
    assert "steps 0 to 40 of the recursion; stopped at k = 40: all steps taken" in terminal_lines(result.runs)[0]
    picture = loss_plot(record, ident="r")
    assert "x[k]" in picture


def test_a_recursion_that_breaks_off_is_reported_so(tmp_path):
    result = result_of(tmp_path, scalar_claim("x[k] >= 0 for all k", rule="x[k]^2*exp(x[k])", steps=60), instances=1)
    assert [record.status for record in result.runs] == ["not-finite"]
    assert "breaks off" in result.runs[0].reason


LARGE = """
suite: large
settings:
  drawn:
    sizes: {n: 46}
    init: {S: "normal(0, 1/n)[n, n]", c: "normal(0, 1)[n]", z0: "normal(0, 1)[n]"}
claims:
  - id: R
    setting: drawn
    instances: 1
    let:
      F: I(n)/2 + S'*S/4
      z[0]: z0
      z[k+1]: relu(z[k] - (F*z[k] - c)/2)
    run: {method: recursion, steps: 120}
    conclude: norm(z[k+1] - z[k]) <= 9*norm(F)*norm(z[1] - z0) for all k
"""


@pytest.mark.parametrize(
    ("rule", "evidence"),
    [("relu(z[k] - (F*z[k] - c)/2)", "certified"), ("hadamard(c, cos(3*z[k]))", "numeric")],
    ids=["contracts", "expands"],
)
def test_a_large_instance_is_certified_while_errors_stay_small_and_else_estimated(tmp_path, rule, evidence):
    path = tmp_path / "claims.yaml"
    path.write_text(LARGE.replace("relu(z[k] - (F*z[k] - c)/2)", rule), encoding="utf-8")
    (claim,) = load_suite(str(path)).claims
    result = judge(claim, Options(search=0))
    assert result.verdict is Verdict.HOLDS, result.reason
    assert result.evidence == evidence
    assert ("steps of the recursion" in str(result.estimated)) == (evidence == "numeric")


def test_a_step_that_is_zero_in_truth_is_near_zero(tmp_path):
    claim = """
  - id: R
    setting: m
    let: {"v[0]": "Q*u", "w[k+1]": "sqrt(2)*(sqrt(2)*v[k]) - 2*v[k]", "v[k+1]": "v[k] + w[k+1]"}
    run: {method: recursion, steps: 3}
    conclude: "w[k] == zeros(n) for all k"
"""
    result = result_of(tmp_path, claim, instances=8)
    assert result.verdict is Verdict.HOLDS, result.reason


ISTA = """
suite: ista
settings:
  lasso:
    sizes: {m: 1..3, n: 2..4}
    domain: {A: "real[m, n]", y: "real[m]", x0: "real[n]", v: "real[n]", lam: positive, Ls: positive}
claims:
  - id: R
    setting: lasso
    let:
      g(u): lam*sum(abs(u))
      F(u): norm(A*u - y)^2/2 + g(u)
      x[0]: x0
      x[k+1]: prox(g, x[k] - A'*(A*x[k] - y)/Ls, 1/Ls)
    assume: {smooth: norm(A)^2 <= Ls}
    run: {method: recursion, steps: 50}
    conclude: F(x[k]) - F(v) <= Ls*norm(x0 - v)^2/(2*k) for all k with k >= 1
"""


@pytest.mark.parametrize(("second", "verdict"), [("", Verdict.HOLDS), ("norm(x[k]) >= norm(x0)", Verdict.REFUTED)])
def test_forward_backward_with_a_proximal_map_is_certified(tmp_path, second, verdict):
    path = tmp_path / "claims.yaml"
    rate = "F(x[k]) - F(v) <= Ls*norm(x0 - v)^2/(2*k)"
    path.write_text(ISTA.replace(rate, second or rate), encoding="utf-8")
    (claim,) = load_suite(str(path)).claims
    result = judge(claim, Options(instances=3, search=0, shrink=False))
    assert (result.verdict, result.evidence) == (verdict, "certified"), result.reason


def test_a_start_that_is_a_ball_is_not_wrapped_around_itself(tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text(
        """
suite: rotations
settings: {turn: {sizes: {n: 2..3}, domain: {Q: "orthogonal[n, n]", x0: "real[n]"}}}
claims:
  - id: norm
    setting: turn
    let: {"x[0]": x0, "x[k+1]": "Q*x[k]"}
    run: {method: recursion, steps: 200}
    conclude: norm(x[k]) == norm(x0) for all k
""",
        "utf-8",
    )
    (claim,) = load_suite(path).claims
    result = judge(claim, Options(instances=4, search=0))
    assert result.verdict is Verdict.HOLDS, result.reason
    assert result.evidence is Evidence.CERTIFIED
