"""Operator splitting for monotone layers: z = act(W z + c) where I - W >= m I in its symmetric part.

The equilibrium solves 0 in (I - W) z - c + df(z), where act is the proximal map of f (Winston and Kolter, 2020). With
J the proximal map of a f, m the smallest eigenvalue of the symmetric part of I - W and L = norm(I - W):

    forward-backward     z <- J(z - a ((I - W) z - c)),  a contraction for 0 < a < 2m/L^2
    Peaceman-Rachford    u <- R_F(2 J(u) - u),  z = J(u),  R_F(x) = 2 (I + a (I - W))^-1 (x + a c) - x, for every a > 0

Their maps contract though act(W z + c) may not, so that the driver iterates and judges them like any map; what comes
back has the residual of act(W z + c) itself and a bound by the modulus m.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified import scalar as sc
from ntk_deq.certified.arithmetic import add, scale, subtract
from ntk_deq.certified.dense import Ball, identity, transpose
from ntk_deq.certified.eigenvalues import lambda_min
from ntk_deq.certified.extremes import spectral_norm
from ntk_deq.errors import ArgumentError

_CLOSED = (torch.relu, torch.nn.functional.relu)
"""Activations that are the proximal map of a f for every a."""

_ROOT_STEPS = 60
# Halvings that bring a bracket down to rounding level where Newton's method does not get there first.

_SQUARED_AWAY = 1e-150
# What is smaller than this may vanish when it is squared in a norm; it is added to the bounds.

_REMEMBERED = 64
_PROVEN: OrderedDict[tuple[str, bytes], float] = OrderedDict()
# Bounds of the last matrices, by their content: a model makes a layer anew for every solve, and most have one W.


def _proven(what: str, matrix: Tensor, prove: Callable[[], float]) -> float:
    """Return a proven number of a matrix, from memory where it was proven before."""
    floats = matrix.detach().double().cpu().contiguous()
    key = (f"{what} {len(floats)}", hashlib.sha256(floats.numpy().tobytes()).digest())
    if key in _PROVEN:
        _PROVEN.move_to_end(key)
        return _PROVEN[key]
    found = prove()
    if math.isfinite(found):
        _PROVEN[key] = found
        if len(_PROVEN) > _REMEMBERED:
            _PROVEN.popitem(last=False)
    return found


@dataclass(frozen=True, eq=False)
class MonotoneLayer:
    """The map z -> act(W z + c) on samples in rows; call it to apply it once.

    Attributes:
        weight: W, m x m.
        source: c, one sample a row.
        activation: act, entry by entry: it nowhere falls and has slopes of 1 at most; None: the identity.

    Raises:
        ArgumentError: A shape, dtype or device does not fit.

    Example:
        >>> layer = MonotoneLayer(torch.tensor([[-3.0]]).double(), torch.tensor([[2.0], [-1.0]]).double(), torch.relu)
        >>> layer(torch.ones(2, 1).double()).tolist(), layer.modulus, layer.length
        ([[0.0], [0.0]], 4.0, 4.0)
        >>> from ntk_deq.equilibrium import solve_fixed_point
        >>> solve_fixed_point(layer, torch.zeros(2, 1).double(), solver="forward-backward").value.tolist()
        [[0.5], [0.0]]
    """

    weight: Float[Tensor, "m m"]
    source: Float[Tensor, "N m"]
    activation: Callable[[Tensor], Tensor] | None = torch.relu

    def __post_init__(self) -> None:
        W, c = self.weight, self.source
        for name, value in (("weight", W), ("source", c)):
            if not (isinstance(value, Tensor) and value.ndim == 2 and value.dtype in (torch.float64, torch.float32)):
                got = f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
                raise ArgumentError(f"`{name}` of MonotoneLayer must be a matrix, float64 or float32. Got {got}.")
        if W.shape[0] != W.shape[1] or c.shape[1] != W.shape[0]:
            shapes = f"{tuple(W.shape)} and {tuple(c.shape)}"
            raise ArgumentError(f"MonotoneLayer needs `weight` m x m and `source` N x m. Got {shapes}.")
        if W.dtype != c.dtype or W.device != c.device:
            raise ArgumentError(
                f"`weight` and `source` of MonotoneLayer must have one dtype and device. "
                f"Got {W.dtype} on {W.device} and {c.dtype} on {c.device}."
            )

    def __call__(self, Z: Float[Tensor, "N m"]) -> Float[Tensor, "N m"]:
        """Return act(W z + c) for each row z."""
        return self.activated(torch.addmm(self.source, Z, self.weight.mT))

    def activated(self, pre: Float[Tensor, "N m"]) -> Float[Tensor, "N m"]:
        """Return act of each entry."""
        return pre if self.activation is None else self.activation(pre)

    @cached_property
    def _operator(self) -> Ball:
        return subtract(identity(self.weight.shape[0]), Ball(self.weight.detach().double().cpu()))

    @cached_property
    def modulus(self) -> float:
        """The modulus m: a proven lower bound of the smallest eigenvalue of the symmetric part of I - W."""

        def prove() -> float:
            both = scale(sc.exact(0.5), add(self._operator, transpose(self._operator)))
            return sc.lower(lambda_min(both, symmetric=True))

        return _proven("modulus", self.weight, prove)

    @cached_property
    def length(self) -> float:
        """L: a proven upper bound of norm(I - W)."""
        return _proven("length", self.weight, lambda: sc.upper(spectral_norm(self._operator)))

    def checked_modulus(self, where: str) -> float:
        """Return m.

        Args:
            where: Who asks.

        Raises:
            ArgumentError: It is not seen to be above 0.
        """
        m = self.modulus
        if not m > 0:
            got = "entries that are not finite" if not math.isfinite(self.length) else f"m = {m:.6g}"
            raise ArgumentError(
                f"{where} needs a monotone layer: I - W >= m I in its symmetric part with m > 0. Got {got}. "
                "Make the symmetric part of W smaller, or use the solver 'anderson'."
            )
        return m

    def error_bound(self, Z: Float[Tensor, "N m"]) -> Float[Tensor, " N"]:
        """Return a bound on the distance of each row from the only equilibrium, rounding included.

        With z1 = act(W z + c): norm(z - z*) <= norm(z - z1) + norm(W (z - z1))/m. The residual over m is no bound. The
        floats of W and c count as the exact numbers. An activation other than relu and the identity is taken to be off
        by 8 units in the last place.

        Args:
            Z: States, one sample a row.

        Raises:
            ArgumentError: The layer is not monotone.
        """
        m = self.checked_modulus("`error_bound`")
        W, c, z = (value.detach().double() for value in (self.weight, self.source, Z))
        n, u = W.shape[0], torch.finfo(torch.float64).eps / 2
        gamma = 2 * (n + 4) * u  # of a product of n terms and a sum, with room for the norms below
        size = float(torch.linalg.matrix_norm(W)) * (1 + gamma)
        image = self.activated(torch.addmm(c, z, W.mT))
        exact = self.activation is None or self.activation in _CLOSED

        def norm(rows: Tensor) -> Tensor:
            return torch.linalg.vector_norm(rows, dim=1)

        off = gamma * (size * norm(z) + norm(c)) + (0.0 if exact else 16 * u * norm(image))
        move = z - image
        apart = norm(move) * (1 + gamma) + off
        passed = norm(move @ W.mT) + gamma * size * norm(move) + size * off
        bound = (apart + passed / m) * (1 + 2 * gamma) + n * _SQUARED_AWAY * (1 + size / m)
        return torch.nan_to_num(bound, nan=math.inf).to(Z.dtype) * (1 + 4 * torch.finfo(Z.dtype).eps)

    def resolvent(self, rows: Float[Tensor, "N m"], step: float) -> Float[Tensor, "N m"]:
        """Return the proximal map of a f, where act is that of f.

        It is act(t) with (1 - a) act(t) + a t = x, an equation for each entry whose slope is between 1 and a.

        Args:
            rows: x.
            step: a.

        Example:
            >>> zero = torch.zeros(1, 1).double()
            >>> layer = MonotoneLayer(zero, zero, torch.tanh)
            >>> p = layer.resolvent(2 + zero, 0.25)  # p + a (arctanh(p) - p) = x
            >>> round(float(0.75 * p + 0.25 * torch.arctanh(p)), 5)
            2.0
        """
        act = self.activation
        if act is None:
            return rows
        if act in _CLOSED or step == 1:
            return act(rows)
        low, high = sorted((step, 1.0))
        value = torch.zeros_like(rows)
        reach = (rows - (1 - step) * act(value)).abs() / low
        below, above, t = -reach, reach, rows / high
        for _ in range(_ROOT_STEPS):
            image, slope = torch.func.jvp(act, (t,), (torch.ones_like(t),))[:2]
            gap = (1 - step) * image + step * t - rows
            below, above = torch.where(gap <= 0, t, below), torch.where(gap >= 0, t, above)
            newton = t - gap / ((1 - step) * slope + step)
            inside = (newton > below) & (newton < above)
            moved = torch.where(gap == 0, t, torch.where(inside, newton, (below + above) / 2))
            done = bool(((moved - t).abs() <= 4 * torch.finfo(t.dtype).eps * (t.abs() + rows.abs())).all())
            t = moved
            if done:
                break
        return act(t)

    def reflected(self, rows: Float[Tensor, "N m"], step: float) -> Float[Tensor, "N m"]:
        """Return 2 J(x) - x, J the resolvent; of relu that is abs(x)."""
        if self.activation in _CLOSED:
            return rows.abs()
        return torch.add(-rows, self.resolvent(rows, step), alpha=2)


def monotone_parameters(
    weight: Float[Tensor, "n n"], modulus: float | None = None
) -> tuple[Float[Tensor, "n n"], Float[Tensor, "n n"]]:
    """Return A and B with W = (1 - m) I - A'A + B - B', for W with I - W >= m I.

    A is the symmetric square root of (1 - m) I - (W + W')/2, and B = (W - W')/4.

    Symbols: A, B, m as in (3.3) of the thesis.

    Args:
        weight: W.
        modulus: m > 0; None: the largest that is proven.

    Raises:
        ArgumentError: W is no square matrix, m is not above 0, or I - W >= m I does not hold.

    References:
        Winston and Kolter (2020), arXiv:2006.08591, Proposition 1.

    Example:
        >>> W = torch.tensor([[0.5, -2.0], [2.0, -1.0]]).double()
        >>> A, B = monotone_parameters(W, 0.25)
        >>> ((1 - 0.25) * torch.eye(2).double() - A.mT @ A + B - B.mT - W).abs().max().item() < 1e-15
        True
    """
    where = "monotone_parameters"
    if not (isinstance(weight, Tensor) and weight.ndim == 2 and weight.shape[0] == weight.shape[1]):
        got = f"shape {tuple(weight.shape)}" if isinstance(weight, Tensor) else type(weight).__name__
        raise ArgumentError(f"`weight` of {where} must be a square matrix. Got {got}.")
    layer = MonotoneLayer(weight, weight.new_zeros(0, len(weight)))
    if modulus is not None and (isinstance(modulus, bool) or not 0 < modulus < math.inf):
        raise ArgumentError(f"`modulus` of {where} must be a finite number > 0 or None. Got {modulus!r}.")
    most = layer.checked_modulus(where)
    both = (weight + weight.mT) / 2
    # The proof loses a few roundings: a modulus that is the largest there is may lie above what is proven.
    room = 8 * len(weight) * torch.finfo(weight.dtype).eps * max(1.0, layer.length)
    if modulus is not None and modulus > most + room:
        raise ArgumentError(
            f"`modulus` of {where} must be at most {most:.6g}, the smallest eigenvalue of the symmetric part of I - W. "
            f"Got {modulus:g}."
        )
    m = most if modulus is None else float(modulus)
    values, vectors = torch.linalg.eigh((1 - m) * torch.eye(len(weight)).to(weight) - both)
    return (vectors * values.clamp(min=0).sqrt()) @ vectors.mT, (weight - weight.mT) / 4


@dataclass(frozen=True, eq=False)
class SplittingMap:
    """What is iterated in place of a layer.

    Attributes:
        start: Turns a state into what is iterated.
        step: The map.
        state: Turns a fixed point of it into the equilibrium.
        contraction: A Lipschitz constant of the map below one.
    """

    start: Callable[[Tensor], Tensor]
    step: Callable[[Tensor], Tensor]
    state: Callable[[Tensor], Tensor]
    contraction: float


@dataclass(frozen=True)
class Splitting(ABC):
    """An iteration for a `MonotoneLayer`, whose W it needs to know.

    Attributes:
        step: The step size a; None: chosen from m and L.
    """

    step: float | None = None
    name: ClassVar[str]

    def __post_init__(self) -> None:
        a = self.step
        if a is not None and (isinstance(a, bool) or not isinstance(a, int | float) or not 0 < a < math.inf):
            raise ArgumentError(f"`step` of the solver {self.name} must be a finite number > 0 or None. Got {a!r}.")

    @abstractmethod
    def plan(self, layer: MonotoneLayer) -> SplittingMap:
        """Return what is iterated; matrices are inverted here, once for all samples.

        Args:
            layer: The layer.

        Raises:
            ArgumentError: The layer is not monotone, or the step is outside its range.
        """

    def layer_of(self, step: object, initial: Tensor, batch_dims: int) -> MonotoneLayer:
        """Return the layer that a solve is about.

        Args:
            step: The map of the solve.
            initial: Where it starts.
            batch_dims: How many dimensions count samples.

        Raises:
            ArgumentError: The map is no `MonotoneLayer`, or the start does not fit it.
        """
        if not isinstance(step, MonotoneLayer):
            raise ArgumentError(
                f"The solver {self.name} needs to know W of a map act(W z + c): pass a MonotoneLayer, or a model "
                f"that declares `monotone`. Got {type(step).__name__}. For any other map use 'picard' or 'anderson'."
            )
        if initial.shape != step.source.shape or batch_dims != 1:
            raise ArgumentError(
                f"`initial` of the solver {self.name} must have the shape {tuple(step.source.shape)} of the layer's "
                f"source, with `batch_dims` 1. Got {tuple(initial.shape)} and {batch_dims}."
            )
        if initial.dtype != step.source.dtype or initial.device != step.source.device:
            raise ArgumentError(
                f"`initial` of the solver {self.name} must be {step.source.dtype} on {step.source.device}, as the "
                f"layer is. Got {initial.dtype} on {initial.device}."
            )
        return step


@dataclass(frozen=True)
class ForwardBackward(Splitting):
    """Iterate z <- J(z - a ((I - W) z - c)), J the proximal map of a f.

    Contracts with factor norm((1 - a) I + a W) <= sqrt(1 - 2 a m + a^2 L^2) for 0 < a < 2m/L^2; the best of these
    bounds is at a = m/L^2, which is chosen where no step is given.

    References:
        Bauschke and Combettes (2017), Convex Analysis and Monotone Operator Theory, Proposition 26.16; Winston and
        Kolter (2020), arXiv:2006.08591, section 3.

    Example:
        >>> ForwardBackward(step=0.1)
        ForwardBackward(step=0.1)
    """

    name: ClassVar[str] = "forward-backward"

    def plan(self, layer: MonotoneLayer) -> SplittingMap:
        """Return the map on states."""
        m, L = layer.checked_modulus(f"The solver {self.name}"), layer.length
        most = 2 * m / L**2
        a = most / 2 if self.step is None else float(self.step)
        if not a < most:
            raise ArgumentError(
                f"`step` of the solver {self.name} must be in (0, 2m/L^2) = (0, {most:.6g}), where m = {m:.6g} and "
                f"L = {L:.6g}. Got {a:g}."
            )
        W = layer.weight.detach()
        mixed = ((1 - a) * torch.eye(W.shape[0], dtype=W.dtype, device=W.device) + a * W).mT.contiguous()
        fed = a * layer.source.detach()
        norm = _proven("norm", mixed, lambda: sc.upper(spectral_norm(Ball(mixed.double().cpu()))))
        q = min(norm, math.sqrt(max(1 - 2 * a * m + (a * L) ** 2, 0.0)))
        return SplittingMap(
            lambda z: z, lambda z: layer.resolvent(torch.addmm(fed, z, mixed), a), lambda z: z, contraction=q
        )


@dataclass(frozen=True)
class PeacemanRachford(Splitting):
    """Iterate u <- R_F(2 J(u) - u), whose fixed point gives z = J(u); (I + a (I - W)) is inverted once a batch.

    Contracts with factor sqrt((1 - 2 a m + a^2 L^2)/(1 + 2 a m + a^2 L^2)) for every a > 0: J's reflection moves no two
    states apart, and that of the linear part contracts. It is smallest at a = 1/L, which is chosen where none is given.

    References:
        Winston and Kolter (2020), arXiv:2006.08591, section 3; Giselsson and Boyd (2017), IEEE Transactions on
        Automatic Control 62, 532-544.

    Example:
        >>> PeacemanRachford()
        PeacemanRachford(step=None)
    """

    name: ClassVar[str] = "peaceman-rachford"

    def plan(self, layer: MonotoneLayer) -> SplittingMap:
        """Return the map on u."""
        m, L = layer.checked_modulus(f"The solver {self.name}"), layer.length
        a = 1 / L if self.step is None else float(self.step)
        W = layer.weight.detach().double()
        unit = torch.eye(W.shape[0], dtype=W.dtype, device=W.device)
        inverse = torch.linalg.inv((1 + a) * unit - a * W)
        reflected = (2 * inverse - unit).mT.to(layer.weight.dtype).contiguous()
        fed = (layer.source.detach().double() @ (2 * a * inverse.mT)).to(layer.source.dtype)

        def step(u: Tensor) -> Tensor:
            return torch.addmm(fed, layer.reflected(u, a), reflected)

        grown = 1 + (a * L) ** 2
        q = math.sqrt(max(grown - 2 * a * m, 0.0) / (grown + 2 * a * m))

        def start(z: Tensor) -> Tensor:
            """Return u with the resolvent z, if z is the equilibrium: u = z - a ((I - W) z - c)."""
            return (1 - a) * z + a * torch.addmm(layer.source, z, layer.weight.mT)

        return SplittingMap(start, step, lambda u: layer.resolvent(u, a), contraction=q)
