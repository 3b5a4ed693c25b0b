"""Signs of algebraic numbers: identities that hold, numbers close to them that do not, and limits."""

import math
import random
from itertools import pairwise

import pytest
import torch
from flint import fmpq, fmpz_poly

from ntk_deq.certified import algebraic as al
from ntk_deq.certified import algebraic_matrix as am
from ntk_deq.certified.algebraic import UndecidedError, UndefinedError, root, sign


def q(number):
    return fmpq(*float(number).as_integer_ratio())


def as_float(number):
    return float(al.enclosure(number, 128).mid())


def sqrt(number):
    return root(q(number) if isinstance(number, int | float) else number, 2)


IDENTITIES = [
    sqrt(2) * sqrt(3) - sqrt(6),
    sqrt(8) - q(2) * sqrt(2),
    sqrt(q(5) + q(2) * sqrt(6)) - sqrt(2) - sqrt(3),  # nested radicals that come apart
    al.inverse(sqrt(2) - q(1)) - sqrt(2) - q(1),
    al.power(root(q(7), 3), 3) - q(7),
    root(root(q(5), 2), 2) - root(q(5), 4),
    al.power((q(1) + sqrt(5)) * q(0.5), 10) - (q(123) + q(55) * sqrt(5)) * q(0.5),  # Lucas and Fibonacci numbers
    root(q(2) + sqrt(5), 3) - (q(1) + sqrt(5)) * q(0.5),  # Cardano's formula for the golden ratio
    sqrt(sqrt(3)) * sqrt(sqrt(3)) - sqrt(3),
]


@pytest.mark.parametrize("zero", IDENTITIES, ids=range(len(IDENTITIES)))
def test_a_number_that_is_zero_and_its_neighbours(zero):
    tiny = fmpq(1, 10**60)
    assert sign(zero) == 0
    assert (sign(zero + tiny), sign(zero - tiny)) == (1, -1)


def test_a_near_miss_that_floats_take_for_an_equality():
    # sqrt(a + 1) + sqrt(a - 1) and 2 sqrt(a) differ by a^(-3/2)/4.
    a = 10**12
    difference = sqrt(fmpq(a + 1)) + sqrt(fmpq(a - 1)) - q(2) * sqrt(fmpq(a))
    assert math.sqrt(a + 1) + math.sqrt(a - 1) == 2 * math.sqrt(a)
    assert sign(difference) == -1


def test_rational_roots_are_rationals():
    assert root(fmpq(9, 4), 2) == fmpq(3, 2)
    assert root(fmpq(-0, 1), 2) == 0
    assert root(fmpq(8, 27), 3) == fmpq(2, 3)
    assert not isinstance(root(fmpq(8, 9), 2), fmpq)


def test_what_does_not_exist():
    with pytest.raises(UndefinedError):
        sqrt(-1)
    with pytest.raises(UndefinedError):
        al.inverse(sqrt(2) * sqrt(2) - q(2))
    with pytest.raises(UndefinedError):
        al.power(fmpq(0), -1)
    assert al.power(fmpq(0), 0) == 1


def test_limits():
    total = sum((sqrt(p) for p in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)), fmpq(0))
    assert sign(total) == 1
    with pytest.raises(UndecidedError):
        sign(total - total)  # a field of degree 8192
    with pytest.raises(UndecidedError):
        al.power(sqrt(2), 1000)
    with pytest.raises(UndecidedError):
        root(q(2), 20)


def test_deep_formulas_are_given_up():
    number = sqrt(2)
    for _ in range(2000):
        number = number + fmpq(1, 3)
    with pytest.raises(UndecidedError):
        sign(number - fmpq(1))
    flat = am.total([sqrt(2) - sqrt(3)] * 200)
    assert sign(flat + q(200) * (sqrt(3) - sqrt(2))) == 0


