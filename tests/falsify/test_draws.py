import math

import pytest
import torch

from ntk_deq.data import draw, sampler
from ntk_deq.errors import ArgumentError
from ntk_deq.falsify.domains import draw_expression
from ntk_deq.language.parser import parse

SCALARS = {"m": 4, "d": 3, "beta": 2.5}


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def drawn(text: str, shape=(4, 4)) -> torch.Tensor:
    return draw_expression(parse(text), shape, SCALARS, seeded()).value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("normal(0, 1/m)", lambda g: draw("normal", 0.0, 0.25, shape=(4, 4), generator=g)),
        ("beta*normal(0, 1)", lambda g: 2.5 * draw("normal", 0.0, 1.0, shape=(4, 4), generator=g)),
        ("normal(0, 1)*beta", lambda g: draw("normal", 0.0, 1.0, shape=(4, 4), generator=g) * 2.5),
        ("gaussian/sqrt(m)", lambda g: draw("gaussian", shape=(4, 4), generator=g) * 0.5),
        ("-gaussian", lambda g: -draw("gaussian", shape=(4, 4), generator=g)),
        ("uniform(-1/d, max(1, d)^2)", lambda g: draw("uniform", -1 / 3, 9.0, shape=(4, 4), generator=g)),
        ("rademacher()", lambda g: draw("rademacher", shape=(4, 4), generator=g)),
        ("low_rank(gaussian, 2)", lambda g: draw("low_rank", sampler("gaussian"), 2, shape=(4, 4), generator=g)),
        (
            "nonnegative(2*normal(0, exp(0)))",
            lambda g: (2 * draw("normal", 0.0, 1.0, shape=(4, 4), generator=g)).abs(),
        ),
        ("zeros + 3*identity - ones/2", lambda g: 3 * torch.eye(4, dtype=torch.float64) - 0.5),
    ],
)
def test_expressions(text, expected):
    assert torch.equal(drawn(text), expected(seeded()))


def test_a_sum_draws_its_parts_one_after_the_other():
    g = seeded()
    first, second = (draw("gaussian", shape=(3,), generator=g) for _ in range(2))
    assert torch.equal(drawn("gaussian - gaussian", (3,)), first - second)


def test_scalars():
    assert drawn("beta^2/d", ()).item() == 2.5**2 / 3
    assert drawn("abs(-m) + min(1, 2) - log(1)", ()).item() == 5
    assert torch.equal(drawn("half_normal(1)", ()), draw("half_normal", 1.0, shape=(), generator=seeded()))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("beta", "`beta` is a number, but a draw of shape (4, 4)"),
        ("normal(0, -1)", "Distribution `normal(0, -1)`: `variance` of normal must be a number >= 0. Got -1.0."),
        ("2*normal(0, -1)", "Distribution `2*normal(0, -1)`, at `normal(0, -1)`: `variance`"),
        ("normal(0)", "takes 2 parameter(s), as in `normal(mean, variance)`"),
        ("normal(0, 1, 2)", "Got 3"),
        ("normal(gaussian, 1)", "at `gaussian`: a number is needed here, not a distribution"),
        ("symmetric(2)", "must be a distribution"),
        ("gausian", "unknown name 'gausian'. Known: m, d, beta, normal"),
        ("gausian", "Did you mean 'gaussian'?"),
        ("norml(0, 1)", "Did you mean 'normal'?"),
        ("gaussian*gaussian", "added to a distribution, and multiplied or divided by a number, nothing else"),
        ("gaussian + 1", "nothing else"),
        ("1/gaussian", "nothing else"),
        ("gaussian^2", "nothing else"),
        ("gaussian/(m - 4)", "`gaussian/(m - 4)`: it has no value (float division by zero)"),
        ("sqrt(-1)*ones", "at `sqrt(-1)`: it has no value"),
        ("(-8)^(1/3)*ones", "it has no value"),
        ("1e200*1e200*ones", "it has no finite value"),
        ("gaussian'", "a 'transpose' cannot stand in it: a distribution expression is made of numbers"),
        ("sqrt(1, 2)*ones", "it has no value"),
    ],
)
def test_refusals_quote_the_expression(text, words):
    with pytest.raises(ArgumentError) as caught:
        drawn(text)
    assert words in str(caught.value)


def test_variance_of_the_paper_s_initialisation():
    w = draw_expression(parse("normal(0, 1/m)"), (400, 100), {"m": 100}, seeded()).value
    # Six standard errors of a variance over 40,000 Gaussian entries.
    assert w.var().item() == pytest.approx(0.01, rel=6 * math.sqrt(2 / 40_000))


def test_a_number_beyond_float64_is_refused_by_name():
    with pytest.raises(ArgumentError, match=r"Distribution `1e400\*identity`, at `1e400`: it is too large for float64"):
        draw_expression(parse("1e400*identity"), (2, 2), {}, torch.Generator())
