"""A system without an equilibrium whose loss is minimised as it stands: it has no samples, or mixes them.

Nothing is solved for. There is no tangent kernel of single samples, and `reason` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from ntk_deq.errors import ArgumentError
from ntk_deq.language.declaration import ModelSignature, Role
from ntk_deq.language.loss import PREDICTIONS, is_smooth
from ntk_deq.language.rows import TypedModel, typed_model
from ntk_deq.systems.declared_model import DeclaredModel
from ntk_deq.systems.fixed_values import FixedValues


class WholeModel(DeclaredModel):
    """A system whose formulas are evaluated as a whole; `model_class` makes a subclass for each declaration.

    Its state has no entries. Predictions are those of the formula, where it is declared.

    Attributes:
        reason: Why its samples are not looked at one by one.
    """

    _typed: ClassVar[TypedModel]
    reason: ClassVar[str]

    @classmethod
    def of(cls, signature: ModelSignature, reason: str) -> type[WholeModel]:
        """Return the class of a system.

        Args:
            signature: The declaration.
            reason: Why its samples are not looked at one by one.

        Raises:
            ArgumentError: It has no parameter, or a formula is ill-typed.
        """
        if not signature.names(Role.PARAMETER):
            raise ArgumentError(f"The system {signature.name} must have a parameter.")
        return cls.named(signature, _typed=typed_model(signature), reason=reason)

    @property
    def smooth(self) -> bool:
        """Whether no definition has a kink, as far as that is seen."""
        return all(is_smooth(expr, {}) for expr in self._typed.definitions.values())

    def step(
        self, Z: Float[Tensor, "N 0"], X: Float[Tensor, "_ _"], parameters: Mapping[str, Tensor] | None = None
    ) -> Float[Tensor, "N 0"]:
        """Return the state, which has no entries."""
        return Z

    def adjoint_step_at(
        self,
        Z: Float[Tensor, "N 0"],
        X: Float[Tensor, "_ _"],
        parameters: Mapping[str, Tensor] | None = None,
        output: int = 0,
    ) -> Callable[[Tensor], Tensor]:
        """Return the map that gives its argument back."""
        return lambda V: V

    def predictions(
        self, Z: Float[Tensor, "N 0"], X: Float[Tensor, "_ _"], parameters: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """Return what the system predicts, as it is declared; nothing where it predicts nothing."""
        if PREDICTIONS not in self.signature.definitions:
            return X.new_zeros(0)
        values = {**self._all(parameters), **self._inputs(X)}
        fixed = FixedValues(values, lambda: self._sizes(values), self._typed.definitions, X.new_zeros(()))
        found = fixed.value(self._typed.predictions)
        return found.squeeze(-1) if found.ndim == 2 and found.shape[1] == 1 else found

    def readout(self, Z: Float[Tensor, "N 0"], parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        """Refuse: predictions are no formula of a state."""
        raise ArgumentError(f"The system {self.signature.name} has no state to read out; see `predictions`.")

    def initial_state(self, X: Float[Tensor, "_ _"]) -> Float[Tensor, "1 0"]:
        """Return a state without entries."""
        return X.new_zeros(1, 0)

    def contraction_bound(self, parameters: Mapping[str, Tensor] | None = None) -> Float[Tensor, ""]:
        """Return zero."""
        return next(iter(self._values.values())).new_zeros(())

    def data(self, X: Tensor | None, y: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return inputs and targets; what the system does not have must not be given, and comes without entries."""
        found = []
        for name, role, value, shape in (("X", Role.INPUT, X, (1, 0)), ("y", Role.TARGET, y, (0,))):
            has = bool(self.signature.names(role))
            value = None if isinstance(value, Tensor) and value.numel() == 0 else value
            if has is (value is None):
                need = "needs" if has else "has no"
                raise ArgumentError(f"The system {self.signature.name} {need} `{name}`. Got {_kind(value)}.")
            found.append(next(iter(self._values.values())).new_zeros(shape) if value is None else value)
        return found[0], found[1]

    def loss(self, X: Tensor | None = None, y: Tensor | None = None) -> Float[Tensor, ""]:
        """Return the declared loss.

        Args:
            X: Inputs, where the system has some.
            y: Targets, likewise.
        """
        return super().loss(*self.data(X, y))


def _kind(value: Tensor | None) -> str:
    return "None" if value is None else type(value).__name__
