"""The last states along a run, and where they say the next one lies.

Norms of large tensors, written where they are wanted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium.stored_values import stored_count, stored_number, stored_tensor

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
