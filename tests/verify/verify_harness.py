"""Short ways from a text to what the verifier makes of it: a value, a truth, a verdict."""

from fractions import Fraction
from pathlib import Path

import torch
from flint import arb, fmpq

from ntk_deq import certified as ct
from ntk_deq.certified.scalar import exact, lower, with_radius
from ntk_deq.claims.claim import Claim, IllFormed
from ntk_deq.claims.load import load_suite
from ntk_deq.errors import Position
from ntk_deq.evaluation.balls import evaluate, evaluate_truth
from ntk_deq.evaluation.derivatives.derivative import PROVIDERS
from ntk_deq.evaluation.environment import Environment, Notes
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar
from ntk_deq.language.declaration import model_signature
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import Formula
from ntk_deq.verify.results import ClaimResult
from ntk_deq.verify.runner import Options, judge_claims

# Matrices of a few entries: threads that wait for each other cost more than they bring.
torch.set_num_threads(1)

Number = float | Fraction


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def environment(
    variables: dict[str, torch.Tensor | float] | None = None,
    *,
    sizes: dict[str, int] | None = None,
    lets: dict[str, str] | None = None,
    model: str | None = None,
    steps: int = 0,
    radius: dict[str, float] | None = None,
) -> Environment:
    """Return an environment with exact variables, or with balls around those that `radius` names."""
    radius = radius or {}
    values: dict[str, Scalar | Matrix] = {}
    for name, value in (variables or {}).items():
        if isinstance(value, torch.Tensor):
            values[name] = Matrix(ct.ball(value, radius.get(name, 0.0)), float(torch.linalg.vector_norm(value)))
        else:
            values[name] = Scalar(with_radius(exact(value), radius.get(name, 0.0)), abs(value))
    definitions = {
        name: Formula(name, text, parse(text), Position("test", 1, 1)) for name, text in (lets or {}).items()
    }
    signature = model_signature(model) if model is not None else None
    return Environment(signature, sizes or {}, values, definitions, Notes(), PROVIDERS, last_step=steps)


def value_of(text: str, env: Environment | None = None) -> Scalar | Matrix:
    value = evaluate(parse(text), env or environment())
    assert not isinstance(value, Outcome)
    return value


def number_of(text: str, env: Environment | None = None) -> arb:
    value = value_of(text, env)
    return value.ball if isinstance(value, Scalar) else ct.as_scalar(value.ball)


def truth_of(text: str, env: Environment | None = None) -> Outcome:
    return evaluate_truth(parse(text), env or environment())


def rational(value: Number) -> fmpq:
    exact_value = Fraction(value)
    return fmpq(exact_value.numerator, exact_value.denominator)


def holds_number(ball: arb, value: Number) -> bool:
    """Whether a finite ball contains a rational number."""
    return ball.is_finite() and bool(ball.contains(rational(value)))


def distance(value: Scalar | Matrix, truth: torch.Tensor) -> float:
    """How far, at least, a tensor lies outside of a ball; 0 where the ball contains it or knows nothing."""
    truth = truth.double()
    if isinstance(value, Scalar):
        if not value.ball.is_finite():
            return 0.0
        return max(0.0, lower(abs(value.ball - exact(float(truth)))))
    if not value.ball.is_finite:
        return 0.0
    shaped = truth.reshape(value.ball.shape) if truth.ndim < 2 else truth
    assert value.ball.shape == tuple(shaped.shape)
    return max(0.0, lower(ct.frobenius(ct.subtract(value.ball, ct.ball(shaped.contiguous())))))


def informed(value: Scalar | Matrix) -> bool:
    """Whether a ball says anything."""
    return value.ball.is_finite() if isinstance(value, Scalar) else value.ball.is_finite


def write_suite(folder: Path, claims: str, settings: str = "", *, name: str = "suite.yaml") -> Path:
    path = folder / name
    head = f"suite: test\nsettings:\n{settings}\n" if settings else "suite: test\n"
    path.write_text(f"{head}claims:\n{claims}\n", encoding="utf-8")
    return path


def load(folder: Path, claims: str, settings: str = "") -> tuple[Claim | IllFormed, ...]:
    return load_suite(write_suite(folder, claims, settings)).claims


def judge_all(folder: Path, claims: str, settings: str = "", **options: object) -> dict[str, ClaimResult]:
    """Judge the claims of a file, given as YAML list entries, with few instances and, unless asked for, no search."""
    chosen = Options(**{"instances": 30, "search": 0, **options})  # type: ignore[arg-type]
    return {result.id: result for result in judge_claims(load(folder, claims, settings), chosen)}
