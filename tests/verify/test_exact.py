"""Exact arithmetic as the last judge: what it agrees on with balls, what it decides beyond them, and what it leaves."""

from fractions import Fraction

import pytest
import torch
from flint import fmpq
from verify_harness import environment, truth_of

from ntk_deq.certified.algebraic import UndecidedError, enclosure
from ntk_deq.certified.algebraic_matrix import ExactMatrix
from ntk_deq.certified.precise import adopt, as_ball, working_precision
from ntk_deq.claims.claim import Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.evaluation.environment import OutsideClaimError
from ntk_deq.evaluation.exact import ExactNames, decided, value_of
from ntk_deq.evaluation.functions import exact_number
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Truth
from ntk_deq.language.parser import parse
from ntk_deq.language.types import Margin
from ntk_deq.verify import refine
from ntk_deq.verify.formulas import exact_names, exact_value
from ntk_deq.verify.judge import Standing, decided_exactly, judge_instance
from ntk_deq.verify.replay import make_record, replay
from ntk_deq.verify.runner import Options, judge

CPU = torch.device("cpu")


def tensor(value):
    return torch.tensor(value, dtype=torch.float64)


def names(sizes=None, lets=None, **values):
    exact = {name: exact_value(tensor(value)) for name, value in values.items()}
    exact |= {name: fmpq(size) for name, size in (sizes or {}).items()}
    return ExactNames(exact, {name: parse(text) for name, text in (lets or {}).items()})


def outcome(text, **values):
    return decided(parse(text), names(**values)).truth


HADAMARD = [[1.0, 1.0], [1.0, -1.0]]
TURN = [[0.0, -1.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("norm(A) < sqrt(2)", Truth.FALSE),
        ("norm(A) <= sqrt(2)", Truth.TIGHT),
        ("norm(A) > sqrt(2) - 10^-90", Truth.TRUE),
        ("norm(A) == sqrt(2)", Truth.TIGHT),
        ("norm(A) != sqrt(2)", Truth.FALSE),
        ("norm(A)^2 <= 2 < 3", Truth.TIGHT),
        ("not norm(A) < sqrt(2)", Truth.TIGHT),
        ("not norm(A) <= sqrt(2)", Truth.FALSE),
        ("not norm(A) > sqrt(3)", Truth.TRUE),
        ("norm(A) < 1 or sigma_min(A) == sqrt(2)", Truth.TIGHT),
        ("norm(A) < 2 and sigma_min(A) == sqrt(2)", Truth.TIGHT),
        ("norm(A) < 1 and exp(norm(A)) > 5", Truth.FALSE),  # one part that is open does not matter
        ("norm(A) < 2 or 1/(norm(A)^2 - 2) > 0", Truth.TRUE),  # nor one without a value
        ("rho(B) == 1 and rho(2*B + B*B) == sqrt(5)", Truth.TIGHT),
        ("lambda_max(B) == 0", Truth.TIGHT),
        ("cond(A) == 1", Truth.TIGHT),
        ("fro(A) == norm1(A) == norminf(A') == 2", Truth.TIGHT),
        ("inv(A) == A/2", Truth.TIGHT),
        ("A >= -1", Truth.TIGHT),
        ("A > -1", Truth.FALSE),
        ("A - ones(2, 2) <= zeros(2, 2)", Truth.TIGHT),
        ("kron(A, B) == kron(A, I(2))*kron(I(2), B)", Truth.TIGHT),
        ("commutation(2)*vec(B) == vec(B')", Truth.TIGHT),
        ("commutation(2, 1)*vec(v) == vec(v')", Truth.TIGHT),
        ("det(A) == -2 and trace(A) == 0 and sum(A) == 2", Truth.TIGHT),
        ("dot(v, v) == norm(v)^2 == 5", Truth.TIGHT),
        ("diag(diag(A)) == hadamard(A, I(2))", Truth.TIGHT),
        ("relu(A) - relu(-A) == A", Truth.TIGHT),
        ("max(A) == 1 and min(A) == -1 and max(s, 1, s^2) == 4", Truth.TIGHT),
        ("step(s) == 1", Truth.TIGHT),
        ("exp(0) == 1 and log(1) == 0", Truth.TIGHT),
        ("s^(-1/2) == sqrt(2)/2", Truth.TIGHT),
        ("(s^(1/3))^3 == s", Truth.TIGHT),
        ("A^-2 == I(2)/2", Truth.TIGHT),
        ("norm(A/norm(A)) < 1", Truth.FALSE),  # irrational entries
        ("at(norm(s*A), s = 3) == 3*sqrt(2)", Truth.TIGHT),
    ],
)
def test_statements(text, truth):
    assert outcome(text, A=HADAMARD, B=TURN, v=[1.0, 2.0], s=2.0) is truth


