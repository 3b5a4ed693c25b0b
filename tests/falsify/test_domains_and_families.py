import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ntk_deq.errors import ArgumentError
from ntk_deq.falsify.domains import contains, is_cone, rounding, stream, within
from ntk_deq.falsify.families import REAL_FAMILIES, exact_family, family_names, random_family
from ntk_deq.falsify.scalars import random_entries, scalar_ladder
from ntk_deq.language.domain import Domain, DomainKind, parse_domain

SQUARE = {"symmetric", "skew", "psd", "diagonal", "orthogonal"}
TEXTS = [
    "real",
    "nonnegative",
    "positive",
    "symmetric",
    "skew",
    "psd",
    "diagonal",
    "orthogonal",
    "unit_rows",
    "integer",
    "integer 2..5",
    "integer -3..3",
    "(0, 1)",
    "[0, 1]",
    "(1/3, 1/2]",
    "[-1, 1]",
    "(0, inf)",
    "[2, inf)",
    "(-inf, -1)",
    "(-inf, inf)",
    "(0, 1e-20)",
]


def domain(text: str) -> Domain:
    return parse_domain(text)[0]


def shapes(text: str) -> list[tuple[int, ...]]:
    if text in SQUARE:
        return [(1, 1), (2, 2), (3, 3), (5, 5)]
    return [(1, 1), (1, 4), (4, 1), (3, 3), (2, 5), (6, 3), (1,), (2,), (5,)]


@pytest.mark.parametrize("text", TEXTS)
def test_structured_members_are_exact_members(text):
    for shape in shapes(text):
        for order in range(26):
            name, value = exact_family(domain(text), shape, order, stream(1, text, order))
            assert value.shape == shape, name
            assert value.dtype == torch.float64
            assert contains(domain(text), value), (name, value)


@pytest.mark.parametrize("text", [t for t in TEXTS if "(" not in t and "[" not in t])
def test_structured_entries_are_short_dyadics(text):
    # So short that sums of a few products of three of them stay exact in 53 bits, apart from the graded ones.
    for shape in shapes(text):
        for order in range(13):
            name, value = exact_family(domain(text), shape, order, stream(2, text, order))
            if name in ("graded diagonal", "powers of two", "nearly singular", "mixed values", "two values"):
                continue
            assert torch.equal(value * 4, (value * 4).round()), name
            assert name.startswith("constant") or value.abs().max() <= 100, name


@pytest.mark.parametrize("text", TEXTS)
def test_random_members_are_members(text):
    for shape in shapes(text):
        for seed in range(12):
            name, value = random_family(domain(text), shape, stream(seed, text, *shape))
            assert value.shape == shape, name
            assert value.dtype == torch.float64
            if text in ("orthogonal", "unit_rows"):
                # 2^-48: a few dozen roundings of a random orthogonal matrix of order 5.
                assert rounding(domain(text), value) <= 2.0**-48, (name, value)
            else:
                assert contains(domain(text), value), (name, value)
                assert rounding(domain(text), value) == math.inf


@pytest.mark.parametrize("text", TEXTS)
def test_every_structured_family_is_reachable(text):
    shape = (4, 4)
    names = family_names(domain(text), shape)
    reached = {exact_family(domain(text), shape, order, stream(0, order))[0] for order in range(13)}
    assert len(set(names)) == len(names) <= 13
    # Zeros and ones go by the name of what they form; a domain without 0 or 1 has a constant in their place.
    formed = {"constant", "zeros and ones"}
    assert {name.split(" -")[0] for name in names} <= {n.split(" -")[0] for n in reached} | formed
    assert any(n.startswith("constant") for n in reached) == ("constant" in names)


def test_an_interval_with_zero_and_one_gets_the_matrices_of_zeros_and_ones():
    reached = {exact_family(domain("[0, 1]"), (3, 3), order, stream(0, order))[0] for order in range(13)}
    assert {"identity", "zero", "ones"} <= reached
    assert "zero" not in {exact_family(domain("(0, 1)"), (3, 3), k, stream(0, k))[0] for k in range(13)}


def test_the_families_that_the_ladder_promises_for_a_square_real_matrix():
    A = {n: exact_family(domain("real"), (4, 4), k, stream(0, k))[1] for k, n in enumerate(_square_names())}
    eye = torch.eye(4, dtype=torch.float64)
    assert torch.equal(A["identity"], eye)
    assert torch.equal(A["-identity"], -eye)
    assert not A["zero"].any()
    assert bool((A["ones"] == 1).all())
    assert bool((A["nonnegative integers"] >= 0).all())
    assert torch.linalg.matrix_rank(A["rank one"]) == 1
    assert not torch.linalg.matrix_power(A["shift"], 4).any()
    assert torch.linalg.matrix_power(A["shift"], 3).any()
    assert torch.equal(A["skew"], -A["skew"].T)
    assert A["diagonal of mixed signs"].diagonal().tolist() == [1, -2, 3, -1]
    assert torch.equal(A["permutation"] @ A["permutation"].T, eye)
    assert set(A["signs -1, 0, 1"].flatten().tolist()) <= {-1.0, 0.0, 1.0}
    assert torch.equal(A["duplicate rows"][0], A["duplicate rows"][1])


