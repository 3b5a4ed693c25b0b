"""How far a row program and its cotangents are off where the state is off: norms that pass in place of values.

Estimates, in the Frobenius norm and to first order: a product counts with a bound of its matrix' spectral norm, an
entrywise function with its largest slope, and backwards with its largest second derivative, where the values are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.language.row_program import Op, Row
from ntk_deq.language.tree import Expr
from ntk_deq.systems.parameter_slopes import Error
from ntk_deq.systems.row_slopes import LinearRows, Occurrence, largest

Errors = Mapping[Row, Tensor]


@dataclass(frozen=True, eq=False)
class ErrorsBehind:
    """What cotangents are off by.

    Attributes:
        places: Formulas of parameters, with the errors of the slopes in them.
        state: The error of the state's cotangent, 0-d.
    """

    places: list[tuple[Expr, Error]]
    state: Float[Tensor, ""]


def errors_ahead(at: LinearRows, moved: Float[Tensor, ""]) -> dict[Row, Tensor]:
    """Return what every step that depends on the state is off by.

    Args:
        at: The program where it is.
        moved: What the state is off by.
    """
    found: dict[Row, Tensor] = {}
    for step in at.moving:
        found[step] = moved if step.op is Op.STATE else sum(_ahead(at, step, found), torch.zeros_like(moved))
    return found


def _ahead(at: LinearRows, step: Row, found: Errors) -> list[Tensor]:
    """Return what each argument that is off adds."""
    own = [arg for arg in step.args if arg in found]
    match step.op:
        case Op.PRODUCT:
            return [found[arg] * at.norm(step) for arg in own]
        case Op.SCALE:
            return [found[arg] * at.number(step).abs() for arg in own]
        case Op.HADAMARD:
            left, right = step.args
            sides = ((left, right), (right, left))
            return [found[arg] * largest(at.at(other)) for arg, other in sides if arg in found]
        case Op.ENTRYWISE:
            return [found[arg] * largest(at.slope(step)) for arg in own]
        case Op.SOFTMAX:
            return [found[arg] / 2 for arg in own]
    return [found[arg] for arg in own]


def errors_behind(
    at: LinearRows, cotangents: Mapping[Row, Tensor], error: Float[Tensor, ""], ahead: Errors
) -> ErrorsBehind:
    """Return what the cotangents are off by where that of the program's value is, and the state is.

    Args:
        at: The program where it is.
        cotangents: Those of all steps (`LinearRows.cotangents`).
        error: What that of the program's value is off by.
        ahead: As `errors_ahead` returned it.
    """
    none = torch.zeros_like(error)
    found, places = {at.root: error}, list[tuple[Expr, Error]]()
    for step in reversed(at.steps):
        if step not in cotangents:
            continue
        own = found.get(step, none)
        for place in at.places(step, cotangents[step]):
            places.append((place.expr, _place(place, own, ahead.get(step.args[0], none), at)))
        for arg, part in zip(step.args, _behind(at, step, own, cotangents[step], ahead, none), strict=True):
            if arg in cotangents or arg is at.state:
                found[arg] = found[arg] + part if arg in found else part
    return ErrorsBehind(places, none if at.state is None else found.get(at.state, none))


def _behind(at: LinearRows, step: Row, own: Tensor, cotangent: Tensor, ahead: Errors, none: Tensor) -> list[Tensor]:
    match step.op:
        case Op.PRODUCT:
            return [own * at.norm(step)]
        case Op.SCALE:
            return [own * at.number(step).abs()]
        case Op.HADAMARD:
            left, right = step.args
            size = largest(cotangent)
            return [own * largest(at.at(other)) + size * ahead.get(other, none) for other in (right, left)]
        case Op.ENTRYWISE:
            (arg,) = step.args
            bent = largest(cotangent) * at.curvature(step) * ahead[arg] if arg in ahead else none
            return [own * largest(at.slope(step)) + bent]
        case Op.SOFTMAX:
            (arg,) = step.args
            # With J = diag(p) - p p', its slope applied to c is p .* (c - p'c), which moves with the argument by
            # J diag(c - p'c) - p (J c)': at most by norm(c - p'c)/2 + norm(c)/2 <= 3/2 norm(c).
            bent = 1.5 * largest(torch.linalg.vector_norm(cotangent, dim=-1)) * ahead[arg] if arg in ahead else none
            return [own / 2 + bent]
    return [own for _ in step.args]


def _place(place: Occurrence, behind: Tensor, before: Tensor, at: LinearRows) -> Error:
    """Return the error of a sum of outer products, or of inner ones, of which both sides are off."""
    count = torch.tensor(float(at.count), dtype=behind.dtype, device=behind.device).sqrt()
    sizes = [count if side is None else torch.linalg.vector_norm(side) for side in (place.before, place.behind)]
    return Error(sizes[0] * behind + sizes[1] * before)
