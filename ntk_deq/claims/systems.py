"""The `systems` of a claim file made into declarations of models: shapes and state typed, the contraction made sure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ntk_deq.claims.check import parsed
from ntk_deq.claims.depths import MAX_PARTS
from ntk_deq.claims.entries import reach_fault
from ntk_deq.claims.functions import system_functions
from ntk_deq.claims.open_depth import typed_definitions
from ntk_deq.claims.schema import SystemModel
from ntk_deq.claims.validate import place, validate
from ntk_deq.errors import ExpressionError, Problem
from ntk_deq.files.problems import expression_problem, expression_text
from ntk_deq.files.yaml import Mapping, Node, problems_below
from ntk_deq.language.calls import Parameter
from ntk_deq.language.declaration import ModelSignature, Role, Variable, reserved
from ntk_deq.language.domain import Domain, DomainKind, Free, misfit, parse_domain
from ntk_deq.language.families import bound_letters, defined, member_name, split_for, split_member
from ntk_deq.language.format import format_expr
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.layer import layer_weight
from ntk_deq.language.library import model_names
from ntk_deq.language.lipschitz import lipschitz_constant
from ntk_deq.language.parser import parse
from ntk_deq.language.ranges import Ranges
from ntk_deq.language.setting import Setting
from ntk_deq.language.tree import RANGED, Expr, Kind, names_in
from ntk_deq.language.types import Reach, Size, SizeRange, Type, shape_type
from ntk_deq.language.typing import expect_scalar, infer

_LARGEST = 2**31  # no size of a tensor is larger
_BEYOND = {Parameter.STATE, Parameter.VARIABLE}
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
        own = tuple(part for part in self.model.shape.split(", ") if part)
        if " for " in self.model.shape:
            self._add(("shape",), "the state of a system is no family.")
            return None
        sizes = tuple(dict.fromkeys([*letters, *own, *bound_letters(self.model.define)]))
        if len(sizes) > _MAX_LETTERS:
            self._add(("variables",), f"a system may have at most {_MAX_LETTERS} size letters. Got {len(sizes)}.")
            return None
        members = [*self.model.define, *(part for variable in variables for part in variable.shape)]
        if any("[" in name for name in members) or any(variable.over for variable in variables):
            return self._with_families(self._signature(tuple(variables), sizes, state, own))
        if not state:
            return self._without_equilibrium(tuple(variables), sizes)
        found = self._state_shape(state, own, variables, sizes)
        if found is None:
            return None
        draft = self._signature(tuple(variables), sizes, state, found)
        typed = self._typed(draft)
        if typed is None or not self._short(draft, *typed):
            return None
        return self._certified(draft, *typed)

    def _without_equilibrium(self, variables: tuple[Variable, ...], sizes: tuple[str, ...]) -> ModelSignature | None:
        """Return the declaration of a system that consists of definitions, or None where something is wrong."""
        for key in ("shape", "contraction", "monotone"):
            if key in self.node.entries:
                self._add((key,), "this says something of an equilibrium, and the system has none.", key=True)
        if not self.model.define:
            self._add((), "it has neither an `equilibrium` nor definitions under `define`.")
        draft = self._signature(variables, sizes, "", ())
        typed = None if self.problems else self._typed(draft)
        return draft if typed is not None and self._short(draft, *typed) else None

    def _with_families(self, draft: ModelSignature) -> ModelSignature | None:
        """Return the declaration of a system with families, its formulas typed with the depth open."""
        for key in ("equilibrium", "shape", "contraction", "monotone"):
            if key in self.node.entries:
                self._add(
                    (key,), "a system with families consists of definitions; it has no equilibrium so far.", key=True
                )
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
        draft = replace(draft, families=tuple(families), has_families=True)
        setting = Setting(self.name, draft, sizes, free, {}, None, self.node.position)
        for (_, name), error in typed_definitions(setting).errors.items():
            self._wrong(("define", name), error)
        return None if self.problems else draft

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

    def _state_shape(
        self, state: str, own: tuple[str, ...], variables: list[Variable], sizes: tuple[str, ...]
    ) -> tuple[str, ...] | None:
        """Return the shape of the state: the one written, or the only one with which the map types."""
        if own:
            return own
        fitting, far, reason = [], -1, None
        image = self._text("equilibrium", state)
        needed = self._needed(image)
        for shape in [*((letter,) for letter in sizes), *((a, b) for a in sizes for b in sizes), ()]:
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
            shown = " and ".join(f"[{', '.join(shape)}]" for shape in fitting[:2])
            self._add(("equilibrium", state), f"`{state}` may have more than one shape, {shown}; `shape` must say it.")
        elif reason is not None:
            self._wrong(("equilibrium", state), reason)
        else:
            self._add(("equilibrium", state), f"the map must have the shape of `{state}`, and has for none of its own.")
        return None

    def _needed(self, image: str) -> list[str]:
        """Return the definitions that a formula rests on, in order; none where it is no formula."""
        try:
            used = names_in(parsed(image))
            for name in reversed(list(self.model.define)):
                used |= names_in(parsed(self.model.define[name])) if name in used else set()
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
            definitions={name: self._text("define", name) for name in self.model.define},
            reference=self.model.reference,
            functions=self.functions,
        )

    def _tree(self, text: str) -> Expr:
        return self.trees.get(text) or parsed(text)

    def _typed(self, draft: ModelSignature) -> tuple[Expr | None, dict[str, Expr]] | None:
        """Return the map, where there is one, and the definitions with their types."""
        types = {**self.types, **({draft.state: shape_type(draft.state_shape)} if draft.state else {})}
        definitions = {}
        for name, text in draft.definitions.items():
            try:
                found = definitions[name] = _without_ranges(
                    infer(self._tree(text), types, sizes=_ranges(draft), model=draft)
                )
            except ExpressionError as error:
                self._wrong(("define", name), error)
                return None
            if found.type is not None:
                types[name] = found.type
        self.types = types
        if not draft.state:
            return None, definitions
        try:
            image = _without_ranges(infer(self._tree(draft.map), types, sizes=_ranges(draft), model=draft))
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

    def _certified(
        self, draft: ModelSignature, image: Expr | None, definitions: dict[str, Expr]
    ) -> ModelSignature | None:
        """Return the declaration with what shows that the equilibrium exists; None where it is declared wrongly."""
        assert image is not None
        if (name := _of_the_model(image, definitions)) is not None:
            self._add(("equilibrium", draft.state), f"`{name}` cannot stand in the map, or in a definition behind it.")
            return None
        if self.model.contraction is not None and self.model.monotone is not None:
            self._add(("monotone",), "a system has one certificate; `contraction` is there already.", key=True)
            return None
        try:
            known = lipschitz_constant(image, draft.state, definitions)
        except ExpressionError as error:
            if self.model.contraction is not None:
                self._wrong(("equilibrium", draft.state), error)
                return None
            known = ""
        if self.model.contraction is not None:
            contraction = self._contraction(draft, known)
            return None if contraction is None else replace(draft, contraction=contraction)
        if self.model.monotone is None:
            return replace(draft, contraction=known, local=True)
        return self._monotone(replace(draft, contraction=known), image, definitions)

    def _contraction(self, draft: ModelSignature, known: str) -> str | None:
        """Return a Lipschitz constant of the map: the one read off it, or the declared one where that is larger.

        Every verdict rests on it, so that no declared constant is believed.
        """
        text = self._text("contraction")
        declared = self._number(draft, "contraction")
        if declared is None:
            return None
        same = format_expr(parse(known))
        largest = declared.args if declared.kind is Kind.CALL and declared.name == "max" else (declared,)
        if same in map(format_expr, largest):
            return text
        return f"max({text}, {known})"

    def _monotone(self, draft: ModelSignature, image: Expr, definitions: dict[str, Expr]) -> ModelSignature | None:
        """Return the declaration with its modulus, which is certified on each instance and nowhere believed."""
        declared = self._number(draft, "monotone")
        if declared is None:
            return None
        if layer_weight(image, draft.state, definitions, shape=draft.state_shape) is None:
            message = "the map is not seen to be one layer, act(W*Z + C) or act(Z*W + C) with a proximal act."
            self._add(("monotone",), message)
            return None
        if not Ranges({}, {}).of(declared).high > 0:
            self._add(("monotone",), f"the modulus must be > 0. Got {self._text('monotone')}.")
            return None
        return replace(draft, monotone=self._text("monotone"))

    def _number(self, draft: ModelSignature, key: str) -> Expr | None:
        """Return the typed formula of a certificate: a number, of variables and of what does not rest on the state."""
        try:
            typed = infer(self._tree(self._text(key)), self.types, sizes=_ranges(draft), model=draft)
            declared = expect_scalar(_without_ranges(typed))
        except ExpressionError as error:
            self._wrong((key,), error)
            return None
        behind, waiting = set[str](), [declared]
        while waiting:
            new = names_in(waiting.pop()) - behind
            behind |= new
            waiting += [parsed(draft.definitions[name]) for name in new if name in draft.definitions]
        if draft.state in behind:
            self._add((key,), f"a certificate of `{draft.state}` cannot rest on `{draft.state}` itself.")
            return None
        return declared

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


def _of_the_model(image: Expr, definitions: dict[str, Expr]) -> str | None:
    """Return what a map must not use, as it is about the model itself: its equilibrium, its map, derivatives; or None.

    Args:
        image: The map.
        definitions: The definitions.
    """
    waiting, met = [image], set[str]()
    while waiting:
        for node in waiting.pop().walk():
            if node.kind is Kind.AT or (node.kind is Kind.CALL and _BEYOND & set(FUNCTIONS[node.name].parameters)):
                return "at" if node.kind is Kind.AT else node.name
            if node.kind is Kind.NAME and node.name in definitions and node.name not in met:
                met.add(node.name)
                waiting.append(definitions[node.name])
    return None


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


def _without_ranges(expr: Expr) -> Expr:
    """Return a formula of a system that has no families; raise ExpressionError where it runs over a range."""
    for node in expr.walk():
        if node.kind in RANGED:
            where = (node.span.start, node.span.stop)
            raise ExpressionError("a range can stand in a system with families only.", where, "write its terms out")
    return expr


def _ranges(draft: ModelSignature) -> dict[str, SizeRange]:
    return {letter: SizeRange(1, _LARGEST) for letter in draft.sizes}


def _typed(text: str, types: dict[str, Type], draft: ModelSignature) -> Type:
    found = infer(parsed(text), types, sizes=_ranges(draft), model=draft).type
    assert found is not None  # as `infer` leaves it
    return found
