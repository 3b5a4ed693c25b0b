"""Formulas at the steps of a training run: what an index means, the step after, intervals; flows in closed form."""

import pytest
import torch
from flint import arb, arb_mat
from training_harness import looked_at

from ntk_deq.claims.load import load_suite
from ntk_deq.evaluation.balls import evaluate_scalar, evaluate_truth
from ntk_deq.evaluation.environment import Notes, OutsideClaimError
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Scalar, Truth
from ntk_deq.language.run import changing_names
from ntk_deq.systems import ImplicitReLU, loss_gradients, solve_equilibrium
from ntk_deq.verify.formulas import instance_environment
from ntk_deq.verify.runner import Options, judge
from ntk_deq.verify.training import Interval, Point, StepMoments
from ntk_deq.verify.training.flow import AffineFlow

FILE = """
suite: t
settings:
  s:
    model: implicit-relu
    sizes: {N: 2, d: 3, m: 4}
    domain: {W: real, A: real, b: real, X: real, y: real, gamma: "(0, 1)"}
claims:
  - id: T
    title: t
    setting: s
    given: {eta: positive}
    let:
      start: norm(W[0])
      H: Z*Z'
    run: {method: gradient-descent, step: eta, steps: 10}
    conclude:
      changes: norm(W[k]) <= 10*start for all k
      kernel: lambda_min(H[k]) >= 0 for all k
      falls: L[k+1] < L[k] for all k
      moved: fro(W[k+1] - W[k]) <= path_length[k+1] - path_length[k] + 1e-9 for all k
      at the start: L[0] <= L[0] and W[0] == W
"""
ETA = 2.0**-6


@pytest.fixture
def run(tmp_path):
    """A claim, its environment, and five steps of descent computed by another route."""
    path = tmp_path / "claims.yaml"
    path.write_text(FILE)
    (claim,) = load_suite(str(path)).claims
    generator = torch.Generator().manual_seed(3)
    model = ImplicitReLU.random(3, 4, generator=generator, gamma=0.5)
    X = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    y = torch.randn(2, generator=generator, dtype=torch.float64)
    values = {**model.parameters(), "gamma": model.gamma, "X": X, "y": y, "eta": torch.tensor(ETA).double()}
    instance = Instance("s", "drawn", {"N": 2, "d": 3, "m": 4}, values, 0)
    env = instance_environment(claim, instance, device=torch.device("cpu"), dtype=torch.float64, notes=Notes())
    states, lengths = [dict(model.parameters())], [0.0]
    for _ in range(5):
        gradients = loss_gradients(model, X, y, parameters=states[-1])
        states.append({name: states[-1][name] - ETA * gradients[name] for name in gradients})
        lengths.append(lengths[-1] + ETA * float(sum(g.square().sum() for g in gradients.values()).sqrt()))
    return claim, env, model, X, y, states, lengths


def moments_of(claim, env, states, lengths, ats):
    points = [Point(k, states[k], {} if k == 0 else dict.fromkeys(states[k], 1e-12), arb(lengths[k])) for k in ats]
    changing = changing_names(claim.run.kind, env.model, claim.let)
    moments = StepMoments(env, points, changing, step=Scalar(arb(ETA), ETA))
    env.moments = moments
    return moments


def loss_at(model, X, y, parameters):
    return float(
        (model.readout(solve_equilibrium(model, X, parameters=parameters).value, parameters) - y).square().sum() / 2
    )


def test_an_index_means_the_values_at_that_step(run):
    claim, env, model, X, y, states, lengths = run
    moments = moments_of(claim, env, states, lengths, (0, 2, 4))
    for k in (0, 2, 4):
        inside = moments.environment(k)
        got = evaluate_scalar(claim.conclude["falls"].expr.args[0].args[1], env, {"k": k})
        assert float(got.ball.mid()) == pytest.approx(loss_at(model, X, y, states[k]), rel=1e-9)
        assert torch.equal(inside.variables["W"].ball.centre, states[k]["W"])


def test_the_step_after_a_judged_one_is_taken_in_balls(run):
    claim, env, _, _, _, states, lengths = run
    moments = moments_of(claim, env, states, lengths, (0, 2))
    assert moments.has(3)
    assert not moments.has(4)
    after = moments.environment(3)
    for name in ("W", "A", "b"):
        ball = after.variables[name].ball
        distance = float(torch.linalg.vector_norm(ball.centre.reshape(states[3][name].shape) - states[3][name]))
        assert distance <= ball.radius + 1e-9
        assert ball.radius < 1e-9
    with pytest.raises(OutsideClaimError, match="there is no step 4 to compare: the run ended at 2"):
        moments.environment(4)


