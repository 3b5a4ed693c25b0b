"""Margins in floating point: signs, scales, noise, derivatives, batches, and agreement with the balls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from search_harness import by_id, claims_of
from torch import Tensor

from ntk_deq.claims.claim import Claim
from ntk_deq.evaluation.floats import TensorNames
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.margins import BROKEN_BY_EQUALITY, Margins
from ntk_deq.evaluation.quantity import Truth
from ntk_deq.falsify import instance_at
from ntk_deq.falsify.search.archive import Score
from ntk_deq.verify.judge import Standing, judge_instance
from ntk_deq.verify.scoring import ClaimScorer

CPU = torch.device("cpu")
ROOT = Path(__file__).resolve().parents[2]

NUMBERS = """
suite: numbers
settings:
  s: {sizes: {n: 1..3}, domain: {x: real, y: real, A: "real[n, n]", B: "real[n, n]", v: "real[n]"}}
claims:
"""


def claim_of(folder: Path, conclude: str, assume: str = "") -> Claim:
    """A claim about numbers and square matrices."""
    claim = {"id": "c", "setting": "s", "conclude": {"c": conclude}}
    claim |= {"assume": {"a": assume}} if assume else {}
    return claims_of(NUMBERS + f"  - {json.dumps(claim)}", folder)["c"]


def instance(n: int = 2, **values: float | list) -> Instance:
    given = {"x": 0.0, "y": 0.0, "A": torch.zeros(n, n), "B": torch.zeros(n, n), "v": torch.zeros(n), **values}
    return Instance("s", "", {"n": n}, {k: torch.as_tensor(v, dtype=torch.float64) for k, v in given.items()}, 0)


def score_instance(claim: Claim, instance: Instance) -> Score:
    (setting,) = (s for s in claim.settings if s.name == instance.setting)
    with torch.no_grad():
        return ClaimScorer(claim, setting)(instance, {}).of(0)


def margin(claim: Claim, **values: float | list) -> float:
    return score_instance(claim, instance(**values)).margin


@pytest.mark.parametrize(
    ("formula", "x", "y", "sign"),
    [
        ("x <= y", 1.0, 2.0, 1),
        ("x <= y", 2.0, 1.0, -1),
        ("x >= y", 2.0, 1.0, 1),
        ("x < y", 1.0, 2.0, 1),
        ("x > y", 1.0, 2.0, -1),
        ("x <= y", 1.0, 1.0, 0),
        ("x == y", 1.0, 1.0, 0),
        ("x == y", 1.0, 1.5, -1),
        ("x != y", 1.0, 1.5, 1),
        ("x < y", 1.0, 1.0, -1),
        ("x != y", 1.0, 1.0, -1),
        ("0 < x < y", 1.0, 2.0, 1),
        ("0 < x < y", 3.0, 2.0, -1),
        ("x <= y or y <= x", 5.0, 2.0, 1),
        ("x <= y and y <= x", 5.0, 2.0, -1),
        ("not (x <= y)", 5.0, 2.0, 1),
        ("not (x > y)", 5.0, 2.0, -1),
        ("x^2 + 1 >= 0", 3.0, 0.0, 1),
        ("x <= 0", 1e-8, 0.0, -1),
    ],
)
def test_the_sign_says_whether_it_holds(tmp_path: Path, formula: str, x: float, y: float, sign: int) -> None:
    found = margin(claim_of(tmp_path, formula), x=x, y=y)
    assert (found > 0) - (found < 0) == sign


def test_a_margin_is_relative(tmp_path: Path) -> None:
    claim = claim_of(tmp_path, "x <= y")
    assert margin(claim, x=1.0, y=2.0) == pytest.approx(0.5)
    assert margin(claim, x=1e-9, y=2e-9) == pytest.approx(0.5)
    assert margin(claim, x=1e9, y=2e9) == pytest.approx(0.5)


def test_against_zero_the_margin_goes_to_zero(tmp_path: Path) -> None:
    claim = claim_of(tmp_path, "x + y >= 0")
    near, far = margin(claim, x=1.0, y=-0.999), margin(claim, x=1.0, y=-0.5)
    assert 0 < near < 1e-3 < far


def test_what_rounding_hides_is_zero_and_equality_breaks_a_strict_sign(tmp_path: Path) -> None:
    weak, strict = claim_of(tmp_path, "(x + y) - y <= x"), claim_of(tmp_path, "(x + y) - y < x")
    assert margin(weak, x=0.1, y=12345.678) == 0
    assert margin(strict, x=0.1, y=12345.678) == 0  # the sides differ by rounding: nothing is known
    assert margin(strict, x=1.0, y=2.0) == BROKEN_BY_EQUALITY


def test_a_matrix_is_judged_by_its_worst_entry_and_an_identity_by_its_distance(tmp_path: Path) -> None:
    entries, identity = claim_of(tmp_path, "A <= B"), claim_of(tmp_path, "A == B")
    A, B = [[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.5], [3.0, 3.0]]
    assert margin(entries, A=A, B=B) == pytest.approx(-1 / 4 / 2 - 1 / 30**0.5 / 2)
    assert margin(identity, A=A, B=B) == pytest.approx(-(1.25**0.5) / 30**0.5)


@pytest.mark.parametrize(
    ("formula", "assume"),
    [
        ("norm(inv(A)) <= 3", ""),
        ("x/y <= 1", ""),
        ("sqrt(x - 1) <= 1", ""),
        ("log(x) <= 1", ""),
        ("norm(A) <= 1", "cond(A) <= 2"),
        ("sum(step(A)) <= 1", ""),
        ("sum(grad(sum(relu(A)), A)) <= 1", ""),
    ],
)
def test_an_undefined_instance_is_infeasible_and_no_error(tmp_path: Path, formula: str, assume: str) -> None:
    found = score_instance(claim_of(tmp_path, formula, assume), instance())
    assert (found.feasible, found.margin) == (-torch.inf, torch.inf)


@pytest.mark.parametrize(
    "formula",
    [
        "norm(A*B) <= 2*norm(A)*norm(B)",
        "sigma_min(A) >= fro(B)/7",
        "norm(inv(A)) <= x",
        "lambda_max(A) <= y and norm1(B) <= 9",
        "trace(kron(A, B)) <= x*y",
        "v'*A*v <= x or dot(v, v) >= 100",
        "A <= B",
        "hadamard(A, B) == B",
    ],
)
def test_derivatives_agree_with_finite_differences(tmp_path: Path, formula: str) -> None:
    # The magnitudes that margins are divided by count as constants: they are held fixed here as well.
    claim = claim_of(tmp_path, formula)
    names = names_of(claim, 3)
    expr = claim.conclude["c"].expr
    start = {key: value.clone().requires_grad_() for key, value in names.variables.items()}
    value = Margins(replaced(names, start), 0).of(expr)
    slopes = torch.autograd.grad(value, list(start.values()), allow_unused=True)
    for (key, origin), slope in zip(names.variables.items(), slopes, strict=True):
        if slope is None:
            continue
        direction = torch.randn(origin.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
        moved = {**names.variables, key: origin + 1e-6 * direction}
        difference = (raw(expr, replaced(names, moved)) - raw(expr, names)) / 1e-6
        ratio = raw(expr, names) / value.detach()  # undoes the division
        assert float((slope * direction).sum() * ratio) == pytest.approx(float(difference), rel=1e-3, abs=1e-4)


def names_of(claim: Claim, n: int) -> TensorNames:
    generator = torch.Generator().manual_seed(2)
    shapes = {"x": (), "y": (), "A": (n, n), "B": (n, n), "v": (n, 1)}
    values = {key: torch.randn(s, dtype=torch.float64, generator=generator) + 2 for key, s in shapes.items()}
    return TensorNames(values, {"n": n}, claim.let, None, torch.zeros((), dtype=torch.float64))


def replaced(names: TensorNames, values: dict[str, Tensor]) -> TensorNames:
    return TensorNames(values, names.sizes, names.lets, names.formulas, names.like)


def raw(expr: object, names: TensorNames) -> Tensor:
    """The difference that decides a formula, undivided: by the least of an `and`, the greatest of an `or`."""
    from ntk_deq.evaluation.floats import tensor_value
    from ntk_deq.language.tree import Expr, Kind

    assert isinstance(expr, Expr)
    if expr.kind in (Kind.AND, Kind.OR):
        decided = [Margins(names, 0).of(arg) for arg in expr.args]
        place = int(torch.stack(decided).argmin() if expr.kind is Kind.AND else torch.stack(decided).argmax())
        return raw(expr.args[place], names)
    left, right = (tensor_value(arg, names) for arg in expr.args)
    if expr.operators == (">=",):
        left, right = right, left
    if expr.operators == ("==",):
        return -torch.linalg.vector_norm(right - left)
    return (right - left).min()


SUITES = ["checks/implicit_relu.yaml", "checks/linear_implicit.yaml", "checks/matrix_facts.yaml"]


def all_claims(*files: str) -> list[Claim]:
    return [claim for file in files for claim in by_id(ROOT / file).values()]


@pytest.mark.parametrize("claim", all_claims(*SUITES), ids=lambda claim: claim.id)
def test_floats_agree_with_the_balls_on_every_claim(claim: Claim) -> None:
    setting = claim.settings[0]
    decided = 0
    for index in range(10):
        case = instance_at(setting, claim.given, index, 0)
        found, judged = score_instance(claim, case), judge_instance(claim, case, device=CPU)
        if judged.standing is Standing.UNMET:
            assert found.feasible < 1e-9
            continue
        # The floats look at all conclusions at once: one at a kink leaves none.
        if judged.standing is Standing.UNSURE or judged.conclusions.keys() != claim.conclude.keys():
            continue
        decided += 1
        assert found.feasible >= 0
        worst = min(outcome.truth for outcome in judged.conclusions.values())
        if worst is Truth.FALSE:
            assert found.margin < 0
        elif worst is Truth.TRUE:
            assert found.margin > -1e-9
    assert decided > 0


@pytest.mark.parametrize("claim", all_claims(*SUITES), ids=lambda claim: claim.id)
def test_a_batch_scores_like_its_members(claim: Claim) -> None:
    setting = claim.settings[0]
    scorer = ClaimScorer(claim, setting)
    cases = [instance_at(setting, claim.given, index, 3) for index in range(1, 40, 2)]
    sizes = max((case.sizes for case in cases), key=lambda s: sum(c.sizes == s for c in cases))
    same = [case for case in cases if case.sizes == sizes]
    moving = {name: torch.stack([case.values[name] for case in same]) for name in same[0].values}
    with torch.no_grad():
        together = scorer(same[0], moving)
        for place, case in enumerate(same):
            alone = scorer(case, {})
            assert bool(together.defined[place]) == bool(alone.defined[0])
            if bool(alone.defined[0]):
                assert torch.allclose(together.hypotheses[place], alone.hypotheses[0], rtol=1e-7, atol=1e-9)
                assert torch.allclose(together.goals[place], alone.goals[0], rtol=1e-7, atol=1e-9)


def test_one_undefined_member_does_not_spoil_a_batch(tmp_path: Path) -> None:
    claim = claim_of(tmp_path, "norm(inv(A)) <= 3 and rho(inv(A)) <= 3")
    A = torch.stack([torch.eye(2), torch.zeros(2, 2), torch.full((2, 2), torch.nan), 2 * torch.eye(2)]).double()
    found = ClaimScorer(claim, claim.settings[0])(instance(), {"A": A})
    assert found.defined.tolist() == [True, False, False, True]
    assert found.margin[[0, 3]].min() > 0


def test_the_score_of_an_equilibrium_has_the_derivative_of_the_equilibrium() -> None:
    claim = by_id(ROOT / "checks/implicit_relu.yaml")["R.L3.1"]
    scorer = ClaimScorer(claim, claim.settings[0])
    goal = scorer.goals.index("limit")
    compared = 0
    for case in (instance_at(claim.settings[0], claim.given, index, 0) for index in range(1, 200, 2)):
        A = case.values["A"].unsqueeze(0).clone().requires_grad_()
        found = scorer(case, {"A": A})
        (slope,) = torch.autograd.grad(found.goals[0, goal], A)
        if found.of(0).feasible < 0.05 or min(case.sizes.values()) == 1 or float(slope.norm()) < 1e-3:
            continue
        # The same by finite differences of the margin before it is divided, with iterates of the map.
        ratio = float(found.goals[0, goal].detach()) / undivided(case, case.values["A"])
        sides = [undivided(case, case.values["A"] + t * slope[0]) for t in (-1e-6, 1e-6)]
        assert float((slope**2).sum()) == pytest.approx((sides[1] - sides[0]) / 2e-6 * ratio, rel=1e-4)
        compared += 1
        if compared == 3:
            return
    raise AssertionError("fewer than three instances could be compared")


def undivided(case: Instance, A: Tensor) -> float:
    v = case.values
    phi = (v["X"] @ v["W"]).relu()
    Z = torch.zeros_like(phi)
    for _ in range(800):
        Z = (v["gamma"] * Z @ A + phi).relu()
    gamma0 = v["gamma"] * v["M"]
    return float(torch.linalg.norm(phi) / (1 - gamma0) - torch.linalg.norm(Z))


def test_without_a_contraction_an_instance_is_infeasible_by_how_much_it_lacks() -> None:
    claim = by_id(ROOT / "checks/implicit_relu.yaml")["R.L3.2"]
    scorer = ClaimScorer(claim, claim.settings[0])
    case = instance_at(claim.settings[0], claim.given, 0, 0)
    moving = {"A": torch.stack([c * torch.ones_like(case.values["A"]) for c in (2.5, 5.0, 50.0)])}
    case.values["gamma"].fill_(0.5)
    with torch.no_grad():
        lacks = scorer(case, moving).hypotheses[:, -1].tolist()
    assert 0 > lacks[0] > lacks[1] > lacks[2] >= -1


@pytest.mark.parametrize("name", ["R.L3.1", "R.L3.1.cauchy", "R.L3.1.decrease.repaired", "R.L5.1.proof"])
def test_many_steps_at_once_give_what_each_gives_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = by_id(ROOT / "checks/implicit_relu.yaml")[name]
    scorer = ClaimScorer(claim, claim.settings[0])
    case = instance_at(claim.settings[0], claim.given, 5, 0)
    moving = {"A": torch.stack([case.values["A"] * factor for factor in (0.1, 0.5, 0.9)])}
    together = [scorer(case, moving), scorer(case, {})]
    monkeypatch.setattr("ntk_deq.evaluation.margins.batches_steps", lambda body: False)
    for found, alone in zip(together, [scorer(case, moving), scorer(case, {})], strict=True):
        assert bool(alone.defined.all())
        assert torch.allclose(found.goals, alone.goals, rtol=1e-9, atol=1e-12)
