"""A user's own `torch.nn.Module` as the map of an equilibrium: floats with honest status, and no certificate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ntk_deq.errors import ArgumentError
from ntk_deq.language.declaration import ModelSignature, Role, Variable
from ntk_deq.systems.solve import AnsweringModel

_PROBES, _FEWER = 3, 2  # samples of the batches on which a module is tried
_STEP, _MOVED = 1e-6, 1e-3  # of the differences; relative, of the values at which they are taken
_LOST, _LEAST = 1e-4, 1e-7  # central differences at that step are good to about 1e-9 of what they are made of
_SAME = 1e-6  # relative; what a module may make of a row alone and among others, in single precision


class ModuleModel(AnsweringModel):
    """A model z = cell(z, x) with predictions readout(z), of modules of the user's own.

    One sample is one row. Where a sample's state has more axes, as channels, height and width of an image, the modules
    get and return states of that shape, and the state of a solve has them in one row. The contraction factor is not
    known, so that results have a status and no error bound; the tangent kernel is worked out sample by sample
    (`KernelMethod.ADJOINT`).

    Args:
        cell: Takes states N x m and inputs N x d and returns states.
        readout: Takes states and returns N predictions, or N x k.
        width: m, or the shape of a sample's state.
        inputs: d, or the shape of a sample's input.
        outputs: k where the readout returns a matrix; None: it returns a vector.
        values: Parameters in place of the modules' own, by name.
    """

    def __init__(
        self,
        cell: nn.Module,
        readout: nn.Module,
        width: int | tuple[int, ...],
        inputs: int | tuple[int, ...],
        outputs: int | None = None,
        values: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._cell, self._readout, self._width, self._inputs = cell, readout, _shape(width), _shape(inputs)
        own = {f"cell.{name}": value for name, value in cell.named_parameters()}
        own |= {f"readout.{name}": value for name, value in readout.named_parameters()}
        self._values = own if values is None else {name: values[name] for name in own}
        self._outputs = outputs
        self.signature = _signature(  # type: ignore[misc]
            type(cell).__name__, self._values, math.prod(self._width), self._inputs, outputs
        )

    @property
    def outputs(self) -> int | None:
        """How many outputs a sample has, where the readout returns a matrix; None: it returns a vector."""
        return self._outputs

    @property
    def single_precision(self) -> bool:
        """Whether its maps may be evaluated in single precision: a module may hold tensors that are none of these."""
        return False

    @classmethod
    def from_variables(cls, values: Mapping[str, Tensor]) -> ModuleModel:
        """Refuse: modules are not made from values alone."""
        raise ArgumentError("A model of modules is made by `equilibrium_module`, and moved by `with_parameters`.")

    def with_parameters(self, parameters: Mapping[str, Tensor]) -> ModuleModel:
        """Return the model with other values of these parameters."""
        values = {**self._values, **parameters}
        return ModuleModel(self._cell, self._readout, self._width, self._inputs, self._outputs, values)

    def parameters(self) -> dict[str, Tensor]:
        """Return the trainable tensors by name: `cell.` or `readout.` and the name in the module."""
        return dict(self._values)

    def step(
        self, Z: Float[Tensor, "N m"], X: Float[Tensor, "N d"], parameters: Mapping[str, Tensor] | None = None
    ) -> Float[Tensor, "N m"]:
        """Apply the cell once."""
        image = self._call(self._cell, "cell.", parameters, self._shaped(Z, self._width), X)
        return image.flatten(1) if image.ndim > 1 else image

    def readout(self, Z: Float[Tensor, "N m"], parameters: Mapping[str, Tensor] | None = None) -> Float[Tensor, N * k]:
        """Return the predictions."""
        return self._call(self._readout, "readout.", parameters, self._shaped(Z, self._width))

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of a sample's input."""
        return self._inputs

    def input_rows(self, X: Float[Tensor, "N ..."]) -> Float[Tensor, "N d"]:
        """Return inputs with one sample a row."""
        return X if X.ndim == 2 else X.flatten(1)

    def inputs_of(self, rows: Float[Tensor, "N d"]) -> Float[Tensor, "N ..."]:
        """Return inputs in the shape that the cell takes, from one sample a row."""
        return self._shaped(rows, self._inputs)

    @staticmethod
    def _shaped(rows: Tensor, shape: tuple[int, ...]) -> Tensor:
        return rows if len(shape) == 1 else rows.reshape(*rows.shape[:-1], *shape)

    def _call(self, module: nn.Module, prefix: str, parameters: Mapping[str, Tensor] | None, *args: Tensor) -> Tensor:
        values = {**self._values, **(parameters or {})}
        own = {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
        found: Tensor = torch.func.functional_call(module, own, args)
        return found

    def initial_state(self, X: Float[Tensor, "N d"]) -> Float[Tensor, "N m"]:
        """Return zeros."""
        return X.new_zeros(X.shape[0], math.prod(self._width))

    def contraction_bound(self, parameters: Mapping[str, Tensor] | None = None) -> Float[Tensor, ""]:
        """Return infinity: nothing is known."""
        first = next(iter(self._values.values()))
        return first.detach().new_full((), math.inf)

    def __repr__(self) -> str:
        count = sum(value.numel() for value in self._values.values())
        m, d = (" x ".join(map(str, shape)) for shape in (self._width, self._inputs))
        return f"ModuleModel({type(self._cell).__name__}, m={m}, d={d}, {count} parameters)"


def equilibrium_module(
    cell: nn.Module,
    readout: nn.Module,
    *,
    width: int | tuple[int, ...] | None = None,
    inputs: int | tuple[int, ...] | None = None,
) -> ModuleModel:
    """Make a model of a map and a readout written as `torch.nn.Module`.

    The modules are tried on random rows first: samples must not interact, two calls must agree, what comes back must
    have the precision of what went in, and derivatives must agree with difference quotients in float64.

    Args:
        cell: Takes states N x m and inputs N x d and returns states.
        readout: Takes states and returns N predictions, or N x k.
        width: m, or the shape of a sample's state, as (channels, height, width): then the modules get states N x c x h
            x w, and the equilibrium has c h w entries a row. None: read off the modules' parameters.
        inputs: d, or the shape of a sample's input; then inputs are N x c x h x w. None: read off likewise.

    Raises:
        ArgumentError: Sizes are left out, and none or several of those of the parameters fit. There is no parameter,
            another shape or precision comes back, samples interact (batch norm in training mode), two calls differ
            (dropout in training mode), or derivatives are lost on the way (NumPy, `.item()`, `.detach()`).

    Example:
        >>> class Cell(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.W, self.U = nn.Linear(4, 4, bias=False), nn.Linear(3, 4)
        ...     def forward(self, z, x):
        ...         return torch.tanh(0.3 * self.W(z) + self.U(x))
        >>> _ = torch.manual_seed(0)
        >>> model = equilibrium_module(Cell().double(), nn.Linear(4, 1).double())
        >>> model.solve(torch.eye(3, dtype=torch.float64)).all_converged
        True
    """
    for name, module in (("cell", cell), ("readout", readout)):
        if not isinstance(module, nn.Module):
            raise ArgumentError(
                f"`{name}` of equilibrium_module must be a torch.nn.Module. Got {type(module).__name__}."
            )
    for name, size in (("width", width), ("inputs", inputs)):
        if size is None:
            continue
        sizes = size if isinstance(size, tuple) and size else (size,)
        if any(isinstance(each, bool) or not isinstance(each, int) or each < 1 for each in sizes):
            raise ArgumentError(
                f"`{name}` of equilibrium_module must be an integer >= 1, or a tuple of them. Got {size!r}."
            )
    own = [*cell.named_parameters(), *readout.named_parameters()]
    if not own:
        raise ArgumentError("`cell` and `readout` of equilibrium_module have no parameter: there is nothing to train.")
    if width is None or inputs is None:
        width, inputs = _fitting_sizes(cell, readout, width, inputs)
    model = ModuleModel(deepcopy(cell), deepcopy(readout), width, inputs)  # some change as they are called
    first = own[0][1]
    if first.dtype not in (torch.float64, torch.float32):
        raise ArgumentError(f"The parameters of equilibrium_module must be float64 or float32. Got {first.dtype}.")
    generator = torch.Generator().manual_seed(0)
    Z, X = (
        torch.randn(_PROBES, *size, generator=generator, dtype=torch.float64).to(first)
        for size in ((math.prod(_shape(width)),), _shape(inputs))
    )
    with torch.no_grad(), _random_state_kept():
        image = _tried("cell", lambda *rows: model.step(*rows), Z, X)
        if image.shape != Z.shape:
            shapes = f"the states' shape {tuple(Z.shape)}. Got {tuple(image.shape)}"
            flat = "" if len(_shape(width)) == 1 else ", both with one state a row"
            raise ArgumentError(f"`cell` of equilibrium_module must return {shapes}{flat}.")
        found = _tried("readout", lambda *rows: model.readout(*rows), Z)
        if found.ndim not in (1, 2) or found.shape[0] != _PROBES:
            raise ArgumentError(
                f"`readout` of equilibrium_module must return one prediction a row, or one row of them. "
                f"Got shape {tuple(found.shape)} for {_PROBES} rows."
            )
        for name, value in (("cell", image), ("readout", found)):
            if value.dtype != first.dtype:
                raise ArgumentError(
                    f"`{name}` of equilibrium_module must return {first.dtype}, as its parameters are. "
                    f"Got {value.dtype}."
                )
    with _random_state_kept():
        _check_derivatives(model, Z, X, generator)
    return ModuleModel(cell, readout, width, inputs, None if found.ndim == 1 else found.shape[1])


def _fitting_sizes(
    cell: nn.Module, readout: nn.Module, width: int | tuple[int, ...] | None, inputs: int | tuple[int, ...] | None
) -> tuple[int | tuple[int, ...], int | tuple[int, ...]]:
    """Return the only width and inputs, among the sizes of the parameters, on which both modules work.

    Raises:
        ArgumentError: None or several fit.
    """
    values = [*cell.parameters(), *readout.parameters()]
    sizes = sorted({size for value in values for size in value.shape})
    fitting, last = [], ""
    for m, d in product(sizes if width is None else [width], sizes if inputs is None else [inputs]):
        Z, X = (torch.zeros(_PROBES, *_shape(size), dtype=values[0].dtype, device=values[0].device) for size in (m, d))
        try:
            with torch.no_grad(), _random_state_kept():
                image = deepcopy(cell)(Z, X)
                if image.shape != Z.shape:
                    last = f"the cell returns {tuple(image.shape)} for states {tuple(Z.shape)}"
                    continue
                deepcopy(readout)(Z)
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
            last = last or f"for states {tuple(Z.shape)} and inputs {tuple(X.shape)}: {error}"
            continue
        fitting.append((m, d))
    if len(fitting) == 1:
        return fitting[0]
    found = f"{len(fitting)} choices fit: " + "; ".join(f"width={m}, inputs={d}" for m, d in fitting)
    reason = found if fitting else f"no size of a parameter fits; {last}"
    raise ArgumentError(f"`width` and `inputs` of equilibrium_module must be given where {reason}.")


def _check_derivatives(model: ModuleModel, Z: Tensor, X: Tensor, generator: torch.Generator) -> None:
    """Refuse modules whose derivatives are not what differences of their values are, in one direction of each argument.

    Args:
        model: Copies of the modules.
        Z: States.
        X: Inputs.
        generator: Of the directions.
    """
    values = {name: value.detach().double() for name, value in model.parameters().items()}
    cell, readout = deepcopy(model._cell).double(), deepcopy(model._readout).double()
    wide = ModuleModel(cell, readout, model._width, model._inputs, model.outputs, values)

    def direction(value: Tensor) -> Tensor:
        return torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value)

    # Off the values that people start from, such as zeros, at which relu has a kink.
    values = {name: value + _MOVED * (1 + value.abs()) * direction(value) for name, value in values.items()}
    arguments = {"the states": Z.double(), "the inputs": X.double(), **values}
    functions = {
        "cell": lambda own: wide.step(own["the states"], own["the inputs"], {name: own[name] for name in values}),
        "readout": lambda own: wide.readout(own["the states"], {name: own[name] for name in values}),
    }
    for module, function in functions.items():
        names = [name for name in arguments if name.startswith((module + ".", "the "))]
        names = [name for name in names if module == "cell" or name != "the inputs"]
        own = {name: value.clone().requires_grad_() for name, value in arguments.items()}
        try:
            with torch.no_grad():
                function(arguments)
        except (RuntimeError, TypeError):  # written for single precision alone, whose differences say little
            return
        found = _called(module, lambda *_, function=function, own=own: function(own))
        weights = direction(found.detach())
        total = (found * weights).sum()
        slopes = (
            torch.autograd.grad(total, [own[name] for name in names], allow_unused=True)
            if total.requires_grad
            else [None] * len(names)
        )
        for name, slope in zip(names, slopes, strict=True):
            along = direction(arguments[name])
            with torch.no_grad():
                ahead, back = (
                    function({**arguments, name: arguments[name] + sign * _STEP * along}) for sign in (1.0, -1.0)
                )
            moved = (ahead - back) / (2 * _STEP) * weights
            wanted, size = float(moved.sum()), float(moved.abs().sum())
            got = 0.0 if slope is None else float((slope * along).sum())
            if abs(got - wanted) > _LOST * size + _LEAST and math.isfinite(wanted):
                raise ArgumentError(
                    f"`{module}` of equilibrium_module loses derivatives with respect to {name}: in a random direction "
                    f"they say {got:.6g}, and differences of its values {wanted:.6g}. NumPy, `.item()`, `.detach()` "
                    "and `torch.no_grad()` cut them off."
                )


