"""Why a training run ended."""

from __future__ import annotations

from enum import StrEnum


class RunStatus(StrEnum):
    """Why a training run ended; the text names the cause and what to do about it.

    Example:
        >>> RunStatus.LOSS_FLOOR.value, RunStatus.LOSS_FLOOR.complete, RunStatus.DIVERGED.complete
        ('loss-floor', True, False)
        >>> RunStatus.STEPS.text
        'The budget of `steps` was spent. Resume with more steps to go on.'
    """

    LOSS_FLOOR = "loss-floor"
    STEPS = "steps"
    HORIZON = "horizon"
    WELL_POSEDNESS_LOST = "well-posedness-lost"
    DIVERGED = "diverged"
    NOT_FINITE = "not-finite"
    STEP_UNDERFLOW = "step-underflow"
    STATIONARY = "stationary"
    UNSOLVED = "unsolved"
    INTERRUPTED = "interrupted"

    @property
    def complete(self) -> bool:
        """Whether the run went where it was sent: to the loss floor, to its last step or to its horizon."""
        return self in (RunStatus.LOSS_FLOOR, RunStatus.STEPS, RunStatus.HORIZON)

    @property
    def text(self) -> str:
        """The cause, and what to do about it."""
        return _TEXTS[self]


_TEXTS = {
    RunStatus.LOSS_FLOOR: "The loss fell to `until` times its first value.",
    RunStatus.STEPS: "The budget of `steps` was spent. Resume with more steps to go on.",
    RunStatus.HORIZON: "The time reached `horizon`.",
    RunStatus.WELL_POSEDNESS_LOST: (
        "The contraction factor reached one, so that the equilibrium need not exist or be unique. "
        "Take a smaller step, or start with smaller weights."
    ),
    RunStatus.DIVERGED: "The loss rose to more than a million times its first value. Take a smaller step.",
    RunStatus.NOT_FINITE: (
        "The loss, the state or a parameter became NaN or Inf. Take a smaller step, and look for overflow in the data."
    ),
    RunStatus.STEP_UNDERFLOW: (
        "The step became too small for the precision: it leaves every parameter as it was. "
        "Take a larger step, a looser tolerance, or float64."
    ),
    RunStatus.STATIONARY: (
        "The gradient is zero in every entry: a minimum above the loss floor, or units that are all off. "
        "Descent stays there for ever."
    ),
    RunStatus.UNSOLVED: (
        "An equilibrium or an adjoint was not found to the tolerance. Raise `max_steps` or loosen `rtol`."
    ),
    RunStatus.INTERRUPTED: "The run was interrupted. What was reached is kept; resume it to go on.",
}
