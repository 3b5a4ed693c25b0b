"""Rates of convergence: measured on a record of losses by a robust fit, and at one point from the tangent kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.dynamics.field import GradientField
from ntk_deq.dynamics.settings import checked_problem
from ntk_deq.errors import ArgumentError, is_number
from ntk_deq.quantities.kernel import ntk_gram
from ntk_deq.systems.declared_model import WholeModel
from ntk_deq.systems.model import EquilibriumModel, output_loss
from ntk_deq.systems.solve import predict

# Two-sided 95 % point of the normal distribution.
_NORMAL_95 = 1.959963984540054
# With fewer points, even the range of all pairwise slopes covers less than 95 % (2/4! of the orders lie outside).
_FEWEST_POINTS = 5
# 512 points have 130,816 pairs: a sort of a few milliseconds, and a median long past any gain from more.
_MOST_POINTS = 512
# A loss is half a square of residuals, whose rounding is of the order eps; a hundredfold of that, squared, is noise.
_NOISE = (100 * torch.finfo(torch.float64).eps) ** 2


@dataclass(frozen=True)
class RateFit:
    """A straight line through log(loss).

    Attributes:
        rate: Minus the slope, per unit of `at` (per step, or per unit of time); log is the natural one.
        low: Lower end of the 95 % interval of the rate.
        high: Its upper end.
        window: First and last place whose points entered.
        residual: Largest distance of log(loss) from the line, over the points that entered. Of the order one or more:
            the loss does not fall exponentially over this window, and the rate is a mean.
        points: How many points entered.
    """

    rate: float
    low: float
    high: float
    window: tuple[float, float]
    residual: float
    points: int


def measured_rate(
    at: Float[Tensor, " T"],
    loss: Float[Tensor, " T"],
    *,
    start: float | None = None,
    stop: float | None = None,
    tail: float = 1.0,
    floor: float | None = None,
) -> RateFit:
    """Fit loss = c exp(-rate * at) robustly: the median of the slopes of log(loss) between all pairs of points.

        rate = - median over i < j of  (log loss_j - log loss_i) / (at_j - at_i)

    The interval lies between two order statistics of the same slopes, placed by the variance of Kendall's statistic. It
    counts the distances from the line as independent errors. A record of training has hardly any; where its line is
    bent, the interval says how far the slopes between its points scatter, and `residual` how far the line is off.

    Of more than 512 points every k-th is taken. All points weigh the same, so that a record with points spaced evenly
    in log(at) weighs the beginning more; `start` or `tail` asks for the end alone.

    Symbols:
        T: number of points.

    Args:
        at: Steps or times, increasing.
        loss: Losses there, >= 0.
        start: First place to take; None: the first there is.
        stop: Last place to take; None: the last there is.
        tail: Part of the window's length to keep, counted from its end, 0 < tail <= 1.
        floor: The points from the first loss at or below this on are left out, >= 0. None: rounding noise, which is
            taken to begin at 5e-28 times the first loss.

    Returns:
        Rate, interval, window, residual and number of points.

    Raises:
        ArgumentError: An argument outside what is allowed, or fewer than five points in the window.

    References:
        Theil (1950); Sen (1968), Estimates of the regression coefficient based on Kendall's tau.

    Example:
        >>> at = torch.arange(20.0, dtype=torch.float64)
        >>> fit = measured_rate(at, 3 * torch.exp(-0.25 * at))
        >>> round(fit.rate, 10), round(fit.high - fit.low, 10), fit.points
        (0.25, 0.0, 20)
    """
    for name, value in (("at", at), ("loss", loss)):
        if not isinstance(value, Tensor):
            raise ArgumentError(f"`{name}` of measured_rate must be a tensor. Got {type(value).__name__}.")
    at, loss = at.detach().cpu().double(), loss.detach().cpu().double()
    _check_record(at, loss, tail, floor)
    first, last = _end("start", start), _end("stop", stop)
    place, height = _chosen_points(at, loss, first, last, tail, floor)
    if len(place) < _FEWEST_POINTS:
        raise ArgumentError(
            f"The window of measured_rate must hold at least {_FEWEST_POINTS} losses above the floor. Got {len(place)}."
        )
    slopes = _pairwise_slopes(place, height)
    low, high = _sen_interval(slopes, len(place))
    slope = float(slopes.median()) if len(slopes) % 2 else float(slopes[len(slopes) // 2 - 1 :][:2].mean())
    rest = height - slope * place
    return RateFit(
        rate=-slope,
        low=-high,
        high=-low,
        window=(float(place[0]), float(place[-1])),
        residual=float((rest - rest.median()).abs().max()),
        points=len(place),
    )


def instantaneous_rate(
    model: EquilibriumModel,
    X: Float[Tensor, "N d"],
    y: Float[Tensor, " N"],
    parameters: Mapping[str, Tensor] | None = None,
    *,
    step: float | None = None,
    rtol: float | None = None,
) -> float:
    """Return how fast the loss falls at one point, from the tangent kernel.

        gradient flow, per unit of time:    -d log L/dt = g'H g / L,  which is 2 r'H r / r'r for L = norm(r)^2/2
        gradient descent, per step:         -log( L(yhat - step H g) / L(yhat) )

    The first is exact wherever the predictions can be differentiated. The second is the decrease of a step to first
    order in the parameters (the kernel is held fixed); for a small step it is 2 * step * r'H r / r'r.

    Symbols:
        r = yhat - y; g = dL/dyhat, r itself for L = norm(r)^2/2; H: the Gram matrix of the predictions' gradients, (11)
        of the reference.

    Args:
        model: The model.
        X: Inputs.
        y: Targets.
        parameters: Values to use in place of the model's own, by name.
        step: Step of gradient descent, > 0; None: gradient flow.
        rtol: Tolerance of the equilibria and adjoints; None: the solvers' default.

    Returns:
        The rate; NaN where the loss is zero or negative, infinite where the step takes it to zero.

    Raises:
        ArgumentError: A step that is not positive, or an unknown parameter.
        EquilibriumError: An equilibrium was not found.

    References:
        Gao and Gao (2022), (10).

    Example:
        >>> from ntk_deq.systems import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> model = LinearImplicit(W=one / 2, U=one, b=one[0])  # H = 24
        >>> round(instantaneous_rate(model, one, 0 * one[0]), 9)
        48.0
        >>> round(instantaneous_rate(model, one, 0 * one[0], step=1 / 48), 9)  # log 4
        1.386294361
    """
    X, y = checked_problem(model, X, y, "instantaneous_rate")
    if step is not None and not (is_number(step) and 0 < step < math.inf):
        raise ArgumentError(f"`step` of instantaneous_rate must be a number > 0. Got {step!r}.")
    known = model.parameters()
    unknown = [name for name in parameters or () if name not in known]
    if unknown:
        raise ArgumentError(
            f"`parameters` of instantaneous_rate must be among {', '.join(known)}. Got {', '.join(unknown)}."
        )
    present = model if parameters is None else model.with_parameters(parameters)
    declared = output_loss(present, X, y)
    if declared.beside or isinstance(present, WholeModel):
        return _rate_of_loss(present, X, y, step)
    with torch.no_grad():
        targets, loss = present.target_rows(y), y.new_zeros(())
        residual = present.target_rows(predict(present, X, rtol=rtol)) - targets
        slope = declared.pull(residual, loss)
        image = _moved(ntk_gram(present, X, rtol=rtol).matrix, slope)
        if declared.multiple is None:
            if not loss > 0:
                return math.nan
            if step is None:
                return float((slope * image).sum() / loss)
            return -float((declared.value(residual + targets - step * image) / loss).log())
        square = residual.square().sum()
        if step is None:
            return float(2 * (residual * image).sum() / square)
        return -float(((residual - step * image).square().sum() / square).log())


def _moved(kernel: Tensor, slope: Float[Tensor, N * k]) -> Float[Tensor, N * k]:
    """Return the kernel times a slope; with several outputs, in the order of its rows."""
    if slope.ndim == 1:
        return kernel @ slope
    return (kernel @ slope.mT.reshape(-1)).reshape(slope.mT.shape).mT


def _rate_of_loss(model: EquilibriumModel, X: Tensor, y: Tensor, step: float | None) -> float:
    """Return the rate of a loss that reads more than predictions: norm(grad L)^2/L along the flow."""
    point = GradientField(model, X, y).at(model.parameters(), 0.0)
    if not point.loss_value > 0:
        return math.nan
    if step is None:
        return math.hypot(*(float(value.norm()) for value in point.gradients.values())) ** 2 / point.loss_value
    there = {name: value - step * point.gradients[name] for name, value in model.parameters().items()}
    after = GradientField(model, X, y).at(there, 0.0).loss_value
    return -math.log(after / point.loss_value) if after > 0 else math.inf


def _check_record(at: Tensor, loss: Tensor, tail: float, floor: float | None) -> None:
    if at.ndim != 1 or at.shape != loss.shape:
        raise ArgumentError(
            f"`at` and `loss` of measured_rate must be vectors of one length. "
            f"Got the shapes {tuple(at.shape)} and {tuple(loss.shape)}."
        )
    if not bool((at[1:] > at[:-1]).all()) or not bool(torch.isfinite(at).all()):
        raise ArgumentError("`at` of measured_rate must be finite and increasing. Got a place that is not.")
    if not bool(((loss >= 0) & torch.isfinite(loss)).all()):
        raise ArgumentError("`loss` of measured_rate must be finite and >= 0. Got an entry that is not.")
    if not (isinstance(tail, Real) and 0 < tail <= 1):
        raise ArgumentError(f"`tail` of measured_rate must be a number with 0 < tail <= 1. Got {tail!r}.")
    if floor is not None and not (isinstance(floor, Real) and 0 <= floor < math.inf):
        raise ArgumentError(f"`floor` of measured_rate must be a number >= 0. Got {floor!r}.")


def _end(name: str, end: object) -> float | None:
    """Return an end of the window, as somebody may read it off the record."""
    if end is not None and not (isinstance(end, Real) or (isinstance(end, Tensor) and end.numel() == 1)):
        raise ArgumentError(f"`{name}` of measured_rate must be a number or None. Got {end!r:.60}.")
    return None if end is None else float(end)


def _chosen_points(
    at: Tensor, loss: Tensor, start: float | None, stop: float | None, tail: float, floor: float | None
) -> tuple[Tensor, Tensor]:
    """Return the places that enter and log(loss) there: above the floor, within the window, at most 512."""
    noise = floor if floor is not None else (_NOISE * float(loss[0]) if len(loss) else 0.0)
    above = torch.cumprod((loss > noise).long(), dim=0).bool()
    at, loss = at[above], loss[above]
    first = float(at[0]) if start is None and len(at) else (start or 0.0)
    last = float(at[-1]) if stop is None and len(at) else (stop or 0.0)
    begin = first if tail == 1 else last - tail * (last - first)
    chosen = (at >= begin) & (at <= last)
    at, loss = at[chosen], loss[chosen]
    every = -(-len(at) // _MOST_POINTS) or 1
    # Counted from the end, whose point is always kept.
    return at.flip(0)[::every].flip(0), loss.flip(0)[::every].flip(0).log()


def _pairwise_slopes(place: Tensor, height: Tensor) -> Tensor:
    """Return the slopes between all pairs of points, sorted."""
    first, second = torch.triu_indices(len(place), len(place), offset=1)
    return ((height[second] - height[first]) / (place[second] - place[first])).sort().values


def _sen_interval(slopes: Tensor, points: int) -> tuple[float, float]:
    """Return the order statistics that enclose the slope with a confidence of 95 %, rounded outwards."""
    pairs = len(slopes)
    spread = _NORMAL_95 * math.sqrt(points * (points - 1) * (2 * points + 5) / 18)
    lower = max(0, math.floor((pairs - spread) / 2) - 1)
    upper = min(pairs - 1, math.ceil((pairs + spread) / 2))
    return float(slopes[lower]), float(slopes[upper])