def _tried(name: str, function: Callable[..., Tensor], *rows: Tensor) -> Tensor:
    """Return a module's value on some rows; refuse one that is random, changes, or makes samples interact."""
    before = _called(name, function, *rows)
    if not isinstance(before, Tensor) or before.ndim == 0:
        raise ArgumentError(f"`{name}` of equilibrium_module must return a tensor. Got {type(before).__name__}.")
    if not bool(before.isfinite().all()):
        raise ArgumentError(
            f"`{name}` of equilibrium_module must return finite numbers. Got "
            f"{int((~before.isfinite()).sum())} of {before.numel()} that are NaN or infinite, for random rows."
        )
    again = _called(name, function, *rows)
    if not _agree(before, again):
        raise ArgumentError(
            f"Two calls of `{name}` of equilibrium_module differ: it draws random numbers, or changes as it is called. "
            "Put it into evaluation mode (`.eval()`)."
        )
    alone = _called(name, function, *(value[:_FEWER] for value in rows))
    if before.shape[0] != rows[0].shape[0] or not _agree(alone, before[:_FEWER]):
        raise ArgumentError(
            f"`{name}` of equilibrium_module makes samples interact: rows are mapped to something else than among "
            "others, as by batch norm in training mode. Put it into evaluation mode (`.eval()`)."
        )
    return before


