"""Whether a declared model treats its samples apart, and which they are: rows or columns, read off its formulas.

The letter of the samples is the size of the inputs that no parameter has. Sample n of the map may depend on sample n of
the state and of the inputs, on parameters, hyperparameters and numbers, and on nothing else. That is seen where samples
stand only in products from their own side, in entrywise functions and in sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache

from ntk_deq.errors import ArgumentError, ExpressionError
from ntk_deq.language.declaration import ModelSignature, Role
from ntk_deq.language.fixed_point_map import proximal_argument
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.loss import PREDICTIONS
from ntk_deq.language.parser import parse
from ntk_deq.language.row_program import MixesError, Op, Row, Rows
from ntk_deq.language.shapes import Shapes
from ntk_deq.language.tree import Expr, Kind, Span, names_in
from ntk_deq.language.types import SCALAR, SizeRange, Type, shape_type
from ntk_deq.language.typing import expect_scalar, infer

_ANY = 2**31  # no size of a tensor is larger


@dataclass(frozen=True)
class TypedModel:
    """The formulas of a model, parsed and typed.

    Attributes:
        map: The fixed-point map; None: there is no equilibrium.
        contraction: The contraction factor; None: none is declared.
        monotone: The modulus of monotonicity, likewise.
        definitions: The definitions, in order.
    """

    map: Expr | None
    contraction: Expr | None
    monotone: Expr | None
    definitions: Mapping[str, Expr] = field(hash=False)

    @property
    def predictions(self) -> Expr:
        """The predictions."""
        return self.definitions[PREDICTIONS]

    def depending(self, names: set[str]) -> set[str]:
        """Return these names together with the definitions that use one of them, directly or through others.

        Args:
            names: The names.
        """
        found = set(names)
        for name, expr in self.definitions.items():
            if names_in(expr) & found:
                found.add(name)
        return found


def typed_model(signature: ModelSignature) -> TypedModel:
    """Parse and type the formulas of a model.

    Args:
        signature: The model.

    Raises:
        ArgumentError: A formula does not parse or its shapes do not fit.

    Example:
        >>> from ntk_deq.language.declaration import IMPLICIT_RELU
        >>> str(typed_model(IMPLICIT_RELU).map.type)
        'matrix N x m'
    """
    sizes = {letter: SizeRange(1, _ANY) for letter in signature.sizes}
    sizes |= {letter: SizeRange(value, value, depth=True) for letter, value in signature.depth}
    types: dict[str, Type] = {v.name: shape_type(v.shape) for v in signature.variables}
    state = signature.state_type
    if signature.state:
        types[signature.state] = state

    def typed(what: str, text: str) -> Expr:
        try:
            return infer(parse(text), types, sizes=sizes, model=signature)
        except ExpressionError as error:
            raise ArgumentError(_about(signature, what, text, f"{error.message} {error.hint or ''}".strip())) from error

    definitions = {}
    for name, text in signature.definitions.items():
        found = definitions[name] = typed(name, text)
        assert found.type is not None  # as `infer` leaves it
        types[name] = found.type
    image = typed("its map", signature.map) if signature.map else None
    if image is not None and (image.type is None or not Shapes(sizes).same_shape(state, image.type)):
        why = f"the map of the state must be {state}. Got {image.type}."
        raise ArgumentError(_about(signature, "its map", signature.map, why))

    def number(what: str, text: str) -> Expr | None:
        if not text:
            return None
        found = typed(what, text)
        try:
            return expect_scalar(found, sizes=sizes)
        except ExpressionError as error:
            raise ArgumentError(_about(signature, what, text, str(error))) from error

    factor = number("its contraction factor", signature.contraction)
    return TypedModel(image, factor, number("its modulus of monotonicity", signature.monotone), definitions)


@dataclass(frozen=True)
class RowModel:
    """A model whose samples do not interact, with its formulas as programs on matrices with one sample a row.

    Attributes:
        typed: Its formulas.
        letter: The number of samples.
        map: The fixed-point map; None: there is no equilibrium.
        predictions: The predictions.
        inside: Of a map act(...), act proximal, what act is taken of; None: it is none.
        axes: By state, inputs, targets and predictions: whether their declared shape has a sample in each row (0) or in
            each column (1).
    """

    typed: TypedModel
    letter: str
    map: Row | None = field(hash=False)
    predictions: Row = field(hash=False)
    inside: Row | None = field(hash=False)
    axes: Mapping[str, int] = field(hash=False)


def has_samples(signature: ModelSignature) -> bool:
    """Whether a model has samples at all: it does where it has inputs."""
    return bool(signature.names(Role.INPUT))


def sample_letter(signature: ModelSignature) -> str:
    """Return the size letter that counts the samples.

    Args:
        signature: The model.

    Raises:
        ArgumentError: There is no such letter, or there are several.

    Example:
        >>> from ntk_deq.language.declaration import IMPLICIT_RELU
        >>> sample_letter(IMPLICIT_RELU)
        'N'
    """
    inputs, targets = signature.names(Role.INPUT), signature.names(Role.TARGET)
    if len(inputs) != 1 or len(targets) > 1:
        raise ArgumentError(_refusal(signature, "it must have one variable of role input and one of role target."))
    shape = signature.variable(inputs[0]).shape
    owned = signature.names(Role.PARAMETER, Role.HYPERPARAMETER)
    taken = {letter for name in owned for letter in signature.variable(name).shape}
    free = [letter for letter in dict.fromkeys(shape) if letter not in taken]
    if len(free) > 1:
        beside = {*signature.state_shape, *(letter for name in targets for letter in signature.variable(name).shape)}
        free = [letter for letter in free if letter in beside]
    if len(free) == 1:
        return free[0]
    shown = f"`{inputs[0]}` is [{', '.join(shape)}]"
    if not free:
        why = f"{shown}, each size of which a parameter has: none of them counts samples."
        if len(shape) == 1:  # one sample, as claims may have it
            why += f" With a second size, as in [{shape[0]}, N], samples are its columns."
    else:
        why = f"{shown}, and {' or '.join(free)} may count the samples."
    raise ArgumentError(_refusal(signature, why))


@cache
def rowwise_model(signature: ModelSignature) -> RowModel:
    """Return the programs of a model whose samples are seen not to interact.

    Args:
        signature: The model.

    Raises:
        ArgumentError: A formula is ill-typed, or it is not seen that sample n of map and predictions depends on sample
            n alone; the message says what stands in the way.

    Example:
        >>> from dataclasses import replace
        >>> from ntk_deq.language.declaration import IMPLICIT_RELU
        >>> rowwise_model(IMPLICIT_RELU).letter
        'N'
        >>> rowwise_model(replace(IMPLICIT_RELU, map="relu(gamma*Z*A + ones(N, N)*Phi)"))
        Traceback (most recent call last):
            ...
        ntk_deq.errors.ArgumentError: The model implicit-relu has no class and cannot be compiled from its map: \
