"""Bounds weakened on purpose, one at a time: a harness that finds nothing wrong with these finds nothing at all."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ntk_deq.certified import Ball, inversion

_NEAREST = inversion.nearest_ball
_BALLS = "ntk_deq.certified"


@dataclass(frozen=True)
class Weakening:
    """A mistake to plant.

    Attributes:
        what: In words.
        patches: Module, attribute and what to put there.
        on: `matrices` or `equilibria`, where it shows.
    """

    what: str
    patches: tuple[tuple[str, str, Any], ...]
    on: str = "matrices"


def _zero(*args: object, **kwargs: object) -> float:
    return 0.0


def _first(first: Any, *rest: object) -> Any:
    return first


def _nothing_lost(matrix: Tensor, factors: Tensor) -> tuple[Tensor, float]:
    return matrix * factors, 0.0


def _residual(residual: float, contraction: float) -> float:
    return residual if contraction < 1 else float("inf")


def _thousandth(numerator: float, denominator: float) -> float:
    return 1e-3 * numerator / denominator if denominator > 0 else float("inf")


def _point(found: Any, like: Tensor) -> Ball:
    return Ball(_NEAREST(found, like).centre)


def _modules(attribute: str, *names: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"{_BALLS}.{name}", attribute) for name in names)


def weakenings() -> dict[str, Weakening]:
    """Return the mistakes by name."""
    return {
        "rounding": Weakening(
            "products and sums without their rounding error", ((f"{_BALLS}.rounding", "unit_roundoff", _zero),)
        ),
        "underflow": Weakening(
            "operations that underflow count as exact",
            tuple((*place, 0.0) for place in _modules("TINY", "arithmetic", "rounding", "norms")),
        ),
        "radius": Weakening(
            "products forget the radii of their factors",
            tuple((*place, _zero) for place in _modules("product_radius", "arithmetic")),
        ),
        "weyl": Weakening(
            "norms and singular values forget the matrix's radius",
            tuple((*place, _first) for place in _modules("nonnegative", "norms", "spectra", "extremes")),
        ),
        "residual": Weakening(
            "singular values and eigenvalues without the defects of their factorisation",
            (
                *((*place, _zero) for place in _modules("residual_up", "spectra")),
                *((*place, _zero) for place in _modules("orthogonality_up", "spectra")),
                *((*place, _nothing_lost) for place in _modules("column_multiples", "spectra")),
            ),
        ),
        "inverse": Weakening(
            "a thousandth of the error bound of inverses and solutions",
            tuple((*place, _thousandth) for place in _modules("divide_up", "inversion")),
        ),
        "high-precision": Weakening(
            "inverses in more bits without the distance to the nearest floats",
            tuple((*place, _point) for place in _modules("nearest_ball", "inversion")),
        ),
        "cholesky": Weakening(
            "a Cholesky factor proves its shift whatever its residual",
            (
                *((*place, _zero) for place in _modules("residual_up", "extremes")),
                *((*place, _zero) for place in _modules("largest_entry", "extremes")),
                *((*place, _zero) for place in _modules("cholesky_shift", "extremes")),
            ),
        ),
        "discs": Weakening(
            "eigenvalues of general matrices without the radius of their discs",
            tuple((*place, _zero) for place in _modules("divide_up", "eigenvalues")),
        ),
        "contraction": Weakening(
            "the residual is taken for the error, without 1/(1 - q)",
            (("ntk_deq.systems.certificate", "banach_bound", _residual),),
            on="equilibria",
        ),
        "adjoint": Weakening(
            "the derivatives that are not certain are taken at the centre",
            (
                ("ntk_deq.systems.certificate", "elementwise_error", _zero),
                ("ntk_deq.systems.certificate", "fro_up", _zero),
            ),
            on="equilibria",
        ),
    }


@contextmanager
def weakened(name: str | None) -> Iterator[None]:
    """Plant a mistake for the time of a `with` block; None plants none."""
    if name is None:
        yield
        return
    places = [
        (importlib.import_module(module), attribute, value) for module, attribute, value in weakenings()[name].patches
    ]
    before = [getattr(module, attribute) for module, attribute, _ in places]
    try:
        for module, attribute, value in places:
            setattr(module, attribute, value)
        yield
    finally:
        for (module, attribute, _), value in zip(places, before, strict=True):
            setattr(module, attribute, value)
