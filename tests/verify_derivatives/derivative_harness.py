"""Derivatives at 2000 bits: an evaluator of the language of its own, differentiated by central differences."""

import flint
import torch
from flint import arb, arb_mat

from ntk_deq.certified import Ball, ball, exact
from ntk_deq.evaluation.derivatives.derivative import PROVIDERS, derivative
from ntk_deq.evaluation.environment import Environment, Notes
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.declaration import model_signature
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import Expr, Kind

BITS = 2000
STEP = -400
"""A central difference with step 2^-400 of the entry errs by about 2^-800 of the third derivative, and by 2^-1600 of
the value from rounding: both far below 2^-53, even where a derivative is 1e-100 of what it is made of."""

Value = arb | arb_mat


def environment(
    variables: dict[str, torch.Tensor | float],
    *,
    model: str | None = None,
    sizes: dict[str, int] | None = None,
    radius: float = 0.0,
) -> Environment:
    """Return an environment with exact variables, or with balls around them."""
    values: dict[str, Scalar | Matrix] = {}
    for name, value in variables.items():
        if isinstance(value, torch.Tensor):
            values[name] = Matrix(ball(value, radius), float(torch.linalg.vector_norm(value)))
        else:
            values[name] = Scalar(exact(value), abs(value))
    return Environment(model_signature(model) if model else None, sizes or {}, values, {}, Notes(), PROVIDERS)


def certified(text: str, env: Environment) -> Scalar | Matrix:
    """Evaluate a derivative in balls; fail where it had to be estimated."""
    result = derivative(parse(text), env)
    assert env.notes.estimated == {}
    return result


def _matrix(value: torch.Tensor) -> arb_mat:
    wide = value.reshape(value.shape[0], -1).double()
    return arb_mat(wide.shape[0], wide.shape[1], [arb(x) for x in wide.flatten().tolist()])


def _shape(a: arb_mat) -> tuple[int, int]:
    return int(a.nrows()), int(a.ncols())


def _map(function, *matrices: arb_mat) -> arb_mat:
    rows, cols = _shape(matrices[0])
    return arb_mat(rows, cols, [function(*xs) for xs in zip(*(m.entries() for m in matrices), strict=True)])


def _number(value: Value) -> arb:
    return value if isinstance(value, arb) else value[0, 0]


def _relu(x: arb) -> arb:
    return x if float(x.mid()) > 0 else arb(0)


def _singular(a: arb_mat, index: int) -> arb:
    """Return a singular value by Newton's method on det(A'A - x I), started from the float value."""
    if a.nrows() < a.ncols():
        a = a.transpose()
    n = int(a.ncols())
    gram = a.transpose() * a
    floats = torch.tensor([[float(gram[i, j].mid()) for j in range(n)] for i in range(n)], dtype=torch.float64)
    x = arb(float(torch.linalg.eigvalsh(floats).flip(0)[index]))
    for _ in range(12):  # the error is squared each time: 2^-20 to below 2^-2000
        polynomial = gram.charpoly()
        x = (x - polynomial(x) / polynomial.derivative()(x)).mid()
    return x.sqrt()