def test_margins_and_sides_are_told():
    found = decided(parse("norm(A) < sqrt(2)"), names(A=HADAMARD))
    assert found.comparison.margin == Margin(0.0, 0.0)
    assert found.comparison.relation == "<"
    assert found.comparison.lhs.startswith("1.41421356237")
    found = decided(parse("norm(A) < sqrt(3)"), names(A=HADAMARD))
    assert 0.3178 < found.comparison.margin.lo <= found.comparison.margin.hi < 0.3179


@pytest.mark.parametrize(
    "text", ["exp(s) > 7", "log(s) > 0", "grad(s, s) == 1", "s^sqrt(2) > 1", "Z[1] == A", "0^s > 0"]
)
def test_what_is_not_decided(text):
    if text.startswith("0^"):
        assert outcome(text, s=2.0) is Truth.FALSE  # a whole exponent
        return
    with pytest.raises(UndecidedError):
        outcome(text, A=HADAMARD, s=2.0)


@pytest.mark.parametrize(
    ("text", "hypothesis"),
    [
        ("1/(sqrt(s)^2 - 2) > 0", "defined"),
        ("sum(inv(ones(2, 2))) > 0", "defined"),
        ("cond(ones(2, 2)) > 0", "defined"),
        ("sqrt(-s) > 0", "defined"),
        ("step(norm(A)^2 - 2) == 1", "differentiable"),
    ],
)
def test_what_has_no_value(text, hypothesis):
    with pytest.raises(OutsideClaimError) as outside:
        outcome(text, A=HADAMARD, s=2.0)
    assert (outside.value.hypothesis, outside.value.certain) == (hypothesis, True)


FORMULAS = [
    "norm(A*B) - norm(A)*norm(B)",
    "rho(A) - norm(A)",
    "rho(A + B)",
    "lambda_max(A + A') + lambda_min(B) - sigma_min(A)*fro(B)",
    "det(A*B - B*A) + trace(A*A'*B)",
    "sum(abs(A)) - norm1(A)*norminf(B)",
    "sqrt(1 + fro(A)^2) + (1 + norm(B))^(1/3)",
    "norm(s*A - B) - s*norm(A)",
    "max(relu(A - B)) - min(A)",
    "norm(kron(A, B)) - norm(A)*norm(B)",
]


