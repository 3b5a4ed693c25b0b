"""How far predictions move with inputs: a certified upper bound of the Lipschitz constant, and a lower one by ascent.

The upper bound follows the formulas: a product counts with its matrix' norm, a function with its largest slope, and an
equilibrium with 1/(1 - q), where q bounds the map in the state; for z = act(W z + c) with I - W >= m I it counts with
1/m. Norms are balls of the exact floats of the parameters, added and multiplied upwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified import scalar as sc
from ntk_deq.certified.arithmetic import add, scale
from ntk_deq.certified.dense import Ball, ball, transpose
from ntk_deq.certified.extremes import spectral_norm
from ntk_deq.certified.rounding import add_up, divide_up, multiply_up
from ntk_deq.certified.structured import densified
from ntk_deq.equilibrium.result import html_table, one_line
from ntk_deq.equilibrium.slopes import banach_bound
from ntk_deq.errors import ArgumentError, check_whole
from ntk_deq.evaluation.balls import evaluate, evaluate_scalar
from ntk_deq.evaluation.derivatives.derivative import PROVIDERS
from ntk_deq.evaluation.environment import Environment, Notes
from ntk_deq.evaluation.existence import modulus
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.functions import entrywise_of
from ntk_deq.language.row_program import Op, Row
from ntk_deq.language.tree import Expr
from ntk_deq.systems.checks import check_inputs, check_model
from ntk_deq.systems.formula_model import FormulaModel
from ntk_deq.systems.model import EquilibriumModel
from ntk_deq.systems.solve import predict

_STEPS = (1.0, 0.25, 2.0**-6, 2.0**-10)  # lengths of the pairs that are tried, over the size of the inputs


@dataclass(frozen=True, eq=False, repr=False)
class LipschitzBounds:
    """Bounds of the Lipschitz constant of the predictions of one sample in its input, both in the Euclidean norm.

    Attributes:
        lower: What a pair of inputs attains, less what its two predictions may be off.
        upper: A certified bound, for all inputs; infinite where none is known.
        pair: The two inputs, as columns of what the model takes, or its rows.
        slope: The largest norm of a derivative that the ascent met, in floats.
        how: What the upper bound rests on, or why there is none.
        model: The model's name.
    """

    lower: float
    upper: float
    pair: tuple[Tensor, Tensor]
    slope: float
    how: str
    model: str

    @property
    def ratio(self) -> float:
        """Upper over lower bound."""
        return self.upper / self.lower if self.lower > 0 else math.inf

    def _facts(self) -> dict[str, object]:
        return {
            "model": self.model,
            "lower": f"{self.lower:.6g}",
            "upper": f"{self.upper:.6g}",
            "ratio": f"{self.ratio:.4g}",
            "upper bound": self.how,
        }

    def __repr__(self) -> str:
        return one_line("LipschitzBounds", self._facts())

    def _repr_html_(self) -> str:
        return html_table("Lipschitz constant of the predictions", self._facts())


def lipschitz_bounds(
    model: EquilibriumModel,
    X: Float[Tensor, "_ _"],
    *,
    box: tuple[float, float] | None = None,
    rounds: int = 20,
    seed: int = 0,
) -> LipschitzBounds:
    """Return bounds of the Lipschitz constant of x -> yhat(x).

    The upper bound holds for all inputs. The lower one is the quotient of a pair: from the given inputs, derivatives
    are looked for that are longer by an ascent with random steps, and the pair lies along the longest.

    Args:
        model: The model.
        X: Inputs from which the ascent starts, as the model declares them.
        box: Lowest and highest value of every entry of an input that the ascent may come to; None: anywhere.
        rounds: Steps of the ascent, >= 0.
        seed: Of its random steps.

    Raises:
        ArgumentError: X does not fit the model, or an argument is out of range.
        EquilibriumError: An equilibrium was not found.

    Example:
        >>> from ntk_deq.systems import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> found = lipschitz_bounds(LinearImplicit(W=one / 2, U=one, b=3 * one[0]), one)  # 6 x
        >>> round(found.lower, 6), round(found.upper, 6), found.how
        (6.0, 6.0, 'monotone 0.5')
    """
    check_model(model, "lipschitz_bounds")
    check_inputs(model, X)
    check_whole(rounds, "rounds", "lipschitz_bounds", 0)
    check_whole(seed, "seed", "lipschitz_bounds", 0)
    if box is not None and not (
        isinstance(box, tuple | list)
        and len(box) == 2
        and all(isinstance(end, Real) for end in box)
        and -math.inf < box[0] < box[1] < math.inf
    ):
        raise ArgumentError(f"`box` of lipschitz_bounds must be two finite numbers, low < high. Got {box!r}.")
    upper, how = _upper(model)
    rows = model.input_rows(X).detach().clone()
    rows = rows if box is None else rows.clamp(*box)
    best, slope, direction = _ascent(model, rows, box, rounds, torch.Generator().manual_seed(seed))
    lower, pair = _quotient(model, best, direction, box)
    return LipschitzBounds(lower, upper, pair, slope, how, model.signature.name)


def _ascent(
    model: EquilibriumModel,
    rows: Float[Tensor, "N d"],
    box: tuple[float, float] | None,
    rounds: int,
    generator: torch.Generator,
) -> tuple[Float[Tensor, " d"], float, Float[Tensor, " d"]]:
    """Return the input with the longest derivative that was met, its norm, and the direction that is stretched most."""
    here, longest, directions = rows, *_slopes(model, rows)
    size = float(rows.abs().max()) or 1.0
    for count in range(rounds):
        reach = size * 2.0 ** (-count % 5)
        moved = here + reach * torch.randn(here.shape, generator=generator, dtype=torch.float64).to(here)
        moved = moved if box is None else moved.clamp(*box)
        found, ways = _slopes(model, moved)
        longer = found > longest
        here = torch.where(longer[:, None], moved, here)
        directions, longest = torch.where(longer[:, None], ways, directions), torch.where(longer, found, longest)
    place = int(longest.argmax())
    return here[place], float(longest[place]), directions[place]


def _slopes(model: EquilibriumModel, rows: Float[Tensor, "N d"]) -> tuple[Tensor, Tensor]:
    """Return the norm of each sample's derivative, and the direction of the input that is stretched most."""

    def outputs(inputs: Tensor) -> Tensor:
        found = model.target_rows(predict(model, model.inputs_of(inputs), solver="anderson"))
        return found[:, None] if found.ndim == 1 else found

    linear = torch.func.vjp(outputs, rows)
    value, pull = linear[0], linear[1]
    units = torch.eye(value.shape[1], dtype=value.dtype, device=value.device)
    jacobians = torch.stack([pull(unit.expand_as(value).contiguous())[0].detach() for unit in units], dim=1)
    if jacobians.shape[1] == 1:
        norms = torch.linalg.vector_norm(jacobians[:, 0], dim=1)
        return norms, jacobians[:, 0] / norms.clamp(min=torch.finfo(rows.dtype).tiny)[:, None]
    _, sizes, right = torch.linalg.svd(jacobians, full_matrices=False)
    return sizes[:, 0], right[:, 0]


