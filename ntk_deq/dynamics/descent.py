"""The loop of gradient descent: one fused step after the other, and everything that is kept of them.

Where a run of gradient descent is, and how it came there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from time import perf_counter
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.dynamics.field import (
    FieldPoint,
    GradientField,
    NotFiniteError,
    WellPosednessError,
    loss_ceiling,
    loss_floor,
)
from ntk_deq.dynamics.record import RunStatus, Snapshot, TrainingRun
from ntk_deq.dynamics.recorders import Observation, Recorder
from ntk_deq.dynamics.series import Recording, Show, SnapshotKeeper, progress_bar
from ntk_deq.dynamics.settings import DESCENT, DescentOptions, checked_problem, describe_run, model_values
from ntk_deq.dynamics.storage import Interruption, deferred_interrupt
from ntk_deq.equilibrium.starts import write_norm
from ntk_deq.errors import EquilibriumError
from ntk_deq.files.archives import owned, stored_count, stored_number, stored_tensor, stored_tensors
from ntk_deq.systems.model import EquilibriumModel


class Place:
    """The parameters at one step of a run, with how the run came there.

    Attributes:
        k: Number of the step.
        parameters: By name, tensors that belong to the run.
        path: Length of the path of each parameter so far.
        path_length: That of all together, 0-d.
        error: Sum over the steps so far of step size times the gradient's estimated error.
        loss: The loss, once it is known.
    """

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self.k, self.loss = 0, math.nan
        self.parameters = {name: value.detach().clone() for name, value in parameters.items()}
        first = next(iter(self.parameters.values()))
        self.path = first.new_zeros(len(self.parameters), dtype=torch.float64)
        self.path_length, self.error = self.path.new_zeros(()), 0.0

    def snapshot(self) -> Snapshot:
        """Return a copy of the place."""
        *path, path_length = torch.cat([self.path, self.path_length[None]]).tolist()
        return Snapshot(
            at=float(self.k),
            parameters={name: value.clone() for name, value in self.parameters.items()},
            loss=self.loss,
            path=dict(zip(self.parameters, path, strict=True)),
            path_length=path_length,
        )

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become the place whose attributes are given, in tensors of its own.

        Raises:
            ValueError: They are not those of a place of these parameters.
        """
        self.k, self.loss = stored_count(state["k"], "k"), stored_number(state["loss"], "loss", -math.inf, nan=True)
        self.parameters = stored_tensors(state["parameters"], self.parameters, "parameters")
        self.path = stored_tensor(state["path"], self.path, "path")
        self.path_length = stored_tensor(state["path_length"], self.path_length, "path_length")
        self.error = stored_number(state["error"], "error", nan=True)


# What rounding may add to the length of a step, with room: a norm of n entries errs by less than n eps.
_ROUNDED_UP = 1 + 1e-6

OnStep: TypeAlias = Callable[[int, FieldPoint], None]
End: TypeAlias = tuple[RunStatus, str]