@pytest.mark.parametrize("text", FORMULAS)
def test_exact_values_lie_in_the_balls(text):
    """Two routes to one number; where balls are certain of a sign, exact arithmetic says the same."""
    generator = torch.Generator().manual_seed(len(text))
    settled = 0
    for index in range(12):
        order = 1 + index % 3
        A, B = (torch.randint(-3, 4, (order, order), generator=generator).double() / 2 for _ in range(2))
        if index % 4 == 3:
            A = torch.randn(order, order, generator=generator, dtype=torch.float64)
        env = environment({"A": A, "B": B, "s": 1.5})
        meant = names(A=A.tolist(), B=B.tolist(), s=1.5)
        for statement in (f"{text} < 0", f"{text} > 0", f"{text} == 0"):
            balls = truth_of(statement, env).truth
            try:
                exact = decided(parse(statement), meant).truth
            except UndecidedError:  # the field is too large
                assert order == 3 or index % 4 == 3
                continue
            settled += 1
            assert balls not in (Truth.TRUE, Truth.FALSE) or (balls is Truth.FALSE) == (exact is Truth.FALSE)
        number = enclosure(exact_number(value_of(parse(text), meant)), 128)
        with working_precision(128):
            precise = environment({"A": A, "B": B, "s": 1.5})
            precise.precision = 128
            for name in ("A", "B"):
                value = precise.variables[name]
                precise.variables[name] = type(value)(as_ball(adopt(value.ball)), value.scale)
            margin = truth_of(f"{text} >= 0", precise).comparison.margin
        assert margin.lo <= number.upper()
        assert number.lower() <= margin.hi
    assert settled >= 24


SUITE = """
suite: exact
settings:
  one: {{sizes: {{n: 1..3}}, domain: {{A: "real[n, n]", s: positive}}}}
  signs: {{sizes: {{n: 1..3}}, domain: {{A: "orthogonal[n, n]"}}}}
claims:
  - {{id: c, setting: {setting}, {body}}}
"""


def claim_of(folder, body, setting="one"):
    path = folder / "claims.yaml"
    path.write_text(SUITE.format(setting=setting, body=body), encoding="utf-8")
    (claim,) = load_suite(path).claims
    return claim


def instance(A, s=1.0, rounded=None):
    values = {"A": tensor(A), "s": tensor(s)}
    return Instance("one", "by hand", {"n": len(A)}, values, 0, rounded or {})


def judged(claim, found, dtype=torch.float64):
    first = judge_instance(claim, found, device=CPU, dtype=dtype)
    return first, decided_exactly(claim, first, dtype=dtype)


CLOSED = 'assume: {closed: "norm(A)^2 <= 2"}, conclude: "norm(A) < sqrt(2)"'


