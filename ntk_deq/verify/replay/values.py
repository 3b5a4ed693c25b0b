"""Values of an instance file: written exactly, read with shapes, domains and sizes checked.

Floats as exact text: small whole numbers and fractions as people write them, all others in hexadecimal. Large values
lie in a NumPy archive beside the file; reading trusts nothing that the archive says of itself.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping as Map
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ntk_deq.certified.rounding import multiply_up
from ntk_deq.claims.claim import Claim
from ntk_deq.errors import ArgumentError, DataError, LimitError, NtkDeqError, Problem
from ntk_deq.evaluation.instance import shape_of
from ntk_deq.falsify.domains import MOST_ROUNDING, ROOM, ROUNDING, contains, rounding
from ntk_deq.files.archives import ArchiveError, open_archive, write_archive
from ntk_deq.files.yaml import Mapping, Node, NumberText, Scalar, Sequence
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Domain
from ntk_deq.language.hints import did_you_mean
from ntk_deq.language.types import Type

ARCHIVE_MARK = b"values of an ntk_deq instance file"
"""What ends an archive, so that one without its instance file shows where it is from."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,150}\.npz")
_DIRECTORY = 2**20  # bytes that an archive may have beyond its arrays


def archive_bytes(values: Map[str, Tensor]) -> bytes:
    """Return an archive with the given float64 values."""
    stream = io.BytesIO()
    write_archive(stream, {name: value.numpy() for name, value in values.items()}, comment=ARCHIVE_MARK)
    return stream.getvalue()


def read_array(folder: Path, archive: str, name: str, shape: tuple[int, ...]) -> Tensor:
    """Return one value of an archive.

    No pickle is opened and no header believed: type, order, shape and length must be those of float64 numbers in the
    expected shape, and no more bytes than these are decompressed.

    Args:
        folder: Folder of the instance file; the archive must lie in it and be no link.
        archive: Name of the archive.
        name: The variable.
        shape: The shape that it must have.

    Raises:
        DataError: The name is a path, or the archive is missing, damaged, or holds something else.
    """
    if not _NAME.fullmatch(archive):
        raise DataError(
            f"an archive must be the plain name of an .npz file in the folder of this file. Got {archive!r}."
        )
    path = folder / archive
    wanted = 8 * math.prod(shape)
    try:
        if path.is_symlink() or not path.is_file():
            raise DataError(f"there is no file {archive} beside this one, or it is a link.")
        if path.stat().st_size > 8 * wanted + _DIRECTORY and wanted > 0:
            raise DataError(f"{archive} is much larger than the values it should hold.")
        with open_archive(path) as opened:
            found = opened.header(name)
            if found.dtype != np.dtype("<f8") or found.fortran or found.shape != shape:
                raise DataError(
                    f"{archive} must hold float64 numbers of shape {shape}. Got {found.dtype}, shape "
                    f"{found.shape}{', columns first' if found.fortran else ''}."
                )
            return torch.from_numpy(opened.array(name, most=wanted))
    except (ArchiveError, OSError) as error:
        raise DataError(f"{archive} is damaged or holds no usable array {name!r}: {error}") from None


_SHORT = 9  # characters up to which a whole number or a fraction is written as such
_EXPONENT = 1100  # no double needs more, and no larger power is ever computed
_DECIMAL = re.compile(r"([-+]?)([0-9]{1,40})(?:\.([0-9]{1,40}))?(?:[eE]([-+]?[0-9]{1,4}))?")
_FRACTION = re.compile(r"([-+]?)([0-9]{1,40})/([0-9]{1,40})")
_HEXADECIMAL = re.compile(r"([-+]?)0[xX]([0-9a-fA-F]{1,20})(?:\.([0-9a-fA-F]{1,20}))?[pP]([-+]?[0-9]{1,5})")

ALLOWED = "a whole number, a fraction such as 3/4, a decimal or a hexadecimal float such as 0x1.8p-3, held by a double"


def number_text(number: float) -> str:
    """Return the text of a finite float, from which `read_number` gets the same bits.

    Raises:
        ArgumentError: It is infinite or no number.

    Example:
        >>> [number_text(x) for x in (2.0, -0.75, 0.1, -0.0, 5e-324)]
        ['2', '-3/4', '0x1.999999999999ap-4', '-0x0p+0', '0x0.0000000000001p-1022']
    """
    if not math.isfinite(number):
        raise ArgumentError(f"A number to write down must be finite. Got {number}.")
    if number == 0:
        return "0" if math.copysign(1.0, number) > 0 else _hexadecimal(number)
    top, bottom = number.as_integer_ratio()
    if abs(top) < 10**_SHORT and bottom < 10**_SHORT:
        text = str(top) if bottom == 1 else f"{top}/{bottom}"
        if len(text) <= _SHORT:
            return text
    return _hexadecimal(number)


def read_number(text: str) -> float:
    """Return the float that a text says exactly.

    Raises:
        ArgumentError: It is not the text of a finite number, or no double has that value.

    Example:
        >>> read_number("1/8"), read_number("-0x1.8p-3"), read_number("2.5e-1")
        (0.125, -0.1875, 0.25)
    """
    exact, negative = _exact(text)
    try:
        number = float(exact)
    except OverflowError:
        number = math.inf
    if number != exact:
        raise ArgumentError(f"A number must be {ALLOWED} exactly. Got {_shown(text)}.")
    return -0.0 if exact == 0 and negative else number


def bound_text(bound: float) -> str:
    """Return a bound of a margin as a hexadecimal float, or as inf or -inf.

    Example:
        >>> bound_text(-0.5), bound_text(math.inf)
        ('-0x1p-1', 'inf')
    """
    return _hexadecimal(bound) if math.isfinite(bound) else str(float(bound))


def read_bound(text: str) -> float:
    """Return the bound that `bound_text` wrote.

    Raises:
        ArgumentError: It is neither a number nor an infinity.

    Example:
        >>> read_bound("-inf")
        -inf
    """
    return float(text) if text in ("inf", "-inf") else read_number(text)


def _hexadecimal(number: float) -> str:
    mantissa, _, exponent = number.hex().partition("p")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{exponent}"


def _exact(text: str) -> tuple[Fraction, bool]:
    """Return the rational number that a text says, and whether it has a minus sign."""
    if match := _HEXADECIMAL.fullmatch(text):
        sign, whole, part, exponent = match[1], match[2], match[3] or "", int(match[4])
        value, power, base = Fraction(int(whole + part, 16)), exponent - 4 * len(part), 2
    elif match := _FRACTION.fullmatch(text):
        sign, value, power, base = match[1], Fraction(int(match[2]), int(match[3]) or 1), 0, 2
        if int(match[3]) == 0:
            raise ArgumentError(f"A fraction must not divide by zero. Got {_shown(text)}.")
    elif match := _DECIMAL.fullmatch(text):
        sign, whole, part, exponent = match[1], match[2], match[3] or "", int(match[4] or 0)
        value, power, base = Fraction(int(whole + part)), exponent - len(part), 10
    else:
        raise ArgumentError(f"A number must be {ALLOWED}. Got {_shown(text)}.")
    if abs(power) > _EXPONENT + 80:
        raise ArgumentError(f"A number must be {ALLOWED}. Got {_shown(text)}, beyond the range of doubles.")
    value *= Fraction(base) ** power
    return (-value if sign == "-" else value), sign == "-"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")


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