def test_conclusions_along_a_run(run):
    claim, env, _, _, _, states, lengths = run
    moments_of(claim, env, states, lengths, (0, 1, 2, 3, 4))
    outcomes = {name: evaluate_truth(formula.expr, env).truth for name, formula in claim.conclude.items()}
    assert outcomes["changes"] is Truth.TRUE
    assert outcomes["falls"] is Truth.TRUE
    assert outcomes["moved"] is Truth.TRUE
    assert outcomes["at the start"] is Truth.TRUE


def test_what_does_not_change_is_that_of_the_start(run):
    claim, env, _, _, _, states, lengths = run
    moments = moments_of(claim, env, states, lengths, (0, 4))
    inside = moments.environment(4)
    start = claim.conclude["changes"].expr.args[0].args[1].args[1]
    assert start.name == "start"
    assert evaluate_scalar(start, inside) is evaluate_scalar(start, env)


def test_an_interval_contains_every_step_on_the_way(run):
    claim, env, model, X, y, states, lengths = run
    moments = moments_of(claim, env, states, lengths, (0, 4))
    inside = moments.environment(Interval(0, 4))
    loss = evaluate_scalar(claim.conclude["falls"].expr.args[0].args[1], env, {"k": Interval(0, 4)})
    for k, state in enumerate(states[:5]):
        for name in ("W", "A", "b"):
            ball = inside.variables[name].ball
            assert float(torch.linalg.vector_norm(ball.centre.reshape(state[name].shape) - state[name])) <= ball.radius
        assert loss.ball.contains(arb(loss_at(model, X, y, state)))
        assert moments.index(Interval(0, 4)).contains(arb(k))


QUADRATIC = """
suite: t
systems:
  squares:
    variables:
      w: {shape: "[p]", role: parameter}
      c: {shape: "[N]", role: parameter}
      F: {shape: "[N, p]", role: input}
      y: {shape: "[N]", role: target}
    define: {e: F*w + c - y, L: LOSS}
settings:
  squares: {model: squares, sizes: {N: 2, p: 2}, init: {w: zeros, c: "normal(0, 1)", F: "normal(0, 1)", y: rademacher}}
claims:
  - id: T
    title: t
    setting: squares
    instances: 1
    let: {mu: lambda_min(F*F' + I(N))}
    run: {method: gradient-flow, until: 1e-3}
    conclude: CONCLUDE
"""


def squares(tmp_path, conclude, loss="dot(e, e)/2"):
    path = tmp_path / "claims.yaml"
    path.write_text(QUADRATIC.replace("CONCLUDE", f"'{conclude}'").replace("LOSS", loss))
    (claim,) = load_suite(str(path)).claims
    return judge(looked_at(claim), Options(search=0))


def test_a_flow_whose_gradient_is_affine_is_certified_in_closed_form(tmp_path):
    result = squares(tmp_path, "L[t] <= exp(-2*mu*t)*L[0] for all t")
    assert (result.verdict.value, result.evidence.value, result.estimated) == ("holds", "certified", {})
    result = squares(tmp_path, "L[t] <= exp(-2*mu*t)*L[0]/10 for all t")
    assert (result.verdict.value, result.evidence.value) == ("refuted", "certified")


def test_between_two_times_only_what_is_shown_is_certified(tmp_path):
    # The loss falls below the right side between the judged times as well, but by no rule that is known.
    result = squares(tmp_path, "L[t] <= exp(-2*mu*t)*L[0] + sin(t)^2 for all t")
    assert result.evidence.value == "numeric"
    assert list(result.estimated) == ["steps between the judged ones"]


def test_a_loss_that_is_not_quadratic_is_integrated(tmp_path):
    result = squares(tmp_path, "L[t] <= L[0] for all t", loss="dot(e, e)/2 + dot(e, e)^2")
    assert "gradient flow" in result.estimated


def test_the_closed_form_of_a_flow_is_the_flow():
    """Two decoupled coordinates: theta = (a (1 - exp(-2 t)), b t), the second with no curvature at all."""
    flow = AffineFlow(arb_mat([[-4], [-3]]), arb_mat([[2, 0], [0, 0]]), arb(1))
    moved, velocity = flow.after(arb(1))
    known = [2 * (1 - arb(-2).exp()), arb(3)]
    assert all(bool(entry.overlaps(other)) for entry, other in zip(moved.entries(), known, strict=True))
    assert bool(velocity[0, 0].overlaps(-4 * arb(-2).exp()))
    assert bool(flow.loss(moved).overlaps(1 - 4 * known[0] - 9 + known[0] * known[0]))
    again, _ = flow.after(arb(1), velocity)
    assert bool((moved + again)[0, 0].overlaps(2 * (1 - arb(-4).exp())))
    length, t = flow.length(arb_mat([[-4], [-3]]), arb(1)), torch.linspace(0, 1, 100_001, dtype=torch.float64)
    true = torch.trapezoid((16 * torch.exp(-4 * t) + 9).sqrt(), t).item()
    assert abs(length - true) < 0.01
    assert bool(length.contains(arb(true, 1e-9)))
