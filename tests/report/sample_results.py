# ruff: noqa: E501 (long made-up formulas)
"""Made-up results of every kind, hostile text included, that the report tests share."""

from __future__ import annotations

import math
import random

from ntk_deq.claims.claim import Verdict
from ntk_deq.claims.statement import StatementLine
from ntk_deq.errors import Position, Problem
from ntk_deq.language.types import Margin
from ntk_deq.verify.results import ClaimResult, ConclusionRecord, Evidence, HypothesisRecord, RunInfo, Witness

HOSTILE = '<script>alert("x")</script>\'"&--></textarea>{{ 7*7 }}{% raw %}[bold]\x1b[31m\x00\u202e'

SOURCE = {
    "title": "Gradient Descent Optimizes Infinite-Depth ReLU Implicit Networks with Linear Widths",
    "authors": ["Tianxiang Gao", "Hongyang Gao"],
    "url": "https://arxiv.org/abs/2205.07463",
}

INFO = RunInfo(
    suite="paper_claims.yaml",
    title="Implicit ReLU networks",
    command="verify-claims paper_claims.yaml --seed 7 --out results",
    started="2025-01-31T09:30:00+00:00",
    seconds=83.4,
    seed=7,
    versions={"ntk_deq": "0.1.0", "python": "3.11.2", "torch": "2.13.0+cpu", "numpy": "2.3.1"},
    device="cpu",
    dtype="float64",
)


def _mi(name: str) -> str:
    return f"<mi>{name}</mi>"


_SUB0 = "<msub><mi>γ</mi><mn>0</mn></msub>"
_SIGMA = "<msub><mi>σ</mi><mi>min</mi></msub><mrow><mo>(</mo><mi>Z</mi><mo>)</mo></mrow>"
_FRACTION = (
    f"<math><mrow>{_SIGMA}<mo>≥</mo><mfrac><mrow><msub><mi>σ</mi><mi>min</mi></msub><mrow><mo>(</mo><mi>Φ</mi><mo>)</mo></mrow></mrow>"
    f"<mrow><mn>1</mn><mo>+</mo>{_SUB0}</mrow></mfrac></mrow></math>"
)

STATEMENT = (
    StatementLine("given", "C1", "positive", "", ""),
    StatementLine(
        "let",
        "gamma0",
        "gamma * norm(A)",
        "<math display='block'><mrow><mi>γ</mi><msub><mrow><mo>‖</mo><mi>A</mi><mo>‖</mo></mrow><mn>2</mn></msub></mrow></math>",
        r"\gamma_0 = \gamma \lVert A \rVert_2",
    ),
    StatementLine(
        "assume",
        "well-posed",
        "gamma0 < 1",
        f"<math><mrow>{_SUB0}<mo>&lt;</mo><mn>1</mn></mrow></math>",
        r"\gamma_0 < 1",
    ),
    StatementLine(
        "assume",
        "nonnegative A",
        "min(A) >= 0",
        "<math><mrow><munder><mi>min</mi><mrow><mi>i</mi><mo>,</mo><mi>j</mi></mrow></munder><msub><mi>A</mi><mrow><mi>i</mi><mi>j</mi></mrow></msub><mo>≥</mo><mn>0</mn></mrow></math>",
        r"\min_{i,j} A_{ij} \ge 0",
    ),
    StatementLine(
        "conclude",
        "closed form",
        "Z == Phi * inv(I(m) - gamma*A)",
        "<math><mrow><mi>Z</mi><mo>=</mo><mi>Φ</mi><msup><mrow><mo>(</mo><mi>I</mi><mo>−</mo><mi>γ</mi><mi>A</mi><mo>)</mo></mrow><mrow><mo>−</mo><mn>1</mn></mrow></msup></mrow></math>",
        r"Z = \Phi (I - \gamma A)^{-1}",
    ),
    StatementLine(
        "conclude",
        "(i)",
        "sigma_min(Z) >= sigma_min(Phi)/(1 + gamma0)",
        _FRACTION,
        r"\sigma_{\min}(Z) \ge \frac{\sigma_{\min}(\Phi)}{1 + \gamma_0}",
    ),
)


def _margins(
    count: int, *, seed: int, low: float, high: float, tight: int = 0
) -> tuple[tuple[float, float, float], ...]:
    draw = random.Random(seed)
    out = []
    for _ in range(count):
        scale = 10 ** draw.uniform(-2, 2)
        value = scale * 10 ** draw.triangular(low, high)
        out.append((value - 1e-16 * scale, value + 1e-16 * scale, scale))
    out += [(-(10 ** draw.uniform(-16, -14)), 10 ** draw.uniform(-16, -14), 1.0) for _ in range(tight)]
    return tuple(out)


