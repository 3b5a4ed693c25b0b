"""Values of an instance file: written exactly, read with shapes, domains and sizes checked."""

from __future__ import annotations

from collections.abc import Mapping as Map
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from ntk_deq.certified.rounding import multiply_up
from ntk_deq.claims.claim import Claim, Domain, Problem, Setting
from ntk_deq.claims.problems import did_you_mean
from ntk_deq.claims.types import Type
from ntk_deq.claims.yaml_strict import Mapping, Node, Scalar, Sequence
from ntk_deq.errors import DataError, LimitError, NtkDeqError
from ntk_deq.falsify.domains import MOST_ROUNDING, ROOM, ROUNDING, contains, rounding
from ntk_deq.falsify.instance import shape_of
from ntk_deq.verify.replaying.arrays import read_array
from ntk_deq.verify.replaying.numbers import number_text, read_number
from ntk_deq.verify.replaying.yaml_text import NumberText


def value_data(value: Tensor) -> object:
    """Return a value as nested lists of exact text.

    Example:
        >>> value_data(torch.tensor([[0.5, 3.0]], dtype=torch.float64))
        [['1/2', '3']]
    """
    if value.ndim == 0:
        return NumberText(number_text(value.item()))
    return [value_data(part) for part in value]


@dataclass
class ValueReader:
    """Reads the values of an instance; collects what is wrong with them.

    Attributes:
        claim: The claim.
        setting: The instance's setting.
        sizes: The instance's sizes, checked.
        rounded: Variables that stand for a value near them, with a bound of the distance where the file gives one.
        folder: Folder of the file, for archives.
        solved: Variables that stand for a solution near them, whose domain is a matter of the judgement.
        problems: What is wrong.
        known: The bounds of these distances, checked where they can be.
    """

    claim: Claim
    setting: Setting
    sizes: Map[str, int]
    rounded: Map[str, float | None]
    folder: Path
    solved: frozenset[str] = frozenset()
    problems: list[Problem] = field(default_factory=list)
    known: dict[str, float] = field(default_factory=dict, init=False)

    def read(self, node: Mapping) -> dict[str, Tensor]:
        """Return the value of every variable of the claim, in the order of the setting."""
        types = {**self.setting.variable_types(), **{name: v.type for name, v in self.claim.given.items()}}
        for name in node.entries:
            if name not in types:
                message = f"`values`: claim {self.claim.id} has no variable `{name}`; it has {', '.join(types)}."
                self._add(node, message, did_you_mean(name, types), key=name)
        for key, listed in (("rounded", self.rounded), ("solved", self.solved)):
            for name in sorted(set(listed) - types.keys()):
                self._add(node, f"`{key}`: claim {self.claim.id} has no variable `{name}`.", did_you_mean(name, types))
        values: dict[str, Tensor] = {}
        for name, kind in types.items():
            if name not in node.entries:
                self._add(node, f"`values`: the variable `{name}` of claim {self.claim.id} is missing.")
                continue
            found = self._value(name, kind, node.entries[name])
            if found is not None and self._inside(name, found, node.entries[name]):
                values[name] = found
        return values

    def _value(self, name: str, kind: Type, node: Node) -> Tensor | None:
        try:
            shape = shape_of(kind, self.sizes, name=name)
            if isinstance(node, Mapping):
                return self._archived(name, shape, node)
            return torch.tensor(self._numbers(name, shape, node), dtype=torch.float64).reshape(shape)
        except (LimitError, DataError) as error:
            self._add(node, f"`values.{name}`: {error}")
        except _StopError:
            pass
        return None

    def _archived(self, name: str, shape: tuple[int, ...], node: Mapping) -> Tensor:
        archive = node.entries.get("npz")
        if set(node.entries) != {"npz"} or not isinstance(archive, Scalar) or not isinstance(archive.value, str):
            raise DataError("must be numbers, or {npz: NAME} with the name of an archive beside this file.")
        found = read_array(self.folder, archive.value, name, shape)
        if not bool(torch.isfinite(found).all()):
            raise DataError("must hold finite numbers. Got an infinity or NaN.")
        return found

    def _numbers(self, name: str, shape: tuple[int, ...], node: Node) -> list[float]:
        """Return the numbers below a node that must have a shape, row after row."""
        if not shape:
            return [self._number(name, node)]
        wanted = f"a list of {shape[0]} {'rows' if len(shape) > 1 else 'numbers'}"
        if not isinstance(node, Sequence) or len(node.items) != shape[0]:
            got = f"{len(node.items)} of them" if isinstance(node, Sequence) else "something else"
            self._add(node, f"`values.{name}` must be {wanted}, as the sizes say. Got {got}.")
            raise _StopError
        return [number for item in node.items for number in self._numbers(name, shape[1:], item)]

    def _number(self, name: str, node: Node) -> float:
        if isinstance(node, Scalar) and not node.style:
            try:
                return read_number(node.text)
            except NtkDeqError as error:
                self._add(node, f"`values.{name}`: {error}")
        else:
            self._add(node, f"`values.{name}` must have a number here, without quotes. Got something else.")
        raise _StopError

    def _inside(self, name: str, value: Tensor, node: Node) -> bool:
        """Check that a quantified variable lies in its domain."""
        variable = self.claim.given.get(name) or self.setting.free.get(name)
        if name in self.rounded:
            return self._near(name, None if variable is None else variable.domain, value, node)
        if variable is None or name in self.solved or contains(variable.domain, value):
            return True
        self._outside(name, variable.domain, node)
        return False

    def _near(self, name: str, domain: Domain | None, value: Tensor, node: Node) -> bool:
        """Check that a variable is as near to what it stands for as the file says; of a draw that cannot be known."""
        given = self.rounded[name]
        if given is not None and given < 0:
            self._add(node, f"`rounded.{name}` must be a number >= 0. Got {given:g}.")
        elif domain is None and given is None:
            self._add(node, f"`rounded` must say how far the draw {name} may be off, as in {{{name}: 0x1p-50}}.")
        elif domain is not None and domain.kind not in ROUNDING:
            self._add(node, f"`rounded`: a variable of the domain {domain.text} is exact. Got {name}.")
        else:
            off = 0.0 if domain is None else rounding(domain, value)
            self.known[name] = off if given is None else given
            if off <= MOST_ROUNDING and off <= multiply_up(ROOM, self.known[name]):
                return True
            assert domain is not None
            self._outside(name, domain, node)
        return False

    def _outside(self, name: str, domain: Domain, node: Node) -> None:
        self._add(node, f"`values.{name}` does not lie in its domain: {domain.text or domain.kind.value}.")

    def _add(self, node: Node, message: str, hint: str | None = None, *, key: str | None = None) -> None:
        position = node.keys[key] if key is not None and isinstance(node, Mapping) else node.position
        self.problems.append(Problem(position, message, self.claim.id, hint=hint))


class _StopError(Exception):
    """The rest of a variable's value need not be read: the first thing wrong with it has been said."""
