"""The formulas of a claim with families, checked while its depth is open: a shape holds for every member at once."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from ntk_deq.claims.check import Checked, Key, check_place, environment
from ntk_deq.errors import ExpressionError
from ntk_deq.language.declaration import ModelSignature, Setting
from ntk_deq.language.domain import Free
from ntk_deq.language.families import Defined, Family, defined, generalised, member_name, type_at
from ntk_deq.language.parser import parse
from ntk_deq.language.recursion import entry_of, recursive_names, step_letters
from ntk_deq.language.run import PATH_LENGTH, Course, RunKind
from ntk_deq.language.shapes import Shapes
from ntk_deq.language.tree import Expr, Formula
from ntk_deq.language.types import SCALAR, STEP, Reach, Size, Type
from ntk_deq.language.typing import infer

MAX_GUESSES = 64
"""Types of members that are tried for definitions that rest on their own earlier members."""


def check_families(
    formulas: Mapping[Key, Formula],
    setting: Setting,
    given: Mapping[str, Free],
    *,
    kind: RunKind | None,
    skip: Set[str] = frozenset(),
) -> Checked:
    """Give every formula its types as long as the depth is open.

    Definitions come in any order, and those of members may rest on earlier or later members, of other families too.

    Args:
        formulas: By section and name.
        setting: The setting.
        given: The claim's own free variables.
        kind: What the claim's run does, or None.
        skip: Names whose definition is broken; what uses them is left out without an error.
    """
    state = _State(
        types=environment(setting) | {name: free.type for name, free in given.items()},
        steps={PATH_LENGTH: SCALAR} if kind is not None and (kind.trains or kind.written) else {},
        families=setting.families()
        | {name: Family(free.over.letter, (free.over,)) for name, free in given.items() if free.over is not None},
        broken=set(skip),
    )
    own = model_definitions(setting)
    variables = frozenset(setting.variable_types()) | frozenset(given)
    checker = _Families({**own, **formulas}, setting, variables, kind, skip, frozenset(state.families))
    state = checker.definitions(state)
    checked = Checked(
        {key: expr for key, expr in state.typed.items() if key in formulas},
        {key: error for key, error in state.errors.items() if key in formulas},
    )
    for key, formula in formulas.items():
        if key[0] == "let" or formula.names & state.broken:
            continue
        try:
            typed = checker.typed(formula, state, start=key[0] in ("assume", "conclude"))
            check_place(key[0], typed, setting, checker.course)
            checked.typed[key] = typed
        except ExpressionError as error:
            checked.errors[key] = error
    return checked


MODEL_FORMULAS = {"its map": "map", "its contraction factor": "contraction", "its modulus": "monotone"}
"""Formulas of a model with families beside its definitions, under names that no formula can spell: its attributes."""


def model_definitions(setting: Setting) -> dict[Key, Formula]:
    """Return the formulas of a model with families, without types, as definitions of a claim; else nothing.

    Its map and its certificate are among them, under the names of `MODEL_FORMULAS`.
    """
    model = setting.model
    if model is None or not model.has_families:
        return {}
    beside = {name: getattr(model, key) for name, key in MODEL_FORMULAS.items() if getattr(model, key)}
    texts = {**model.definitions, **beside}
    return {("let", name): Formula(name, text, parse(text), setting.position) for name, text in texts.items()}


def model_place(key: Key, model: ModelSignature) -> tuple[str, str] | tuple[str]:
    """Return where a formula of `model_definitions` stands in the declaration of its model."""
    own = MODEL_FORMULAS.get(key[1])
    if own is None:
        return "define", key[1]
    return ("equilibrium", model.state) if own == "map" else (own,)


def typed_definitions(setting: Setting) -> Checked:
    """Type the formulas of a setting's model with its depth open."""
    checked = check_families(model_definitions(setting), setting, {}, kind=None)
    shapes = Shapes(setting.sizes)
    for name in MODEL_FORMULAS:
        typed = checked.typed.get(("let", name))
        if typed is None or typed.type is None or setting.model is None:
            continue
        wanted = setting.model.state_type if name == "its map" else SCALAR
        fits = shapes.is_scalar(typed.type) if wanted == SCALAR else shapes.same_shape(wanted, typed.type)
        if not fits:
            message = f"this must be {shapes.show(wanted)}. Got {shapes.show(typed.type)}."
            checked.errors["let", name] = ExpressionError(message, (typed.span.start, typed.span.stop))
    return checked


