"""A setting of a claim file made into a `Setting`: sizes, domains, distributions, images, the model's own variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Systems
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from ntk_deq.claims.entries import flattened, reach_fault, unknown_sizes
from ntk_deq.claims.schema import SettingModel
from ntk_deq.claims.validate import image_data, inside, place, validate
from ntk_deq.errors import ArgumentError, ExpressionError, Position, Problem
from ntk_deq.files.results import matrix_text, read_results
from ntk_deq.files.yaml import Mapping, Node, problems_below
from ntk_deq.language.declaration import (
    Draw,
    ImageData,
    ModelSignature,
    Setting,
    model_names,
    model_signature,
    reserved,
)
from ntk_deq.language.domain import (
    DISTRIBUTIONS,
    Free,
    check_distribution,
    is_literal,
    misfit,
    parse_domain,
    scalar_names,
    split_shape,
)
from ntk_deq.language.families import split_for
from ntk_deq.language.function_domains import FunctionDomain, is_function_domain, parse_function_domain
from ntk_deq.language.hints import did_you_mean, expression_problem, expression_text, is_yaml_boolean, scalar_position
from ntk_deq.language.parser import parse
from ntk_deq.language.shapes import too_large
from ntk_deq.language.tree import CONSTANT_NAMES, Formula, Kind
from ntk_deq.language.types import SCALAR, Reach, SizeRange, Type, shape_type
from ntk_deq.language.typing import infer

_NO_SYSTEMS: Systems[str, ModelSignature] = {}


@dataclass(frozen=True)
class WantedScalar:
    """A scalar that a distribution uses and that the setting does not have: a claim's `given` must supply it."""

    name: str
    where: str
    position: Position
    source: str
    span: tuple[int, int]
    known: tuple[str, ...]


@dataclass(frozen=True)
class SettingRecord:
    """A setting as loaded: the setting itself unless something is wrong with it."""

    name: str
    setting: Setting | None
    problems: tuple[Problem, ...]
    wanted: tuple[WantedScalar, ...] = ()

    def missing_scalars(self, given: Systems[str, Free], broken: set[str]) -> Iterator[Problem]:
        """Yield the scalars that distributions leave open and `given` of a claim does not supply; not the broken."""
        for wanted in self.wanted:
            if wanted.name in broken or (wanted.name in given and given[wanted.name].type == SCALAR):
                continue
            needs = "a scalar of that name in the setting or under `given` of the claim"
            message = f"`{wanted.where}` of setting {self.name} uses `{wanted.name}`, which needs {needs}."
            hint = did_you_mean(wanted.name, [*given, *wanted.known])
            yield Problem(wanted.position, message, None, wanted.source, wanted.span, hint)


def build_setting(
    name: str,
    node: Node,
    *,
    directory: Path,
    allow_data: Sequence[Path] = (),
    systems: Systems[str, ModelSignature] = _NO_SYSTEMS,
) -> SettingRecord:
    """Check a setting and bring it into the form that the rest of the product uses.

    Args:
        name: Its name.
        node: Its node in the claim file.
        directory: Folder of the claim file; data files must lie below it.
        allow_data: Further folders or files that data may come from.
        systems: Models that its file declares.
    """
    problems = list(problems_below(node))
    model, schema_problems = validate(SettingModel, node, f"setting {name}")
    problems += schema_problems
    if model is None or not isinstance(node, Mapping):
        return SettingRecord(name, None, tuple(problems))
    builder = _Builder(name, node, model, problems, systems)
    setting = builder.build(directory, allow_data)
    return SettingRecord(name, setting if not problems else None, tuple(problems), tuple(builder.wanted))


