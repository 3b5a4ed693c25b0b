"""Starts for a fixed-point solve: cheap plain steps, and along a run where the last states say the next one lies.

A start decides nothing. The driver judges every sample from there, so that a poor start costs steps and no more. Plain
steps look at the residual seldom, in single precision first. A fixed point along a run comes with how near it is;
norms of large tensors are written where they are wanted. Of a solved state, which entries near a kink at zero are fed,
and which are zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ntk_deq.files.archives import stored_count, stored_number, stored_tensor

# Weights larger than this in sum would lift the solver's tolerance into digits that a plain warm start has right.
_LARGEST_WEIGHTS = 64.0
# The best degree changes slowly along a run, and finding it out costs some passes over the states.
_ASSESS_EVERY = 16
# Products of so large moments are floats still.
_FARTHEST = 1e40


def extrapolation_weights(at: float, moments: Sequence[float]) -> list[float]:
    """Return the weights w with sum w_i f(t_i) = f(at) for every polynomial f of degree below the number of moments.

        w_i = prod_{j != i} (at - t_j)/(t_i - t_j)

    Args:
        at: Where the value is wanted.
        moments: t_i, distinct.

    References:
        Lagrange's interpolation formula.

    Example:
        >>> extrapolation_weights(3.0, [2.0, 1.0, 0.0])
        [3.0, -3.0, 1.0]
    """
    weights = []
    for i, own in enumerate(moments):
        weight = 1.0
        for j, other in enumerate(moments):
            if j != i:
                weight *= (at - other) / (own - other)
        weights.append(weight)
    return weights


class StateHistory:
    """The last few states of one kind with the moments they belong to, newest first.

    The next state is predicted by a polynomial in the moment through the newest ones. Its degree is the one that would
    have predicted the last state best, looked at every 16th time: a smooth run takes a high one, while along a rough
    one the plain warm start (degree 0) is nearest.

    Args:
        like: A tensor of the states' shape, dtype and device.
        degree: The highest degree, >= 0.
        by_rows: Whether the median row decides on the degree, and not the norm. Where a unit of one sample switches,
            that row jumps and says nothing of the others.
    """

    def __init__(self, like: Float[Tensor, "N m"], degree: int, *, by_rows: bool = False) -> None:
        self._like, self._highest, self._by_rows = like, degree, by_rows
        self.forget()

    def forget(self) -> None:
        """Drop every state."""
        self.states: list[Tensor] = []
        self.moments: list[float] = []
        self.degree = self._highest
        self.added = 0

    def restore(self, states: Sequence[object], moments: Sequence[object], degree: object, added: object) -> None:
        """Go on from the states, moments, degree and number of states of another history.

        Raises:
            ValueError: They are not those of a history of such states.
        """
        if len(states) != len(moments) or len(states) > self._highest + 1:
            raise ValueError(f"`states` must be at most {self._highest + 1}, each with its moment")
        self.moments = [stored_number(moment, "moments", -_FARTHEST, _FARTHEST) for moment in moments]
        if len(set(self.moments)) < len(self.moments):
            raise ValueError("`moments` must differ from each other")
        self.states = [stored_tensor(state, self._like, "states") for state in states]
        self.degree = stored_count(degree, "degree", high=self._highest)
        self.added = stored_count(added, "added")

    def predict(self, moment: float, out: Float[Tensor, "N m"]) -> bool:
        """Write the state expected at a moment into `out`; False and nothing written where no state is known."""
        if not self.states:
            return False
        self._combine(moment, self.degree, out)
        return True

    def add(self, moment: float, state: Float[Tensor, "N m"], scratch: Float[Tensor, "N m"]) -> Tensor:
        """Take in a state, which must not be written to any more, and return a tensor that may be.

        Args:
            moment: Where it belongs; a state of the very same moment is replaced.
            state: The state.
            scratch: A buffer to work in.
        """
        self.added += 1
        place = self.moments.index(moment) if moment in self.moments else None
        if place is None and self._highest and self.added % _ASSESS_EVERY == 0:
            self._assess(moment, state, scratch)
        if place is None and len(self.states) > self._highest:
            place = self._highest
        if place is None:
            spare = torch.empty_like(self._like)
        else:
            spare = self.states.pop(place)
            self.moments.pop(place)
        self.states.insert(0, state)
        self.moments.insert(0, moment)
        return spare

    def _assess(self, moment: float, state: Tensor, scratch: Tensor) -> None:
        """Set the degree to the one whose prediction of `state` comes closest."""
        distances = []
        for degree in range(len(self.states)):
            self._combine(moment, degree, scratch)
            scratch.sub_(state)
            norms = torch.linalg.vector_norm(scratch, dim=1) if self._by_rows else None
            distances.append(torch.linalg.vector_norm(scratch) if norms is None else norms.median())
        if distances:
            found = torch.stack(distances).tolist()
            self.degree = min(range(len(found)), key=found.__getitem__) if math.isfinite(sum(found)) else 0

    def _combine(self, moment: float, degree: int, out: Tensor) -> None:
        count = min(degree + 1, len(self.states))
        while True:
            weights = extrapolation_weights(moment, self.moments[:count])
            if count == 1 or sum(map(abs, weights)) <= _LARGEST_WEIGHTS:
                break
            count -= 1
        if count == 1:
            out.copy_(self.states[0])
            return
        if count == 2:
            torch.lerp(self.states[0], self.states[1], weights[1], out=out)
            return
        terms = sorted(zip(weights, self.states, strict=False), key=lambda term: term[0] != 1)
        (weight, state), *others = terms
        if weight == 1:  # as at equal steps: the first two are summed in one pass
            (second, other), *others = others
            torch.add(state, other, alpha=second, out=out)
        else:
            torch.mul(state, weight, out=out)
        for weight, state in others:
            out.add_(state, alpha=weight)


# From so many entries on a product of the vector with itself is faster than `vector_norm`, three times at 2^18.
_LARGE = 2**15


def write_norm(value: Float[Tensor, "*shape"], out: Float[Tensor, ""]) -> None:
    """Write the Frobenius norm of a tensor into a 0-d one.

    Args:
        value: The tensor.
        out: Where the norm goes, of the same dtype and device.

    Example:
        >>> out = torch.zeros((), dtype=torch.float64)
        >>> write_norm(torch.full((256, 256), 0.5, dtype=torch.float64), out)
        >>> out.item()
        128.0
    """
    # In float32 `vector_norm` sums up in float64, and a product does not.
    if value.numel() < _LARGE or value.dtype != torch.float64 or not value.is_contiguous():
        torch.linalg.vector_norm(value, out=out)
        return
    flat = value.view(-1)
    torch.dot(flat, flat, out=out).sqrt_()


def scaled_norm(value: Float[Tensor, "*shape"]) -> float:
    """Return the Frobenius norm of a tensor whose squares may over- or underflow.

    Example:
        >>> f"{scaled_norm(torch.tensor([3e200, 4e200], dtype=torch.float64)):.6g}"
        '5e+200'
    """
    largest = float(value.abs().max())
    if not 0 < largest < math.inf:
        return largest
    return largest * float(torch.linalg.vector_norm(value / largest))


Map = Callable[[Tensor], Tensor]

# Where the driver's default tolerance of 32 eps is as good as met on every sample.
_TARGET_EPS = 8.0
# At most so many steps between two looks at the residual, and in all; a slow map is then left to the driver.
_LONGEST_STRIDE = 32
_LONGEST_START = 256
# Each pass in single precision gains 7 digits, so that two reach what double precision can hold.
_PASSES = 2


def near_fixed_point(step: Map, initial: Tensor, *, max_steps: int) -> tuple[Tensor, int]:
    """Return a point close to the fixed point, by plain steps whose residual is looked at only now and then.

    Between two looks lie as many steps as the decrease seen so far says are needed. The result is the last point before
    the residual, taken over all samples together, ceased to fall.

    Args:
        step: The fixed-point map.
        initial: Where to start, and the result where no progress is made.
        max_steps: Steps allowed.

    Returns:
        The point and the number of steps made.

    Example:
        >>> near_fixed_point(lambda z: z / 2 + 1, torch.zeros(1, dtype=torch.float64), max_steps=100)
        (tensor([2.0000], dtype=torch.float64), 50)
    """
    target = _TARGET_EPS * torch.finfo(initial.dtype).eps
    start, point, smallest, made, stride = initial, initial, math.inf, 0, 1
    while made + stride <= min(max_steps, _LONGEST_START):
        for _ in range(stride - 1):
            point = step(point)
        image = step(point)
        made += stride
        residual = float(torch.linalg.vector_norm(image - point))
        if not residual < smallest:  # NaN ends the search too
            break
        goal = target * float(torch.linalg.vector_norm(image))
        start = point = image
        if residual <= goal:
            break
        decrease = math.log(residual / smallest) / stride if smallest < math.inf else -math.inf
        needed = math.ceil(math.log(goal / residual) / decrease) if goal > 0 else 1
        smallest, stride = residual, max(1, min(needed, 2 * stride, _LONGEST_STRIDE))
    return start, made


def near_affine_fixed_point(step: Map, single: Map, initial: Tensor, *, max_steps: int) -> tuple[Tensor, int]:
    """Return a point close to the fixed point of an affine map, by iterative refinement.

    The residual r of the present point is formed in double precision. The correction solves the linear fixed point
    delta = r + (single(delta) - single(0)) in single precision, which costs half as much or less; r is brought to the
    size of single(0) for that, or the difference would lose it.

    Args:
        step: The map v -> c + M v, in double precision.
        single: The same map in single precision, up to its rounding.
        initial: Where to start.
        max_steps: Steps allowed, of both kinds together.

    Returns:
        The point and the number of steps made.

    References:
        Higham (2002), Accuracy and Stability of Numerical Algorithms, chapter 12.

    Example:
        >>> half = lambda z: z / 2 + 1
        >>> near_affine_fixed_point(half, half, torch.zeros(1, dtype=torch.float64), max_steps=100)
        (tensor([2.0000], dtype=torch.float64), 42)
    """
    point, made = initial, 0
    constant = single(torch.zeros_like(initial, dtype=torch.float32))
    for _ in range(_PASSES):
        if made >= max_steps:
            break
        scale, forcing = _scaled_residual(step, point, constant)
        corrected = partial(_corrected, single, forcing)
        correction, steps = near_fixed_point(corrected, forcing + constant, max_steps=max_steps - made)
        made += 1 + steps
        refined = point + scale * correction
        if not torch.isfinite(refined).all():
            break
        point = refined
    return point, made


def _scaled_residual(step: Map, point: Tensor, constant: Tensor) -> tuple[Tensor, Tensor]:
    """Return the residual's size against the constant's, and the residual over that size less the constant."""
    residual = step(point) - point
    scale = torch.linalg.vector_norm(residual) / torch.linalg.vector_norm(constant).to(point.dtype)
    return scale, (residual / scale).float() - constant


def _corrected(single: Map, forcing: Tensor, delta: Tensor) -> Tensor:
    return single(delta) + forcing


RowMap: TypeAlias = Callable[[Tensor, Tensor], None]
"""Writes the value at its first argument into its second."""


@dataclass(frozen=True, eq=False)
class Solved:
    """A fixed point as the solver left it.

    Attributes:
        value: The point; it belongs to the solver's history; only what stays within `error` may be written to it.
        steps: Evaluations of the map; one of n rows out of N counts n/N.
        norm: Its Frobenius norm.
        error: Bound q/(1 - q) norm(F(z) - z) on its distance from the fixed point, with z the point one step before.
        contraction: The bound q that was used.
        beside: What was read off the device together with the residual.
    """

    value: Tensor
    steps: float
    norm: float
    error: float
    contraction: float
    beside: float


# Rounds without a change after which what is fed counts as known, although values still move.
_STEADY = 8


def settle_rows(
    Z: Float[Tensor, "N m"],
    rows: Int[Tensor, " n"],
    doubtful: Bool[Tensor, "n m"],
    step: RowMap,
    margin: Callable[[Tensor], Tensor],
    contraction: float,
) -> int:
    """Find out which doubtful entries of some rows are fed, set the others to zero, and return the evaluations made.

    With the entries in no doubt held as they are, the doubtful ones u solve a fixed-point problem of their own,
    u = G(u), with the same contraction q. It is iterated from zero. So an entry that only feeds itself stays at exactly
    zero, as in the least fixed point; one that is fed over k hops comes up in round k, however small; and the values
    are of the size of what feeds them, where in Z they drown in the error of all other entries.

    It ends once the same entries are fed in two rounds, and no more can change: the pre-activation of each is further
    from zero than q/(1 - q) norm(G(u) - u), that of its row, or exactly zero, as where nothing reaches it. With weights
    >= 0 what is fed only grows, and two equal rounds are proof. With others an entry may be told by the eighth equal
    round, and after m + 8 rounds in any case.

    Entries that are fed keep their value in Z, or get that of the last round where it was zero.

    Args:
        Z: The state; written to.
        rows: Rows with doubtful entries.
        doubtful: Which entries of these rows are in doubt.
        step: The map of these rows.
        margin: Gives the pre-activations of these rows at the last evaluation, which returned its argument.
        contraction: The bound q < 1.
    """
    known, m = Z[rows], Z.shape[1]
    state, image = known.masked_fill(doubtful, 0.0), torch.empty_like(known)
    fed, steady, made = torch.zeros_like(doubtful), 0, 0
    while steady <= _STEADY and made < m + _STEADY:
        step(state, image)
        made += 1
        following = torch.where(doubtful, image, known)
        error = torch.linalg.vector_norm(following - state, dim=1, keepdim=True).mul_(contraction / (1 - contraction))
        now, distance = doubtful & (image != 0), margin(image).abs()
        if not torch.equal(now, fed):
            steady = 0
        elif not bool((doubtful & (distance != 0) & (distance <= error)).any()):
            break
        fed, state, steady = now, following, steady + 1
    Z[rows] = torch.where(doubtful & (~fed | (known == 0)), state, known)
    return made
