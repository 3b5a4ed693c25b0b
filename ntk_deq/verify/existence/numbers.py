"""Existence of numbers: none on an instance, by proof; constants that do not depend on what follows, one for all.

That no numbers exist on an instance is shown by the proofs of claims about numbers (`ntk_deq.prove`). What does not
rest on the numbers that are looked for is put in as the fraction that it is on the instance; then no point meets the
conclusions, by exact algebra or by branch and bound over the whole domain, or nothing is said.

That every instance has a constant of its own shows nothing of one for all, and neither does the largest of them. A
claim about numbers is proven with a plain constant in its place. It is refuted along a ray: where, for every constant,
the instance that a formula in the constant gives meets the hypotheses and breaks a conclusion. Both are claims about
numbers, and proven as such. A claim about matrices is looked at where all sizes are 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product

import torch
from flint import fmpq

from ntk_deq.certified.algebraic import UndecidedError
from ntk_deq.certified.algebraic_matrix import ExactMatrix
from ntk_deq.claims.claim import Claim, Verdict
from ntk_deq.claims.existence import membership, names_behind
from ntk_deq.errors import NtkDeqError
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.environment import Notes, OutsideClaimError
from ntk_deq.evaluation.exact import ExactNames, decided, value_of
from ntk_deq.evaluation.functions import ExactValue as Value
from ntk_deq.evaluation.instance import Instance, shape_of
from ntk_deq.evaluation.quantity import Outcome, Truth
from ntk_deq.falsify.domains import within
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import Expr, Formula, Kind
from ntk_deq.language.types import BOOLEAN, SCALAR, Sort, Type
from ntk_deq.language.typing import infer
from ntk_deq.language.written import formula_of, put
from ntk_deq.verify.existence.contradiction import Contradiction
from ntk_deq.verify.formulas import instance_environment
from ntk_deq.verify.judge import Judgement, Standing
from ntk_deq.verify.prover import Proof, prove_claim

CONSTANTS = ("1", "2", "1/2", "4", "10", "100", "1/10", "10000")
"""Constants that are tried, one after the other."""

RAYS = ("{0} + 1", "2*{0} + 1", "{0}^2 + 1", "1/({0} + 1)", "1/{0} + 1", "1/({0} + 1)^2", "-{0} - 1")
"""Where a ray leads, as formulas in the constant without its sign."""

_PLAIN = ("1", "0", "1/2", "2")
_BOXES = 60  # of a proof along a ray, or of one constant
_BOXES_ALONE, _CHOICES = 400, 256  # of a proof that no numbers exist on an instance, and whole numbers tried there

_NUMBERS = {
    **dict.fromkeys(("trace", "det", "sum", "vec", "diag", "lambda_min", "lambda_max", "lambda_sym"), "x"),
    **dict.fromkeys(("norm", "fro", "norm1", "norminf", "sigma_min", "sigma_max", "rho", "nuclear"), "abs(x)"),
    **dict.fromkeys(("hadamard", "kron", "dot", "khatri_rao"), "x*y"),
    **dict.fromkeys(("I", "ones", "commutation"), "1"),
    **{"zeros": "0", "inv": "1/x", "sqrtm": "sqrt(x)"},
}
"""What functions of matrices are where all sizes are 1, as formulas in their arguments."""


class _NoNumbersError(Exception):
    """A formula that is no formula of numbers where all sizes are 1."""


def prove_uniform(claim: Claim, *, deadline: float | None = None) -> Proof | None:
    """Return a proof that one constant serves all instances, or that none does; None where neither is known.

    Args:
        claim: A claim with `uniform` and without a witness.
        deadline: When to stop, on the clock of `time.thread_time`.

    Raises:
        DeadlineError: The deadline passed.
    """
    if any(free.type != SCALAR for free in claim.exists.values()):
        return None
    if all(not setting.sizes for setting in claim.settings):
        whole = any(free.domain.kind is DomainKind.INTEGER for free in claim.exists.values())
        for text in (text for text in CONSTANTS if not (whole and "/" in text)):
            constants = {name: _formula(name, text, {}, claim) for name in claim.exists}
            proof = prove_claim(_with_constants(claim, constants), budget=_BOXES, deadline=deadline)
            if proof is not None and proof.verdict is Verdict.PROVED:
                shown = ", ".join(f"{name} = {text}" for name in claim.exists)
                return replace(proof, reason=f"{shown}: {proof.reason}")
    if len(claim.exists) == 1:
        for setting in claim.settings:
            found = _refuted(claim, setting, deadline)
            if found is not None:
                return found
    return None


def _with_constants(claim: Claim, constants: Mapping[str, Formula]) -> Claim:
    """Return the claim with constants in place of what exists, and that they lie in their domains."""
    inside = _inside(claim, claim.exists)
    return replace(
        claim,
        exists={},
        uniform=frozenset(),
        let={**constants, **claim.let},
        conclude={**claim.conclude, **inside},
    )


def _inside(claim: Claim, variables: Mapping[str, Free]) -> dict[str, Formula]:
    texts = {name: membership(free) for name, free in variables.items()}
    types = dict.fromkeys(variables, SCALAR)
    return {f"{n} inside": _formula(f"{n} inside", text, types, claim) for n, text in texts.items() if text is not None}


def _formula(name: str, text: str, types: Mapping[str, object], claim: Claim) -> Formula:
    return Formula(name, text, infer(parse(text), dict(types)), claim.position)  # type: ignore[arg-type]


def _refuted(claim: Claim, setting: Setting, deadline: float | None) -> Proof | None:
    """Return the proof that along some ray every constant fails."""
    if setting.model is not None or not setting.universal:
        return None
    if any(size.low > 1 for size in setting.sizes.values()):
        return None
    try:
        variables = {n: _number_of(f, setting) for n, f in {**setting.free, **claim.given}.items()}
        sections = {
            s: {n: replace(f, expr=_numbers(f.expr, setting)) for n, f in getattr(claim, s).items()}
            for s in ("let", "assume", "conclude")
        }
    except _NoNumbersError:
        return None
    ((constant, free),) = claim.exists.items()
    sizes = f" with {', '.join(f'{letter} = 1' for letter in setting.sizes)}" if setting.sizes else ""
    free_last = [n for n in variables if n in claim.uniform]
    for moving in [*({n} for n in free_last), *([set(free_last)] if len(free_last) > 1 else [])]:
        for values in _rays(claim, constant, free, variables, moving):
            for broken in sections["conclude"]:
                about = _along(claim, setting, (constant, free), variables, sections, values, broken)
                proof = prove_claim(about, budget=_BOXES, deadline=deadline)
                if proof is not None and proof.verdict is Verdict.PROVED:
                    shown = ", ".join(f"{name} = {formula.text}" for name, formula in values.items())
                    reason = (
                        f"no {constant} serves all instances: for every {constant}, {shown}{sizes} breaks {broken!r}"
                    )
                    example = _example(setting, constant, free, values, broken, reason)
                    return Proof(Verdict.REFUTED, proof.evidence, f"{reason} ({proof.reason})", example=example)
    return None


def _example(
    setting: Setting, constant: str, free: Free, values: Mapping[str, Formula], broken: str, reason: str
) -> Judgement | None:
    """Return the instance of a ray for a plain constant, to be shown."""
    number = next((n for n in (1.0, 0.5, 2.0, 0.25, 4.0) if within(free.domain, n)), None)
    if number is None:
        return None
    names = ExactNames({constant: fmpq(*number.as_integer_ratio())}, {})
    found = {name: value_of(formula.expr, names) for name, formula in values.items()}
    floats = {name: int(v.p) / int(v.q) for name, v in found.items() if isinstance(v, fmpq)}
    shapes = {name: setting.free[name].type if name in setting.free else SCALAR for name in floats}
    sizes = dict.fromkeys(setting.sizes, 1)
    tensors = {
        name: torch.full(shape_of(shapes[name], sizes), value, dtype=torch.float64) for name, value in floats.items()
    }
    instance = Instance(setting.name, f"of a ray, for {constant} = {number:g}", sizes, tensors, 0)
    return Judgement(instance, Standing.MET, {}, {broken: Outcome(Truth.FALSE, None, reason)}, reason)


def _rays(
    claim: Claim, constant: str, free: Free, variables: Mapping[str, Free], moving: Set[str]
) -> Iterator[dict[str, Formula]]:
    """Yield values of the variables as formulas in the constant: some along a ray, the others plain and the same."""
    bare = constant if free.domain.kind in (DomainKind.POSITIVE, DomainKind.NONNEGATIVE) else f"abs({constant})"
    for ray in RAYS:
        for plain in _PLAIN if len(variables) > len(moving) else _PLAIN[:1]:
            texts = {name: ray.format(bare) if name in moving else plain for name in variables}
            yield {name: _formula(name, text, {constant: SCALAR}, claim) for name, text in texts.items()}


def _along(
    claim: Claim,
    setting: Setting,
    quantified: tuple[str, Free],
    variables: Mapping[str, Free],
    sections: Mapping[str, dict[str, Formula]],
    values: Mapping[str, Formula],
    broken: str,
) -> Claim:
    """Return the claim that, for every constant, an instance meets the hypotheses and breaks a conclusion."""
    name, free = quantified
    expr = sections["conclude"][broken].expr
    denied = replace(sections["conclude"][broken], expr=Expr(Kind.NOT, expr.span, (expr,), type=BOOLEAN))
    alone = Setting(setting.name, None, {}, {name: free}, {}, None, setting.position)
    return replace(
        claim,
        settings=(alone,),
        given={},
        exists={},
        uniform=frozenset(),
        let={**values, **sections["let"]},
        assume={},
        conclude={**sections["assume"], **_inside(claim, variables), "broken": denied},
    )


def _check_number(type_: Type | None, setting: Setting) -> None:
    """Refuse what is no number where all size letters are 1: `I(2)`, a `real[2*m]`.

    Raises:
        _NoNumbersError: It is one.
    """
    if type_ is None or type_.sort is not Sort.MATRIX:
        return
    ones = dict.fromkeys(setting.sizes, 1)
    if {type_.rows.evaluate(ones), type_.cols.evaluate(ones)} != {1}:
        raise _NoNumbersError(str(type_))


def _number_of(free: Free, setting: Setting) -> Free:
    """Return a variable where all sizes are 1."""
    _check_number(free.type, setting)
    match free.domain.kind:
        case DomainKind.PSD:
            return Free(free.name, SCALAR, Domain(DomainKind.NONNEGATIVE))
        case DomainKind.SYMMETRIC | DomainKind.DIAGONAL:
            return Free(free.name, SCALAR, Domain(DomainKind.REAL))
        case DomainKind.REAL | DomainKind.POSITIVE | DomainKind.NONNEGATIVE | DomainKind.INTERVAL:
            return Free(free.name, SCALAR, free.domain)
    raise _NoNumbersError(free.name)


def _numbers(expr: Expr, setting: Setting) -> Expr:
    """Return a formula where all sizes are 1, in which every matrix is a number.

    Raises:
        _NoNumbersError: It is none.
    """
    _check_number(expr.type, setting)
    if expr.kind is Kind.NAME and expr.name in setting.sizes:
        return _literal(expr, 1)
    args = tuple(_numbers(arg, setting) for arg in expr.args)
    type_ = BOOLEAN if expr.type == BOOLEAN else SCALAR
    if expr.kind is Kind.TRANSPOSE:
        return args[0]
    if expr.kind is not Kind.CALL:
        if expr.kind in (Kind.AT, Kind.INDEX, Kind.FOR_ALL, Kind.EACH, Kind.SOME, Kind.OVER):
            raise _NoNumbersError(expr.kind.value)
        return replace(expr, args=args, type=type_)
    if expr.name == "pi":
        return expr
    formula = "x" if expr.name in ("max", "min") and len(args) == 1 else _NUMBERS.get(expr.name)
    if formula is not None:
        own = dict(zip("xy", args, strict=False))
        number, apply = partial(_literal, expr), lambda node, parts: replace(node, args=tuple(parts), type=SCALAR)
        return put(formula_of(formula), own, number, apply)
    if FUNCTIONS[expr.name].entrywise is None and expr.name not in ("max", "min"):
        raise _NoNumbersError(expr.name)
    return replace(expr, args=args, type=type_)


def _literal(expr: Expr, number: Fraction | int) -> Expr:
    return Expr(Kind.NUMBER, expr.span, value=Fraction(number), type=SCALAR)


def needed_constant(claim: Claim, instance: Instance) -> float | None:
    """Return how large a constant must be on an instance, in floats; None where no conclusion is `f <= C*g`.

    Args:
        claim: The claim as stated.
        instance: The instance.
    """
    cpu = torch.device("cpu")
    env = instance_environment(claim, instance, device=cpu, dtype=torch.float64, notes=Notes())
    ratios = []
    for name in sorted(claim.resting):
        expr = claim.conclude[name].expr
        if expr.kind is not Kind.COMPARE or len(expr.args) != 2 or expr.operators[0] not in ("<=", "<", ">=", ">"):
            continue
        small, large = expr.args if expr.operators[0] in ("<=", "<") else expr.args[::-1]
        factors = _factors(large)
        bound = [side for side in factors if side.kind is Kind.NAME and side.name in claim.exists]
        if len(bound) != 1:
            continue
        try:
            sides = [small, *(side for side in factors if side not in bound)]
            values = [float(ar.to_scalar(evaluate(side, env)).ball.mid()) for side in sides]
        except (NtkDeqError, KeyError):  # it has no value here, or rests on what exists
            continue
        over = math.prod(values[1:])
        if over > 0 and math.isfinite(values[0] / over):
            ratios.append(values[0] / over)
    return max(ratios, default=None)


def _factors(expr: Expr) -> list[Expr]:
    return [part for arg in expr.args for part in _factors(arg)] if expr.kind is Kind.MULTIPLY else [expr]


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
    alone = Setting("numbers", None, {}, dict(claim.exists), {}, None, position)
    about = replace(
        claim,
        settings=(alone,),
        given={},
        exists={},
        let={},
        assume={name: Formula(name, "", expr, position) for name, expr in assume.items()},
        conclude={"never": _formula("never", "1 < 0", {}, claim)},
    )
    proof = prove_claim(about, budget=_BOXES_ALONE, deadline=deadline)
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
    there = names.replaced(values)
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
        there = names.replaced(values)
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
    if expr.type not in (None, BOOLEAN) and not names_behind(expr, lets) & exists.keys():
        return _fraction(expr, names)
    return replace(expr, args=tuple(_put(arg, exists, lets, names) for arg in expr.args)) if expr.args else expr


def _fraction(expr: Expr, names: ExactNames) -> Expr:
    value = value_of(expr, names)
    number = value.entries[0] if isinstance(value, ExactMatrix) and value.shape == (1, 1) else value
    if not isinstance(number, fmpq):
        raise UndecidedError("no fraction")
    fraction = Fraction(int(number.p), int(number.q))
    literal = _literal(expr, abs(fraction))
    return literal if fraction >= 0 else Expr(Kind.NEGATE, expr.span, (literal,), type=SCALAR)
