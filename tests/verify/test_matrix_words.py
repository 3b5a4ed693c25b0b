"""Pieces, blocks, roots, pseudoinverses, ranks and orders of matrices, with every kind of number; derivatives."""

from __future__ import annotations

import math
import runpy
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from flint import fmpq
from verify_harness import distance, environment, informed, judge_all, number_of, randn, value_of

from ntk_deq import certified as ct
from ntk_deq.certified.algebraic import enclosure
from ntk_deq.certified.algebraic_matrix import ExactMatrix
from ntk_deq.certified.inversion import pinv
from ntk_deq.certified.precise import as_ball, precise
from ntk_deq.certified.precise.matrix import working_precision
from ntk_deq.certified.spectra import root_error, sqrtm
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.balls import evaluate, evaluate_truth
from ntk_deq.evaluation.derivatives.derivative import derivative
from ntk_deq.evaluation.environment import Environment, OutsideClaimError
from ntk_deq.evaluation.exact import ExactNames
from ntk_deq.evaluation.exact import value_of as exact_value
from ntk_deq.evaluation.floats import TensorNames, tensor_value
from ntk_deq.evaluation.functions.twins import OF_MATRICES
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar, Truth
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import Expr
from ntk_deq.language.types import SCALAR, SizeRange, Type, matrix
from ntk_deq.language.typing import infer
from ntk_deq.verify.printer import Code, Printer

SIZES = {"n": 3, "m": 2}
TYPES: dict[str, Type] = {
    "A": matrix("n", "m"),
    "B": matrix("m", "m"),
    "S": matrix("n", "n"),
    "P": matrix("n", "n"),
    "v": matrix("n"),
    "c": SCALAR,
}
RANGES = {letter: SizeRange(value, value) for letter, value in SIZES.items()}


def values(seed: int = 1) -> dict[str, torch.Tensor | float]:
    """Matrices with numbers near one; P is symmetric."""
    s = randn(3, 3, seed=seed + 1)
    found: dict[str, torch.Tensor | float] = {
        "A": randn(3, 2, seed=seed),
        "B": randn(2, 2, seed=seed + 3),
        "S": s,
        "P": s + s.mT,
        "v": randn(3, 1, seed=seed + 2),
        "c": 0.1,
    }
    return found


def typed(text: str) -> Expr:
    return infer(parse(text), TYPES, sizes=RANGES)


def floats(found: Mapping[str, torch.Tensor | float]) -> TensorNames:
    tensors = {k: v if isinstance(v, torch.Tensor) else torch.tensor(v, dtype=torch.float64) for k, v in found.items()}
    return TensorNames(tensors, SIZES, {}, None, torch.zeros((), dtype=torch.float64))


def truth(text: str, env: Environment) -> Truth:
    return evaluate_truth(typed(text), env).truth


TEXTS = (
    "A{2, 1}",
    "v{n}",
    "v{2..n}",
    "A{2..n, :}",
    "A{1, :}",
    "A{:, 2}",
    "S{1..2, 2..n}",
    "S{2, 1..2}",
    "[A, v]",
    "[A, S; B, A']",
    "[1, 2; c, 4]",
    "[c; v]",
    "blockdiag(A, c, B)",
    "kronsum(S, B)",
    "khatri_rao(A, B)",
    "dot(S, P)",
    "pinv(A)",
    "pinv(A')",
    "pinv(S)",
    "nuclear(A)",
    "nuclear(A*A')",
    "rank(A)",
    "sqrtm(A'*A)",
    "lambda_sym(P - v*v')",
    "S^n",
    "S^(1 - n)",
)


