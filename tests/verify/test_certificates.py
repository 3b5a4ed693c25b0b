"""Certificates that a system names, or leaves out: which instances count, and what a verdict says of the rest."""

from dataclasses import replace

import pytest
import torch
from test_nearby import env_of
from verify_harness import informed, judge_all, randn, truth_of, value_of

from ntk_deq.claims.claim import Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.errors import ClaimFileError
from ntk_deq.evaluation.environment import OutsideClaimError
from ntk_deq.evaluation.existence import declared_modulus, existence
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Truth
from ntk_deq.language.declaration import ModelSignature, Role, Variable
from ntk_deq.report import several_equilibria
from ntk_deq.verify.judge import Standing, decided_exactly, judge_instance
from ntk_deq.verify.runner import Options, judge

COLUMNS = ModelSignature(
    name="columns",
    title="A monotone network, samples as columns",
    sizes=("n", "N"),
    variables=(
        Variable("A", ("n", "n"), Role.PARAMETER, ""),
        Variable("B", ("n", "n"), Role.PARAMETER, ""),
        Variable("mu", (), Role.HYPERPARAMETER, ""),
        Variable("C", ("n", "N"), Role.INPUT, ""),
    ),
    state="Z",
    state_shape=("n", "N"),
    map="softplus(W*Z + C)",
    monotone="mu",
    definitions={"W": "(1 - mu)*I(n) - A'*A + B - B'"},
)
ROWS = ModelSignature(
    name="rows",
    title="The same with samples as rows",
    sizes=("n", "N"),
    variables=COLUMNS.variables,
    state="Z",
    state_shape=("N", "n"),
    map="softplus(Z*W' + C')",
    monotone="mu",
    definitions=COLUMNS.definitions,
)


def values(seed, n=3, N=2, mu=0.5):
    drawn = {"A": randn(n, n, seed=seed), "B": 3 * randn(n, n, seed=seed + 50), "C": randn(n, N, seed=seed + 90)}
    return {**drawn, "mu": mu}


@pytest.mark.parametrize("seed", range(3))
def test_samples_are_columns_or_rows(seed):
    sizes = {"n": 3, "N": 2}
    columns, rows = (env_of(model, values(seed), sizes) for model in (COLUMNS, ROWS))
    Z, turned = value_of("Z", columns), value_of("Z", rows)
    assert informed(Z)
    assert torch.allclose(Z.ball.centre, turned.ball.centre.mT, rtol=0, atol=1e-11)
    gradient = value_of("grad(sum(Z), C)", columns)
    assert informed(gradient)
    assert torch.allclose(gradient.ball.centre, value_of("grad(sum(Z), C)", rows).ball.centre, rtol=0, atol=1e-10)
    single = env_of(COLUMNS, {**values(seed), "C": values(seed)["C"][:, :1].contiguous()}, {"n": 3, "N": 1})
    assert torch.allclose(value_of("Z", single).ball.centre, Z.ball.centre[:, :1], rtol=0, atol=1e-11)


@pytest.mark.parametrize("act", ["tanh(WZ)", "sigmoid(WZ)", "softplus(WZ)", "softthreshold(WZ, mu)", "WZ"])
@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_every_proximal_activation(act, scale):
    """Steep weights, where whole Newton steps swing from side to side between the flat ends of tanh."""
    model = replace(COLUMNS, map=act.replace("WZ", "W*Z + C"), name=act)
    for seed in range(3):
        drawn = values(seed, n=5)
        env = env_of(model, {**drawn, "A": scale * drawn["A"], "B": scale * drawn["B"]}, {"n": 5, "N": 2})
        Z = value_of("Z", env)
        assert Z.ball.radius <= 1e-9 * max(1.0, Z.scale)
        assert truth_of(f"Z == {model.map}", env).truth is not Truth.FALSE


def test_a_modulus_is_certified_and_not_believed():
    sizes = {"n": 3, "N": 2}
    large = {**values(0), "A": torch.zeros(3, 3).double()}
    claimed = ModelSignature(**{**vars(COLUMNS), "monotone": "3*mu", "name": "claimed"})
    assert existence(env_of(COLUMNS, large, sizes)).gap is not None
    with pytest.raises(OutsideClaimError, match="smallest eigenvalue") as caught:
        value_of("Z", env_of(claimed, large, sizes))
    assert caught.value.certain
    with pytest.raises(OutsideClaimError, match="not above zero"):
        value_of("Z", env_of(COLUMNS, {**large, "mu": -0.5}, sizes))


