"""Checks of a model's tensors against its signature: shapes, dtype, device, finite values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from ntk_deq.errors import ArgumentError, check_instance, nearest_name
from ntk_deq.language.declaration import ModelSignature, Role
from ntk_deq.language.domain import parse_domain
from ntk_deq.language.loss import ForeignLossError, declared_loss
from ntk_deq.systems.model import EquilibriumModel

T = TypeVar("T")
_FLOATS = (torch.float64, torch.float32)


def check_variables(signature: ModelSignature, values: Mapping[str, Tensor]) -> dict[str, int]:
    """Check tensors against the signature's shapes and against each other, and return the sizes they fix.

    Args:
        signature: The model's signature.
        values: Tensors by variable name; every name must be a variable of the signature.

    Returns:
        The value of each size letter that occurs in the shapes of `values`.

    Raises:
        ArgumentError: Wrong number of axes, sizes that disagree or are zero, a dtype other than float64 or float32,
            tensors of mixed dtype or device, NaN or Inf.

    Example:
        >>> from ntk_deq.language.declaration import IMPLICIT_RELU
        >>> check_variables(IMPLICIT_RELU, {"W": torch.zeros(3, 2), "A": torch.zeros(2, 2)})
        {'d': 3, 'm': 2}
    """
    sizes: dict[str, tuple[int, str]] = {}
    first: tuple[str, Tensor] | None = None
    for name, value in values.items():
        _check_tensor(signature, name, value)
        for letter, size in zip(signature.variable(name).shape, value.shape, strict=True):
            known, owner = sizes.setdefault(letter, (size, name))
            if known != size:
                raise ArgumentError(
                    f"`{name}` of {signature.name} must be {_shape(signature, name)} with {letter} = {known} "
                    f"(as in `{owner}`). Got {tuple(value.shape)}."
                )
        first = first or (name, value)
        _check_alike(signature.name, first, (name, value))
        if not torch.isfinite(value).all():
            raise ArgumentError(f"`{name}` of {signature.name} must be finite. Got NaN or Inf in it.")
    return {letter: size for letter, (size, _) in sizes.items()}


def check_domain(signature: ModelSignature, name: str, value: object) -> None:
    """Refuse a hyperparameter that is a number outside of the interval that is declared for it.

    Args:
        signature: The model.
        name: The variable's name; of another one nothing is asked.
        value: A 0-d tensor; what is no number is refused too.

    Raises:
        ArgumentError: It is outside.

    Example:
        >>> from ntk_deq.language.declaration import IMPLICIT_RELU
        >>> check_domain(IMPLICIT_RELU, "gamma", torch.tensor(1.5))
        Traceback (most recent call last):
            ...
        ntk_deq.errors.ArgumentError: `gamma` of implicit-relu must be a number with 0 < gamma < 1. Got 1.5.
    """
    variable = signature.variable(name)
    if variable.role is not Role.HYPERPARAMETER or variable.shape:
        return
    domain = parse_domain(variable.domain)[0]
    low, high, low_open = domain.low, domain.high, domain.low_open
    left = "" if low is None else f"{low} {'<' if low_open else '<='} "
    right = "" if high is None else f" {'<' if domain.high_open else '<='} {high}"
    number = value.item() if isinstance(value, Tensor) else value
    if not isinstance(number, float) or isinstance(value, bool):
        inside = False
    else:
        inside = (low is None or number > low or (number == low and not low_open)) and (
            high is None or number < high or (number == high and not domain.high_open)
        )
    if not inside:
        allowed = f"a number with {left}{name}{right}" if left or right else "a number"
        raise ArgumentError(f"`{name}` of {signature.name} must be {allowed}. Got {number!r}.")


def named_values(signature: ModelSignature, first: Sequence[T], values: Mapping[str, T]) -> dict[str, T]:
    """Return values by name, some of which were given in the order of the declaration.

    Args:
        signature: The model.
        first: Those that were given in order; a family counts once.
        values: Those that were given by name.

    Raises:
        ArgumentError: There are too many of them, or one is given twice.

    Example:
        >>> from ntk_deq.language.declaration import IMPLICIT_RELU
        >>> named_values(IMPLICIT_RELU, [1, 2], {"gamma": 3})
        {'W': 1, 'A': 2, 'gamma': 3}
    """
    owned = signature.names(Role.PARAMETER, Role.HYPERPARAMETER)
    names = list(dict.fromkeys(name.partition("[")[0] for name in owned))
    if len(first) > len(names):
        allowed = ", ".join(names)
        raise ArgumentError(f"Values of {signature.name} must be those of {allowed}. Got {len(first)} of them.")
    ordered = dict(zip(names, first, strict=False))
    for name in ordered:
        if name in values:
            raise ArgumentError(f"`{name}` of {signature.name} is given twice: in order and by its name.")
    return {**ordered, **values}


def owned_variables(signature: ModelSignature, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Pick the parameters and hyperparameters of a model out of `values`.

    Raises:
        ArgumentError: One is missing; the message names all that are.

    Example:
        >>> from ntk_deq.language.declaration import LINEAR_IMPLICIT
        >>> list(owned_variables(LINEAR_IMPLICIT, {"y": None, "b": None, "U": None, "W": None}))
        ['W', 'U', 'b']
    """
    owned = signature.names(Role.PARAMETER, Role.HYPERPARAMETER)
    missing = [name for name in owned if name not in values]
    if missing:
        got = ", ".join(values) or "none"
        raise ArgumentError(f"Variables of {signature.name} must include {', '.join(missing)}. Got {got}.")
    return {name: values[name] for name in owned}