def _kron(a: arb_mat, b: arb_mat) -> arb_mat:
    (p, q), (r, s) = _shape(a), _shape(b)
    return arb_mat(p * r, q * s, [a[i // r, j // s] * b[i % r, j % s] for i in range(p * r) for j in range(q * s)])


def _vec(a: arb_mat) -> arb_mat:
    rows, cols = _shape(a)
    return arb_mat(rows * cols, 1, [a[i, j] for j in range(cols) for i in range(rows)])


def _diag(a: arb_mat) -> arb_mat:
    rows, cols = _shape(a)
    if cols == 1:
        return arb_mat(rows, rows, [a[i, 0] if i == j else arb(0) for i in range(rows) for j in range(rows)])
    return arb_mat(rows, 1, [a[i, i] for i in range(rows)])


def _total(a: arb_mat) -> arb:
    return sum(a.entries(), arb(0))


def _length(a: Value) -> arb:
    return abs(a) if isinstance(a, arb) else _total(_map(lambda x: x * x, a)).sqrt()


def _norm(a: Value) -> arb:
    return _length(a) if isinstance(a, arb) or 1 in _shape(a) else _singular(a, 0)


def _columns(a: arb_mat) -> list[arb]:
    return [sum((abs(a[i, j]) for i in range(a.nrows())), arb(0)) for j in range(a.ncols())]


def _largest(values: list[arb]) -> arb:
    return max(values, key=lambda x: float(x.mid()))


def _entries(args: list[Value]) -> list[arb]:
    return list(args[0].entries()) if len(args) == 1 and isinstance(args[0], arb_mat) else [_number(a) for a in args]


def _each(function):
    return lambda a: _map(function, a) if isinstance(a, arb_mat) else function(a)


def _filled(value: int):
    return lambda rows, cols=None: arb_mat(
        _whole(rows),
        1 if cols is None else _whole(cols),
        [value] * _whole(rows) * (1 if cols is None else _whole(cols)),
    )


def _whole(x: arb) -> int:
    return int(float(x.mid()))


def _unit(n: arb) -> arb_mat:
    return _diag(_filled(1)(n))


FUNCTIONS = {
    "I": _unit,
    "abs": _each(abs),
    "det": lambda a: a.det(),
    "diag": _diag,
    "dot": lambda a, b: _total(_map(lambda x, y: x * y, a, b)),
    "exp": lambda a: _number(a).exp(),
    "fro": _length,
    "hadamard": lambda a, b: _map(lambda x, y: x * y, a, b),
    "inv": lambda a: a.inv(),
    "kron": _kron,
    "log": lambda a: _number(a).log(),
    "max": lambda *args: _largest(_entries(list(args))),
    "min": lambda *args: -_largest([-x for x in _entries(list(args))]),
    "norm": _norm,
    "norm1": lambda a: _largest(_columns(a)),
    "norminf": lambda a: _largest(_columns(a.transpose())),
    "ones": _filled(1),
    "relu": _each(_relu),
    "sigma_max": lambda a: _singular(a, 0),
    "sigma_min": lambda a: _singular(a, -1),
    "sqrt": lambda a: _number(a).sqrt(),
    "step": _each(lambda x: arb(1) if float(x.mid()) > 0 else arb(0)),
    "sum": lambda a: a if isinstance(a, arb) else _total(a),
    "trace": lambda a: _total(_diag(a)),
    "vec": _vec,
    "zeros": _filled(0),
}


def _multiply(left: Value, right: Value) -> Value:
    if isinstance(left, arb_mat) and isinstance(right, arb_mat) and left.ncols() == right.nrows():
        return left * right
    if isinstance(left, arb) or (isinstance(right, arb_mat) and _shape(left) == (1, 1)):
        factor = _number(left)
        return right * factor if isinstance(right, arb) else _map(lambda x: x * factor, right)
    return _multiply(_number(right), left)


def _power(base: Value, exponent: Value) -> Value:
    if isinstance(base, arb_mat) and _shape(base) != (1, 1):
        degree = _whole(_number(exponent))
        return base**degree if degree >= 0 else base.inv() ** -degree
    x, e = _number(base), _number(exponent)
    return x ** _whole(e) if e.is_integer() else (e * x.log()).exp()


def _sum(left: Value, right: Value) -> Value:
    if isinstance(left, arb) or isinstance(right, arb):
        return _number(left) + _number(right)
    return left + right


OPERATORS = {
    Kind.NEGATE: lambda a: a * -1,
    Kind.ADD: _sum,
    Kind.SUBTRACT: lambda a, b: _sum(a, b * -1),
    Kind.MULTIPLY: _multiply,
    Kind.DIVIDE: lambda a, b: _multiply(1 / _number(b), a),
    Kind.POWER: _power,
    Kind.TRANSPOSE: lambda a: a.transpose(),
}


def _pattern(b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Return where the solution of z = relu(z b + c) is positive: solve for a pattern, and take the one that it has."""
    size, pattern = b.shape[0], (c > 0).double()
    for _ in range(100):
        systems = torch.eye(size, dtype=b.dtype) - b * pattern[:, None, :]
        z = torch.linalg.solve(systems, (c * pattern)[:, None, :], left=False)[:, 0, :]
        fresh = (z @ b + c > 0).double()
        if torch.equal(fresh, pattern):
            return pattern
        pattern = fresh
    raise AssertionError("no pattern of the equilibrium repeats itself")


class Truth:
    """The language at `BITS` bits on one instance; equilibria by elimination, with the pattern of the float one."""

    def __init__(self, env: Environment, values: dict[str, Value] | None = None, state: arb_mat | None = None) -> None:
        self.env = env
        self.values = values or {
            name: v.ball.mid() if isinstance(v, Scalar) else _matrix(v.ball.centre) for name, v in env.variables.items()
        }
        self.state = state

    def value(self, expr: Expr) -> Value:
        """Return the value of an expression."""
        if expr.kind is Kind.NUMBER:
            return arb(flint.fmpq(expr.value.numerator, expr.value.denominator))
        if expr.kind is Kind.NAME:
            return self._name(expr.name)
        if expr.kind is Kind.INDEX:
            return self._iterate(int(expr.args[0].value))
        if expr.kind is Kind.AT:
            moved = {name: self.value(arg) for name, arg in zip(expr.names, expr.args[1:], strict=True)}
            return Truth(self.env, {**self.values, **moved}).value(expr.args[0])
        args = [self.value(arg) for arg in expr.args]
        if expr.kind is not Kind.CALL:
            return OPERATORS[expr.kind](*args)
        if expr.name == "next":
            return Truth(self.env, self.values, args[0]).value(self.env.formulas.map)
        if expr.name == "fixed_point":
            return self._equilibrium()
        return FUNCTIONS[expr.name](*args)

    def _name(self, name: str) -> Value:
        if name in self.values:
            return self.values[name]
        if name in self.env.sizes:
            return arb(self.env.sizes[name])
        formulas = self.env.formulas
        if name == formulas.state:
            return self._equilibrium() if self.state is None else self.state
        return self.value(formulas.definitions[name])

    def _iterate(self, step: int) -> arb_mat:
        state = _filled(0)(arb(self.env.sizes["N"]), arb(self.env.sizes["m"]))
        for _ in range(step):
            state = Truth(self.env, self.values, state).value(self.env.formulas.map)
        return state

    def _equilibrium(self) -> arb_mat:
        """Solve Z = S .* (Z B + C), row by row, for the 0-1 pattern S of the float solution."""
        if self.env.model.name == "linear-implicit":
            factor, constant = self.values["W"].transpose(), self.values["X"] * self.values["U"].transpose()
            bend = False
        else:
            factor, constant = _multiply(self.values["gamma"], self.values["A"]), self._name("Phi")
            bend = True
        size, (rows, _) = int(factor.nrows()), _shape(constant)
        b = torch.tensor([float(x.mid()) for x in factor.entries()], dtype=torch.float64).reshape(size, size)
        c = torch.tensor([float(x.mid()) for x in constant.entries()], dtype=torch.float64).reshape(rows, size)
        pattern = _pattern(b, c) if bend else torch.ones_like(c)
        found = []
        for i in range(rows):
            mask = _diag(_matrix(pattern[i : i + 1].mT))
            system = (_unit(arb(size)) - factor * mask).transpose()
            forcing = arb_mat(1, size, [constant[i, j] for j in range(size)]) * mask
            found += system.solve(forcing.transpose()).entries()
        return arb_mat(rows, size, found)

    def derivative(self, text: str) -> arb_mat:
        """Return grad (in the shape of the variable) or jac by central differences."""
        expr = parse(text)
        inner, name = expr.args[0], expr.args[1].name
        origin = self.values[name]
        entries = [origin] if isinstance(origin, arb) else origin.entries()
        shape = (1, 1) if isinstance(origin, arb) else _shape(origin)
        columns = [self._difference(inner, name, entries, shape, k) for k in range(len(entries))]
        if expr.name == "grad":
            return arb_mat(*shape, [column[0] for column in columns])
        order = [i * shape[1] + j for j in range(shape[1]) for i in range(shape[0])]
        return arb_mat(len(columns[0]), len(columns), [columns[k][r] for r in range(len(columns[0])) for k in order])

    def _difference(self, inner: Expr, name: str, entries: list[arb], shape: tuple[int, int], place: int) -> list[arb]:
        largest = max(float(abs(x).mid()) for x in entries)
        step = arb(largest or 1.0) * arb(2) ** STEP
        ends = []
        for sign in (1, -1):
            moved = [x + sign * step if k == place else x for k, x in enumerate(entries)]
            value = moved[0] if isinstance(self.values[name], arb) else arb_mat(*shape, moved)
            result = Truth(self.env, {**self.values, name: value}).value(inner)
            ends.append([result] if isinstance(result, arb) else list(_vec(result).entries()))
        return [((up - down) / (2 * step)).mid() for up, down in zip(*ends, strict=True)]


def truth(text: str, env: Environment) -> arb_mat:
    """Return the derivative at the centres of the environment's variables."""
    with flint.ctx.workprec(BITS):
        return Truth(env).derivative(text)


def as_ball(value: Scalar | Matrix) -> Ball:
    """Return a derivative as a matrix ball."""
    if isinstance(value, Matrix):
        return value.ball
    mid = torch.tensor([[float(value.ball.mid())]], dtype=torch.float64)
    return Ball(mid, float((abs(value.ball.mid() - float(mid)) + value.ball.rad()).upper()) * (1 + 2.0**-50))


def excess(value: Scalar | Matrix, true: arb_mat) -> float:
    """Return the distance of the truth to the centre over the radius: more than 1 where the ball misses it.

    The truth may itself err by 2^-300 of the centre's norm.
    """
    ball = as_ball(value)
    with flint.ctx.workprec(BITS):
        distance = _length(true - _matrix(ball.centre))
        slack = _length(_matrix(ball.centre)) * arb(2) ** -300
        if not ball.is_finite or distance <= slack:
            return 0.0
        return float("inf") if ball.radius == 0 else float(((distance - slack) / arb(ball.radius)).mid())


def relative_radius(value: Scalar | Matrix) -> float:
    """Return the radius over the norm of the centre."""
    ball = as_ball(value)
    return ball.radius / ball.fro if ball.fro else float("inf") if ball.radius else 0.0


def random_matrix(rows: int, cols: int, seed: int) -> torch.Tensor:
    """Return a Gaussian matrix."""
    return torch.randn(rows, cols, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
