"""What every model that is given by its declaration alone has: values by name, a draw, how it is shown.

Values for parameters and hyperparameters where only the sizes are given. The plainest such model: a system without an
equilibrium whose loss is minimised as it stands, since it has no samples, or mixes them. Nothing is solved for in it,
and there is no tangent kernel of single samples; `reason` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium.result import html_table, one_line
from ntk_deq.errors import ArgumentError
from ntk_deq.language.declaration import ModelSignature, Role, Variable
from ntk_deq.language.domain import DomainKind, parse_domain
from ntk_deq.language.families import split_member
from ntk_deq.language.loss import PREDICTIONS, is_smooth
from ntk_deq.language.rows import TypedModel, typed_model
from ntk_deq.systems.checks import check_domain, check_variables, named_values, owned_variables
from ntk_deq.systems.formula_values import FixedValues
from ntk_deq.systems.solve import AnsweringModel

Value = Tensor | float | Sequence[Tensor | float]
"""A value of a variable, or those of the members of a family."""


_MAPS = frozenset({"step", "step_at", "adjoint_step_at", "predictions", "readout", "single_layer"})


_HALVINGS = 60  # of the factor by which parameters are made smaller


def drawn_values(
    signature: ModelSignature,
    generator: torch.Generator,
    sizes: Mapping[str, int],
    given: Mapping[str, Tensor | float],
) -> dict[str, Tensor]:
    """Draw what is not given, in float64: parameters from N(0, 1/columns), numbers from the middle of their domain.

    Args:
        signature: The model.
        generator: A generator on the CPU.
        sizes: Values of the size letters.
        given: Values that are not drawn.

    Raises:
        ArgumentError: A size is missing, unknown or below one, or a value that is given has no name of the model's.
    """
    owned = [variable for variable in signature.variables if variable.role in (Role.PARAMETER, Role.HYPERPARAMETER)]
    names = [variable.name for variable in owned]
    needed = list(dict.fromkeys(letter for own in owned if own.name not in given for letter in own.shape))
    for letter, size in sizes.items():
        if letter not in signature.sizes:
            allowed = ", ".join(signature.sizes) or "none"
            hint = f" Values of variables go into `values={{{letter!r}: ...}}`." if letter in names else ""
            raise ArgumentError(f"Sizes of {signature.name} must be among {allowed}. Got {letter!r}.{hint}")
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ArgumentError(f"Sizes of {signature.name} must be integers >= 1. Got {letter} = {size!r}.")
    missing = [letter for letter in needed if letter not in sizes]
    if missing:
        raise ArgumentError(f"A draw of {signature.name} needs the sizes {', '.join(missing)}.")
    for name in given:
        if name not in names:
            raise ArgumentError(f"Values of {signature.name} must be among {', '.join(names)}. Got {name!r}.")
    found = {}
    for own in owned:
        value = given.get(own.name)
        if value is None:
            found[own.name] = _drawn(own, generator, sizes)
        else:
            found[own.name] = torch.as_tensor(value, dtype=torch.float64)
    return found


def with_members(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return values by name, each list that stands for a family as its members, in the order of their numbers.

    Args:
        values: By name; of a family a list.
        names: The names that there are, `W[1]` and `W[2]` among them.

    Raises:
        ArgumentError: A list has another number of members.

    Example:
        >>> with_members({"W": [3, 4], "a": 5}, ["a", "W[2]", "W[1]"])
        {'W[1]': 3, 'W[2]': 4, 'a': 5}
    """
    members: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        if (found := split_member(name)) is not None:
            members.setdefault(found[0], []).append((found[1].evaluate({}), name))
    out: dict[str, Any] = {}
    for name, value in values.items():
        if name not in members or not isinstance(value, list | tuple):
            out[name] = value
            continue
        own = [member for _, member in sorted(members[name])]
        if len(own) != len(value):
            raise ArgumentError(f"`{name}` must be a list with {len(own)} members: {', '.join(own)}. Got {len(value)}.")
        out |= dict(zip(own, value, strict=True))
    return out


def _drawn(own: Variable, generator: torch.Generator, sizes: Mapping[str, int]) -> Tensor:
    if not own.shape and own.role is Role.HYPERPARAMETER:
        return torch.tensor(_middle(own), dtype=torch.float64)
    shape = [sizes[letter] for letter in own.shape]
    return torch.randn(shape, generator=generator, dtype=torch.float64) / (shape[-1] if shape else 1) ** 0.5


def _middle(own: Variable) -> float:
    """Return the middle of an interval, its end and one more where it has no other, and one elsewhere."""
    domain = parse_domain(own.domain)[0]
    if domain.kind not in (DomainKind.INTERVAL, DomainKind.INTEGER):
        return 1.0
    low, high = domain.low, domain.high
    if low is None:
        return 0.0 if high is None else float(high) - 1
    if high is None:
        return float(low) + 1
    return float((low + high) / 2) if domain.kind is DomainKind.INTERVAL else float((low + high) // 2)


def shrunk(
    start: Mapping[str, Tensor], factor: Callable[[Mapping[str, Tensor]], float], target: float
) -> dict[str, Tensor] | None:
    """Return values made smaller by one number until a factor is at most a target; None: none are small enough.

    Args:
        start: The values, by name.
        factor: What is to be small, from the values.
        target: How small.
    """
    if factor(start) <= target:
        return dict(start)
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        within = factor({name: middle * value for name, value in start.items()}) <= target
        low, high = (middle, high) if within else (low, middle)
        if within and high - low <= 1e-3 * low:
            break
    return {name: low * value for name, value in start.items()} if low else None


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
        values = with_members(named_values(signature, first, values), names)
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
        models = [cls for cls in type(self).__mro__ if issubclass(cls, DeclaredModel)]
        written = [cls for cls in models if cls.__module__.partition(".")[0] != __name__.partition(".")[0]]
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

    @cached_property
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
            **self.sizes,
            **numbers,
            "dtype": str(first.dtype).removeprefix("torch."),
            "device": first.device,
            **self._measures(),
        }

    def __repr__(self) -> str:
        return one_line(type(self).__name__, self._facts())

    def _repr_html_(self) -> str:
        return html_table(self.signature.title, self._facts())


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
