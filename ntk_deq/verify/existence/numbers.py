"""That no numbers exist on an instance, by the proofs of claims about numbers (`ntk_deq.prove`).

What does not rest on the numbers that are looked for is put in as the fraction that it is on the instance; then no
point meets the conclusions, by exact algebra or by branch and bound over the whole domain, or nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import product

from flint import fmpq

from ntk_deq.certified.algebraic import UndecidedError
from ntk_deq.certified.algebraic_matrix import ExactMatrix
from ntk_deq.claims.check import parsed
from ntk_deq.claims.claim import Claim, Verdict
from ntk_deq.evaluation.environment import OutsideClaimError
from ntk_deq.evaluation.exact import ExactNames, decided, value_of
from ntk_deq.evaluation.functions.exact import Value
from ntk_deq.evaluation.quantity import Truth
from ntk_deq.language.domain import DomainKind
from ntk_deq.language.setting import Setting
from ntk_deq.language.tree import Expr, Formula, Kind, names_in
from ntk_deq.language.types import SCALAR, Sort
from ntk_deq.language.typing import infer
from ntk_deq.verify.existence.contradiction import Contradiction
from ntk_deq.verify.prover import prove_claim

_BOXES, _CHOICES = 400, 256
_NEVER = "1 < 0"


def contradicting_numbers(
    claim: Claim, names: ExactNames, setting: Setting, *, deadline: float | None = None
) -> Contradiction | None:
    """Return the conclusions that no numbers meet together, where that is proven.

    Args:
        claim: The claim as stated; other variables than numbers are left alone.
        names: What its other names mean on the instance.
        setting: The setting of the instance.
        deadline: When to stop, on the clock of `time.thread_time`.

    Raises:
        DeadlineError: The deadline passed.
    """
    if any(free.type != SCALAR for free in claim.exists.values()):
        return None
    lets = {name: formula.expr for name, formula in claim.let.items()}
    resting = sorted(claim.resting)
    try:
        assume = {name: _put(claim.conclude[name].expr, claim.exists, lets, names) for name in resting}
    except (UndecidedError, OutsideClaimError):
        return None
    position = claim.position
    never = Formula("never", _NEVER, infer(parsed(_NEVER), {}), position)
    alone = Setting("numbers", None, {}, dict(claim.exists), {}, None, position)
    about = replace(
        claim,
        settings=(alone,),
        given={},
        exists={},
        let={},
        assume={name: Formula(name, "", expr, position) for name, expr in assume.items()},
        conclude={"never": never},
    )
    proof = prove_claim(about, budget=_BOXES, deadline=deadline)
    if proof is None or proof.verdict is not Verdict.VACUOUS:
        return None
    return Contradiction(frozenset(resting), proof.reason.replace("the hypotheses", "the conclusions"))


def whole_numbers(claim: Claim) -> Iterator[dict[str, Value]]:
    """Yield all choices of what exists where these are whole numbers of short ranges, and few.

    Args:
        claim: The claim as stated.
    """
    frees = claim.exists.values()
    if not all(free.domain.kind is DomainKind.INTEGER and free.type == SCALAR for free in frees):
        return
    ranges = [range(int(free.domain.low or 0), int(free.domain.high or 0) + 1) for free in frees]
    if math.prod(map(len, ranges)) > _CHOICES:
        return
    for choice in product(*ranges):
        yield dict(zip(claim.exists, (fmpq(number) for number in choice), strict=True))


def broken_alone(
    claim: Claim, names: ExactNames, values: Mapping[str, Value], equations: frozenset[str]
) -> Contradiction | None:
    """Return the conclusion that the only values which meet linear equations break, decided exactly, or None.

    Args:
        claim: The claim as stated.
        names: What its other names mean on the instance.
        values: The values.
        equations: The conclusions that the equations stand in.
    """
    there = replace(names, values={**names.values, **values}, known={})
    for name in sorted(claim.resting):
        try:
            if decided(claim.conclude[name].expr, there).truth is Truth.FALSE:
                why = f"its linear equations have one solution, and {name!r} breaks there"
                return Contradiction(equations | {name}, why)
        except (UndecidedError, OutsideClaimError):
            continue
    return None


def contradicting_whole_numbers(claim: Claim, names: ExactNames) -> Contradiction | None:
    """Return the conclusions that no choice of few whole numbers meets together, each decided exactly.

    Args:
        claim: The claim as stated.
        names: What its other names mean on the instance.
    """
    choices = list(whole_numbers(claim))
    for values in choices:
        there = replace(names, values={**names.values, **values}, known={})
        try:
            if not any(decided(claim.conclude[n].expr, there).truth is Truth.FALSE for n in sorted(claim.resting)):
                return None
        except (UndecidedError, OutsideClaimError):
            return None
    if not choices:
        return None
    return Contradiction(claim.resting, f"each of {len(choices)} choices of whole numbers breaks one for certain")


def _put(expr: Expr, exists: Mapping[str, object], lets: Mapping[str, Expr], names: ExactNames) -> Expr:
    """Return a formula in which all that rests on no unknown is a number, and definitions are written out."""
    if expr.kind is Kind.NAME and expr.name in lets:
        return _put(lets[expr.name], exists, lets, names)
    if not _reached(expr, lets) & exists.keys():
        if expr.type is not None and expr.type.sort is not Sort.BOOLEAN:
            return _number(expr, names)
    return replace(expr, args=tuple(_put(arg, exists, lets, names) for arg in expr.args)) if expr.args else expr


def _reached(expr: Expr, lets: Mapping[str, Expr]) -> set[str]:
    found, queue = set[str](), [expr]
    while queue:
        for name in names_in(queue.pop()) - found:
            found.add(name)
            if name in lets:
                queue.append(lets[name])
    return found


def _number(expr: Expr, names: ExactNames) -> Expr:
    value = value_of(expr, names)
    number = value.entries[0] if isinstance(value, ExactMatrix) and value.shape == (1, 1) else value
    if not isinstance(number, fmpq):
        raise UndecidedError("no fraction")
    fraction = Fraction(int(number.p), int(number.q))
    if fraction < 0:
        positive = Expr(Kind.NUMBER, expr.span, value=-fraction, type=SCALAR)
        return Expr(Kind.NEGATE, expr.span, (positive,), type=SCALAR)
    return Expr(Kind.NUMBER, expr.span, value=fraction, type=SCALAR)
