"""Runs that are scored many at once: the same margins as one by one, and nothing counts after a run's end."""

import pytest
import torch

from ntk_deq.claims.load import load_suite
from ntk_deq.evaluation.instance import with_values
from ntk_deq.falsify import instance_at
from ntk_deq.verify.training.scoring import UNTRIED
from ntk_deq.verify.twins import twin_of

FILE = """
suite: t
settings:
  relu:
    model: implicit-relu
    sizes: {{N: 2, d: 2, m: 2}}
    domain: {{W: "[-1, 1]", A: "[-1/2, 1/2]", b: "[-1, 1]", X: "[-1, 1]", y: "[-2, 2]", gamma: "(0, 1/4]"}}
  linear:
    model: linear-implicit
    sizes: {{N: 2, d: 2, m: 2}}
    domain: {{W: "[-1/4, 1/4]", U: "[-1, 1]", b: "[-1, 1]", X: "[-1, 1]", y: "[-2, 2]"}}
claims:
  - id: T
    setting: {setting}
    given: {{eta: "(0, 1/5]"}}
    assume: norm(y) <= 4/5
    run: {{method: gradient-descent, step: {step}, steps: 20, beyond: false, until: {until}}}
    conclude: "{conclude}"
"""
ROWS = 24


def scorer_and_draws(tmp_path, conclude, *, setting="relu", step="eta", until="1e-9"):
    path = tmp_path / "claims.yaml"
    path.write_text(FILE.format(conclude=conclude, setting=setting, step=step, until=until))
    (claim,) = load_suite(str(path)).claims
    base = instance_at(claim.settings[0], claim.given, 1, 0)
    generator = torch.Generator().manual_seed(0)
    draws = {}
    for name, value in base.values.items():
        draw = torch.rand(ROWS, *value.shape, generator=generator, dtype=torch.float64)
        draws[name] = {"gamma": draw / 4, "eta": draw / 5}.get(name, (2 * draw - 1) * (0.12 if name == "W" else 1))
    return twin_of(claim).scorer(claim, claim.settings[0]), base, draws


@pytest.mark.parametrize(
    ("setting", "conclude"),
    [
        ("linear", "L[k+1] <= L[k] for all k"),
        ("relu", "norm(b[k+1] - b[0]) <= path_length[k+1] for all k"),
        ("linear", "L[3] + norm(Z[k+1]) <= L[0] for all k with k >= 3"),
        ("relu", "L[p+1] <= 2*L[q] for all p, q with p >= q"),
    ],
)
def test_margins_are_those_of_single_runs(tmp_path, setting, conclude):
    scorer, base, draws = scorer_and_draws(tmp_path, conclude, setting=setting)
    together = scorer(base, draws)
    alone = [scorer(with_values(base, **{name: v[row] for name, v in draws.items()}), {}) for row in range(ROWS)]
    assert torch.equal(together.feasible > 0, torch.cat([scores.feasible > 0 for scores in alone]))
    assert 5 < int((together.feasible > 0).sum()) < ROWS
    goals = torch.cat([scores.goals for scores in alone])
    moves = goals[:, 0] != 0  # a run alone ends where its gradient is zero, and has no second step then
    assert int(moves.sum()) >= ROWS - 2
    torch.testing.assert_close(together.goals[moves], goals[moves], rtol=1e-6, atol=1e-8)


def test_a_variable_that_stays_is_that_of_the_base(tmp_path):
    scorer, base, draws = scorer_and_draws(tmp_path, "L[k+1] <= L[k] for all k")
    few = {name: draws[name] for name in ("b", "eta")}
    together = scorer(with_values(base, y=draws["y"][0], W=draws["W"][0]), few)
    one = scorer(with_values(base, y=draws["y"][0], W=draws["W"][0], b=draws["b"][5], eta=draws["eta"][5]), {})
    torch.testing.assert_close(together.goals[5:6], one.goals, rtol=1e-6, atol=1e-8)


def test_steps_after_the_end_do_not_count(tmp_path):
    """Runs end where the loss is down to a half: what stays there is no step that breaks the strict inequality."""
    scorer, base, draws = scorer_and_draws(tmp_path, "L[k+1] < L[k] for all k", step="eta/10", until="0.5")
    scores = scorer(base, draws)
    met = scores.feasible > 0
    assert bool((scores.goals[met] > -0.01).all())
    later, _, _ = scorer_and_draws(tmp_path, "L[k] >= L[0]/4 for all k", step="eta + 1/10", until="0.5")
    run_on, _, _ = scorer_and_draws(tmp_path, "L[k] >= L[0]/4 for all k", step="eta + 1/10", until="1e-9")
    assert bool((later(base, draws).goals >= run_on(base, draws).goals - 1e-12).all())
    assert bool((later(base, draws).goals > run_on(base, draws).goals + 0.1).any())


def test_an_instance_without_a_step_size_is_not_run(tmp_path):
    scorer, base, draws = scorer_and_draws(tmp_path, "L[k+1] <= L[k] for all k", step="log(10*eta)")
    scores = scorer(base, draws)
    runs = 10 * draws["eta"] > 1
    assert bool((scores.feasible[runs] > 0).any())
    assert not bool((scores.feasible[~runs] > 0).any())
    assert bool((scores.goals[~runs] == UNTRIED).all())