@pytest.mark.parametrize("text", TEXTS)
def test_the_ball_holds_the_float_with_and_without_a_radius_and_in_many_bits(text: str) -> None:
    for seed in (1, 20, 300):
        found = values(seed)
        plain = tensor_value(typed(text), floats(found))
        exact = evaluate(typed(text), environment(found, sizes=SIZES))
        assert not isinstance(exact, Outcome)
        assert informed(exact)
        size = float(plain.abs().max()) if plain.ndim else abs(float(plain))
        assert distance(exact, plain) <= 1e-12 * max(size, 1.0)
        radius = exact.ball.radius if isinstance(exact, Matrix) else float(exact.ball.rad())
        assert radius <= 1e-9 * max(size, 1.0)
        env = environment(found, sizes=SIZES)
        for name, value in env.variables.items():
            if isinstance(value, Matrix):
                with working_precision(256):
                    env.variables[name] = Matrix(as_ball(precise(found[name])), value.scale)  # type: ignore[arg-type]
        env.precision = 256
        with working_precision(256):
            fine = evaluate(typed(text), env)
            assert not isinstance(fine, Outcome)
            assert informed(fine)
            assert distance(fine, plain) <= 1e-11 * max(size, 1.0)
            if isinstance(fine, Matrix):
                assert fine.ball.radius <= 1e-60 * max(size, 1.0)


@pytest.mark.parametrize("text", [t for t in TEXTS if t not in ("[1, 2; c, 4]",)])
def test_a_ball_with_a_radius_holds_what_the_matrices_in_it_give(text: str) -> None:
    found = values(5)
    names = [name for name in "ABSv" if name in text]
    radius = dict.fromkeys(names, 1e-4)
    ball = evaluate(typed(text), environment(found, sizes=SIZES, radius=radius))
    assert not isinstance(ball, Outcome)
    for trial in range(6):
        moved = dict(found)
        for name in names:
            base = found[name]
            assert isinstance(base, torch.Tensor)
            step = randn(*base.shape, seed=trial + 40)
            moved[name] = base + step * (0.99e-4 / float(torch.linalg.vector_norm(step)))
        inside = evaluate(typed(text), environment(moved, sizes=SIZES))
        if isinstance(inside, Scalar):
            assert isinstance(ball, Scalar)
            assert ball.ball.overlaps(inside.ball)
        else:
            assert isinstance(inside, Matrix)
            assert distance(ball, inside.ball.centre) <= 1e-12  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [t for t in TEXTS if t not in ("nuclear(A)", "S^n", "S^(1 - n)", "pinv(A')")] + ["sqrtm(B*B')", "nuclear(B)"],
)
def test_exact_numbers_agree(text: str) -> None:
    found = values(7)
    names: dict[str, object] = dict(SIZES)
    for name, value in found.items():
        if isinstance(value, torch.Tensor):
            rational = [fmpq(*x.as_integer_ratio()) for x in value.flatten().tolist()]
            names[name] = ExactMatrix(*value.shape, rational)
        else:
            names[name] = fmpq(*value.as_integer_ratio())
    names |= {letter: fmpq(size) for letter, size in SIZES.items()}
    exact = exact_value(typed(text), ExactNames(names, {}))  # type: ignore[arg-type]
    ball = evaluate(typed(text), environment(found, sizes=SIZES))
    assert not isinstance(ball, Outcome)
    entries = exact.entries if isinstance(exact, ExactMatrix) else (exact,)
    near = torch.tensor([float(enclosure(entry, 80).mid()) for entry in entries], dtype=torch.float64)
    if isinstance(exact, ExactMatrix):
        near = near.reshape(exact.shape)
    assert distance(ball, near if isinstance(exact, ExactMatrix) else near[0]) <= 1e-13


def test_batches_are_evaluated_at_once() -> None:
    found = [values(seed) for seed in (1, 2, 3)]
    stacked = {
        name: torch.stack([torch.as_tensor(one[name], dtype=torch.float64) for one in found]) for name in found[0]
    }
    names = TensorNames(stacked, SIZES, {}, None, torch.zeros((), dtype=torch.float64), batch=(3,))
    for text, expr in [(text, typed(text)) for text in TEXTS]:
        together = tensor_value(expr, names)
        for k, one in enumerate(found):
            alone = tensor_value(expr, floats(one))
            assert torch.allclose(together[k], alone, rtol=1e-10, atol=1e-12), text


