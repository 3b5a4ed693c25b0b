"""The `systems` of a claim file made into declarations of models: shapes and state typed, the contraction made sure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ntk_deq.claims.depths import MAX_PARTS
from ntk_deq.claims.entries import reach_fault
from ntk_deq.claims.existence import CertificateError, certified
from ntk_deq.claims.functions import system_functions
from ntk_deq.claims.open_depth import model_place, typed_definitions
from ntk_deq.claims.schema import SystemModel
from ntk_deq.claims.validate import place, validate
from ntk_deq.errors import ExpressionError, Problem
from ntk_deq.files.yaml import Mapping, Node, problems_below
from ntk_deq.language.declaration import ModelSignature, Role, Setting, Variable, model_names, reserved
from ntk_deq.language.domain import Domain, DomainKind, Free, misfit, parse_domain
from ntk_deq.language.families import bound_letters, defined, member_name, size_of, split_for, split_member
from ntk_deq.language.hints import expression_problem, expression_text
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import RANGED, Expr, Kind, names_in
from ntk_deq.language.types import Reach, Size, SizeRange, Type, shape_type
from ntk_deq.language.typing import expect_scalar, infer

_LARGEST = 2**31  # no size of a tensor is larger
_CERTIFICATES = ("contraction", "monotone")
_MAX_LETTERS = 6  # of a system; its state has one of their pairs for a shape


def read_systems(node: Node | None) -> tuple[dict[str, ModelSignature], list[Problem]]:
    """Return the systems of a claim file by name, and everything that is wrong with them.

    Args:
        node: Its `systems`, or None.
    """
    systems: dict[str, ModelSignature] = {}
    problems: list[Problem] = []
    if not isinstance(node, Mapping):
        return systems, problems
    for name, entry in node.entries.items():
        wrong = list(problems_below(entry))
        model, more = validate(SystemModel, entry, f"system {name}")
        wrong += more
        if name in model_names():
            wrong.append(Problem(node.keys[name], f"`systems.{name}`: a registered model has this name already."))
        if model is not None and not wrong and isinstance(entry, Mapping):
            written = system_functions(name, entry, model)
            wrong += written.problems
            builder = _Builder(name, written.node, written.model, wrong, written.functions, written.trees)
            signature = builder.build() if not wrong else None
            if signature is not None and not wrong:
                systems[name] = signature
        problems += wrong
    return systems, problems


@dataclass
class _Builder:
    name: str
    node: Mapping
    model: SystemModel
    problems: list[Problem]
    functions: dict[str, str]
    trees: dict[str, Expr]
    types: dict[str, Type] = field(default_factory=dict)

    def build(self) -> ModelSignature | None:
        """Return the declaration, or None where something is wrong."""
        variables = [self._variable(name) for name in self.model.variables]
        state = next(iter(self.model.equilibrium or {}), "")
        letters = [letter for variable in variables for letter in _letters(variable)]
        self._check_names(state, set(letters))
        if self.problems:
            return None
        own = self._written_shape()
        if own is None or not self._checked_keys(state):
            return None
        own_letters = (letter for part in own for letter in _size_letters(part))
        sizes = tuple(dict.fromkeys([*letters, *own_letters, *bound_letters(self.model.define)]))
        if len(sizes) > _MAX_LETTERS:
            self._add(("variables",), f"a system may have at most {_MAX_LETTERS} size letters. Got {len(sizes)}.")
            return None
        draft = self._signature(tuple(variables), sizes, state, own)
        members = [*self.model.define, *(part for variable in variables for part in variable.shape), *own]
        ranges = any(node.kind in RANGED for expr in self._parsed(draft) for node in expr.walk())
        if self.problems:
            return None
        if ranges or any("[" in name for name in members) or any(variable.over for variable in variables):
            return self._with_families(draft)
        if state and not own:
            found = self._state_shape(state, variables, sizes)
            if found is None:
                return None
            draft = replace(draft, state_shape=found)
        typed = self._typed(draft)
        if typed is None or not self._short(draft, *typed):
            return None
        image, definitions = typed
        return draft if image is None else self._certified(draft, image, definitions)

    def _parsed(self, draft: ModelSignature) -> list[Expr]:
        """Return the formulas of a declaration, without types; say which are none."""
        places: dict[tuple[str, ...], str] = {("define", name): text for name, text in draft.definitions.items()}
        places |= {("equilibrium", draft.state): draft.map} if draft.state else {}
        places |= {(key,): text for key in _CERTIFICATES if (text := getattr(draft, key))}
        found = []
        for place_, text in places.items():
            try:
                found.append(self._tree(text))
            except ExpressionError as error:
                self._wrong(place_, error)
        return found

    def _written_shape(self) -> tuple[str, ...] | None:
        """Return the sizes of the state that `shape` says, none where it says nothing; None where it is wrong."""
        try:
            return tuple(str(size_of(part)) for part in self.model.shape.split(", ") if part)
        except ExpressionError as error:
            self._wrong(("shape",), error)
            return None

    def _checked_keys(self, state: str) -> bool:
        """Say what is wrong with which keys there are, and whether nothing is."""
        if len(names := [*(self.model.equilibrium or {})]) > 1:
            self._add(("equilibrium",), f"a system has at most one equilibrium. Got {', '.join(names)}.", key=True)
        if state and len(self.node.entries.keys() & {*_CERTIFICATES}) == 2:
            self._add(("monotone",), "a system has one certificate; `contraction` is there already.", key=True)
        for key in () if state else ("shape", *_CERTIFICATES):
            if key in self.node.entries:
                self._add((key,), "this says something of an equilibrium, and the system has none.", key=True)
        if not state and not self.model.define:
            self._add((), "it has neither an `equilibrium` nor definitions under `define`.")
        return not self.problems

    def _with_families(self, draft: ModelSignature) -> ModelSignature | None:
        """Return the declaration of a system with families, its formulas typed with the depth open."""
        families = {
            found[0]: variable.over or Reach("l", Size.of(1), Size.of(1), "l in 1..1")
            for variable in draft.variables
            for part in variable.shape
            if (found := split_member(part)) is not None
        }
        sizes = {letter: SizeRange(1, _LARGEST, families.get(letter)) for letter in draft.sizes}
        free = {v.name: Free(v.name, shape_type(v.shape), Domain(DomainKind.REAL), v.over) for v in draft.variables}
        for variable in draft.variables:
            fault = None if variable.over is None else reach_fault(variable.over, sizes)
            if fault is not None:
                self._add(("variables", variable.name), fault)
        if self.problems:
            return None
        draft = replace(
            draft,
            families=tuple(families),
            has_families=True,
            local=draft.has_equilibrium and not (draft.contraction or draft.monotone),
        )
        setting = Setting(self.name, draft, sizes, free, {}, None, self.node.position)
        if draft.has_equilibrium and not draft.state_shape:
            plain = [letter for letter in sizes if letter not in families]
            setting = self._open_state(setting, plain)
        for key, error in typed_definitions(setting).errors.items():
            self._wrong(model_place(key, draft), error)
        return None if self.problems else setting.model

    def _open_state(self, setting: Setting, letters: list[str]) -> Setting:
        """Return a setting with the only shape of the state with which the formulas of its model type."""
        trials = []
        for shape in _shapes(letters):
            assert setting.model is not None
            trial = replace(setting, model=replace(setting.model, state_shape=shape))
            faults = typed_definitions(trial).errors
            trials.append((len(faults), ("let", "its map") not in faults, shape, trial))
        fitting = [shape for count, _, shape, _ in trials if not count]
        if len(fitting) > 1:
            self._add(("equilibrium", next(iter(self.model.equilibrium or {}))), _ambiguous(fitting))
        return min(trials, key=lambda found: found[:2])[3]  # if none fits, one of which only the map is wrong

    def _variable(self, name: str) -> Variable:
        own = self.model.variables[name]
        text, over = split_for(own.shape)
        shape = tuple(member_name(*found) if (found := split_member(p)) else p for p in text.split(", ") if p)
        try:
            domain, written = parse_domain(own.domain)
            reason = "the shape stands under `shape`" if written is not None else misfit(domain, shape_type(shape))
            if reason:
                self._add(("variables", name, "domain"), f"{reason}.")
        except ExpressionError as error:
            at = self._node("variables", name, "domain")
            self.problems.append(expression_problem(at, error, f"systems.{self.name}.variables.{name}.domain"))
        self.types[name] = shape_type(shape)
        return Variable(name, shape, Role(own.role), own.description, own.domain, over)

    def _check_names(self, state: str, letters: set[str]) -> None:
        for letter in sorted(letters):
            taken = reserved(letter, None) or ("a variable of the system" if letter in self.model.variables else None)
            if taken:
                self._add(("variables",), f"a size letter cannot be called `{letter}`: that is {taken}.")
        named = [("variables", name) for name in self.model.variables]
        named += [("equilibrium", state)] if state else []
        met: set[str] = set()
        members: set[str] = set()
        for section, key in [*named, *(("define", name) for name in self.model.define)]:
            try:
                name = defined(key).name
            except ExpressionError as error:
                self._add((section, key), error.message, key=True)
                continue
            taken = reserved(name, None) or ("a size letter" if name in letters else None)
            if taken is None and (name in met or (name in members and key == name)):
                taken = "another name of this system"
            if taken:
                self._add((section, key), f"`{name}` cannot be called so: that is {taken}.", key=True)
            (met if key == name else members).add(name)

    def _state_shape(self, state: str, variables: list[Variable], sizes: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the shape of the state: the only one with which the map types."""
        fitting, far, reason = [], -1, None
        image = self._text("equilibrium", state)
        needed = self._needed(image)
        for shape in _shapes(sizes):
            draft = self._signature(tuple(variables), sizes, state, shape)
            types = {**self.types, state: shape_type(shape)}
            for name in needed:
                text = self.model.define[name]
                try:
                    types[name] = _typed(text, types, draft)
                except ExpressionError:  # said below, for the shape that is found
                    continue
            try:
                found = _typed(image, types, draft)
            except ExpressionError as error:
                if error.span[0] > far:
                    far, reason = error.span[0], error
                continue
            if found == shape_type(shape):
                fitting.append(shape)
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            self._add(("equilibrium", state), _ambiguous(fitting))
        elif reason is not None:
            self._wrong(("equilibrium", state), reason)
        else:
            self._add(("equilibrium", state), f"the map must have the shape of `{state}`, and has for none of its own.")
        return None

    def _needed(self, image: str) -> list[str]:
        """Return the definitions that a formula rests on, in order; none where it is no formula."""
        try:
            used = names_in(parse(image))
            for name in reversed(list(self.model.define)):
                used |= names_in(parse(self.model.define[name])) if name in used else set()
        except ExpressionError:  # said where it is typed
            return []
        return [name for name in self.model.define if name in used]

    def _signature(
        self,
        variables: tuple[Variable, ...],
        sizes: tuple[str, ...],
        state: str,
        shape: tuple[str, ...],
    ) -> ModelSignature:
        image = self._text("equilibrium", state) if state else ""
        return ModelSignature(
            name=self.name,
            title=self.model.title or (f"{state} = {image}" if state else ""),
            sizes=sizes,
            variables=variables,
            state=state,
            state_shape=shape,
            map=image,
            contraction=self._text("contraction") if self.model.contraction is not None else "",
            definitions={name: self._text("define", name) for name in self.model.define},
            reference=self.model.reference,
            monotone=self._text("monotone") if self.model.monotone is not None else "",
            functions=self.functions,
        )

    def _tree(self, text: str) -> Expr:
        return self.trees.get(text) or parse(text)

    def _typed(self, draft: ModelSignature) -> tuple[Expr | None, dict[str, Expr]] | None:
        """Return the map, where there is one, and the definitions with their types."""
        types = {**self.types, **({draft.state: shape_type(draft.state_shape)} if draft.state else {})}
        definitions = {}
        for name, text in draft.definitions.items():
            try:
                found = definitions[name] = infer(self._tree(text), types, sizes=_ranges(draft), model=draft)
            except ExpressionError as error:
                self._wrong(("define", name), error)
                return None
            if found.type is not None:
                types[name] = found.type
        self.types = types
        if not draft.state:
            return None, definitions
        try:
            image = infer(self._tree(draft.map), types, sizes=_ranges(draft), model=draft)
        except ExpressionError as error:
            self._wrong(("equilibrium", draft.state), error)
            return None
        if image.type != types[draft.state]:
            self._add(
                ("equilibrium", draft.state), f"the map must be a {types[draft.state]}, as its state. Got {image.type}."
            )
            return None
        return image, definitions

    def _short(self, draft: ModelSignature, image: Expr | None, definitions: dict[str, Expr]) -> bool:
        """Whether every formula stays short with its definitions written out; they may double from one to the next."""
        sizes: dict[str, int] = {}
        named = {("define", name): expr for name, expr in definitions.items()}
        if image is not None:
            named["equilibrium", draft.state] = image
        for location, expr in named.items():
            sizes[location[1]] = sum(1 + sizes.get(node.name, 0) for node in expr.walk())
            if sizes[location[1]] > MAX_PARTS:
                self._add(location, f"written out, a formula may have at most {MAX_PARTS:,} parts.")
                return False
        return True

    def _certified(self, draft: ModelSignature, image: Expr, definitions: dict[str, Expr]) -> ModelSignature | None:
        """Return the declaration with what shows that the equilibrium exists; None where it is declared wrongly."""
        numbers = {key: self._number(draft, key) for key in _CERTIFICATES if getattr(draft, key)}
        if None in numbers.values():
            return None
        contraction, monotone = (numbers.get(key) for key in _CERTIFICATES)
        try:
            return certified(draft, image, definitions, contraction=contraction, monotone=monotone)
        except CertificateError as error:
            self._wrong(("equilibrium", draft.state) if error.key == "equilibrium" else (error.key,), error)
            return None

    def _number(self, draft: ModelSignature, key: str) -> Expr | None:
        """Return the typed formula of a certificate, which is a number."""
        try:
            typed = infer(self._tree(self._text(key)), self.types, sizes=_ranges(draft), model=draft)
            return expect_scalar(typed)
        except ExpressionError as error:
            self._wrong((key,), error)
            return None

    def _node(self, *location: str) -> Node:
        node: Node = self.node
        for step in location:
            if isinstance(node, Mapping) and step in node.entries:
                node = node.entries[step]
        return node

    def _text(self, *location: str) -> str:
        return expression_text(self._node(*location))

    def _wrong(self, location: tuple[str, ...], error: ExpressionError) -> None:
        where = f"systems.{self.name}.{'.'.join(location)}"
        self.problems.append(expression_problem(self._node(*location), error, where))

    def _add(self, location: tuple[str, ...], message: str, *, key: bool = False) -> None:
        where = f"systems.{self.name}.{'.'.join(location)}"
        self.problems.append(Problem(place(self.node, location, key=key), f"`{where}`: {message}"))


