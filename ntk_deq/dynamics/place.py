"""Where a run of gradient descent is, and how it came there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ntk_deq.dynamics.record import Snapshot
from ntk_deq.dynamics.stored_values import stored_count, stored_number, stored_tensor, stored_tensors


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

    def step_from(
        self,
        other: Place,
        gradients: Mapping[str, Tensor],
        *,
        norms: Tensor,
        norm: Tensor,
        step: float,
        error: float,
    ) -> None:
        """Become the place one step of descent after another one.

        Args:
            other: Where the step starts.
            gradients: The gradients there.
            norms: The norms of the gradients, one a parameter.
            norm: Their norm, 0-d.
            step: The step size.
            error: The gradient's estimated error.
        """
        for name, value in other.parameters.items():
            torch.add(value, gradients[name], alpha=-step, out=self.parameters[name])
        torch.add(other.path, norms, alpha=step, out=self.path)
        torch.add(other.path_length, norm, alpha=step, out=self.path_length)
        self.k, self.loss, self.error = other.k + 1, math.nan, other.error + step * error

    def equals(self, other: Place) -> bool:
        """Say whether every parameter is bit by bit that of another place."""
        return all(torch.equal(value, other.parameters[name]) for name, value in self.parameters.items())

    def state(self) -> dict[str, Any]:
        """Return the place as plain values and tensors; the tensors are its own."""
        return dict(vars(self))

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what `state` returned, in tensors of its own.

        Raises:
            ValueError: It is not what a place of these parameters returns.
        """
        self.k, self.loss = stored_count(state["k"], "k"), stored_number(state["loss"], "loss", nan=True)
        self.parameters = stored_tensors(state["parameters"], self.parameters, "parameters")
        self.path = stored_tensor(state["path"], self.path, "path")
        self.path_length = stored_tensor(state["path_length"], self.path_length, "path_length")
        self.error = stored_number(state["error"], "error", nan=True)