def _quotient(
    model: EquilibriumModel, at: Float[Tensor, " d"], direction: Float[Tensor, " d"], box: tuple[float, float] | None
) -> tuple[float, tuple[Tensor, Tensor]]:
    """Return the largest quotient of a pair along a direction, less what the predictions may be off."""
    size = float(at.abs().max()) or 1.0
    lower, pair = 0.0, (at, at)
    for length in _STEPS:
        ends = torch.stack([at, at + length * size * direction])
        ends = ends if box is None else ends.clamp(*box)
        apart = float(torch.linalg.vector_norm(ends[1] - ends[0]))
        if not apart > 0:
            continue
        errors: list[Tensor] = []
        with torch.no_grad():
            values = model.target_rows(predict(model, model.inputs_of(ends), on_error=errors.append, solver="anderson"))
        values = values[:, None] if values.ndim == 1 else values
        known = float(errors[0].sum()) if errors else math.inf
        if not math.isfinite(known):  # predictions without an error bound may be off by a million roundings
            known = 1e6 * torch.finfo(values.dtype).eps * float(values.abs().max())
        reached = (float(torch.linalg.vector_norm(values[1] - values[0])) - known) / apart
        if reached > lower:
            lower, pair = reached, (ends[0], ends[1])
    return lower, pair


def _upper(model: EquilibriumModel) -> tuple[float, str]:
    """Return the upper bound and what it rests on."""
    if not isinstance(model, FormulaModel):
        return math.inf, f"none: {model.signature.name} has no formulas to read it off"
    norms = _Norms(model)
    rows = model.programs.rows
    read = norms.constants(rows.predictions)
    if rows.map is None or read[0] == 0:
        return read[1], "product of norms"
    image = norms.constants(rows.map)
    by_input, how = norms.equilibrium(rows.map, image)
    return add_up(multiply_up(read[0], by_input) if by_input else 0.0, read[1]), how


