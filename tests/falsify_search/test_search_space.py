"""Coordinates: they reach what a domain holds, never leave it, and go back and forth."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from search_harness import free, instance_of, interval

from ntk_deq.errors import Position
from ntk_deq.falsify.domains import contains, rounding
from ntk_deq.falsify.families import exact_family, random_family
from ntk_deq.falsify.scalars import random_entries
from ntk_deq.falsify.search import Space, chart, entry_map, movable
from ntk_deq.language.declaration import Draw, Setting
from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.parser import parse
from ntk_deq.language.types import SCALAR, matrix

third = Fraction(1, 3)
ENTRYWISE = [
    Domain(DomainKind.REAL),
    Domain(DomainKind.POSITIVE),
    Domain(DomainKind.NONNEGATIVE),
    Domain(DomainKind.INTEGER, Fraction(1), Fraction(5)),
    Domain(DomainKind.INTEGER),
    interval(-2, 3),
    interval(0, 1, low_open=True, high_open=True),
    interval(0, 1, low_open=True),
    interval(0, 1, high_open=True),
    Domain(DomainKind.INTERVAL, third, 2 * third),
    Domain(DomainKind.INTERVAL, third, 2 * third, True, True),
    Domain(DomainKind.INTERVAL, Fraction(2), None, False, True),
    Domain(DomainKind.INTERVAL, Fraction(2), None, True, True),
    Domain(DomainKind.INTERVAL, None, Fraction(-1), True, False),
    Domain(DomainKind.INTERVAL, None, Fraction(1, 4), True, True),
    interval(1, 1),
]
SHAPED = [
    (DomainKind.SYMMETRIC, (3, 3)),
    (DomainKind.SKEW, (3, 3)),
    (DomainKind.SKEW, (1, 1)),
    (DomainKind.DIAGONAL, (3, 3)),
    (DomainKind.PSD, (3, 3)),
    (DomainKind.ORTHOGONAL, (3, 3)),
    (DomainKind.UNIT_ROWS, (3, 2)),
    (DomainKind.UNIT_ROWS, (3,)),
]
BOTH = pytest.mark.parametrize("smooth", [True, False], ids=["smooth", "plain"])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def shown(domain: Domain) -> str:
    return f"{domain.kind.value} {domain.low} {domain.high} {domain.low_open} {domain.high_open}"


@BOTH
@pytest.mark.parametrize("domain", ENTRYWISE, ids=shown)
def test_entries_never_leave_their_domain(domain: Domain, smooth: bool) -> None:
    x = torch.randn(400, dtype=torch.float64, generator=generator()) * torch.logspace(-3, 4, 400, dtype=torch.float64)
    values = entry_map(domain, smooth=smooth).decode(torch.cat([x, x.new_tensor([0.0, 1e30, -1e30, math.pi / 2])]))
    assert contains(domain, values)


@BOTH
@pytest.mark.parametrize("domain", ENTRYWISE, ids=shown)
def test_entries_go_back_and_forth(domain: Domain, smooth: bool) -> None:
    values = random_entries(domain, (200,), generator(1))
    entries = entry_map(domain, smooth=smooth)
    again = entries.decode(entries.encode(values))
    if smooth:
        assert torch.allclose(again, values, rtol=1e-7, atol=1e-12)
    else:
        assert torch.equal(again, values)


@pytest.mark.parametrize("smooth", [True, False], ids=["smooth", "plain"])
@pytest.mark.parametrize(
    ("domain", "ends"),
    [
        (interval(-2, 3), (-2.0, 3.0)),
        (interval(0, 1, low_open=True), (1.0,)),
        (interval(0, 1, high_open=True), (0.0,)),
        (Domain(DomainKind.NONNEGATIVE), (0.0,)),
        (Domain(DomainKind.INTERVAL, None, Fraction(-1), True, False), (-1.0,)),
    ],
    ids=["both", "upper", "lower", "half-line", "reflected half-line"],
)
def test_closed_ends_are_reached(domain: Domain, ends: tuple[float, ...], smooth: bool) -> None:
    entries = entry_map(domain, smooth=smooth)
    wanted = torch.tensor(ends, dtype=torch.float64)
    assert torch.equal(entries.decode(entries.encode(wanted)), wanted)


def test_a_projection_leaves_what_is_inside_alone_and_keeps_off_open_ends() -> None:
    entries = entry_map(Domain(DomainKind.POSITIVE), smooth=False)
    tiny, negative = entries.decode(torch.tensor([1e-12, -1.0], dtype=torch.float64)).tolist()
    assert tiny == 1e-12
    assert negative == 2.0**-30


@BOTH
@pytest.mark.parametrize(("kind", "shape"), SHAPED, ids=str)
def test_matrices_lie_in_their_domain(kind: DomainKind, shape: tuple[int, ...], smooth: bool) -> None:
    coordinates = chart(Domain(kind), shape, smooth=smooth)
    x = torch.randn(60, coordinates.size, dtype=torch.float64, generator=generator())
    x[::3] = x[::3].round()  # zero rows and singular factors among them
    x[1::3] *= 1e6
    for value in coordinates.decode(x):
        assert value.shape == shape
        assert contains(Domain(kind), value) or rounding(Domain(kind), value) < 1e-14


@pytest.mark.parametrize(("kind", "shape"), SHAPED, ids=str)
def test_matrices_go_back_and_forth(kind: DomainKind, shape: tuple[int, ...]) -> None:
    domain, coordinates = Domain(kind), chart(Domain(kind), shape, smooth=True)
    values = [random_family(domain, shape, generator(seed))[1] for seed in range(20)]
    values += [exact_family(domain, shape, order, generator(order))[1] for order in range(6)]
    for value in values:
        again = coordinates.decode(coordinates.encode(value).unsqueeze(0))[0]
        assert torch.allclose(again, value, rtol=0, atol=1e-6 * max(1.0, float(value.abs().max())))


def test_a_semidefinite_matrix_has_no_rounding_even_when_it_is_singular() -> None:
    coordinates = chart(Domain(DomainKind.PSD), (4, 4), smooth=True)
    factor = torch.zeros(1, 4, 4, dtype=torch.float64)
    factor[0, 0] = torch.tensor([0.1, 1 / 3, 7.77, math.pi], dtype=torch.float64)
    assert contains(Domain(DomainKind.PSD), coordinates.decode(factor.flatten(1))[0])


def test_signed_permutations_come_out_exactly() -> None:
    domain = Domain(DomainKind.ORTHOGONAL)
    coordinates = chart(domain, (3, 3), smooth=True)
    for order in range(5):
        value = exact_family(domain, (3, 3), order, generator(order))[1]
        assert torch.equal(coordinates.decode(coordinates.encode(value).unsqueeze(0))[0], value)


def test_orthogonal_matrices_of_both_orientations_are_reached() -> None:
    coordinates = chart(Domain(DomainKind.ORTHOGONAL), (2, 2), smooth=True)
    x = torch.randn(40, 4, dtype=torch.float64, generator=generator())
    signs = torch.linalg.det(coordinates.decode(x)).round()
    assert {1.0, -1.0} == set(signs.tolist())


@pytest.mark.parametrize(("kind", "shape"), SHAPED, ids=str)
def test_derivatives_agree_with_finite_differences(kind: DomainKind, shape: tuple[int, ...]) -> None:
    coordinates = chart(Domain(kind), shape, smooth=True)
    x = torch.randn(1, coordinates.size, dtype=torch.float64, generator=generator(3))
    if coordinates.size == 0:
        return
    weights = torch.randn(shape, dtype=torch.float64, generator=generator(4))

    def total(point: torch.Tensor) -> torch.Tensor:
        return (coordinates.decode(point)[0] * weights).sum()

    moving = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(total(moving), moving)
    step = (
        1e-4  # far above the cut of a semidefinite factor, 2^-22 of its largest entry; curvature enters as its square
    )
    for k in range(coordinates.size):
        shift = torch.zeros_like(x)
        shift[0, k] = step
        difference = float(total(x + shift) - total(x - shift)) / (2 * step)
        assert (
            abs(difference - float(slope[0, k])) < 2e-2 * max(1.0, abs(difference))
            if kind is DomainKind.PSD
            else (abs(difference - float(slope[0, k])) < 1e-6 * max(1.0, abs(difference)))
        )


def test_a_space_has_a_block_for_each_variable_and_keeps_the_rest() -> None:
    base = instance_of(x=0.5, y=torch.ones(2, 2), z=torch.zeros(3))
    space = Space({"x": free("x"), "y": Free("y", matrix(2, 2), Domain(DomainKind.SKEW))}, base, smooth=True)
    assert space.size == 2
    assert space.blocks == {"x": slice(0, 1), "y": slice(1, 2)}
    found = space.instance(torch.tensor([3.0, -0.0], dtype=torch.float64), family="found")
    assert found is not None
    assert found.values["x"].item() == 3.0
    assert torch.equal(found.values["z"], base.values["z"])
    assert math.copysign(1, found.values["y"][0, 1].item()) == 1.0
    assert found.family == "found"


def test_rounded_members_are_marked_and_exact_ones_are_not() -> None:
    base = instance_of(O=torch.eye(2))
    space = Space({"O": Free("O", matrix(2, 2), Domain(DomainKind.ORTHOGONAL))}, base, smooth=True)
    exact = space.instance(torch.tensor([0.0, 1.0, -1.0, 0.0], dtype=torch.float64), family="")
    rounded = space.instance(torch.tensor([0.3, 1.0, -1.0, 0.2], dtype=torch.float64), family="")
    assert exact is not None
    assert rounded is not None
    assert (exact.rounded, list(rounded.rounded)) == ({}, ["O"])
    assert 0 < rounded.rounded["O"] < 1e-15


def test_drawn_data_and_what_they_are_drawn_from_do_not_move() -> None:
    drawn = Draw("W", matrix("m", "m"), parse("beta*normal(0, 1/m)"), "")
    setting = Setting("s", None, {}, {"beta": free("beta"), "c": free("c")}, {"W": drawn}, None, Position("", 1, 1))
    given = {"M": Free("M", SCALAR, Domain(DomainKind.POSITIVE)), "unused": free("unused")}
    assert set(movable(setting, given, {"W", "beta", "c", "M"})) == {"c", "M"}