def test_a_modulus_that_the_form_of_the_weight_reaches_is_certain_where_balls_touch():
    flat = {**values(0), "A": torch.zeros(3, 3).double(), "mu": 0.1}  # I - W = mu I, and no eigenvalue is above it
    assert declared_modulus(env_of(COLUMNS, flat, {"n": 3, "N": 2})).truth is Truth.TRUE
    skewed = ModelSignature(**{**vars(COLUMNS), "monotone": "mu/2 + mu/2", "name": "skewed"})
    assert declared_modulus(env_of(skewed, flat, {"n": 3, "N": 2})).truth is Truth.TRUE
    more = ModelSignature(**{**vars(COLUMNS), "monotone": "mu + mu^2/10", "name": "more"})
    assert declared_modulus(env_of(more, flat, {"n": 3, "N": 2})).truth is Truth.FALSE


SETTING = """
  s:
    model: layer
    sizes: {n: 1..3}
systems:
  layer:
    variables: {W: {shape: "[n, n]", role: parameter}, c: {shape: "[n]", role: input}}
    equilibrium: {z: "MAP"}
"""


def test_a_modulus_that_is_open_at_other_values_is_a_hypothesis_of_the_result(tmp_path):
    claim = '{given: {M: "real[n, n]"}, conclude: "norm(at(z, W = M)) >= 0"}'
    result = judge_all(
        tmp_path,
        f"  - {{id: T, setting: s, {claim[1:-1]}}}",
        SETTING.replace("MAP", "relu(W*z + c)").rstrip() + "\n    monotone: 1/2\n",
        instances=60,
    )["T"]
    assert result.verdict != "error", result.reason


def judged(folder, text, conclude, more="", assume="", **options):
    setting = SETTING.replace("MAP", text).rstrip() + (f"\n    {more}\n" if more else "\n")
    claim = f'  - {{id: T, setting: s, {assume}conclude: "{conclude}"}}'
    return judge_all(folder, claim, setting, **options)["T"]


def test_instances_without_the_declared_modulus_do_not_count(tmp_path):
    result = judged(tmp_path, "relu(W*z + c)", "norm(z) <= 2*norm(c)", "monotone: 1/2", instances=40)
    assert result.verdict is Verdict.HOLDS, result.reason
    assert {record.name: record.failed for record in result.hypotheses}["monotone"] > 5
    broken = judged(tmp_path, "relu(W*z + c)", "norm(z) <= norm(c)", "monotone: 1/2", instances=40)
    assert broken.verdict is Verdict.REFUTED


def test_a_fixed_point_that_breaks_a_claim_refutes_it(tmp_path):
    """z = relu(2 z - 1) has the fixed points 0 and 1; from zero the first is found, and a claim speaks of both."""
    more = "define: {one: ones(n)}"
    result = judged(tmp_path, "relu(2*z - one) + 0*W*c", "sum(z) >= 1/2", more)
    assert result.verdict is Verdict.REFUTED
    assert "there may be others" in result.reason
    assert result.support.nearby == result.support.met
    assert judged(tmp_path, "relu(2*z - one) + 0*W*c", "sum(z) <= 1/2", more).verdict is Verdict.HOLDS


def test_without_any_fixed_point_nothing_is_decided(tmp_path):
    result = judged(tmp_path, "relu(z) + ones(n) + 0*W*c", "sum(z) >= 0", instances=8)
    assert result.verdict is Verdict.UNDECIDED
    assert "nor is one near the point found" in result.reason


def test_a_composition_of_layers_has_the_product_of_its_constants(tmp_path):
    text = "W'*relu(W*softplus(W*z + c))"
    bound = "norm(z) <= norm(W)^2*(norm(W)*norm(z) + norm(softplus(c)))"
    result = judged(tmp_path, text, bound, assume="assume: norm(W) < 1, ")
    assert result.verdict is Verdict.HOLDS
    assert not result.support.nearby


def test_a_report_says_that_there_may_be_others(tmp_path):
    more = "define: {one: ones(n)}"
    result = judged(tmp_path, "relu(2*z - one) + 0*W*c", "sum(z) <= 1/2", more)
    assert several_equilibria(result).startswith("equilibria: on all instances one that was found from zero")
    assert result.support.alone > 0
    sure = judged(tmp_path, "relu(z/2 - one) + 0*W*c", "sum(z) <= 1/2", more)
    assert not several_equilibria(sure)


def test_an_equation_with_such_an_equilibrium_is_not_solved_by_another(tmp_path):
    """`c` is not computed from the hypothesis, as the equilibrium may be another one for another c."""
    result = judged(tmp_path, "relu(2*W*z + c)", "sum(z) == sum(c)", assume='assume: "c == z", ', instances=2)
    assert result.verdict is not Verdict.REFUTED


DECLARED = """
suite: declared
systems:
  layer:
    variables:
      W: {{shape: "[m, m]", role: parameter}}
      x: {{shape: "[m]", role: parameter}}
      mu: {{role: hyperparameter, domain: positive}}
    equilibrium: {{z: "relu(W*z + x)"}}
    monotone: mu
settings: {{any: {{model: layer, sizes: {{m: 1..2}}}}}}
claims:
  - id: a
    setting: any
    conclude: {conclude}
"""