@dataclass
class _Builder:
    name: str
    node: Mapping
    model: SettingModel
    problems: list[Problem]
    systems: Systems[str, ModelSignature]
    wanted: list[WantedScalar] = field(default_factory=list)
    constants: dict[str, Formula] = field(default_factory=dict)
    functions: dict[str, FunctionDomain] = field(default_factory=dict)

    def build(self, directory: Path, allow_data: Sequence[Path]) -> Setting | None:
        signature = self._signature()
        if signature is None and self.model.model is not None:
            return None
        sizes = dict(self.model.sizes)
        images = self._images(signature, sizes, directory, allow_data)
        self._check_sizes(signature, sizes)
        for letter, size in sizes.items():
            if size.over is not None:
                self._check_reach(f"sizes.{letter}", place_node(self.node, "sizes", letter), size.over, sizes)
        provided = {} if images is None else {images.inputs: "images"}
        if images is not None and images.targets is not None:
            provided[images.targets] = "images"
        free: dict[str, Free] = {}
        for variable, node in self._section("domain"):
            self._once(variable, "domain", provided)
            if is_literal(expression_text(node)):
                self._constant("domain", variable, node, signature, sizes)
                continue
            if is_function_domain(expression_text(node)):
                try:
                    self.functions[variable] = parse_function_domain(expression_text(node))
                except ExpressionError as error:
                    self.problems.append(expression_problem(node, error, f"domain.{variable}"))
                continue
            found = self._free(variable, node, signature, sizes)
            if found is not None:
                free[variable] = found
        draws: dict[str, Draw] = {}
        for section in ("data", "init"):
            for variable, node in self._section(section):
                self._once(variable, section, provided)
                if is_literal(expression_text(node)):
                    self._constant(section, variable, node, signature, sizes)
                    continue
                drawn = self._draw(f"{section}.{variable}", variable, node, signature, sizes)
                if drawn is not None:
                    draws[variable] = drawn
        for own in signature.variables if signature is not None else ():
            if own.name not in provided:
                free[own.name] = Free(own.name, shape_type(own.shape), parse_domain(own.domain)[0], own.over)
                reason = self._too_large(free[own.name].type, sizes)
                if reason:
                    self._add(("sizes",), f"The model's variable {own.name}: {reason}.")
        self._check_names(provided, signature, sizes)
        self._want_scalars(free, draws, sizes)
        measured = self._results(directory, allow_data, provided, signature, sizes)
        where, folder = self.node.position, str(directory)
        sets = self.functions
        return Setting(self.name, signature, sizes, free, draws, images, where, folder, self.constants, measured, sets)

    def _signature(self) -> ModelSignature | None:
        if self.model.model is None:
            return None
        if self.model.model in self.systems:
            return self.systems[self.model.model]
        try:
            return model_signature(self.model.model)
        except ArgumentError:
            known = (*model_names(), *self.systems)
            message = f"Unknown model {self.model.model!r}. Known models: {', '.join(known)}."
            self._add(("model",), message, hint=did_you_mean(self.model.model, known))
            return None

    def _images(
        self, signature: ModelSignature | None, sizes: dict[str, SizeRange], directory: Path, allow: Sequence[Path]
    ) -> ImageData | None:
        if self.model.images is None:
            return None
        elsewhere = {*self.model.domain, *self.model.data, *self.model.init}
        images, wrong = image_data(
            self.model.images, signature=signature, sizes=sizes, elsewhere=elsewhere, directory=directory, allow=allow
        )
        for key, message in wrong:
            location = ("images", key) if key else ("images",)
            self._add(location, f"{message[0].upper()}{message[1:]}")
        return images

    def _results(
        self,
        directory: Path,
        allow: Sequence[Path],
        provided: dict[str, str],
        signature: ModelSignature | None,
        sizes: dict[str, SizeRange],
    ) -> str:
        """Take the numbers of a file of results as constants; return where they come from."""
        text = self.model.results
        if text is None:
            return ""
        path = inside(text, directory, allow)
        if path is None:
            allowed = "must lie in the folder of the claim file, or be allowed on the command line"
            self._add(("results",), f"`results`: a file of results {allowed}. Got {text!r}.")
            return ""
        try:
            found = read_results(path)
        except (ArgumentError, OSError) as error:
            self._add(("results",), f"`results`: {error}")
            return ""
        for name, value in found.values.items():
            literal = matrix_text(value)
            if literal is None:
                continue
            taken = f"given by `{provided[name]}`" if name in provided else reserved(name, signature)
            if taken or name in sizes:
                self._add(("results",), f"`results`: {name} of {text} is {taken or 'a size letter'}, too.")
                continue
            self.constants[name] = Formula(name, literal, infer(parse(literal), {}, sizes={}), self.node.position)
        who = found.producer
        return (
            f"numbers of {text}, measured by {who.name} of ntk_deq {who.version} "
            f"(script {who.sha256[:12]}, file {found.sha256[:12]})"
        )

    def _check_sizes(self, signature: ModelSignature | None, sizes: dict[str, SizeRange]) -> None:
        for letter in signature.sizes if signature is not None else ():
            if letter not in sizes:
                message = f"Model {signature.name if signature else ''} needs the size {letter}; `sizes` must give it."
                self._add(("sizes",), message)
            elif signature is not None and (sizes[letter].over is not None) != (letter in signature.families):
                kind = f"a family, as in `{letter}: 1..5 for l in 0..L`" * (letter in signature.families)
                message = f"`sizes.{letter}` must be {kind or 'a single size'} in the model {signature.name}."
                self._add(("sizes", letter), message)
        for letter in sizes:
            taken = reserved(letter, None)
            if taken:
                self._add(("sizes", letter), f"A size letter cannot be called `{letter}`: that is {taken}.", key=True)

    def _once(self, variable: str, section: str, provided: dict[str, str]) -> None:
        if variable in provided:
            message = f"`{variable}` is given twice, by `{provided[variable]}` and by `{section}`."
            self._add((section, variable), message, key=True)
        provided[variable] = section

    def _free(
        self, name: str, node: Node, signature: ModelSignature | None, sizes: dict[str, SizeRange]
    ) -> Free | None:
        where = f"domain.{name}"
        try:
            body, over = split_for(expression_text(node))
            over = over or self._own_reach(name, signature)
            domain, shape = parse_domain(body)
        except ExpressionError as error:
            self.problems.append(expression_problem(node, error, where))
            return None
        if not self._check_reach(where, node, over, sizes):
            return None
        type_ = self._type(name, node, where, shape, signature, sizes, over)
        reason = misfit(domain, type_) if type_ is not None else None
        if reason:
            self.problems.append(Problem(node.position, f"`{where}`: {reason}."))
        return Free(name, type_, domain, over) if type_ is not None and not reason else None

    def _constant(
        self, section: str, name: str, node: Node, signature: ModelSignature | None, sizes: dict[str, SizeRange]
    ) -> None:
        """Take a matrix that is written out, of numbers and sizes."""
        text, own = expression_text(node), set() if signature is None else {v.name for v in signature.variables}
        try:
            if name in own:
                message = f"`{name}` is a variable of the model, and a constant is a definition."
                raise ExpressionError(message, (0, len(text)), f"write the hypothesis {name} == {text}")
            expr = infer(parse(text), {}, sizes=sizes)
        except ExpressionError as error:
            self.problems.append(expression_problem(node, error, f"{section}.{name}"))
            return
        self.constants[name] = Formula(name, text, expr, node.position)

    def _draw(
        self, where: str, name: str, node: Node, signature: ModelSignature | None, sizes: dict[str, SizeRange]
    ) -> Draw | None:
        text = expression_text(node)
        try:
            whole, over = split_for(text)
            over = over or self._own_reach(name, signature)
            body, shape = split_shape(whole)
            if is_yaml_boolean(body):
                raise ExpressionError("a number or a distribution is needed.", (0, len(body)))
            if not self._check_reach(where, node, over, sizes):
                return None
            type_ = self._type(name, node, where, shape, signature, sizes, over)
            expr = parse(body)
            if type_ is None:
                return None
            if over is None and not any(found.kind is Kind.INDEX for found in expr.walk()):
                check_distribution(expr, type_, sizes)  # otherwise once the members are known
        except ExpressionError as error:
            self.problems.append(expression_problem(node, error, where))
            return None
        return Draw(name, type_, expr, text, over)

    def _type(
        self,
        name: str,
        node: Node,
        where: str,
        shape: Type | None,
        signature: ModelSignature | None,
        sizes: dict[str, SizeRange],
        over: Reach | None = None,
    ) -> Type | None:
        """Return the type of a variable from its model or from the shape written after it."""
        own = {v.name: shape_type(v.shape) for v in signature.variables} if signature is not None else {}
        unknown = unknown_sizes(shape, sizes, over) if shape is not None else []
        if unknown:
            message = f"`{where}`: the size {', '.join(unknown)} is not among `sizes` ({', '.join(sizes) or 'none'})."
            hint = did_you_mean(unknown[0], sizes)
            if unknown[0] in sizes:
                hint = f"`{unknown[0]}` is a family of sizes: write {unknown[0]}[0] or another of its members"
            self.problems.append(Problem(node.position, message, hint=hint))
            return None
        if name in own and over is not None and over != self._own_reach(name, signature):
            reach = self._own_reach(name, signature)
            kind = f"a single {own[name]}, and no family" if reach is None else f"a family for {reach.text}"
            message = f"`{where}`: in the model {name} is {kind}."
            self.problems.append(Problem(node.position, message))
            return None
        if name in own and shape is not None and shape != own[name]:
            message = f"`{where}`: in the model {name} is a {own[name]}. Got the shape of a {shape}."
            self.problems.append(Problem(node.position, message))
            return None
        type_ = own.get(name, shape or SCALAR)
        reason = self._too_large(type_, sizes)
        if reason:
            self.problems.append(Problem(node.position, f"`{where}`: {reason}."))
        return None if reason else type_

    def _check_reach(self, where: str, node: Node, over: Reach | None, sizes: dict[str, SizeRange]) -> bool:
        """Check that the range of a family is known and its letter free; say what is wrong, and whether nothing is."""
        wrong = None if over is None else reach_fault(over, sizes)
        if wrong is not None:
            self.problems.append(Problem(node.position, f"`{where}`: {wrong}"))
        return wrong is None

    @staticmethod
    def _own_reach(name: str, signature: ModelSignature | None) -> Reach | None:
        """Return what the members of a variable of the model are indexed by, or None."""
        return signature.variable(name).over if signature is not None and name in signature.names() else None

    @staticmethod
    def _too_large(type_: Type, sizes: dict[str, SizeRange]) -> str | None:
        """Return why no instance fits into memory; sizes that are missing have been reported already."""
        known = (type_.rows.letters | type_.cols.letters) <= set(sizes)
        return too_large(type_, sizes) if known else None

    def _check_names(
        self, provided: dict[str, str], signature: ModelSignature | None, sizes: dict[str, SizeRange]
    ) -> None:
        for name, section in provided.items():
            taken = f"a size letter of setting {self.name}" if name in sizes else reserved(name, signature)
            if taken and section != "images":
                self._add((section, name), f"A variable cannot be called `{name}`: that is {taken}.", key=True)

    def _want_scalars(self, free: dict[str, Free], draws: dict[str, Draw], sizes: dict[str, SizeRange]) -> None:
        """Look up the scalars that distributions use; those that the setting lacks are left to the claims."""
        types = {name: v.type for name, v in free.items()} | {name: d.type for name, d in draws.items()}
        scalars = [*sizes, *(name for name, type_ in types.items() if type_ == SCALAR)]
        uses: dict[str, set[str]] = {}
        for draw in draws.values():
            section = "data" if draw.name in self.model.data else "init"
            where, node = f"{section}.{draw.name}", place_node(self.node, section, draw.name)
            uses[draw.name] = set()
            members = (node for node in draw.distribution.walk() if node.kind is Kind.INDEX)
            for used in (*scalar_names(draw.distribution), *members):
                span = (used.span.start, used.span.stop)
                if draw.over is not None and used.name == draw.over.letter:
                    continue
                if used.name in scalars:
                    uses[draw.name] |= {used.name} & set(draws)
                elif used.name in types:
                    message = (
                        f"a distribution may use numbers, size letters and scalars. `{used.name}` is none of them."
                    )
                    self.problems.append(expression_problem(node, ExpressionError(message, span), where))
                elif used.name not in CONSTANT_NAMES:
                    known, position = (*DISTRIBUTIONS, *scalars), scalar_position(node, span[0])
                    self.wanted.append(WantedScalar(used.name, where, position, expression_text(node), span, known))
        try:
            TopologicalSorter(uses).prepare()
        except CycleError as error:
            cycle = error.args[1][::-1]
            section = "data" if cycle[0] in self.model.data else "init"
            self._add((section, cycle[0]), f"`{section}.{cycle[0]}` uses itself: {' -> '.join(cycle)}.", key=True)

    def _section(self, section: str) -> Iterator[tuple[str, Node]]:
        node = self.node.entries.get(section)
        head = "domain" if section == "domain" else "draw"
        if isinstance(node, Mapping):
            yield from ((name, flattened(entry, head)) for name, entry in node.entries.items())

    def _add(self, location: tuple[str, ...], message: str, *, key: bool = False, hint: str | None = None) -> None:
        self.problems.append(Problem(place(self.node, location, key=key), message, hint=hint))


def place_node(node: Mapping, section: str, name: str) -> Node:
    """Return the node of one entry of a section."""
    inner = node.entries[section]
    found = inner.entries.get(name, inner) if isinstance(inner, Mapping) else inner
    return flattened(found, "domain" if section == "domain" else "draw")