class TestJudgement:
    def test_a_hypothesis_and_a_conclusion_that_are_equalities(self, tmp_path):
        first, exact = judged(claim_of(tmp_path, CLOSED), instance([[1.0, 2.0 / 2], [1.0, -1.0]]))
        assert first.conclusions["conclusion"].truth is Truth.STRICT_TIGHT
        assert exact.standing is Standing.MET
        assert exact.conclusions["conclusion"].truth is Truth.FALSE
        assert exact.reason == ""

    def test_a_strict_hypothesis_that_is_an_equality_is_not_met(self, tmp_path):
        claim = claim_of(tmp_path, 'assume: {open: "norm(A) < sqrt(3)*s"}, conclude: "norm(A) < 1"')
        wide = [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
        first, exact = judged(claim, instance(wide))
        assert first.standing is Standing.UNSURE
        assert exact.standing is Standing.UNMET
        assert exact.hypotheses["open"].truth is Truth.FALSE

    def test_a_divisor_that_is_zero(self, tmp_path):
        claim = claim_of(tmp_path, 'conclude: {q: "1/(norm(A)^2 - 2) > 0", p: "sqrt(2)*norm(A) < 2"}')
        first, exact = judged(claim, instance(HADAMARD))
        assert first.conclusions["q"].truth is Truth.UNSURE
        assert set(exact.conclusions) == {"p"}  # the quotient is outside the claim
        assert exact.conclusions["p"].truth is Truth.FALSE
        claim = claim_of(tmp_path, 'conclude: {q: "1/(norm(A)^2 - 2) > 0"}')
        _, exact = judged(claim, instance(HADAMARD))
        assert exact.standing is Standing.UNMET
        assert exact.hypotheses["defined"].truth is Truth.FALSE

    def test_what_cannot_be_decided_stays(self, tmp_path):
        claim = claim_of(tmp_path, 'assume: {c: "norm(A)^2 <= 2"}, conclude: "exp(norm(A)^2) < exp(2)"')
        first, exact = judged(claim, instance(HADAMARD))
        assert exact.standing is Standing.MET  # the hypothesis is decided
        assert exact.conclusions == first.conclusions
        claim = claim_of(tmp_path, 'conclude: "exp(norm(A)^2) < exp(2)"')
        first, exact = judged(claim, instance(HADAMARD))
        assert exact.conclusions["conclusion"].truth is first.conclusions["conclusion"].truth

    def test_a_value_known_up_to_rounding_is_not_exact(self, tmp_path):
        first, exact = judged(claim_of(tmp_path, CLOSED), instance(HADAMARD, rounded={"A": 2.0**-52}))
        assert (exact.standing, exact.hypotheses, exact.conclusions) == (
            Standing.UNSURE,
            first.hypotheses,
            first.conclusions,
        )

    def test_what_does_not_depend_on_it_is_decided(self, tmp_path):
        claim = claim_of(
            tmp_path, 'assume: {closed: "s^2 <= 2*s"}, conclude: {far: "norm(A) < 2", s: "sqrt(s) < sqrt(2)"}'
        )
        _, exact = judged(claim, instance(HADAMARD, s=2.0, rounded={"A": 2.0**-52}))
        assert exact.standing is Standing.MET
        assert exact.conclusions["s"].truth is Truth.FALSE
        assert exact.conclusions["far"].truth is Truth.TRUE

    def test_float32_values_are_those_that_were_judged(self, tmp_path):
        claim = claim_of(tmp_path, CLOSED)
        nearly = (tensor(HADAMARD) * (1 - 2.0**-40)).tolist()  # its norm is below the root of two; not so in float32
        assert judged(claim, instance(nearly))[1].conclusions["conclusion"].truth is Truth.TRUE
        assert judged(claim, instance(nearly), torch.float32)[1].conclusions["conclusion"].truth is Truth.FALSE

    def test_a_counterexample_is_written_and_judged_again(self, tmp_path):
        claim = claim_of(tmp_path, CLOSED)
        _, exact = judged(claim, instance(HADAMARD))
        again = replay(make_record(claim, exact, seed=0))
        assert again.refuted
        assert again.identical
        assert again.margin == Margin(0.0, 0.0)


class TestRefiner:
    def test_it_asks_exact_arithmetic_last(self, tmp_path):
        claim = claim_of(tmp_path, CLOSED)
        refiner = refine.Refiner(claim, 128)
        first = judge_instance(claim, instance(HADAMARD), device=CPU)
        assert refiner.refine(first).conclusions["conclusion"].truth is Truth.FALSE
        assert (refiner.tried, refiner.settled, refiner.exact) == (1, 0, 1)
        assert refine.Refiner(claim, 53).refine(first) is first

    def test_it_gives_up_where_that_never_helps(self, tmp_path, monkeypatch):
        claim = claim_of(tmp_path, 'conclude: "exp(norm(A)^2) < exp(2)"')
        asked = []
        monkeypatch.setattr(refine, "decided_exactly", lambda claim, j, dtype: asked.append(j) or j)
        refiner = refine.Refiner(claim, 128)
        first = judge_instance(claim, instance(HADAMARD), device=CPU)
        for _ in range(refine.HOPELESS + 5):
            refiner.refine(first)
        assert len(asked) == refine.HOPELESS


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ('conclude: "norm(A*A) <= norm(A)^2"', Verdict.HOLDS),
        ('assume: {a: "norm(A) >= s"}, conclude: "fro(A) > s*(1 - 10^-9)"', Verdict.HOLDS),
        # Equal for every matrix, so that no instance is a strict one.
        ('conclude: "norm(A) < sqrt(norm(A*A\'))"', Verdict.REFUTED),
        ('conclude: "norm(A) == sqrt(norm(A*A\'))"', Verdict.HOLDS),
    ],
)
def test_verdicts(tmp_path, body, verdict):
    assert judge(claim_of(tmp_path, body), Options(instances=40, search=0)).verdict is verdict