class Descent:
    """A run of gradient descent that can be stopped between two steps and taken up again.

    Args:
        model: The model; its parameters are the start.
        X: Inputs.
        y: Targets.
        options: Options.
        record: Recorders besides those that are always there.
    """

    def __init__(
        self,
        model: EquilibriumModel,
        X: Float[Tensor, "_ _"] | None,
        y: Float[Tensor, _ * k] | None,
        options: DescentOptions,
        record: Iterable[str | Recorder] = (),
    ) -> None:
        X, y = checked_problem(model, X, y, DESCENT)
        options.check_dtype(X.dtype)
        self._model, self._X, self._y, self._options = model, owned(X), owned(y), options
        self._values = model_values(model)  # as they are now: the caller may change the model's later
        self._recording, self._keeper = Recording(record), SnapshotKeeper(options.snapshots, always=options.keep)
        self._field = GradientField(
            model,
            self._X,
            self._y,
            rtol=options.rtol,
            atol=options.atol,
            max_steps=options.max_steps,
            extrapolation=options.extrapolation,
        )
        self._start = {name: owned(value) for name, value in model.parameters().items()}
        # The place before is kept, too: where a step leads to a state that does not exist, the run ends there.
        self._here, self._before = Place(self._start), Place(self._start)
        self._norms = torch.zeros(len(self._start), dtype=X.dtype, device=X.device)
        self._norm_entries = list(self._norms.unbind())
        self._norm = self._norms.new_zeros(())
        self._lengths = torch.zeros_like(self._norms)  # of the last step, from above
        self._sizes = torch.stack([torch.linalg.vector_norm(value) for value in self._start.values()])
        self._ulp = torch.finfo(X.dtype).eps  # a step rounds each entry by half of it, and sizes are start plus path
        self._moved = dict(zip(self._start, self._lengths.unbind(), strict=True))
        # Those of `_here`, from when they are known until the step is taken.
        self._gradients: dict[str, Tensor] | None = None
        self._gradient_error = 0.0
        self._last: Observation | None = None
        self._first_loss, self._seconds = math.nan, 0.0
        self._evaluations, self._forward_steps, self._adjoint_steps = 0, 0.0, 0.0

    def run(
        self,
        *,
        on_step: OnStep | None = None,
        checkpoint: Callable[[TrainingRun], None] | None = None,
        checkpoint_every: float = 60.0,
        progress: bool = False,
    ) -> TrainingRun:
        """Go on until something ends the run, and return its record; see `gradient_descent`."""
        self._started = perf_counter()
        with torch.no_grad(), ExitStack() as stack:
            interruption = stack.enter_context(deferred_interrupt())
            show = stack.enter_context(progress_bar(progress, DESCENT, self._options.steps))
            try:
                end = self._loop(interruption, on_step, checkpoint, checkpoint_every, show)
            except KeyboardInterrupt:  # a second one, or one that a recorder raised: in the middle of a step
                if math.isnan(self._here.loss) and math.isnan(self._before.loss):
                    raise
                self._gradients = None
                end = RunStatus.INTERRUPTED, f"Interrupted in the middle of step {self._here.k}."
            record = self._record(*end, resumable=self._gradients is not None)
            if checkpoint is not None and record.continuation is not None:
                checkpoint(record)
        return record

    def _loop(
        self,
        interruption: Interruption,
        on_step: OnStep | None,
        checkpoint: Callable[[TrainingRun], None] | None,
        checkpoint_every: float,
        show: Show | None,
    ) -> End:
        saved = perf_counter()
        while True:
            if self._gradients is None:
                try:
                    point = self._field.at(self._here.parameters, self._here.k, reuse=True, moved=self._moved)
                except EquilibriumError as error:
                    return self._step_back(
                        RunStatus.NOT_FINITE if isinstance(error, NotFiniteError) else RunStatus.UNSOLVED, error
                    )
                except WellPosednessError as error:
                    return self._step_back(RunStatus.WELL_POSEDNESS_LOST, error)
                self._observe(point, interruption, on_step, show)
            end = self._end(interruption) or self._advance()
            if end is not None:
                return end
            if checkpoint is not None and perf_counter() - saved >= checkpoint_every:
                checkpoint(self._record(RunStatus.INTERRUPTED, "Written along the run.", resumable=True))
                saved = perf_counter()

    def _observe(
        self, point: FieldPoint, interruption: Interruption, on_step: OnStep | None, show: Show | None
    ) -> None:
        here = self._here
        here.loss = point.loss_value
        if here.k == 0:
            self._first_loss = here.loss
        self._evaluations += 1
        self._forward_steps += point.forward_steps
        self._adjoint_steps += point.adjoint_steps
        self._gradient_error = point.gradient_error
        if on_step is not None:
            try:
                on_step(here.k, point)
            except KeyboardInterrupt:
                interruption.asked = True
        for name, entry in zip(here.parameters, self._norm_entries, strict=True):
            write_norm(point.gradients[name], entry)
        torch.linalg.vector_norm(self._norms, out=self._norm)
        seen = Observation(
            float(here.k), here.parameters, self._start, point, self._model, here.path_length, self._norm
        )
        self._recording.offer(here.k, seen)
        if self._keeper.wants(here.k):
            self._keeper.add(here.snapshot())
        if show is not None:
            show(here.k, here.loss)
        self._last, self._gradients = seen, point.gradients

    def _end(self, interruption: Interruption) -> End | None:
        here, options = self._here, self._options
        status = None
        if here.loss <= loss_floor(self._first_loss, options.until):
            status = RunStatus.LOSS_FLOOR
        elif here.loss > loss_ceiling(self._first_loss, options.blow_up):
            status = RunStatus.DIVERGED
        elif here.k >= options.steps:
            status = RunStatus.STEPS
        elif interruption.asked:
            status = RunStatus.INTERRUPTED
        if status is None:
            return None
        reached = f"At step {here.k} the loss was {here.loss:.6g}, from {self._first_loss:.6g} at first."
        return status, " ".join(part for part in (reached, status.text, self._field.caveat) if part)

    def _advance(self) -> End | None:
        assert self._gradients is not None
        here, following = self._here, self._before
        step = self._options.step
        for name, value in here.parameters.items():
            torch.add(value, self._gradients[name], alpha=-step, out=following.parameters[name])
        torch.add(here.path, self._norms, alpha=step, out=following.path)
        torch.add(here.path_length, self._norm, alpha=step, out=following.path_length)
        following.k, following.loss = here.k + 1, math.nan
        following.error = here.error + step * self._gradient_error
        torch.mul(self._norms, step * _ROUNDED_UP, out=self._lengths)
        self._lengths.add_(self._sizes, alpha=self._ulp).add_(here.path, alpha=self._ulp)
        # Looked at now and then: a step that changes nothing is taken again and again.
        power = here.k & (here.k - 1) == 0
        if power and all(torch.equal(value, following.parameters[name]) for name, value in here.parameters.items()):
            if not any(bool(gradient.any()) for gradient in self._gradients.values()):
                status = RunStatus.STATIONARY
                return status, f"At step {here.k}, with the loss {here.loss:.6g}: {status.text}"
            status = RunStatus.STEP_UNDERFLOW
            return status, f"At step {here.k} the step changed no bit of any parameter. {status.text}"
        self._here, self._before, self._gradients = following, here, None
        return None

    def _step_back(self, status: RunStatus, error: Exception) -> End:
        failed = self._here.k
        if failed == 0:
            raise error
        self._here, self._before = self._before, self._here
        return status, f"At step {failed}: {error} {status.text}"

    def _record(self, status: RunStatus, detail: str, *, resumable: bool) -> TrainingRun:
        known = self._gradients is not None
        place = self._before if math.isnan(self._here.loss) else self._here
        last = place.snapshot()
        gradients = max(self._evaluations, 1)
        return TrainingRun(
            method=DESCENT,
            step=self._options.step,
            status=status,
            steps=place.k,
            end=float(place.k),
            snapshots=self._keeper.with_end(last),
            series=self._recording.series(place.k, self._last if known else None),
            forward_iterations=self._forward_steps / gradients,
            adjoint_iterations=self._adjoint_steps / gradients,
            evaluations=self._evaluations,
            seconds=self._seconds + perf_counter() - self._started,
            error=None if math.isnan(place.error) else place.error + self._rounding(place.k, last.path_length),
            settings=describe_run(self._model, self._X, {**self._written(), "rtol": self._field.rtol}),
            detail=detail,
            continuation=self._state() if resumable else None,
        )

    def _written(self) -> dict[str, Any]:
        """Return the options as a file gives them back."""
        return {**asdict(self._options), "keep": list(self._options.keep)}

    def _rounding(self, k: int, path_length: float) -> float:
        """Return what k updates round at most, half a unit in the last place of each parameter a step."""
        size = float(torch.linalg.vector_norm(torch.stack([p.norm() for p in self._start.values()])))
        return torch.finfo(self._X.dtype).eps / 2 * k * (size + path_length)

    def _state(self) -> dict[str, Any]:
        """Return what `resumed` needs: plain values and tensors, the tensors being the run's own."""
        return {
            "model": self._values,
            "X": self._X,
            "y": self._y,
            "options": self._written(),
            "record": [recorder.name for recorder in self._recording.recorders],
            "here": dict(vars(self._here)),
            "before": dict(vars(self._before)),
            "gradients": self._gradients,
            "norms": self._norms,
            "lengths": self._lengths,
            "gradient_error": self._gradient_error,
            "first_loss": self._first_loss,
            "counts": [self._evaluations, self._forward_steps, self._adjoint_steps],
            "seconds": self._seconds + perf_counter() - self._started,
            "field": self._field.state(),
            "recording": self._recording.state(),
            "keeper": self._keeper.state(),
        }

    @classmethod
    def resumed(
        cls,
        model: EquilibriumModel,
        options: DescentOptions,
        record: Iterable[str | Recorder],
        run: TrainingRun,
    ) -> Descent:
        """Return the run that goes on where `run` ended.

        Args:
            model: The model, with the parameters of the start.
            options: Options; all but the budget and the floor must be those of `run`.
            record: Recorders.
            run: A record with a continuation.

        Raises:
            ValueError: The continuation is not one of such a run.
        """
        state = run.continuation
        assert state is not None
        found = cls(model, state["X"], state["y"], options, record)
        found._here.restore(state["here"])
        found._lengths.copy_(stored_tensor(state["lengths"], found._lengths, "lengths"))
        found._before.restore(state["before"])
        if state["gradients"] is not None:
            found._gradients = stored_tensors(state["gradients"], found._start, "gradients")
            found._norms.copy_(stored_tensor(state["norms"], found._norms, "norms"))
            torch.linalg.vector_norm(found._norms, out=found._norm)
        found._gradient_error = stored_number(state["gradient_error"], "gradient_error", nan=True)
        found._first_loss = stored_number(state["first_loss"], "first_loss", -math.inf)
        evaluations, *steps = state["counts"]
        found._evaluations = stored_count(evaluations, "counts")
        found._forward_steps, found._adjoint_steps = (stored_number(count, "counts") for count in steps)
        found._seconds = stored_number(state["seconds"], "seconds")
        found._field.restore(state["field"])
        found._recording.restore(state["recording"])
        found._keeper.restore(state["keeper"], run.snapshots)
        return found

    def ended(self) -> bool:
        """Say whether the place that was reached ends the run by itself."""
        return self._gradients is not None and self._end(Interruption()) is not None