def _called(name: str, function: Callable[..., Tensor], *rows: Tensor) -> Tensor:
    try:
        return function(*rows)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        shapes = " and ".join(str(tuple(value.shape)) for value in rows)
        where = f"on rows of the shapes {shapes}" if rows else "where derivatives are asked for"
        raise ArgumentError(f"`{name}` of equilibrium_module fails {where}: {error}") from error


def _agree(a: Tensor, b: Tensor) -> bool:
    size = max(float(b.abs().max()), 1.0) if b.numel() else 1.0
    return a.shape == b.shape and bool(((a - b).abs() <= _SAME * size).all())


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """Leave the global random numbers as they were."""
    with torch.random.fork_rng(devices=[]):
        yield


def _shape(size: int | tuple[int, ...]) -> tuple[int, ...]:
    return size if isinstance(size, tuple) else (size,)


def _signature(
    name: str, values: Mapping[str, Tensor], width: int, inputs: tuple[int, ...], outputs: int | None
) -> ModelSignature:
    """Return a declaration of the variables alone; there are no formulas."""
    letters = {width: "m", inputs[0]: "d"} if width != inputs[0] and len(inputs) == 1 else {}
    variables = [
        Variable(key, tuple(letters.get(size, f"n{size}") for size in value.shape), Role.PARAMETER, "")
        for key, value in values.items()
    ]
    targets = ("N",) if outputs is None else ("N", "k")
    axes = ("d",) if len(inputs) == 1 else tuple(f"d{place}" for place in range(1, len(inputs) + 1))
    variables += [Variable("X", ("N", *axes), Role.INPUT, ""), Variable("y", targets, Role.TARGET, "")]
    sizes = tuple(dict.fromkeys(letter for variable in variables for letter in variable.shape))
    return ModelSignature(name, f"Z = {name}(Z, X)", sizes, tuple(variables), "Z", ("N", "m"))