# --- laws -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 2), (2, 4), (3, 3), (1, 3), (4, 1)])
def test_penrose_equations(shape: tuple[int, int]) -> None:
    for seed in range(3):
        env = environment({"A": randn(*shape, seed=seed)})
        for law in ("A*pinv(A)*A", "pinv(A)*A*pinv(A)", "(A*pinv(A))'", "(pinv(A)*A)'"):
            same = {"A*": "A", "pi": "pinv(A)"}[law[:2]] if law[0] != "(" else law[1:-2]
            left, right = value_of(law, env), value_of(same, env)
            assert isinstance(left, Matrix)
            assert isinstance(right, Matrix)
            assert ct.frobenius(ct.subtract(left.ball, right.ball)) < 1e-11


def test_pseudoinverses_of_singular_matrices_are_exact_or_unknown() -> None:
    ones = torch.ones(3, 2, dtype=torch.float64)
    found = value_of("pinv(A)", environment({"A": ones}))
    assert isinstance(found, Matrix)
    assert distance(found, ones.mT / 6) == 0
    assert found.ball.radius < 1e-15
    zero = value_of("pinv(A)", environment({"A": torch.zeros(2, 3, dtype=torch.float64)}))
    assert isinstance(zero, Matrix)
    assert zero.ball.radius == 0
    assert not zero.ball.centre.any()
    # A matrix of full rank is as near as may be, and its pseudoinverse as far: nothing is known.
    env = environment({"A": ones}, radius={"A": 1e-12})
    rough = value_of("pinv(A)", env)
    assert not informed(rough)
    assert env.notes.unsure == ["a pseudoinverse of a matrix whose rank is not certain"]
    assert pinv(ct.ball(ones, 1e-12)).reason == "its rank is not certain"
    by_form = environment({"A": randn(3, 2, seed=1)})
    assert not informed(value_of("pinv(A*A')", by_form))


def test_ranks_are_known_where_they_are_certain() -> None:
    low = randn(4, 2, seed=1) @ torch.tensor([[1.0, 0, 2, 0], [0, 1, 0, 4]], dtype=torch.float64)
    env = environment({"A": torch.ones(3, 2, dtype=torch.float64), "L": low})
    assert number_of("rank(A)", env) == 1
    assert number_of("rank(L)", env) == 2  # the columns are multiples of two: floats say so exactly
    assert number_of("rank(zeros(2, 3))", env) == 0
    tall = environment({"A": randn(5, 3, seed=2)})
    assert number_of("rank(A*A')", tall) == 3  # three positive ones, and no more by its form
    rough = environment({"A": torch.ones(3, 2, dtype=torch.float64)}, radius={"A": 1e-9})
    found = number_of("rank(A)", rough)
    assert (ct.lower(found), ct.upper(found)) == (1.0, 2.0)
    assert evaluate_truth(parse("rank(A) == 1"), rough).truth is Truth.UNSURE
    assert evaluate_truth(parse("1 <= rank(A) <= 2"), rough).truth in (Truth.TRUE, Truth.TIGHT)
    assert evaluate_truth(parse("rank(A) == 3"), rough).truth is Truth.FALSE


@pytest.mark.parametrize("order", [1, 2, 5, 12])
def test_roots_squared(order: int) -> None:
    for seed in range(3):
        a = randn(order, order, seed=seed)
        env = environment({"A": a})
        root = value_of("sqrtm(A*A')", env)
        assert isinstance(root, Matrix)
        assert root.gram
        square = ct.subtract(ct.matmul(root.ball, root.ball), ct.ball(a @ a.mT))
        assert ct.frobenius(square) < 1e-9
        assert distance(root, torch.from_numpy(_root(a.numpy() @ a.numpy().T))) <= 1e-12
        known = value_of("nuclear(A)", env)
        assert isinstance(known, Scalar)
        assert known.ball.overlaps(number_of("trace(sqrtm(A*A'))", env))


def _root(a: np.ndarray) -> np.ndarray:
    values_, vectors = np.linalg.eigh(a)
    root: np.ndarray = vectors * np.sqrt(np.maximum(values_, 0)) @ vectors.T
    return root


