"""The model that is a formula: an equilibrium model compiled from a declaration that names no class.

Its formulas are parsed, typed and checked once (`ntk_deq/language/rows.py`), and evaluated in torch. What does not
depend on the state is worked out once a solve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified.arithmetic import scale
from ntk_deq.certified.ball import Ball
from ntk_deq.certified.products import matmul
from ntk_deq.certified.scalar import exact
from ntk_deq.equilibrium.slopes import RELU, BallLayer
from ntk_deq.errors import ArgumentError
from ntk_deq.evaluation.environment import ModelFormulas
from ntk_deq.evaluation.floats import TensorNames, tensor_value
from ntk_deq.evaluation.functions.tensors import scalar
from ntk_deq.language.declaration import ModelSignature, Role
from ntk_deq.language.rows import TypedModel, rowwise_model
from ntk_deq.language.tree import Expr, Kind, names_in
from ntk_deq.language.types import ONE, Sort
from ntk_deq.systems.checks import check_variables, owned_variables
from ntk_deq.systems.display import html_table, one_line
from ntk_deq.systems.formula_layer import DeclaredLayer, declared_layer
from ntk_deq.systems.model import EquilibriumModel, HadamardTerm, LayerForm


@dataclass(frozen=True, eq=False)
class _Moving:
    """A formula with its state-free parts taken out, each under a name that no variable has.

    Attributes:
        expr: What is left.
        definitions: The definitions that depend on the state, likewise.
        fixed: The parts.
    """

    expr: Expr
    definitions: Mapping[str, Expr]
    fixed: Mapping[str, Expr]

    @classmethod
    def of(cls, expr: Expr, typed: TypedModel, state: str) -> _Moving:
        """Take out what does not depend on the state."""
        moving, fixed = typed.depending({state}), dict[str, Expr]()

        def rest(part: Expr) -> Expr:
            part = _scaled_last(part, moving)
            if not names_in(part) & moving:
                name = f"#{len(fixed)}"
                fixed[name] = part
                return Expr(Kind.NAME, part.span, name=name, type=part.type)
            return replace(part, args=tuple(map(rest, part.args))) if part.args else part

        used, definitions = names_in(expr), {}
        for name in reversed(list(typed.definitions)):
            if name in used:
                used |= names_in(typed.definitions[name])
                if name in moving:
                    definitions[name] = rest(typed.definitions[name])
        return cls(rest(expr), definitions, fixed)


def _scaled_last(part: Expr, moving: set[str]) -> Expr:
    """Write c*Z*A as Z*(c*A) for a number c, so that the product with the number is none of the state's."""
    if part.kind is not Kind.MULTIPLY or part.args[0].kind is not Kind.MULTIPLY:
        return part
    (number, state), right = part.args[0].args, part.args[1]
    free = not (names_in(number) | names_in(right)) & moving
    if not free or _is_matrix(number) or not _is_matrix(right) or not names_in(state) & moving:
        return part
    return replace(part, args=(state, Expr(Kind.MULTIPLY, part.span, args=(number, right), type=right.type)))


def _is_matrix(expr: Expr) -> bool:
    type_ = expr.type
    return type_ is None or (type_.sort is Sort.MATRIX and (type_.rows, type_.cols) != (ONE, ONE))


@dataclass(frozen=True, eq=False)
class _Compiled:
    """The formulas of one declaration, ready to be evaluated."""

    typed: TypedModel
    map: _Moving
    predictions: _Moving
    layer: DeclaredLayer | None

    @classmethod
    def of(cls, signature: ModelSignature) -> _Compiled:
        typed = rowwise_model(signature)
        image, predictions = (_Moving.of(expr, typed, signature.state) for expr in (typed.map, typed.predictions))
        return cls(typed, image, predictions, declared_layer(signature, typed))