def test_matrices_are_read_as_columns_and_rows():
    column = exact_value(tensor([1.0, 2.0]))
    assert isinstance(column, ExactMatrix)
    assert column.shape == (2, 1)
    assert exact_value(tensor([[1.0, 2.0]])).shape == (1, 2)
    assert exact_value(tensor(0.1)) == fmpq(*(0.1).as_integer_ratio())


NETWORKS = """
suite: networks
settings:
  relu: {model: implicit-relu, sizes: {N: 1..2, d: 1..2, m: 1..2}}
  linear: {model: linear-implicit, sizes: {N: 1..2, d: 1..2, m: 1..2}}
claims:
  - id: F.relu
    setting: relu
    assume: {h: gamma*norm(A) <= 1/2, away: fro(Phi) > 0}
    conclude: fro(Z) < 2*fro(Phi)
  - id: F.linear
    setting: linear
    assume: {h: norm(W) <= 1/2, away: fro(X*U') > 0}
    conclude: fro(Z) < 2*fro(X*U')
  - {id: F.loss, setting: linear, assume: {h: norm(W) <= 1/2}, conclude: "L != norm(Z*b - y)^2/2"}
  - id: T.relu
    setting: relu
    assume: {h: gamma*norm(A) <= 1/2, away: fro(Phi) > 0}
    conclude: fro(Z) < 2.0001*fro(Phi)
"""


@pytest.mark.parametrize("name", ["F.relu", "F.linear", "F.loss", "T.relu"])
def test_equilibria_that_are_rational(tmp_path, name):
    path = tmp_path / "networks.yaml"
    path.write_text(NETWORKS, encoding="utf-8")
    claim = next(claim for claim in load_suite(path).claims if claim.id == name)
    result = judge(claim, Options(instances=40, search=0))
    assert result.verdict is (Verdict.REFUTED if name.startswith("F.") else Verdict.HOLDS), result.reason


def network(folder, name, **values):
    path = folder / "networks.yaml"
    path.write_text(NETWORKS, encoding="utf-8")
    claim = next(claim for claim in load_suite(path).claims if claim.id == name)
    given = {key: tensor(value) for key, value in values.items()}
    found = Instance(claim.settings[0].name, "by hand", {"N": 1, "d": 1, "m": len(values["b"])}, given, 0)
    return claim, found


def exact_state(claim, found):
    meant = exact_names(claim, found)
    return [Fraction(int(entry.p), int(entry.q)) for entry in value_of(parse("Z"), meant).entries]


def test_an_equilibrium_with_an_inactive_unit(tmp_path):
    values = {"W": [[1.0, -1.0]], "A": [[0.0, 3.0], [1.0, 0.0]], "b": [1.0, 1.0], "X": [[1.0]], "y": [0.0]}
    claim, found = network(tmp_path, "F.relu", gamma=0.25, **values)
    # Phi = (1, 0): z1 = z2/4 + 1, z2 = 3 z1/4.
    assert exact_state(claim, found) == [Fraction(16, 13), Fraction(12, 13)]
    found.values["A"][0, 1] = -3.0
    assert exact_state(claim, found) == [1, 0]
    found.values["W"].zero_()
    assert exact_state(claim, found) == [0, 0]  # at the kink of every unit


def test_an_equilibrium_that_need_not_exist(tmp_path):
    claim, found = network(tmp_path, "F.linear", W=[[1.0]], U=[[1.0]], b=[1.0], X=[[1.0]], y=[0.0])
    with pytest.raises(UndecidedError):
        exact_state(claim, found)
    found.values["W"].fill_(-0.5)
    assert exact_state(claim, found) == [Fraction(2, 3)]
