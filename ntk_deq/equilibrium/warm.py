"""One kind of fixed point (the equilibrium, or the adjoint) solved again and again along a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium.starts import RowMap as Map
from ntk_deq.equilibrium.starts import Solved, StateHistory, scaled_norm, write_norm
from ntk_deq.errors import EquilibriumError
from ntk_deq.files.archives import stored_count, stored_number

# Products of fewer multiplications than this take less time than picking rows out. On other devices a whole product is
# cheaper than a transfer to the host for much longer.
_LEAST_WORK = 2**22
_LEAST_WORK_ELSEWHERE = 2**31
# Bounds on the rate of convergence that the number of steps is foreseen with.
_FASTEST, _SLOWEST = 1e-3, 0.999
# Evaluations before a Newton step, at least.
_BEFORE_NEWTON = 32
# Steps without a new smallest residual after which it is taken to have stopped falling.
_PATIENCE = 50
# Steps between two looks at the residual of a few rows, at first; later on as many more as were made. A look takes
# the time of a step of that share of all rows, so that more rows than these are looked at after every step.
_UNSEEN = 4
_FEW = 1 / 16


class NotFiniteError(EquilibriumError):
    """A parameter, a state or the loss became NaN or Inf."""


class WarmSolver:
    """Plain iteration from an extrapolated start, with few looks at the residual.

    The iteration stops at the image w = F(z) of the first z with q norm(F(z) - z) <= rtol norm(w) + atol, so that the
    residual of w itself, at most q times that of z, is within the tolerance. The residual of z is computed; it is
    looked at only from the number of steps on that the last solve took, and each look is one transfer to the host.

    Where a unit of one sample has switched, that row of an adjoint jumps and its start is poor, while all others are
    solved. Once no more than half of the rows are left above their share of the tolerance, only these are iterated;
    up to where Newton's step would come in, or to where they stop getting better.

    Where that takes long, because the contraction factor is close to one, a Newton step is put in now and then: it
    costs about as much as m/3 evaluations, and comes after m of them (32 at least) that were not enough.

    Args:
        what: What is solved for, in errors.
        initial: Where to start without a history.
        degree: Highest degree of the extrapolation.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        max_steps: Evaluations allowed.
    """

    def __init__(
        self, what: str, initial: Float[Tensor, "N m"], *, degree: int, rtol: float, atol: float, max_steps: int
    ) -> None:
        self._what, self._initial = what, initial
        self._rtol, self._atol, self._max_steps = rtol, atol, max_steps
        self._point, self._image = torch.empty_like(initial), torch.empty_like(initial)
        # Squares of a residual of 32 eps times a smaller norm underflow.
        self._least = torch.finfo(initial.dtype).tiny ** 0.5 / torch.finfo(initial.dtype).eps
        self._rows = initial.new_zeros(initial.shape[0])
        self._checks = initial.new_zeros(3)
        # Written by the caller before a solve, and read with the first look at the residual.
        self.beside = self._checks[2]
        self._residual, self._norm = self._checks[0], self._checks[1]
        work = initial.numel() * initial.shape[1]
        self._by_rows = work >= (_LEAST_WORK if initial.device.type == "cpu" else _LEAST_WORK_ELSEWHERE)
        self.history = StateHistory(initial, degree, by_rows=self._by_rows)
        self._forget_counts()

    def forget(self) -> None:
        """Start the next solve from the initial state."""
        self.history.forget()
        self._forget_counts()

    def _forget_counts(self) -> None:
        self._expected, self._rate = 1, 1.0

    def solve(
        self,
        moment: float,
        step: Map,
        step_of_rows: Callable[[Tensor], Map],
        bound: Callable[[float], float],
        newton: Callable[[Tensor, Tensor], bool],
    ) -> Solved:
        """Return the fixed point.

        Args:
            moment: Time or step that it belongs to.
            step: Writes the map's value at its first argument into its second.
            step_of_rows: Gives the same for some rows only.
            bound: Gives the contraction bound q < 1 from what lies in `beside`.
            newton: Moves its first argument on by a Newton step, the second being the map's value there; or does not,
                and returns False.

        Raises:
            NotFiniteError: The residual or the norm is NaN or Inf.
            EquilibriumError: The residual is above the tolerance after `max_steps`, or stopped falling.
        """
        point, image = self._point, self._image
        if not self.history.predict(moment, point):
            point.copy_(self._initial)
        count, looks, extra, last, contraction = 0, 0, 0.0, math.inf, math.nan
        progress, by_rows = _Progress(self._what, self._max_steps), self._by_rows
        patience = leap = max(_BEFORE_NEWTON, point.shape[1])
        while True:
            step(point, image)
            count += 1
            if count >= self._expected:
                residual, norm, beside = self._look(point, image)
                if looks == 0:
                    contraction = bound(beside)
                progress.check_finite(count, residual, norm)
                looks += 1
                self._rate = residual / last if 0 < residual < last < math.inf else self._rate
                target, last = self._rtol * norm + self._atol, residual
                done = residual
                if contraction * residual <= target:
                    break
                progress.check(count, residual, target)
                if by_rows and count < leap and norm >= self._least:
                    most = patience if leap < self._max_steps else self._max_steps
                    done, found, made = self._finish(image, step_of_rows, target / contraction, count, most)
                    extra += made
                    if found is not None:
                        residual = found
                        break
                    if made:  # too slow for Newton's step to be put off, or stuck, and then another try is vain
                        by_rows, leap = leap < self._max_steps, min(leap, count + 1)
                        point, image = image, point
                        continue
            if count >= leap:
                if looks:
                    point.add_(image)
                if newton(point, image):
                    leap = count + patience
                    continue
                leap = self._max_steps
            point, image = image, point
        self._foresee(count, looks, contraction, done, target)
        self._point, self._image = point, self.history.add(moment, image, point)
        error = contraction * residual / (1 - contraction)
        return Solved(image, count + extra, norm, error, contraction, beside)

    def _look(self, point: Tensor, image: Tensor) -> list[float]:
        """Return the residual norm(image - point), the norm of the image, and what lies beside them.

        The difference point - image is left in `point`: a buffer for it would be one more to go through memory.
        """
        difference = point.sub_(image)
        if self._by_rows:
            torch.linalg.vector_norm(difference, dim=1, out=self._rows)
            torch.linalg.vector_norm(self._rows, out=self._residual)
        else:
            write_norm(difference, self._residual)
        write_norm(image, self._norm)
        values: list[float] = self._checks.tolist()
        if values[1] < self._least:
            values[:2] = scaled_norm(difference), scaled_norm(image)
        return values

    def _finish(
        self, image: Tensor, step_of_rows: Callable[[Tensor], Map], allowed: float, count: int, most: int
    ) -> tuple[float, float | None, float]:
        """Iterate the rows of `image` whose residual is above their share.

        Shares are equal at first. What rows that are done leave of theirs goes to the others, and all are done once
        the residuals of all rows together are small enough: a row's own rounding may be more than an equal share.

        Returns:
            The residual of the rows that were done before; that of all in the end, None where it is above `allowed`,
            with too many rows left, no progress or `most` steps spent; and the evaluations in units of one of all rows.
        """
        residuals, total = self._rows, self._rows.shape[0]
        share = allowed / total**0.5
        left = (~(residuals <= share)).nonzero().squeeze(1)
        if left.shape[0] == 0 or 2 * left.shape[0] > total:
            return math.nan, None, 0.0
        solved = torch.linalg.vector_norm(residuals.index_fill(0, left, 0.0))
        done, worst = torch.stack([solved, residuals.max()]).tolist()
        rest, share = done, _share(allowed, done, left.shape[0])
        values, steps, made, rate = image[left], 0, 0, self._rate
        step, other = step_of_rows(left), torch.empty_like(values)
        progress = _Progress(self._what, self._max_steps)
        while True:
            unseen = _UNSEEN + steps if left.shape[0] <= _FEW * total else 1
            bounds = unseen, most - steps, self._max_steps - count - steps
            ahead = max(1, math.ceil(min(_steps(share / worst, rate), *bounds)))
            for _ in range(ahead):
                step(values, other)
                values, other = other, values
            steps += ahead
            made += ahead * left.shape[0]
            residual, before = torch.linalg.vector_norm(other.sub_(values), dim=1), worst
            unsolved = ~(residual <= share)
            looked = [residual.max(), unsolved.sum(), torch.linalg.vector_norm(residual)]
            worst, number, together = torch.stack(looked).tolist()
            progress.check_finite(count + steps, worst, together)
            reached = number == 0 or math.hypot(rest, together) <= allowed
            spent = not reached and (steps >= most or progress.stalls(worst, ahead))
            if reached or spent or 2 * number <= left.shape[0]:
                image[left] = values
                if reached or spent:
                    return done, math.hypot(rest, together) if reached else None, made / total
                rest = math.hypot(rest, float(torch.linalg.vector_norm(residual[~unsolved])))
                left, values = left[unsolved], values[unsolved]
                share = _share(allowed, rest, left.shape[0])
                step, other = step_of_rows(left), torch.empty_like(values)
            progress.check_steps(count + steps, worst, share)
            rate = (worst / before) ** (1 / ahead)

    def _foresee(self, count: int, looks: int, contraction: float, residual: float, target: float) -> None:
        """Set the number of steps before the next solve's first look."""
        if looks > 1:  # a jump may be over by then, so that the number is raised half way only
            self._expected = (self._expected + count + 1) // 2
            return
        # As many steps less would have done as the residual fell too far. The rate seen last may be out of date; taken
        # too large, it costs looks and no step.
        reached = contraction * residual
        spare = _steps(reached / target, max(self._rate, contraction / 4)) if reached > 0 else count
        self._expected = max(1, count - math.floor(min(spare, count)))

    def state(self) -> dict[str, Any]:
        """Return what a later run needs to go on in the very same way."""
        history = self.history
        return {
            "states": list(history.states),
            "moments": list(history.moments),
            "degree": history.degree,
            "added": history.added,
            "expected": self._expected,
            "rate": self._rate,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned.

        Raises:
            ValueError: It is not what such a solver returns.
        """
        self.history.restore(state["states"], state["moments"], state["degree"], state["added"])
        self._expected = stored_count(state["expected"], "expected", 1, self._max_steps)
        self._rate = stored_number(state["rate"], "rate", 0.0, 1.0)


def _steps(factor: float, rate: float) -> float:
    """Return the number of steps that make a residual smaller by a factor, at a rate of convergence."""
    if factor <= 0:
        return math.inf
    return math.log(factor) / math.log(min(max(rate, _FASTEST), _SLOWEST))


def _share(allowed: float, spent: float, rows: int) -> float:
    """Return what each of some rows may have, sqrt((allowed^2 - spent^2)/rows), where no square over- or underflows."""
    return math.sqrt(max(allowed - spent, 0.0)) * math.sqrt(allowed + spent) / math.sqrt(rows)


class _Progress:
    """Ends a solve that does not come to an end by itself."""

    def __init__(self, what: str, max_steps: int) -> None:
        self._what, self._max_steps = what, max_steps
        self._best, self._idle = math.inf, 0

    def check_finite(self, count: int, residual: float, norm: float) -> None:
        if not (math.isfinite(residual) and math.isfinite(norm)):
            raise NotFiniteError(f"The {self._what} or its norm became NaN or Inf after {count} iterations.")

    def check(self, count: int, residual: float, target: float) -> None:
        if self.stalls(residual):
            self._fail("its residual stopped falling", count, residual, target)
        self.check_steps(count, residual, target)

    def check_steps(self, count: int, residual: float, target: float) -> None:
        if count >= self._max_steps:
            self._fail("max_steps", count, residual, target)

    def stalls(self, residual: float, steps: int = 1) -> bool:
        self._idle = 0 if residual < self._best else self._idle + steps
        self._best = min(self._best, residual)
        return self._idle >= _PATIENCE

    def _fail(self, why: str, count: int, residual: float, target: float) -> NoReturn:
        raise EquilibriumError(
            f"The {self._what} was not found ({why}): residual {residual:.3g} after {count} iterations, "
            f"where {target:.3g} was asked for."
        )