class _Norms:
    """Lipschitz constants of row programs in state and inputs, upwards.

    Args:
        model: The model.
    """

    def __init__(self, model: FormulaModel) -> None:
        self._model, signature = model, model.signature
        values = {variable.name: getattr(model, variable.name, None) for variable in signature.variables}
        variables: dict[str, Scalar | Matrix] = {}
        for name, value in values.items():
            if isinstance(value, Tensor):
                own = value.detach().double()
                size = float(torch.linalg.vector_norm(own))
                known = Scalar(sc.exact(float(own)), size) if own.ndim == 0 else Matrix(ball(own), size)
                variables[name] = known
        self._environment = Environment(signature, model.sizes, variables, {}, Notes(), PROVIDERS)

    def _ball(self, expr: Expr) -> Ball:
        value = evaluate(expr, self._environment)
        if isinstance(value, Matrix):
            found: Ball = densified(value.ball)
            return found
        return ball(torch.tensor([[float(self._number(expr))]], dtype=torch.float64))

    def _number(self, expr: Expr) -> float:
        """Return an upper bound of the size of a number."""
        return sc.upper(abs(evaluate_scalar(expr, self._environment).ball))

    def constants(self, root: Row) -> tuple[float, float]:
        """Return the Lipschitz constants of a program in the state and in the inputs."""
        known: dict[Row, tuple[float, float]] = {}
        for step in root.steps():
            known[step] = self._constants(step, [known[arg] for arg in step.args])
        return known[root]

    def _constants(self, step: Row, args: list[tuple[float, float]]) -> tuple[float, float]:
        match step.op:
            case Op.STATE:
                return 1.0, 0.0
            case Op.INPUT:
                return 0.0, 1.0
            case Op.CONSTANT:
                return 0.0, 0.0
            case Op.SUM:
                return _sum([a for a, _ in args]), _sum([b for _, b in args])
            case Op.PRODUCT:
                factor = sc.upper(spectral_norm(self._ball(step.fixed[0])))
            case Op.SCALE:
                factor = self._number(step.fixed[0])
            case Op.ENTRYWISE:
                facts = entrywise_of(step.name)
                factor = math.inf if facts is None else facts.lipschitz
            case Op.SOFTMAX:
                factor = 0.5
            case _:  # a product of two values, of which nothing bounds either
                state, inputs = (any(arg[place] > 0 for arg in args) for place in (0, 1))
                return math.inf if state else 0.0, math.inf if inputs else 0.0
        return _times(factor, args[0][0]), _times(factor, args[0][1])

    def equilibrium(self, root: Row, image: tuple[float, float]) -> tuple[float, str]:
        """Return the Lipschitz constant of the equilibrium in the inputs, and what it rests on."""
        found: list[tuple[float, str]] = []
        factor = self._model.programs.rows.typed.contraction
        q = image[0]
        if factor is not None and not self._model.signature.monotone:
            q = min(q, self._number(factor))
        if q < 1:
            found.append((banach_bound(image[1], q), f"contraction {q:.6g}"))
        found += self._monotone(root)
        if not found:
            return math.inf, f"none: the map's constant in the state is {q:.6g}, not below one"
        return min(found)

    def _monotone(self, root: Row) -> list[tuple[float, str]]:
        """Return L/m for a map act(W z + c) with I - W >= m I, where L bounds c in the inputs; nothing otherwise."""
        facts = entrywise_of(root.name) if root.op is Op.ENTRYWISE else None
        proximal = facts is not None and facts.proximal
        inside = root.args[0] if proximal else root
        terms = list(zip(inside.args, inside.signs, strict=True)) if inside.op is Op.SUM else [(inside, 1)]
        moving = [(row, sign) for row, sign in terms if row.moving]
        if any(row.op is not Op.PRODUCT or row.args[0].op is not Op.STATE for row, _ in moving):
            return []
        weight: Ball | None = None
        for row, sign in moving:
            own = scale(sc.exact(float(sign)), self._ball(row.fixed[0]))
            own = transpose(own) if row.flipped else own
            weight = own if weight is None else add(weight, own)
        if weight is None:
            return []
        least = sc.lower(modulus(weight))
        if not least > 0:
            return []
        by_input = _sum([self.constants(row)[1] for row, _ in terms if not row.moving])
        return [(divide_up(by_input, least), f"monotone {least:.6g}")]


def _sum(parts: list[float]) -> float:
    return add_up(*parts) if len(parts) > 1 else parts[0] if parts else 0.0


def _times(factor: float, constant: float) -> float:
    return multiply_up(factor, constant) if factor and constant else 0.0
