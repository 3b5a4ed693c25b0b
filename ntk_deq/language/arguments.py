"""Functions of arguments as they are defined: `phi(u)`, `map(z[n, N], W)`, `f[l](z) for l in 1..L`.

And what names mean inside them: those arguments, and what changes along a run, where one is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ntk_deq.errors import ExpressionError
from ntk_deq.language.calls import Call, Parameter, Role
from ntk_deq.language.families import downward, generalised, index_size, named_members, reach_of, split_for, type_at
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.indices import Members
from ntk_deq.language.parser import parse_head
from ntk_deq.language.shapes import Shapes, fail
from ntk_deq.language.tree import BOUND, Expr, Kind, Mark, Span
from ntk_deq.language.types import SCALAR, Reach, Size, Sort, Type

OPEN = "_"
"""The argument that a partial application leaves open."""


@dataclass(frozen=True)
class Definition:
    """A function as it is defined.

    Attributes:
        name: Its name.
        head: Its name with its parameters, as written.
        parameters: Its parameters, names; one whose shape is stated has it as argument. None of a name for a function
            that has its argument already, as in `psi: compose(f, g)`.
        body: What it is.
        text: The same as written.
        member: The index of a member of a family of functions, or None.
        reach: What the letter of that index runs over, or None: it is one member.
        least, where: Its least value, and where it has that, for a member of a set of functions that has them.
    """

    name: str
    head: str
    parameters: tuple[Expr, ...]
    body: Expr
    text: str
    member: Size | None = None
    reach: Reach | None = None
    least: Expr | None = None
    where: Expr | None = None

    def check_count(self, given: Sequence[Expr], span: Span) -> None:
        """Refuse a use with too few or too many arguments."""
        wanted = len(self.parameters)
        if len(given) != wanted:
            number = f"{wanted} argument{'s' * (wanted > 1)}"
            fail(span, f"`{self.name}` takes {number}. Got {len(given)}.", f"write {self.head}")


class BrokenFunctionError(ExpressionError):
    """Something is wrong with the body of a function.

    Attributes:
        function: The function; the place of the error is one in its text.
    """

    def __init__(self, function: Definition, error: ExpressionError) -> None:
        super().__init__(error.message, error.span, error.hint)
        self.function = function


def is_head(key: str) -> bool:
    """Whether the key of a definition is that of a function."""
    return "(" in key


def definition(key: str, text: str, body: Expr) -> Definition:
    """Return the function that an entry defines.

    Args:
        key: Its head: `phi(u)`, `map(z[n, N], W)`, `f[l](z) for l in 1..L`.
        text: Its body as written.
        body: Its body.

    Raises:
        ExpressionError: The key is no head.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> found = definition("f[l](z) for l in 1..L", "relu(W[l]*z)", parse("relu(W[l]*z)"))
        >>> found.name, found.head, [parameter.name for parameter in found.parameters], found.reach.text
        ('f', 'f[l](z)', ['z'], 'l in 1..L')
    """
    text_of_head, reach = split_for(key)
    head = parse_head(text_of_head)
    parameters = head.args if head.name else head.args[1:]
    names = [parameter.name for parameter in parameters]
    for parameter in parameters:
        span = (parameter.span.start, parameter.span.stop)
        if parameter.name == OPEN:
            raise ExpressionError(f"a parameter needs a name. Got `{OPEN}`.", span)
        if names.count(parameter.name) > 1:
            raise ExpressionError(f"two parameters are called `{parameter.name}`.", span)
    if head.name:
        if reach is not None:
            where = (head.span.start, head.span.stop)
            raise ExpressionError("a function for each member of a range is written f[l](z) for l in 1..L.", where)
        return Definition(head.name, text_of_head, parameters, body, text)
    member = head.args[0]
    index = index_size(member.args[0])
    if reach is not None and index != Size.letter(reach.letter):
        allowed = f"`{member.name}[{reach.letter}](...) for {reach.text}`"
        raise ExpressionError(f"the members of a range are written {allowed}. Got {key}.", (0, len(key)))
    return Definition(member.name, text_of_head, parameters, body, text, index, reach)


PLACES = frozenset(("grad", "jac", "prox", "resolvent", "moreau", "conjugate"))
"""What takes a function and, second, a point of the shape of its argument."""

MARKS = frozenset(Mark)
COMPOSE = "compose"


class GivenError(ExpressionError):
    """What was given to a function is wrong; its place is where the function is used."""


@dataclass(frozen=True)
class Body:
    """The body of a function around a node.

    Attributes:
        head: The function as it was defined.
        step: The step at which it is used, or None.
    """

    head: str
    step: Expr | None


@dataclass(frozen=True)
class Scope:
    """The functions around a node.

    Attributes:
        arguments: For each argument in scope its name in the typed tree, which nothing that is written can have.
        bodies: The bodies of functions around the node, the innermost last; what was given to one is outside of it.
    """

    arguments: Mapping[str, str] = field(default_factory=dict)
    bodies: tuple[Body, ...] = ()

    def within(self, head: str, step: Expr | None) -> Scope:
        """Return the scope inside a body; one that is used without a step stands at the step of the body around it."""
        if step is None and self.bodies:
            step = self.bodies[-1].step
        return replace(self, bodies=(*self.bodies, Body(head, step)))

    @property
    def outside(self) -> Scope:
        """The scope of what was given to the innermost body."""
        return replace(self, bodies=self.bodies[:-1])

    def binding(self, name: str) -> tuple[Scope, str]:
        """Return the scope inside a function of one argument, and the argument's name there."""
        own = f"{name.partition(BOUND)[0].rstrip('_') or name}{BOUND}{len(self.arguments)}"
        return replace(self, arguments={**self.arguments, name: own}), own

    def renamed(self, node: Expr) -> Expr:
        """Return a name as it is in the typed tree: that of an argument is its own."""
        return replace(node, name=self.arguments[node.name]) if node.name in self.arguments else node

    def at_step(self, node: Expr, *, family: bool, strict: bool) -> Expr:
        """Return a name of a body that changes along the run as its value at the step at which the body is used.

        Args:
            node: A name that may carry a step, or a member of a family that may.
            family: Whether its first brackets take a member.
            strict: Whether a step is wanted: where names without one mean the start of the run.
        """
        if not self.bodies or (node.kind is Kind.INDEX and (not family or len(node.args) > 1)):
            return node
        body = self.bodies[-1]
        if body.step is not None:
            return replace(node, kind=Kind.INDEX, args=(*node.args, body.step))
        if strict:
            name = body.head.partition("(")[0]
            hint = f"write {name}[k](...), or {name}[0](...) for the start; or give it as an argument"
            message = f"`{body.head}` uses `{node.name}`, which changes along the run."
            raise GivenError(message, (node.span.start, node.span.stop), hint)
        return node