def check_inputs(model: EquilibriumModel, X: Tensor) -> None:
    """Check that `X` is an input of the model: N x d with N >= 1, finite, with the parameters' dtype and device.

    Raises:
        ArgumentError: It is not; the message names the first thing that is wrong.

    Example:
        >>> from ntk_deq.systems import ImplicitReLU
        >>> model = ImplicitReLU.random(3, 4, generator=torch.Generator().manual_seed(0))
        >>> check_inputs(model, torch.ones(2, 3, dtype=torch.float64))
    """
    check_variables(model.signature, {**model.parameters(), **dict.fromkeys(model.signature.names(Role.INPUT), X)})


def check_model(model: object, where: str) -> None:
    """Refuse what is no model.

    Args:
        model: What was given.
        where: Whose argument it is.

    Raises:
        ArgumentError: It is none.

    Example:
        >>> check_model("implicit-relu", "train")
        Traceback (most recent call last):
            ...
        ntk_deq.errors.ArgumentError: `model` of train must be an equilibrium model. Got 'implicit-relu'.
    """
    check_instance(model, EquilibriumModel, "model", where, "an equilibrium model")


def check_samples(
    model: EquilibriumModel,
    X: Tensor,
    where: str,
    *,
    parameters: Mapping[str, Tensor] | None = None,
    initial: Tensor | None = None,
) -> None:
    """Check the arguments of a solve: what is looked at are kinds and shapes, no values.

    A sample may hold NaN, which the solve reports for that sample alone, and there may be no samples at all.

    Args:
        model: The model.
        X: Inputs, one sample a row.
        where: The function that was called.
        parameters: Values in place of the model's own; their names are checked.
        initial: A state to start from, or None.

    Raises:
        ArgumentError: The message names the first thing that is wrong.

    Example:
        >>> from ntk_deq.systems import ImplicitReLU
        >>> model = ImplicitReLU.random(3, 4, generator=torch.Generator().manual_seed(0))
        >>> check_samples(model, torch.ones(3, dtype=torch.float64), "predict")
        Traceback (most recent call last):
            ...
        ntk_deq.errors.ArgumentError: `X` of predict must be a matrix, one sample a row. Got shape (3,).
    """
    check_model(model, where)
    own = model.parameters()
    if parameters is not None and not isinstance(parameters, Mapping):
        raise ArgumentError(f"`parameters` of {where} must be a mapping of tensors. Got {type(parameters).__name__}.")
    for name, value in (parameters or {}).items():
        if name not in own:
            near = nearest_name(str(name), own)
            hint = f" Did you mean {near!r}?" if near else ""
            raise ArgumentError(
                f"The model {model.signature.name} has no parameter {name!r}. Its parameters: {', '.join(own)}.{hint}"
            )
        check_like(f"`{name}` in `parameters` of {where}", value, own[name])
    first = next(iter(own.values()))
    check_like(f"`X` of {where}", X, first, shaped=False)
    width, shape = _input_width(model), model.input_shape
    if shape is not None and len(shape) > 1:
        if X.shape[1:] != shape:
            got = f"Got shape {tuple(X.shape)}."
            raise ArgumentError(f"`X` of {where} must be N x {' x '.join(map(str, shape))}, as the model has. {got}")
    elif X.ndim != 2:
        lie = "row" if model.input_rows(X.new_zeros(1, 2)).shape[0] == 1 else "column"
        raise ArgumentError(f"`X` of {where} must be a matrix, one sample a {lie}. Got shape {tuple(X.shape)}.")
    elif width is not None and model.input_rows(X).shape[1] != width:
        across = "columns" if model.input_rows(X) is X else "rows"
        raise ArgumentError(f"`X` of {where} must have {width} {across}, as the model has. Got shape {tuple(X.shape)}.")
    if initial is not None:
        check_like(f"`initial` of {where}", initial, model.initial_state(X))


