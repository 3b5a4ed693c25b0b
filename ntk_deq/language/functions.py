"""The functions of the claim language: one registry for shape rules, documentation, spelling hints and evaluators.

Names that people know from elsewhere: what to write here, where the nearest spelling would name another thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from ntk_deq.errors import nearest_name
from ntk_deq.language.shapes import Shapes, fail
from ntk_deq.language.tree import Span
from ntk_deq.language.types import ONE, SCALAR, Size, Sort, Type


class Parameter(StrEnum):
    """What an argument of a function must be; the text is what people read in a signature."""

    SCALAR = "scalar"
    MATRIX = "matrix"
    SQUARE = "square matrix"
    VECTOR = "vector"
    VALUE = "scalar or matrix"
    SIZE = "size"  # a sum of products of positive integers and size letters
    VARIABLE = "variable"  # the bare name of a free variable
    STATE = "state"  # a matrix of the shape of the model's state

    def admits(self, type_: Type, shapes: Shapes) -> bool:
        """Whether a value of a type can stand here; sizes, variables and states are checked where they are read."""
        match self:
            case Parameter.SCALAR:
                return shapes.is_scalar(type_)
            case Parameter.MATRIX:
                return type_.sort is Sort.MATRIX
            case Parameter.SQUARE:
                return shapes.is_square(type_)
            case Parameter.VECTOR:
                return shapes.is_vector(type_)
            case Parameter.VALUE:
                return type_.sort is not Sort.BOOLEAN
            case _:
                return True


@dataclass(frozen=True)
class Call:
    """A call whose arguments have been checked one by one against the parameters of its function.

    Attributes:
        name: The function.
        types: The types of the arguments.
        sizes: For size arguments the size, for others None.
        spans: Where the arguments stand.
        span: Where the call stands.
        shapes: The size letters in force.
    """

    name: str
    types: tuple[Type, ...]
    sizes: tuple[Size | None, ...]
    spans: tuple[Span, ...]
    span: Span
    shapes: Shapes

    def size(self, index: int) -> Size:
        """Return a size argument; one that was left out is the first one."""
        size = self.sizes[index] if index < len(self.sizes) else self.sizes[0]
        if size is None:
            fail(self.span, f"argument {index + 1} of {self.name} is no size.")
        return size

    def entries(self, index: int) -> Size:
        """Return how many entries an argument has."""
        if self.types[index].sort is not Sort.MATRIX:
            return ONE
        return self.shapes.times(self.types[index].rows, self.types[index].cols, self.spans[index])


@dataclass(frozen=True)
class Function:
    """A function of the language.

    Attributes:
        name: How it is written.
        group: The heading it stands under in the reference.
        parameters: What its arguments must be.
        summary: One line for people.
        result: The shape rule: the type of a checked call.
        optional: How many parameters, from the last, may be left out.
        repeats: Whether the last parameter may be given any number of times.
        needs_model: Whether it has a meaning only where the setting names a model.
    """

    name: str
    group: str
    parameters: tuple[Parameter, ...]
    summary: str
    result: Callable[[Call], Type]
    optional: int = 0
    repeats: bool = False
    needs_model: bool = False

    @property
    def signature(self) -> str:
        """The call as people read it, for example `kron(matrix, matrix)`."""
        required = [str(p) for p in self.parameters[: len(self.parameters) - self.optional]]
        text = ", ".join(required)
        for parameter in self.parameters[len(required) :]:
            text += f"[, {parameter}]"
        return f"{self.name}({text}{', ...' if self.repeats else ''})"

    def takes(self, count: int) -> bool:
        """Whether it can be called with so many arguments."""
        most = len(self.parameters)
        return most - self.optional <= count and (count <= most or self.repeats)

    @property
    def counts(self) -> str:
        """How many arguments it takes, in words."""
        least, most = len(self.parameters) - self.optional, len(self.parameters)
        number = f"{least} or {most}" if least != most else str(most)
        return f"{'at least ' if self.repeats else ''}{number} argument{'s' if most > 1 else ''}"


def _scalar(call: Call) -> Type:
    return SCALAR


def _same(call: Call) -> Type:
    """Return the argument's type; a step index is a number here."""
    return SCALAR if call.types[0].sort.is_index else call.types[0]