def stated(shapes: Shapes, wanted: Type, got: Type) -> bool:
    """Whether a value has the type that its place has."""
    return shapes.is_scalar(got) if wanted == SCALAR else shapes.same_shape(wanted, got)


def operator_type(node: Expr, shapes: Shapes) -> Type:
    """Return the type of what takes a function, whose arguments have theirs.

    Args:
        node: The call; its first argument is a function with types.
        shapes: What is known of sizes.
    """
    record, (function, *rest) = FUNCTIONS[node.name], node.args
    body, argument = (part.type for part in function.args)
    assert body is not None
    assert argument is not None
    types: list[Type] = [SCALAR if body.sort.is_index else body, argument]
    if node.name != "jac" and not shapes.is_scalar(body):
        fail(function.span, f"{node.name} needs a function whose values are numbers. Got {shapes.show(body)}.")
    if body.sort is Sort.BOOLEAN:
        fail(function.span, f"{node.name} needs a function whose values are numbers or matrices. Got a statement.")
    if rest:
        given = rest[0].type
        assert given is not None
        if not stated(shapes, argument, given):
            fail(rest[0].span, f"{node.name} needs {shapes.show(argument)} as point. Got {shapes.show(given)}.")
    for part in rest[1:]:
        assert part.type is not None
        if not shapes.is_scalar(part.type):
            fail(part.span, f"{node.name} needs a scalar here. Got {shapes.show(part.type)}.")
    spans: tuple[Span, ...] = (function.span, rest[0].span if rest else function.span)
    return record.result(Call(node.name, tuple(types), (None, None), spans, node.span, shapes))


