"""The grammar of `-k`: words over ids and tags, with and, or, not and parentheses."""

from dataclasses import dataclass

import pytest

from ntk_deq.cli.select import MAX_TOKENS, compile_selection, select_claims
from ntk_deq.errors import ArgumentError


@dataclass(frozen=True)
class Entry:
    id: str
    tags: tuple[str, ...] = ()


CLAIMS = [
    Entry("R.L3.1", ("lemma", "well-posedness")),
    Entry("R.L3.2g", ("lemma", "gradient")),
    Entry("Lin.K", ("kernel",)),
]


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        (None, "R.L3.1 R.L3.2g Lin.K"),
        ("R.L3", "R.L3.1 R.L3.2g"),
        ("r.l3", "R.L3.1 R.L3.2g"),
        ("lemma", "R.L3.1 R.L3.2g"),
        ("LEMMA and not grad", "R.L3.1"),
        ("kernel or gradient", "R.L3.2g Lin.K"),
        ("not lemma", "Lin.K"),
        ("not not lemma", "R.L3.1 R.L3.2g"),
        ("not (lemma or kernel)", ""),
        ("lemma or kernel and gradient", "R.L3.1 R.L3.2g"),  # `and` binds closer than `or`
        ("(lemma or kernel) and gradient", "R.L3.2g"),
        ("(((lemma)))and(L3.1)", "R.L3.1"),
        ("well-posedness", "R.L3.1"),
        ("nothing", ""),
        ("android", ""),  # a word that only starts with a keyword
        ("  lemma\tand\nL3.1 ", "R.L3.1"),
    ],
)
def test_selection(expression, chosen):
    assert [claim.id for claim in select_claims(CLAIMS, expression)] == chosen.split()


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("", "takes 1 to"),
        ("   ", "takes 1 to"),
        ("and", "'and' is not expected there"),
        ("lemma and", "it ends too early"),
        ("lemma or or kernel", "'or' is not expected there"),
        ("not", "it ends too early"),
        ("(lemma", "it ends too early"),
        ("lemma)", "')' is not expected there"),
        ("()", "')' is not expected there"),
        ("lemma kernel", "'kernel' is not expected there"),
        ("(" * (MAX_TOKENS + 1), "takes 1 to"),
        ("a or " * MAX_TOKENS + "a", "takes 1 to"),
    ],
)
def test_what_cannot_be_read(expression, problem):
    with pytest.raises(ArgumentError, match="`-k`") as raised:
        select_claims(CLAIMS, expression)
    assert problem in str(raised.value)


def test_the_deepest_expression_that_is_allowed():
    half = (MAX_TOKENS - 2) // 2
    assert compile_selection("(" * half + "lemma" + ")" * half)(CLAIMS[0])
    assert compile_selection("not " * (MAX_TOKENS - 1) + "lemma")(CLAIMS[0]) is False