def _matrix(rows: Size, cols: Size) -> Type:
    return Type(Sort.MATRIX, rows, cols)


def _identity(call: Call) -> Type:
    return _matrix(call.size(0), call.size(0))


def _filled(call: Call) -> Type:
    return _matrix(call.size(0), call.size(1) if len(call.sizes) == 2 else ONE)


def _commutation(call: Call) -> Type:
    entries = call.shapes.times(call.size(0), call.size(1), call.span)
    return _matrix(entries, entries)


def _kron(call: Call) -> Type:
    left, right = call.types
    times = call.shapes.times
    return _matrix(times(left.rows, right.rows, call.span), times(left.cols, right.cols, call.span))


def _vec(call: Call) -> Type:
    return _matrix(call.entries(0), ONE)


def _diag(call: Call) -> Type:
    argument = call.types[0]
    if call.shapes.is_vector(argument):
        return _matrix(argument.rows, argument.rows)
    if call.shapes.is_square(argument):
        return _matrix(argument.rows, ONE)
    fail(call.spans[0], f"diag needs a vector or a square matrix. Got {call.shapes.show(argument)}.")


def _hadamard(call: Call) -> Type:
    left, right = call.types
    if not call.shapes.same_shape(left, right):
        show = call.shapes.show
        fail(call.spans[1], f"hadamard needs two matrices of the same shape. Got {show(left)} and {show(right)}.")
    return left


def _dot(call: Call) -> Type:
    left, right = call.types
    if not call.shapes.same(left.rows, right.rows):
        show = call.shapes.show
        fail(call.spans[1], f"dot needs two vectors of the same length. Got {show(left)} and {show(right)}.")
    return SCALAR


def _extreme(call: Call) -> Type:
    if len(call.types) > 1:
        for type_, span in zip(call.types, call.spans, strict=True):
            if not call.shapes.is_scalar(type_):
                fail(span, f"{call.name} takes one matrix, or scalars only. Got {call.shapes.show(type_)}.")
    return SCALAR


def _gradient(call: Call) -> Type:
    return call.types[1]


def _jacobian(call: Call) -> Type:
    return _matrix(call.entries(0), call.entries(1))


_P = Parameter

