"""Equilibria and gradients of the registered models in exact rational arithmetic, independent of the package."""

from dataclasses import dataclass
from fractions import Fraction

import torch
from flint import arb, fmpq, fmpq_mat

from ntk_deq import certified as ct
from ntk_deq.evaluation.quantity import Matrix


def matrix(tensor: torch.Tensor) -> fmpq_mat:
    """Return the rational matrix that floats are; a vector becomes a column."""
    wide = tensor.reshape(tensor.shape[0], -1) if tensor.ndim else tensor.reshape(1, 1)
    ratios = [Fraction(x) for x in wide.flatten().tolist()]
    return fmpq_mat(wide.shape[0], wide.shape[1], [fmpq(r.numerator, r.denominator) for r in ratios])


def eye(n: int) -> fmpq_mat:
    return fmpq_mat(n, n, [fmpq(int(i == j)) for i in range(n) for j in range(n)])


def relu(a: fmpq_mat) -> fmpq_mat:
    return fmpq_mat(a.nrows(), a.ncols(), [x if x > 0 else fmpq(0) for x in a.entries()])


def outside(value: Matrix, truth: fmpq_mat) -> bool:
    """Whether a rational matrix certainly lies outside of a ball."""
    assert value.ball.shape == (truth.nrows(), truth.ncols())
    if not value.ball.is_finite:
        return False
    assert isinstance(value.ball, ct.Ball)
    centre = matrix(value.ball.centre.double())
    squares = sum((x * x for x in (centre - truth).entries()), fmpq(0))
    radius = Fraction(value.ball.radius)
    return squares > fmpq(radius.numerator, radius.denominator) ** 2


def size(a: fmpq_mat) -> float:
    return float(arb(sum((x * x for x in a.entries()), fmpq(0))).sqrt().mid())


@dataclass(frozen=True)
class Truth:
    """Equilibrium, prediction, and (away from kinks) the gradients of L = norm(yhat - y)^2/2, all exact."""

    Z: fmpq_mat
    yhat: fmpq_mat
    gradients: dict[str, fmpq_mat]
    kink: bool = False  # an argument of relu is exactly zero


def linear_truth(values: dict[str, torch.Tensor]) -> Truth:
    """Z = X U'(I - W')^-1; with g = (I - W')^-1 b, r = yhat - y: dL = r'(Z dW' + X dU')g + r'Z db."""
    W, U, b, X, y = (matrix(values[name]) for name in ("W", "U", "b", "X", "y"))
    inverse = (eye(W.nrows()) - W.transpose()).inv()
    Z = X * U.transpose() * inverse
    yhat = Z * b
    residual, g = yhat - y, inverse * b
    gradients = {
        "W": g * (residual.transpose() * Z),
        "U": g * (residual.transpose() * X),
        "b": Z.transpose() * residual,
    }
    return Truth(Z, yhat, gradients)


def relu_truth(values: dict[str, torch.Tensor]) -> Truth:
    """Guess each row's active set from a float solve, solve the linear system on it, and check the signs exactly."""
    W, A, b, X, y = (matrix(values[name]) for name in ("W", "A", "b", "X", "y"))
    gamma = matrix(values["gamma"].reshape(1, 1))[0, 0]
    m = A.nrows()
    phi = relu(X * W)
    state = torch.zeros(X.nrows(), m, dtype=torch.float64)
    plain_phi = torch.relu(values["X"] @ values["W"])
    for _ in range(20_000):
        state = torch.relu(values["gamma"] * state @ values["A"] + plain_phi)
    active = values["gamma"] * state @ values["A"] + plain_phi > 0
    rows, adjoints = [], []
    kink = any(x == 0 for x in (X * W).entries())
    for n in range(X.nrows()):
        D = fmpq_mat(m, m, [fmpq(int(i == j and bool(active[n, i]))) for i in range(m) for j in range(m)])
        inverse = (eye(m) - gamma * A * D).inv()  # z = z gamma A D + phi D
        z = fmpq_mat(1, m, [phi[n, j] for j in range(m)]) * D * inverse
        pre = gamma * z * A + fmpq_mat(1, m, [phi[n, j] for j in range(m)])
        assert all((pre[0, j] > 0) == bool(active[n, j]) for j in range(m)), "the active set is wrong"
        kink = kink or any(x == 0 for x in pre.entries())
        rows.append(list(z.entries()))
        adjoints.append(list((D * inverse * b).entries()))  # d yhat_n / d phi_n
    Z = fmpq_mat(X.nrows(), m, [x for row in rows for x in row])
    G = fmpq_mat(X.nrows(), m, [x for row in adjoints for x in row])
    yhat = Z * b
    residual = yhat - y
    weighted = fmpq_mat(G.nrows(), m, [residual[n, 0] * G[n, j] for n in range(G.nrows()) for j in range(m)])
    inputs = X * W
    masked = fmpq_mat(
        G.nrows(), m, [weighted[n, j] if inputs[n, j] > 0 else fmpq(0) for n in range(G.nrows()) for j in range(m)]
    )
    gradients = {
        "W": X.transpose() * masked,
        "A": gamma * (Z.transpose() * weighted),
        "b": Z.transpose() * residual,
    }
    return Truth(Z, yhat, gradients, kink)


def linear_values(N: int, d: int, m: int, *, norm: float, seed: int) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    W, U, b, X, y = (
        torch.randn(*s, generator=g, dtype=torch.float64) for s in ((m, m), (m, d), (m, 1), (N, d), (N, 1))
    )
    return {"W": W * (norm / torch.linalg.matrix_norm(W, 2)), "U": U, "b": b, "X": X, "y": y}


def relu_values(N: int, d: int, m: int, *, norm: float, seed: int) -> dict[str, torch.Tensor]:
    """Return values with gamma norm(A) = `norm`."""
    g = torch.Generator().manual_seed(seed)
    W, A, b, X, y = (
        torch.randn(*s, generator=g, dtype=torch.float64) for s in ((d, m), (m, m), (m, 1), (N, d), (N, 1))
    )
    gamma = torch.rand((), generator=g, dtype=torch.float64) * 0.8 + 0.1
    return {"W": W, "A": A * (norm / gamma / torch.linalg.matrix_norm(A, 2)), "b": b, "gamma": gamma, "X": X, "y": y}


MODELS = {"linear-implicit": (linear_values, linear_truth), "implicit-relu": (relu_values, relu_truth)}