def _square_names() -> tuple[str, ...]:
    return family_names(domain("real"), (4, 4))


def test_parallel_rows_are_parallel():
    order = family_names(domain("real"), (6, 3)).index("parallel rows")
    X = exact_family(domain("real"), (6, 3), order, stream(5))[1]
    for i in (0, 2, 4):
        assert torch.linalg.matrix_rank(X[i : i + 2]) <= 1


def test_every_random_family_is_reachable_and_is_what_it_says():
    found = {}
    for seed in range(200):
        name, value = random_family(domain("real"), (5, 5), stream(seed))
        found.setdefault(name, value)
    assert set(found) == set(REAL_FAMILIES)
    assert 0.25 <= torch.linalg.matrix_norm(found["contraction"], ord=2) <= 1.25
    assert torch.linalg.matrix_rank(found["low rank"]) < 5
    assert torch.linalg.cond(found["graded spectrum"]) >= 2.0**4 * 0.99
    psd = {random_family(domain("psd"), (4, 4), stream(seed))[0] for seed in range(30)}
    assert psd == {"well-conditioned R'R", "square R'R", "singular R'R"}
    rows = {random_family(domain("unit_rows"), (4, 4), stream(seed))[0] for seed in range(40)}
    assert rows == {"near-parallel unit rows", "duplicate unit rows", "random unit rows"}


def test_shapes_that_a_domain_has_not():
    for build in (
        lambda text, shape: exact_family(domain(text), shape, 0, stream(0)),
        lambda text, shape: random_family(domain(text), shape, stream(0)),
    ):
        with pytest.raises(ArgumentError, match="square matrices"):
            build("psd", (2, 3))
        with pytest.raises(ArgumentError, match=r"`diagonal` is a set of square matrices. Got shape \(3,\)"):
            build("diagonal", (3,))


@pytest.mark.parametrize("order", [13, 20, 80])
@pytest.mark.parametrize("rank", [1, 7, 13])
def test_large_semidefinite_matrices_are_decided_exactly(order, rank):
    factor = torch.randn(rank, order, generator=stream(order + rank), dtype=torch.float64)
    gram = (factor * 64).round().T @ (factor * 64).round()
    assert contains(domain("psd"), gram)
    assert contains(domain("psd"), gram * 2.0**-90)
    below = gram.clone()
    below[0, 0] -= 2.0**-8
    assert contains(domain("psd"), below) is (rank == order)  # a singular matrix has no room
    above = gram.clone()
    above[-1, -1] += 2.0**-8
    assert contains(domain("psd"), above)


@pytest.mark.parametrize("text", [t for t in TEXTS if t not in SQUARE])
def test_scalar_ladder(text):
    ladder = scalar_ladder(domain(text))
    assert len(set(ladder)) == len(ladder)
    assert all(within(domain(text), value) for value in ladder)
    assert len(ladder) >= 4


def test_scalar_ladder_by_hand():
    unit = scalar_ladder(domain("(0, 1)"))
    assert unit[:3] == (0.5, 0.25, 0.75)
    assert {2.0**-k for k in (3, 4, 7, 10, 20, 30)} <= set(unit)
    assert {1 - 2.0**-k for k in (3, 4, 7, 10, 20, 30)} <= set(unit)
    assert {0.0, 1.0} <= set(scalar_ladder(domain("[0, 1]")))
    assert not {0.0, 1.0} & set(unit)
    assert {0.0, 1.0, -1.0, 0.5, -0.5, 2.0**30, -(2.0**30), 2.0**-30} <= set(scalar_ladder(domain("real")))
    assert {1.0, 0.5, 2.0, 2.0**-10, 2.0**10, 1e9} <= set(scalar_ladder(domain("positive")))
    assert 0.0 not in scalar_ladder(domain("positive"))
    assert 0.0 in scalar_ladder(domain("nonnegative"))
    assert set(scalar_ladder(domain("integer 2..5"))) == {2.0, 3.0, 4.0, 5.0}
    assert scalar_ladder(domain("[1/2, 1/2]")) == (0.5,)
    thirds = scalar_ladder(domain("[1/3, 2/3]"))
    assert all(Fraction(1, 3) <= Fraction(value) <= Fraction(2, 3) for value in thirds)
    assert min(thirds) - 1 / 3 < 1e-8  # 2^-30 of the width away
    with pytest.raises(ArgumentError, match="No float64 number lies in the domain"):
        scalar_ladder(domain("[1/3, 1/3]"))