_ALL = (
    Function("kron", "Matrices", (_P.MATRIX, _P.MATRIX), "Kronecker product.", _kron),
    Function(
        "hadamard", "Matrices", (_P.MATRIX, _P.MATRIX), "Entrywise product of two matrices of one shape.", _hadamard
    ),
    Function("vec", "Matrices", (_P.MATRIX,), "The columns stacked into one vector, first column on top.", _vec),
    Function("inv", "Matrices", (_P.SQUARE,), "Inverse.", _same),
    Function(
        "diag", "Matrices", (_P.MATRIX,), "Diagonal matrix of a vector; vector of a square matrix's diagonal.", _diag
    ),
    Function("I", "Matrices", (_P.SIZE,), "Identity matrix.", _identity),
    Function("zeros", "Matrices", (_P.SIZE, _P.SIZE), "Vector or matrix of zeros.", _filled, optional=1),
    Function("ones", "Matrices", (_P.SIZE, _P.SIZE), "Vector or matrix of ones.", _filled, optional=1),
    Function(
        "commutation",
        "Matrices",
        (_P.SIZE, _P.SIZE),
        "The matrix K with K*vec(A) == vec(A') for every n x m matrix A; one argument: n x n.",
        _commutation,
        optional=1,
    ),
    Function("trace", "Numbers of a matrix", (_P.SQUARE,), "Sum of the diagonal.", _scalar),
    Function("det", "Numbers of a matrix", (_P.SQUARE,), "Determinant.", _scalar),
    Function("sum", "Numbers of a matrix", (_P.MATRIX,), "Sum of all entries.", _scalar),
    Function("dot", "Numbers of a matrix", (_P.VECTOR, _P.VECTOR), "Inner product of two vectors.", _dot),
    Function(
        "max",
        "Numbers of a matrix",
        (_P.VALUE,),
        "Largest of several scalars, or of a matrix's entries.",
        _extreme,
        repeats=True,
    ),
    Function(
        "min",
        "Numbers of a matrix",
        (_P.VALUE,),
        "Smallest of several scalars, or of a matrix's entries.",
        _extreme,
        repeats=True,
    ),
    Function(
        "norm",
        "Norms and spectra",
        (_P.VALUE,),
        "Spectral norm of a matrix, Euclidean norm of a vector, absolute value of a scalar.",
        _scalar,
    ),
    Function("fro", "Norms and spectra", (_P.MATRIX,), "Frobenius norm.", _scalar),
    Function("norm1", "Norms and spectra", (_P.MATRIX,), "Largest absolute column sum.", _scalar),
    Function("norminf", "Norms and spectra", (_P.MATRIX,), "Largest absolute row sum.", _scalar),
    Function("sigma_min", "Norms and spectra", (_P.MATRIX,), "The min(rows, columns)-th singular value.", _scalar),
    Function("sigma_max", "Norms and spectra", (_P.MATRIX,), "Largest singular value.", _scalar),
    Function("cond", "Norms and spectra", (_P.MATRIX,), "Largest over smallest singular value.", _scalar),
    Function("lambda_min", "Norms and spectra", (_P.SQUARE,), "Smallest real part of an eigenvalue.", _scalar),
    Function("lambda_max", "Norms and spectra", (_P.SQUARE,), "Largest real part of an eigenvalue.", _scalar),
    Function("rho", "Norms and spectra", (_P.SQUARE,), "Spectral radius: largest modulus of an eigenvalue.", _scalar),
    Function("abs", "Entrywise", (_P.VALUE,), "Absolute value of a scalar or of every entry.", _same),
    Function("relu", "Entrywise", (_P.VALUE,), "max(x, 0) of a scalar or of every entry.", _same),
    Function("step", "Entrywise", (_P.VALUE,), "Derivative of relu: 1 where x > 0, otherwise 0 (also at 0).", _same),
    Function("sqrt", "Numbers", (_P.SCALAR,), "Square root.", _scalar),
    Function("exp", "Numbers", (_P.SCALAR,), "Exponential function.", _scalar),
    Function("log", "Numbers", (_P.SCALAR,), "Natural logarithm.", _scalar),
    Function(
        "grad",
        "Derivatives",
        (_P.SCALAR, _P.VARIABLE),
        "Gradient of a scalar, through the equilibrium, in the shape of the variable.",
        _gradient,
    ),
    Function(
        "jac",
        "Derivatives",
        (_P.VALUE, _P.VARIABLE),
        "Jacobian matrix of vec(f) with respect to vec(x), through the equilibrium.",
        _jacobian,
    ),
    Function(
        "fixed_point", "Model", (_P.STATE,), "Limit of the model's map iterated from a state.", _same, needs_model=True
    ),
    Function("next", "Model", (_P.STATE,), "The model's map applied once to a state.", _same, needs_model=True),
)

FUNCTIONS: dict[str, Function] = {function.name: function for function in _ALL}
"""Every function by name."""


def reference() -> list[tuple[str, str, str]]:
    """Return (group, signature, summary) of every function, group after group, for the documentation.

    Example:
        >>> reference()[0]
        ('Matrices', 'kron(matrix, matrix)', 'Kronecker product.')
    """
    groups = list(dict.fromkeys(function.group for function in _ALL))
    return [(f.group, f.signature, f.summary) for f in sorted(_ALL, key=lambda f: groups.index(f.group))]


