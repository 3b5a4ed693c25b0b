"""The registry of functions: complete, consistent with the shape check, fit to print."""

from __future__ import annotations

import pytest
from expression_samples import CALLS, typed

from ntk_deq.errors import ExpressionError
from ntk_deq.language.calls import Parameter
from ntk_deq.language.functions import FUNCTIONS, reference
from ntk_deq.language.parser import KEYWORDS
from ntk_deq.language.tree import CONSTANT_NAMES


def test_every_function_has_a_sample() -> None:
    missing, unknown = FUNCTIONS.keys() - CALLS.keys(), CALLS.keys() - FUNCTIONS.keys()
    assert not missing, "add a call to CALLS in tests/claims/expression_samples.py"
    assert not unknown


@pytest.mark.parametrize("name", sorted(CALLS))
def test_sample_type(name: str) -> None:
    text, type_ = CALLS[name]
    assert str(typed(text).type) == type_


@pytest.mark.parametrize("name", sorted(name for name, function in FUNCTIONS.items() if function.form is None))
def test_wrong_counts_are_refused_with_the_signature(name: str) -> None:
    function = FUNCTIONS[name]
    if not function.parameters:
        with pytest.raises(ExpressionError, match=f"`{name}` takes no arguments"):
            typed(f"{name}(c)")
        return
    with pytest.raises(ExpressionError) as caught:
        typed(f"{name}()")
    assert caught.value.hint == f"write {function.signature}"
    if not function.repeats:
        too_many = ", ".join(["A"] * (len(function.parameters) + 1))
        with pytest.raises(ExpressionError, match=f"`{name}` takes"):
            typed(f"{name}({too_many})")


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - CONSTANT_NAMES))
def test_statements_are_no_arguments(name: str) -> None:
    count = len(FUNCTIONS[name].parameters) - FUNCTIONS[name].optional
    if Parameter.STATEMENT in FUNCTIONS[name].parameters:
        return
    with pytest.raises(ExpressionError):
        typed(f"{name}({', '.join(['c < 1'] * count)})")


def test_constants_are_the_functions_without_arguments() -> None:
    assert {name for name, function in FUNCTIONS.items() if not function.parameters} == CONSTANT_NAMES


def test_no_function_is_a_word_of_the_language() -> None:
    assert not KEYWORDS & FUNCTIONS.keys()


def test_reference_lists_every_function_once_and_groups_stand_together() -> None:
    rows = reference()
    assert len(rows) == len(FUNCTIONS)
    called = {name for name, function in FUNCTIONS.items() if function.form is None}
    shown = {signature for _, signature, _ in rows}
    forms = {function.form for function in FUNCTIONS.values() if function.form is not None}
    assert {signature.partition("(")[0] for signature in shown - forms} == called
    assert forms <= shown
    groups = [group for group, _, _ in rows]
    assert len(set(groups)) == sum(left != right for left, right in zip(groups, [None, *groups], strict=False))
    assert all(summary.endswith(".") for _, _, summary in rows)


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("kron", "kron(matrix, matrix)"),
        ("zeros", "zeros(size[, size])"),
        ("max", "max(scalar or matrix, ...)"),
        ("grad", "grad(scalar, variable)"),
    ],
)
def test_signatures(name: str, signature: str) -> None:
    assert FUNCTIONS[name].signature == signature


def test_only_scalars_stand_where_scalars_must() -> None:
    for name, function in FUNCTIONS.items():
        if function.parameters[1:] == (Parameter.SCALAR,):
            assert str(typed(f"{name}(y, y'*y)").type) == "vector N"
            with pytest.raises(ExpressionError, match=f"{name} needs a scalar"):
                typed(f"{name}(y, y)")