def test_roots_of_squares_are_exact_and_those_of_singular_matrices_rough() -> None:
    exact = sqrtm(ct.ball(torch.tensor([[5.0, 4.0], [4.0, 5.0]], dtype=torch.float64)))
    assert (exact.radius, exact.centre.tolist()) == (0.0, [[2.0, 1.0], [1.0, 2.0]])
    big = sqrtm(ct.ball(torch.diag(torch.tensor([4.0, 9.0], dtype=torch.float64)) * 2.0**400))
    assert (big.radius, big.centre.diagonal().tolist()) == (0.0, [2.0**201, 3 * 2.0**200])
    for odd in (2.0**401, 2.0**-301):
        root = sqrtm(ct.ball(torch.eye(2, dtype=torch.float64) * odd))
        assert distance(Matrix(root, 1.0), torch.eye(2, dtype=torch.float64) * math.sqrt(odd)) <= 1e-16 * root.fro
        assert root.radius <= 1e-14 * root.fro
    u = randn(4, 1, seed=3)
    singular = sqrtm(ct.ball(u @ u.mT))
    assert 0 < singular.radius < 1e-6
    truth_ = u @ u.mT / float(torch.linalg.vector_norm(u))
    assert distance(Matrix(singular, 1.0), truth_) <= 1e-14
    assert root_error(1e-10, 2, 0.5, 0.0) < 2.1e-10
    assert not sqrtm(ct.ball(torch.full((2, 2), math.nan, dtype=torch.float64))).is_finite


def test_roots_are_where_they_are_defined() -> None:
    s = torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=torch.float64)
    with pytest.raises(OutsideClaimError, match="has a negative eigenvalue"):
        value_of("sqrtm(A)", environment({"A": s}))
    with pytest.raises(OutsideClaimError, match="is not symmetric"):
        value_of("sqrtm(A)", environment({"A": randn(2, 2, seed=1)}))
    near = environment({"A": torch.eye(2, dtype=torch.float64)}, radius={"A": 1e-9})
    assert not informed(value_of("sqrtm(A)", near))
    assert near.notes.unsure == ["a square root of a matrix that is not seen to be symmetric"]
    third = environment({"A": torch.ones(2, 2, dtype=torch.float64)}, sizes={"n": 2})
    assert not informed(value_of("sqrtm(A/3)", third))  # whose entries are rounded, so that it may be indefinite
    assert third.notes.unsure == ["a square root of a matrix that may have a negative eigenvalue"]


def test_sums_of_singular_values() -> None:
    for seed in range(4):
        for shape in ((3, 3), (2, 5), (4, 1)):
            env = environment({"A": randn(*shape, seed=seed)})
            nuclear, fro = number_of("nuclear(A)", env), number_of("fro(A)", env)
            rank = number_of("rank(A)", env)
            assert nuclear >= fro or nuclear.overlaps(fro)
            assert nuclear <= fro * rank.sqrt() or nuclear.overlaps(fro * rank.sqrt())
    zero = environment({"A": torch.zeros(2, 2, dtype=torch.float64)})
    assert number_of("nuclear(A)", zero) == 0


def test_kronecker_sums_and_columns() -> None:
    env = environment({"A": randn(2, 2, seed=1), "B": randn(3, 3, seed=2), "C": randn(4, 3, seed=3)}, sizes=SIZES)
    left = value_of("kronsum(A, B) - kron(A, I(3)) - kron(I(2), B)", env)
    assert isinstance(left, Matrix)
    assert ct.frobenius(left.ball) < 1e-14
    product = value_of("khatri_rao(B, C)", env)
    assert isinstance(product, Matrix)
    for j in range(3):
        column = value_of(f"khatri_rao(B, C){{:, {j + 1}}} - kron(B{{:, {j + 1}}}, C{{:, {j + 1}}})", env)
        assert isinstance(column, Matrix)
        assert ct.frobenius(column.ball) < 1e-14


# --- the order of symmetric matrices --------------------------------------------------------------------------------


