"""The maps that one gradient of the loss is made of, with buffers of their own: no graph, no allocation in a loop.

With Z the equilibrium and g = dL/dyhat (yhat - y where L is half its square), the loss adjoint solves
V = g d yhat/dZ + (d step/dZ)'V, and the gradient in a parameter is the pullback of V through the step at fixed Z, plus
that of g through the readout.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ntk_deq.equilibrium.slopes import RELU
from ntk_deq.equilibrium.starts import RowMap as Map
from ntk_deq.equilibrium.starts import Solved, settle_rows
from ntk_deq.systems.accuracy import estimated_error, gradient_sizes, layer_error
from ntk_deq.systems.model import EquilibriumModel, OutputLoss, SingleLayer, output_loss

NEWTON_ENTRIES = 2**22
"""Entries that the matrices of one Newton step may have: 32 MiB."""


class LossMaps(ABC):
    """The fixed-point maps and the gradient of one model on one data set, at parameters that change from call to call.

    Order of calls: `prepare` with the parameters; `step` any number of times; `linearise` at the equilibrium;
    `adjoint_step` any number of times; `gradients`. A result written into a buffer lasts until the same call comes
    again.

    Attributes:
        loss: The declared loss.
        slope: dL/dyhat at the last equilibrium.
    """

    loss: OutputLoss
    slope: Float[Tensor, " N"]

    @abstractmethod
    def prepare(self, parameters: Mapping[str, Tensor]) -> None:
        """Work out what depends on the parameters and not on the state."""

    @abstractmethod
    def step(self, Z: Float[Tensor, "N m"], out: Float[Tensor, "N m"]) -> None:
        """Write the fixed-point map at Z into `out`, which must not be Z."""

    @abstractmethod
    def step_of_rows(self, rows: Int[Tensor, " n"]) -> Map:
        """Return the same for a state of these samples only; samples do not interact."""

    def settle(self, Z: Float[Tensor, "N m"], error: float, contraction: float) -> float:
        """Find out which entries of a solved state are zero, where the error of their pre-activation hides it.

        A unit that has died while it feeds itself falls towards zero and never gets there: its slope would be read off
        a leftover of the warm start. With small weights, a solve ends before all that is fed is. See `settle_rows`.

        Args:
            Z: The state, the last that `step` or `step_of_rows` wrote; written to.
            error: Up to which size pre-activations are doubtful.
            contraction: The bound q < 1.

        Returns:
            Evaluations of the map; one of n samples out of N counts n/N.
        """
        doubtful = self._margin(Z).abs() <= error
        rows = doubtful.any(dim=1).nonzero().squeeze(1)
        if rows.shape[0] == 0:
            return 0.0
        step, margin = self.step_of_rows(rows), lambda image: self._margin(image, rows)
        return settle_rows(Z, rows, doubtful[rows], step, margin, contraction) * rows.shape[0] / Z.shape[0]

    def _margin(self, image: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return what tells how far the entries of an image are from a kink at zero; the image itself, if no more."""
        return image

    @abstractmethod
    def linearise(self, Z: Float[Tensor, "N m"], loss: Float[Tensor, ""]) -> Float[Tensor, " N"]:
        """Return yhat - y at the equilibrium Z, write the loss into `loss`, and take derivatives there."""

    @abstractmethod
    def adjoint_step(self, V: Float[Tensor, "N m"], out: Float[Tensor, "N m"]) -> None:
        """Write g d yhat/dZ + (d step/dZ)'V into `out`, which must not be V."""

    @abstractmethod
    def adjoint_step_of_rows(self, rows: Int[Tensor, " n"]) -> Map:
        """Return the same for an adjoint of these samples only."""

    def newton(self, Z: Float[Tensor, "N m"], image: Float[Tensor, "N m"]) -> bool:
        """Move a state on by Newton's step, in place; `image` is the map's value there. False: it has none."""
        return False

    def adjoint_newton(self, V: Float[Tensor, "N m"], image: Float[Tensor, "N m"]) -> bool:
        """Likewise an adjoint."""
        return False

    def pattern(self) -> Tensor | None:
        """Return which units are on at the last equilibrium, one truth value each; None: not known.

        Between two points with one pattern, the gradient is smooth.
        """
        return None

    def hessian(self) -> Float[Tensor, "n n"] | None:
        """Return the Hessian of the loss in all parameters, in their order, on the present pattern; None: not known."""
        return None

    def state(self) -> dict[str, Any]:
        """Return what a later run needs to go on in the very same way: plain values."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned.

        Raises:
            ValueError: It is not what such maps return.
        """
        if state:
            raise ValueError("`maps` must hold nothing")

    @abstractmethod
    def gradients(self, V: Float[Tensor, "N m"]) -> dict[str, Tensor]:
        """Return the gradient of the loss in each parameter; V is the loss adjoint."""

    @abstractmethod
    def gradient_error(self, Z: Solved, V: Solved) -> float:
        """Estimate the Frobenius error of the whole gradient from those of state and adjoint; NaN: not known.

        Args:
            Z: The equilibrium.
            V: The adjoint, with the loss beside it.
        """