relu(gamma*Z*A + ones(N, N)*Phi): `ones(N, N)*Phi` multiplies samples from the left, which mixes them.
    """
    letter = sample_letter(signature)
    axes = _axes(signature, letter)
    if not signature.names(Role.PARAMETER):
        raise ArgumentError(_refusal(signature, "it must have a parameter."))
    if PREDICTIONS not in signature.definitions:
        raise ArgumentError(_refusal(signature, f"it must define {PREDICTIONS}, its predictions."))
    typed = typed_model(signature)
    sources = {name: Op.INPUT for name in signature.names(Role.INPUT)}
    if signature.state:
        sources[signature.state] = Op.STATE
    rows = Rows(letter, sources, typed.definitions, signature.definitions, signature.names(Role.TARGET))
    rows.define()
    image = None if typed.map is None else _translated(signature, rows, "its map", signature.map, typed.map)
    text, expr = signature.definitions[PREDICTIONS], typed.predictions
    predictions = _translated(signature, rows, PREDICTIONS, text, expr)
    assert predictions is not None  # as `_translated` leaves it
    targets = signature.names(Role.TARGET)
    if targets and expr.type != shape_type(signature.variable(targets[0]).shape):
        shape = shape_type(signature.variable(targets[0]).shape)
        why = f"{PREDICTIONS} = {text} must be a {shape}, as its targets are. Got {expr.type}."
        raise ArgumentError(_refusal(signature, why))
    if typed.contraction is not None:
        _translated(signature, rows, "its contraction factor", signature.contraction, typed.contraction, wanted=False)
    assert expr.type is not None  # as `infer` leaves it
    axes[PREDICTIONS] = int(letter in expr.type.cols.letters)
    argument = None if typed.map is None else proximal_argument(typed.map, signature.state, typed.definitions)
    inside = None if argument is None else rows.of(argument, signature.map)
    return RowModel(typed, letter, image, predictions, inside, axes)


def _axes(signature: ModelSignature, letter: str) -> dict[str, int]:
    """Return in which place of its shape each name has the number of samples."""
    shapes = {name: signature.variable(name).shape for name in signature.names(Role.INPUT, Role.TARGET)}
    if signature.state:
        shapes[signature.state] = signature.state_shape
    axes = {}
    for name, shape in shapes.items():
        if shape.count(letter) != 1:
            shown = f"`{name}` is [{', '.join(shape)}]" if shape else f"`{name}` is a number"
            why = f"one size of state, inputs and targets must be {letter}, the number of samples; {shown}."
            raise ArgumentError(_refusal(signature, why))
        axes[name] = shape.index(letter)
    return axes


def _translated(
    signature: ModelSignature, rows: Rows, what: str, text: str, expr: Expr, *, wanted: bool = True
) -> Row | None:
    """Translate a formula; refuse one that is not of the kind that is wanted."""
    try:
        found = rows.of(expr, text)
    except MixesError as error:
        raise ArgumentError(_about(signature, what, text, str(error))) from error
    if (found is not None) != wanted:
        why = "no sample of it depends on a sample." if wanted else "it must not depend on samples or the state."
        raise ArgumentError(_about(signature, what, text, why))
    return found


def _about(signature: ModelSignature, what: str, text: str, why: str) -> str:
    where = f"{what}: {text}" if what.startswith("its") else f"{what} = {text}"
    return f"The model {signature.name} has no class and cannot be compiled from {where}: {why}"


def _refusal(signature: ModelSignature, why: str) -> str:
    return f"The model {signature.name} has no class and cannot be compiled from its formulas: {why}"


SHARE = "#share"
"""The name of the share of the map in an averaged one; no variable is called so."""


def averaged(root: Row) -> tuple[Row, Expr] | None:
    """Return a map act(W z + c) as act((1 - a) z + a (W z + c)), and the matrix (1 - a) I + a W; None: it is none.

    Where act is the identity or relu, a proximal map whatever it is scaled by, both have the same fixed points. The
    other is a contraction for small a where I - W >= m I, whatever the norm of W.

    Args:
        root: The map.
    """
    facts = FUNCTIONS[root.name].entrywise if root.op is Op.ENTRYWISE else None
    cut = facts is not None and facts.sides == (0, 1)
    found = _weighted(root.args[0] if cut else root)
    if found is None:
        return None
    inside, product, signed, terms = found
    span, (share, rest) = signed.span, _shares(signed.span)
    order = Expr(Kind.NAME, span, name=next(iter(product.width.letters)), type=SCALAR)
    unit = Expr(Kind.CALL, span, args=(order,), name="I", type=signed.type)
    parts = [Expr(Kind.MULTIPLY, span, args=pair, type=signed.type) for pair in ((rest, unit), (share, signed))]
    mixed = Expr(Kind.ADD, span, args=(parts[0], parts[1]), type=signed.type)
    still = [(Row(Op.SCALE, row.width, (row,), (share,)), sign) for row, sign in terms if not row.moving]
    first = Row(Op.PRODUCT, product.width, product.args, (mixed,), product.flipped, moving=True)
    rows, signs = (first, *(row for row, _ in still)), (1, *(sign for _, sign in still))
    total = Row(Op.SUM, product.width, rows, signs=signs, moving=True) if still else first
    return (Row(Op.ENTRYWISE, inside.width, (total,), name=root.name, moving=True) if cut else total), mixed


def damped(root: Row, inside: Row) -> tuple[Row, Expr] | None:
    """Return a map act(W z + c), act proximal, as (1 - a) z + a act(W z + c), and the matrix W; None: it is none.

    It has the same fixed points. Where I - W >= m I, with r the distance of z from its own image by it, that image lies
    within ((1 - a) + norm(W)/m) r/a of the fixed point, since act(W z + c) lies within norm(W) r/(a m).

    Args:
        root: The map.
        inside: W z + c.
    """
    found = _weighted(inside)
    if found is None:
        return None
    _, product, signed, _ = found
    share, rest = _shares(signed.span)
    (state,) = product.args
    parts = (
        Row(Op.SCALE, root.width, (state,), (rest,), moving=True),
        Row(Op.SCALE, root.width, (root,), (share,), moving=True),
    )
    return Row(Op.SUM, root.width, parts, signs=(1, 1), moving=True), signed


def _weighted(inside: Row) -> tuple[Row, Row, Expr, list[tuple[Row, int]]] | None:
    """Return W z + c, its term W z, the matrix W with the sign of that, and all terms with their signs."""
    terms = list(zip(inside.args, inside.signs, strict=True)) if inside.op is Op.SUM else [(inside, 1)]
    moving = [(row, sign) for row, sign in terms if row.moving]
    if len(moving) != 1 or moving[0][0].op is not Op.PRODUCT or moving[0][0].args[0].op is not Op.STATE:
        return None
    product, sign = moving[0]
    (weight,) = product.fixed
    signed = weight if sign > 0 else Expr(Kind.NEGATE, weight.span, args=(weight,), type=weight.type)
    return inside, product, signed, terms


def _shares(span: Span) -> tuple[Expr, Expr]:
    share, one = Expr(Kind.NAME, span, name=SHARE, type=SCALAR), Expr(Kind.NUMBER, span, value=Fraction(1), type=SCALAR)
    return share, Expr(Kind.SUBTRACT, span, args=(one, share), type=SCALAR)