def test_the_order_is_decided_where_a_matrix_is_symmetric_for_certain() -> None:
    env = environment(values(1), sizes=SIZES, lets={"K": "S*S'", "D": "[1, 2; 2, 1]"})
    assert truth("psd(S*S')", env) is Truth.TRUE
    assert truth("psd(A*A')", env) in (Truth.TRUE, Truth.TIGHT)  # singular: zero, and known to be by its form
    assert truth("psd(S*P*S' + 100*I(n))", env) is Truth.TRUE  # with a rounding error, and symmetric by its form
    assert truth("psd(S + S')", env) is Truth.FALSE
    assert truth("not psd(P)", env) is Truth.TRUE
    assert truth("psd(inv(S*S') - inv(S*S' + I(n)))", env) is Truth.TRUE
    assert truth("psd(kron(S*S', B*B'))", env) is Truth.TRUE
    assert truth("psd(blockdiag(S*S', 2))", env) is Truth.TRUE
    assert truth("psd([1, 1; 1, 1])", env) in (Truth.TRUE, Truth.TIGHT, Truth.NEAR_ZERO)
    for text in ("psd(S)", "psd(P - S)", "psd(S*P)", "not psd(S)"):
        with pytest.raises(OutsideClaimError, match="the order of a matrix that is not symmetric"):
            truth(text, env)


def test_a_matrix_that_may_not_be_symmetric_is_left_open() -> None:
    env = environment({**values(1), "P": torch.eye(3, dtype=torch.float64)}, sizes=SIZES, radius={"P": 1e-12})
    assert truth("psd(P)", env) is Truth.UNSURE
    assert env.notes.unsure == ["the order of a matrix that is not seen to be symmetric"]
    assert truth("psd(P + P')", env) is Truth.TRUE


def test_floats_see_the_order_and_say_nothing_of_other_matrices() -> None:
    found = floats(values(1))
    assert float(tensor_value(typed("lambda_sym(S*S')"), found)) > 0
    assert float(tensor_value(typed("lambda_sym(P)"), found)) == pytest.approx(
        float(torch.linalg.eigvalsh(found.variables["P"])[0])
    )
    assert math.isnan(float(tensor_value(typed("lambda_sym(S)"), found)))
    assert bool(tensor_value(typed("sqrtm(P)"), found).isnan().all())


# --- derivatives ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("A{2, 1}^2", "A"),
        ("norm(v{2..n})^2", "v"),
        ("sum(hadamard(A{2..n, :}, A{2..n, :}))", "A"),
        ("fro([A, v; B, v{1..2}])^2", "v"),
        ("dot(S, S*P)", "S"),
        ("fro(blockdiag(A, c, B*B))^2", "B"),
        ("dot(kronsum(S, B), kronsum(S, B)*kronsum(S, B))", "B"),
        ("dot(kronsum(S, B), kronsum(S, B)*kronsum(S, B))", "S"),
        ("fro(khatri_rao(A, B*A'*A))^2", "A"),
        ("fro(khatri_rao(A*B, B))^2", "B"),
        ("fro(pinv(A))^2", "A"),
        ("sum(pinv(A'))", "A"),
        ("dot(pinv(S), P)", "S"),
        ("nuclear(A)", "A"),
        ("nuclear(A')^2", "A"),
        ("dot(sqrtm(A'*A), B + B')", "A"),
        ("lambda_sym(A'*A)", "A"),
        ("trace(S^n)", "S"),
    ],
)
def test_gradients_agree_with_automatic_differentiation(text: str, name: str) -> None:
    found = values(11)
    env = environment(found, sizes=SIZES)
    gradient = derivative(typed(f"grad({text}, {name})"), env)
    assert env.notes.estimated == {}
    assert informed(gradient)
    names = floats(found)
    x = names.variables[name].clone().requires_grad_()
    moved = TensorNames({**names.variables, name: x}, SIZES, {}, None, names.like)
    (plain,) = torch.autograd.grad(tensor_value(typed(text), moved).reshape(()), x)
    assert distance(gradient, plain) <= 1e-11 * float(torch.linalg.vector_norm(plain))
    assert isinstance(gradient, Matrix)
    assert gradient.ball.radius <= 1e-9 * float(torch.linalg.vector_norm(plain))


def test_jacobians_of_pieces() -> None:
    env = environment(values(3), sizes=SIZES)
    for text in ("jac(A{2..n, :}, A)", "jac([A, v], A)", "jac(kronsum(S, B), B)"):
        found = derivative(typed(text), env)
        assert isinstance(found, Matrix)
        assert found.ball.radius == 0
        assert set(found.ball.centre.flatten().tolist()) == {0.0, 1.0}


