"""What is computed from an equation lies where exact arithmetic says, is known as such, and can be replayed."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flint import arb, fmpq, fmpq_mat
from test_solved_verdicts import CLAIMS, claim_of

from ntk_deq.certified.scalar import exact
from ntk_deq.evaluation.environment import Notes
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Truth
from ntk_deq.falsify import instance_at
from ntk_deq.verify.equations.plan import Equations
from ntk_deq.verify.equations.proven import solve
from ntk_deq.verify.formulas import instance_environment
from ntk_deq.verify.judge import Standing, judge_instance
from ntk_deq.verify.replay import read_counterexample, replay, write_counterexample
from ntk_deq.verify.runner import Options, judge
from ntk_deq.verify.scoring import ClaimScorer

CPU = torch.device("cpu")


def rational(value: torch.Tensor) -> fmpq_mat:
    rows = value.reshape(value.shape[0], -1).tolist()
    return fmpq_mat([[fmpq(*number.as_integer_ratio()) for number in row] for row in rows])


def drawn(claim, index: int) -> Instance:
    return instance_at(claim.settings[0], claim.given, index, 0)


def solved(claim, instance: Instance, dtype: torch.dtype = torch.float64):
    env = instance_environment(claim, instance, device=CPU, dtype=dtype, notes=Notes())
    return solve(claim, instance, env, dtype=dtype, anew=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_ball_holds_the_rational_solution_of_a_linear_system(dtype):
    claim = CLAIMS["fixed.true"]
    tried = 0
    for index in range(60):
        instance, env = solved(claim, drawn(claim, index), dtype)
        matrix = rational(instance.values["Q"].to(dtype).double())
        if "xs" not in instance.solved or matrix.det() == 0:  # a singular system may have a solution that floats hold
            continue
        tried += 1
        truth = matrix.solve(fmpq_mat([[fmpq(1)] for _ in range(instance.sizes["n"])]))
        ball = env.variables["xs"].ball
        away = [exact(number) - arb(truth[k, 0]) for k, number in enumerate(ball.centre.flatten().tolist())]
        assert sum(a * a for a in away).sqrt() <= exact(ball.radius)
        assert ball.radius <= 4 * torch.finfo(dtype).eps * float(ball.centre.norm())
    assert tried > 15


def test_the_ball_holds_the_rational_solution_of_a_lyapunov_equation():
    claim = CLAIMS["lyapunov.true"]
    A = torch.tensor([[-1.0, 1.0], [0.25, -2.0]], dtype=torch.float64)
    start = torch.zeros(2, 2, dtype=torch.float64)
    instance, env = solved(claim, Instance("lyapunov", "given", {"n": 2}, {"A": A, "P": start}, 0))
    identity = torch.eye(2, dtype=torch.float64)
    system = torch.kron(A.T.contiguous(), identity) + torch.kron(identity, A.T.contiguous())
    truth = rational(system).solve(rational(-identity.reshape(4)))
    assert instance.solved == {"P"}
    ball = env.variables["P"].ball
    assert torch.equal(ball.centre, ball.centre.T)
    for k in range(4):
        assert abs(exact(float(ball.centre.flatten()[k])) - arb(truth[k, 0])) <= exact(ball.radius)


def extremes(A: list[list[float]], w: list[float]):
    tensors = {"A": torch.tensor(A), "F": torch.zeros(len(A), len(A)), "v": torch.zeros(len(A)), "w": torch.tensor(w)}
    values = {name: value.double() for name, value in tensors.items()}
    return Instance("extremes", "given", {"n": len(A)}, values, 0)


def test_the_ball_holds_the_eigenvector_of_the_largest_eigenvalue():
    claim = CLAIMS["largest.true"]
    instance, env = solved(claim, extremes([[2.0, 1.0], [1.0, 3.0]], [1.0, 0.5]))
    assert instance.solved == {"w"}
    ball = env.variables["w"].ball
    first, second = map(exact, ball.centre.flatten().tolist())
    # Its second entry is (1 + sqrt(5))/2 times the first one.
    assert abs(second - first * (1 + arb(5).sqrt()) / 2) <= 3 * exact(ball.radius)
    assert 0 < ball.radius < 1e-14
    assert abs(float(ball.centre[0])) > 0.1


@pytest.mark.parametrize(
    ("A", "w"),
    [
        ([[2.0, 1.0], [1.0, 2.5]], [0.0, 0.0]),  # the zero vector is none
        ([[0.1, 0.0], [0.0, 0.1]], [0.3, 0.7]),  # a repeated one: which vectors belong to it is not known
    ],
)
def test_no_eigenvector_is_claimed_where_none_is_certain(A, w):
    matrix = torch.tensor(A).double()
    turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]]).double()
    _, env = solved(CLAIMS["largest.true"], extremes((turn @ matrix @ turn.T).tolist(), w))
    given = env.variables["w"].ball
    assert not env.met or (given.radius == 0 and not given.centre.any())


def test_the_other_eigenvalue_is_not_taken_for_the_largest():
    claim = CLAIMS["largest.true"]
    A, w = [[2.0, 1.0], [1.0, 3.0]], [1.618033988749895, -1.0]  # a vector of the smaller eigenvalue, nearly
    instance = replace(extremes(A, w), solved=frozenset({"w"}))
    env = instance_environment(claim, instance, device=CPU, dtype=torch.float64, notes=Notes())
    assert not solve(claim, instance, env, dtype=torch.float64, anew=False)[1].met


def test_small_whole_numbers_need_no_ball():
    claim = CLAIMS["layer.true"]
    one, zero = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    values = {"W": zero[None], "U": one[None], "x1": one, "x2": zero, "z1": zero, "z2": one, "mu": one[0]}
    found = judge_instance(claim, Instance("layer", "given", {"n": 1, "d": 1}, values, 0), device=CPU)
    assert found.standing is Standing.MET
    assert not found.instance.solved
    assert found.instance.values["z1"].tolist() == [1.0]
    assert found.instance.values["z2"].tolist() == [0.0]


def test_at_a_kink_only_floats_that_solve_it_exactly_count(tmp_path):
    claim = claim_of(tmp_path, "{x: real, y: real}", '"x == relu(3*x - y) + y/3"', "x <= y")
    values = {"x": torch.tensor(0.5, dtype=torch.float64), "y": torch.tensor(1.0, dtype=torch.float64)}
    found = judge_instance(claim, Instance("s", "given", {"n": 1}, values, 0), device=CPU)
    # x = 1/3 is a solution, and there relu has no derivative; x = 5/6 is another one.
    assert found.standing is Standing.UNMET or abs(float(found.instance.values["x"]) - 1 / 3) > 1e-3


def test_more_bits_know_the_solution_better():
    claim = CLAIMS["root.true"]
    first = judge_instance(claim, drawn(claim, 3), device=CPU)
    assert first.instance.solved == {"x"}
    again = judge_instance(claim, first.instance, device=CPU, precision=256)
    (outcome,) = again.conclusions.values()
    assert outcome.comparison is not None
    width = outcome.comparison.margin.hi - outcome.comparison.margin.lo
    assert again.standing is Standing.MET
    assert width < 1e-20
    assert all(o.truth is Truth.TRUE for o in again.hypotheses.values())


def test_values_that_are_given_are_not_computed_anew():
    claim = CLAIMS["root.true"]
    moved = {"x": torch.tensor(1.5, dtype=torch.float64)}
    plain = Instance("root", "given", {}, moved, 0)
    assert judge_instance(claim, plain, device=CPU, anew=False).standing is Standing.UNMET
    # A file that calls 1.5 a solution does not make it one.
    assert judge_instance(claim, replace(plain, solved=frozenset({"x"})), device=CPU, anew=False).standing is (
        Standing.UNMET
    )


@pytest.mark.parametrize("name", ["root.false", "fixed.false", "ones.false", "lyapunov.false", "turned.false"])
def test_a_counterexample_is_replayed_bit_for_bit(tmp_path, name):
    result = judge(CLAIMS[name], Options(out=str(tmp_path)))
    assert result.replay is not None
    record = read_counterexample(Path(result.replay))
    again = replay(record)
    assert again.refuted
    assert again.identical
    assert result.counterexample is not None
    assert set(result.counterexample.solved) == record.instance.solved
    if name == "root.false":
        assert record.instance.solved == {"x"}
        assert "solved: [x]" in Path(result.replay).read_text(encoding="utf-8")
        assert result.counterexample.computed.startswith("x: the solution")


def test_a_file_that_names_an_unknown_variable_is_refused(tmp_path):
    claim = CLAIMS["root.false"]
    found = next(
        j for j in (judge_instance(claim, drawn(claim, k), device=CPU) for k in range(20)) if j.instance.solved
    )
    path = tmp_path / "one.yaml"
    write_counterexample(path, claim, found, seed=0)
    path.write_text(path.read_text(encoding="utf-8").replace("solved: [x]", "solved: [w]"), encoding="utf-8")
    with pytest.raises(Exception, match="no variable `w`"):
        read_counterexample(path)


def test_what_is_computed_has_a_slope_in_the_search():
    claim = CLAIMS["fixed.false"]
    scorer = ClaimScorer(claim, claim.settings[0])
    assert scorer.uses == {"Q"}
    base = next(i for i in (drawn(claim, k) for k in range(1, 99, 2)) if i.sizes["n"] == 3)
    matrix = torch.eye(3, dtype=torch.float64) + torch.arange(9.0, dtype=torch.float64).reshape(3, 3).cos() / 4
    moving = {"Q": matrix.repeat(2, 1, 1).requires_grad_()}

    def length(values: torch.Tensor) -> torch.Tensor:
        return scorer._names(base, {"Q": values}, (len(values),)).variables["xs"].norm(dim=(-2, -1))

    (slope,) = torch.autograd.grad(length(moving["Q"])[0], moving["Q"])
    step = torch.zeros(3, 3, dtype=torch.float64)
    step[0, 1] = 1e-6
    ahead, behind = (float(length((matrix + sign * step)[None])) for sign in (1, -1))
    assert abs(float(slope[0, 0, 1]) - (ahead - behind) / 2e-6) < 1e-8


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A'*S + S*A", 1),
        ("A*S + S*A", 0),
        ("A*S - S*A'", -1),
        ("A*A' - 2*S^2", 1),
        ("A*K*A'", -1),
        ("K*K", 1),
        ("inv(A)*S*inv(A')", 1),
        ("inv(A)*S*inv(A)", 0),
        ("(x'*S*x)*S + x*x'", 1),
        ("x*y' + y*x'", 1),
        ("x*y'", 0),
        ("diag(x) + trace(A)*I(n) - ones(n, n)", 1),
        ("relu(S) + hadamard(A, A')", 1),
        ("exp(norm(A))*(A - A')/3", -1),
        ("S*T", 0),
        ("S*T*S", 1),
        ("zeros(n, n)", 1),
    ],
)
def test_symmetry_of_a_formula(tmp_path, text, expected):
    domain = '{A: "real[n, n]", S: "symmetric[n, n]", T: "psd[n, n]", K: "skew[n, n]", x: "real[n]", y: "real[n]"}'
    claim = claim_of(tmp_path, domain, f'"{text} == A"', "norm(x) >= 0")
    equations = Equations(claim, claim.settings[0])
    formula = next(iter(claim.assume.values()))
    assert equations.parity(formula.expr.args[0]) == expected