_SPELLED = {
    "abs(x)": ("absolute", "fabs", "modulus", "magnitude"),
    "A' for a transpose": ("T", "transpose", "transp", "adjoint", "ctranspose"),
    "A*B for a matrix product": ("matmul", "mm", "mul", "multiply"),
    "cond(A)": ("condition", "condition_number"),
    "diag(v)": ("diagonal", "diagflat"),
    "dot(x, y)": ("inner", "vdot", "inner_product", "innerproduct"),
    "exp(x)": ("expo", "exponential"),
    "fixed_point(Z)": ("fixedpoint", "equilibrium"),
    "fro(A)": ("frobenius", "frob", "norm_F", "normF", "norm_fro", "hs", "hilbert_schmidt"),
    "grad(f, x)": ("nabla", "gradient", "derivative", "diff"),
    "hadamard(A, B)": ("odot", "elementwise", "times", "schur"),
    "I(n)": ("eye", "identity", "Id", "Identity"),
    "inv(A)": ("inverse", "invert"),
    "jac(f, x)": ("jacobian", "Jacobian", "jacobi"),
    "kron(A, B)": ("otimes", "kronecker", "tensor"),
    "lambda_min(A) or lambda_max(A)": ("eig", "eigs", "eigh", "eigvals", "eigenvalues", "spectrum"),
    "log(x)": ("ln",),
    "log(x)/log(2), log(x)/log(10)": ("log2", "log10"),
    "max(x, 0), or relu(A) of every entry": ("clip", "clamp", "positive_part", "pos"),
    "norm(A)": ("norm2", "opnorm", "operator_norm", "spectral_norm", "spectralnorm", "linalg_norm"),
    "rho(A)": ("spectral_radius", "spectralradius", "srad"),
    "sigma_min(A) or sigma_max(A)": ("svd", "svdvals", "singular_values", "svals"),
    "sqrt(x)": ("root", "square_root"),
    "step(x) - step(-x)": ("sign", "sgn", "signum"),
    "step(x)": ("heaviside", "indicator", "unit_step"),
    "sum(A)/(n*m) with the sizes of A": ("mean", "average", "avg"),
    "trace(A)": ("tr", "Tr", "Trace"),
    "vec(A)": ("flatten", "ravel", "vectorize", "vectorise", "reshape"),
    "x*y' for the outer product": ("outer", "outer_product"),
    "x^2": ("square", "pow", "power"),
}
_MISSING = {
    "softmax": ("softmax", "softmin", "log_softmax", "logsumexp"),
    "activation of this name; its entrywise functions are abs, relu and step": (
        "sigmoid", "tanh", "gelu", "silu", "swish", "elu", "selu", "softplus", "leaky_relu", "prelu", "erf", "logistic",
        "hardtanh", "mish",
    ),
    "trigonometric or hyperbolic functions": (
        "sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "atan2", "arcsin", "arccos", "arctan", "sinh",
        "cosh", "asinh", "acosh", "atanh", "sinc",
    ),
    "rounding": ("floor", "ceil", "round", "trunc", "mod", "rem", "frac"),
    "rank; say sigma_min(A) > 0 for full rank": ("rank",),
    "pseudoinverse; of a matrix of full column rank it is inv(A'*A)*A'": ("pinv", "pseudoinverse"),
    "nuclear norm": ("nuclear", "nuc", "trace_norm", "schatten"),
    "places of extremes": ("argmax", "argmin"),
    "products over entries": ("prod", "product", "cumprod", "cumsum"),
    "functions of a matrix beyond powers": ("expm", "logm", "sqrtm", "funm"),
    "second derivatives": ("hess", "hessian", "Hessian", "laplacian"),
    "probabilities; a claim speaks of all instances": ("expectation", "Pr", "prob", "probability", "var", "Var", "std"),
}  # fmt: skip
_HINTS = {name: f"write {spelling}" for spelling, names in _SPELLED.items() for name in names}
_HINTS |= {name: f"the language has no {what}" for what, names in _MISSING.items() for name in names}

_CONSTANTS = dict.fromkeys(
    ("pi", "e", "euler"), "the language has no such constant; write a fraction, or quantify over an interval around it"
)
TRANSPOSES = frozenset({"T", "H", "top", "intercal"})
"""Exponents that stand for a transpose in print."""


def hint_for(name: str, allowed: Iterable[str], *, called: bool) -> str | None:
    """Return what to write in place of a name without a meaning: by what it means elsewhere, else by its spelling.

    Args:
        name: The name.
        allowed: Names that have a meaning where it stands.
        called: Whether it stands as a function, `name(...)`.

    Example:
        >>> hint_for("sin", ["min"], called=True), hint_for("sin", ["min"], called=False)
        ('the language has no trigonometric or hyperbolic functions', 'did you mean `min`?')
        >>> hint_for("tr", ["trace"], called=True), hint_for("norn", ["norm"], called=True)
        ('write trace(A)', 'did you mean `norm`?')
    """
    near = nearest_name(name, sorted(allowed))
    # A name that differs in case alone is a slip, whatever it means elsewhere.
    hint = (_HINTS if called else _CONSTANTS).get(name)
    if hint is not None and not (near is not None and near.casefold() == name.casefold()):
        return hint
    return f"did you mean `{near}`?" if near else None
