"""Which losses are seen to be multiples of the squares, and which are no loss of predictions and targets at all."""

import dataclasses
from fractions import Fraction

import pytest

from ntk_deq.language.declaration import LINEAR_IMPLICIT
from ntk_deq.language.loss import ForeignLossError, declared_loss


def declared(loss, **definitions):
    return dataclasses.replace(LINEAR_IMPLICIT, definitions={"yhat": "Z*b", **definitions, "L": loss})


@pytest.mark.parametrize(
    ("loss", "factor"),
    [
        ("norm(yhat - y)^2/2", Fraction(1)),
        ("norm( yhat-y )^2 / 2", Fraction(1)),
        ("norm(y - yhat)^2", Fraction(2)),
        ("fro(-yhat + y)^2/(2*N)", Fraction(1, 3)),
        ("3*norm((yhat - y)/N)^2*N", Fraction(2)),
        ("1/2*(yhat - y)'*(yhat - y)", Fraction(1)),
        ("dot(yhat - y, 2*yhat - 2*y)/N^2", Fraction(4, 9)),
        ("sum(hadamard(yhat - y, yhat - y))/N", Fraction(2, 3)),
        ("norm(r)^2 - norm(r)^2/2", Fraction(1)),
        ("half*2", Fraction(1)),
        # Nothing of the kind, or not seen to be: trained by its formula.
        ("norm(yhat - y)", None),
        ("norm(yhat - y)^3", None),
        ("norm(yhat - 2*y)^2", None),
        ("norm(yhat)^2", None),
        ("-norm(yhat - y)^2", None),
        ("0*norm(yhat - y)^2", None),
        ("norm(yhat - y)^2/(N - N)", None),
        ("norm(yhat - y)^2 + 1", None),
        ("sqrt(N)*norm(yhat - y)^2", None),
        ("10^60^3*norm(yhat - y)^2", None),
        ("dot(yhat - y, y)", None),
    ],
)
def test_the_factor_of_the_squares(loss, factor):
    found = declared_loss(declared(loss, r="yhat - y", half="norm(r)^2/4"))
    assert found.multiple({"N": 3, "d": 2, "m": 2}) == factor


@pytest.mark.parametrize(
    ("loss", "foreign"),
    [
        ("norm(yhat - y)^2/q", "q"),
        ("norm(grad(norm(yhat - y)^2, y))", "grad"),
        ("norm(next(Z))", "next"),
    ],
)
def test_a_loss_of_something_else_is_refused_by_name(loss, foreign):
    with pytest.raises(ForeignLossError, match=f"in which {foreign} stands"):
        declared_loss(declared(loss, size="norm(b)^2"))


@pytest.mark.parametrize(
    ("loss", "beside"),
    [
        ("norm(yhat - y)^2 + fro(W)^2", {"W"}),
        ("norm(Z*b - y)^2", {"Z", "b"}),
        ("size/2", {"b"}),
        ("norm(yhat - y)^2/N", set()),
    ],
)
def test_a_loss_may_read_variables_and_the_state(loss, beside):
    found = declared_loss(declared(loss, size="norm(b)^2"))
    assert found.beside == beside
    assert (found.multiple({"N": 2}) is None) is bool(beside)


def test_a_model_without_a_loss_has_the_usual_one():
    signature = dataclasses.replace(LINEAR_IMPLICIT, definitions={"yhat": "Z*b"})
    assert declared_loss(signature).multiple({}) == 1


@pytest.mark.parametrize(
    ("loss", "smooth"),
    [
        ("norm(yhat - y)^4", True),
        ("log(1 + exp(-dot(y, yhat)))", True),
        ("sqrt(1 + norm(yhat - y)^2)", True),
        ("softplus(-dot(y, yhat))", True),
        ("sum(relu(yhat - y))", False),
        ("norm(yhat - y)", False),
        ("norm(yhat - y)^3", False),
        ("norm(abs(yhat))^2", False),
        ("norm(yhat - y)^(1/2)", False),
        ("max(0, 1 - dot(y, yhat))", False),
        ("sum(abs(yhat - y))", False),
    ],
)
def test_a_loss_is_smooth_where_no_function_in_it_has_a_kink(loss, smooth):
    assert declared_loss(declared(loss)).smooth is smooth


@pytest.mark.parametrize(
    ("loss", "smooth"),
    [
        ("norm(yhat - y)^2/2 + fro(W)^2", True),
        ("norm(yhat - y)^2/2 + norm(W)^2", False),
        ("norm(yhat - y)^2/2 + norm(2*b)^2 + norm(W*b)^2", True),
        ("norm(yhat - y)^2/2 + norm(W*2)^2", False),
        ("norm(yhat - y)^2/2 + norm(b')^3", False),
    ],
)
def test_the_norm_of_a_matrix_is_no_length(loss, smooth):
    assert declared_loss(declared(loss)).smooth is smooth