class AutodiffMaps(LossMaps):
    """The maps of any model, by `torch.func.vjp`: the reference for the fused ones.

    Args:
        model: The model.
        X: Inputs.
        y: Targets.
    """

    def __init__(self, model: EquilibriumModel, X: Float[Tensor, "N d"], y: Float[Tensor, " N"]) -> None:
        self._model, self._X, self._y = model, X, model.target_rows(y)
        self.loss = output_loss(model, X, y)

    def prepare(self, parameters: Mapping[str, Tensor]) -> None:
        """Keep the parameters and the map at them."""
        self._parameters = dict(parameters)
        self._step = self._model.step_at(self._X, self._parameters)

    def step(self, Z: Float[Tensor, "N m"], out: Float[Tensor, "N m"]) -> None:
        """Write the fixed-point map at Z into `out`."""
        out.copy_(self._step(Z))

    def step_of_rows(self, rows: Int[Tensor, " n"]) -> Map:
        """Return the map at these samples' inputs."""
        step = self._model.step_at(self._some(rows), self._parameters)
        return lambda Z, out: _write(step(Z), out)

    def linearise(self, Z: Float[Tensor, "N m"], loss: Float[Tensor, ""]) -> Float[Tensor, " N"]:
        """Pull back through the step and the readout at Z."""
        self._pull = torch.func.vjp(self._step, Z)[1]
        read = torch.func.vjp(lambda state: self._model.predictions(state, self._X, self._parameters), Z)
        predictions, through = read[0], read[1]
        self._Z, residual = Z, predictions - self._y
        state = self._model.signature.state
        more = {**self._parameters, state: self._model.declared(state, Z)} if self.loss.beside else None
        self.slope, self._direct = self.loss.pull_all(residual, loss, more)
        self._source = through(self.slope)[0]
        if state in self._direct:
            self._source = self._source + self._model.rows_of_state(self._direct[state])
        return residual

    def adjoint_step(self, V: Float[Tensor, "N m"], out: Float[Tensor, "N m"]) -> None:
        """Write source + (d step/dZ)'V into `out`."""
        torch.add(self._source, self._pull(V)[0], out=out)

    def adjoint_step_of_rows(self, rows: Int[Tensor, " n"]) -> Map:
        """Pull back through the step at these samples."""
        source = self._source[rows]
        pull = torch.func.vjp(self._model.step_at(self._some(rows), self._parameters), self._Z[rows])[1]
        return lambda V, out: _write(source + pull(V)[0], out)

    def _some(self, rows: Tensor) -> Tensor:
        """Return the inputs of some samples."""
        return self._model.inputs_of(self._model.input_rows(self._X)[rows])

    def gradients(self, V: Float[Tensor, "N m"]) -> dict[str, Tensor]:
        """Pull V back through the step and g through the readout."""
        step = torch.func.vjp(lambda p: self._model.step(self._Z, self._X, p), self._parameters)[1]
        readout = torch.func.vjp(lambda p: self._model.predictions(self._Z, self._X, p), self._parameters)[1]
        first, second = step(V)[0], readout(self.slope)[0]
        return {name: first[name] + second[name] + self._direct.get(name, 0.0) for name in self._parameters}

    def gradient_error(self, Z: Solved, V: Solved) -> float:
        """Estimate the gradient's error from dZ, dV and the sizes of derivatives (`estimated_error`).

        NaN where the loss has kinks, or where torch cannot take the second derivatives of the map. What a unit at its
        kink would add is left out.
        """
        if not self.loss.smooth:
            return math.nan
        try:
            sizes = gradient_sizes(self._model, self._X, self.loss, self._parameters, self._Z, V.value)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, NotImplementedError):  # torch's words for a map that has no forward mode, or no batches
            return math.nan
        return estimated_error(sizes, Z.error, V.error, Z.contraction)


