"""The shape check: what fits, what does not, and that the error says both shapes and the place."""

from __future__ import annotations

import sys

import pytest
from expression_samples import ENVIRONMENT, FIXED, SIZES, STATEMENTS, matrix_texts, scalar_texts, typed
from hypothesis import given, settings
from hypothesis import strategies as st

from ntk_deq.errors import ExpressionError
from ntk_deq.language.declaration import model_names, model_signature
from ntk_deq.language.format import format_expr
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.parser import MAX_DEPTH, parse
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.language.types import BOOLEAN, SCALAR, STEP, Size, SizeRange, Type, matrix
from ntk_deq.language.typing import expect_boolean, expect_scalar, infer


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("X*W", "matrix N x m"),
        ("X'", "matrix d x N"),
        ("Z*b - y", "vector N"),
        ("y'*y", "matrix 1 x 1"),
        ("y*y'", "matrix N x N"),
        ("2*A/c", "matrix m x m"),
        ("A*2", "matrix m x m"),
        ("-A", "matrix m x m"),
        ("A^-2", "matrix m x m"),
        ("A^(-1)", "matrix m x m"),
        ("c^-0.5", "scalar"),
        ("N*m/2 + 1", "scalar"),
        ("y'*y + 1", "scalar"),
        ("y'*y/c", "vector 1"),
        ("c/(y'*y)", "scalar"),
        ("A/(y'*y)", "matrix m x m"),
        ("(y'*y)^2", "vector 1"),
        ("(y'*y)^0.5", "scalar"),
        ("b'*b*A", "matrix m x m"),
        ("A*(b'*b)", "matrix m x m"),
        ("norm(y'*y)", "scalar"),
        ("sqrt(y'*y)", "matrix 1 x 1"),
        ("sqrt(A)", "matrix m x m"),
        ("norm(sqrt(y'*y))*A", "matrix m x m"),
        ("kron(b', I(N))", "matrix N x N*m"),
        ("inv(I(N*m) - gamma*kron(A', I(N)))*vec(Z)", "vector N*m"),
        ("diag(A)", "vector m"),
        ("commutation(m)", "matrix m^2 x m^2"),
        ("zeros(N)", "vector N"),
        ("ones(1, N)*y", "vector 1"),
        ("jac(c*gamma, W)", "matrix 1 x d*m"),
        ("jac(yhat, gamma)", "vector N"),
        ("grad(y'*yhat, gamma)", "scalar"),
        ("at(Z, A = A', W = 0*W)*b", "vector N"),
        ("Z[3]", "matrix N x m"),
    ],
)
def test_types(text: str, type_: str) -> None:
    wanted = type_ if type_ != "matrix 1 x 1" else "vector 1"  # a vector is a matrix of one column
    assert str(typed(text).type) == wanted


@pytest.mark.parametrize("text", STATEMENTS)
def test_statements_are_boolean_and_fully_typed(text: str) -> None:
    tree = typed(text)
    assert tree.type == BOOLEAN
    assert all(node.type is not None for node in tree.walk())


def test_step_indices_are_typed_as_such() -> None:
    tree = typed("norm(Z[k + 1]) <= c^k*k for all k with k >= 1")
    named = {(node.name, node.type) for node in tree.walk() if node.kind is Kind.NAME}
    assert ("k", STEP) in named
    assert ("c", SCALAR) in named


@pytest.mark.parametrize("name", model_names())
def test_every_model_types_in_its_own_words(name: str) -> None:
    model = model_signature(name)
    sizes = {letter: SizeRange(1, 6) for letter in model.sizes}
    environment = {v.name: matrix(*v.shape) if v.shape else SCALAR for v in model.variables}
    state = matrix(*model.state_shape)
    environment[model.state] = state
    for key, text in model.definitions.items():
        environment[key] = infer(parse(text), environment, sizes=sizes, model=model).type or SCALAR
    assert infer(parse(model.map), environment, sizes=sizes, model=model).type == state
    certificate = model.contraction or model.monotone
    assert expect_scalar(infer(parse(certificate), environment, sizes=sizes, model=model))


def test_sizes_that_agree_as_polynomials_agree() -> None:
    assert str(typed("I((N + 1)*m) + kron(ones(N + 1, N + 1), A)").type) == "matrix N*m + m x N*m + m"


