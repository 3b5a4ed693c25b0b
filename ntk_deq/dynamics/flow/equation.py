"""Gradient flow as a differential equation in one vector: the way of the parameters from the start, and its length."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.dynamics.field import FieldPoint, GradientField, NotFiniteError


class FlowEquation:
    """The equation that gradient flow obeys, and the points at which its right-hand side was evaluated.

        y = (theta - theta(0), s_1, ..., s_k, s),   y' = (-grad, norm(grad_1), ..., norm(grad_k), norm(grad)),
        grad = dL/dtheta

    Displacements in place of the parameters themselves: where training is lazy, a rounding of theta is large against
    the way that theta goes.

    Symbols:
        theta: all parameters; s_i: length of the path of parameter i, Frobenius; s: that of all together, Euclidean.

    Attributes:
        start: The parameters at t = 0.
        evaluations: How often the right-hand side was evaluated.
        forward_steps: Iterations of all equilibria.
        adjoint_steps: Iterations of all adjoints.

    Args:
        field: The loss and its gradient.
        start: The parameters at t = 0.

    Example:
        >>> from ntk_deq.systems import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> model = LinearImplicit(W=one / 2, U=one, b=one[0])
        >>> equation = FlowEquation(GradientField(model, one, 0 * one[0]), model.parameters())
        >>> [round(rate, 6) for rate in equation(0.0, equation.origin()).tolist()]
        [-8.0, -4.0, -4.0, 8.0, 4.0, 4.0, 9.797959]
    """

    def __init__(self, field: GradientField, start: Mapping[str, Tensor]) -> None:
        self._field = field
        self.start = {name: value.detach().clone() for name, value in start.items()}
        self._sizes = [value.numel() for value in self.start.values()]
        self.size = sum(self._sizes)
        self.evaluations = 0
        self.forward_steps = self.adjoint_steps = 0.0

    @property
    def caveat(self) -> str:
        """What is not known of the equilibria along the flow, in words; empty where a certificate is asked for."""
        return self._field.caveat

    @property
    def parts(self) -> list[int]:
        """Sizes of the parts of y whose errors are judged apart: each parameter, and all lengths together."""
        return [*self._sizes, len(self._sizes) + 1]

    def origin(self) -> Float[Tensor, " n"]:
        """Return y at t = 0."""
        first = next(iter(self.start.values()))
        return first.new_zeros(self.size + len(self._sizes) + 1)

    def __call__(self, time: float, y: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return y'; until the next call, `point` is the field's value there and `here` are the parameters.

        Raises:
            WellPosednessError: The contraction factor is not below one.
            EquilibriumError: A solve failed, or a value is NaN or Inf.
        """
        self.here = self.parameters(y)
        self.point: FieldPoint = self._field.at(self.here, time, reuse=True)
        self.evaluations += 1
        self.forward_steps += self.point.forward_steps
        self.adjoint_steps += self.point.adjoint_steps
        gradients = [self.point.gradients[name].reshape(-1) for name in self.start]
        lengths = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])
        speed = torch.linalg.vector_norm(lengths)
        if not math.isfinite(float(speed)):  # the next stage would be at parameters that are no numbers
            raise NotFiniteError(f"The gradient must be finite. Its norm is {float(speed)}.")
        return torch.cat([*gradients, -lengths, -speed[None]]).neg_()

    def jacobian(self, time: float, y: Float[Tensor, " n"]) -> Float[Tensor, "n n"] | None:
        """Return the derivative of y' in y, on the pattern of units that is on there; None: not known."""
        here = self.parameters(y)
        point = self._field.at(here, time)
        hessian = self._field.hessian()
        if hessian is None:
            return None
        n, full = self.size, y.new_zeros(y.numel(), y.numel())
        full[:n, :n] = -hessian
        gradients = [point.gradients[name].reshape(-1) for name in self.start]
        for place, (rows, gradient) in enumerate(zip(hessian.split(self._sizes), gradients, strict=True)):
            length = torch.linalg.vector_norm(gradient)
            full[n + place, :n] = gradient @ rows / length if length else 0.0
        whole = torch.cat(gradients)
        speed = torch.linalg.vector_norm(whole)
        full[-1, :n] = whole @ hessian / speed if speed else 0.0
        return full

    def parameters(self, y: Float[Tensor, " n"]) -> dict[str, Tensor]:
        """Return the parameters at y, as tensors of their own."""
        parts = y[: self.size].split(self._sizes)
        return {
            name: value + part.view_as(value) for (name, value), part in zip(self.start.items(), parts, strict=True)
        }

    def lengths(self, y: Float[Tensor, " n"]) -> dict[str, float]:
        """Return the length of the path of each parameter at y."""
        return dict(zip(self.start, y[self.size : -1].tolist(), strict=True))
