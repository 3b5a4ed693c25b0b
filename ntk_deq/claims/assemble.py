"""A claim's node made into a `Claim`: names looked up, formulas parsed, sorted and typed in every setting."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ntk_deq.claims.check import Key, check_formulas, environment
from ntk_deq.claims.claim import Claim, Depth, IllFormed, Verdict
from ntk_deq.claims.entries import by_names, read_constants, read_variables, taken_by
from ntk_deq.claims.existence import existence_faults, has_orders, memberships, put_constants, uniform_names
from ntk_deq.claims.families import has_families, typed_families
from ntk_deq.claims.functions import (
    ClaimFaultError,
    HeadError,
    function_choices,
    function_of,
    model_formulas,
    model_functions,
    name_of,
    setting_names,
    write_out,
)
from ntk_deq.claims.inheritance import Draft, named_entries
from ntk_deq.claims.runs import (
    build_choose,
    build_run,
    choice_faults,
    defined_by_itself,
    kind_of,
    recursive_order,
    start_keys,
    steps_without_run,
    unfit,
    wrong_sign,
)
from ntk_deq.claims.schema import ClaimModel
from ntk_deq.claims.settings import SettingRecord
from ntk_deq.claims.validate import place, validate
from ntk_deq.errors import ExpressionError, Problem, nearest_name
from ntk_deq.files.yaml import Mapping, Node, Scalar, problems_below
from ntk_deq.language.arguments import Definition, is_head
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Free
from ntk_deq.language.families import defined
from ntk_deq.language.hints import did_you_mean, expression_problem, expression_text
from ntk_deq.language.parser import parse
from ntk_deq.language.run import PATH_LENGTH
from ntk_deq.language.tree import Formula, dependents, sort_definitions, unused

_SECTIONS = {"let": None, "assume": "assumption", "conclude": "conclusion"}


def assemble(draft: Draft) -> Claim | IllFormed:
    """Check a claim; everything that is wrong with it is collected."""
    problems = [*draft.problems, *problems_below(draft.node)]
    default = Verdict.HOLDS if draft.mutates is None else Verdict.REFUTED
    if not draft.resolved:
        return _ill_formed(draft, problems, default, ())
    model, found = validate(ClaimModel, draft.node, f"claim {draft.id}")
    problems += found
    if model is None or not isinstance(draft.node, Mapping):
        return _ill_formed(draft, problems, default, ())
    try:
        choice = None if draft.extremes else function_choices(draft.node, draft.find_setting)
    except ClaimFaultError as fault:
        return _ill_formed(draft, [*problems, *fault.problems], model.expect or default, tuple(model.tags))
    if choice is not None:
        variants = [assemble(replace(draft, node=node, extremes=extremes)) for node, extremes in choice.variants()]
        faulty = next((variant for variant in variants if isinstance(variant, IllFormed)), None)
        return faulty or choice.claim([variant for variant in variants if isinstance(variant, Claim)])
    assembler = _Assembler(draft, draft.node, model, problems)
    claim = assembler.claim(model.expect or default)
    # An unused definition may explain a name that is unknown.
    return _ill_formed(draft, [*problems, *claim.warnings], claim.expect, claim.tags) if problems else claim


def _ill_formed(draft: Draft, problems: list[Problem], expect: Verdict, tags: tuple[str, ...]) -> IllFormed:
    entries = draft.node.entries if isinstance(draft.node, Mapping) else {}
    text = {key: node.text for key, node in entries.items() if isinstance(node, Scalar)}
    if text.get("expect") in list(Verdict):
        expect = Verdict(text["expect"])
    own = dict.fromkeys(replace(problem, claim=draft.id) for problem in problems)
    ordered = sorted(own, key=lambda p: (p.position.file != draft.position.file, p.position.line, p.position.column))
    title, where = text.get("title", ""), text.get("where", "")
    return IllFormed(draft.id, title, where, expect, tags, draft.position, tuple(ordered), draft.source)


Read = TypeVar("Read")


@dataclass
class _Assembler:
    draft: Draft
    node: Mapping
    model: ClaimModel
    problems: list[Problem]
    broken: set[str] = field(default_factory=set)  # names whose definition cannot be used
    warnings: list[Problem] = field(default_factory=list)
    constants: dict[str, Formula] = field(default_factory=dict)
    functions: dict[str, Definition] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)  # functions that some formula uses

    def claim(self, expect: Verdict) -> Claim:
        records = self._settings()
        settings = tuple(record.setting for record in records if record.setting is not None)
        given, exists = (self._noted(read_variables(s, self._entries(s), settings)) for s in ("given", "exists"))
        read = {section: self._parse(section) for section in _SECTIONS}
        start = self._parse_start()
        witness = self._parse("witness")
        self._write_out(settings, {**given, **exists}, {**read, "witness": witness}, start)
        uniform = self._orders(settings, exists, read)
        parts: list[dict[Any, Formula]] = [*read.values(), start, witness]
        used = {name for part in parts for formula in part.values() for name in formula.names}
        self.constants = self._noted(read_constants(self._entries("given"), settings, used))
        self._check_names(settings, read["let"])
        let = read["let"] = {**self.constants, **read["let"]}
        order = self._order(read, settings, witness)
        self._check_existence(uniform, settings, given, exists, {**read, "witness": witness})
        self.problems += [problem for record in records for problem in record.missing_scalars(given, self.broken)]
        self._check_run(settings)
        self._check_choice(settings, given, read["assume"])
        formulas = {("let" if name in let else "witness", name): {**let, **witness}[name] for name in order}
        formulas |= {(s, name): f for s in ("assume", "conclude") for name, f in read[s].items()}
        formulas |= start
        families = has_families(settings, given, formulas, kind_of(self.model))
        if families and exists:
            self._add(("exists",), "`exists` is not judged in a claim with families or ranges.", key=True)
            self.broken |= exists.keys()
        if families:
            typed, depths = self._infer_families(formulas, settings, given)
        else:
            typed, depths = self._infer(formulas, settings, given, exists, let), ()
        dropped = self._unused(records, settings, {**given, **exists}, {**read, "witness": witness}, start)
        lets = {name: typed[s, name] for s, name in formulas if s in ("let", "witness") and name not in dropped}
        exists = {name: free for name, free in exists.items() if name not in dropped}
        witness = {name: lets[name] for name in witness if name in lets}
        inside = self._infer(memberships(exists, witness), settings, given, exists, {})
        return Claim(
            id=self.draft.id,
            title=self.model.title,
            where=self.model.where,
            settings=settings,
            given={name: free for name, free in given.items() if name not in dropped},
            let=lets,
            functions={key: found for key, found in self.functions.items() if found.name in self.called},
            assume={name: typed["assume", name] for name in read["assume"]},
            conclude={
                name: {**typed, **inside}["conclude", name] for name in (*read["conclude"], *(n for _, n in inside))
            },
            run=build_run(self.model, typed),
            expect=expect,
            tags=tuple(self.model.tags),
            mutates=self.draft.mutates,
            note=self.model.note,
            position=self.draft.position,
            source=self.draft.source,
            instances=self.model.instances,
            choose=build_choose(self.model, typed),
            warnings=tuple(replace(warning, claim=self.draft.id) for warning in self.warnings),
            depths=depths,
            exists=exists,
            witness=witness,
            uniform=uniform_names(uniform, settings, given) if exists else frozenset(),
        )

    def _settings(self) -> list[SettingRecord]:
        found: list[SettingRecord] = []
        for item in setting_names(self.node):
            name = expression_text(item)
            record, known = self.draft.find_setting(name, item.position.file)
            if record is None:
                message = f"Unknown setting `{name}`. Settings here: {', '.join(known) or 'none'}."
                self.problems.append(Problem(item.position, message, hint=did_you_mean(name, known)))
            elif any(record is other for other in found):
                self.problems.append(Problem(item.position, f"The setting `{name}` is listed twice."))
            else:
                self.problems += record.problems
                found.append(record)
        return found

    def _noted(self, read: tuple[dict[str, Read], list[Problem], set[str]]) -> dict[str, Read]:
        """Keep what is wrong with entries that were read, and return the others."""
        self.problems += read[1]
        self.broken |= read[2]
        return read[0]

    def _parse(self, section: str) -> dict[str, Formula]:
        formulas = {}
        for name, node in self._entries(section).items():
            text = expression_text(node)
            if section == "let" and is_head(name):
                self._parse_function(name, text)
                continue
            base = self._defined(name) if section == "let" else name
            if base is None:
                continue
            try:
                formulas[name] = Formula(name, text, parse(text), node.position)
            except ExpressionError as error:
                self.problems.append(expression_problem(node, error, f"{section}.{name}"))
                if section == "let":
                    self.broken.add(base)
        return formulas

    def _parse_function(self, key: str, text: str) -> None:
        try:
            self.functions[key] = function_of(key, text, self.draft.extremes)
        except ExpressionError as error:
            if isinstance(error, HeadError):
                self._add(("let", key), f"`let.{key}`: {error.message}", key=True, hint=error.hint)
            else:
                self._add_error(("let", key), error)
            self.broken.add(name_of(key))

    def _write_out(
        self,
        settings: tuple[Setting, ...],
        given: dict[str, Free],
        read: dict[str, dict[str, Formula]],
        start: dict[Key, Formula],
    ) -> None:
        """Write the functions of arguments out in every formula; what uses a broken one is left out."""
        values = {*given, *(name for setting in settings for name in setting.variable_types())}
        known, wrong = model_functions(settings)
        models = model_formulas(settings)
        self.problems += [Problem(place(self.node, ("setting",)), message) for message in wrong]
        written = write_out(self.functions, {**read, "": start}, values, self.broken, known, models)
        self.broken, self.called = self.broken | written.broken, written.called
        for key, error in written.errors:
            self._add_error(key, error)

    def _defined(self, key: str) -> str | None:
        """Return the name that an entry of `let` defines, of a member the one of its family; None: it is no name."""
        try:
            return defined(key).name
        except ExpressionError as error:
            self._add(("let", key), f"`let.{key}`: {error.message}", key=True, hint=error.hint)
            self.broken.add(key.partition("[")[0])
            return None

    def _parse_start(self) -> dict[Key, Formula]:
        """Parse the formulas of `run` and `choose`, which are fixed before the run starts."""
        formulas = {}
        for key in start_keys(self.model):
            node = self._entries(key[0])[key[1]]
            text = expression_text(node)
            try:
                wrong = wrong_sign(key, kind_of(self.model), text)
                if wrong is not None:
                    self.problems.append(Problem(node.position, wrong, None, text, (0, len(text))))
                    continue
                formulas[key] = Formula(key[1], text, parse(text), node.position)
            except ExpressionError as error:
                self._add_error(key, error)
        return formulas

    def _check_names(self, settings: tuple[Setting, ...], let: dict[str, Formula]) -> None:
        given = [name for name in self._entries("given") if name not in self.broken]
        exists = [name for name in self._entries("exists") if name not in self.broken]
        for section, names in (("given", given), ("exists", exists), ("let", [*let, *self.functions])):
            for key in names:
                name = self._name_of(key) if section == "let" else key
                taken = taken_by(name, settings, kind_of(self.model))
                if section != "given" and name in given:
                    taken = "a name under `given`"
                if section == "let" and name in exists:
                    taken = "a name under `exists`"
                if section == "let" and name != key and (name in let or name in self.functions):
                    taken = "a definition without members"
                if taken:
                    self._add((section, key), f"`{section}` cannot define `{name}`: that is {taken}.", key=True)
                    self.broken.add(name)

    def _name_of(self, key: str) -> str:
        return self.functions[key].name if key in self.functions else defined(key).name

    def _check_run(self, settings: tuple[Setting, ...]) -> None:
        kind = kind_of(self.model)
        for setting in settings if kind is not None else ():
            if kind is not None and (reason := unfit(setting, kind)):
                self._add(("run",), reason, key=True)

    def _check_choice(
        self, settings: tuple[Setting, ...], given: dict[str, Free], hypotheses: dict[str, Formula]
    ) -> None:
        """Check that there is something to choose, and that hypotheses say for what."""
        if self.model.choose is not None and not self.broken:
            for message in choice_faults(kind_of(self.model), [{**s.free, **given} for s in settings], hypotheses):
                self._add(("choose",), message, key=True)

    def _orders(
        self, settings: tuple[Setting, ...], exists: dict[str, Free], read: dict[str, dict[str, Formula]]
    ) -> bool | list[str]:
        """Put constants in the place of orders, and return what existing variables do not depend on."""
        if not has_orders(read["conclude"], self.functions.values()):
            return self.model.uniform
        taken = {name for setting in settings for name in (*environment(setting), *setting.sizes, *setting.constants)}
        for name, error in put_constants(read["conclude"], exists, {*self._entries("given"), *read["let"], *taken}):
            self._add_error(("conclude", name), error)
        return True

    def _order(
        self, read: dict[str, dict[str, Formula]], settings: tuple[Setting, ...], witness: dict[str, Formula]
    ) -> list[str]:
        """Return the definitions in an order in which each uses earlier ones only; steps may rest on earlier steps."""
        kind = kind_of(self.model)
        if kind is not None and kind.written and self.model.run is not None:
            entries = {**read["let"], **witness}
            order, faults = recursive_order({**read, "let": entries}, settings, self.model.run.steps)
            self.broken |= {defined(name).name for name in read["let"] if faults}  # of which nothing more is said
        else:
            order, cycle = sort_definitions({**read["let"], **witness})
            self.broken |= set(cycle)
            section = "witness" if cycle and cycle[0] in witness else "let"
            faults = [((section, name), defined_by_itself(cycle, section)) for name in cycle[:1]]
            faults += steps_without_run(read["let"], settings)
        for (section, name), error in faults:
            self.broken |= {defined(name).name} if section == "let" else set()
            if error.span != (0, 0):
                self._add_error((section, name), error)
            elif section == "run" or name:
                self._add((section, name) if name else (section,), error.message, key=True, hint=error.hint)
        return order

    def _check_existence(
        self,
        uniform: bool | list[str],
        settings: tuple[Setting, ...],
        given: dict[str, Free],
        exists: dict[str, Free],
        read: dict[str, dict[str, Formula]],
    ) -> None:
        """Check what speaks of the variables that are said to exist."""
        names = self.broken & {*self._entries("exists"), *self._entries("witness"), *self._entries("let")}
        for location, message in existence_faults(self.model, uniform, settings, given, exists, read, names):
            if not (location[0] == "exists" and location[-1] in self.draft.inherited):
                self._add(location, message, key=True)

    def _infer(
        self,
        formulas: dict[Key, Formula],
        settings: tuple[Setting, ...],
        given: dict[str, Free],
        exists: dict[str, Free],
        let: dict[str, Formula],
    ) -> dict[Key, Formula]:
        """Type every formula in every setting; the types of the first setting are kept."""
        if len(settings) < len(self.model.setting):  # names that a missing setting would bring are not known
            return formulas
        typed = dict(formulas)
        wrong: set[Key] = set()
        for setting in settings:
            skip = dependents(self.broken | {name for section, name in wrong if section == "let"}, let)
            todo = {key: formula for key, formula in formulas.items() if key not in wrong}
            checked = check_formulas(todo, setting, given, exists=exists, kind=kind_of(self.model), skip=skip)
            suffix = f" (in setting {setting.name})" if len(settings) > 1 else ""
            for key, error in checked.errors.items():
                wrong.add(key)
                self._add_error(key, ExpressionError(error.message + suffix, error.span, error.hint))
            for key, expr in checked.typed.items():
                if setting is settings[0]:
                    typed[key] = replace(formulas[key], expr=expr)
                elif _sort(expr) != _sort(typed[key].expr):
                    sorts = f"{_sort(typed[key].expr)} in setting {settings[0].name}, {_sort(expr)} in {setting.name}"
                    span = (expr.span.start, expr.span.stop)
                    self._add_error(
                        key, ExpressionError(f"this must be the same kind everywhere. It is {sorts}.", span)
                    )
        return typed

    def _infer_families(
        self, formulas: dict[Key, Formula], settings: tuple[Setting, ...], given: dict[str, Free]
    ) -> tuple[dict[Key, Formula], tuple[Depth, ...]]:
        """Type every formula of a claim with families, with its depth open and for each depth."""
        if len(settings) < len(self.model.setting):
            return formulas, ()
        found = typed_families(formulas, settings, given, kind=kind_of(self.model), skip=self.broken)
        for (section, name), error in found.errors:
            if section == "setting":
                self._add(("setting",), f"In the setting of this claim, `{name}`: {error.message}", hint=error.hint)
            elif section == "define":
                self._add(("setting",), f"In the model of this claim, `{name}`: {error.message}", hint=error.hint)
            elif section == "given":
                self._add((section, name), f"`given.{name}`: {error.message}", hint=error.hint)
            elif (section, name) == ("run", "method"):
                self._add((section,), error.message, key=True)
            else:
                self._add_error((section, name), error)
        return found.typed, tuple(found.depths)

    def _unused(
        self,
        records: list[SettingRecord],
        settings: tuple[Setting, ...],
        given: dict[str, Free],
        formulas: dict[str, dict[str, Formula]],
        start: dict[Key, Formula],
    ) -> set[str]:
        """Report names that nothing uses, unless they are inherited or something could not be read; return them all.

        A variable that nothing uses is a problem: the author thinks that the claim speaks of it. A definition is not.
        """
        let = by_names(formulas["let"])
        stated: list[dict[Any, Formula]] = [formulas["assume"], formulas["conclude"], formulas["witness"], start]
        read = set[str]().union(*(formula.names for part in stated for formula in part.values()))
        used = read.union((w.name for r in records for w in r.wanted), let if PATH_LENGTH in read else ())
        found = unused([*given, *let], let, used)
        own = {section: formulas[section].keys() - self.constants for section in _SECTIONS}
        own["let"] |= self.functions.keys()
        complete = not self.broken and all(len(own[section]) == len(self._entries(section)) for section in _SECTIONS)
        if complete and len(start) == len(start_keys(self.model)) and len(settings) == len(self.model.setting):
            known = {*given, *let, *(name for s in settings for name in (*environment(s), *s.sizes))}
            read = used.union(*(formula.names for formula in let.values()))
            for name in (
                n
                for n in (*given, *let)
                if n in found and not {n, let[n].name if n in let else n} & self.draft.inherited
            ):
                if name in self._entries("exists") or name.startswith(tuple(f"{f}_" for f in self.draft.extremes)):
                    continue  # of which more is said elsewhere; constants of members are no entries of the file
                section = "given" if name in self._entries("given") else "let"
                near = nearest_name(name, sorted(read - known))
                hint = f"`{near}` is used and not defined; is `{name}` meant?" if near else None
                message = f"`{section}.{name}` is used nowhere."
                found_at = place(self.node, (section, let[name].name if name in let else name), key=True)
                reported = self.problems if section == "given" else self.warnings
                reported.append(Problem(found_at, message, hint=hint))
            spared = {*self.called, *self.draft.inherited}
            for key in (k for k, f in self.functions.items() if not {k, f.name} & spared):
                self.warnings.append(Problem(place(self.node, ("let", key), key=True), f"`let.{key}` is used nowhere."))
        return found | {key for key in formulas["let"] if defined(key).name in found}

    def _entries(self, section: str) -> dict[str, Node]:
        node = self.node.entries.get(section)
        mapping = named_entries(node, _SECTIONS.get(section)) if node is not None else None
        return mapping.entries if mapping is not None else {}

    def _add_error(self, key: Key, error: ExpressionError) -> None:
        node = self._entries(key[0])[key[1]]
        self.problems.append(expression_problem(node, error, f"{key[0]}.{key[1]}"))

    def _add(self, location: tuple[str, ...], message: str, *, key: bool = False, hint: str | None = None) -> None:
        self.problems.append(Problem(place(self.node, location, key=key), message, hint=hint))


def _sort(expr: object) -> str:
    type_ = getattr(expr, "type", None)
    return str(type_.sort) if type_ is not None else "unknown"
