"""What the form of a matrix shows of its rank and its sign, and what it does not show."""

import pytest
import torch
from verify_harness import environment, number_of, value_of

from ntk_deq.certified import spectral_norm
from ntk_deq.evaluation.environment import OutsideClaimError


def randn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def env():
    return environment(
        {
            "T": randn(4, 2, seed=1),  # tall
            "U": randn(4, 2, seed=2),
            "v": randn(4, 1, seed=3),
            "S": randn(4, 4, seed=4),
            "s": 2.0,
            "r": -2.0,
        },
        sizes={"n": 4},
        lets={"K": "T*T'"},
    )


@pytest.mark.parametrize(
    "text",
    [
        "lambda_min(T*T')",
        "lambda_min((T')'*T')",
        "lambda_min((T*T')')",
        "lambda_min(s*T*T')",
        "lambda_min(T*T'*s)",
        "lambda_min(T*T'/3)",
        "lambda_min(v*v' + T*T')",
        "lambda_min(hadamard(v*v', K))",
        "lambda_min(kron(K, S*S'))",
        "lambda_min(K)",
        "sigma_min(T*T')",
        "sigma_min(T*U')",
        "sigma_min(S*T*U')",
        "sigma_min(T*U' - v*v')",
        "sigma_min(-K)",
        "det(T*U')",
        "det(v*v' + U*T')",
    ],
)
def test_zero_by_form(text):
    assert number_of(text, env()) == 0


@pytest.mark.parametrize(
    "text",
    [
        "lambda_min(T'*T)",  # of full rank
        "lambda_min(S*S')",
        "lambda_min(v*v' + T*T' + U*U')",  # ranks add up to more than the order
        "sigma_min(T)",
        "sigma_min(T*U' + T*T' + U*U')",
        "det(S)",
        "lambda_max(T*T')",
        "sigma_max(T*T')",
        "lambda_min(kron(T'*T, S*S'))",
    ],
)
def test_not_zero(text):
    assert not number_of(text, env()).contains(0)


@pytest.mark.parametrize(
    "text",
    [
        "lambda_min(T*U' + U*T')",  # symmetric, of rank 4, and with both signs
        "lambda_min(r*T*T')",
        "lambda_min(v*v' - T*T')",
        "lambda_min(-K)",
    ],
)
def test_without_full_rank_an_eigenvalue_may_be_negative(text):
    assert number_of(text, env()) < 0


def test_a_product_of_two_is_no_gram_matrix():
    found = number_of("lambda_min(T*U')", env())  # the smallest real part: not zero by its form
    true = float(
        torch.linalg.eigvals(env().variables["T"].ball.centre @ env().variables["U"].ball.centre.mT).real.min()
    )
    assert abs(float(found.mid()) - true) < 1e-9


def test_an_inverse_or_a_condition_number_of_such_a_matrix_does_not_exist():
    for text in ("norm(inv(T*T'))", "norm(inv(T*U'))", "cond(T*T')"):
        with pytest.raises(OutsideClaimError) as stopped:
            value_of(text, env())
        assert stopped.value.certain


def test_nothing_follows_for_a_matrix_that_may_not_exist():
    one = torch.ones(1, 1, dtype=torch.float64)
    values = {"W": 3 * one, "U": one, "b": one, "X": torch.ones(2, 1).double(), "y": torch.ones(2, 1).double()}
    unknown = environment(values, sizes={"N": 2, "d": 1, "m": 1}, model="linear-implicit")
    for text in ("lambda_min(Z*Z')", "sigma_min(Z*Z')", "det(Z*Z')"):
        assert not number_of(text, unknown).is_finite()


def test_the_values_agree_with_those_of_the_numbers():
    for text in ("T*T'", "s*T*T'", "v*v' + T*T'", "hadamard(v*v', T*T')"):
        value = value_of(text, env())
        assert value.gram
        assert value.is_deficient or text.startswith("v*v' +")
        symmetric = value.ball.centre
        assert float(torch.linalg.eigvalsh(symmetric)[0]) > -1e-12 * float(spectral_norm(value.ball).mid())
