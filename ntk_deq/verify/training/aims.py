"""What the constants of a claim are chosen for: its own objective, and aims at other corners of its hypotheses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import torch
from torch import Tensor

from ntk_deq.claims.claim import Claim
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.margins import parts
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Free, scalar_names
from ntk_deq.language.run import LOSS
from ntk_deq.language.tree import Expr, Kind, Span
from ntk_deq.language.types import SCALAR
from ntk_deq.verify.scoring import ORDERS, ClaimScorer, is_number
from ntk_deq.verify.training.between import at_the_start
from ntk_deq.verify.twins import twin_of

DRAWS = 2
"""Draws on which constants are chosen for each further aim."""

DEARER = 2.0
"""Settings that cost more times as much as the cheapest one are left to the claim's own objective."""

_LEVELS = (0.1, 0.5, 0.9)
_FIRST = 100.0  # weight of an aim against the claim's own objective, both in logarithms
_AT = 0.01  # an aim is reached to one per cent
_FARTHEST = 200.0  # in logarithms
_LEAST = 1e-300  # about the least float


def log_of(value: Tensor) -> Tensor:
    """Return a logarithm that grows with a number of either sign, zero at zero, and is finite for every float.

    Example:
        >>> log_of(torch.tensor([-1.0, 0.0, 1e300], dtype=torch.float64)).round().tolist()
        [-691.0, 0.0, 1382.0]
    """
    return value.sign() * ((value.abs() + _LEAST).log() - math.log(_LEAST))


@dataclass(frozen=True)
class Aim:
    """What constants are chosen for; where several choices do equally well, the claim's own objective decides.

    Attributes:
        words: In words.
        ratio: Two scalar formulas whose quotient is to be `target`; a ratio of 1 makes a hypothesis tight.
        target: That number.
        extreme: A scalar formula to make large, or small.
        maximize: Which of the two.
    """

    words: str
    ratio: tuple[Expr, Expr] | None = None
    target: float = 1.0
    extreme: Expr | None = None
    maximize: bool = True

    def height(self, scorer: ClaimScorer, base: Instance, moving: dict[str, Tensor], objective: Tensor) -> Tensor:
        """Return how bad candidates that meet the hypotheses are, from how bad they are for the claim's objective.

        Raises:
            NtkDeqError: A formula has no value.
        """
        if self.ratio is not None:
            left, right = (scorer.values(base, moving, side) for side in self.ratio)
            off = (left / right / self.target).abs().log().abs()
            return _FIRST * (torch.nan_to_num(off, nan=_FARTHEST, posinf=_FARTHEST) - _AT).clamp_min(0.0) + objective
        if self.extreme is not None:
            sign = -1.0 if self.maximize else 1.0
            return sign * _FIRST * log_of(scorer.values(base, moving, self.extreme)) + objective
        return objective

    def reached(self, scorer: ClaimScorer, instance: Instance) -> bool:
        """Whether a quotient is where it is to be; what is to be large or small never is.

        Args:
            scorer: Of the claim at its start.
            instance: An instance that meets the hypotheses.
        """
        if self.ratio is None:
            return False
        left, right = (scorer.values(instance, {}, side) for side in self.ratio)
        return bool((left / right / self.target).abs().log().abs() <= 2 * _AT)


OWN = Aim("the objective of the claim")
"""The aim of a claim that says nothing else."""