@pytest.mark.parametrize("text", ["(-inf, 1/3)", "(1/3, inf)", "(-inf, -1/7]", "[-1/7, inf)", "(1e30, inf)"])
def test_a_half_line_may_end_where_no_double_is(text):
    ladder = scalar_ladder(domain(text))
    assert all(within(domain(text), value) for value in ladder)
    end = domain(text).low if domain(text).low is not None else domain(text).high
    assert min(abs(Fraction(value) - end) for value in ladder) <= abs(end) / 2**50  # next to the end
    assert len(ladder) >= 5
    drawn = random_entries(domain(text), (50,), stream(0))
    assert all(within(domain(text), value) for value in drawn.tolist())


def test_the_plainest_numbers_of_such_a_half_line_are_whole():
    upward, downward = scalar_ladder(domain("(1/3, inf)")), scalar_ladder(domain("(-inf, 1/3)"))
    assert (upward[0], *upward[3:6]) == (1.0, 2.0, 3.0, 1.5)
    assert (downward[0], *downward[3:6]) == (0.0, -1.0, -2.0, -0.5)
    assert 0 < downward[1] < downward[2] == 1 / 3 < upward[2] < upward[1] < 1  # between, and next to the end


@pytest.mark.parametrize(
    ("text", "count"),
    [("(1/3, 0.33333333333333345)", 2), ("[1, 1.000000000000001)", 5), ("(1, 1.0000000000000003)", 1)],
)
def test_a_narrow_interval_gives_the_doubles_that_it_holds(text, count):
    ladder = scalar_ladder(domain(text))
    assert len(ladder) >= count
    drawn = random_entries(domain(text), (50,), stream(0)).tolist()
    assert all(within(domain(text), value) for value in (*ladder, *drawn))


FRACTIONS = st.fractions(min_value=-1000, max_value=1000, max_denominator=1000)


@settings(max_examples=60, deadline=None)
@given(ends=st.tuples(FRACTIONS, FRACTIONS), opens=st.tuples(st.booleans(), st.booleans()), seed=st.integers(0, 100))
def test_random_entries_and_ladder_never_leave_an_interval(ends, opens, seed):
    low, high = min(ends), max(ends)
    if low == high:
        high += 1
    interval = Domain(DomainKind.INTERVAL, low, high, *opens)
    values = [*scalar_ladder(interval), *random_entries(interval, (20,), stream(seed)).tolist()]
    for value in values:
        assert low <= Fraction(value) <= high
        assert not (opens[0] and Fraction(value) == low)
        assert not (opens[1] and Fraction(value) == high)


def test_random_entries_come_near_both_ends():
    unit = domain("(0, 1)")
    drawn = [random_entries(unit, (), stream(seed)).item() for seed in range(300)]
    assert 0 < min(drawn) < 2.0**-20
    assert 1 - 2.0**-20 < max(drawn) < 1


def test_an_interval_without_room_between_its_ends_falls_back_to_its_simplest_value():
    narrow = Domain(DomainKind.INTERVAL, Fraction(1), Fraction(1) + Fraction(1, 2**51), low_open=True, high_open=True)
    drawn = random_entries(narrow, (50,), stream(0))
    assert all(within(narrow, value) for value in drawn.tolist())


def test_membership_by_hand():
    t = torch.tensor
    assert contains(domain("psd"), t([[0.0, 0.0], [0.0, 1.0]]))
    assert not contains(domain("psd"), t([[0.0, 1.0], [1.0, 1.0]]))
    assert not contains(domain("psd"), t([[1.0, 0.0], [0.0, -1e-300]], dtype=torch.float64))
    assert not contains(domain("psd"), t([[2.0, 1.0], [0.0, 2.0]]))
    # A rank-one Gram matrix whose second pivot is zero exactly and 1e-17 in floating point.
    v = t([0.1, 0.3, 0.7], dtype=torch.float64)
    q = (v * 2**10).round() / 2**10
    assert contains(domain("psd"), torch.outer(q, q))
    assert not contains(domain("nonnegative"), t([-0.5]))
    assert not contains(domain("positive"), t([0.0]))
    assert not contains(domain("real"), t([math.nan]))
    assert not contains(domain("integer"), t(0.5))
    assert not contains(domain("diagonal"), t([[1.0, 1.0]]))
    assert not contains(domain("symmetric"), t([[1.0, 1.0]]))
    assert not contains(domain("orthogonal"), t([[1.0, 0.0], [1.0, 0.0]]))
    assert contains(domain("unit_rows"), t([[1.0, 0.0], [0.0, -1.0]]))
    assert not contains(domain("unit_rows"), t([[1.0, 1.0]]))


def test_cones():
    cones = {text for text in TEXTS if is_cone(domain(text))}
    assert cones == {"real", "nonnegative", "positive", "(0, inf)", "(-inf, inf)", *SQUARE - {"orthogonal"}}
