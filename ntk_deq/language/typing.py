"""Shapes and sorts: gives every node of a tree its type, or says which two shapes do not fit and where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from ntk_deq.errors import nearest_name
from ntk_deq.language.arguments import COMPOSE, MARKS, Scope, Scoped, type_of
from ntk_deq.language.calls import Call, Parameter, Role
from ntk_deq.language.declaration import ModelSignature
from ntk_deq.language.families import Family, named_members
from ntk_deq.language.functionals import FOLDS
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.hints import TRANSPOSES
from ntk_deq.language.indices import Members, Steps, unknown
from ntk_deq.language.shapes import Shapes, comparison, division, fail, power, product, sum_, transposition, truth
from ntk_deq.language.tree import CONSTANT_NAMES, QUANTIFIERS, RANGED, Expr, Kind
from ntk_deq.language.types import BOOLEAN, SCALAR, STEP, Reach, Sort, Type
from ntk_deq.language.written import BY_NAME, by_name

if TYPE_CHECKING:
    from ntk_deq.language.types import SizeRange


def infer(
    expr: Expr,
    environment: Mapping[str, Type],
    *,
    sizes: Mapping[str, SizeRange] | None = None,
    model: ModelSignature | None = None,
    index_names: frozenset[str] = frozenset(),
    indexed: frozenset[str] = frozenset(),
    variables: frozenset[str] | None = None,
    trajectory: Mapping[str, Type] | None = None,
    index: Type = STEP,
    families: Mapping[str, Family] | None = None,
    letters: Mapping[str, Reach] | None = None,
    numbers: bool = False,
    start: bool = False,
) -> Expr:
    """Return the same tree with a type on every node; constants and derivatives by name are written out.

    Two sizes agree where they are the same polynomial in the size letters, or where every letter is fixed and the
    numbers agree. A 1 x 1 matrix (`b'*b`) may stand wherever a number is needed; its node keeps the type
    `matrix 1 x 1`, and whoever evaluates reads its only entry. A product is a matrix product where the inner sizes
    agree, otherwise a 1 x 1 factor scales. A step index counts as a number outside of Z[...].

    Args:
        expr: A tree from `parse`.
        environment: Types of the names that may be used.
        sizes: Ranges of the size letters; a letter may be used as a number.
        model: The setting's model; `fixed_point` and `next` need one.
        index_names: Step indices that are already bound, for example the run's own.
        indexed: Names that may carry a step, as in `Z[k]`.
        variables: Names that `grad`, `jac` and `at` may name. Left out: the environment without the model's
            state and definitions.
        trajectory: Types of the names that have a value at a step only.
        index: The type of a step: `TIME` where it is one, and Z[...] takes 0 or an index alone.
        families: Names whose first brackets take a member; the type of each is written in the family's own letter.
        letters: What letters run over outside of the tree, as in the definition of a member.
        numbers: Whether every step of the run is known, so that `for some` may stand, and a condition hold numbers.
        start: Whether a name without a step means the start of a run, so that functions that use one are refused.

    Raises:
        ExpressionError: The expression is ill-typed; the message names both shapes, the span points at the place.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> from ntk_deq.language.types import matrix
        >>> environment = {"X": matrix("N", "d"), "W": matrix("d", "m")}
        >>> str(infer(parse("relu(X*W)"), environment).type)
        'matrix N x m'
        >>> infer(parse("W*X"), environment)
        Traceback (most recent call last):
        ntk_deq.errors.ExpressionError: cannot multiply matrix d x m by matrix N x d: inner sizes m and N differ.
    """
    if variables is None:
        derived = {model.state, *model.definitions} if model is not None else set()  # '' is no name
        variables = frozenset(environment) - derived
    checker = _Checker(
        environment=environment,
        shapes=Shapes(sizes or {}),
        model=model,
        variables=variables,
        steps=Steps(
            environment,
            indexed,
            trajectory or {},
            index=index,
            any=bool(indexed or index_names),
            numbers=numbers,
        ),
        members=Members(families or {}, sizes or {}, letters or {}),
        scope=Scope(),
        start=start,
    )
    return checker.visit(expr, index_names, Role.VALUE)


def expect_boolean(expr: Expr) -> Expr:
    """Return a typed tree that states something; raise ExpressionError for a number or a matrix."""
    if expr.type is None or expr.type.sort is not Sort.BOOLEAN:
        fail(expr.span, f"a statement is needed here, such as `a <= b`. Got {_plain(expr.type)}.")
    return expr


def expect_scalar(expr: Expr, *, sizes: Mapping[str, SizeRange] | None = None) -> Expr:
    """Return a typed tree that is a number (or a 1 x 1 matrix); raise ExpressionError otherwise."""
    shapes = Shapes(sizes or {})
    if expr.type is None or not shapes.is_scalar(expr.type):
        fail(expr.span, f"a number is needed here. Got {_plain(expr.type, shapes)}.")
    return expr


def _plain(type_: Type | None, shapes: Shapes | None = None) -> str:
    return "an expression without a type" if type_ is None else (shapes or Shapes({})).show(type_)


_PARAMETER_ROLES = {Parameter.SIZE: Role.SIZE, Parameter.INDEX: Role.PLACE, Parameter.VARIABLE: Role.VARIABLE}

_OPERATORS: Mapping[Kind, Callable[[Expr, Shapes], Type]] = {
    Kind.NUMBER: lambda node, shapes: SCALAR,
    **dict.fromkeys((Kind.NEGATE, Kind.ADD, Kind.SUBTRACT), sum_),
    Kind.MULTIPLY: product,
    Kind.DIVIDE: division,
    Kind.TRANSPOSE: transposition,
    Kind.COMPARE: comparison,
    **dict.fromkeys((Kind.AND, Kind.OR, Kind.NOT, *QUANTIFIERS), truth),
}
"""The rules of kinds whose type follows from those of their parts and from what is known of sizes."""
_OF_VALUES = _OPERATORS.keys() - QUANTIFIERS  # whose parts are values, as they are
_OF_A_PLACE = (Kind.NUMBER, Kind.NAME, Kind.ADD, Kind.SUBTRACT, Kind.MULTIPLY)


@dataclass(frozen=True)
class _Checker(Scoped):
    """One walk over a tree; `bound` is the set of step indices that can be used at a node."""

    model: ModelSignature | None
    steps: Steps
    written: bool = False  # whether the tree is one that was written out, whose calls nobody has spelt
    start: bool = False

    def visit(self, node: Expr, bound: frozenset[str], role: Role) -> Expr:
        """Type a node and all below it. One interpreter frame a level, so that the parser's depth limit suffices."""
        roles: tuple[Role, ...] = (role,) * len(node.args)
        inner = bound
        if role is not Role.VALUE or node.kind not in _OF_VALUES:
            if node.kind in RANGED:
                return self._ranged(node, bound, role)
            if node.kind is Kind.CALL and node.args:
                first = node.args[0].kind
                if first is Kind.OVER:
                    return self._folded(node, bound, role) if node.name != COMPOSE else self.composed(node, bound)
                if node.name in MARKS:
                    return self.marked(node, bound, role)
                if first is Kind.FUNCTION:
                    return self.of_function(node, bound, role)
            if node.kind is Kind.NAME:
                node = self.scope.renamed(node)
            if role is Role.VALUE and node.name in self.steps.indexed:
                node = self.scope.at_step(node, family=node.name in self.members.families, strict=self.start)
            if role is Role.VALUE and node.kind is Kind.NAME and self._is_constant(node, bound):
                node = replace(node, kind=Kind.CALL)
            elif role is Role.VALUE and node.kind is Kind.CALL and node.name in BY_NAME:
                self._parameters(node)
                args = tuple(self.visit(arg, bound, Role.VALUE) for arg in node.args[1:])
                self._check_argument(node.name, Parameter.VALUE, args[0])
                formula = by_name(replace(node, args=(node.args[0], *args)))
                return replace(self, written=True).visit(formula, bound, role)
            if node.kind is not Kind.NAME or role is not Role.VALUE:
                roles = self._roles(node, role)
            if node.kind in QUANTIFIERS:
                self.steps.check_quantifier(node, self.shapes.sizes)
                inner = bound | frozenset(node.names)
        typed = []
        for child, child_role in zip(node.args, roles, strict=True):
            typed.append(self.visit(child, inner, child_role))
        node = Expr(node.kind, node.span, tuple(typed), node.name, node.names, node.operators, node.value)
        node.type = self._type(node, bound, role)  # type: ignore[misc]  # it is new, and nobody else has seen it yet
        return _written_out(node) if node.kind is Kind.CALL else node

    def _ranged(self, node: Expr, bound: frozenset[str], role: Role, taken_by: str = "") -> Expr:
        """Type what is said or taken over a range."""
        if role is not Role.VALUE or (node.kind is Kind.OVER and not taken_by):
            fail(node.span, f"a range has no place here; {', '.join(FOLDS)} are taken over one.")
        members = self.members.within(node, {*self.environment, *self.steps.trajectory, *bound, *FUNCTIONS})
        body = replace(self, members=members).visit(node.args[0], bound, role)
        ends = tuple(self.visit(end, bound, Role.MEMBER) for end in node.args[1:])
        node = replace(node, args=(body, *ends))
        return replace(node, type=self.members.ranged_type(node, self.shapes, taken_by))

    def _folded(self, node: Expr, bound: frozenset[str], role: Role) -> Expr:
        """Type a sum, a product, a maximum over a range."""
        if node.name not in FOLDS:
            fail(node.span, f"`{node.name}` cannot be taken over a range.", f"over a range: {', '.join(FOLDS)}")
        over = self._ranged(node.args[0], bound, role, node.name)
        return replace(node, args=(over,), type=over.type)

    def _is_constant(self, node: Expr, bound: frozenset[str]) -> bool:
        """Whether a name is that of a constant, and nothing else here is called so."""
        return node.name in CONSTANT_NAMES and not (
            node.name in self.environment
            or node.name in bound
            or node.name in self.shapes.sizes
            or node.name in self.members.letters
        )

    def _roles(self, node: Expr, role: Role) -> tuple[Role, ...]:
        """Return how the children are to be read, and refuse a kind of node that has no place here."""
        if role in (Role.STEP, Role.BOUND):
            self.steps.check_part(node, bracket=role is Role.STEP)
        if role is Role.MEMBER:
            self.members.check_index(node)
        if node.kind is Kind.INDEX and role not in (Role.STEP, Role.BOUND, Role.MEMBER, Role.CONDITION):
            return self._brackets(node)
        if role is Role.SIZE and node.kind not in (Kind.NUMBER, Kind.NAME, Kind.ADD, Kind.MULTIPLY):
            fail(node.span, "a size may be made of positive integers and size letters with + and * only.")
        if role is Role.PLACE and node.kind not in _OF_A_PLACE:
            fail(node.span, "an index of an entry may be made of whole numbers and size letters with + - and * only.")
        if role is Role.CONDITION:
            self.steps.check_condition(node)
            if node.kind is Kind.COMPARE:
                return tuple(Role.VALUE if self._is_known(arg) else Role.BOUND for arg in node.args)
        if role is not Role.VALUE:
            return (role,) * len(node.args)
        if node.kind is Kind.POWER and node.args[1].kind is Kind.NAME and node.args[1].name not in self.environment:
            exponent = node.args[1]
            if exponent.name in TRANSPOSES and exponent.name not in self.shapes.sizes:
                fail(exponent.span, f"unknown name `{exponent.name}`.", "write A' for a transpose")
        if node.kind in QUANTIFIERS:
            return (Role.VALUE, Role.CONDITION)[: len(node.args)]
        if node.kind is Kind.CALL:
            parameters = self._parameters(node)
            return tuple(_PARAMETER_ROLES.get(parameter, Role.VALUE) for parameter in parameters)
        return (Role.VALUE,) * len(node.args)

    def _is_known(self, side: Expr) -> bool:
        """Whether a side of a condition on steps is a number that is known before them, as in `k <= T`."""
        names = {part.name for part in side.walk() if part.kind is Kind.NAME}
        return self.steps.numbers and bool(names) and names <= {*self.environment, *self.shapes.sizes}

    def _brackets(self, node: Expr) -> tuple[Role, ...]:
        """Return what the brackets behind a name hold: the first ones behind a family a member, others a step."""
        if node.name in self.members.families:
            return (Role.MEMBER, Role.STEP)[: len(node.args)]
        if len(node.args) > 1:
            fail(node.args[1].span, f"`{node.name}` is no family: it takes one step.")
        return (Role.STEP,)

    def _type(self, node: Expr, bound: frozenset[str], role: Role) -> Type:
        """Return the type of a node whose children have theirs."""
        if role is not Role.VALUE and role is not Role.CONDITION:
            return self._part(node, bound, role)
        match node.kind:
            case Kind.NAME:
                return self._name(node, bound)
            case Kind.CALL:
                return self._call(node)
            case Kind.POWER:
                return power(node, self.shapes, self.members.letters)
            case Kind.INDEX:
                return self._indexed(node)
            case Kind.AT:
                return self._at(node)
            case Kind.FUNCTION:
                fail(node.span, "a function is no value.")
            case Kind.COMPARE if role is Role.CONDITION:
                return self._condition(node)
        return _OPERATORS[node.kind](node, self.shapes)

    def _part(self, node: Expr, bound: frozenset[str], role: Role) -> Type:
        """Return the type of what is no value: a step, a member, a size, a variable."""
        if role is Role.MEMBER:
            return self.members.index(node, bound)
        if role in (Role.STEP, Role.BOUND):
            return self.steps.step(node, bound | self.members.letters.keys())
        return self._variable(node) if role is Role.VARIABLE else self._size_part(node)

    def _condition(self, node: Expr) -> Type:
        """Return the type of a comparison of steps, with each other or with numbers."""
        for side in node.args:
            type_ = type_of(side)
            if not type_.sort.is_index and not self.shapes.is_scalar(type_):
                fail(side.span, f"a step is compared with numbers. Got {self.shapes.show(type_)}.")
        return BOOLEAN

    def _indexed(self, node: Expr) -> Type:
        """Return the type of a name with brackets."""
        if node.name not in self.members.families:
            if self.members.families and not self.steps.any and node.name in self.environment:
                families = ", ".join(sorted(self.members.families))
                fail(node.span, f"`{node.name}` is no family, and nothing here has steps.", f"families: {families}")
            return self.steps.indexed_type(node)
        if node.name not in self.environment and node.name not in self.steps.trajectory:  # a family of sizes
            if len(node.args) > 1:
                fail(node.args[1].span, f"`{node.name}` is a family of sizes, and these have no steps.")
            return SCALAR
        if len(node.args) == 1:
            self.steps.check_bare(node)
        type_ = self.environment[node.name] if len(node.args) == 1 else self.steps.indexed_type(node)
        return self.members.member_type(node, type_)

    def _name(self, node: Expr, bound: frozenset[str]) -> Type:
        self.members.check_bare(node)
        if node.name in self.members.letters:
            return SCALAR
        if node.name in self.environment:
            return self.environment[node.name]
        if node.name in bound:
            return self.steps.index
        self.steps.check_bare(node)
        if node.name in self.shapes.sizes:
            return SCALAR
        if node.name in FUNCTIONS:
            fail(node.span, f"`{node.name}` is a function.", f"write {FUNCTIONS[node.name].signature}")
        raise unknown(node, {*self.environment, *self.shapes.sizes, *bound, *FUNCTIONS})

    def _size_part(self, node: Expr) -> Type:
        if node.kind is Kind.INDEX:
            if node.name not in self.members.families or node.name in self.environment:
                fail(node.span, f"`{node.name}` is no family of sizes.", _letters(self.shapes))
            return self._indexed(node)
        if node.kind is Kind.NAME and node.name in self.members.letters:
            return SCALAR
        if node.kind is Kind.NAME:
            self.members.check_bare(node)
        if node.kind is Kind.NAME and node.name not in self.shapes.sizes:
            if node.name in self.environment:
                fail(node.span, f"`{node.name}` is no size letter.", _letters(self.shapes))
            raise unknown(node, set(self.shapes.sizes), "size letter")
        return SCALAR

    def _variable(self, node: Expr) -> Type:
        if node.kind is Kind.INDEX and len(node.args) == 1 and node.name in self.members.families:
            if node.name not in self.variables or node.name not in self.environment:
                fail(node.span, f"`{node.name}` is defined by others and is no free variable.", self._variable_list())
            return self._indexed(node)
        if node.kind is Kind.NAME:
            self.members.check_bare(node)
        if node.kind is not Kind.NAME:
            fail(node.span, "a derivative is taken with respect to a variable, by its bare name.")
        if node.name in self.variables and node.name in self.environment:
            return self.environment[node.name]
        if node.name in self.environment:
            fail(node.span, f"`{node.name}` is defined by others and is no free variable.", self._variable_list())
        raise unknown(node, set(self.variables), "variable")

    def _variable_list(self) -> str | None:
        names = ", ".join(sorted(self.variables & self.environment.keys()))
        return f"free variables: {names}" if names else None

    def _at(self, node: Expr) -> Type:
        for written, value in zip(node.names, node.args[1:], strict=True):
            name, member = self.members.replaced(written, value)
            if name not in self.variables or name not in self.environment:
                near = nearest_name(name, sorted(self.variables))
                hint = f"did you mean `{near}`?" if near and near != name else self._variable_list()
                fail(value.span, f"`at` can replace free variables only, and `{name}` is none.", hint)
            wanted, got = self.environment[name], type_of(value)
            wanted = wanted if member is None else self.members.member_at(name, member, wanted)
            fits = self.shapes.is_scalar(got) if wanted == SCALAR else self.shapes.same_shape(wanted, got)
            if not fits:
                show = self.shapes.show
                fail(value.span, f"`at` needs {show(wanted)} for `{written}`. Got {show(got)}.")
        inner = type_of(node.args[0])
        if inner.sort is Sort.BOOLEAN:
            fail(node.args[0].span, "`at` takes a number or a matrix first. Got a statement.")
        return SCALAR if inner.sort.is_index else inner

    def _parameters(self, node: Expr) -> tuple[Parameter, ...]:
        """Return what each argument of a call must be; refuses unknown functions and wrong counts."""
        if not node.name:
            fail(node.args[0].span, f"`{node.args[0].name}` is no family of functions.", "write * for a product")
        function = FUNCTIONS.get(node.name)
        if function is not None and not self.written and (node.args or function.parameters):
            self._check_callable(node)
        if function is None:
            if node.name in self.environment:
                wants_step = node.name in self.steps.indexed
                remedy = f"write {node.name}[...]" if wants_step else f"write {node.name}*(...) for a product"
                model = None if wants_step else self.model
                if model is not None and node.name in (model.state, *model.definitions):
                    remedy += f"; at({node.name}, NAME = ...) is it at other values of a variable"
                fail(node.span, f"`{node.name}` is no function.", remedy)
            raise unknown(node, set(FUNCTIONS), "function")
        if function.needs_model and self.model is None:
            fail(node.span, f"`{node.name}` needs a model, and this setting names none.")
        if function.needs_model and self.model is not None and not self.model.has_equilibrium:
            fail(node.span, f"`{node.name}` needs an equilibrium, and model {self.model.name} has none.")
        count = len(node.args)
        if not function.takes(count):
            fail(node.span, f"`{node.name}` takes {function.counts}. Got {count}.", f"write {function.signature}")
        return (function.parameters + function.parameters[-1:] * count)[:count]

    def _check_callable(self, node: Expr) -> None:
        """Refuse a call of a function whose name a variable or a definition has taken."""
        if node.name in self.environment or node.name in self.shapes.sizes:
            what = f"`{node.name}` has a value here, and is also a function of the language"
            hint = f"call the one with a value something else, or write {node.name}*(...) for a product"
            fail(node.span, f"{what}: `{node.name}(...)` may mean either.", hint)

    def _call(self, node: Expr) -> Type:
        function = FUNCTIONS[node.name]
        parameters = self._parameters(node)
        for parameter, argument in zip(parameters, node.args, strict=True):
            self._check_argument(node.name, parameter, argument)
        sized = [
            self.shapes.size(named_members(a), index=p is Parameter.INDEX)
            if p in (Parameter.SIZE, Parameter.INDEX)
            else None
            for p, a in zip(parameters, node.args, strict=True)
        ]
        return function.result(
            Call(
                name=node.name,
                types=tuple(type_of(argument) for argument in node.args),
                sizes=tuple(sized),
                spans=tuple(argument.span for argument in node.args),
                span=node.span,
                shapes=self.shapes,
            )
        )

    def _check_argument(self, name: str, parameter: Parameter, argument: Expr) -> None:
        type_, show = type_of(argument), self.shapes.show
        if parameter is Parameter.STATE and self.model is not None:
            state = self.model.state_type
            if not self.shapes.same_shape(state, type_):
                fail(argument.span, f"{name} needs a state, {show(state)}. Got {show(type_)}.")
        elif not parameter.admits(type_, self.shapes):
            fail(argument.span, f"{name} needs a {parameter}. Got {show(type_)}.")


def _written_out(node: Expr) -> Expr:
    """Return the comparison with zero that a call such as psd(A) is short for, and any other call as it is."""
    short = FUNCTIONS[node.name].stands_for
    if short is None:
        return node
    value = replace(node, name=short[0], type=SCALAR)
    zero = Expr(Kind.NUMBER, node.span, value=Fraction(0), type=SCALAR)
    return Expr(Kind.COMPARE, node.span, (value, zero), operators=(short[1],), type=BOOLEAN)


def _letters(shapes: Shapes) -> str | None:
    return f"size letters: {', '.join(shapes.sizes)}" if shapes.sizes else None
