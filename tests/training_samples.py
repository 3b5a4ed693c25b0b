"""Made-up training runs that the tests of reports and figures share: Theorem 4.4 and 4.2 in miniature."""

from __future__ import annotations

import dataclasses
import math

from ntk_deq.claims.claim import Verdict
from ntk_deq.verify.results import ClaimResult, Condition, Curve, Evidence, Rate, TrainingRecord

NORMS = "norm(W[{k}]) <= lam1 and norm(A[{k}]) <= lam2 and norm(b[{k}]) <= lam3 for all {k}"
SIGMA = "sigma_min(Z[{k}]) >= alpha0/2 for all {k}"
DESCENT_LOSS = "L[k] <= (1 - eta*alpha0^2/4)^k * L[0] for all k"
FLOW_LOSS = "L[t] <= exp(-alpha0^2/2*t)*L[0] for all t"
CONDITIONS = (
    Condition("well-posed", 0.42, 1.0, 1 / 0.42),
    Condition("(17)", 3.1, 4.02, 4.02 / 3.1),
    Condition("(18)", 0.0, 5.5, math.inf),
    Condition("(20)", 1e-3, 8.4e-3, 8.4),
)


def spread_steps(end: float, points: int = 61) -> tuple[float, ...]:
    """0, then whole steps in even ratios up to the end."""
    return (0.0, *sorted({float(round(end ** (i / (points - 1)))) for i in range(points)}))


def even_times(end: float, points: int = 61) -> tuple[float, ...]:
    return tuple(end * i / (points - 1) for i in range(points))


def _settling(at: tuple[float, ...], start: float, end: float, scale: float) -> tuple[float, ...]:
    return tuple(start + (end - start) * (1 - math.exp(-value / scale)) for value in at)


def _ball(values: tuple[float, ...], width: float) -> dict[str, tuple[float, ...]]:
    return {"low": tuple(v - width * abs(v) for v in values), "high": tuple(v + width * abs(v) for v in values)}


def training_record(
    *,
    at: tuple[float, ...] | None = None,
    method: str = "gradient-descent",
    role: str = "run",
    rate: float = 4.1e-3,
    predicted: float | None = 1.2e-3,
    width: float = 1e-9,
    index: int = 3,
    **more: object,
) -> TrainingRecord:
    """A run whose loss falls at about `rate`; `more` replaces fields of the record."""
    descent = method == "gradient-descent"
    if at is None:
        at = spread_steps(5000) if descent else even_times(5000.0)
    letter = "k" if descent else "t"
    # Faster at first, as training is: the rate settles to `rate` from above.
    loss = tuple(0.7 * math.exp(-rate * v - 0.4 * (1 - math.exp(-3 * rate * v))) for v in at)
    norms, sigma = NORMS.format(k=letter), SIGMA.format(k=letter)
    scale = 0.4 / rate
    curves = [
        Curve("(i)", norms, **_ball(_settling(at, start, end, scale), width), bound=(top,) * len(at), sense="<=")
        for start, end, top in ((1.7, 1.83, 2.2), (0.2, 0.31, 0.7), (0.9, 1.22, 1.4))
    ]
    curves.append(
        Curve("(ii)", sigma, **_ball(_settling(at, 0.9, 0.78, scale), width), bound=(0.45,) * len(at), sense=">=")
    )
    if predicted is not None:
        bound = tuple(loss[0] * math.exp(-predicted * v) for v in at)
        text = DESCENT_LOSS if descent else FLOW_LOSS
        curves.append(Curve("(iii)", text, **_ball(loss, width), bound=bound, sense="<="))
    record = TrainingRecord(
        setting="tiny",
        index=index,
        method=method,
        role=role,
        step=1e-3 if descent else None,
        constants={"C1": 0.5, "C2": 0.25, "C3": 0.5},
        status="loss-floor",
        reason="The loss reached 1e-6 of its start.",
        steps=int(at[-1]) if descent else 412,
        evaluations=int(at[-1]) + 1 if descent else 2500,
        end=at[-1],
        at=at,
        loss=loss,
        curves=tuple(curves),
        conditions=CONDITIONS,
        path_length=_settling(at, 0.0, 0.61, scale),
        displacement={name: _settling(at, 0.0, end, scale) for name, end in (("W", 0.42), ("A", 0.17), ("b", 0.36))},
        predicted=None if predicted is None else Rate(predicted, predicted, predicted),
        measured=Rate(rate, 0.97 * rate, 1.02 * rate),
        instantaneous=tuple(math.nan if i % 3 else rate * (1 + math.exp(-3 * rate * v)) for i, v in enumerate(at)),
        predicted_steps=None if predicted is None else math.log(1e6) / predicted,
        forward_iterations=18.4,
        adjoint_iterations=15.2,
        error=3.2e-11,
        certified=True,
        covered=len(at) - 1,
        intervals=len(at) - 1,
        seconds=2.7,
    )
    return dataclasses.replace(record, **more)  # type: ignore[arg-type]


def short_window() -> TrainingRecord:
    """Descent far too short for its rate: the loss is as good as flat."""
    at = spread_steps(20_000)
    record = training_record(at=at, role="window", rate=2.6e-7, predicted=3.0e-9, width=0.0)
    loss = tuple(0.7 * math.exp(-2.6e-7 * v) for v in at)
    curves = (*record.curves[:-1], dataclasses.replace(record.curves[-1], low=loss, high=loss))
    return dataclasses.replace(record, loss=loss, curves=curves, status="steps", reason="All 20000 steps were taken.")


def broken_record() -> TrainingRecord:
    """A run that breaks its bounds half way and is stopped."""
    at = spread_steps(300, 31)
    loss = tuple(0.7 * math.exp(2e-2 * v) for v in at)
    record = training_record(at=at)
    curves = list(record.curves)
    norm = tuple(1.7 + 0.004 * v for v in at)
    curves[0] = dataclasses.replace(curves[0], low=norm, high=norm)
    curves[-1] = dataclasses.replace(curves[-1], low=tuple(0.8 * v for v in loss), high=tuple(1.25 * v for v in loss))
    return dataclasses.replace(
        record,
        loss=loss,
        curves=tuple(curves),
        status="well-posedness-lost",
        measured=None,
        covered=12,
        instantaneous=(),
    )


def training_result(*records: TrainingRecord, **more: object) -> ClaimResult:
    """A claim that holds and rests on the given runs."""
    fields: dict[str, object] = {
        "id": "R.T4.4",
        "title": "Gradient descent converges linearly",
        "where": "Theorem 4.4",
        "verdict": Verdict.HOLDS,
        "evidence": Evidence.CERTIFIED,
        "expected": Verdict.HOLDS,
        "instances": 8,
        "met": 8,
        "tight": 0,
        "unsure": 0,
        "worst_margin": None,
        "seed": 7,
        "seconds": 21.4,
        "reason": "",
        "tags": ("theorem", "training"),
        "runs": records,
    }
    return ClaimResult(**(fields | more))  # type: ignore[arg-type]
