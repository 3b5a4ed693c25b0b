"""A claim with families written out for one depth: an ordinary claim, whose variables are called like `W[1]`.

Families are symbols above: a file is parsed and typed with its depth open. Whatever judges, searches or proves sees
claims that are written out, one for each setting and each choice of the letters that ranges and indices use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from itertools import product

from ntk_deq.claims.check import Key, check_formulas
from ntk_deq.claims.claim import Claim, Depth
from ntk_deq.claims.existence import CertificateError, certified
from ntk_deq.claims.open_depth import MODEL_FORMULAS, model_definitions, typed_definitions
from ntk_deq.claims.runs import start_formulas, with_start_formulas
from ntk_deq.errors import ArgumentError, ExpressionError
from ntk_deq.language.declaration import Draw, ModelSignature, Setting
from ntk_deq.language.domain import Free, check_distribution
from ntk_deq.language.expansion import Expansion
from ntk_deq.language.families import (
    Defined,
    concrete_type,
    defined,
    index_text,
    letters_in,
    member_name,
    quoted,
    split_member,
    values_of,
)
from ntk_deq.language.format import format_expr
from ntk_deq.language.parser import parse
from ntk_deq.language.recursion import RecursionFault, entry_of, ordered, recursions_in, recursive_names
from ntk_deq.language.rows import typed_model
from ntk_deq.language.shapes import too_large
from ntk_deq.language.tree import RANGED, Expr, Formula, Kind, Span, sort_definitions
from ntk_deq.language.types import Reach, Size, SizeRange, Sort, Type

MAX_PARTS = 10_000
"""Parts of a formula of a system with its definitions written out."""

MAX_DEPTHS = 8
"""Choices of the depths of one setting; each is a claim of its own to judge."""

_NOWHERE = Span(0, 0)
_NO_VARIABLES: Mapping[str, Free] = {}
_NO_FORMULAS: Mapping[Key, Formula] = {}


@dataclass(frozen=True)
class WrittenOut:
    """The parts of a claim for one depth, without types.

    Attributes:
        setting: The setting.
        given: The claim's own free variables.
        formulas: By section and name; definitions in an order in which each uses earlier ones only.
        origins: Where a formula comes from: its section and name in the claim as written.
        cycle: Definitions that rest on each other in a circle, or nothing.
    """

    setting: Setting
    given: dict[str, Free]
    formulas: dict[Key, Formula]
    origins: dict[Key, Key]
    cycle: tuple[str, ...] = ()


class DepthError(ExpressionError):
    """A formula has no meaning for one depth.

    Attributes:
        key: Section and name of the formula, or of the entry of the setting.
        where: Values of letters that run over ranges, in words.
    """

    def __init__(self, key: Key, error: ExpressionError, where: str = "") -> None:
        super().__init__(error.message, error.span, error.hint)
        self.key, self.where = key, where


def depths_of(setting: Setting, given: Mapping[str, Free], formulas: Mapping[Key, Formula]) -> list[Depth]:
    """Return the depths for which a claim is judged in a setting, the smallest first.

    Args:
        setting: The setting, its families open.
        given: The claim's own free variables.
        formulas: The claim's formulas.

    Raises:
        ExpressionError: There are more than `MAX_DEPTHS`.
    """
    letters = depth_letters(setting, given, formulas)
    spans = [range(setting.sizes[letter].low, setting.sizes[letter].high + 1) for letter in letters]
    count = 1
    for span in spans:
        count *= len(span)
    if count > MAX_DEPTHS:
        shown = ", ".join(f"{k} = {span[0]}..{span[-1]}" for k, span in zip(letters, spans, strict=True))
        message = (
            f"a claim may be judged for at most {MAX_DEPTHS} depths in a setting. {setting.name} has {count}: {shown}."
        )
        raise ExpressionError(message, (0, 0), "narrow the ranges of these letters under `sizes`")
    choices = sorted(product(*spans), key=lambda choice: (sum(choice), choice))
    return [Depth(setting.name, tuple(zip(letters, choice, strict=True))) for choice in choices]


def depth_letters(
    setting: Setting, given: Mapping[str, Free] = _NO_VARIABLES, formulas: Mapping[Key, Formula] = _NO_FORMULAS
) -> list[str]:
    """Return the letters that ranges and indices use, of a setting and its model, and of a claim."""
    used = set(_setting_letters(setting, given))
    families = setting.families().keys() | {name for name, free in given.items() if free.over is not None}
    formulas = {**model_definitions(setting), **formulas}
    for size in () if setting.model is None else setting.model.state_shape:
        used |= _formula_letters(parse(size), setting.families().keys())
    recursive = _recursive(formulas, setting)
    entries = [entry_of(name, recursive) for section, name in formulas if section == "let"]
    families |= {entry.name for entry in entries if entry.index}
    used |= {letter for formula in formulas.values() for letter in _formula_letters(formula.expr, families)}
    for entry in entries:
        if entry.index is not None:
            used |= entry.index.letters | (_reach_letters(entry.reach) if entry.reach else set())
    return [letter for letter, size in setting.sizes.items() if letter in used and size.over is None]


def _recursive(formulas: Iterable[Key], setting: Setting) -> frozenset[str]:
    """Return the names that a claim gives step by step."""
    return recursive_names([name for section, name in formulas if section == "let"], setting.sizes)


def _setting_letters(setting: Setting, given: Mapping[str, Free]) -> Iterator[str]:
    for size in setting.sizes.values():
        yield from _reach_letters(size.over)
    for variable in (*setting.variables.values(), *given.values()):
        yield from _reach_letters(variable.over)
        yield from letters_in(variable.type)
    for draw in setting.draws.values():
        for node in draw.distribution.walk():
            if node.kind is Kind.INDEX:
                yield from (part.name for part in node.args[0].walk() if part.kind is Kind.NAME)


def _reach_letters(reach: Reach | None) -> set[str]:
    return set() if reach is None else {*reach.start.letters, *reach.stop.letters}


def _formula_letters(expr: Expr, families: Set[str]) -> set[str]:
    found: set[str] = set()
    for node in expr.walk():
        inside: tuple[Expr, ...] = ()
        if node.kind in RANGED:
            inside = node.args[1:]
        elif node.kind is Kind.INDEX and node.name in families:
            inside = node.args[:1]
        found |= {part.name for end in inside for part in end.walk() if part.kind is Kind.NAME}
    return found


def written_out(
    setting: Setting, given: Mapping[str, Free], formulas: Mapping[Key, Formula], depth: Mapping[str, int]
) -> WrittenOut:
    """Return the parts of a claim for one depth.

    Args:
        setting: The setting, its families open.
        given: The claim's own free variables.
        formulas: The claim's formulas, typed with the depth open.
        depth: The value of each depth.

    Raises:
        DepthError: A member is outside its range or defined twice, or something empty has no value.
    """
    own_types = typed_definitions(setting).typed
    formulas = {
        **{("define", key[1]): replace(f, expr=own_types[key]) for key, f in model_definitions(setting).items()},
        **formulas,
    }
    recursive = _recursive(formulas, setting)
    places = {key: _places(key, depth, recursive) for key in formulas}
    members = _setting_members(setting, given, depth) | _defined_members(places, recursive)
    expansion = Expansion(depth, members)
    out: dict[Key, Formula] = {}
    origins: dict[Key, Key] = {}
    for key, formula in formulas.items():
        over = _entry(key, recursive).reach
        for name, own in places[key]:
            try:
                expr = expansion.formula(formula.expr, own, over)
            except ExpressionError as error:
                raise DepthError(key, error, expansion.where) from None
            text = formula.text if name == key[1] else format_expr(expr)
            out[key[0], name] = Formula(name, text, expr, formula.position)
            origins[key[0], name] = key
    own_lets = {name: f for (section, name), f in out.items() if section == "let"}
    try:
        order, cycle = _ordered(own_lets) if recursive else sort_definitions(own_lets)
    except RecursionFault as fault:
        raise DepthError(origins["let", fault.key], fault) from None
    lets = {("let", name): out["let", name] for name in order}
    rest = {key: formula for key, formula in out.items() if key[0] not in ("let", "define")}
    free = dict(_members_of(given, depth))
    concrete = _setting(setting, depth, expansion)
    if setting.model is not None and setting.model.has_families:
        own_formulas = {name: f for (section, name), f in out.items() if section == "define"}
        concrete = replace(concrete, model=_model(setting.model, own_formulas, concrete, expansion))
    return WrittenOut(concrete, free, lets | rest, origins, tuple(cycle))


def _values(reach: Reach, depth: Mapping[str, int]) -> range:
    return values_of(reach, depth, {}, _NOWHERE)


def _setting_members(
    setting: Setting, given: Mapping[str, Free], depth: Mapping[str, int]
) -> dict[str, frozenset[int]]:
    """Return the indices of the families of a setting and of `given`."""
    found: dict[str, frozenset[int]] = {}
    overs = {name: size.over for name, size in setting.sizes.items()}
    overs |= {name: variable.over for name, variable in setting.variables.items()}
    overs |= {name: free.over for name, free in given.items()}
    for name, over in overs.items():
        if over is not None:
            section = "given" if name in given else "setting"
            try:
                found[name] = frozenset(_values(over, depth))
            except ExpressionError as error:
                raise DepthError((section, name), error) from None
    return found


def _model(
    model: ModelSignature, formulas: Mapping[str, Formula], setting: Setting, expansion: Expansion
) -> ModelSignature:
    """Return a model for one depth, of what its formulas are there and of its setting."""
    where = ("setting", setting.name)
    variables = []
    for variable in model.variables:
        for name, own in setting.variables.items():
            if name == variable.name or (split_member(name) or ("",))[0] == variable.name:
                sizes = [] if own.type.sort is not Sort.MATRIX else [own.type.rows, own.type.cols]
                shape = tuple(str(size) for size in sizes[: len(variable.shape)])
                variables.append(replace(variable, name=name, shape=shape, over=None))
    definitions = {name: formula for name, formula in formulas.items() if name not in MODEL_FORMULAS}
    order, cycle = sort_definitions(definitions)
    if cycle:
        message = f"`{cycle[0]}` of model {model.name} is defined by itself: {' -> '.join(cycle)}."
        raise DepthError(where, ExpressionError(message, (0, 0)))
    parts: dict[str, int] = {}
    for name in order:
        parts[name] = sum(1 + parts.get(node.name, 0) for node in definitions[name].expr.walk())
        if parts[name] > MAX_PARTS:
            message = f"written out, `{name}` of model {model.name} has more than {MAX_PARTS:,} parts."
            raise DepthError(where, ExpressionError(message, (0, 0)))
    numbers = {letter: Size.of(value) for letter, value in expansion.depth.items()}
    texts = {key: format_expr(quoted(formulas[name].expr)) for name, key in MODEL_FORMULAS.items() if name in formulas}
    draft = replace(
        model,
        sizes=tuple(setting.sizes),
        variables=tuple(variables),
        state_shape=tuple(str(expansion.size(size).at(numbers)) for size in model.state_shape),
        map=texts.get("map", ""),
        contraction=texts.get("contraction", ""),
        definitions={name: format_expr(quoted(definitions[name].expr)) for name in order},
        monotone=texts.get("monotone", ""),
        families=(),
        has_families=False,
        depth=tuple(expansion.depth.items()),
    )
    if not draft.has_equilibrium:
        return draft
    try:
        typed = typed_model(draft)
        assert typed.map is not None  # as it has an equilibrium
        return certified(
            replace(draft, local=False),
            typed.map,
            typed.definitions,
            contraction=typed.contraction,
            monotone=typed.monotone,
        )
    except ArgumentError as error:
        raise DepthError(where, ExpressionError(str(error), (0, 0))) from None
    except CertificateError as error:
        raise DepthError(("setting", error.key), error) from None


def _ordered(let: Mapping[str, Formula]) -> tuple[list[str], list[str]]:
    """Return the definitions of a claim with recursions in their order, and what rests on itself.

    Raises:
        RecursionFault: A recursion has no meaning.
    """
    names = recursive_names(let)
    recursions_in(let, names)
    return ordered(let, names)


def _entry(key: Key, recursive: Set[str]) -> Defined:
    """Return what a formula defines; a statement has a name alone."""
    return entry_of(key[1], recursive) if key[0] in ("let", "define") else Defined(key[1])


def _places(key: Key, depth: Mapping[str, int], recursive: Set[str]) -> list[tuple[str, dict[str, int]]]:
    """Return the names that a formula is written out under, each with the value of the letter in its index."""
    entry = _entry(key, recursive)
    step = "" if entry.step is None else f"[{index_text(entry.step)}]"
    try:
        if entry.reach is not None:
            return [(entry.member(at) + step, {entry.reach.letter: at}) for at in _values(entry.reach, depth)]
        return [(key[1] if entry.index is None else entry.member(entry.index.evaluate(depth)) + step, {})]
    except KeyError as error:
        message = f"`{error.args[0]}` is no size letter, so that the members are not known."
        raise DepthError(key, ExpressionError(message, (0, 0))) from None
    except ExpressionError as error:
        raise DepthError(key, error) from None


def _defined_members(
    places: Mapping[Key, list[tuple[str, dict[str, int]]]], recursive: Set[str]
) -> dict[str, frozenset[int]]:
    """Return the indices of the families that are defined, each of which is defined once."""
    found: dict[str, frozenset[int]] = {}
    first: dict[str, Key] = {}
    for key, names in places.items():
        if key[0] not in ("let", "define") or entry_of(key[1], recursive).index is None:
            continue
        own = found.setdefault(defined(key[1]).name, frozenset())
        for name, _ in names:
            if first.setdefault(name, key) != key:
                message = f"`{name}` is defined twice, by `{first[name][1]}` too."
                raise DepthError(key, ExpressionError(message, (0, 0)))
            member = defined(name).index
            own |= {member.evaluate({})} if member is not None else set()
        found[defined(key[1]).name] = own
    return found


def _members_of(variables: Mapping[str, Free], depth: Mapping[str, int]) -> Iterator[tuple[str, Free]]:
    for name, free in variables.items():
        for at in _values(free.over, depth) if free.over is not None else (None,):
            own = {} if at is None or free.over is None else {free.over.letter: at}
            own_name = name if at is None else member_name(name, at)
            yield own_name, replace(free, name=own_name, type=concrete_type(free.type, depth, own), over=None)


def _setting(setting: Setting, depth: Mapping[str, int], expansion: Expansion) -> Setting:
    """Return a setting for one depth: a variable and a size for each member."""
    sizes: dict[str, SizeRange] = {}
    for letter, size in setting.sizes.items():
        if size.over is None:
            sizes[letter] = SizeRange(depth[letter], depth[letter], depth=True) if letter in depth else size
        else:
            sizes |= {member_name(letter, at): replace(size, over=None) for at in _values(size.over, depth)}
    free = dict(_members_of(setting.free, depth))
    for name, variable in free.items():
        _check_size(name, variable.type, sizes)
    draws = dict(_drawn(setting.draws, depth, expansion, sizes))
    return replace(setting, sizes=sizes, free=free, draws=draws)


def _drawn(
    draws: Mapping[str, Draw], depth: Mapping[str, int], expansion: Expansion, sizes: Mapping[str, SizeRange]
) -> Iterator[tuple[str, Draw]]:
    for name, draw in draws.items():
        for at in _values(draw.over, depth) if draw.over is not None else (None,):
            own = {} if at is None or draw.over is None else {draw.over.letter: at}
            own_name = name if at is None else member_name(name, at)
            type_ = concrete_type(draw.type, depth, own)
            _check_size(own_name, type_, sizes)
            try:
                expr = expansion.formula(draw.distribution, own, draw.over)
                check_distribution(expr, type_, sizes)
            except ExpressionError as error:
                raise DepthError(("setting", name), error) from None
            text = draw.text if at is None else format_expr(expr)
            yield own_name, Draw(own_name, type_, expr, text)


def _check_size(name: str, type_: Type, sizes: Mapping[str, SizeRange]) -> None:
    missing = sorted((type_.rows.letters | type_.cols.letters) - sizes.keys())
    reason = f"there is no size {', '.join(missing)}" if missing else too_large(type_, sizes)
    if not missing and 0 in (type_.rows.constant, type_.cols.constant):
        reason = f"a {type_} has no entries"
    if reason:
        raise DepthError(("setting", name.partition("[")[0]), ExpressionError(f"{name}: {reason}.", (0, 0)))


def at_depth(claim: Claim, depth: Depth) -> Claim:
    """Return the ordinary claim that a claim with families is for one depth.

    Args:
        claim: A checked claim with families.
        depth: One of its depths.
    """
    if depth.variant is not None:
        return _with_members(claim, depth, depth.variant)
    setting = claim.setting_named(depth.setting)
    parts = written_out(setting, claim.given, claim_formulas(claim), dict(depth.letters))
    kind = None if claim.run is None else claim.run.kind
    checked = check_formulas(parts.formulas, parts.setting, parts.given, kind=kind)
    typed = {key: replace(parts.formulas[key], expr=expr) for key, expr in checked.typed.items()}

    def part(section: str) -> dict[str, Formula]:
        return {name: formula for (where, name), formula in typed.items() if where == section}

    written = replace(
        claim,
        settings=(parts.setting,),
        given=parts.given,
        let=part("let"),
        assume=part("assume"),
        conclude=part("conclude"),
        depths=(),
        origin=claim,
        depth=depth,
        warnings=(),
    )
    return with_start_formulas(written, typed)


def _with_members(claim: Claim, depth: Depth, variant: int) -> Claim:
    """Return the claim about some members of the sets of functions over which a claim quantifies."""
    part = claim.variants[variant]
    named = dict(depth.members)
    if part.depths:
        letters = tuple((letter, value) for letter, value in depth.letters if letter not in named)
        part = at_depth(part, Depth(depth.setting, letters))
    setting = part.setting_named(depth.setting)
    chosen = {letter: SizeRange(value, value) for letter, value in depth.letters if letter in named}
    setting = replace(setting, sizes={**setting.sizes, **chosen})
    return replace(part, settings=(setting,), depths=(), origin=claim, depth=depth, warnings=())


def claim_formulas(claim: Claim) -> dict[Key, Formula]:
    """Return all formulas of a claim by section and name."""
    formulas: dict[Key, Formula] = {}
    for section in ("let", "assume", "conclude"):
        formulas |= {(section, name): formula for name, formula in getattr(claim, section).items()}
    return formulas | start_formulas(claim)