@cache
def compiled_class(signature: ModelSignature) -> type[FormulaModel]:
    """Return the class of a model that is given by its formulas alone.

    Args:
        signature: The declaration.

    Raises:
        ArgumentError: The formulas are ill-typed, or are not seen to treat samples apart.

    Example:
        >>> from ntk_deq.language.library import LINEAR_IMPLICIT
        >>> cls = compiled_class(replace(LINEAR_IMPLICIT, name="my-linear", implementation=""))
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> cls(W=one / 2, U=one, b=one[0]).step(2 * one, one)
        tensor([[2.]], dtype=torch.float64)
    """
    for variable in signature.variables:
        if hasattr(FormulaModel, variable.name):
            raise ArgumentError(
                f"A variable of {signature.name} cannot be called {variable.name!r}: a model's class has an attribute "
                "of that name."
            )
    words = "".join(part.capitalize() for part in signature.name.split("-")) or "Model"
    attributes = {"signature": signature, "_compiled": _Compiled.of(signature), "__doc__": f"{signature.title}."}
    return type(words if words.isidentifier() else "Model", (FormulaModel,), attributes)


class FormulaModel(EquilibriumModel):
    """A model whose every part is evaluated from its declaration; `model_class` makes a subclass for each.

    Args:
        values: Parameters and hyperparameters by name: tensors, or numbers where the shape is that of one.

    Raises:
        ArgumentError: A value is missing or unknown, or a shape, dtype, device or value is outside what is allowed.
    """

    signature: ClassVar[ModelSignature]
    _compiled: ClassVar[_Compiled]

    def __init__(self, **values: Tensor | float) -> None:
        signature = self.signature
        names = signature.names(Role.PARAMETER, Role.HYPERPARAMETER)
        for name in values:
            if name not in names:
                allowed = ", ".join(names)
                raise ArgumentError(f"Variables of {signature.name} must be among {allowed}. Got {name!r}.")
        given = owned_variables(signature, values)  # type: ignore[arg-type]
        like = next((value for value in given.values() if isinstance(value, Tensor) and value.ndim), None)
        for name, value in given.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if number and like is not None and not signature.variable(name).shape:
                given[name] = torch.as_tensor(value, dtype=like.dtype, device=like.device)
        check_variables(signature, given)
        self._values = given

    def __getattr__(self, name: str) -> Tensor:
        """Return a variable by its name."""
        values: dict[str, Tensor] = self.__dict__.get("_values", {})
        if name not in values:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return values[name]

    @classmethod
    def from_variables(cls, values: Mapping[str, Tensor]) -> Self:
        """Build the model from values by variable name; inputs, targets and other names are ignored."""
        return cls(**owned_variables(cls.signature, values))

    def parameters(self) -> dict[str, Tensor]:
        """Return the parameters by name."""
        return {name: self._values[name] for name in self.signature.names(Role.PARAMETER)}

    def step(
        self, Z: Float[Tensor, "*N m"], X: Float[Tensor, "*N d"], parameters: Mapping[str, Tensor] | None = None
    ) -> Float[Tensor, "*N m"]:
        """Return the map at Z; one sample may also come as a vector."""
        if Z.ndim == 1:
            return self.step_at(X[None], parameters)(Z[None])[0]
        return self.step_at(X, parameters)(Z)

    def step_at(
        self, X: Float[Tensor, "N d"], parameters: Mapping[str, Tensor] | None = None
    ) -> Callable[[Tensor], Tensor]:
        """Return the map Z -> step(Z, X) with all that does not depend on Z worked out once."""
        if X.ndim == 1:
            inner = self.step_at(X[None], parameters)
            return lambda Z: inner(Z[None])[0]
        (inputs,) = self.signature.names(Role.INPUT)
        return self._prepared(self._compiled.map, {**self._all(parameters), inputs: X}, X)

    def readout(self, Z: Float[Tensor, "*N m"], parameters: Mapping[str, Tensor] | None = None) -> Float[Tensor, "*N"]:
        """Return the predictions that the model declares."""
        if Z.ndim == 1:
            return self.readout(Z[None], parameters)[0]
        return self._prepared(self._compiled.predictions, self._all(parameters), Z)(Z).squeeze(-1)

    def initial_state(self, X: Float[Tensor, "*N d"]) -> Float[Tensor, "*N m"]:
        """Return zeros with the dtype and device of X."""
        return X.new_zeros(*X.shape[:-1], self._sizes(self._values)[self.signature.state_shape[1]])

    def contraction_bound(self, parameters: Mapping[str, Tensor] | None = None) -> Float[Tensor, ""]:
        """Return the contraction factor that the model declares."""
        values = self._all(parameters)
        like = next(iter(values.values())).new_zeros(())
        return scalar(tensor_value(self._compiled.typed.contraction, self._names(values, like)))

    def layer_form(self) -> LayerForm | None:
        """Return the layer that the formulas are seen to be, if they are one."""
        layer = self._compiled.layer
        return None if layer is None else layer.form(self._values)

    def in_balls(self, X: Float[Tensor, "N d"]) -> BallLayer | None:
        """Return that layer in balls."""
        form = self.layer_form()
        if form is None:
            return None
        P, S, r, inputs = (Ball(value.double()) for value in (*self._layer_values(form), X))
        source = form.inner.value(matmul(inputs, S))
        return BallLayer(scale(exact(form.factor), P), source, r, form.activation)

    def tangent_factors(
        self, X: Float[Tensor, "N d"], Z: Float[Tensor, "N m"], adjoint: Float[Tensor, "N m"]
    ) -> dict[str, tuple[HadamardTerm, ...]] | None:
        """Return the factors of P: c^2 GG' .* ZZ', of S: (G.*E)(G.*E)' .* XX', and of r: ZZ'; None for no layer.

        Symbols:
            G = D .* V: the adjoint V past act; D and E the slopes of act and inner.
        """
        form = self.layer_form()
        if form is None:
            return None
        P, S, _ = self._layer_values(form)
        before = X @ S
        pre = Z @ (form.factor * P) + form.inner.function(before)
        G = adjoint * (pre > 0) if form.activation is RELU else adjoint
        fed = G * (before > 0) if form.inner is RELU else G
        weight, source, readout = form.names
        terms = {
            weight: (HadamardTerm(form.factor**2, (G, Z)),),
            source: (HadamardTerm(1.0, (fed, X)),),
            readout: (HadamardTerm(1.0, (Z,)),),
        }
        return {name: terms[name] for name in self.signature.names(Role.PARAMETER)}

    def _layer_values(self, form: LayerForm) -> tuple[Tensor, Tensor, Tensor]:
        P, S, r = (self._values[name] for name in form.names)
        return (P.mT, S.mT, r[None]) if form.transposed else (P, S, r[None])

    def _all(self, parameters: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
        return {**self._values, **(parameters or {})}

    def _sizes(self, values: Mapping[str, Tensor]) -> dict[str, int]:
        shapes = {variable.name: variable.shape for variable in self.signature.variables}
        return {
            letter: size
            for name, value in values.items()
            for letter, size in zip(shapes[name], value.shape, strict=False)
        }

    def _names(self, values: Mapping[str, Tensor], like: Tensor, count: int = 0) -> TensorNames:
        sizes = {**self._sizes(values), self.signature.state_shape[0]: count}
        variables = {name: value.unsqueeze(-1) if value.ndim == 1 else value for name, value in values.items()}
        typed = self._compiled.typed
        formulas = ModelFormulas(self.signature.state, typed.map, typed.contraction, dict(typed.definitions))
        return TensorNames(variables, sizes, {}, formulas, like)

    def _prepared(self, formula: _Moving, values: Mapping[str, Tensor], rows: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a formula as a function of the state, with its fixed parts evaluated."""
        state, count = self.signature.state, rows.shape[0]
        names = self._names(values, rows.new_zeros(()), count)
        fixed = {name: tensor_value(part, names) for name, part in formula.fixed.items()}
        formulas = ModelFormulas(state, formula.expr, formula.expr, dict(formula.definitions))
        inside = replace(names, variables={**names.variables, **fixed}, formulas=formulas)

        def value(Z: Tensor) -> Tensor:
            return tensor_value(formula.expr, replace(inside, state=Z))

        return value

    def _facts(self) -> dict[str, object]:
        first = next(iter(self.parameters().values()))
        numbers = {name: f"{float(value):.6g}" for name, value in self._values.items() if value.ndim == 0}
        return {
            **self._sizes(self._values),
            **numbers,
            "dtype": str(first.dtype).removeprefix("torch."),
            "device": first.device,
        }

    def __repr__(self) -> str:
        return one_line(type(self).__name__, self._facts())

    def _repr_html_(self) -> str:
        return html_table(self.signature.title, self._facts())
