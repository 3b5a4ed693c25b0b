"""Variables that a claim says exist: what of the claim may speak of them, and what is asked of their witnesses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ntk_deq.claims.check import Key, parsed
from ntk_deq.claims.claim import MEMBERSHIP, is_membership
from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.tree import Formula, Kind, names_in
from ntk_deq.language.types import ONE, SCALAR

Fault = tuple[tuple[str, ...], str]
"""Where something is wrong, and what."""


def membership(free: Free) -> str | None:
    """Return the statement that a variable lies in its domain; None where everything of its shape does.

    That a number is whole no statement says, and of `integer 1..5` it is left out.

    Example:
        >>> from ntk_deq.language.domain import parse_domain
        >>> membership(Free("C", SCALAR, parse_domain("(0, 1/2]")[0]))
        'C > 0 and C <= 1/2'
    """
    name, domain = free.name, free.domain
    match domain.kind:
        case DomainKind.REAL:
            return None
        case DomainKind.NONNEGATIVE:
            return f"{name} >= 0"
        case DomainKind.POSITIVE:
            return f"{name} > 0"
        case DomainKind.INTERVAL | DomainKind.INTEGER:
            return _between(free, domain)
        case DomainKind.SYMMETRIC:
            return f"{name} == {name}'"
        case DomainKind.SKEW:
            return f"{name} == -{name}'"
        case DomainKind.PSD:
            return f"psd({name})"
        case DomainKind.DIAGONAL:
            return f"{name} == diag(diag({name}))"
        case DomainKind.ORTHOGONAL:
            return f"{name}'*{name} == I({free.type.rows})"
        case DomainKind.UNIT_ROWS:
            return f"norm({name}) == 1" if free.type.cols == ONE else f"diag({name}*{name}') == ones({free.type.rows})"


def _between(free: Free, domain: Domain) -> str | None:
    least, most = (free.name, free.name) if free.type == SCALAR else (f"min({free.name})", f"max({free.name})")
    bounds = []
    if domain.low is not None:
        bounds.append(f"{least} {'>' if domain.low_open else '>='} {domain.low}")
    if domain.high is not None:
        bounds.append(f"{most} {'<' if domain.high_open else '<='} {domain.high}")
    return " and ".join(bounds) or None


def memberships(exists: Mapping[str, Free], witness: Mapping[str, Formula]) -> dict[Key, Formula]:
    """Return the conclusions that say that witnesses lie in their domains."""
    found: dict[Key, Formula] = {}
    for name, free in exists.items():
        text = membership(free) if name in witness else None
        if text is not None:
            label = f"{MEMBERSHIP}{name} in {free.domain.text or free.domain.kind.value}"
            found["conclude", label] = Formula(label, text, parsed(text), witness[name].position)
    return found


def existence_faults(
    exists: Mapping[str, Free],
    witness: Mapping[str, Formula],
    read: Mapping[str, Mapping[str, Formula]],
    broken: set[str],
    *,
    runs: bool,
) -> Iterator[Fault]:
    """Yield what is wrong with how a claim speaks of variables that it says exist.

    Args:
        exists: The variables, as far as they can be read.
        witness: Formulas of their witnesses.
        read: The other formulas by section: `let`, `assume`, `conclude`.
        broken: Names that cannot be used, of which enough is said already.
        runs: Whether the claim has a run.
    """
    if not exists and not witness:
        return
    let, assume, conclude = read["let"], read["assume"], read["conclude"]
    if exists and runs:
        yield ("exists",), "`exists` is not judged along a run: leave `run` out."
    for name, free in exists.items():
        if free.over is not None:
            yield ("exists", name), f"`exists.{name}`: a family is not judged here; write its members one by one."
        if name in witness and free.domain.kind is DomainKind.INTEGER:
            message = f"`witness.{name}`: that a formula is a whole number is not certified; leave `witness` out."
            yield ("witness", name), message
    for name in witness.keys() - exists.keys() - broken:
        known = ", ".join(exists) or "nothing"
        yield ("witness", name), f"`witness.{name}` belongs to no variable under `exists`, which has {known}."
    missing = [name for name in exists if name not in witness] if witness else []
    if missing and not broken:
        names = ", ".join(f"`{name}`" for name in missing)
        message = f"`witness` gives all variables under `exists` or none; {names} is missing."
        yield ("witness",), message
    for name, formula in assume.items():
        bound = sorted(exists.keys() & _reached(formula, let))
        if bound:
            message = (
                f"`assume.{name}` speaks of `{bound[0]}`, which exists for an instance: hypotheses come before it."
            )
            yield ("assume", name), message
    used = set[str]().union(*(_reached(formula, let) for formula in conclude.values()))
    for name in exists:
        if name not in used and not broken:
            yield ("exists", name), f"`exists.{name}` is used in no conclusion."
    for name in conclude:
        if is_membership(name):
            yield ("conclude", name), f"the name of a conclusion must not begin with `{MEMBERSHIP}`, as {name!r} does."
    for name, formula in {**let, **witness, **conclude}.items():
        moved = {n for node in formula.expr.walk() if node.kind is Kind.AT for n in node.names} & exists.keys()
        if moved:
            section = "let" if name in let else "witness" if name in witness else "conclude"
            yield (section, name), f"`at` replaces variables of the instance, and `{min(moved)}` is none."


def _reached(formula: Formula, let: Mapping[str, Formula]) -> set[str]:
    """Return every name that a formula uses, directly or through definitions."""
    found, queue = set[str](), [formula]
    while queue:
        for name in names_in(queue.pop().expr) - found:
            found.add(name)
            if name in let:
                queue.append(let[name])
    return found
