"""Sets of functions: how they are written, and that every member belongs to its set, ends of constants included."""

import math

import pytest
import torch

from ntk_deq.errors import ExpressionError
from ntk_deq.evaluation.floats import TensorNames, tensor_value
from ntk_deq.language.function_domains import parse_function_domain
from ntk_deq.language.parser import parse
from ntk_deq.language.types import SCALAR, SizeRange, matrix
from ntk_deq.language.typing import infer

N = 3
CONSTANTS = {"mu": 0.25, "L": 80.0, "kappa": 0.5}
VECTORS = [
    "convex(smooth = L)[n]",
    "strongly_convex(mu, smooth = L)[n]",
    "pl(mu, smooth: L)[n]",
]


def pairs(count=130):
    """Points near by, far apart and on axes, in pairs."""
    generator = torch.Generator().manual_seed(7)
    for k in range(count):
        scale = 2.0 ** (k % 13 - 9)
        base = torch.randn(N, 1, generator=generator, dtype=torch.float64) * 2.0 ** (k % 5 - 2)
        step = scale * torch.randn(N, 1, generator=generator, dtype=torch.float64)
        yield base, base + (step if k % 3 else step * torch.eye(N, 1, dtype=torch.float64))


def member_values(domain, member, x):
    types = {"x__": matrix("n"), **dict.fromkeys(CONSTANTS, SCALAR)}
    values = {"x__": x} | {name: torch.tensor(value, dtype=torch.float64) for name, value in CONSTANTS.items()}
    for name, text in member.constants.items():
        shaped = text.endswith("]")
        types[name] = SCALAR if not shaped else matrix("n", "n") if text.endswith("n, n]") else matrix("n")
        if text.startswith("orthogonal"):
            values[name] = torch.linalg.qr(torch.arange(1.0, 10.0, dtype=torch.float64).reshape(N, N).sin())[0]
        else:
            values[name] = torch.full((N, 1), 0.3, dtype=torch.float64) if shaped else torch.tensor(0.7).double()
    typed = infer(parse(member.formula), types, sizes={"n": SizeRange(N, N)})
    names = TensorNames(values, {"n": float(N)}, {}, None, torch.zeros((), dtype=torch.float64))
    return tensor_value(typed, names)


def slope_of(domain, member, x):
    x = x.clone().requires_grad_()
    value = member_values(domain, member, x)
    (gradient,) = torch.autograd.grad(value.sum(), x)
    return value.detach(), gradient


def least_of(member):
    return 0.7 if member.least is not None else None


@pytest.mark.parametrize("text", VECTORS)
def test_members_of_sets_of_functions_belong_to_them(text):
    domain = parse_function_domain(text)
    low, high = math.inf, -math.inf
    for member in domain.members("f"):
        for u, v in pairs():
            (fu, gu), (fv, gv) = slope_of(domain, member, u), slope_of(domain, member, v)
            step, change = v - u, gv - gu
            square = float((step**2).sum())
            room = 1e-7 * (1 + abs(float(fu)) + abs(float(fv)) + float(gu.norm() * step.norm()))
            assert float(change.norm()) <= CONSTANTS["L"] * float(step.norm()) * (1 + 1e-6) + 1e-9, member.name
            high = max(high, float(change.norm()) / math.sqrt(square))
            gap = float(fv - fu - (gu * step).sum())
            if domain.kind != "pl":
                assert gap >= (CONSTANTS["mu"] / 2 * square if "mu" in domain.constants else 0) - room, member.name
                low = min(low, 2 * gap / square) if math.sqrt(square) > 1e-2 else low
            else:
                below = float(fu) - 0.7
                assert below >= -room
                assert float((gu**2).sum()) / 2 >= CONSTANTS["mu"] * below - room, member.name
                low = min(low, float((gu**2).sum()) / 2 / below) if below > 1e-3 else low
    assert high == pytest.approx(CONSTANTS["L"], rel=1e-2)
    assert low == pytest.approx(CONSTANTS["mu"] if "mu" in domain.constants else 0.0, abs=1e-3)


def test_the_wave_has_the_constant_that_is_said_of_it():
    """x^2 + 3 sin(x)^2: half the square of the slope is at least 1/32 of the value, on a fine grid."""
    x = torch.linspace(-40, 40, 4_000_001, dtype=torch.float64)
    value, slope = x**2 + 3 * x.sin() ** 2, 2 * x + 3 * (2 * x).sin()
    there = value > 1e-12
    assert float((slope[there] ** 2 / 2 / value[there]).min()) >= 1 / 32
    assert float((2 + 6 * (2 * x).cos()).abs().max()) <= 8


@pytest.mark.parametrize("text", ["activation(slopes = [kappa, L])", "nonexpansive[n]"])
def test_members_of_sets_of_maps_belong_to_them(text):
    domain = parse_function_domain(text)
    ratios = []
    for member in domain.members("g"):
        for u, v in pairs(60):
            change, step = (member_values(domain, member, v) - member_values(domain, member, u)), v - u
            if domain.kind == "nonexpansive":
                assert float(change.norm()) <= float(step.norm()) * (1 + 1e-9) + 1e-12, member.name
                continue
            slopes = (change / step)[step.abs() > 1e-6]
            assert bool(((slopes >= 0.5 - 1e-6) & (slopes <= 80 + 1e-6)).all()), member.name
            ratios += [float(slopes.min()), float(slopes.max())] if slopes.numel() else []
    if domain.kind == "activation":
        assert (min(ratios), max(ratios)) == (pytest.approx(0.5, rel=1e-3), pytest.approx(80, rel=1e-3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("activation(slopes = [2, 1])", "slopes run from the lowest to the highest"),
        ("activation(slopes = 2)", "`slopes` are two numbers"),
        ("activation", "`activation` needs its constants"),
        ("activation(slopes = [0, 1])[n]", "acts entry by entry and takes no shape"),
        ("convex(rough = 2)[n]", "`convex` has no constant `rough = 2`"),
        ("strongly_convex[n]", "`strongly_convex` needs its constants"),
        ("strongly_convex(3, smooth = 2)[n]", "`mu` cannot be larger than `smooth`"),
        ("pl(0)[n]", "`mu` must be > 0"),
        ("convex(smooth = L*)[n]", "ends too early"),
    ],
)
def test_bad_sets(text, message):
    with pytest.raises(ExpressionError, match=message.replace("[", "\\[").replace("*", "\\*")):
        parse_function_domain(text)