def _base(claim: str, title: str, verdict: Verdict, **more: object) -> ClaimResult:
    fields: dict[str, object] = {
        "id": claim,
        "title": title,
        "where": "Lemma 5.1",
        "verdict": verdict,
        "evidence": Evidence.NUMERIC,
        "expected": Verdict.HOLDS,
        "instances": 240,
        "met": 187,
        "tight": 0,
        "unsure": 0,
        "worst_margin": None,
        "seed": 7,
        "seconds": 1.25,
        "reason": "",
        "source": SOURCE,
        "position": f"checks/implicit_relu.yaml:{20 + len(claim)}:5",
        "settings": (
            {
                "name": "any",
                "universal": True,
                "instances": 200,
                "met": 150,
                "sizes": {"N": [1, 6], "d": [1, 6], "m": [1, 6]},
            },
            {"name": "mnist", "universal": False, "instances": 40, "met": 37, "sizes": {"N": [8, 8], "d": [784, 784]}},
        ),
    }
    fields.update(more)
    return ClaimResult(**fields)  # type: ignore[arg-type]


def holds() -> ClaimResult:
    inequality = _margins(170, seed=1, low=-4, high=-0.1, tight=17)
    return _base(
        "R.L5.1",
        "Closed form of the equilibrium for nonnegative A, and its smallest singular value",
        Verdict.HOLDS,
        tight=17,
        worst_margin=Margin(-3e-15, 2e-15),
        tags=("lemma", "singular-values"),
        statement=STATEMENT,
        hypotheses=(
            HypothesisRecord("well-posed", "gamma0 < 1", 219, 21, 0, Margin(-0.0031, -0.0031)),
            HypothesisRecord("nonnegative A", "min(A) >= 0", 187, 50, 3, Margin(-1e-3, -1e-3)),
        ),
        conclusions=(
            ConclusionRecord(
                "closed form",
                "Z == Phi * inv(I(m) - gamma*A)",
                Margin(-2e-14, 2e-14),
                _margins(0, seed=3, low=-1, high=0, tight=187),
                0,
                0,
                187,
                0,
            ),
            ConclusionRecord(
                "(i)", "sigma_min(Z) >= sigma_min(Phi)/(1 + gamma0)", Margin(-3e-15, 2e-15), inequality, 170, 0, 17, 0
            ),
        ),
        tightest=Witness(
            "any",
            "A = 0",
            {"N": 2, "d": 2, "m": 2},
            {
                "W": [[0.5, -1.0], [1 / 3, 0.25]],
                "A": [[0.0, 0.0], [0.0, 0.0]],
                "X": [[1.0, 0.0], [0.0, 1.0]],
                "b": [1.0, -2.0],
                "gamma": 0.5,
            },
            "(i)",
            "0.25",
            "0.25 +/- 3e-15",
            ">=",
            Margin(-3e-15, 2e-15),
            index=11,
        ),
    )


def refuted_expected() -> ClaimResult:
    return _base(
        "R.L5.1.m1",
        "Mutant: 1 - gamma0 in place of 1 + gamma0",
        Verdict.REFUTED,
        expected=Verdict.REFUTED,
        mutates="R.L5.1",
        worst_margin=Margin(-0.5, -0.5),
        tags=("mutant",),
        met=12,
        instances=12,
        seconds=0.041,
        reason="(i) breaks for A = -identity: 0.5 >= 1 is false.",
        conclusions=(
            ConclusionRecord(
                "(i)",
                "sigma_min(Z) >= sigma_min(Phi)/(1 - gamma0)",
                Margin(-0.5, -0.5),
                ((0.2, 0.2, 1.0), (1e-3, 1e-3, 2.0), (-0.5, -0.5, 1.0), (-1e-6, -1e-6, 1.0)),
                2,
                2,
                0,
                0,
            ),
        ),
        counterexample=Witness(
            "any",
            "A = -identity",
            {"N": 1, "d": 1, "m": 1},
            {"A": [[-1.0]], "W": [[1.0]], "X": [[1.0]], "gamma": 0.5},
            "(i)",
            "0.5",
            "1",
            ">=",
            Margin(-0.5, -0.5),
            index=3,
            scale=2.0,
        ),
    )


def refuted_unexpected() -> ClaimResult:
    margins = (*_margins(60, seed=5, low=-3, high=0), (-0.03125, -0.03125, 0.75), (-2e-4, -1.9e-4, 1.0))
    return _base(
        "R.S4M",
        "Lower bound on the smallest singular value of M",
        Verdict.REFUTED,
        where="display after Lemma 4.1, first line",
        worst_margin=Margin(-0.03125 - 1e-17, -0.03125 + 1e-17),
        met=62,
        reason="bound breaks at A = skew, m = 2: the right side exceeds the left by 0.03125.",
        note="The printed display omits the minimum over the diagonal of D.",
        tags=("lemma",),
        statement=STATEMENT[:3],
        hypotheses=(HypothesisRecord("well-posed", "gamma0 < 1", 62, 178, 0, Margin(-1e-5, -1e-5)),),
        conclusions=(
            ConclusionRecord(
                "bound",
                "sigma_min(Mt) >= gamma/(1 - gamma0) * norm(b)",
                Margin(-0.03125, -0.03125),
                margins,
                60,
                2,
                0,
                0,
            ),
        ),
        counterexample=Witness(
            "any",
            "A = skew, b = alternating",
            {"N": 3, "d": 1, "m": 2},
            {
                "A": [[0.0, -0.7071067811865476], [0.7071067811865476, 0.0]],
                "X": [[1.0], [-1e-17], [12345.678901]],
                "b": [1.0, -1.0],
                "D": None,
                "gamma": 0.30000000000000004,
                "k": 3,
            },
            "bound",
            "0.71875 +/- 1e-17",
            "0.75",
            ">=",
            Margin(-0.03125 - 1e-17, -0.03125 + 1e-17),
            step={"k": 3},
            index=41,
        ),
    )