def test_letters_stay_distinct_where_a_setting_fixes_both_to_one_number() -> None:
    same = {"N": SizeRange(4, 4), "d": SizeRange(4, 4), "m": SizeRange(2, 2)}
    with pytest.raises(ExpressionError, match=r"inv needs a square matrix. Got matrix N x d \[4 x 4\]"):
        typed("inv(X)", sizes=same)
    with pytest.raises(ExpressionError, match="inner sizes d and N differ"):
        typed("X*y", sizes=same)


def test_a_letter_that_is_fixed_agrees_with_its_number() -> None:
    same = {"N": SizeRange(4, 4), "d": SizeRange(4, 4), "m": SizeRange(2, 2)}
    assert str(typed("X + zeros(4, 4)", sizes=same).type) == "matrix N x d"
    assert str(typed("X'*ones(4)", sizes=same).type) == "vector d"


def test_a_letter_fixed_at_one_makes_a_scalar() -> None:
    one = {"N": SizeRange(1, 1), "d": SizeRange(2, 2), "m": SizeRange(3, 3)}
    assert str(typed("y + c", sizes=one).type) == "scalar"
    with pytest.raises(ExpressionError, match=r"cannot add vector N and a scalar"):
        typed("y + c", sizes=SIZES)


_BY_ENTRIES = sorted(name for name, record in FUNCTIONS.items() if record.by_entries)
ENTRYWISE = f"{', '.join(_BY_ENTRIES[:-1])} and {_BY_ENTRIES[-1]}"