def _takes(name: str) -> bool:
    return Parameter.OPERAND in FUNCTIONS[name].parameters


def check_operator(node: Expr) -> None:
    """Refuse too few or too many arguments of what takes a function."""
    count = len(node.args)
    wanted = 2 if node.name in ("grad", "jac") else len(FUNCTIONS[node.name].parameters)
    if node.name not in FUNCTIONS or (node.name not in ("grad", "jac") and not _takes(node.name)):
        fail(node.span, f"`{node.name}` takes no function of an argument.")
    if count != wanted:
        form = f"{node.name}(function, point)" if wanted == 2 else FUNCTIONS[node.name].signature
        fail(node.span, f"`{node.name}` takes {wanted} argument{'s' * (wanted > 1)}. Got {count}.", f"write {form}")


@dataclass(frozen=True)
class Scoped:
    """What a type checker knows of the names around a node, and how it types functions of arguments.

    Attributes:
        environment: Types of the names, those of arguments among them.
        shapes: What is known of sizes.
        variables: Names that a derivative may be taken by.
        members: What is known of families.
        scope: The functions around the node.
    """

    environment: Mapping[str, Type]
    shapes: Shapes
    variables: frozenset[str]
    members: Members
    scope: Scope

    def visit(self, node: Expr, bound: frozenset[str], role: Role) -> Expr:
        """Type a node and all below it."""
        raise NotImplementedError

    def marked(self, node: Expr, bound: frozenset[str], role: Role) -> Expr:
        """Type what a function of arguments was written out as, without the marks."""
        inner, *rest = node.args
        try:
            if node.name == Mark.ARGUMENT:
                return replace(self, scope=self.scope.outside).visit(inner, bound, role)
            if node.name == Mark.APPLIED:
                scope = self.scope.within(node.names[0], rest[0] if rest else None)
                return replace(self, scope=scope).visit(inner, bound, role)
        except ExpressionError as error:
            if node.name == Mark.ARGUMENT:  # which stands where the function is used, and not in its body
                raise GivenError(error.message, error.span, error.hint) from None
            if isinstance(error, GivenError):
                raise ExpressionError(error.message, error.span, error.hint) from None
            hint = f"in {node.names[0]}: {node.names[1]}"
            raise ExpressionError(error.message, (node.span.start, node.span.stop), hint) from None
        typed = self.visit(inner, bound, role)
        wanted = self._shape(rest[0], bound)
        if wanted is not None and not stated(self.shapes, wanted, type_of(typed)):
            (head, name), show = node.names, self.shapes.show
            message = f"`{name}` in {head} is {show(wanted)}. Got {show(type_of(typed))}."
            raise GivenError(message, (inner.span.start, inner.span.stop))
        return typed

    def _shape(self, node: Expr, bound: frozenset[str]) -> Type | None:
        """Return the type that a shape states; None for that of a variable that does not exist."""
        if node.names:
            name = node.names[0]
            known = name in self.variables
            return self.environment.get(name) if known and name not in self.members.families else None
        sizes = [self.visit(size, bound, Role.SIZE) for size in node.args]
        found = [self.shapes.size(named_members(size)) for size in sizes]
        return Type(Sort.MATRIX, *found) if found else SCALAR

    def of_function(self, node: Expr, bound: frozenset[str], role: Role) -> Expr:
        """Type what takes a function: its argument has the shape that is stated, else that of the point."""
        if role is not Role.VALUE:
            fail(node.span, f"`{node.name}` has no place here.")
        check_operator(node)
        function, *others = node.args
        rest = [self.visit(other, bound, Role.VALUE) for other in others]
        type_ = self._shape(function.args[1], bound) if len(function.args) > 1 else None
        if type_ is None and rest and node.name in PLACES:
            type_ = type_of(rest[0])
            type_ = SCALAR if type_.sort.is_index else type_
        if type_ is None and _is_of_a_number(function):
            type_ = SCALAR  # the least value of `softplus` is over numbers, as it has no other
        if type_ is None:
            name = function.names[0]
            hint = f"state it, as in {name}[n], or {name}[] for a number, or name a variable, as in {node.name}(..., x)"
            fail(function.span, f"`{node.name}` needs to know the shape of `{name}`.", hint)
        scope, name = self.scope.binding(function.names[0])
        inside = replace(self, scope=scope, environment={**self.environment, name: type_})
        body = inside.visit(function.args[0], bound, Role.VALUE)
        argument = Expr(Kind.NAME, function.span, name=name, type=type_)
        function = replace(function, args=(body, argument), names=(name,), type=body.type)
        node = replace(node, args=(function, *rest))
        return replace(node, type=operator_type(node, self.shapes))

    def composed(self, node: Expr, bound: frozenset[str]) -> Expr:
        """Type functions of a range one after the other, each of which takes the type of what the one before gives."""
        over, *rest = node.args
        if len(rest) != 1 or over.args[0].kind is not Kind.FUNCTION:
            fail(node.span, "a function is no value.")
        value = self.visit(rest[0], bound, Role.VALUE)
        members = self.members.within(over, {*self.environment, *bound, *FUNCTIONS})
        ends = tuple(self.visit(end, bound, Role.MEMBER) for end in over.args[1:])
        reach = reach_of(over)
        before = -1 if not downward(reach, self.members.letters, over.args[-2].span) else 1
        letter = Size.letter(reach.letter)
        first: ExpressionError | None = None
        for guess in generalised(type_of(value), reach.start + before, reach.letter):
            try:
                function = self._link(over.args[0], replace(self, members=members), guess, letter + before, bound)
            except ExpressionError as error:
                first = first or error
                continue
            over = replace(over, args=(function, *ends))
            return replace(node, args=(over, value), type=type_at(guess, {reach.letter: reach.stop}))
        assert first is not None
        raise first

    def _link(self, function: Expr, inside: Scoped, after: Type, before: Size, bound: frozenset[str]) -> Expr:
        """Type one of the functions that follow each other: `after` is what it gives, at `before` what it takes."""
        name = [*inside.members.letters][-1]
        taken, shown = type_at(after, {name: before}), self.shapes.show
        wanted = inside._shape(function.args[1], bound) if len(function.args) > 1 else None
        if wanted is not None and not stated(self.shapes, wanted, taken):
            fail(
                function.span, f"the functions do not follow each other: one takes {shown(wanted)}, not {shown(taken)}."
            )
        scope, own = self.scope.binding(function.names[0])
        within = replace(inside, scope=scope, environment={**self.environment, own: taken})
        body = within.visit(function.args[0], bound, Role.VALUE)
        if not stated(self.shapes, after, type_of(body)):
            given = shown(type_of(body))
            fail(
                function.span,
                f"the functions do not follow each other: one gives {given}, the next takes {shown(after)}.",
            )
        argument = Expr(Kind.NAME, function.span, name=own, type=taken)
        return replace(function, args=(body, argument), names=(own,), type=body.type)


def type_of(node: Expr) -> Type:
    """Return the type of a node of a typed tree."""
    if node.type is None:
        raise ExpressionError("this part has no type yet.", (node.span.start, node.span.stop))
    return node.type


def _is_of_a_number(function: Expr) -> bool:
    """Whether a function is one of each entry by its name, as `sin`, whose value is a number for a number alone."""
    body = function.args[0]
    facts = FUNCTIONS.get(body.name) if body.kind is Kind.CALL and len(body.args) == 1 else None
    return facts is not None and facts.by_entries and body.args[0].kind is Kind.NAME
