"""Whether a declared model treats its samples, the rows of state and inputs, apart: read off its formulas.

Row n of the map may depend on row n of the state and of the inputs, on parameters, hyperparameters and numbers, and on
nothing else. That is seen where samples stand only in products from the right, in entrywise functions and in sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from ntk_deq.errors import ArgumentError, ExpressionError
from ntk_deq.language.declaration import ModelSignature, Role
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.loss import PREDICTIONS
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import Expr, Kind, names_in
from ntk_deq.language.types import ONE, SizeRange, Sort, Type, shape_type
from ntk_deq.language.typing import expect_scalar, infer

_ENTRYWISE = {name for name, record in FUNCTIONS.items() if record.by_entries}
_SIZED = {"ones", "zeros"}
_OF_THE_MODEL = {"grad", "jac", "next", "fixed_point"}
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
        >>> from ntk_deq.language.library import IMPLICIT_RELU
        >>> str(typed_model(IMPLICIT_RELU).map.type)
        'matrix N x m'
    """
    sizes = {letter: SizeRange(1, _ANY) for letter in signature.sizes}
    types: dict[str, Type] = {v.name: shape_type(v.shape) for v in signature.variables}
    state = shape_type(signature.state_shape)
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
    if image is not None and image.type != state:
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


@cache
def rowwise_model(signature: ModelSignature) -> TypedModel:
    """Return the typed formulas of a model whose samples are seen not to interact.

    Args:
        signature: The model.

    Raises:
        ArgumentError: A formula is ill-typed, or it is not seen that row n of map and predictions depends on sample n
            alone; the message says what stands in the way.

    Example:
        >>> from dataclasses import replace
        >>> from ntk_deq.language.library import IMPLICIT_RELU
        >>> typed = rowwise_model(IMPLICIT_RELU)
        >>> rowwise_model(replace(IMPLICIT_RELU, map="relu(gamma*Z*A + ones(N, N)*Phi)"))
        Traceback (most recent call last):
            ...
        ntk_deq.errors.ArgumentError: The model implicit-relu has no class and cannot be compiled from its map: \
relu(gamma*Z*A + ones(N, N)*Phi): `ones(N, N)*Phi` multiplies samples from the left, which mixes them.
    """
    if len(signature.state_shape) != 2:
        raise ArgumentError(_refusal(signature, "its state must be a matrix with one sample a row."))
    letter = signature.state_shape[0]
    inputs, targets = signature.names(Role.INPUT), signature.names(Role.TARGET)
    if len(inputs) != 1 or len(targets) != 1:
        raise ArgumentError(_refusal(signature, "it must have one variable of role input and one of role target."))
    if letter == signature.state_shape[1] or len(signature.variable(inputs[0]).shape) != 2:
        why = f"state and inputs must be matrices with one sample a row. Got {signature.state_shape}."
        raise ArgumentError(_refusal(signature, why))
    if signature.variable(inputs[0]).shape[0] != letter or signature.variable(targets[0]).shape != (letter,):
        why = f"its inputs must have {letter} rows, as its state has, and its targets {letter} entries."
        raise ArgumentError(_refusal(signature, why))
    owned = signature.names(Role.PARAMETER, Role.HYPERPARAMETER)
    for name in owned:
        if letter in signature.variable(name).shape:
            why = f"`{name}` must not have the size {letter}, the number of samples: it has no row for a new sample."
            raise ArgumentError(_refusal(signature, why))
    known = {size for name in owned for size in signature.variable(name).shape}
    if not signature.names(Role.PARAMETER) or signature.state_shape[1] not in known:
        why = f"a parameter must have the size {signature.state_shape[1]}, which is the width of the state."
        raise ArgumentError(_refusal(signature, why))
    if PREDICTIONS not in signature.definitions:
        raise ArgumentError(_refusal(signature, f"it must define {PREDICTIONS}, its predictions."))
    typed = typed_model(signature)
    if typed.map is None or typed.contraction is None:
        raise ArgumentError(_refusal(signature, "it must declare its map and a contraction factor."))
    rows = _Rows(signature, typed, letter)
    rows.expect("its map", signature.map, typed.map, rows=True)
    text = signature.definitions[PREDICTIONS]
    rows.expect(PREDICTIONS, text, typed.predictions, rows=True)
    if typed.predictions.type != shape_type((letter,)):
        raise ArgumentError(_refusal(signature, f"{PREDICTIONS} = {text} must be a vector with one entry a sample."))
    if names_in(typed.predictions) & typed.depending({inputs[0]}):
        why = f"{PREDICTIONS} = {text} must be a formula of the state; it reads the inputs besides."
        raise ArgumentError(_refusal(signature, why))
    rows.expect("its contraction factor", signature.contraction, typed.contraction, rows=False)
    return typed