ILL_TYPED = [
    ("Z*W", "cannot multiply matrix N x m [8 x 64] by matrix d x m [16 x 64]: inner sizes m and d differ.", "*"),
    ("X + Z", "cannot add matrix N x d [8 x 16] and matrix N x m [8 x 64].", "+"),
    ("X - Z", "cannot subtract matrix N x m [8 x 64] from matrix N x d [8 x 16].", "-"),
    ("c*(A + 1)", "cannot add matrix m x m [64 x 64] and a scalar.", "+"),
    ("1/A", "cannot divide a scalar by matrix m x m [64 x 64].", "/"),
    ("Z^2", "only a square matrix has powers. Got matrix N x m [8 x 64].", "^"),
    (
        "A^0.5",
        "the exponent of matrix m x m [64 x 64] must be a whole number, such as 2 or -1, or be made of size letters, "
        "steps and letters of ranges with + - and *.",
        "0.5",
    ),
    ("A^(200*N)", "a matrix power goes from -1000 to 1000. Got 1600 where N = 8.", "(200*N)"),
    ("A^9999", "a matrix power goes from -1000 to 1000. Got 9999.", "9999"),
    ("c^A", "an exponent must be a scalar. Got matrix m x m [64 x 64].", "A"),
    ("c'", "only a matrix or a vector has a transpose. Got a scalar.", "c'"),
    ("A == 0", "cannot compare matrix m x m [64 x 64] and a scalar with ==.", "=="),
    ("A <= X", "cannot compare matrix m x m [64 x 64] and matrix N x d [8 x 16]: the shapes differ.", "<="),
    ("A != A", "!= compares scalars only. Got matrix m x m [64 x 64] and matrix m x m [64 x 64].", "!="),
    ("(c < 1) + 1", "a number or a matrix is needed here. Got a statement.", "(c < 1)"),
    ("(c < 1) == (c < 2)", "a number or a matrix is needed here. Got a statement.", "(c < 1)"),
    ("norm(c < 1)", "norm needs a scalar or matrix. Got a boolean.", "c < 1"),
    ("c < 1 and c", "`and` joins statements such as a <= b. Got a scalar.", "c"),
    ("not A", "`not` joins statements such as a <= b. Got matrix m x m [64 x 64].", "A"),
    ("Z[k] for all k", "`for all` joins statements such as a <= b. Got matrix N x m [8 x 64].", "Z[k]"),
    ("hadamard(X, Z)", "hadamard needs two matrices of the same shape. Got matrix N x d [8 x 16] and", "Z"),
    ("dot(b, y)", "dot needs two vectors of the same length. Got vector m [64] and vector N [8].", "y"),
    ("dot(b', b)", "dot needs two matrices of the same shape. Got matrix 1 x m [1 x 64] and vector m [64].", "b"),
    ("diag(Z)", "diag needs a vector or a square matrix. Got matrix N x m [8 x 64].", "Z"),
    ("det(Z)", "det needs a square matrix. Got matrix N x m [8 x 64].", "Z"),
    ("shift(A, A)", "shift needs a scalar. Got matrix m x m [64 x 64].", "A"),
    ("kron(c, A)", "kron needs a matrix. Got a scalar.", "c"),
    ("max(A, 1)", "max takes one matrix, or scalars only. Got matrix m x m [64 x 64].", "A"),
    ("fixed_point(A)", "fixed_point needs a state, matrix N x m [8 x 64]. Got matrix m x m [64 x 64].", "A"),
    ("grad(Z, W)", "grad needs a scalar. Got matrix N x m [8 x 64].", "Z"),
    ("grad(L, A + A)", "a derivative is taken with respect to a variable, by its bare name.", "A + A"),
    ("grad(L, yhat)", "`yhat` is defined by others and is no free variable.", "yhat"),
    ("at(Z, yhat = y)", "`at` can replace free variables only, and `yhat` is none.", "y"),
    ("at(Z, A = b)", "`at` needs matrix m x m [64 x 64] for `A`. Got vector m [64].", "b"),
    ("at(c < 1, A = A)", "`at` takes a number or a matrix first. Got a statement.", "c < 1"),
    ("I(3.5)", "a size must be an integer from 1 to 1e+12. Got 3.5.", "3.5"),
    ("I(0)", "a size must be an integer from 1 to 1e+12. Got 0.", "0"),
    ("I(N - 1)", "a size may be made of positive integers and size letters with + and * only.", "N - 1"),
    ("I(gamma)", "`gamma` is no size letter.", "gamma"),
    ("kron()", "`kron` takes 2 arguments. Got 0.", "kron()"),
    ("zeros(1, 2, 3)", "`zeros` takes 1 or 2 arguments. Got 3.", "zeros(1, 2, 3)"),
    ("max()", "`max` takes at least 1 argument. Got 0.", "max()"),
    ("A[0]", "`A` does not change with the step.", "A[0]"),
    ("Z[k] >= 0", "`k` is no step index here.", "k"),
    ("Z[2*k] >= 0 for all k", "a step may be made of integers and step indices with + and - only.", "2*k"),
    ("Z[0.5]", "a step must be an integer. Got 0.5.", "0.5"),
    ("Z[gamma]", "`gamma` is no step index here.", "gamma"),
    ("Z[k] >= 0 for all k with k", "`with` takes comparisons of step indices, such as p <= q.", "k"),
    ("c < 1 for all k", "`for all k`: `k` does not occur in the statement.", "c < 1 for all k"),
    ("c < 1 for all c", "`c` has a meaning already and cannot be a step index.", "c < 1 for all c"),
    ("c < 1 for all N", "`N` has a meaning already and cannot be a step index.", "c < 1 for all N"),
]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo()", "unknown function `foo`."),
        ("1 + foo()", "unknown function `foo`."),
        ("psd()", "`psd` takes 1 argument. Got 0."),
        ("min()", "`min` takes at least 1 argument. Got 0."),
        ("prox()", "`prox` takes 3 arguments. Got 0."),
    ],
)
def test_calls_without_arguments_are_refused(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        typed(text, sizes=FIXED)
    assert caught.value.message == message


@pytest.mark.parametrize(("text", "message", "place"), ILL_TYPED, ids=[text for text, _, _ in ILL_TYPED])
def test_errors_name_both_shapes_and_the_place(text: str, message: str, place: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        typed(text, sizes=FIXED)
    assert caught.value.message.startswith(message)
    start, stop = caught.value.span
    assert text[start:stop] == place


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("gama*A", "did you mean `gamma`?"),
        ("norn(A)", "did you mean `norm`?"),
        ("sigma_mim(A)", "did you mean `sigma_min`?"),
        ("yaht", "did you mean `yhat`?"),
        ("grad(L, gama)", "did you mean `gamma`?"),
        ("at(L, gama = 1)", "did you mean `gamma`?"),
        ("norm", "write norm(scalar or matrix)"),
        ("gamma(2)", "write gamma*(...) for a product"),
        ("Z(2)", "write Z[...]"),
        ("X*Z", "transpose the left factor: '"),
        ("A*X", None),
        ("y*y", "transpose the right factor: '"),
        ("A + 1", "write c*I(m) or c*ones(m, m) for the scalar c"),
        ("X - 1", "write c*ones(N, d) for the scalar c"),
        ("A == 0", "write zeros(m, m)"),
        ("c == X", "write c*ones(N, d)"),
        ("Z[k] >= 0", "add `for all k` at the end of the statement"),
        ("zeros()", "write zeros(size[, size])"),
        ("A[1]", "what carries a step: L, W, Z"),
        ("unheard_of", None),
        ("tan(gamma) <= 1", "write sin(x)/cos(x)"),
        ("cosh(gamma) <= 1", "write (exp(x) + exp(-x))/2"),
        ("sec(gamma) <= 1", "the language has no such function; it has sin, cos, arccos, arctan, tanh and exp"),
        ("logistic(gamma) <= 1", "write sigmoid(x)"),
        ("prelu(A, c) <= 1", "write leaky_relu(x, a)"),
        ("soft_threshold(A, c) <= 1", "write softthreshold(x, t)"),
        (
            "norm(argmax(A)) <= 1",
            "the language has no places of largest values; argmin(f, x) is that of the smallest value of a function f "
            "of an argument",
        ),
        (
            "max(gelu(A)) <= 1",
            f"the language has no activation of this name; its entrywise functions are {ENTRYWISE}",
        ),
        ("A^T*A", "write A' for a transpose"),
        ("norm(A^H) <= 1", "write A' for a transpose"),
        ("transpose(A)", "write A' for a transpose"),
        ("tr(A)", "write trace(A)"),
        ("ln(gamma)", "write log(x)"),
        ("frob(A)", "write fro(A)"),
        ("norm2(A)", "write norm(A)"),
        ("eye(m)", "write I(n)"),
        ("inner(y, y)", "write dot(x, y)"),
        (
            "e*gamma",
            "write exp(1), unless `e` is a name that is missing",
        ),
        ("Gamma*A", "did you mean `gamma`?"),
        ("Trace(A)", "did you mean `trace`?"),
        ("sin*A", "write sin(scalar or matrix)"),
        ("maxx(A)", "did you mean `max`?"),
    ],
)
def test_hints(text: str, hint: str | None) -> None:
    with pytest.raises(ExpressionError) as caught:
        typed(text)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("spec(A) <= 1", "write lambda_min(A) or lambda_max(A)"),
        ("softmin(b) <= 1", "write -log(sum(exp(-x)))"),
        ("cov(A) == A", "for the covariance of n rows"),
        ("median(b) <= 1", "the language has no medians, quantiles and orders of entries"),
        ("unvec(b) == A", "the language has no matrix made of a vector"),
        ("rowsum(A) == b", "write A*ones(m) for sums of rows"),
        ("range(A) == b", "write rank(A) for the size of the range"),
        ("ker(A) == b", "write A*x == 0 for `x lies in the kernel`"),
        ("argmax(b) == b", "argmin(f, x) is that of the smallest value"),
        ("E(b) == b", "the language has no probabilities"),
        ("hess(gamma, b) == A", "write jac(grad(f, x), x)"),
        ("proj(b) == b", "write prox(f, x, mu) for a function f of an argument"),
        ("<b, b> >= 0", "write dot(x, y) for an inner product"),
        ("A^{-1} == A", "an exponent stands in round brackets or in none: A^(-1), A^k"),
        ("norm(1{gamma > 0}) >= 0", "write step(x) for an indicator of x > 0"),
        ("norm(Z[1, 2]) >= 0", "Z[k] is a value at a step, W[l][k] that of a member of a family"),
    ],
)
def test_what_strangers_write_is_answered_by_what_they_mean(text: str, part: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        typed(text)
    assert part in (caught.value.hint or "")


def test_model_functions_need_a_model() -> None:
    with pytest.raises(ExpressionError, match="`next` needs a model"):
        typed("next(Z)", model=False)


def test_quantifiers_need_a_run() -> None:
    with pytest.raises(ExpressionError, match="nothing here has steps"):
        typed("c < k for all k", model=False)
    bound = infer(parse("c < k"), ENVIRONMENT, index_names=frozenset({"k"}))
    assert bound.args[1].type == STEP


def test_variables_can_be_named_by_the_caller() -> None:
    with pytest.raises(ExpressionError, match="`c` is defined by others"):
        infer(parse("grad(c^2, c)"), ENVIRONMENT, variables=frozenset({"A"}))


@pytest.mark.parametrize(
    ("start", "most"),
    [(matrix("N", "m"), 4), (matrix(Size.of("N") + Size.of("m"), 1), 3), (matrix(10, 2), 3)],
    ids=["degree", "terms", "coefficient"],
)
def test_doubling_definitions_cannot_explode(start: Type, most: int) -> None:
    environment: dict[str, Type] = {"a0": start}

    def double() -> None:
        for k in range(40):
            environment[f"a{k + 1}"] = infer(parse(f"kron(a{k}, a{k})"), environment).type or SCALAR

    with pytest.raises(ExpressionError, match=r"larger than the language allows|a size may have at most"):
        double()
    assert len(environment) == most + 1


def test_deepest_tree_types_within_half_of_the_default_recursion_limit() -> None:
    text = "A" + "'" * (MAX_DEPTH - 1)
    frames = 0
    frame = sys._getframe()
    while frame is not None:
        frames, frame = frames + 1, frame.f_back  # type: ignore[assignment]
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(frames + 500)
        assert str(typed(text).type) == "matrix m x m"
    finally:
        sys.setrecursionlimit(limit)


def test_expectations() -> None:
    assert expect_boolean(typed("c < 1")).type == BOOLEAN
    assert expect_scalar(typed("y'*y")).type == matrix(1, 1)
    with pytest.raises(ExpressionError, match="a statement is needed here"):
        expect_boolean(typed("c"))
    with pytest.raises(ExpressionError, match=r"a number is needed here\. Got matrix m x m"):
        expect_scalar(typed("A"))


def shape_of(tree: Expr, sizes: dict[str, int]) -> tuple[int, int]:
    """Return rows and columns with numbers for letters, worked out from the tree alone; () of a scalar is (1, 1)."""
    parts = [shape_of(part, sizes) for part in tree.args]
    match tree.kind:
        case Kind.NAME if tree.name in ENVIRONMENT and ENVIRONMENT[tree.name] != SCALAR:
            type_ = ENVIRONMENT[tree.name]
            return type_.rows.evaluate(sizes), type_.cols.evaluate(sizes)
        case Kind.TRANSPOSE:
            return parts[0][1], parts[0][0]
        case Kind.MULTIPLY if (1, 1) not in parts:
            assert parts[0][1] == parts[1][0]
            return parts[0][0], parts[1][1]
        case Kind.MULTIPLY:
            return parts[1] if parts[0] == (1, 1) else parts[0]
        case Kind.CALL if tree.name in ("ones", "zeros"):
            values = [sizes.get(part.name, 1) for part in tree.args]
            return values[0], values[1]
        case Kind.CALL if tree.name == "kron":
            return parts[0][0] * parts[1][0], parts[0][1] * parts[1][1]
        case Kind.CALL if tree.name in ("fro", "sum", "max", "norm1", "norminf"):
            return 1, 1
        case Kind.NUMBER | Kind.NAME:
            return 1, 1
        case _:
            return parts[0]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_matrices_have_the_shape_they_were_built_with(data: st.DataObject) -> None:
    rows, cols = data.draw(st.sampled_from([("N", "d"), ("m", "m"), ("d", "1"), ("N", "N"), ("1", "1")]))
    tree = typed(data.draw(matrix_texts(rows, cols, 3)))
    wanted = matrix(int(rows) if rows.isdigit() else rows, int(cols) if cols.isdigit() else cols)
    assert tree.type in ((wanted, SCALAR) if rows == cols == "1" else (wanted,))
    sizes = {"N": 5, "d": 3, "m": 7}
    assert tree.type is not None
    assert shape_of(tree, sizes) == (tree.type.rows.evaluate(sizes), tree.type.cols.evaluate(sizes))
    again = typed(format_expr(tree))
    assert [node.type for node in again.walk()] == [node.type for node in tree.walk()]


@settings(max_examples=50, deadline=None)
@given(scalar_texts(2))
def test_random_scalars_are_scalars(text: str) -> None:
    assert expect_scalar(typed(text))


@settings(max_examples=60, deadline=None)
@given(matrix_texts("N", "d", 2), st.sampled_from(["+ ones(N, m)", "*ones(N, m)", "- 1", "== c", "*(c < 1)", "+ X'"]))
def test_random_mismatches_are_found(text: str, misfit: str) -> None:
    with pytest.raises(ExpressionError):
        typed(f"({text}) {misfit}")
