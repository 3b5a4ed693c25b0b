"""Type-checks the formulas of a claim in one setting, and refuses those that no memory can hold.

And says where symmetric matrices are compared entry by entry while a reader may think of the order of quadratic forms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field

from ntk_deq.claims.claim import Claim
from ntk_deq.errors import ExpressionError
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import DomainKind, Free
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.parser import parse
from ntk_deq.language.record import Structure
from ntk_deq.language.recursion import Entry, RecursionFault, entries_in, recursive_names
from ntk_deq.language.run import PATH_LENGTH, Course, RunKind
from ntk_deq.language.shapes import Shapes, too_large
from ntk_deq.language.symmetry import ORDERS
from ntk_deq.language.tree import Expr, Formula, Kind, Sign, names_in, reached
from ntk_deq.language.types import BOOLEAN, ONE, SCALAR, STEP, Size, SizeRange, Sort, Type
from ntk_deq.language.typing import expect_boolean, expect_scalar, infer

Key = tuple[str, str]
"""Section and name of a formula."""

START = ("run", "choose")
"""Sections whose formulas are numbers that are fixed before a run starts."""


@dataclass
class Checked:
    """Typed formulas of a claim in one setting, and the errors of the others."""

    typed: dict[Key, Expr] = field(default_factory=dict)
    errors: dict[Key, ExpressionError] = field(default_factory=dict)


def environment(setting: Setting) -> dict[str, Type]:
    """Return the type of every name that a setting brings along: variables, the model's state, its definitions.

    Raises:
        ExpressionError: A definition of the model does not type-check.
    """
    if "environment" not in setting.known:
        setting.known["environment"] = _environment(setting)
    return dict(setting.known["environment"])


def _environment(setting: Setting) -> dict[str, Type]:
    types = setting.variable_types()
    if setting.model is None:
        return types
    if setting.model.has_equilibrium:
        types[setting.model.state] = setting.model.state_type
    if setting.model.has_families:  # whose definitions are typed with the claim's
        return types
    for name, text in setting.model.definitions.items():
        typed = infer(parse(text), types, sizes=setting.sizes, model=setting.model)
        if typed.type is not None:
            types[name] = typed.type
    return types


def check_formulas(
    formulas: Mapping[Key, Formula],
    setting: Setting,
    given: Mapping[str, Free],
    *,
    kind: RunKind | None,
    skip: Set[str] = frozenset(),
    exists: Mapping[str, Free] | None = None,
) -> Checked:
    """Give every formula its types.

    Args:
        formulas: By section and name; definitions first, each after those that it uses.
        setting: The setting.
        given: The claim's own free variables.
        kind: What the claim's run does, which decides what may carry a step; None: it has no run.
        skip: Names whose definition is broken; what uses them is left out without an error.
        exists: Variables that the claim says exist: they have types, and derivatives by them are not taken.
    """
    types = environment(setting) | {name: free.type for name, free in {**given, **(exists or {})}.items()}
    variables = frozenset(setting.variable_types()) | frozenset(given)
    course = Course(kind, setting.model)
    broken, structured = set(skip), set[str]()
    checked = Checked()
    recursive = Recursive.of(formulas, setting, kind)
    for key, formula in formulas.items():
        section, name = key
        entry = recursive.entries.get(name) if section == "let" else None
        own = name if entry is None else entry.name
        if formula.names & broken:
            if section == "let":
                broken.add(own)
            continue
        try:
            typed = infer(
                formula.expr,
                types,
                sizes=setting.sizes,
                model=setting.model,
                index_names=frozenset() if entry is None else frozenset({entry.letter}) - {""},
                indexed=frozenset(course.changing) | recursive.names,
                variables=variables,
                trajectory={PATH_LENGTH: SCALAR} if course.trains else recursive.types,
                index=STEP if kind is None else kind.index.type,
                numbers=kind is not None and not kind.trains,
                start=course.trains and section in ("assume", "conclude"),
            )
            check_memory(typed, setting, structured)
            check_place(section, typed, setting, course)
            check_order(typed, formulas, {**setting.free, **given}, setting.sizes)
            recursive.take(entry, typed, setting)
            if section == "witness" and exists and name in exists:
                check_witness(typed, exists[name])
        except ExpressionError as error:
            checked.errors[key] = error
            if section == "let":
                broken.add(own)
            continue
        checked.typed[key] = typed
        if section == "let" and entry is None and typed.type is not None:
            types[name] = typed.type
            if kind is not None:
                course.define(name, typed)
            if keeps_structure(typed, structured):
                structured.add(name)
    return checked


@dataclass
class Recursive:
    """The recursions of a claim while its formulas are typed: the first entry of a name says what it is.

    Attributes:
        entries: The entries of `let` that belong to them.
        types: What is known of their names.
    """

    entries: Mapping[str, Entry] = field(default_factory=dict)
    types: dict[str, Type] = field(default_factory=dict)

    @classmethod
    def of(cls, formulas: Mapping[Key, Formula], setting: Setting, kind: RunKind | None) -> Recursive:
        """Return the recursions of formulas by section and name; none where the run is of another kind."""
        if kind is None or not kind.written:
            return cls()
        keys = [name for section, name in formulas if section == "let"]
        names, entries = recursive_names(keys, setting.sizes), list[Entry]()
        if not names:
            return cls()
        for key in keys:
            with suppress(RecursionFault):  # which is reported already
                entries += entries_in([key], names)
        return cls({entry.key: entry for entry in entries}, {PATH_LENGTH: SCALAR})

    @property
    def names(self) -> frozenset[str]:
        """The names that carry a step."""
        return frozenset(entry.name for entry in self.entries.values()).union(self.types)

    def take(self, entry: Entry | None, typed: Expr, setting: Setting) -> None:
        """Take the type of an entry for that of its name, or hold it against that.

        Raises:
            ExpressionError: It is another one, or a statement.
        """
        if entry is None or typed.type is None:
            return
        shapes, span = Shapes(setting.sizes), (typed.span.start, typed.span.stop)
        got = SCALAR if typed.type.sort.is_index else typed.type
        if got == BOOLEAN:
            raise ExpressionError(f"`{entry.name}` is a number or a matrix at each step. Got a statement.", span)
        wanted = self.types.setdefault(entry.name, got)
        if not (shapes.is_scalar(wanted) and shapes.is_scalar(got)) and not shapes.same_shape(wanted, got):
            shown = f"{shapes.show(got)}, and by its other entry {shapes.show(wanted)}"
            raise ExpressionError(f"`{entry.name}` is {shown}.", span)


def check_place(section: str, typed: Expr, setting: Setting, course: Course) -> None:
    """Refuse a number where a statement is needed, and for a step size what is no number known at the start."""
    course.check_derivatives(typed)
    if section in START:
        expect_scalar(typed, sizes=setting.sizes)
        course.check_start(typed)
    elif section not in ("let", "witness"):
        expect_boolean(typed)


def unsymmetric_variables(
    formulas: Mapping[Key, Formula], free: Mapping[str, Free], sizes: Mapping[str, SizeRange]
) -> frozenset[str]:
    """Return the variables that range over square matrices most of which are not symmetric.

    One that a hypothesis may make symmetric is not among them: one that it says, perhaps by definitions, to be equal to
    something, or at most something where its transpose or its entries stand.
    """
    only = {letter: Size.of(span.low) for letter, span in sizes.items() if span.fixed}
    found = frozenset(
        name
        for name, variable in free.items()
        if variable.type.sort is Sort.MATRIX
        and variable.type.rows == variable.type.cols
        and variable.type.rows.at(only) != ONE
        and variable.domain.kind not in _SYMMETRIC
    )
    assumed = [formula.expr for (section, _), formula in formulas.items() if section == "assume"]
    return found.difference(*(_made_equal(expr, formulas) for expr in assumed)) if found else found


def _made_equal(expr: Expr, formulas: Mapping[Key, Formula]) -> frozenset[str]:
    """Return the names of which a hypothesis may say, by itself or by definitions, that they are symmetric."""
    let = {name: formula for (section, name), formula in formulas.items() if section == "let"}
    seen = reached(names_in(expr), lambda name: let[name].names if name in let else ())
    nodes = [node for part in (expr, *(let[name].expr for name in seen & let.keys())) for node in part.walk()]
    signs = {sign for node in nodes for sign in node.operators}
    turned = any(node.kind is Kind.TRANSPOSE or node.name == Sign.ENTRY for node in nodes)
    return frozenset(seen) if "==" in signs or (turned and signs & {"<=", ">="}) else frozenset()


def check_order(
    typed: Expr, formulas: Mapping[Key, Formula], free: Mapping[str, Free], sizes: Mapping[str, SizeRange]
) -> None:
    """Refuse the order of symmetric matrices for a variable that ranges over all matrices.

    Raises:
        ExpressionError: There is such a variable.
    """
    ordered = [node.args[0] for node in typed.walk() if node.kind is Kind.CALL and node.name in ORDERS]
    unsymmetric = unsymmetric_variables(formulas, free, sizes) if ordered else frozenset()
    for matrix in ordered:
        if matrix.kind is Kind.NAME and matrix.name in unsymmetric:
            raise ExpressionError(
                f"`{matrix.name}` is not symmetric, and `psd` and `lambda_sym` are about symmetric matrices.",
                (matrix.span.start, matrix.span.stop),
                f"let it range over symmetric[n, n] or psd[n, n], or write {matrix.name} + {matrix.name}'",
            )


def check_witness(typed: Expr, free: Free) -> None:
    """Refuse a witness of another shape than the variable that it stands for.

    Raises:
        ExpressionError: It has another one.
    """
    if typed.type != free.type:
        message = f"a witness of `{free.name}` must be a {free.type}, as `exists` says. It is a {typed.type}."
        raise ExpressionError(message, (typed.span.start, typed.span.stop))


def check_memory(typed: Expr, setting: Setting, structured: Set[str] = frozenset()) -> None:
    """Refuse an expression some part of which is too large even at the smallest sizes of its setting.

    Args:
        typed: The expression.
        setting: The setting.
        structured: Names of definitions whose values are never formed.

    Raises:
        ExpressionError: A part has more entries than `ntk_deq.language.shapes.MAX_ENTRIES`.
    """
    # Whether a type fits depends on the sizes of the setting alone, so that each is looked at once.
    fits = setting.known.setdefault("fits", set())
    for node in typed.walk():
        if node.type is None or node.type.sort is not Sort.MATRIX or node.type in fits:
            continue
        reason = too_large(node.type, setting.sizes)
        if reason is None:
            fits.add(node.type)
        elif keeps_structure(node, structured):
            reason = too_large(node.type, setting.sizes, structured=True)
        if reason:
            raise ExpressionError(f"{reason}.", (node.span.start, node.span.stop))


_SAME = frozenset({Kind.NEGATE, Kind.TRANSPOSE, Kind.DIVIDE, Kind.POWER})
_TOGETHER = frozenset({Kind.ADD, Kind.SUBTRACT, Kind.MULTIPLY})


def keeps_structure(typed: Expr, structured: Set[str]) -> bool:
    """Return whether a matrix is kept as Kronecker factors, a diagonal, blocks, or a product of these, and not formed.

    Which sums and inverses stay so is left to the evaluation, which stops where a matrix would have to be formed after
    all.

    Args:
        typed: A typed expression.
        structured: Names of definitions that keep their structure.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> keeps_structure(parse("2*I(n)"), set()), keeps_structure(parse("Q + v*v'"), {"Q"})
        (True, False)
    """
    if typed.kind is Kind.NAME:
        return typed.name in structured
    if typed.kind in _SAME:
        return keeps_structure(typed.args[0], structured)
    if typed.kind in _TOGETHER:
        matrices = [arg for arg in typed.args if not _is_scalar(arg)]
        return bool(matrices) and all(keeps_structure(arg, structured) for arg in matrices)
    if typed.kind is not Kind.CALL:
        return False
    rule = FUNCTIONS[typed.name].structure
    if rule is None or rule is Structure.OWN:
        return rule is not None and not _is_vector(typed)
    return (all if rule is Structure.ALL else any)(keeps_structure(arg, structured) for arg in typed.args)


def _is_scalar(expr: Expr) -> bool:
    if expr.type is None:
        return expr.kind is Kind.NUMBER
    return expr.type.sort is Sort.SCALAR


def _is_vector(expr: Expr) -> bool:
    return expr.type is not None and ONE in (expr.type.rows, expr.type.cols)


_SYMMETRIC = frozenset({DomainKind.SYMMETRIC, DomainKind.PSD, DomainKind.DIAGONAL})


def entrywise_notes(claim: Claim) -> dict[str, str]:
    """Return, for each hypothesis and conclusion that orders symmetric matrices, what to write for the other order.

    Args:
        claim: A claim whose formulas have types.
    """
    found = {}
    for section in (claim.assume, claim.conclude):
        for name, formula in section.items():
            for side, other, relation in _ordered(formula):
                if all(_is_symmetric(expr, claim) or _is_number(expr) for expr in (side, other)):
                    high, low = (side, other) if relation in (">", ">=") else (other, side)
                    found[name] = _note(formula.text, relation, high, low)
    return found


def _ordered(formula: Formula) -> Iterator[tuple[Expr, Expr, str]]:
    """Yield the sides of every order between square matrices, or one and a number."""
    for node in formula.expr.walk():
        for left, relation, right in node.links:
            if relation not in ("==", "!=") and (_is_square(left) or _is_square(right)):
                yield left, right, relation


def _note(text: str, relation: str, high: Expr, low: Expr) -> str:
    strict = "" if relation in ("<", ">") else "="
    larger, smaller = (text[side.span.start : side.span.stop] for side in (high, low))
    if _is_number(low):
        order = f"lambda_min({larger}) >{strict} {smaller}"
    elif _is_number(high):
        order = f"lambda_max({smaller}) <{strict} {larger}"
    else:
        smaller = f"({smaller})" if low.kind in (Kind.ADD, Kind.SUBTRACT, Kind.NEGATE) else smaller
        order = f"lambda_min({larger} - {smaller}) >{strict} 0"
    return f"`{relation}` compares symmetric matrices entry by entry; the order of quadratic forms is {order}"


def _is_number(expr: Expr) -> bool:
    return expr.type is not None and expr.type.sort is not Sort.MATRIX


def _is_square(expr: Expr) -> bool:
    type_ = expr.type
    return type_ is not None and type_.sort is Sort.MATRIX and type_.rows == type_.cols and str(type_.rows) != "1"


def _is_symmetric(expr: Expr, claim: Claim) -> bool:
    """Return whether a matrix is symmetric by its form, whatever its variables are."""
    if not _is_square(expr):
        return False
    if expr.kind is Kind.NAME:
        return _is_symmetric_name(expr.name, claim)
    if expr.kind in (Kind.NEGATE, Kind.TRANSPOSE, Kind.POWER):
        return _is_symmetric(expr.args[0], claim)
    if expr.kind in (Kind.ADD, Kind.SUBTRACT):
        left, right = expr.args
        pair = expr.kind is Kind.ADD and (_turned(left, right) or _turned(right, left))
        return pair or all(_is_symmetric(arg, claim) for arg in expr.args)
    if expr.kind is Kind.DIVIDE:
        return _is_symmetric(expr.args[0], claim)
    if expr.kind is Kind.MULTIPLY:
        left, right = expr.args
        if _is_number(left) or _is_number(right):
            return _is_symmetric(right if _is_number(left) else left, claim)
        if left.kind is Kind.MULTIPLY and _is_number(left.args[0]):  # c*A*A' is (c*A)*A'
            left = left.args[1]
        return _turned(left, right) or _turned(right, left)
    if expr.kind is not Kind.CALL:
        return False
    # What transposes with its arguments is symmetric where they are.
    record = FUNCTIONS[expr.name]
    matrices = [arg for arg in expr.args if not _is_number(arg)]
    return record.symmetric or (record.transposes and all(_is_symmetric(arg, claim) for arg in matrices))


def _is_symmetric_name(name: str, claim: Claim) -> bool:
    if name in claim.let:
        return _is_symmetric(claim.let[name].expr, claim)
    frees = [claim.given.get(name) or setting.free.get(name) for setting in claim.settings]
    return bool(frees) and all(free is not None and free.domain.kind in _SYMMETRIC for free in frees)


def _turned(plain: Expr, turned: Expr) -> bool:
    return turned.kind is Kind.TRANSPOSE and _alike(plain, turned.args[0])


def _alike(left: Expr, right: Expr) -> bool:
    head = (left.kind, left.name, left.value, left.names, left.operators, len(left.args))
    if head != (right.kind, right.name, right.value, right.names, right.operators, len(right.args)):
        return False
    return all(map(_alike, left.args, right.args))