def verdict_on(folder, text, search=0):
    path = folder / "claims.yaml"
    path.write_text(text)
    (claim,) = load_suite(path).claims
    return judge(claim, Options(instances=60, search=search))


@pytest.mark.parametrize(
    ("conclude", "verdict"),
    [
        ('{a: "z >= 0", b: norm(z) <= norm(x)/mu}', Verdict.HOLDS),  # the state is evaluated twice
        ("lambda_min(I(m) - (W + W')/2) >= mu", Verdict.HOLDS),  # and here not at all
        ("lambda_min(I(m) - (W + W')/2) > mu", Verdict.REFUTED),  # at an instance that reaches it exactly
        ("norm(z) <= norm(x)/(2*mu)", Verdict.REFUTED),
    ],
)
def test_an_instance_below_the_declared_modulus_is_none_of_the_system(tmp_path, conclude, verdict):
    result = verdict_on(tmp_path, DECLARED.format(conclude=conclude), search=60)
    assert result.verdict is verdict, result.reason


@pytest.mark.parametrize(
    ("conclude", "verdict"),
    [("q == 6*mu", Verdict.HOLDS), ("q <= 5*mu", Verdict.REFUTED), ("norm(z) <= norm(x)/mu", Verdict.HOLDS)],
)
def test_a_range_in_a_system_without_families(tmp_path, conclude, verdict):
    certificate = '    monotone: sum(mu/3 for l in 1..3)\n    define: {q: "sum(mu*l for l in 1..3)"}\n'
    file = DECLARED.format(conclude=conclude).replace("    monotone: mu\n", certificate)
    result = verdict_on(tmp_path, file, search=60)
    assert result.verdict is verdict, result.reason


@pytest.mark.parametrize(
    ("conclude", "verdict"),
    [
        ("norm(z) <= norm(x)/mu", Verdict.HOLDS),
        ("a <= 1", Verdict.HOLDS),
        ("norm(z) <= norm(x)/(2*mu)", Verdict.REFUTED),
    ],
)
def test_a_leaky_relu_is_proximal_where_its_slope_lies_between_zero_and_one(tmp_path, conclude, verdict):
    file = DECLARED.format(conclude=conclude).replace("relu(W*z + x)", "leaky_relu(W*z + x, a)")
    file = file.replace("      mu:", '      a: {role: hyperparameter, domain: "[-2, 2]"}\n      mu:')
    result = verdict_on(tmp_path, file, search=60)
    assert result.verdict is verdict, result.reason


def test_a_slope_that_is_never_between_zero_and_one_is_no_layer(tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text(DECLARED.format(conclude="norm(z) >= 0").replace("relu(W*z + x)", "leaky_relu(W*z + x, 2)"))
    with pytest.raises(ClaimFileError, match="not seen to be one layer"):
        load_suite(path)


def test_a_vector_before_a_matrix_is_no_layer(tmp_path):
    file = DECLARED.format(conclude="norm(z) <= 4*norm(x)").replace("    monotone: mu\n", "")
    file = file.replace("relu(W*z + x)", "relu(z*x'*x/4 + z/4 + x)")
    file = file.replace("  - id: a\n", "  - id: a\n    assume: norm(x) < 1\n")
    result = verdict_on(tmp_path, file)
    assert result.verdict is Verdict.HOLDS, result.reason


@pytest.mark.parametrize(("other", "standing"), [(0.5, Standing.UNSURE), (-1.0, Standing.MET), (0.75, Standing.UNMET)])
def test_the_modulus_at_other_values_must_be_certain_too(tmp_path, other, standing):
    """The smallest eigenvalue is 1 - |other|; at 1/2 it reaches mu, which balls do not tell, and breaks no claim."""
    text = DECLARED.format(conclude="norm(at(z, W = V)) <= norm(x)/4\n    given: {V: 'real[m, m]'}")
    (tmp_path / "claims.yaml").write_text(text)
    (claim,) = load_suite(tmp_path / "claims.yaml").claims
    swapped = [[0.0, other], [other, 0.0]] if other > 0 else [[other, 0.0], [0.0, other]]
    given = {"W": [[-1.0, 0.0], [0.0, -1.0]], "x": [1.0, 1.0], "mu": 0.5, "V": swapped}
    drawn = {name: torch.tensor(value, dtype=torch.float64) for name, value in given.items()}
    found = judge_instance(claim, Instance("any", "by hand", {"m": 2}, drawn, 0), device=torch.device("cpu"))
    assert found.standing is standing
    assert decided_exactly(claim, found, dtype=torch.float64).standing is standing