def test_a_zero_in_another_entry_is_no_kink() -> None:
    v = torch.tensor([[1.0], [0.0], [-1.0]], dtype=torch.float64)
    env = environment({"v": v}, sizes=SIZES)
    found = derivative(parse("grad(relu(v){1}, v)"), env)
    assert isinstance(found, Matrix)
    assert found.ball.centre.flatten().tolist() == [1.0, 0.0, 0.0]
    with pytest.raises(OutsideClaimError):
        derivative(parse("grad(relu(v){2}, v)"), environment({"v": v}, sizes=SIZES))


def test_there_is_no_derivative_where_a_rank_changes_or_a_value_is_not_simple() -> None:
    ones, eye = torch.ones(2, 2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    for text, a in (
        ("grad(fro(pinv(A))^2, A)", ones),
        ("grad(nuclear(A), A)", ones),
        ("grad(lambda_sym(A*A'), A)", eye),
        ("grad(trace(sqrtm(A*A')), A)", ones),
    ):
        with pytest.raises(OutsideClaimError):
            derivative(parse(text), environment({"A": a}))


# --- limits ---------------------------------------------------------------------------------------------------------


def test_large_sizes_are_refused_before_anything_is_formed() -> None:
    env = environment({"A": randn(200, 200, seed=1)}, sizes={"n": 200})
    for text in (
        "kronsum(A, A)",
        "khatri_rao(kron(A, ones(200, 1)), kron(A, ones(200, 1)))",
        "blockdiag(kron(A, A), A)",
    ):
        with pytest.raises(LimitError):
            value_of(text, env)
        names = TensorNames({"A": randn(200, 200, seed=1)}, {"n": 200}, {}, None, torch.zeros((), dtype=torch.float64))
        if "kron(" not in text:
            with pytest.raises(LimitError):
                tensor_value(parse(text), names)
    assert isinstance(value_of("kronsum(I(n), I(n))", env), Matrix)  # which is diagonal


def test_large_powers_of_a_step_are_refused() -> None:
    env = environment({"A": randn(2, 2, seed=1)})
    with pytest.raises(LimitError, match=r"goes from -1000 to 1000\. Got 1001"):
        evaluate(parse("A^k"), env, {"k": 1001})


def test_an_index_outside_is_said_at_the_instance() -> None:
    env = environment({"A": randn(2, 2, seed=1)}, sizes={"p": 3})
    with pytest.raises(OutsideClaimError, match="rows 3 to 3 and columns 1 to 1 of a matrix of 2 x 2"):
        value_of("A{p, 1}", env)
    names = TensorNames({"A": randn(2, 2, seed=1)}, {"p": 3}, {}, None, torch.zeros((), dtype=torch.float64))
    assert math.isnan(float(tensor_value(parse("A{p, 1}"), names)))
    assert bool(tensor_value(parse("A{:, 2..p}"), names).isnan().all())


def test_every_twin_is_complete_but_for_what_no_one_asks_of_it() -> None:
    lacking = {
        (name, part)
        for name, twin in OF_MATRICES.items()
        for part in ("exact", "pull", "magnitude")
        if getattr(twin, part) is None
    }
    constant = {(name, part) for name in ("I", "zeros", "ones", "commutation") for part in ("pull", "magnitude")}
    # A rank is constant wherever it has a derivative; its size, and that of a root, is what it is computed from.
    sized = {("rank", "pull"), ("rank", "magnitude"), ("sqrtm", "magnitude")}
    # Exponentials are no algebraic numbers, and no share is larger than 1.
    shares = {("softmax", "exact"), ("softmax", "magnitude")}
    # The vectors of a general matrix have no enclosure: derivatives of its eigenvalues are estimates.
    spectral = {(name, "pull") for name in ("lambda_max", "lambda_min", "rho")}
    assert lacking == constant | sized | shares | spectral


def test_powers_with_a_step_in_the_exponent() -> None:
    a = randn(2, 2, seed=4)
    names = TensorNames({"A": a}, {}, {}, None, torch.zeros((), dtype=torch.float64), batch=(3,))
    names.cache["k"] = torch.tensor([2.0, 0.0, 2.0], dtype=torch.float64)
    found = tensor_value(parse("A^(k + 1)"), names)
    for k, degree in enumerate((3, 1, 3)):
        assert torch.allclose(found[k], torch.linalg.matrix_power(a, degree))


# --- NumPy ----------------------------------------------------------------------------------------------------------


class _Bare(Printer):
    def name(self, name: str) -> Code:
        type_ = TYPES[name]
        return Code(name, () if type_ == SCALAR else (type_.rows.evaluate(SIZES), type_.cols.evaluate(SIZES)))

    def special(self, expr: object) -> Code:
        raise NotImplementedError

    def size(self, name: str) -> int:
        return SIZES[name]


@pytest.mark.parametrize("text", TEXTS)
def test_numpy_code_gives_the_values(text: str, tmp_path: Path) -> None:
    found = values(2)
    code = _Bare().code(typed(text))
    known = {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in found.items()}
    script = tmp_path / "script.py"
    script.write_text(f"value = {code.text}\n")
    value = runpy.run_path(str(script), {"np": np, "sqrtm": _root, **known})["value"]
    plain = tensor_value(typed(text), floats(found)).numpy()
    assert np.allclose(value, plain, rtol=1e-10, atol=1e-12)
    assert np.shape(value) == code.shape


# --- verdicts -------------------------------------------------------------------------------------------------------

SETTINGS = '  s: {sizes: {n: 2..3, m: 2..4}, domain: {A: "real[n, m]", S: "symmetric[n, n]", B: "real[n, n]"}}'


def test_the_order_of_what_may_be_symmetric_is_well_formed(tmp_path: Path) -> None:
    settings = (
        SETTINGS
        + """
  one: {sizes: {n: 1}, domain: {B: "real[n, n]"}}"""
    )
    claims = """
  - {id: one, setting: one, conclude: "B{1, 1} < 0 or psd(B)"}
  - {id: weak, setting: s, assume: "norm(B - B') <= 0", conclude: "lambda_min(B) < 0 or psd(B)"}
  - {id: defined, setting: s, let: {D: "B - B'"}, assume: "D == zeros(n, n)", conclude: "lambda_min(B) < 0 or psd(B)"}
  - {id: small, setting: s, assume: "norm(B) <= 1", conclude: "lambda_min(B) < 0 or psd(B)"}
"""
    found = judge_all(tmp_path, claims, settings, search=0)
    assert found["one"].verdict.value == "holds"
    assert found["weak"].verdict.value != "ill-formed"
    assert found["defined"].verdict.value == "holds"
    assert found["small"].verdict.value == "ill-formed"


def test_verdicts(tmp_path: Path) -> None:
    claims = """
  - {id: entries, setting: s, conclude: "A{1, 1}^2 <= fro(A{1, :})^2 <= fro(A)^2"}
  - {id: entries-mutant, setting: s, conclude: "A{1, 1}^2 >= fro(A{1, :})^2"}
  - {id: blocks, setting: s, conclude: "norm([A, B]) >= norm(A)"}
  - {id: nuclear, setting: s, conclude: "fro(A) <= nuclear(A) <= sqrt(n)*fro(A)"}
  - {id: nuclear-mutant, setting: s, conclude: "nuclear(A) <= fro(A)"}
  - {id: order, setting: s, conclude: "psd(A*A') and psd(S^2)"}
  - {id: order-mutant, setting: s, conclude: "psd(S)"}
  - {id: order-none, setting: s, conclude: "psd(B)"}
  - {id: rank, setting: s, conclude: "rank(A) <= n"}
  - {id: rank-mutant, setting: s, conclude: "rank(A) == n"}
  - {id: outside, setting: s, conclude: "A{1, 5} <= norm(A)"}
"""
    found = judge_all(tmp_path, claims, SETTINGS, search=50)
    verdicts = {name: result.verdict.value for name, result in found.items()}
    assert verdicts == {
        "entries": "holds",
        "entries-mutant": "refuted",
        "blocks": "holds",
        "nuclear": "holds",
        "nuclear-mutant": "refuted",
        "order": "holds",
        "order-mutant": "refuted",
        "order-none": "ill-formed",
        "rank": "holds",
        "rank-mutant": "refuted",
        "outside": "ill-formed",
    }