def _about(signature: ModelSignature, what: str, text: str, why: str) -> str:
    where = f"{what}: {text}" if what.startswith("its") else f"{what} = {text}"
    return f"The model {signature.name} has no class and cannot be compiled from {where}: {why}"


def _refusal(signature: ModelSignature, why: str) -> str:
    return f"The model {signature.name} has no class and cannot be compiled from its formulas: {why}"


class _MixesError(Exception):
    """Samples are not seen to be apart."""


@dataclass
class _Rows:
    """Tells what has one row a sample from what knows no samples, and refuses everything else."""

    signature: ModelSignature
    typed: TypedModel
    letter: str

    def expect(self, what: str, text: str, expr: Expr, *, rows: bool) -> None:
        """Refuse a formula that is not of the kind that is wanted."""
        self._text = text
        try:
            found = self._visit(expr)
        except _MixesError as error:
            raise ArgumentError(_about(self.signature, what, text, str(error))) from error
        if found != rows:
            why = "no row of it depends on a sample." if rows else "it must not depend on samples or the state."
            raise ArgumentError(_about(self.signature, what, text, why))

    def _visit(self, expr: Expr) -> bool:
        """Return whether an expression has one row a sample; it knows no samples otherwise."""
        match expr.kind:
            case Kind.NUMBER:
                return False
            case Kind.NAME:
                return self._name(expr)
            case Kind.CALL:
                return self._call(expr)
            case Kind.NEGATE:
                return self._visit(expr.args[0])
            case Kind.ADD | Kind.SUBTRACT:
                left, right = map(self._visit, expr.args)
                if left != right:
                    raise _MixesError(f"{self._part(expr)} adds what is no sample to samples.")
                return left
            case Kind.MULTIPLY:
                return self._product(expr)
            case Kind.DIVIDE:
                if self._visit(expr.args[1]):
                    raise _MixesError(f"{self._part(expr)} divides by samples.")
                return self._visit(expr.args[0])
            case Kind.POWER | Kind.TRANSPOSE:
                if any(map(self._visit, expr.args)):
                    does = "transposes" if expr.kind is Kind.TRANSPOSE else "takes a power of"
                    raise _MixesError(f"{self._part(expr)} {does} samples.")
                return False
            case _:
                raise _MixesError(f"{self._part(expr)} may not stand in a formula of a model's class.")

    def _name(self, expr: Expr) -> bool:
        name, signature = expr.name, self.signature
        if name == signature.state:
            return True
        if name in self.typed.definitions:
            before, self._text = self._text, signature.definitions[name]
            found = self._visit(self.typed.definitions[name])
            self._text = before
            return found
        if name == self.letter:
            raise _MixesError(f"`{name}` is the number of all samples, on which no single sample may depend.")
        if name in signature.names(Role.TARGET):
            raise _MixesError(f"`{name}` is the target, which a map must not read.")
        return name in signature.names(Role.INPUT)

    def _call(self, expr: Expr) -> bool:
        if expr.name in _SIZED and self.letter in names_in(expr):
            first, *more = expr.args
            if first.kind is not Kind.NAME or any(self.letter in names_in(arg) for arg in more):
                raise _MixesError(f"{self._part(expr)} multiplies samples from the left, which mixes them.")
            return True
        if expr.name in _OF_THE_MODEL:
            raise _MixesError(f"`{expr.name}` may not stand in a formula of a model's class.")
        found = [self._visit(arg) for arg in expr.args]
        if not any(found):
            return False
        if expr.name in _ENTRYWISE and any(found[1:]):
            raise _MixesError(f"`{expr.name}` has a parameter that depends on samples.")
        if expr.name in _ENTRYWISE or (expr.name == "hadamard" and all(found)):
            return True
        raise _MixesError(f"`{expr.name}` is not seen to treat samples apart.")

    def _product(self, expr: Expr) -> bool:
        left, right = expr.args
        if self._counts(left) and right.type is not None and not self._scalar(right.type):
            raise _MixesError(f"{self._part(expr)} multiplies samples from the left, which mixes them.")
        before, after = self._visit(left), self._visit(right)
        if before and after:
            raise _MixesError(f"{self._part(expr)} multiplies samples by samples.")
        if after and left.type is not None and not self._scalar(left.type):
            raise _MixesError(f"{self._part(expr)} multiplies samples from the left, which mixes them.")
        return before or after

    def _counts(self, expr: Expr) -> bool:
        """Whether an expression is square in the number of samples."""
        type_ = expr.type
        return type_ is not None and self.letter in type_.cols.letters

    def _scalar(self, type_: Type) -> bool:
        return type_.sort is not Sort.MATRIX or (type_.rows == ONE and type_.cols == ONE)

    def _part(self, expr: Expr) -> str:
        return f"`{self._text[expr.span.start : expr.span.stop]}`"
