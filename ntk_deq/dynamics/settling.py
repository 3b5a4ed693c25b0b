"""Which entries of a solved state near a kink at zero are fed, and which are zero."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ntk_deq.dynamics.solved import Map

# Rounds without a change after which what is fed counts as known, although values still move.
_STEADY = 8


def settle_rows(
    Z: Float[Tensor, "N m"],
    rows: Int[Tensor, " n"],
    doubtful: Bool[Tensor, "n m"],
    step: Map,
    margin: Callable[[Tensor], Tensor],
    contraction: float,
) -> int:
    """Find out which doubtful entries of some rows are fed, set the others to zero, and return the evaluations made.

    With the entries in no doubt held as they are, the doubtful ones u solve a fixed-point problem of their own,
    u = G(u), with the same contraction q. It is iterated from zero. So an entry that only feeds itself stays at exactly
    zero, as in the least fixed point; one that is fed over k hops comes up in round k, however small; and the values
    are of the size of what feeds them, where in Z they drown in the error of all other entries.

    It ends once the same entries are fed in two rounds, and no more can change: the pre-activation of each is further
    from zero than q/(1 - q) norm(G(u) - u), that of its row, or exactly zero, as where nothing reaches it. With weights
    >= 0 what is fed only grows, and two equal rounds are proof. With others an entry may be told by the eighth equal
    round, and after m + 8 rounds in any case.

    Entries that are fed keep their value in Z, or get that of the last round where it was zero.

    Args:
        Z: The state; written to.
        rows: Rows with doubtful entries.
        doubtful: Which entries of these rows are in doubt.
        step: The map of these rows.
        margin: Gives the pre-activations of these rows at the last evaluation, which returned its argument.
        contraction: The bound q < 1.
    """
    known, m = Z[rows], Z.shape[1]
    state, image = known.masked_fill(doubtful, 0.0), torch.empty_like(known)
    fed, steady, made = torch.zeros_like(doubtful), 0, 0
    while steady <= _STEADY and made < m + _STEADY:
        step(state, image)
        made += 1
        following = torch.where(doubtful, image, known)
        error = torch.linalg.vector_norm(following - state, dim=1, keepdim=True).mul_(contraction / (1 - contraction))
        now, distance = doubtful & (image != 0), margin(image).abs()
        if not torch.equal(now, fed):
            steady = 0
        elif not bool((doubtful & (distance != 0) & (distance <= error)).any()):
            break
        fed, state, steady = now, following, steady + 1
    Z[rows] = torch.where(doubtful & (~fed | (known == 0)), state, known)
    return made
