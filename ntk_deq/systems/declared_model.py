"""What every model that is given by its declaration alone has: values by name, a draw, how it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ntk_deq.errors import ArgumentError
from ntk_deq.language.declaration import ModelSignature, Role
from ntk_deq.systems.checks import check_domain, check_variables, owned_variables
from ntk_deq.systems.display import html_table, one_line
from ntk_deq.systems.draws import drawn_values, with_members
from ntk_deq.systems.methods import AnsweringModel

Value = Tensor | float | Sequence[Tensor | float]
"""A value of a variable, or those of the members of a family."""


_MAPS = frozenset({"step", "step_at", "adjoint_step_at", "predictions", "readout", "layer_form"})


class DeclaredModel(AnsweringModel):
    """A model that is given by its declaration.

    Args:
        first: Parameters and hyperparameters in the order of the declaration: tensors, or numbers where the shape is
            that of one; of a family a list with its members, `[W1, W2]`.
        values: The same by name.

    Raises:
        ArgumentError: A value is missing or unknown, or a shape, dtype, device or value is outside what is allowed.
    """

    signature: ClassVar[ModelSignature]
    _values: dict[str, Tensor]

    def __init__(self, *first: Value, **values: Value) -> None:
        signature = self.signature
        names = signature.names(Role.PARAMETER, Role.HYPERPARAMETER)
        values = with_members(_by_name(signature, names, first, values), names)
        for name in values:
            if name not in names:
                allowed = ", ".join(names)
                raise ArgumentError(f"Variables of {signature.name} must be among {allowed}. Got {name!r}.")
        self._take(owned_variables(signature, values))  # type: ignore[arg-type]
        for name, value in self._values.items():
            check_domain(signature, name, value)

    def _take(self, given: dict[str, Tensor]) -> None:
        """Check values, numbers among them, and keep them."""
        signature, plain = self.signature, torch.zeros((), dtype=torch.float64)
        like = next((value for value in given.values() if isinstance(value, Tensor)), plain)
        for name, value in given.items():
            if isinstance(value, Tensor) or signature.variable(name).shape:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                check_domain(signature, name, value)
            given[name] = torch.as_tensor(value, dtype=like.dtype, device=like.device)
        check_variables(signature, given)
        self.__dict__["_values"] = given

    def __getattr__(self, name: str) -> Tensor:
        """Return a variable by its name."""
        values: dict[str, Tensor] = self.__dict__.get("_values", {})
        if name not in values:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return values[name]

    @property
    def overridden(self) -> bool:
        """Whether a subclass that somebody wrote computes something in its own way, not as the declaration says."""
        written = [cls for cls in type(self).__mro__ if issubclass(cls, DeclaredModel) and not _of_package(cls)]
        return any(not _MAPS.isdisjoint(vars(cls)) for cls in written)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse: a model stays as it is."""
        raise AttributeError(
            f"{name!r} of {type(self).__name__} cannot be set; `with_parameters` returns a model with other values."
        )

    @classmethod
    def from_variables(cls, values: Mapping[str, Tensor]) -> Self:
        """Build the model from values by variable name; inputs, targets and other names are ignored.

        A number may lie outside of the domain that is declared for it: a claim's setting may name another one.
        """
        model = cls.__new__(cls)
        model._take(owned_variables(cls.signature, values))
        return model

    def parameters(self) -> dict[str, Tensor]:
        """Return the parameters by name."""
        return {name: self._values[name] for name in self.signature.names(Role.PARAMETER)}

    @classmethod
    def check_names(cls, signature: ModelSignature) -> None:
        """Refuse a declaration with a variable that is called as an attribute of the class.

        Args:
            signature: The declaration.

        Raises:
            ArgumentError: It has one.
        """
        for variable in signature.variables:
            if hasattr(cls, variable.name):
                raise ArgumentError(
                    f"A variable of {signature.name} cannot be called {variable.name!r}: a model's class has an "
                    "attribute of that name."
                )

    @classmethod
    def named(cls, signature: ModelSignature, **attributes: object) -> type[Self]:
        """Return a subclass that is called as a declaration is.

        Args:
            signature: The declaration.
            attributes: What else it has.
        """
        words = "".join(part.capitalize() for part in signature.name.split("-")) or "Model"
        everything: dict[str, Any] = {
            "signature": signature,
            "__doc__": f"{signature.title}.",
            "__module__": cls.__module__,
            **attributes,
        }
        return type(words if words.isidentifier() else "Model", (cls,), everything)

    @classmethod
    def random(
        cls,
        *,
        generator: torch.Generator,
        contraction: float = 0.5,
        values: Mapping[str, Tensor | float] | None = None,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
        **sizes: int | Sequence[int],
    ) -> Self:
        """Draw a model: every entry of a parameter from N(0, 1/columns), made smaller until the map contracts.

        A hyperparameter that is a number is taken from the middle of its domain; one that is a matrix is drawn.

        Args:
            generator: A generator on the CPU; numbers are drawn there in float64 and then moved.
            contraction: The largest contraction factor, where the system declares a formula for it.
            values: Values that are not drawn, by name.
            dtype: float64 or float32.
            device: Where the model lives.
            sizes: A value for each size letter of parameters and hyperparameters; of a family of sizes a list.

        Raises:
            ArgumentError: A size is missing, unknown or below one, or no smaller parameters contract as asked.
        """
        values = with_members(values or {}, cls.signature.names())
        found = drawn_values(cls.signature, generator, with_members(sizes, cls.signature.sizes), values)
        moved = {name: value.to(device=device, dtype=dtype) for name, value in found.items()}
        return cls(**moved).scaled_to(contraction, frozenset(values or {}))

    def scaled_to(self, contraction: float, kept: frozenset[str]) -> Self:
        """Return the model with parameters made smaller, as far as its contraction factor asks; here as it is.

        Args:
            contraction: The largest factor.
            kept: Names of what must stay as it is.
        """
        return self

    def _all(self, parameters: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
        return {**self._values, **(parameters or {})}

    def _inputs(self, X: Tensor) -> dict[str, Tensor]:
        return dict.fromkeys(self.signature.names(Role.INPUT), X)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes that parameters and hyperparameters fix, by letter."""
        return self._sizes(self._values)

    def _sizes(self, values: Mapping[str, Tensor]) -> dict[str, int]:
        shapes = self.signature.shapes
        return dict(self.signature.depth) | {
            letter: size
            for name, value in values.items()
            for letter, size in zip(shapes[name], value.shape, strict=False)
        }

    def _measures(self) -> dict[str, object]:
        """Return what else is shown of a model; here nothing."""
        return {}

    def _facts(self) -> dict[str, object]:
        first = next(iter(self.parameters().values()))
        numbers = {name: f"{float(value):.6g}" for name, value in self._values.items() if value.ndim == 0}
        return {
            **self._sizes(self._values),
            **numbers,
            "dtype": str(first.dtype).removeprefix("torch."),
            "device": first.device,
            **self._measures(),
        }

    def __repr__(self) -> str:
        return one_line(type(self).__name__, self._facts())

    def _repr_html_(self) -> str:
        return html_table(self.signature.title, self._facts())


def _of_package(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == __name__.partition(".")[0]


def _by_name(
    signature: ModelSignature, names: Sequence[str], first: Sequence[Value], values: Mapping[str, Value]
) -> dict[str, Value]:
    """Return all values by name, those that are given in order first."""
    families = list(dict.fromkeys(name.partition("[")[0] for name in names))
    if len(first) > len(families):
        allowed = ", ".join(families)
        raise ArgumentError(f"Values of {signature.name} must be those of {allowed}. Got {len(first)} in order.")
    ordered = dict(zip(families, first, strict=False))
    for name in ordered:
        if name in values:
            raise ArgumentError(f"`{name}` of {signature.name} is given twice: in order and by its name.")
    return {**ordered, **values}
