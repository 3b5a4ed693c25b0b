"""Functions of arguments: `phi(u): norm(A*u - y)^2/2`, and formulas with such functions written out.

A function is a macro with scope: `phi(Z)` is its body with Z in the place of u, and names in the body that are no
parameters mean what they mean where the function is defined. What is left of functions is the first argument of an
operator such as `grad(phi, Z)`: a node of kind FUNCTION, one argument and a body. So nothing that computes knows of
definitions with parameters. Marks (`ntk_deq.language.tree.Mark`) tell the type checker where bodies begin and end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NoReturn

from ntk_deq.errors import ExpressionError
from ntk_deq.language.arguments import COMPOSE, OPEN, BrokenFunctionError, Definition, is_head
from ntk_deq.language.calls import Parameter
from ntk_deq.language.expansion import apart, check_size, substituted, unused_name
from ntk_deq.language.families import index_size
from ntk_deq.language.format import format_expr
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.shapes import fail
from ntk_deq.language.tree import INDICATOR, QUANTIFIERS, RANGED, Expr, Kind, Mark, names_in, reached

_POINTS = ("grad", "jac")  # of a function these take a point, of a formula a variable
_OF_A_VARIABLE = frozenset({"argmin", "minimum", "supremum", "infimum"})  # also of a formula and a variable
OPERATORS = frozenset(name for name, f in FUNCTIONS.items() if Parameter.OPERAND in f.parameters) | {*_POINTS}
"""What takes a function as its first argument."""
_OF_FUNCTIONS = OPERATORS | {COMPOSE}


@dataclass
class Functions:
    """The functions of a claim or a system, and its formulas written out in them.

    Attributes:
        definitions: By name, of a family of functions one for each of its parts.
        values: Names that have a value, so that a function of the language cannot be meant by them.
        formulas: What names of values are defined as, all parts of a family's.
    """

    definitions: Mapping[str, tuple[Definition, ...]] = field(default_factory=dict)
    values: frozenset[str] = frozenset()
    formulas: Mapping[str, Sequence[Expr]] = field(default_factory=dict)
    _bodies: dict[int, Expr] = field(default_factory=dict, init=False)
    _open: list[str] = field(default_factory=list, init=False)

    @classmethod
    def of(
        cls,
        definitions: Mapping[str, Definition],
        values: Set[str] = frozenset(),
        formulas: Mapping[str, Sequence[Expr]] | None = None,
    ) -> Functions:
        """Return functions from their definitions by key, with the names of values and what these are defined as."""
        names = dict.fromkeys(found.name for found in definitions.values())
        parts = {name: tuple(f for f in definitions.values() if f.name == name) for name in names}
        return cls(parts, frozenset(values), formulas or {})

    def written_out(self, expr: Expr) -> Expr:
        """Return an expression with every function of arguments written out.

        Raises:
            ExpressionError: A function is used as a value, defined by itself, applied to too few or too many
                arguments, or what comes out is too large.
        """
        if not self._concerns(expr):
            return expr
        found = self._visit(expr, frozenset())
        check_size(found)
        return found

    def is_function(self, expr: Expr) -> bool:
        """Whether an expression, as written, stands for a function: `compose(f, g)`, `Lag(_, V)`, `u -> u^2`."""
        if expr.kind is Kind.FUNCTION:
            return True
        if expr.kind is Kind.CALL and expr.name == COMPOSE:
            return True
        if expr.kind is Kind.CALL:
            return self._called(expr) is not None and any(_is_open(arg) for arg in expr.args)
        return expr.kind in (Kind.NAME, Kind.INDEX) and expr.name in self.definitions

    def _concerns(self, expr: Expr) -> bool:
        """Whether there is anything to write out."""
        for node in expr.walk():
            if node.kind is Kind.FUNCTION or _is_open(node) or node.name in self.definitions:
                return True
            if node.kind is Kind.CALL and (not node.name or node.name in _OF_FUNCTIONS):
                return True
        return False

    def _visit(self, node: Expr, local: frozenset[str]) -> Expr:
        """Write a part out; `local` are the parameters and arguments around it."""
        if node.kind is Kind.FUNCTION:
            self._no_value(node)
        if node.kind in (Kind.NAME, Kind.INDEX) and node.name not in local:
            self._check_value(node)
        if node.kind is Kind.INDEX and node.name in local:
            fail(node.span, f"`{node.name}` is a parameter here, and carries neither a step nor a member.")
        if node.kind is Kind.AT and local & {*node.names}:
            name = next(name for name in node.names if name in local)
            fail(node.span, f"`at` replaces free variables, and `{name}` is a parameter here.")
        if node.kind is Kind.AT and names_in(node.args[0]) & local:
            fail(node.span, "`at` would reach into the arguments of the function.", "make the variable a parameter")
        if node.kind is Kind.CALL:
            return self._call(node, local)
        inner = local - {*node.names} if node.kind in RANGED | QUANTIFIERS else local
        return node.mapped(lambda part: self._visit(part, inner))

    def _check_value(self, node: Expr) -> None:
        """Refuse a function where a value is needed."""
        if node.name == OPEN and node.kind is Kind.NAME:
            fail(node.span, f"`{OPEN}` stands for the open argument of a function, as in grad(Lag({OPEN}, V), W).")
        if node.name in self.definitions:
            head = self.definitions[node.name][0].head
            message = f"`{node.name}` is a function, and a value is needed here."
            fail(node.span, message, f"write {head}" if is_head(head) else None)

    def _call(self, node: Expr, local: frozenset[str]) -> Expr:
        called = self._called(node) if node.name not in local else None
        if called is not None:
            return self._applied(node, called, local)
        if not node.name:
            name = node.args[0].name
            fail(node.args[0].span, f"`{name}` is no family of functions.", f"write {name}[...]*(...) for a product")
        if node.name in OPERATORS and node.args:
            return self._operator(node, local)
        if node.name == COMPOSE and len(node.args) == 2 and node.args[0].kind is Kind.OVER:
            whole = self._composed_over(replace(node, args=node.args[:1]), local)
            return self._put(whole, self._visit(node.args[1], local))
        if node.name == COMPOSE:
            self._no_value(node)
        return node.mapped(lambda part: self._visit(part, local))

    @staticmethod
    def _no_value(node: Expr) -> NoReturn:
        fail(node.span, "a function is no value.", f"functions are the first argument of {_LISTED}")

    def _called(self, node: Expr) -> str | None:
        """Return the name of the function of arguments that a call is one of, or None."""
        name = node.name or node.args[0].name
        return name if name in self.definitions else None

    def _operator(self, node: Expr, local: frozenset[str]) -> Expr:
        """Write the call of what takes a function or, as `grad` of old, a formula and a variable."""
        first, *rest = node.args
        if node.name in _OF_A_VARIABLE and [part.name for part in rest[1:]] == [INDICATOR]:
            return self._on_a_set(node, local)
        known = self._known(node, local)
        if known is not None:
            return known
        function = self._function(first, local)
        variable = rest[0] if len(rest) == 1 and rest[0].kind is Kind.NAME else None
        if function is not None:
            if variable is not None and node.name in _OF_A_VARIABLE:
                function = replace(function, args=(function.args[0], _like(variable)))
                return replace(node, args=(function,))
            return replace(node, args=(function, *(self._visit(arg, local) for arg in rest)))
        if node.name in _POINTS:
            return self._by_variable(node, local)
        if variable is None or node.name not in _OF_A_VARIABLE:
            form = FUNCTIONS[node.name].signature
            fail(first.span, f"`{node.name}` takes a function first. Got {format_expr(first)}.", f"write {form}")
        body = self._within(first, variable.name, node, local)
        return replace(node, args=(Expr(Kind.FUNCTION, node.span, (body, _like(variable)), names=(variable.name,)),))

    def _on_a_set(self, node: Expr, local: frozenset[str]) -> Expr:
        """Write `argmin(R, z, on: ...)`, whose third argument is an indicator, as of one function of z."""
        first, variable, indicator = node.args
        function, shape, name = self._function(first, local), _like(variable), variable.name
        condition = self._within(indicator, name, node, local)
        if function is not None:
            shape = next((part for part in function.args[1:] if not part.names), shape)
            used = {*names_in(function.args[0])} - {*function.names} | ({*names_in(condition)} - {name})
            name = unused_name(name, used)
            body = self._put(function, Expr(Kind.NAME, variable.span, name=name))
            condition = substituted(condition, {variable.name: Expr(Kind.NAME, variable.span, name=name)})
        else:
            body = self._within(first, name, node, local)
        whole = Expr(Kind.ADD, node.span, (body, condition))
        return replace(node, args=(Expr(Kind.FUNCTION, node.span, (whole, shape), names=(name,)),))

    def _known(self, node: Expr, local: frozenset[str]) -> Expr | None:
        """Return the least value of a member of a set of functions, or where it is, where that is asked for."""
        function = node.args[0]
        if function.kind is not Kind.NAME or function.name in local or function.name not in self.definitions:
            return None
        found = self.definitions[function.name][0]
        known = {"minimum": found.least, "infimum": found.least, "argmin": found.where}.get(node.name)
        return None if known is None else substituted(known, {}, node.span)

    def _within(self, written: Expr, name: str, node: Expr, local: frozenset[str]) -> Expr:
        """Write a formula in the variable of a minimum out; no definition that it uses may depend on the variable."""
        expr = self._visit(written, local | {name})
        for used in sorted(names_in(expr) - {name}):
            if name in reached({used}, lambda at: set().union(*map(names_in, self.formulas.get(at, ())))):
                message = f"`{used}` depends on `{name}`, and {node.name} is over what stands in the formula."
                fail(node.args[0].span, message, f"define a function phi({name}), and write {node.name}(phi)")
        return expr

    def _by_variable(self, node: Expr, local: frozenset[str]) -> Expr:
        """Write the derivative of a formula by a name; one by a parameter holds everything else fixed."""
        args = node.args
        if len(args) == 2 and args[1].kind is Kind.NAME and args[1].name in local:
            body = self._visit(args[0], local)
            return replace(node, args=(Expr(Kind.FUNCTION, node.span, (body,), names=(args[1].name,)), args[1]))
        if local and any(names_in(arg) & local for arg in args):
            hint = "make the variable a parameter of the function"
            fail(node.span, f"`{node.name}` by a variable would reach into the arguments of the function.", hint)
        return replace(node, args=(*(self._visit(arg, local) for arg in args[:1]), *args[1:]))

    def _function(self, node: Expr, local: frozenset[str]) -> Expr | None:
        """Return a function as a node of its kind, or None where an expression is no function."""
        if node.kind is Kind.FUNCTION:
            node = apart(node, self._foreign(node.args[0]))
            body = self._visit(node.args[0], local | {node.names[0]})
            return replace(node, args=(body, *node.args[1:]))
        if node.name in local:
            return None
        if node.kind is Kind.CALL and node.name == COMPOSE:
            return self._composed(node, local)
        if node.kind is Kind.CALL and self._called(node) is not None and any(map(_is_open, node.args)):
            return self._partial(node, local)
        if node.kind in (Kind.NAME, Kind.INDEX) and node.name in self.definitions:
            found, _ = self._chosen(node)
            if not found.parameters:
                return self._body(found)
            if len(found.parameters) > 1:
                opened = ", ".join([OPEN, *(parameter.name for parameter in found.parameters[1:])])
                hint = f"leave one open and give the others: {found.name}({opened})"
                fail(node.span, f"{found.head} has {len(found.parameters)} arguments, and one is needed.", hint)
            place = Expr(Kind.NAME, node.span, name=OPEN)
            return self._partial(Expr(Kind.CALL, node.span, (*_member_of(node), place), name=_name_of(node)), local)
        facts = FUNCTIONS.get(node.name) if node.kind is Kind.NAME and node.name not in self.values else None
        if facts is not None and facts.takes_matrices and node.name not in OPERATORS and facts.takes(1):
            argument = Expr(Kind.NAME, node.span, name="x")
            body = Expr(Kind.CALL, node.span, (argument,), name=node.name)
            return Expr(Kind.FUNCTION, node.span, (body,), names=("x",))
        return None

    def _partial(self, node: Expr, local: frozenset[str]) -> Expr:
        """Return the function of the one argument that a call leaves open."""
        found, given = self._chosen(node)
        if not found.parameters:
            fail(node.span, f"`{found.name}` is a function of one argument, which is left open already.")
        found.check_count(given, node.span)
        opened = [place for place, arg in enumerate(given) if _is_open(arg)]
        if len(opened) != 1:
            fail(node.span, f"one argument may be left open. Got {len(opened)}.")
        parameter = found.parameters[opened[0]]
        others = {name for arg in given if not _is_open(arg) for name in names_in(arg)}
        name = unused_name(parameter.name, others | local | self._foreign(node))
        at = given[opened[0]].span
        given = [Expr(Kind.NAME, at, name=name) if _is_open(arg) else arg for arg in given]
        call = Expr(Kind.CALL, node.span, (*_member_of(node), *given), name=_name_of(node))
        shape = _shape(parameter, found, node)
        return Expr(Kind.FUNCTION, node.span, (self._visit(call, local | {name}), shape), names=(name,))

    def _composed(self, node: Expr, local: frozenset[str]) -> Expr:
        """Return functions one after the other, the first one first."""
        if not node.args:
            fail(node.span, "`compose` takes functions, the first one first, as in compose(f, g).")
        if node.args[0].kind is Kind.OVER and len(node.args) == 1:
            return self._composed_over(node, local)
        parts: list[Expr] = []
        for arg in node.args:
            part = self._function(arg, local)
            if part is None:
                fail(arg.span, f"`compose` takes functions. Got {format_expr(arg)}.")
            parts.append(part)
        whole = parts[0]
        for part in parts[1:]:
            whole = apart(whole, names_in(part))
            whole = replace(whole, args=(self._put(part, whole.args[0]), *whole.args[1:]), span=node.span)
        return whole

    def _composed_over(self, node: Expr, local: frozenset[str]) -> Expr:
        """Return the functions of a range one after the other, in its order."""
        over = node.args[0]
        letter = over.names[0]
        part = self._function(over.args[0], local - {letter})
        if part is None:
            fail(over.args[0].span, f"`compose` takes functions. Got {format_expr(over.args[0])}.")
        name = unused_name(part.names[0], {letter, *local, *names_in(part)})
        start = Expr(Kind.NAME, node.span, name=name)
        call = replace(node, args=(replace(over, args=(part, *over.args[1:])), start))
        return Expr(Kind.FUNCTION, node.span, (call,), names=(name,))

    def _put(self, function: Expr, value: Expr) -> Expr:
        """Return the body of a function with a value in the place of its argument, whose shape is checked."""
        if len(function.args) > 1:
            value = Expr(
                Kind.CALL, value.span, (value, function.args[1]), name=Mark.SHAPED, names=("compose", function.names[0])
            )
        found = substituted(function.args[0], {function.names[0]: value})
        check_size(found)
        return found

    def _applied(self, node: Expr, name: str, local: frozenset[str]) -> Expr:
        """Return a function's body with its arguments."""
        if any(_is_open(arg) for arg in node.args):
            self._no_value(node)
        found, given = self._chosen(node)
        values = [self._visit(arg, local) for arg in given]
        if not found.parameters:
            if len(values) != 1:
                fail(node.span, f"`{name}` takes 1 argument. Got {len(values)}.")
            return self._put(self._body(found), values[0])
        found.check_count(given, node.span)
        arguments: dict[str, Expr] = {}
        inside_names = self._apart_names(found)
        for parameter, value in zip(found.parameters, values, strict=True):
            shape = _shape(parameter, found, node)
            inside = Expr(Kind.CALL, value.span, (value,), name=Mark.ARGUMENT)
            names = (found.head, parameter.name)
            own = inside_names[parameter.name]
            arguments[own] = Expr(Kind.CALL, value.span, (inside, shape), name=Mark.SHAPED, names=names)
        brackets = node.args[0].args if not node.name else ()
        if found.reach is not None:
            arguments[found.reach.letter] = brackets[0]
        body = substituted(self._body(found), arguments, node.span)
        check_size(body)
        step = brackets[1:] if found.member is not None else brackets
        return Expr(Kind.CALL, node.span, (body, *step), name=Mark.APPLIED, names=(found.head, found.text))

    def _chosen(self, node: Expr) -> tuple[Definition, list[Expr]]:
        """Return the definition that a function's name or call means, and the arguments."""
        member = node if node.kind in (Kind.NAME, Kind.INDEX) else node.args[0] if not node.name else None
        given = list(node.args[1:] if node.kind is Kind.CALL and not node.name else node.args)
        given = given if node.kind is Kind.CALL else []
        name = node.name if member is None else member.name
        parts = self.definitions[name]
        brackets = member.args if member is not None else ()
        if parts[0].member is None:
            if len(brackets) > 1:
                fail(node.span, f"`{name}` is no family of functions: it takes one step.")
            return parts[0], given
        if not brackets:
            heads = ", ".join(part.head for part in parts)
            fail(node.span, f"`{name}` is a family of functions: {heads}.", f"write {name}[1](...)")
        index = index_size(brackets[0])
        exact = [part for part in parts if part.reach is None and part.member == index]
        ranged = [part for part in parts if part.reach is not None]
        if exact:
            return exact[0], given
        if len(ranged) != 1 or (index.constant is None and len(parts) > 1):
            heads = ", ".join(part.head for part in parts)
            fail(node.span, f"which of {heads} `{format_expr(member or node)}` is, is not clear.")
        return ranged[0], given

    def _body(self, found: Definition) -> Expr:
        """Return the body of a function, written out."""
        known = self._bodies.get(id(found))
        if known is not None:
            return known
        if found.head in self._open:
            circle = " -> ".join([*self._open[self._open.index(found.head) :], found.head])
            error = ExpressionError(f"`{found.name}` is defined by itself: {circle}.", (0, len(found.text)))
            raise BrokenFunctionError(found, error)
        self._open.append(found.head)
        try:
            body = self._written(found)
        except BrokenFunctionError:
            raise
        except ExpressionError as error:
            raise BrokenFunctionError(found, error) from None
        finally:
            self._open.pop()
        self._bodies[id(found)] = body
        return body

    def _foreign(self, expr: Expr) -> set[str]:
        """Return the names that the functions which an expression uses take from where they are defined."""
        parts = [part for name in self.used(expr) for part in self.definitions[name]]
        return {n for part in parts for n in names_in(part.body) - {own.name for own in part.parameters}}

    def _apart_names(self, found: Definition) -> dict[str, str]:
        """Return what parameters are called in a body that is written out, where functions that it uses mean others."""
        foreign = self._foreign(found.body)
        used = foreign | names_in(found.body) | {parameter.name for parameter in found.parameters}
        return {p.name: unused_name(p.name, used) if p.name in foreign else p.name for p in found.parameters}

    def _written(self, found: Definition) -> Expr:
        local = frozenset(parameter.name for parameter in found.parameters)
        opened = self.is_function(found.body) and found.body.name not in local and len(found.parameters) == 1
        names = self._apart_names(found)
        if not found.parameters or opened:
            function = self._function(found.body, frozenset())
            assert function is not None
            own = [replace(parameter, args=(), name=names[parameter.name]) for parameter in found.parameters]
            body = self._put(function, own[0]) if own else function
        else:
            renamed = {old: Expr(Kind.NAME, found.body.span, name=new) for old, new in names.items() if new != old}
            local = frozenset(names.values()) - ({found.reach.letter} if found.reach is not None else set())
            body = self._visit(substituted(found.body, renamed) if renamed else found.body, local)
        check_size(body)
        return body

    def check(self, found: Definition) -> None:
        """Write a function's body out, to see what is wrong with it.

        Raises:
            BrokenFunctionError: Something is wrong with it, or with one that it uses.
        """
        self._body(found)

    def used(self, expr: Expr) -> set[str]:
        """Return the functions that an expression as written uses, directly or through others."""
        found, waiting = set[str](), [expr] if self.definitions else []
        while waiting:
            new = {node.name for node in waiting.pop().walk()} & self.definitions.keys() - found
            found |= new
            waiting += [part.body for name in new for part in self.definitions[name]]
        return found


_LISTED = "grad, jac, prox, argmin and the like"


def _is_open(node: Expr) -> bool:
    return node.kind is Kind.NAME and node.name == OPEN


def _member_of(node: Expr) -> tuple[Expr, ...]:
    """Return what goes before the arguments in a call of a member of a family of functions."""
    if node.kind is Kind.INDEX:
        return (node,)
    return node.args[:1] if node.kind is Kind.CALL and not node.name else ()


def _name_of(node: Expr) -> str:
    return "" if node.kind is Kind.INDEX else node.name


def _like(name: Expr) -> Expr:
    """Return the shape of the variable of a name, or nothing in particular where there is none."""
    return Expr(Kind.CALL, name.span, name=Mark.SHAPE, names=(name.name,))


def _shape(parameter: Expr, found: Definition, node: Expr) -> Expr:
    """Return the shape of a parameter where a function is called: as stated, else that of a variable of its name."""
    if not parameter.args:
        return _like(replace(parameter, span=node.span))
    letter = {} if found.reach is None else {found.reach.letter: _member_of(node)[0].args[0]}
    return substituted(parameter.args[0], letter, node.span)