def aims_of(claim: Claim, setting: Setting) -> list[Aim]:
    """Return further aims for which constants of a claim are chosen.

    A hypothesis that bounds a quantity by a number, as gamma0 < 1, is met by a factor of 10, 2 and 10/9; each other one
    that compares two quantities just holds; the rate at which the loss is bounded is largest, where the objective is
    not one of the same quantities; each constant that scales a draw is smallest, and each of the model's map largest.

    Args:
        claim: A claim with `choose`.
        setting: One of its settings.
    """
    found = []
    for name, formula in at_the_start(claim).assume.items():
        for part in parts(name, formula.expr):
            ordered = part.expr.kind is Kind.COMPARE and len(part.expr.args) == 2 and part.expr.operators[0] in ORDERS
            if ordered and all(map(is_number, part.expr.args)):
                small, large = part.expr.args if part.expr.operators[0] in ("<", "<=") else part.expr.args[::-1]
                if large.kind is Kind.NUMBER:
                    found += [Aim(f"{name} at {at:g} of its limit", (small, large), at) for at in _LEVELS]
                else:
                    found.append(Aim(f"{name} tight", (small, large)))
    twin = twin_of(claim)
    rates = [] if twin.soon is None else _rates(claim, twin.soon)
    own = set() if claim.choose is None or not claim.choose.maximize else _names(claim.choose.objective.expr)
    found += [Aim("largest rate", extreme=rate) for rate in rates[:1] if not _names(rate) <= own]
    scorer = ClaimScorer(at_the_start(claim), setting)
    drawing = {node.name for draw in setting.draws.values() for node in scalar_names(draw.distribution)}
    for name in scalars(claim, setting):
        itself = Expr(Kind.NAME, Span(0, 0), name=name)
        if name in drawing:
            found.append(Aim(f"smallest {name}", extreme=itself, maximize=False))
        elif scorer.moves_state({name}):
            found.append(Aim(f"largest {name}", extreme=itself))
    return found


def _names(expr: Expr) -> set[str]:
    return {node.name for node in expr.walk() if node.kind is Kind.NAME}


def _rates(claim: Claim, soon: Fraction) -> list[Expr]:
    """Return formulas of the share by which bounds L[k] <= B(k) of the conclusions fall at first: 1 - B(h)/B(0)."""
    found = []
    for formula in claim.conclude.values():
        for node in formula.expr.walk():
            if node.kind is not Kind.COMPARE or node.operators != ("<=",):
                continue
            left, right = node.args
            fixed = all(p.args[0].kind is Kind.NUMBER for p in right.walk() if p.kind is Kind.INDEX)
            if left.kind is Kind.INDEX and left.name == LOSS and left.args[0].kind is Kind.NAME and fixed:
                later, first = (_at_index(right, left.args[0].name, at) for at in (soon, 0))
                one = Expr(Kind.NUMBER, right.span, value=Fraction(1))
                kept = Expr(Kind.DIVIDE, right.span, (later, first))
                found.append(Expr(Kind.SUBTRACT, right.span, (one, kept)))
    return found


def _at_index(expr: Expr, index: str, value: Fraction | int) -> Expr:
    if expr.kind is Kind.NAME and expr.name == index:
        return replace(expr, kind=Kind.NUMBER, name="", value=Fraction(value))
    return replace(expr, args=tuple(_at_index(arg, index, value) for arg in expr.args)) if expr.args else expr


def scalars(claim: Claim, setting: Setting) -> dict[str, Free]:
    """Return the scalars over which a claim quantifies: its own and those of a setting."""
    free = {**setting.free, **claim.given}
    return {name: variable for name, variable in free.items() if variable.type == SCALAR}


def shared_out(claim: Claim, chosen: dict[str, Instance]) -> Iterator[tuple[Setting, Aim, int]]:
    """Yield the further aims of a claim, each with a setting to try it in and a number: settings take turns.

    Args:
        claim: A claim with `choose`.
        chosen: By setting: an instance whose constants were chosen for the claim's own objective.
    """
    costs = {s.name: twin_of(claim).cost(claim, s, chosen[s.name].sizes) for s in claim.settings if s.name in chosen}
    cheap = [s for s in claim.settings if s.name in costs and costs[s.name] <= DEARER * min(costs.values())]
    for place, setting in enumerate(cheap):
        for number, aim in enumerate(aims_of(claim, setting)):
            if number % len(cheap) == place:
                yield setting, aim, number
