"""Proximal maps, Moreau envelopes and conjugates from Python, of formulas and of functions of tensors.

A formula is certified as in claims. A function of tensors is minimised in floats; where the caller says that it is
convex, the gradient found bounds the distance to the minimiser, in floats, by mu times its length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import torch
from flint import arb
from torch import Tensor

from ntk_deq.certified import ball
from ntk_deq.certified import scalar as sc
from ntk_deq.errors import ArgumentError, ExpressionError, check_instance, is_number
from ntk_deq.evaluation.convex.operators import extreme
from ntk_deq.evaluation.convex.tensors import descend
from ntk_deq.evaluation.derivatives.derivative import PROVIDERS
from ntk_deq.evaluation.environment import Environment, Notes, OutsideClaimError
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import BOUND, Expr, Kind, Span
from ntk_deq.language.types import SCALAR, Type, matrix
from ntk_deq.language.typing import expect_scalar, infer

Phi = str | Callable[[Tensor], Tensor]
"""A function: a formula in the claim language, or a function that takes a tensor to a number."""


class Proof(StrEnum):
    """What is known of a result."""

    CERTIFIED = "certified: the error is a proven bound"
    CONVEX = "bounded in floats, by the caller's word that the function is convex"
    ESTIMATED = "found in floats, with no bound: another point may be better; say `convex=True` if the function is"
    INFINITE = "infinite for certain: the function falls for ever"
    NONE = "there is no value for certain"
    UNKNOWN = "not known; `reason` says why"


@dataclass(frozen=True)
class Extreme:
    """A minimum, or where it is.

    Attributes:
        value: The number, or the point in the shape of what was given.
        error: Bound of the distance to the truth, Frobenius for a point; inf where there is none.
        status: What that bound rests on.
        reason: Why nothing is proven; empty where it is.
    """

    value: Tensor
    error: float
    status: Proof
    reason: str = ""


def prox(
    phi: Phi, x: Tensor, mu: float = 1.0, *, values: Mapping[str, Tensor] | None = None, convex: bool = False
) -> Extreme:
    """Return the proximal map, the u at which phi(u) + |u - x|^2/(2 mu) is least.

    Args:
        phi: A formula in u, such as `"sum(abs(u))"`, or a function that takes a tensor of the shape of x to a number.
        x: A number (0-d), a vector or a matrix, float64.
        mu: > 0.
        values: What other names of the formula mean.
        convex: Whether a function of tensors is convex; of formulas that is found out.

    Raises:
        ArgumentError: mu is not positive, x is not float64, or the formula is wrong.

    References:
        Moreau, Bulletin de la SMF 93, 1965.

    Example:
        >>> found = prox("sum(abs(u))", torch.tensor([3.0, 0.25], dtype=torch.float64))
        >>> found.value.tolist(), found.error < 1e-15, found.status.name
        ([2.0, 0.0], True, 'CERTIFIED')
    """
    return _result("prox", phi, x, mu, values, convex)


def moreau_envelope(
    phi: Phi, x: Tensor, mu: float = 1.0, *, values: Mapping[str, Tensor] | None = None, convex: bool = False
) -> Extreme:
    """Return the Moreau envelope, the least value of phi(u) + |u - x|^2/(2 mu).

    Args:
        phi: A formula in u, or a function of tensors, as in `prox`.
        x: A number, a vector or a matrix, float64.
        mu: > 0.
        values: What other names of the formula mean.
        convex: Whether a function of tensors is convex.

    Raises:
        ArgumentError: As in `prox`.

    Example:
        >>> float(moreau_envelope("abs(u)", torch.tensor(3.0, dtype=torch.float64)).value)
        2.5
    """
    return _result("moreau", phi, x, mu, values, convex)


def conjugate(phi: Phi, y: Tensor, *, values: Mapping[str, Tensor] | None = None, convex: bool = False) -> Extreme:
    """Return the convex conjugate, the largest value of <u, y> - phi(u).

    Args:
        phi: A formula in u, or a function of tensors, as in `prox`.
        y: A number, a vector or a matrix, float64.
        values: What other names of the formula mean.
        convex: Whether a function of tensors is convex.

    Raises:
        ArgumentError: y is not float64, or the formula is wrong.

    Example:
        >>> y = torch.tensor(3.0, dtype=torch.float64)
        >>> float(conjugate("u^2/2", y).value), conjugate("abs(u)", y).status.name
        (4.5, 'INFINITE')
    """
    return _result("conjugate", phi, y, None, values, convex)


def _result(
    name: str, phi: Phi, x: Tensor, mu: float | None, values: Mapping[str, Tensor] | None, convex: bool
) -> Extreme:
    what = "y" if name == "conjugate" else "x"
    if values is not None:
        check_instance(values, Mapping, "values", name, "a mapping of names to tensors")
    for key, value in {what: x, **(values or {})}.items():
        _check_tensor(key, value)
    if name != "conjugate" and not (is_number(mu) and 0 < mu < math.inf):  # type: ignore[operator]
        raise ArgumentError(f"`mu` must be a number > 0. Got {mu!r}.")
    if not isinstance(phi, str):
        if not callable(phi):
            got = type(phi).__name__
            raise ArgumentError(f"`phi` must be a formula in u, or a function of a tensor. Got {got}.")
        if values:
            raise ArgumentError("`values` is for the names of a formula, and `phi` is a function.")
        return _of_tensors(name, phi, x, mu, convex)
    return _of_formula(name, phi, x, mu, values or {})


def _check_tensor(name: str, value: object) -> None:
    """Refuse what is no number, vector or matrix in float64."""
    if not isinstance(value, Tensor):
        raise ArgumentError(f"`{name}` must be a float64 tensor. Got {type(value).__name__}.")
    if value.dtype != torch.float64 or value.ndim > 2 or value.numel() == 0 or not bool(value.isfinite().all()):
        finite = "" if bool(value.isfinite().all()) else ", not all finite"
        got = f"{value.dtype} of shape {tuple(value.shape)}{finite}"
        raise ArgumentError(f"`{name}` must be a float64 number, vector or matrix. Got {got}.")


def _of_formula(name: str, text: str, x: Tensor, mu: float | None, values: Mapping[str, Tensor]) -> Extreme:
    if "u" in values:
        raise ArgumentError("`values` has a value of `u`, which is the argument of the formula.")
    given = {**values, f"x{BOUND}": x, **({} if mu is None else {f"mu{BOUND}": torch.tensor(mu, dtype=x.dtype)})}
    known = {key: _value(value) for key, value in given.items()}
    types: dict[str, Type] = {key: _type(value) for key, value in known.items()}
    try:
        body = expect_scalar(infer(parse(text), {**types, "u": types[f"x{BOUND}"]}))
    except ExpressionError as error:
        raise ArgumentError(f"`phi`: {error}") from error
    here = Span(0, 0)
    point = Expr(Kind.NAME, here, name="u", type=types[f"x{BOUND}"])
    function = Expr(Kind.FUNCTION, here, (body, point), names=("u",))
    rest = [Expr(Kind.NAME, here, name=key, type=types[key]) for key in (f"x{BOUND}", f"mu{BOUND}") if key in known]
    env = Environment(None, {}, known, {}, Notes(), PROVIDERS)
    try:
        found = extreme(Expr(Kind.CALL, here, (function, *rest), name=name), env, {})
    except OutsideClaimError as error:
        return Extreme(
            torch.full_like(x if name == "prox" else x.new_zeros(()), math.nan), math.inf, Proof.NONE, str(error)
        )
    reason = "; ".join(env.notes.unsure)
    if isinstance(found, Scalar):
        value = torch.tensor(float(found.ball.mid()), dtype=torch.float64)
        if not found.ball.is_finite():
            infinite = bool(found.ball > 0) or bool(found.ball < 0)
            return Extreme(value, 0.0 if infinite else math.inf, Proof.INFINITE if infinite else Proof.UNKNOWN, reason)
        return Extreme(value, sc.upper(abs(found.ball - arb(float(value)))), Proof.CERTIFIED)
    status = Proof.CERTIFIED if found.ball.is_finite else Proof.UNKNOWN
    return Extreme(found.ball.work.reshape(x.shape), found.ball.radius, status, reason)


def _value(value: Tensor) -> Scalar | Matrix:
    if value.ndim == 0:
        return Scalar(arb(float(value)), abs(float(value)))
    return Matrix(ball(value), float(torch.linalg.vector_norm(value)))


def _type(value: Scalar | Matrix) -> Type:
    return SCALAR if isinstance(value, Scalar) else matrix(*value.ball.shape)


def _of_tensors(name: str, phi: Callable[[Tensor], Tensor], x: Tensor, mu: float | None, convex: bool) -> Extreme:
    given = x.detach()

    def objective(points: Tensor, _: float) -> Tensor:
        point = points[0].reshape(given.shape)
        value = phi(point)
        if not isinstance(value, Tensor):
            raise ArgumentError(f"`phi` must return a tensor of one number. Got {type(value).__name__}.")
        if value.numel() != 1:
            raise ArgumentError(f"`phi` must return one number. Got shape {tuple(value.shape)}.")
        if value.dtype != x.dtype:
            raise ArgumentError(f"`phi` must return {x.dtype}, as its argument is. Got {value.dtype}.")
        near = -(point * given).sum() if mu is None else ((point - given) ** 2).sum() / (2 * mu)
        return (value.reshape(()) + near).reshape(1)

    found = descend(objective, given.reshape(1, -1))
    point = found.points.detach().requires_grad_()
    value = objective(point, 0.0)
    (slope,) = torch.autograd.grad(value.sum(), point)
    size = float(torch.linalg.vector_norm(slope))
    bounded = convex and mu is not None and math.isfinite(size)
    least = value.detach().reshape(())
    status = Proof.CONVEX if bounded else Proof.ESTIMATED if bool(found.settled[0]) else Proof.UNKNOWN
    reason = "" if bounded or status is Proof.ESTIMATED else "the descent did not settle"
    if name == "prox":
        return Extreme(found.points[0].reshape(given.shape), mu * size if bounded and mu else math.inf, status, reason)
    error = mu * size * size / 2 if bounded and mu else math.inf
    return Extreme(-least if name == "conjugate" else least, error, status, reason)