def _letters(variable: Variable) -> list[str]:
    """Return the size letters that a variable needs, families of sizes and the bounds of its own range among them."""
    own = "" if variable.over is None else variable.over.letter
    found: list[str] = []
    for part in variable.shape:
        member = split_member(part)
        found += [part] if member is None else [member[0], *sorted(member[1].letters)]
    if variable.over is not None:
        found += sorted(variable.over.start.letters | variable.over.stop.letters)
    return [letter for letter in found if letter != own]


def _shapes(letters: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the shapes that a state may have: vectors, matrices, a number."""
    return [*((letter,) for letter in letters), *((a, b) for a in letters for b in letters), ()]


def _ambiguous(fitting: Sequence[tuple[str, ...]]) -> str:
    shown = " and ".join(f"[{', '.join(shape)}]" for shape in fitting[:2])
    return f"the state may have more than one shape, {shown}; `shape` must say it."


def _size_letters(size: str) -> list[str]:
    """Return the size letters of a formula of the state's shape, families of sizes among them."""
    letters = []
    for node in parse(size).walk():
        if node.kind in (Kind.NAME, Kind.INDEX):
            letters.append(node.name)
    bound = {name for node in parse(size).walk() if node.kind in RANGED for name in node.names}
    return [letter for letter in letters if letter not in bound]


def _ranges(draft: ModelSignature) -> dict[str, SizeRange]:
    return {letter: SizeRange(1, _LARGEST) for letter in draft.sizes}


def _typed(text: str, types: dict[str, Type], draft: ModelSignature) -> Type:
    found = infer(parse(text), types, sizes=_ranges(draft), model=draft).type
    assert found is not None  # as `infer` leaves it
    return found
