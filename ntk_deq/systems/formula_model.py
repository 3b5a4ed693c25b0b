"""The model that is a formula: an equilibrium model compiled from a declaration that names no class.

Its formulas are parsed, typed and checked once (`ntk_deq/language/rows.py`), and evaluated in torch. What does not
depend on the state is worked out once a solve. The class of a declaration is compiled once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import ClassVar, Self, cast

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified.arithmetic import matmul, scale
from ntk_deq.certified.dense import Ball
from ntk_deq.certified.scalar import exact
from ntk_deq.equilibrium.slopes import RELU, BallLayer
from ntk_deq.equilibrium.splitting import MonotoneLayer
from ntk_deq.errors import ArgumentError
from ntk_deq.language.declaration import ModelSignature, Role
from ntk_deq.language.row_program import Op, Row
from ntk_deq.language.rows import SHARE, RowModel, averaged, damped, has_samples, rowwise_model
from ntk_deq.language.tree import Expr, Kind, names_in
from ntk_deq.language.types import ONE, SCALAR
from ntk_deq.systems.declared_model import DeclaredModel, WholeModel, shrunk
from ntk_deq.systems.formula_layer import ContractionFactor, DeclaredLayer, declared_layer, monotone_layer
from ntk_deq.systems.formula_values import FixedValues, RowProgram
from ntk_deq.systems.model import SingleLayer
from ntk_deq.systems.parameter_slopes import ParameterSlope, Slopes
from ntk_deq.systems.row_slopes import LinearRows

# 512 columns take well under a tenth of a second.
_WIDEST_SHOWN = 512
_SHORT = 0.9  # the norm of a weight up to which nothing is gained by averaging


@dataclass(frozen=True, eq=False)
class Programs:
    """The formulas of one declaration, ready to be evaluated.

    Attributes:
        rows: The programs, with how samples lie.
        turned: On which axis they lie in the first variable of a role.
        map: The fixed-point map; None: there is no equilibrium.
        predictions: The predictions.
        layer: The layer that the map is seen to be, if it is one.
        factor: The contraction factor, or None: none is declared.
        weight: (1 - a) I + a W where the map is an averaged one (`averaged`), W where it is a damped one (`damped`);
            None: it is the one declared.
        damps: Whether it is a damped one.
    """

    rows: RowModel
    turned: Mapping[Role, int]
    map: RowProgram | None
    predictions: RowProgram
    layer: DeclaredLayer | None
    factor: ContractionFactor | None
    weight: Expr | None
    damps: bool = False

    @classmethod
    def of(cls, signature: ModelSignature) -> Programs:
        """Translate a declaration."""
        rows = rowwise_model(signature)
        turned = {
            role: rows.axes[names[0]] for role in Role if (names := signature.names(role)) and names[0] in rows.axes
        }
        changing = frozenset(rows.typed.depending(set(signature.names(Role.PARAMETER))))

        known: dict[int, bool] = {}

        def parametric(expr: Expr) -> bool:
            if id(expr) not in known:  # the formulas live as long as the class
                known[id(expr)] = not changing.isdisjoint(names_in(expr))
            return known[id(expr)]

        def program(row: Row) -> RowProgram:
            return RowProgram(row, parametric)

        root, contraction, weight = rows.map, rows.typed.contraction, None
        layer = declared_layer(signature, rows)
        found = averaged(root) if signature.monotone and root is not None else None
        slow = None
        if signature.monotone and root is not None and rows.inside is not None and found is None:
            slow = damped(root, rows.inside)
        if found is not None:
            layer, (root, weight) = None, found
            contraction = Expr(Kind.CALL, weight.span, args=(weight,), name="norm", type=SCALAR)
        elif slow is not None:
            layer, (root, weight), contraction = None, slow, None
        factor = None if contraction is None else ContractionFactor.of(contraction, rows.typed.definitions)
        image = None if root is None else program(root)
        return cls(rows, turned, image, program(rows.predictions), layer, factor, weight, slow is not None)


class FormulaModel(DeclaredModel):
    """A model whose samples do not interact, every part of which is evaluated from its declaration.

    `model_class` makes a subclass for each declaration.

    Args:
        values: Parameters and hyperparameters by name: tensors, or numbers where the shape is that of one.

    Raises:
        ArgumentError: A value is missing or unknown, or a shape, dtype, device or value is outside what is allowed.
    """

    _compiled: ClassVar[Programs]

    def __init_subclass__(cls) -> None:
        """Translate the declaration of a class that has one of its own."""
        if "signature" in cls.__dict__:
            cls._compiled = Programs.of(cls.signature)

    @classmethod
    def of(cls, signature: ModelSignature) -> type[FormulaModel]:
        """Return the class of a model.

        Args:
            signature: The declaration.

        Raises:
            ArgumentError: The formulas are ill-typed, or are not seen to treat samples apart.
        """
        return cls.named(signature)

    def scaled_to(self, contraction: float, kept: frozenset[str]) -> Self:
        """Return the model with the parameters of its contraction factor made smaller, as far as that asks.

        Args:
            contraction: The largest factor.
            kept: Names of what must stay as it is.

        Raises:
            ArgumentError: No smaller parameters contract as asked.
        """
        factor = self._compiled.factor
        if factor is None or self._compiled.weight is not None:
            return self
        used, definitions = names_in(factor.expr), self._compiled.rows.typed.definitions
        for name in reversed(list(definitions)):
            used |= names_in(definitions[name]) if name in used else set()
        start = {name: value for name, value in self.parameters().items() if name in used - kept}
        found = shrunk(start, lambda values: float(self.contraction_bound(values)), contraction)
        if found is None:
            raise ArgumentError(
                f"No smaller {', '.join(start) or 'parameters'} of {self.signature.name} make its contraction factor "
                f"{contraction:g} or less."
            )
        return self.with_parameters(found)

    def step(
        self, Z: Float[Tensor, "*N m"], X: Float[Tensor, "*N d"], parameters: Mapping[str, Tensor] | None = None
    ) -> Float[Tensor, "*N m"]:
        """Return the map at Z; one sample may also come as a vector."""
        return self.step_at(X, parameters)(Z)

    def step_at(
        self, X: Float[Tensor, "N d"], parameters: Mapping[str, Tensor] | None = None
    ) -> Callable[[Tensor], Tensor]:
        """Return the map Z -> step(Z, X) with all that does not depend on Z worked out once."""
        if X.ndim == 1:
            inner = self.step_at(self.inputs_of(X[None]), parameters)
            return lambda Z: inner(Z[None])[0]
        program, layer, rows = self._compiled.map, self._compiled.layer, self.input_rows(X)
        if program is None:
            return lambda Z: Z
        if layer is not None:
            return layer.map(self._values if parameters is None else self._all(parameters), rows)
        return program.at(rows, self.fixed_values(parameters, rows)).compiled

    def adjoint_step_at(
        self,
        Z: Float[Tensor, "N m"],
        X: Float[Tensor, "N d"],
        parameters: Mapping[str, Tensor] | None = None,
        output: int = 0,
    ) -> Callable[[Tensor], Tensor]:
        """Return the map V -> d yhat/dZ + (d step/dZ)' V at Z, its slopes worked out once."""
        program, rows = self._compiled.map, self.input_rows(X)
        if program is None:
            return lambda V: V
        fixed = self.fixed_values(parameters, rows)
        at = LinearRows(program.at(rows, fixed), Z)
        read = LinearRows(self._compiled.predictions.at(rows, fixed), Z)
        source = read.pulled(self._unit(read.value, output))
        return at.pulling(torch.zeros_like(Z) if source is None else source)

    @property
    def outputs(self) -> int | None:
        """How many outputs a sample has, where the predictions are a matrix; None: they are a vector."""
        declared = self._compiled.rows.typed.predictions.type
        assert declared is not None  # as it is typed
        width = self._compiled.predictions.root.width
        return None if declared.cols == ONE else width.evaluate(self.sizes)

    def predictions(
        self, Z: Float[Tensor, "N m"], X: Float[Tensor, "N d"], parameters: Mapping[str, Tensor] | None = None
    ) -> Float[Tensor, N * k]:
        """Return the predictions that the model declares, one sample a row."""
        rows = self.input_rows(X)
        found = self._compiled.predictions.at(rows, self.fixed_values(parameters, rows)).value(Z)
        return found.squeeze(-1) if self.outputs is None else found

    def readout(self, Z: Float[Tensor, "*N m"], parameters: Mapping[str, Tensor] | None = None) -> Float[Tensor, "*N"]:
        """Return the predictions that the model declares, where they are a formula of the state."""
        if Z.ndim == 1:
            return self.readout(Z[None], parameters)[0]
        if any(step.op is Op.INPUT for step in self._compiled.predictions.steps):
            raise ArgumentError(f"The predictions of {self.signature.name} read its inputs; `predictions` takes both.")
        found = self._compiled.predictions.at(Z, self.fixed_values(parameters, Z)).value(Z)
        return found.squeeze(-1) if self.outputs is None else found

    def initial_state(self, X: Float[Tensor, "*N d"]) -> Float[Tensor, "*N m"]:
        """Return zeros with the dtype and device of X; a system without an equilibrium has a state of no entries."""
        if X.ndim == 1:
            return self.initial_state(self.inputs_of(X[None]))[0]
        rows, image = self.input_rows(X), self._compiled.rows.map
        own = image is not None and image.width.letters <= self.sizes.keys()
        sizes = self.sizes if own else self._sizes({**self._values, **self._inputs(X)})
        width = 0 if image is None else image.width.evaluate(sizes)
        return X.new_zeros(rows.shape[0], width)

    @property
    def programs(self) -> Programs:
        """The formulas, as programs on matrices with one sample a row."""
        return self._compiled

    def rows_of_state(self, state: Float[Tensor, "_ _"]) -> Float[Tensor, "N m"]:
        """Return a state, as it is declared, with one sample a row."""
        return state.mT if self._compiled.rows.axes[self.signature.state] else state

    def input_rows(self, X: Float[Tensor, "_ _"]) -> Float[Tensor, "N d"]:
        """Return inputs, as they are declared, with one sample a row."""
        return X.mT if self._axis(Role.INPUT) else X

    def inputs_of(self, rows: Float[Tensor, "N d"]) -> Float[Tensor, "_ _"]:
        """Return inputs as they are declared, from one sample a row."""
        return rows.mT if self._axis(Role.INPUT) else rows

    def target_rows(self, y: Float[Tensor, "_ _"]) -> Float[Tensor, N * k]:
        """Return targets, as they are declared, with one sample a row."""
        return y.mT if y.ndim == 2 and self._axis(Role.TARGET) else y

    def declared(self, name: str, rows: Tensor) -> Tensor:
        """Return the state or the predictions as they are declared, from one sample a row.

        Args:
            name: The name of the one or the other.
            rows: The value.
        """
        return rows.mT if rows.ndim == 2 and self._compiled.rows.axes[name] else rows

    def contraction_bound(self, parameters: Mapping[str, Tensor] | None = None) -> Float[Tensor, ""]:
        """Return the contraction factor that the model declares; infinity where it declares none.

        Of a damped map (`damped`) a number q such that errors are within q/(1 - q) residuals, as they are for a
        contraction: that follows from I - W >= m I.
        """
        compiled, like = self._compiled, next(iter(self._values.values())).new_zeros(())
        factor = compiled.factor
        if compiled.map is None:
            return like
        if compiled.damps and compiled.weight is not None:
            return like + _stands_for(self.fixed_of(parameters).value(compiled.weight), self.share)
        return like + math.inf if factor is None else self.fixed_of(parameters).number(factor.expr)

    def _measures(self) -> dict[str, object]:
        """Return the contraction factor, where one is declared; a printed model must not wait on it."""
        factor, text = self._compiled.factor, self.signature.contraction
        if factor is None or not text or max(self.sizes.values(), default=0) > _WIDEST_SHOWN:
            return {}
        return {text: f"{float(self.contraction_bound()):.6g}"}

    def fixed_of(self, parameters: Mapping[str, Tensor] | None) -> FixedValues:
        """Return what is free of samples and of their number, for these parameters in place of the model's own.

        Args:
            parameters: By name; None: the model's own.
        """
        return self._fixed(self._all(parameters), {}, next(iter(self._values.values())).new_zeros(()))

    @property
    def share(self) -> float:
        """The share of the map in the averaged one that is iterated, between 0 and 1.

        One where the weight contracts well by itself; else that for which the averaged weight, (1 - a) I + a W, is
        known to: a = m/L^2 where I - W >= m I and norm(I - W) <= L, or twice as much where that is better.
        """
        weight = self._compiled.weight
        if weight is None:
            return 1.0
        if "_share" not in self.__dict__:
            whole = self._fixed(self._all(None), {}, next(iter(self._values.values())).new_zeros(()), share=1.0)
            self.__dict__["_share"] = _best_share(whole.value(weight))
        share: float = self.__dict__["_share"]
        return share

    def single_layer(self) -> SingleLayer | None:
        """Return the layer that the formulas are seen to be, if they are one."""
        layer = self._compiled.layer
        return None if layer is None else layer.form(self._values)

    def monotone_layer(
        self, X: Float[Tensor, "N d"], parameters: Mapping[str, Tensor] | None = None
    ) -> MonotoneLayer | None:
        """Return the map as it is declared, read as one layer act(W z + c) with act proximal; None: it is none."""
        root, rows = self._compiled.rows.map, self.input_rows(X)
        if root is None:
            return None
        return monotone_layer(root, rows, self.fixed_values(parameters, rows), self._compiled.predictions.parametric)

    def in_balls(self, X: Float[Tensor, "N d"]) -> BallLayer | None:
        """Return that layer in balls."""
        form = self.single_layer()
        if form is None:
            return None
        P, S, r = (self._values[name] for name in form.names)
        P, S = (P.mT, S.mT) if form.transposed else (P, S)
        weight, source, readout, inputs = (Ball(value.double()) for value in (P, S, r[None], self.input_rows(X)))
        scaled = weight if form.factor == 1 else scale(exact(form.factor), weight)
        fed, at_zero = matmul(inputs, source), None
        if form.activation is RELU and form.inner is RELU and bool((idle := ~(P != 0).any(dim=0)).any()):
            # Where a column of P is zero and relu cuts what is fed, the outer relu sees an exact zero.
            at_zero = (fed.centre <= 0 if fed.is_exact else fed.centre < -fed.radius) & idle
        return BallLayer(scaled, form.inner.value(fed), readout, form.activation, at_zero)

    def tangent_factors(
        self, X: Float[Tensor, "N d"], Z: Float[Tensor, "N m"], adjoint: Float[Tensor, "N m"], output: int = 0
    ) -> dict[str, tuple[ParameterSlope, ...]]:
        """Return the slopes of one output in each parameter, as outer products of factors for each sample.

        They are derived: reverse mode on the programs of map and predictions gives, for each place where a formula of
        parameters stands, what comes before and behind it; formulas pass it on to the parameters.

        Raises:
            UnstructuredError: A parameter stands in a formula for which that is no sum of few outer products.
        """
        compiled, rows = self._compiled, self.input_rows(X)
        fixed = self.fixed_values(None, rows)
        read = LinearRows(compiled.predictions.at(rows, fixed), Z)
        single = self.outputs in (None, 1)
        places = read.occurrences(self._unit(read.value, output), unit=single)
        if compiled.map is not None:
            places += LinearRows(compiled.map.at(rows, fixed), Z).occurrences(adjoint)
        names = self.signature.names(Role.PARAMETER)
        found = Slopes(fixed, names, compiled.predictions.parametric).of((place.expr, place.each()) for place in places)
        return {name: tuple(cast(list[ParameterSlope], found.get(name, []))) for name in names}

    def fixed_values(self, parameters: Mapping[str, Tensor] | None, rows: Float[Tensor, "N d"]) -> FixedValues:
        """Return what is free of samples, for these parameters in place of the model's own.

        Args:
            parameters: By name; None: the model's own.
            rows: Inputs, one sample a row.
        """
        return self._fixed(self._all(parameters), self._inputs(self.inputs_of(rows)), rows.new_zeros(()))

    def _unit(self, value: Tensor, output: int) -> Tensor:
        """Return the slope of one output in the predictions of every sample."""
        if value.shape[1] == 1:
            return torch.ones_like(value)
        unit = torch.zeros_like(value)
        unit[:, output] = 1.0
        return unit

    def _axis(self, role: Role) -> int:
        return self._compiled.turned.get(role, 0)

    def _fixed(
        self, values: Mapping[str, Tensor], inputs: Mapping[str, Tensor], like: Tensor, share: float | None = None
    ) -> FixedValues:
        own = values
        if self._compiled.weight is not None:
            values = {**values, SHARE: like + (self.share if share is None else share)}
        sizes = partial(self._sizes, {**inputs, **own})
        return FixedValues(values, sizes, self._compiled.rows.typed.definitions, like)