def check_loss(signature: ModelSignature, where: str) -> None:
    """Refuse a model whose declared loss depends on more than predictions, targets and sizes.

    Args:
        signature: The model's declaration.
        where: What would minimise it.

    Raises:
        ArgumentError: It does.

    Example:
        >>> from ntk_deq.language.declaration import IMPLICIT_RELU
        >>> check_loss(IMPLICIT_RELU, "gradient-descent")
    """
    try:
        declared_loss(signature)
    except ForeignLossError as error:
        raise ArgumentError(f"{where}: {error}") from error


def check_problem(model: EquilibriumModel, X: Tensor, y: Tensor, where: str) -> None:
    """Refuse a model, inputs or targets that are of the wrong kind or do not fit each other.

    Args:
        model: The model.
        X: Inputs, one sample a row.
        y: Targets.
        where: Whose arguments they are.

    Raises:
        ArgumentError: The message names the first thing that is wrong.

    Example:
        >>> from ntk_deq.systems import ImplicitReLU
        >>> model = ImplicitReLU.random(2, 3, generator=torch.Generator().manual_seed(0))
        >>> X = torch.eye(2, dtype=torch.float64)
        >>> check_problem(model, X.to_sparse(), X[0], "gradient-descent")
        Traceback (most recent call last):
            ...
        ntk_deq.errors.ArgumentError: `X` of gradient-descent must be a dense tensor. Got torch.sparse_coo.
    """
    check_model(model, where)
    check_loss(model.signature, where)
    signature = model.signature
    data = {**dict.fromkeys(signature.names(Role.INPUT), X), **dict.fromkeys(signature.names(Role.TARGET), y)}
    for name, value in data.items():
        if isinstance(value, Tensor) and value.layout is not torch.strided:
            raise ArgumentError(f"`{name}` of {where} must be a dense tensor. Got {value.layout}.")
    check_variables(signature, {**model.parameters(), **data})


def check_like(what: str, value: object, other: Tensor, *, shaped: bool = True) -> None:
    """Refuse what is no dense tensor of the dtype, the device and (if `shaped`) the shape of another.

    Raises:
        ArgumentError: The message starts with `what`.

    Example:
        >>> check_like("`X`", [1.0], torch.ones(1))
        Traceback (most recent call last):
            ...
        ntk_deq.errors.ArgumentError: `X` must be a torch tensor. Got list.
    """
    if not isinstance(value, Tensor):
        raise ArgumentError(f"{what} must be a torch tensor. Got {type(value).__name__}.")
    if value.layout is not torch.strided:
        raise ArgumentError(f"{what} must be a dense tensor. Got {value.layout}.")
    for attribute in ("dtype", "device"):
        expected, got = getattr(other, attribute), getattr(value, attribute)
        if expected != got:
            raise ArgumentError(f"{what} must have the {attribute} {expected}. Got {got}.")
    if shaped and value.shape != other.shape:
        raise ArgumentError(f"{what} must have the shape {tuple(other.shape)}. Got {tuple(value.shape)}.")


def _input_width(model: EquilibriumModel) -> int | None:
    """Return how many entries a sample has, read off a parameter that shares the letter; None: not declared."""
    signature = model.signature
    inputs = [variable for variable in signature.variables if variable.role is Role.INPUT]
    if len(inputs) != 1 or len(inputs[0].shape) != 2:
        return None
    own, like = model.parameters(), torch.zeros(1, 2)
    letter = inputs[0].shape[1 if model.input_rows(like).shape == like.shape else 0]
    for name in signature.names(Role.PARAMETER):
        shape = signature.variable(name).shape
        if letter in shape:
            return int(own[name].shape[shape.index(letter)])
    return None


def _check_tensor(signature: ModelSignature, name: str, value: Tensor) -> None:
    where = f"`{name}` of {signature.name}"
    shape = signature.variable(name).shape
    if not isinstance(value, Tensor):
        raise ArgumentError(f"{where} must be a torch tensor. Got {type(value).__name__}.")
    if value.dtype not in _FLOATS:
        raise ArgumentError(f"{where} must have dtype float64 or float32. Got {value.dtype}.")
    if value.ndim != len(shape):
        raise ArgumentError(f"{where} must be {_shape(signature, name)}. Got shape {tuple(value.shape)}.")
    if value.numel() == 0:
        raise ArgumentError(f"{where} must have every size >= 1. Got shape {tuple(value.shape)}.")


def _check_alike(model: str, first: tuple[str, Tensor], other: tuple[str, Tensor]) -> None:
    for attribute in ("dtype", "device"):
        expected, got = getattr(first[1], attribute), getattr(other[1], attribute)
        if expected != got:
            raise ArgumentError(
                f"`{other[0]}` of {model} must have the {attribute} of `{first[0]}`, {expected}. Got {got}."
            )


def _shape(signature: ModelSignature, name: str) -> str:
    shape = signature.variable(name).shape
    return f"a matrix {' x '.join(shape)}" if len(shape) == 2 else f"a vector of length {shape[0]}" if shape else "0-d"
