"""The maps of one gradient of a declared model's loss, derived from its formulas: no graph is built.

The error of a gradient is estimated by the same reverse mode, with norms in place of what passes: what state and
adjoint are off by goes forwards to every step and backwards to every parameter, products by their norms, functions by
their largest slopes and second derivatives where they are. What a unit at its kink would add is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ntk_deq.equilibrium.starts import RowMap as Map
from ntk_deq.equilibrium.starts import Solved
from ntk_deq.files.archives import stored_count, stored_number
from ntk_deq.language.tree import Expr
from ntk_deq.systems.accuracy import errors_ahead, errors_behind, random_signs
from ntk_deq.systems.declared_model import WholeModel
from ntk_deq.systems.formula_model import FormulaModel
from ntk_deq.systems.formula_values import PreparedRows
from ntk_deq.systems.loss_maps import NEWTON_ENTRIES, AutodiffMaps, LayerMaps, LossMaps
from ntk_deq.systems.model import EquilibriumModel, OutputLoss, output_loss
from ntk_deq.systems.parameter_slopes import Error, Slope, Slopes, Total
from ntk_deq.systems.row_slopes import LinearRows, cuts, has_corner

_WHOLE_APART = 2.0**-36  # relative; far above rounding, and small enough for a difference to be a derivative
_UNITS = 64.0  # roundings, of which each moves an entry by one


class WholeMaps(LossMaps):
    """The loss of a system without samples of its own, and its gradient.

    Args:
        model: The system.
        X: Inputs, without entries where it has none.
        y: Targets, likewise.
        loss: The declared loss.
    """

    def __init__(self, model: WholeModel, X: Float[Tensor, "_ _"], y: Float[Tensor, _ * k], loss: OutputLoss) -> None:
        self._model, self._X, self._y, self.loss = model, X, y, loss

    def prepare(self, parameters: Mapping[str, Tensor]) -> None:
        """Keep the parameters."""
        self._parameters = dict(parameters)

    def step(self, Z: Float[Tensor, "N m"], out: Float[Tensor, "N m"]) -> None:
        """Do nothing: the state has no entries."""

    def step_of_rows(self, rows: Int[Tensor, " n"]) -> Map:
        """Return what does nothing."""
        return lambda Z, out: None

    def linearise(self, Z: Float[Tensor, "N m"], loss: Float[Tensor, ""]) -> Tensor:
        """Return yhat - y where both are there, and write the loss into `loss`."""
        value, self._gradients, predictions, self.slope = self._derived(self._parameters)
        loss.copy_(value)
        return predictions - self._y if predictions.shape == self._y.shape else self._y.new_zeros(0)

    def _derived(self, parameters: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor], Tensor, Tensor]:
        """Return loss, gradients, predictions and the loss' slope in them."""
        with torch.enable_grad():
            own = {name: value.detach().requires_grad_() for name, value in parameters.items()}
            predictions = self._model.predictions(self._model.initial_state(self._X), self._X, own)
            loss = self.loss.value(predictions, own)
            names, asked = list(own), list(own.values())
            if not loss.requires_grad:
                none = {name: torch.zeros_like(value) for name, value in parameters.items()}
                return loss.detach(), none, predictions.detach(), torch.zeros_like(predictions)
            through = [predictions] if predictions.requires_grad else []
            found = torch.autograd.grad(loss, [*asked, *through], allow_unused=True)
        slopes = [torch.zeros_like(v) if g is None else g for v, g in zip([*asked, *through], found, strict=True)]
        slope = slopes[-1] if through else torch.zeros_like(predictions)
        gradients = dict(zip(names, slopes, strict=False))
        return loss.detach(), gradients, predictions.detach(), slope.detach()

    def adjoint_step(self, V: Float[Tensor, "N m"], out: Float[Tensor, "N m"]) -> None:
        """Do nothing likewise."""

    def adjoint_step_of_rows(self, rows: Int[Tensor, " n"]) -> Map:
        """Return what does nothing."""
        return lambda V, out: None

    def gradients(self, V: Float[Tensor, "N m"]) -> dict[str, Tensor]:
        """Return the gradient of the loss in each parameter."""
        return self._gradients

    def pattern(self) -> Tensor | None:
        """Return nothing to compare where the loss is smooth; None: it may have kinks."""
        return self._y.new_zeros(0, dtype=torch.bool) if self._smooth else None

    @property
    def _smooth(self) -> bool:
        return self.loss.smooth and self._model.smooth

    def hessian(self) -> Float[Tensor, "n n"] | None:
        """Differentiate the loss twice."""
        if not self._smooth:
            return None
        shapes = {name: value.shape for name, value in self._parameters.items()}

        def loss(flat: Tensor) -> Tensor:
            parts = flat.split([shape.numel() for shape in shapes.values()])
            own = {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
            return self.loss.value(self._model.predictions(self._model.initial_state(self._X), self._X, own), own)

        here = torch.cat([value.reshape(-1) for value in self._parameters.values()])
        found: Tensor = torch.func.jacrev(torch.func.grad(loss))(here)
        return (found + found.T) / 2

    def gradient_error(self, Z: Solved, V: Solved) -> float:
        """Estimate what rounding makes of the gradient: how far it moves with parameters moved by 2^-36, in units of u.

        A derivative that happens not to move is off by 1e-13 of its size.
        """
        generator = torch.Generator().manual_seed(0)
        moved = {k: v * (1 + _WHOLE_APART * random_signs(v, generator)) for k, v in self._parameters.items()}
        there = self._derived(moved)[1]
        change = math.hypot(*(float((there[name] - own).norm()) for name, own in self._gradients.items()))
        size = math.hypot(*(float(own.norm()) for own in self._gradients.values()))
        eps = torch.finfo(self._y.dtype).eps
        return _UNITS * eps * change / _WHOLE_APART + 1e-13 * size


_APART = 2.0**-22  # relative; differences then have about half the digits
_EVERY = 32  # gradients, after which their error is looked at anew
_NEWTON_STEPS = 2  # exact on one pattern of a piecewise linear map


def loss_maps(model: EquilibriumModel, X: Float[Tensor, "N d"], y: Float[Tensor, " N"]) -> LossMaps:
    """Return fused maps where the model is a `single_layer`, those of its formulas, or automatic ones.

    Args:
        model: The model.
        X: Inputs, one sample a row.
        y: Targets.

    Example:
        >>> from ntk_deq.systems.shipped_models import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> maps = loss_maps(LinearImplicit(W=one / 2, U=one, b=one[0]), one, 0 * one[0])
        >>> maps.prepare({"W": one / 2, "U": one, "b": one[0]})
        >>> loss = one.new_zeros(())
        >>> maps.linearise(2 * one, loss), loss
        (tensor([2.], dtype=torch.float64), tensor(2., dtype=torch.float64))
        >>> {name: value.item() for name, value in maps.gradients(4 * one).items()}  # 4 solves v = 2 + v/2
        {'W': 8.0, 'U': 4.0, 'b': 4.0}
    """
    form, X, y = model.single_layer(), X.detach(), y.detach()
    loss = output_loss(model, X, y)
    if form is not None and not loss.beside:
        return LayerMaps(form, model.input_rows(X).contiguous(), y, model.initial_state(X), loss)
    if isinstance(model, WholeModel):
        return WholeMaps(model, X, y, loss)
    if isinstance(model, FormulaModel) and not model.overridden:
        return CompiledMaps(model, X, y)
    return AutodiffMaps(model, X, y)


class CompiledMaps(LossMaps):
    """The maps of a model whose samples do not interact.

    Args:
        model: The model.
        X: Inputs.
        y: Targets.
    """

    def __init__(self, model: FormulaModel, X: Float[Tensor, "_ _"], y: Float[Tensor, _ * k]) -> None:
        self._model, self._X = model, model.input_rows(X)
        self._y, self.loss = model.target_rows(y), output_loss(model, X, y)
        programs = model.programs
        self._map, self._read = programs.map, programs.predictions
        root = None if self._map is None else self._map.root
        self._cut = root if root is not None and cuts(root) else None
        self._before_rows: list[tuple[Tensor, Tensor]] = []  # since the last evaluation of all rows, the latest last
        self._calls, self._sensitivity = 0, cast("tuple[float, float] | None", None)
        self._before: Tensor | None = None
        self._buffer: Tensor | None = None

    def prepare(self, parameters: Mapping[str, Tensor]) -> None:
        """Work out what does not depend on the state."""
        self._parameters = parameters
        fixed = self._fixed = self._model.fixed_values(parameters, self._X)
        self._image = None if self._map is None else self._map.at(self._X, fixed)
        self._outputs = self._read.at(self._X, fixed)

    def step(self, Z: Float[Tensor, "N m"], out: Float[Tensor, "N m"]) -> None:
        """Write the fixed-point map at Z into `out`."""
        self._before_rows.clear()
        if self._image is None:
            return
        if self._buffer is None and self._cut is not None:
            self._buffer = torch.empty_like(out)
        self._before = self._write(self._image, Z, out, self._buffer)

    def _write(self, image: PreparedRows, Z: Tensor, out: Tensor, buffer: Tensor | None) -> Tensor | None:
        """Write the map's value; return what its relu is taken of, if it ends with one."""
        if buffer is None:
            out.copy_(image.compiled(Z))
            return None
        before = image.before_root(Z, buffer)
        torch.clamp_min(before, 0, out=out)
        return before

    def step_of_rows(self, rows: Int[Tensor, " n"]) -> Map:
        """Return the map at these samples' inputs."""
        if self._image is None:
            return lambda Z, out: None
        image = self._image.of_rows(rows)

        buffer: Tensor | None = None

        def step(Z: Tensor, out: Tensor) -> None:
            nonlocal buffer
            if buffer is None and self._cut is not None:
                buffer = torch.empty_like(out)
            before = self._write(image, Z, out, buffer)
            if before is not None:
                if self._before_rows and self._before_rows[-1][0] is rows:
                    self._before_rows.pop()
                self._before_rows.append((rows, before))

        return step

    def settle(self, Z: Float[Tensor, "N m"], error: float, contraction: float) -> float:
        """Do so where the map ends with a relu, and a pre-activation is near its kink."""
        if self._cut is None or self._before is None or not float(self._margin(Z).abs().min()) <= error:
            return 0.0
        return super().settle(Z, error, contraction)

    def _margin(self, image: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the pre-activations at the last evaluation of each row."""
        assert self._before is not None  # asked of maps that end with a relu
        for some, before in self._before_rows:
            self._before.index_copy_(0, some, before)
        self._before_rows.clear()
        return self._before if rows is None else self._before[rows]

    def linearise(self, Z: Float[Tensor, "N m"], loss: Float[Tensor, ""]) -> Float[Tensor, N * k]:
        """Take derivatives at Z, which the last step wrote: where it ends with a relu, its slopes are read off Z."""
        self._Z, self._at = Z, None if self._image is None else LinearRows(self._image, Z, fixed_point=True)
        self._out = LinearRows(self._outputs, Z)
        predictions = self._out.value if self._y.ndim == 2 else self._out.value.squeeze(1)
        residual = predictions - self._y
        self.slope, self._direct = self.loss.pull_all(residual, loss, self._more())
        self._residual, self._through = residual, self.slope.reshape(self._out.value.shape)
        source = self._out.pulled(self._through)
        self._source = torch.zeros_like(Z) if source is None else source
        if self._state in self._direct:
            self._source = self._source + self._model.rows_of_state(self._direct[self._state])
        return residual

    @property
    def _state(self) -> str:
        return self._model.signature.state

    def _more(self) -> dict[str, Tensor]:
        """Return what the loss may read besides predictions and targets."""
        if not self.loss.beside:
            return {}
        state = {self._state: self._model.declared(self._state, self._Z)} if self._state else {}
        return {**self._parameters, **state}

    def adjoint_step(self, V: Float[Tensor, "N m"], out: Float[Tensor, "N m"]) -> None:
        """Write source + (d step/dZ)'V into `out`."""
        if self._at is not None:
            self._pull(self._at, V, self._source, out)

    def _pull(self, at: LinearRows, V: Tensor, source: Tensor, out: Tensor) -> None:
        found = at.pulled(V, source, out)
        if found is not out:
            assert found is not None  # there is a source
            out.copy_(found)

    def adjoint_step_of_rows(self, rows: Int[Tensor, " n"]) -> Map:
        """Pull back through the step at these samples."""
        if self._image is None or self._at is None:
            return lambda V, out: None
        at, source = self._at.of_rows(rows), self._source[rows]
        return lambda V, out: self._pull(at, V, source, out)

    def newton(self, Z: Float[Tensor, "N m"], image: Float[Tensor, "N m"]) -> bool:
        """Solve (I - J) d = image - Z for each sample, with the map's derivative J there."""
        if self._image is None or not self._may_solve(Z):
            return False
        return self._solve(LinearRows(self._image, Z), Z, image, adjoint=False)

    def adjoint_newton(self, V: Float[Tensor, "N m"], image: Float[Tensor, "N m"]) -> bool:
        """Likewise for the adjoint, whose map is affine: exact."""
        return self._at is not None and self._may_solve(V) and self._solve(self._at, V, image, adjoint=True)

    def _may_solve(self, state: Tensor) -> bool:
        return state.numel() * state.shape[1] <= NEWTON_ENTRIES

    def _solve(self, at: LinearRows, state: Tensor, image: Tensor, *, adjoint: bool) -> bool:
        jacobian = at.jacobian()
        systems = torch.eye(state.shape[1], dtype=state.dtype, device=state.device) - jacobian
        moved, info = torch.linalg.solve_ex(systems.mT if adjoint else systems, (image - state).unsqueeze(-1))
        if bool(info.any()):
            return False
        state.add_(moved.squeeze(-1))
        return True

    def pattern(self) -> Tensor | None:
        """Return on which side of its corner the argument of each function with one is; None: the loss has kinks."""
        if not self.loss.smooth:
            return None
        sides = [
            (at.at(step) > 0 if cuts(step) else at.at(step.args[0]) > 0).reshape(-1)
            for at in (self._at, self._out)
            if at is not None
            for step in at.steps
            if has_corner(step)
        ]
        return torch.cat(sides) if sides else self._Z.new_zeros(0, dtype=torch.bool)

    def hessian(self) -> Float[Tensor, "n n"] | None:
        """Differentiate the gradient by differences; None where the loss has kinks.

        Each parameter is moved, and state and adjoint follow by Newton's steps on the present pattern. It drives an
        implicit integrator, whose result does not depend on how exact it is.
        """
        if not self.loss.smooth:
            return None
        start, Z, V = {name: value.clone() for name, value in self._parameters.items()}, self._Z.clone(), self._V
        here, rows = self._followed(start, Z, V), []
        for name, value in start.items():
            size = _APART * max(float(torch.linalg.vector_norm(value)) / math.sqrt(value.numel()), _APART)
            for place in range(value.numel()):
                moved = value.clone()
                moved.view(-1)[place] += size
                rows.append((self._followed({**start, name: moved}, Z, V) - here) / size)
        self.prepare(start)
        self.linearise(Z, Z.new_zeros(()))
        found = torch.stack(rows)
        return (found + found.T) / 2

    def _followed(self, parameters: Mapping[str, Tensor], Z: Tensor, V: Tensor) -> Tensor:
        """Return the gradient at parameters near by, of the state and adjoint that Newton's steps lead to."""
        self.prepare(parameters)
        state, adjoint, image = Z.clone(), V.clone(), torch.empty_like(Z)
        for _ in range(_NEWTON_STEPS):
            self.step(state, image)
            if not self.newton(state, image):
                break
        if self._image is not None:
            self.step(state, image)
            state = image.clone()
        self.linearise(state, Z.new_zeros(()))
        self.adjoint_step(adjoint, image)
        self.adjoint_newton(adjoint, image)
        return torch.cat([gradient.reshape(-1) for gradient in self.gradients(adjoint).values()])

    def gradients(self, V: Float[Tensor, "N m"]) -> dict[str, Tensor]:
        """Pull V back through the step and g through the readout, in every parameter."""
        self._V = V
        self._read_cotangents = self._out.cotangents(self._through, state=True)
        self._map_cotangents = {} if self._at is None else self._at.cotangents(V, state=True)
        places = self._out.all_places(self._read_cotangents)
        places += [] if self._at is None else self._at.all_places(self._map_cotangents)
        found = self._slopes([(place.expr, place.total()) for place in places])
        gradients = {}
        for name, value in self._parameters.items():
            total = next((slope.matrix for slope in found.get(name, []) if isinstance(slope, Total)), None)
            gradient = torch.zeros_like(value) if total is None else total.reshape(value.shape)
            gradients[name] = gradient + self._direct[name] if name in self._direct else gradient.contiguous()
        return gradients

    def _slopes(self, places: list[tuple[Expr, Slope]]) -> dict[str, list[Slope]]:
        return Slopes(self._fixed, self._parameters, self._read.parametric).of(places)

    def gradient_error(self, Z: Solved, V: Solved) -> float:
        """Estimate the gradient's error from dZ and dV; NaN only where the loss has kinks.

            dV' = dV + (what dZ changes of the adjoint map)/(1 - q)

        It is a dZ + b dV. How strongly both count, a and b, is worked out now and then, and in between taken twice.
        """
        known, self._calls = self._sensitivity, self._calls + 1
        if known is None or self._calls % _EVERY == 0:
            stiffness = self.loss.stiffness(self._residual, self._more())
            if math.isnan(stiffness):
                return math.nan
            q = Z.contraction
            self._sensitivity = self._error(1.0, 0.0, q, stiffness), self._error(0.0, 1.0, q, stiffness)
            return self._sensitivity[0] * Z.error + self._sensitivity[1] * V.error
        return 2 * (known[0] * Z.error + known[1] * V.error)

    def state(self) -> dict[str, Any]:
        """Return what a later run needs to estimate errors in the very same way."""
        return {"calls": self._calls, "sensitivity": None if self._sensitivity is None else list(self._sensitivity)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned.

        Raises:
            ValueError: It is not what such maps return.
        """
        self._calls = stored_count(state["calls"], "calls")
        if state["sensitivity"] is not None:
            by_state, by_adjoint = (stored_number(number, "sensitivity", 0.0) for number in state["sensitivity"])
            self._sensitivity = by_state, by_adjoint

    def _error(self, state: float, adjoint: float, q: float, stiffness: float) -> float:
        """Return the error of the gradient where state and adjoint are off by so much."""
        moved = self._Z.new_tensor(state)
        ahead = errors_ahead(self._out, moved)
        off = ahead.get(self._read.root, torch.zeros_like(moved))
        direct, source, slope = self._loss_errors(off, moved, stiffness)
        read = errors_behind(self._out, self._read_cotangents, slope, ahead)
        places = read.places
        if self._at is not None:
            ahead = errors_ahead(self._at, moved)
            by_state = errors_behind(self._at, self._map_cotangents, torch.zeros_like(moved), ahead).state
            whole = (read.state + by_state + source) / (1 - q) + adjoint
            places = places + errors_behind(self._at, self._map_cotangents, whole, ahead).places
        found = self._slopes(list(places))
        sizes = [slope.size for slopes in found.values() for slope in slopes if isinstance(slope, Error)]
        return float(torch.linalg.vector_norm(torch.stack([*sizes, direct])))

    def _loss_errors(self, predictions: Tensor, state: Tensor, stiffness: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return what the loss' own slopes in parameters, in the state and in the predictions are off by.

        Where it reads more than the predictions, they are estimated by a difference in a direction of signs.
        """
        none = torch.zeros_like(state)
        if not self.loss.beside:
            return none, none, stiffness * predictions
        generator, more, out = torch.Generator().manual_seed(0), dict(self._more()), torch.zeros_like(state)
        residual, step = self._residual, 2.0**-26
        size = max(float(torch.linalg.vector_norm(residual + self._y)), float(torch.linalg.vector_norm(self._Z)), 1.0)
        share = torch.maximum(predictions, state) / (step * size)
        residual = residual + step * size * random_signs(residual, generator, length=1.0)
        if self._state in more:
            more[self._state] = more[self._state] + step * size * random_signs(more[self._state], generator, length=1.0)
        slope, direct = self.loss.pull_all(residual, out, more)
        apart = {name: share * torch.linalg.vector_norm(direct[name] - own) for name, own in self._direct.items()}
        behind = apart.pop(self._state, none)
        ahead = share * torch.linalg.vector_norm(slope - self.slope)
        others = torch.linalg.vector_norm(torch.stack([*apart.values(), none]))
        return others, behind, ahead