def test_random_polynomials_vanish_at_their_roots():
    generator = random.Random(0)
    for _ in range(60):
        polynomial = fmpz_poly([generator.randint(-6, 6) for _ in range(generator.randint(1, 6))] + [1])
        roots = al.real_roots(polynomial)
        assert all(sign(b - a) > 0 for a, b in pairwise(roots))
        for number in roots:
            value = fmpq(0)
            for coefficient in reversed(polynomial.coeffs()):
                value = value * number + fmpq(coefficient)
            assert sign(value) == 0
        if roots:
            assert sign(roots[-1] + fmpq(1, 10**30) - roots[-1]) == 1


def test_separation_bounds_are_bounds():
    """Numbers a + b sqrt(2) + c sqrt(3) with small denominators are never below their bound, unless they are zero."""
    generator = random.Random(1)
    for _ in range(300):
        a, b, c = (fmpq(generator.randint(-50, 50), generator.randint(1, 9)) for _ in range(3))
        number = a + b * sqrt(2) + c * sqrt(3)
        if not isinstance(number, fmpq) and (a, b, c) != (0, 0, 0):
            assert abs(as_float(number)) >= 2.0**-number.separation


def exact(matrix):
    return am.ExactMatrix(*matrix.shape, [q(entry) for entry in matrix.flatten().tolist()])


def small_matrices():
    generator = torch.Generator().manual_seed(0)
    for index in range(60):
        rows, columns = 1 + index % 3, 1 + index // 3 % 3
        yield torch.randint(-3, 4, (rows, columns), generator=generator).double() / 2 ** (index % 2)


@pytest.mark.parametrize("matrix", list(small_matrices()))
def test_singular_values(matrix):
    smallest, largest = am.singular_squares(exact(matrix))
    values = torch.linalg.svdvals(matrix) ** 2
    assert as_float(largest) == pytest.approx(values[0].item(), abs=1e-12)
    assert as_float(smallest) == pytest.approx(values[-1].item(), abs=1e-12)


@pytest.mark.parametrize("matrix", [m for m in small_matrices() if m.shape[0] == m.shape[1]])
def test_spectra_determinants_inverses(matrix):
    # The square root of two in front makes every entry irrational: another route to the same.
    plain, scaled = exact(matrix), exact(matrix).mapped(lambda entry: entry * sqrt(2))
    values = torch.linalg.eigvals(matrix)
    low, high = am.real_parts(plain)
    radius = am.spectral_radius(plain)
    assert as_float(radius) == pytest.approx(values.abs().max().item(), abs=1e-5)
    assert as_float(low) == pytest.approx(values.real.min().item(), abs=1e-5)
    assert as_float(high) == pytest.approx(values.real.max().item(), abs=1e-5)
    order = matrix.shape[0]
    assert sign(am.determinant(scaled) - am.determinant(plain) * al.power(sqrt(2), order)) == 0
    if order <= 2 and matrix.any():
        assert sign(am.spectral_radius(scaled) - radius * sqrt(2)) == 0
        assert sign(am.real_parts(scaled)[0] - low * sqrt(2)) == 0
        assert sign(am.singular_squares(scaled)[1] - q(2) * am.singular_squares(plain)[1]) == 0
    if sign(am.determinant(plain)) == 0:
        with pytest.raises(UndefinedError):
            am.inverse_matrix(scaled)
    else:
        product = scaled @ am.inverse_matrix(scaled)
        one = am.ExactMatrix.identity(order)
        assert all(sign(a - b) == 0 for a, b in zip(product.entries, one.entries, strict=True))


def test_a_matrix_whose_spectral_radius_is_no_real_eigenvalue():
    turn = exact(torch.tensor([[0.0, -2.0], [2.0, 0.0]], dtype=torch.float64))
    assert am.spectral_radius(turn) == 2
    assert am.real_parts(turn) == (0, 0)
    assert am.real_eigenvalues(turn) == []


def test_sizes_that_are_refused():
    with pytest.raises(UndecidedError):
        am.ExactMatrix.identity(17)
    with pytest.raises(UndecidedError):
        am.kronecker(am.ExactMatrix.identity(5), am.ExactMatrix.identity(4))
    with pytest.raises(UndecidedError):
        am.real_parts(am.ExactMatrix.identity(3).mapped(lambda entry: entry * sqrt(2)))
