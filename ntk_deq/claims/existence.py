"""What a claim says exists: variables, and the constants of O(...) and Omega(...) in conclusions.

What of the claim may speak of the variables, and what is asked of their witnesses. Each order has a constant of its
own, positive and the same for all instances.

What a system declares of its equilibrium made sure: a Lipschitz constant of the map, or one monotone layer.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from ntk_deq.claims.check import Key
from ntk_deq.claims.claim import MEMBERSHIP, is_membership
from ntk_deq.claims.schema import ClaimModel
from ntk_deq.errors import ExpressionError
from ntk_deq.language.application import Definition
from ntk_deq.language.calls import Parameter
from ntk_deq.language.declaration import ModelSignature, Setting
from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.fixed_point_map import layer_weight, lipschitz_constant
from ntk_deq.language.format import format_expr
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.parser import parse
from ntk_deq.language.ranges import Ranges
from ntk_deq.language.run import RUN_KINDS
from ntk_deq.language.tree import Expr, Formula, Kind, names_in, reached
from ntk_deq.language.types import ONE, SCALAR

Fault = tuple[tuple[str, ...], str]
"""Where something is wrong, and what."""


def names_behind(expr: Expr, definitions: Mapping[str, Expr]) -> set[str]:
    """Return every name that an expression rests on, directly or through definitions."""
    return reached(names_in(expr), lambda name: names_in(definitions[name]) if name in definitions else ())


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
            found["conclude", label] = Formula(label, text, parse(text), witness[name].position)
    return found


def existence_faults(
    model: ClaimModel,
    uniform: bool | list[str],
    settings: Sequence[Setting],
    given: Mapping[str, Free],
    exists: Mapping[str, Free],
    read: Mapping[str, Mapping[str, Formula]],
    broken: set[str],
) -> Iterator[Fault]:
    """Yield what is wrong with how a claim speaks of variables that it says exist.

    Args:
        model: The claim as written.
        uniform: What they are said not to depend on.
        settings: Its settings.
        given: What it quantifies over besides.
        exists: The variables, as far as they can be read.
        read: The formulas by section: `witness`, `let`, `assume`, `conclude`.
        broken: Names that cannot be used, of which enough is said already.
    """
    witness = read["witness"]
    yield from _uniform_faults(model, uniform, settings, given, exists, read)
    if not exists and not witness:
        return
    let, assume, conclude = read["let"], read["assume"], read["conclude"]
    if exists and model.run is not None and RUN_KINDS[model.run.method].trains:
        yield ("exists",), "`exists` is not judged along a training run: leave `run` out."
    elif exists and model.run is not None and not witness:
        yield ("exists",), "along a run nothing is looked for: `exists` needs a `witness` there, or no `run`."
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
    """Return every name that a formula uses, directly or through definitions and the entries of recursions."""

    def behind(name: str) -> set[str]:
        return set().union(*(own.names for key, own in let.items() if key == name or key.startswith(f"{name}[")))

    return reached(formula.names, behind)


def uniform_names(uniform: bool | list[str], settings: Iterable[Setting], given: Mapping[str, Free]) -> frozenset[str]:
    """Return what the existing variables do not depend on; `true` is every variable and every size.

    What is independent of a size cannot depend on a variable whose shape has it.
    """
    if not isinstance(uniform, list):
        return _quantified(settings, given) if uniform else frozenset()
    types = {name: free.type for name, free in given.items()}
    for setting in settings:
        types |= setting.variable_types()
    letters = frozenset(uniform)
    return letters | {name for name, own in types.items() if (own.rows.letters | own.cols.letters) & letters}


def _quantified(settings: Iterable[Setting], given: Iterable[str]) -> frozenset[str]:
    names = {name for setting in settings for name in (*setting.variable_types(), *setting.sizes)}
    return frozenset(names.union(given))


def _uniform_faults(
    model: ClaimModel,
    uniform: bool | list[str],
    settings: Sequence[Setting],
    given: Mapping[str, Free],
    exists: Mapping[str, Free],
    read: Mapping[str, Mapping[str, Formula]],
) -> Iterator[Fault]:
    """Yield what is wrong with what existing variables are said not to depend on."""
    witness = read["witness"]
    if uniform is False:
        return
    if model.exists and uniform is True and model.uniform is not True:
        yield ("exists",), "beside `O(...)` and `Omega(...)`, `exists` needs `uniform: true`."
    if not exists and not model.uniform:
        return
    if not exists:
        yield ("uniform",), "`uniform` says what the variables under `exists` do not depend on, and there are none."
        return
    known = _quantified(settings, given)
    fixed = uniform_names(uniform, settings, given)
    for name in sorted(fixed - known):
        names = ", ".join(sorted(known)) or "none"
        yield ("uniform",), f"`uniform` takes variables and sizes of the claim: {names}. Got `{name}`."
    for name, free in exists.items():
        sizes = sorted((free.type.rows.letters | free.type.cols.letters) & fixed)
        if sizes:
            yield (
                ("exists", name),
                f"`exists.{name}` has a shape with `{sizes[0]}`, on which `uniform` says it does not depend.",
            )
    for name, formula in witness.items():
        reached = _reached(formula, {**read["let"], **witness})
        for network in (setting.model for setting in settings):
            if network is not None and reached & {network.state, *network.definitions}:
                reached |= set(network.names())
        bound = sorted(reached & fixed)
        if bound:
            message = f"`witness.{name}` must not depend on `{bound[0]}`: `uniform` says that it is the same for all."
            yield ("witness", name), message


ORDERS = ("O", "Omega")
"""How the orders are called; a function of arguments of that name is meant instead, where a claim defines one."""


def has_orders(conclude: Mapping[str, Formula], functions: Iterable[Definition]) -> bool:
    """Whether a conclusion speaks of an order, and no function of the claim is called so."""
    if any(function.name in ORDERS for function in functions):
        return False
    return any(_is_order(node) for formula in conclude.values() for node in formula.expr.walk())


def without_orders(formula: Formula, taken: Container[str], known: dict[str, Free]) -> Formula:
    """Return a conclusion with a constant times what stands in brackets in place of every order.

    Args:
        formula: The conclusion, as it was parsed.
        taken: Names that are used otherwise.
        known: The constants so far, to which those of the formula are added.

    Raises:
        ExpressionError: An order does not stand alone on the side of a comparison that it bounds.

    Example:
        >>> from ntk_deq.errors import Position
        >>> from ntk_deq.language.format import format_expr
        >>> from ntk_deq.language.parser import parse
        >>> constants = {}
        >>> text = "norm(A) <= O(sqrt(m))"
        >>> found = without_orders(Formula("c", text, parse(text), Position("a.yaml", 1, 1)), (), constants)
        >>> format_expr(found.expr), list(constants)
        ('norm(A) <= C1*sqrt(m)', ['C1'])
    """
    return replace(formula, expr=_written(formula.expr, taken, known))


def put_constants(
    conclude: dict[str, Formula], exists: dict[str, Free], taken: Container[str]
) -> list[tuple[str, ExpressionError]]:
    """Put constants in the place of the orders of conclusions; return what is wrong, and take that out.

    Args:
        conclude: The conclusions, which are changed.
        exists: Variables that are said to exist, to which the constants are added.
        taken: Names that are used otherwise.
    """
    errors = []
    for name, formula in list(conclude.items()):
        try:
            conclude[name] = without_orders(formula, taken, exists)
        except ExpressionError as error:
            errors.append((name, error))
            del conclude[name]
    return errors


def _is_order(node: Expr) -> bool:
    return node.kind is Kind.CALL and node.name in ORDERS and len(node.args) == 1


def _written(expr: Expr, taken: Container[str], known: dict[str, Free]) -> Expr:
    if expr.kind is not Kind.COMPARE:
        if _is_order(expr) or (expr.kind is Kind.NOT and any(map(_is_order, expr.walk()))):
            raise _misplaced(expr)
        return expr.mapped(lambda part: _written(part, taken, known))
    sides = list(expr.args)
    for place, side in enumerate(expr.args):
        if not _is_order(side):
            sides[place] = _written(side, taken, known)
            continue
        # A side of a chain is above what stands on either hand, or below it.
        above = [sign in ("<=", "<") for sign in expr.operators[max(place - 1, 0) : place]]
        above += [sign in (">=", ">") for sign in expr.operators[place : place + 1]]
        ordered = all(sign in ("<=", "<", ">=", ">") for sign in expr.operators)
        if not ordered or not all(one == (side.name == "O") for one in above):
            raise _misplaced(side)
        number = next(k for k in range(1, 1000) if f"C{k}" not in taken and f"C{k}" not in known)
        name = f"C{number}"
        known[name] = Free(name, SCALAR, Domain(DomainKind.POSITIVE, text="positive"))
        constant = Expr(Kind.NAME, side.span, name=name)
        sides[place] = Expr(Kind.MULTIPLY, side.span, (constant, _written(side.args[0], taken, known)))
    return replace(expr, args=tuple(sides))


def _misplaced(expr: Expr) -> ExpressionError:
    message = (
        "`O(...)` stands alone on the larger side of `<=`, `<`, `>=` or `>`, `Omega(...)` on the smaller side; "
        "neither is denied."
    )
    return ExpressionError(message, (expr.span.start, expr.span.stop))


_BEYOND = {Parameter.STATE, Parameter.VARIABLE}


class CertificateError(ExpressionError):
    """A declared certificate is none, or the map cannot have it.

    Attributes:
        key: Where: `equilibrium`, `contraction` or `monotone`.
    """

    def __init__(self, key: str, error: ExpressionError) -> None:
        super().__init__(error.message, error.span, error.hint)
        self.key = key


def certified(
    draft: ModelSignature,
    image: Expr,
    definitions: Mapping[str, Expr],
    *,
    contraction: Expr | None,
    monotone: Expr | None,
) -> ModelSignature:
    """Return a declaration with what shows that its equilibrium exists.

    Args:
        draft: The declaration, its `contraction` and `monotone` as declared.
        image: The map, typed.
        definitions: The definitions, typed.
        contraction: The declared Lipschitz constant, typed, or None.
        monotone: The declared modulus, likewise.

    Raises:
        CertificateError: What is declared is no certificate of this map.
    """
    name = _of_the_model(image, definitions)
    if name is not None:
        _fail("equilibrium", f"`{name}` cannot stand in the map, or in a definition behind it.")
    for key, declared in (("contraction", contraction), ("monotone", monotone)):
        if declared is not None and draft.state in names_behind(declared, definitions):
            _fail(key, f"a certificate of `{draft.state}` cannot rest on `{draft.state}` itself.")
    try:
        known = lipschitz_constant(image, draft.state, definitions, depth=dict(draft.depth))
    except ExpressionError as error:
        if contraction is not None:
            raise CertificateError("equilibrium", error) from None
        known = ""
    if contraction is not None:
        return replace(draft, contraction=_larger(draft.contraction, contraction, known))
    if monotone is None:
        return replace(draft, contraction=known, local=True)
    if layer_weight(image, draft.state, definitions, shape=draft.state_shape) is None:
        _fail("monotone", "the map is not seen to be one layer, act(W*Z + C) or act(Z*W + C) with a proximal act.")
    if not Ranges({}, {}).of(monotone).high > 0:
        _fail("monotone", f"the modulus must be > 0. Got {draft.monotone}.")
    return replace(draft, contraction=known)


def _larger(text: str, declared: Expr, known: str) -> str:
    """Return the constant that is read off a map, or the declared one where that is larger.

    Every verdict rests on it, so that no declared constant is believed.
    """
    same = _factors(parse(known))
    largest = declared.args if declared.kind is Kind.CALL and declared.name == "max" else (declared,)
    return text if same in map(_factors, largest) else f"max({text}, {known})"


def _factors(expr: Expr) -> list[str]:
    """Return the factors of a product in one order."""
    if expr.kind is Kind.MULTIPLY:
        return sorted(factor for arg in expr.args for factor in _factors(arg))
    return [format_expr(expr)]


def _of_the_model(image: Expr, definitions: Mapping[str, Expr]) -> str | None:
    """Return what a map must not use, as it is about the model itself: its equilibrium, derivatives; or None."""
    for expr in (image, *(definitions[name] for name in names_behind(image, definitions) if name in definitions)):
        for node in expr.walk():
            if node.kind is Kind.AT or (node.kind is Kind.CALL and _BEYOND & set(FUNCTIONS[node.name].parameters)):
                return "at" if node.kind is Kind.AT else node.name
    return None


def _fail(key: str, message: str) -> NoReturn:
    raise CertificateError(key, ExpressionError(message, (0, 0)))
