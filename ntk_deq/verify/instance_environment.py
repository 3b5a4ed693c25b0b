"""The formulas of a claim on one instance: the environment that they are evaluated in."""

from __future__ import annotations

import torch

from ntk_deq.certified import ball
from ntk_deq.certified.precise import as_ball, precise
from ntk_deq.certified.rounding import add_up, fro_up
from ntk_deq.certified.scalar import with_radius
from ntk_deq.claims.claim import Claim
from ntk_deq.evaluation.environment import Environment, Notes
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.providers import PROVIDERS
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.falsify.domains import contains


def instance_environment(
    claim: Claim,
    instance: Instance,
    *,
    device: torch.device,
    dtype: torch.dtype,
    notes: Notes,
    precision: int | None = None,
) -> Environment:
    """Return the environment of an instance: every float is taken as exact, unless the instance says otherwise.

    With a `precision` the matrices have arb entries; the caller evaluates inside `working_precision`.

    Raises:
        LimitError: A matrix is too large for that precision.
    """
    setting = next(s for s in claim.settings if s.name == instance.setting)
    if setting.measured:
        notes.estimated["results"] = setting.measured  # numbers that no ball was measured with
    variables: dict[str, Scalar | Matrix] = {}
    for name, tensor in instance.values.items():
        radius = instance.rounded.get(name, 0.0)
        if tensor.ndim == 0:
            number = float(tensor)
            variables[name] = Scalar(with_radius(number, radius), abs(number))
        else:
            moved = tensor.to(device=device, dtype=dtype)
            size = float(torch.linalg.vector_norm(moved))
            free = claim.given.get(name) or setting.free.get(name)
            left = free is not None and dtype != tensor.dtype and not contains(free.domain, moved.double())
            if left or name in instance.rounded:
                # What single precision does not hold stays what it was, known to that precision.
                radius = add_up(radius, fro_up(tensor - moved.to(tensor)))
            known = ball(moved, radius) if precision is None else as_ball(precise(moved, radius))
            variables[name] = Matrix(known, size)
    last_step = 0 if claim.run is None else claim.run.iterates
    return Environment(
        setting.model, instance.sizes, variables, claim.let, notes, PROVIDERS, last_step=last_step, precision=precision
    )