def _stands_for(weight: Tensor, share: float) -> float:
    """Return what stands for a contraction factor of a damped map."""
    weight = weight.detach().double()
    norm = float(torch.linalg.matrix_norm(weight, ord=2))
    unit = torch.eye(weight.shape[0], dtype=weight.dtype, device=weight.device)
    least = float(torch.linalg.eigvalsh(unit - (weight + weight.mT) / 2)[0])
    if share == 1 and norm < 1:
        return norm  # as the slopes of a proximal map are at most one
    if not least > 0:
        return math.inf
    gain = ((1 - share) + norm / least) / share
    return gain / (1 + gain)


def _best_share(weight: Tensor) -> float:
    """Return a share a for which (1 - a) I + a W is short."""
    weight = weight.double()
    norm = float(torch.linalg.matrix_norm(weight, ord=2))
    if norm <= _SHORT:
        return 1.0
    unit = torch.eye(weight.shape[0], dtype=weight.dtype, device=weight.device)
    long = float(torch.linalg.matrix_norm(unit - weight, ord=2))
    least = float(torch.linalg.eigvalsh(unit - (weight + weight.mT) / 2)[0])
    if not least > 0:
        return 1.0
    found = {1.0: norm}
    for share in (least / long**2, 2 * least / long**2, least / long):
        if share <= 1:
            found[share] = float(torch.linalg.matrix_norm((1 - share) * unit + share * weight, ord=2))
    return min(found, key=found.__getitem__)


@cache
def compiled_class(signature: ModelSignature) -> type[DeclaredModel]:
    """Return the class of a model that is given by its formulas alone.

    One whose samples are seen not to interact works on them row by row. Of a system without an equilibrium that has no
    samples, or mixes them, only the loss is computed, as it stands.

    Args:
        signature: The declaration.

    Raises:
        ArgumentError: The formulas are ill-typed, or those of an equilibrium are not seen to treat samples apart.

    Example:
        >>> import torch
        >>> from dataclasses import replace
        >>> from ntk_deq.language.declaration import LINEAR_IMPLICIT
        >>> cls = compiled_class(replace(LINEAR_IMPLICIT, name="my-linear", implementation=""))
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> cls(W=one / 2, U=one, b=one[0]).step(2 * one, one)
        tensor([[2.]], dtype=torch.float64)
    """
    DeclaredModel.check_names(signature)
    if signature.has_equilibrium:
        return FormulaModel.of(signature)
    if not has_samples(signature):
        return WholeModel.of(signature, "it has no inputs, and so no samples")
    try:
        return FormulaModel.of(signature)
    except ArgumentError as error:
        return WholeModel.of(signature, str(error))