class LayerMaps(LossMaps):
    """The maps of Z = act(factor Z P + inner(X S)), yhat = Z b, in closed form.

    With D and E the slopes of both activations (0 at zero, as PyTorch takes relu's), G = V .* D:

        step: act(factor Z P + Phi);  adjoint: g b' + factor (V .* D) P'
        gradients: factor Z'G in P, X'(G .* E) in S, Z'g in b

    D is read off the state, since relu's slope is 1 exactly where its value is positive: it costs no product. An
    equilibrium takes one N x m by m x m product an iteration, an adjoint likewise, the gradient one in all.

    Args:
        form: The model's form.
        X: Inputs.
        y: Targets.
        like: A tensor of the state's shape.
        loss: The declared loss.
    """

    def __init__(
        self,
        form: SingleLayer,
        X: Float[Tensor, "N d"],
        y: Float[Tensor, " N"],
        like: Float[Tensor, "N m"],
        loss: OutputLoss,
    ) -> None:
        self._form, self._X, self._y, self.loss = form, X, y, loss
        self._cut, self._cut_inner = form.activation is RELU, form.inner is RELU
        self._Phi, self._passed, self._inner = (torch.empty_like(like) for _ in range(3))
        self._inner_of_rows: list[tuple[Tensor, Tensor]] = []  # since the last evaluation of all rows, the latest last
        self._residual = torch.empty_like(y)
        largest = float(X.abs().max()) or 1.0  # whose square may overflow
        scaled = X / largest
        gram = scaled @ scaled.T if X.shape[0] <= X.shape[1] else scaled.T @ scaled
        self._size_X = largest * math.sqrt(max(float(torch.linalg.eigvalsh(gram)[-1]), 0.0))
        self._gradients: dict[str, Tensor] | None = None

    def prepare(self, parameters: Mapping[str, Tensor]) -> None:
        """Work out Phi = inner(X S) and its slopes."""
        self._parameters = parameters
        weight, source, readout = (parameters[name] for name in self._form.names)
        self._P, S = (weight.T, source.T) if self._form.transposed else (weight, source)
        self._b = readout
        torch.mm(self._X, S, out=self._Phi)
        if self._cut_inner:
            torch.relu_(self._Phi)
        if self._gradients is None:
            self._gradients = {name: torch.empty_like(value) for name, value in parameters.items()}

    def step(self, Z: Float[Tensor, "N m"], out: Float[Tensor, "N m"]) -> None:
        """Write act(factor Z P + Phi) into `out`."""
        inner = self._inner if self._cut else out
        self._inner_of_rows.clear()
        torch.addmm(self._Phi, Z, self._P, alpha=self._form.factor, out=inner)
        if self._cut:
            torch.clamp_min(inner, 0, out=out)

    def step_of_rows(self, rows: Int[Tensor, " n"]) -> Map:
        """Return the map with these rows of Phi."""
        Phi = self._Phi[rows]
        inner = torch.empty_like(Phi) if self._cut else None
        if inner is not None:
            self._inner_of_rows.append((rows, inner))

        def step(Z: Tensor, out: Tensor) -> None:
            torch.addmm(Phi, Z, self._P, alpha=self._form.factor, out=out if inner is None else inner)
            if inner is not None:
                torch.clamp_min(inner, 0, out=out)

        return step

    def settle(self, Z: Float[Tensor, "N m"], error: float, contraction: float) -> float:
        """Do so where a pre-activation is near a kink; mostly none is, as min |x| >= (sum 1/x^2)^(-1/2) tells."""
        if not self._cut:
            return 0.0
        inverse = torch.reciprocal(self._margin(Z), out=self._passed).view(-1)  # a buffer that the adjoint writes over
        if float(torch.dot(inverse, inverse)) * error**2 < 1:
            return 0.0
        if float(self._inner.abs().min()) > error:
            return 0.0
        return super().settle(Z, error, contraction)

    def _margin(self, image: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the pre-activations at the last evaluation of each row."""
        for some, inner in self._inner_of_rows:
            self._inner.index_copy_(0, some, inner)
        return self._inner if rows is None else self._inner[rows]

    def linearise(self, Z: Float[Tensor, "N m"], loss: Float[Tensor, ""]) -> Float[Tensor, " N"]:
        """Work out r = Z b - y and g; the slopes D are read off Z where they are needed."""
        self._Z, r = Z, self._residual
        torch.addmv(self._y, Z, self._b, beta=-1, out=r)
        self.slope = self.loss.pull(r, loss)
        return r

    def adjoint_step(self, V: Float[Tensor, "N m"], out: Float[Tensor, "N m"]) -> None:
        """Write g b' + factor (V .* D) P' into `out`."""
        passed = _where_positive(V, self._Z, self._passed) if self._cut else V
        torch.outer(self.slope, self._b, out=out)  # in place of a buffer that each product would have to copy
        out.addmm_(passed, self._P.T, alpha=self._form.factor)

    def adjoint_step_of_rows(self, rows: Int[Tensor, " n"]) -> Map:
        """Return the map with these rows of g and of Z."""
        source, Z = torch.outer(self.slope[rows], self._b), self._Z[rows]
        passed = torch.empty_like(source)

        def step(V: Tensor, out: Tensor) -> None:
            cut = _where_positive(V, Z, passed) if self._cut else V
            torch.addmm(source, cut, self._P.T, alpha=self._form.factor, out=out)

        return step

    def newton(self, Z: Float[Tensor, "N m"], image: Float[Tensor, "N m"]) -> bool:
        """Solve D (I - factor P D) = image - Z for each sample, which is exact where no unit switches on the way."""
        slopes = torch.sign(image).unsqueeze(-2) if self._cut else None
        return self._solve_rows(self._P if slopes is None else self._P * slopes, Z, image)

    def adjoint_newton(self, V: Float[Tensor, "N m"], image: Float[Tensor, "N m"]) -> bool:
        """Solve (I - factor D P') = image - V for each sample: exact."""
        weight = self._P.T
        return self._solve_rows(torch.sign(self._Z).unsqueeze(-1) * weight if self._cut else weight, V, image)

    def _solve_rows(self, weight: Tensor, state: Tensor, image: Tensor) -> bool:
        """Add to each row of `state` what solves d (I - factor weight) = image - state; one weight, or one a row."""
        if weight.numel() > NEWTON_ENTRIES:
            return False
        systems = torch.eye(weight.shape[-1], device=weight.device, dtype=weight.dtype) - self._form.factor * weight
        rows = image - state
        rows = rows.unsqueeze(-2) if systems.ndim > 2 else rows
        moved, info = torch.linalg.solve_ex(systems, rows, left=False)
        if bool(info.any()):
            return False
        state.add_(moved.reshape(state.shape))
        return True

    def gradients(self, V: Float[Tensor, "N m"]) -> dict[str, Tensor]:
        """Write the three gradients into their buffers."""
        assert self._gradients is not None, "`prepare` comes first"
        weight, source, readout = (self._gradients[name] for name in self._form.names)
        G, form = (_where_positive(V, self._Z, self._passed) if self._cut else V), self._form
        left, right = (G, self._Z) if form.transposed else (self._Z, G)
        torch.addmm(weight, left.T, right, beta=0, alpha=form.factor, out=weight)
        if self._cut_inner:
            G = _where_positive(G, self._Phi, self._passed)
        left, right = (G, self._X) if form.transposed else (self._X, G)
        torch.mm(left.T, right, out=source)
        torch.mv(self._Z.T, self.slope, out=readout)
        return self._gradients

    def pattern(self) -> Tensor | None:
        """Return where Z and the inner activation are positive, as far as they are cut; None: the loss has kinks."""
        if not self.loss.smooth:
            return None
        on = [value > 0 for value, cut in ((self._Z, self._cut), (self._Phi, self._cut_inner)) if cut]
        return torch.cat(on) if on else self._Z.new_zeros(0, dtype=torch.bool)

    def hessian(self) -> Float[Tensor, "n n"] | None:
        """Differentiate the loss twice, the state of each sample being Phi D (I - factor P D)^-1 on the pattern."""
        if not self.loss.smooth:
            return None
        form, D, E = self._form, torch.ones_like(self._Z), torch.ones_like(self._Phi)
        if self._cut:
            D = (self._Z > 0).to(D)
        if self._cut_inner:
            E = (self._Phi > 0).to(E)
        shapes = {name: value.shape for name, value in self._parameters.items()}
        unit = torch.eye(D.shape[1], dtype=D.dtype, device=D.device)

        def loss(flat: Tensor) -> Tensor:
            parts = flat.split([shape.numel() for shape in shapes.values()])
            values = {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
            weight, source, readout = (values[name] for name in form.names)
            P, S = (weight.T, source.T) if form.transposed else (weight, source)
            systems = unit - form.factor * P * D.unsqueeze(1)
            Z = torch.linalg.solve(systems.mT, ((self._X @ S) * E * D).unsqueeze(2)).squeeze(2)
            return self.loss.value(Z @ readout)

        here = torch.cat([value.reshape(-1) for value in self._parameters.values()])
        found: Tensor = torch.func.jacrev(torch.func.grad(loss))(here)
        return (found + found.T) / 2

    def gradient_error(self, Z: Solved, V: Solved) -> float:
        """Estimate the gradient's error by `layer_error`, with nothing left to cancel between samples.

        Where L = c norm(r)^2/2, norm(g) is sqrt(2 c L); and since g b' is the adjoint's source, norm(b) <= (1 + q)
        norm(V)/norm(g). What a unit at its kink would add is left out.
        """
        q, c = Z.contraction, self.loss.stiffness(self._residual)
        if self.loss.multiple is not None:
            g = math.sqrt(2 * c * V.beside)
            b = (1 + q) * V.norm / g if g else 0.0
        else:
            g, b = (float(torch.linalg.vector_norm(part)) for part in (self.slope, self._b))
        return layer_error(self._form.factor, self._size_X, q, c, Z.norm, V.norm, g, b, dZ=Z.error, dV=V.error)


def _where_positive(value: Tensor, by: Tensor, out: Tensor) -> Tensor:
    """Write the value where `by` is positive and 0 elsewhere: relu's pullback, one pass that needs no slopes."""
    return cast(Tensor, torch.ops.aten.threshold_backward.grad_input(value, by, 0, grad_input=out))


def _write(value: Tensor, out: Tensor) -> None:
    out.copy_(value)
