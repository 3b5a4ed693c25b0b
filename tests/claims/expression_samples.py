"""What the tests of the claim language share: an environment, a sample call of every function, random expressions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from hypothesis import strategies as st

from ntk_deq.language.declaration import IMPLICIT_RELU
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import Expr, Kind, Sign, Span
from ntk_deq.language.types import SCALAR, STEP, TIME, SizeRange, Type, matrix
from ntk_deq.language.typing import infer

SIZES = {letter: SizeRange(1, 6) for letter in "Ndm"}
FIXED = {"N": SizeRange(8, 8), "d": SizeRange(16, 16), "m": SizeRange(64, 64)}

ENVIRONMENT: dict[str, Type] = {
    "W": matrix("d", "m"),
    "A": matrix("m", "m"),
    "b": matrix("m"),
    "gamma": SCALAR,
    "X": matrix("N", "d"),
    "y": matrix("N"),
    "Z": matrix("N", "m"),
    "Phi": matrix("N", "m"),
    "yhat": matrix("N"),
    "L": SCALAR,
    "c": SCALAR,
}


def typed(
    text: str,
    *,
    sizes: Mapping[str, SizeRange] = SIZES,
    environment: Mapping[str, Type] = ENVIRONMENT,
    model: bool = True,
) -> Expr:
    """Parse and type a text in the environment of the samples."""
    return infer(
        parse(text),
        environment,
        sizes=sizes,
        model=IMPLICIT_RELU if model else None,
        indexed=frozenset({"Z", "L", "W"}) if model else frozenset(),
        numbers=True,
    )


def bare(expr: Expr) -> Expr:
    """Return a tree without its places and types, for comparison."""
    return replace(expr, span=Span(0, 0), type=None, args=tuple(bare(argument) for argument in expr.args))


# One call of every function and the type it must have.
CALLS = {
    Sign.ENTRY: ("X{1, d}", "scalar"),
    Sign.SEGMENT: ("y{1..N}", "vector N"),
    Sign.ROWS: ("X{N, :}", "matrix 1 x d"),
    Sign.COLUMNS: ("X{:, 1..d}", "matrix N x d"),
    Sign.BLOCK: ("X{1..N, 1}", "vector N"),
    Sign.ROW: ("[X, y, Z]", "matrix N x d + m + 1"),
    Sign.STACK: ("[W, ones(d, 1); b', c]", "matrix d + 1 x m + 1"),
    "blockdiag": ("blockdiag(X, c, A)", "matrix N + m + 1 x d + m + 1"),
    "kron": ("kron(X, A)", "matrix N*m x d*m"),
    "hadamard": ("hadamard(Z, Phi)", "matrix N x m"),
    "vec": ("vec(X)", "vector N*d"),
    "softmax": ("softmax(X*W)", "matrix N x m"),
    "inv": ("inv(A)", "matrix m x m"),
    "kronsum": ("kronsum(A, X'*X)", "matrix d*m x d*m"),
    "khatri_rao": ("khatri_rao(W, Z)", "matrix N*d x m"),
    "pinv": ("pinv(X)", "matrix d x N"),
    "sqrtm": ("sqrtm(X'*X)", "matrix d x d"),
    "diag": ("diag(b)", "matrix m x m"),
    "I": ("I(2*N + m)", "matrix 2*N + m x 2*N + m"),
    "zeros": ("zeros(N, 3)", "matrix N x 3"),
    "ones": ("ones(m)", "vector m"),
    "commutation": ("commutation(N, m)", "matrix N*m x N*m"),
    "trace": ("trace(A)", "scalar"),
    "det": ("det(A)", "scalar"),
    "sum": ("sum(X)", "scalar"),
    "dot": ("dot(y, yhat)", "scalar"),
    "max": ("max(c, gamma, norm(b))", "scalar"),
    "min": ("min(diag(A))", "scalar"),
    "norm": ("norm(yhat - y)", "scalar"),
    "fro": ("fro(X)", "scalar"),
    "norm1": ("norm1(X)", "scalar"),
    "norminf": ("norminf(X)", "scalar"),
    "sigma_min": ("sigma_min(Z)", "scalar"),
    "sigma_max": ("sigma_max(Z)", "scalar"),
    "cond": ("cond(X)", "scalar"),
    "lambda_min": ("lambda_min(Z*Z')", "scalar"),
    "lambda_max": ("lambda_max(A)", "scalar"),
    "rho": ("rho(A)", "scalar"),
    "nuclear": ("nuclear(X)", "scalar"),
    "rank": ("rank(X)", "scalar"),
    "lambda_sym": ("lambda_sym(A + A')", "scalar"),
    "psd": ("psd(X'*X)", "boolean"),
    "abs": ("abs(X)", "matrix N x d"),
    "relu": ("relu(X*W)", "matrix N x m"),
    "step": ("step(c)", "scalar"),
    "softplus": ("softplus(X*W)", "matrix N x m"),
    "sign": ("sign(c)", "scalar"),
    "tanh": ("tanh(X*W)", "matrix N x m"),
    "sigmoid": ("sigmoid(c)", "scalar"),
    "erf": ("erf(c)", "scalar"),
    "sin": ("sin(A)", "matrix m x m"),
    "cos": ("cos(2*pi*c)", "scalar"),
    "arccos": ("arccos(dot(y, yhat))", "scalar"),
    "arctan": ("arctan(y)", "vector N"),
    "huber": ("huber(yhat - y, c)", "vector N"),
    "shift": ("shift(A, -c)", "matrix m x m"),
    "leaky_relu": ("leaky_relu(X*W, 1/10)", "matrix N x m"),
    "softthreshold": ("softthreshold(X, c)", "matrix N x d"),
    "pi": ("pi", "scalar"),
    "slope": ("slope(tanh, X)", "matrix N x d"),
    "slope2": ("slope2(leaky_relu, c, 1/2)", "scalar"),
    "primitive": ("primitive(relu, X*W)", "matrix N x m"),
    "sqrt": ("sqrt(A)", "matrix m x m"),
    "exp": ("exp(-c)", "scalar"),
    "log": ("log(c)", "scalar"),
    "grad": ("grad(L, W)", "matrix d x m"),
    "jac": ("jac(Z, A)", "matrix N*m x m^2"),
    "prox": ("prox(u -> norm(u), b, c)", "vector m"),
    "resolvent": ("resolvent(u -> norm(u), b)", "vector m"),
    "indicator": ("indicator(c <= 1)", "scalar"),
    "moreau": ("moreau(u -> fro(u), X, c)", "scalar"),
    "conjugate": ("conjugate(u -> norm(u)^2/2, b)", "scalar"),
    "argmin": ("argmin(u[m] -> norm(u - b)^2)", "vector m"),
    "minimum": ("minimum(u[m] -> norm(u - b)^2)", "scalar"),
    "supremum": ("supremum(u[] -> tanh(u))", "scalar"),
    "infimum": ("infimum(u[] -> tanh(u))", "scalar"),
    "fixed_point": ("fixed_point(Phi)", "matrix N x m"),
    "next": ("next(Z)", "matrix N x m"),
}

STATEMENTS = (
    "sigma_min(Z) >= gamma/(1 - c)*norm(b)*min(diag(A))*sigma_min(Z)",
    "L[k] <= (1 - c*gamma^2/4)^k*L[0] for all k",
    "norm(Z[p] - Z[q]) <= c*gamma^p for all p, q with p <= q and not q == 0",
    "norm(Z[k]) <= c for some k with k <= 2*c/gamma",
    "0 < gamma <= c < 1 and (A >= 0 or not A == A')",
    "grad(L, b) == Z'*(yhat - y)",
    "norm(at(Z, A = A + I(m), gamma = 0.5) - Z) <= 1e-9",
    "b'*b*A == A*(b'*b)",
    "grad(u -> norm(X*W*u)^2, 2*b) == 4*W'*X'*X*W*b",
)

NAMES = ("gamma0", "A", "yhat", "x", "λ1", "lam_max")


def _numbers() -> st.SearchStrategy[Fraction]:
    plain = st.decimals(min_value=0, max_value=10**6, places=6).map(Fraction)
    literal = st.builds("{}.{}e{}".format, st.integers(0, 10**30), st.integers(0, 10**20), st.integers(-300, 300))
    return st.one_of(st.integers(0, 10**20).map(Fraction), plain, literal.map(Fraction))


def _node(kind: Kind, *args: Expr, **fields: object) -> Expr:
    return Expr(kind, Span(0, 0), args, **fields)  # type: ignore[arg-type]


def _grown(below: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    names = st.sampled_from(NAMES)
    binary = (Kind.ADD, Kind.SUBTRACT, Kind.MULTIPLY, Kind.DIVIDE, Kind.POWER, Kind.AND, Kind.OR)
    unary = (Kind.NEGATE, Kind.TRANSPOSE, Kind.NOT)
    relations = st.sampled_from(["<=", "<", ">=", ">", "==", "!="])
    return st.one_of(
        st.builds(lambda kind, left, right: _node(kind, left, right), st.sampled_from(binary), below, below),
        st.builds(lambda kind, part: _node(kind, part), st.sampled_from(unary), below),
        st.builds(lambda name, part: _node(Kind.INDEX, part, name=name), names, below),
        st.builds(lambda name, parts: _node(Kind.CALL, *parts, name=name), names, st.lists(below, max_size=3)),
        st.builds(
            lambda first, pairs: _node(Kind.AT, first, *pairs.values(), names=tuple(pairs)),
            below,
            st.dictionaries(names, below, min_size=1, max_size=2),
        ),
        st.builds(
            lambda parts, signs: _node(Kind.COMPARE, *parts, operators=tuple(signs[: len(parts) - 1])),
            st.lists(below, min_size=2, max_size=4),
            st.lists(relations, min_size=3, max_size=3),
        ),
        st.builds(
            lambda kind, body, bound, condition: _node(kind, body, *condition, names=tuple(bound)),
            st.sampled_from((Kind.FOR_ALL, Kind.FOR_SOME)),
            below,
            st.lists(names, min_size=1, max_size=2, unique=True),
            st.lists(below, max_size=1),
        ),
    )


def random_trees() -> st.SearchStrategy[Expr]:
    """Trees of every kind, well-typed or not."""
    leaves = st.one_of(
        _numbers().map(lambda value: _node(Kind.NUMBER, value=value)),
        st.sampled_from(NAMES).map(lambda name: _node(Kind.NAME, name=name)),
    )
    return st.recursive(leaves, _grown, max_leaves=12)


@st.composite
def matrix_texts(draw: st.DrawFn, rows: str, cols: str, depth: int) -> str:
    """Texts of well-typed matrices of a given symbolic shape, with numbers and scalars in them."""
    shapes = {("d", "m"): "W", ("m", "m"): "A", ("m", "1"): "b", ("N", "d"): "X", ("N", "1"): "y", ("N", "m"): "Z"}
    if depth == 0:
        if (rows, cols) in shapes and draw(st.booleans()):
            return shapes[rows, cols]
        if (cols, rows) in shapes and draw(st.booleans()):
            return shapes[cols, rows] + "'"
        return draw(st.sampled_from([f"ones({rows}, {cols})", f"zeros({rows}, {cols})"]))
    same = matrix_texts(rows, cols, depth - 1)
    inner = draw(st.sampled_from(["N", "d", "m", "1"]))
    # A 1 x 1 matrix can come out as a number, which has no transpose and no Kronecker product.
    form = draw(
        st.sampled_from([0, 1, 2, 5, 6]) if rows == cols == "1" else st.integers(0, 6 if "1" in (rows, cols) else 7)
    )
    if form == 0:
        return f"({draw(same)} {draw(st.sampled_from('+-'))} {draw(same)})"
    if form == 1:
        return f"({draw(matrix_texts(rows, inner, depth - 1))}*{draw(matrix_texts(inner, cols, depth - 1))})"
    if form == 2:
        return f"{draw(scalar_texts(depth - 1))}*{draw(same)}"
    if form == 3:
        return f"({draw(matrix_texts(cols, rows, depth - 1))})'"
    if form == 4:
        return f"hadamard({draw(same)}, {draw(same)})"
    if form == 5:
        return f"{draw(st.sampled_from(['relu', 'abs', 'step']))}({draw(same)})"
    if form == 6:
        return f"(-{draw(same)})/{draw(scalar_texts(depth - 1))}"
    if rows == cols:
        return f"({draw(same)})^{draw(st.integers(0, 3))}"
    return f"kron({draw(matrix_texts(rows, '1', depth - 1))}, {draw(matrix_texts('1', cols, depth - 1))})"


@st.composite
def scalar_texts(draw: st.DrawFn, depth: int) -> str:
    """Texts of well-typed scalars, 1 x 1 matrices among them."""
    if depth <= 0:
        return draw(st.sampled_from(["c", "gamma", "2", "0.25", "1e-3", "m", "(y'*y)"]))
    shape = draw(st.sampled_from([("N", "d"), ("m", "m"), ("m", "1")]))
    inner = draw(matrix_texts(*shape, depth - 1))
    function = draw(st.sampled_from(["fro", "sum", "max", "norm1", "norminf"]))
    left, right = draw(scalar_texts(depth - 1)), draw(scalar_texts(depth - 1))
    return draw(
        st.sampled_from(
            [
                f"{function}({inner})",
                f"({left} + {right})",
                f"({left})*({right})",
                f"max({left}, {right})",
                f"-({left})",
            ]
        )
    )


def indexed(text: str, *, time: bool) -> Expr:
    """Type an expression in which every name may carry the step, or the time, t."""
    return infer(
        parse(text),
        ENVIRONMENT,
        sizes=SIZES,
        index_names=frozenset({"t"}),
        indexed=frozenset(ENVIRONMENT),
        trajectory={"path_length": SCALAR},
        index=TIME if time else STEP,
    )
