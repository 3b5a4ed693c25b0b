"""Values for the parameters and hyperparameters of a declared model where only its sizes are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from ntk_deq.errors import ArgumentError
from ntk_deq.language.declaration import ModelSignature, Role, Variable
from ntk_deq.language.domain import DomainKind, parse_domain
from ntk_deq.language.families import split_member

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