@dataclass
class _State:
    """What is known of the names of a claim; definitions that rest on broken ones are left out."""

    types: dict[str, Type]
    steps: dict[str, Type]
    families: dict[str, Family]
    broken: set[str]
    typed: dict[Key, Expr] = field(default_factory=dict)
    errors: dict[Key, ExpressionError] = field(default_factory=dict)
    left_out: set[Key] = field(default_factory=set)

    def copy(self) -> _State:
        return _State(
            dict(self.types),
            dict(self.steps),
            dict(self.families),
            set(self.broken),
            dict(self.typed),
            dict(self.errors),
            set(self.left_out),
        )

    def done(self, key: Key) -> bool:
        return key in self.typed or key in self.errors or key in self.left_out


class _Families:
    def __init__(
        self,
        formulas: Mapping[Key, Formula],
        setting: Setting,
        variables: frozenset[str],
        kind: RunKind | None,
        skip: Set[str],
        families: frozenset[str],
    ) -> None:
        self.setting, self.variables, self.kind = setting, variables, kind
        self.shapes = Shapes(setting.sizes)
        let = {key: formula for key, formula in formulas.items() if key[0] == "let"}
        self.let = {key: formula for key, formula in let.items() if defined(key[1]).name not in skip}
        self.recursive = frozenset[str]()
        if kind is not None and kind.written:
            self.recursive = recursive_names([name for _, name in self.let], setting.sizes)
        self.entries = {key: entry_of(key[1], self.recursive) for key in self.let}
        self.names = {entry.name for entry in self.entries.values()}
        members = {entry.name for entry in self.entries.values() if entry.index is not None}
        self.course = Course(kind, setting.model, families | members)
        self.guesses = 0

    def typed(
        self,
        formula: Formula,
        state: _State,
        letter: Reach | None = None,
        index: frozenset[str] = frozenset(),
        *,
        start: bool = False,
    ) -> Expr:
        """Return a formula with its types, `letter` and the step `index` being what it may use besides."""
        expr = formula.expr
        inner = {} if letter is None else {letter.letter: letter}
        return infer(
            expr,
            state.types,
            sizes=self.setting.sizes,
            model=self.setting.model,
            index_names=index,
            indexed=frozenset(self.course.changing) | (state.steps.keys() if self.recursive else set()),
            variables=self.variables,
            trajectory=state.steps,
            index=STEP if self.kind is None else self.kind.index.type,
            numbers=self.kind is not None and not self.kind.trains,
            families=state.families,
            letters=inner,
            start=start and self.course.trains,
        )

    def definitions(self, state: _State) -> _State:
        """Type all definitions; where members rest on each other, from the types that the first ones suggest."""
        for entry in self.entries.values():
            if entry.index is not None:
                reaches = tuple(_reach(e) for e in self.entries.values() if e.name == entry.name)
                letter = next((e.reach.letter for e in self.entries.values() if e.name == entry.name and e.reach), "l")
                state.families[entry.name] = Family(letter, reaches)
        while True:
            for key in self.let:
                if not state.done(key) and self.let[key].names & state.broken:
                    state.left_out.add(key)
                    state.broken.add(self.entries[key].name)
            ready = [key for key in self.let if not state.done(key) and not self._open(key, state)]
            if not ready:
                break
            for key in ready:
                self._define(key, state)
        return self._guessed([key for key in self.let if not state.done(key)], state)

    def _open(self, key: Key, state: _State) -> set[str]:
        """Return the definitions that a formula uses and whose types are not known yet."""
        return {name for name in self.let[key].names & self.names if name not in self._types(name, state)}

    def _types(self, name: str, state: _State) -> dict[str, Type]:
        """Return where the type of a definition is kept: that of a recursion is one at a step."""
        return state.steps if name in self.recursive else state.types

    def _define(self, key: Key, state: _State) -> None:
        entry, formula = self.entries[key], self.let[key]
        try:
            typed = self.typed(formula, state, entry.reach, step_letters(entry))
            check_place("let", typed, self.setting, self.course)
        except ExpressionError as error:
            state.errors[key] = error
            state.broken.add(entry.name)
            return
        state.typed[key] = typed
        assert typed.type is not None
        if entry.index is None and entry.name in state.steps:
            self._compare_steps(key, typed, state)
        elif entry.index is None:
            self._types(entry.name, state)[entry.name] = SCALAR if typed.type.sort.is_index else typed.type
            self.course.define(entry.name, typed)
        elif entry.name in self._types(entry.name, state):
            self._compare(key, typed, state)
        elif entry.reach is not None:
            letter = Size.letter(state.families[entry.name].letter)
            self._settle(entry.name, type_at(typed.type, {entry.reach.letter: letter}), typed, state)

    def _settle(self, name: str, type_: Type, typed: Expr, state: _State) -> None:
        """Take a type for that of a family, and hold it against its parts that are typed already."""
        self._types(name, state)[name] = type_
        self.course.define(name, typed)
        for key, expr in list(state.typed.items()):
            if key[0] == "let" and self.entries[key].name == name:
                self._compare(key, expr, state)

    def _compare_steps(self, key: Key, typed: Expr, state: _State) -> None:
        """Check that an entry of a recursion has the type of the others."""
        name = self.entries[key].name
        wanted, got = state.steps[name], typed.type
        assert got is not None
        scalars = self.shapes.is_scalar(wanted) and (self.shapes.is_scalar(got) or got.sort.is_index)
        if scalars or self.shapes.same_shape(wanted, got):
            return
        shown = f"{self.shapes.show(got)}, and by its other entry {self.shapes.show(wanted)}"
        state.errors[key] = ExpressionError(f"`{name}` is {shown}.", (typed.span.start, typed.span.stop))
        state.broken.add(name)

    def _compare(self, key: Key, typed: Expr, state: _State) -> None:
        """Check that a part of a family has the type of the others."""
        entry, got = self.entries[key], typed.type
        assert entry.index is not None
        assert got is not None
        wanted = type_at(self._types(entry.name, state)[entry.name], {state.families[entry.name].letter: entry.index})
        scalars = self.shapes.is_scalar(wanted) and self.shapes.is_scalar(got)
        if scalars or self.shapes.same_shape(wanted, got):
            return
        shown = f"{self.shapes.show(wanted)} by its other members. Got {self.shapes.show(got)}"
        span = (typed.span.start, typed.span.stop)
        state.errors[key] = ExpressionError(f"{member_name(entry.name, entry.index)} is {shown}.", span)
        state.broken.add(entry.name)

    def _guessed(self, waiting: list[Key], state: _State) -> _State:
        """Type the members that are given one by one, and what rests on them; the guess is checked everywhere."""
        found: _State | None = None
        for key, typed in state.typed.items():
            entry = self.entries.get(key)
            if (
                entry is None
                or entry.index is None
                or entry.name in self._types(entry.name, state)
                or entry.name in state.broken
            ):
                continue
            assert typed.type is not None
            letter = state.families[entry.name].letter
            for guess in generalised(typed.type, entry.index, letter):
                self.guesses += 1
                if self.guesses > MAX_GUESSES:
                    break
                trial = state.copy()
                self._settle(entry.name, guess, typed, trial)
                trial = self.definitions(trial)
                if trial.errors.keys() <= state.errors.keys():
                    return trial
                found = found or trial
            return found or state
        for key in waiting:
            span = (self.let[key].expr.span.start, self.let[key].expr.span.stop)
            name = self.entries[key].name
            message = f"`{name}` rests on itself, and none of its members is defined without others."
            state.errors[key] = ExpressionError(message, span, f"define a first member, as in {name}[0]")
            state.broken.add(name)
        return state


def _reach(entry: Defined) -> Reach:
    if entry.reach is not None:
        return entry.reach
    assert entry.index is not None
    return Reach("", entry.index, entry.index, "")