def vacuous() -> ClaimResult:
    return _base(
        "R.T4.4", "Gradient descent converges linearly", Verdict.VACUOUS,
        where="Theorem 4.4", met=0, reason="(18) failed on every instance, at the nearest by 812.5.",
        hypotheses=(
            HypothesisRecord("(17)", "alpha0^2 >= 8/(1 - gamma0) * lam0 * fro(X) * norm(yhat[0] - y)", 12, 220, 8, Margin(-0.2, -0.2)),
            HypothesisRecord("(18)", "alpha0^3 >= kappa * 16*lam3/(1 - gamma0)^2", 0, 240, 0, Margin(-812.5, -812.5)),
        ),
        nearest=Witness("any", "W = orthogonal", {"N": 2, "m": 4}, {"W": [[1.0, 0.0], [0.0, 1.0]], "C1": 1.0}, "(18)", "0.125", "812.625", ">=", Margin(-812.5, -812.5), index=99),
    )  # fmt: skip


def undecided() -> ClaimResult:
    return _base(
        "R.L3.2", "Eigenvalue bound on I - gamma D (A' kron I), strict as printed", Verdict.UNDECIDED,
        worst_margin=Margin(-math.inf, math.inf), unsure=3,
        reason="the margin's ball contains zero on 3 instances, and the comparison is strict.",
        conclusions=(
            ConclusionRecord("(6)", "lambda_min(Q) > 1 - gamma0", Margin(-math.inf, math.inf), (*_margins(80, seed=9, low=-6, high=-1), (-0.01, 0.02, 1.0), (-1e-4, 1e-3, 1.0), (-math.inf, math.inf, 1.0)), 80, 0, 0, 3),
        ),
        undecided=Witness("any", "A = gaussian", {"N": 2, "m": 1}, {"A": [[0.75]], "gamma": 0.5}, "(6)", "0.625 ± 2e-17", "0.625", ">", Margin(-2e-17, 2e-17), index=7, hypotheses=(("well-posed", "0.375 < 1"),)),
    )  # fmt: skip


def error() -> ClaimResult:
    return _base(
        "R.L4.1", "The tangent kernel as printed", Verdict.ERROR,
        evidence=Evidence.NONE, met=0, instances=3, reason="ZeroDivisionError: division by zero",
        trace='Traceback (most recent call last):\n  File "judge.py", line 12, in judge\n    1 / 0\nZeroDivisionError: division by zero\n',
    )  # fmt: skip


def ill_formed() -> ClaimResult:
    text = "norm(W) <= sigma_mim(Z) * X"
    return _base(
        "R.BAD", "A misspelt name", Verdict.ILL_FORMED,
        evidence=Evidence.NONE, met=0, instances=0, seconds=0.0, settings=(), position="checks/bad.yaml:14:9",
        reason="unknown function `sigma_mim`",
        problems=(
            Problem(Position("checks/bad.yaml", 14, 26), "unknown function `sigma_mim`", "R.BAD", text, (11, 20), "did you mean `sigma_min`?"),
        ),
    )  # fmt: skip


def hostile() -> ClaimResult:
    line = StatementLine("conclude", HOSTILE, HOSTILE, "<math><mi>x</mi><script>alert(1)</script></math>", HOSTILE)
    return _base(
        HOSTILE, HOSTILE, Verdict.PROVED,
        where=HOSTILE, reason=HOSTILE, note=HOSTILE, tags=(HOSTILE,), position=HOSTILE, mutates=HOSTILE, evidence=Evidence.SYMBOLIC,
        worst_margin=Margin(math.inf, math.inf),
        source={"title": HOSTILE, "authors": [HOSTILE], "url": "javascript:alert(1)"},
        statement=(line,),
        settings=({"name": HOSTILE, "universal": True, "instances": 1, "met": 1, "sizes": {HOSTILE: [1, 2]}},),
        hypotheses=(HypothesisRecord(HOSTILE, HOSTILE, 1, 0, 0),),
        conclusions=(ConclusionRecord(HOSTILE, HOSTILE, Margin(1.0, 1.0), ((1.0, 1.0, 1.0),), 1, 0, 0, 0),),
        tightest=Witness(HOSTILE, HOSTILE, {HOSTILE: 1}, {HOSTILE: [[math.nan, math.inf]], "s" + HOSTILE: 1.0}, HOSTILE, HOSTILE, HOSTILE, "<=", Margin(1.0, 1.0)),
    )  # fmt: skip


def all_results() -> list[ClaimResult]:
    """Return one result of each kind, in the order of a file."""
    return [
        holds(), refuted_expected(), refuted_unexpected(), vacuous(), undecided(), error(), ill_formed(), hostile(),
    ]  # fmt: skip
