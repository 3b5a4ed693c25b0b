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


FAMILY = [
    Entry("R.T4.2", ("theorem", "training")),
    Entry("R.T4.2.m1", ("mutant",)),
    Entry("R.T4.2b"),
    Entry("R.T4.2b.m1", ("mutant",)),
    Entry("R.T4x2"),
    Entry("training", ("wide[1]",)),
]


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ("R.T4.2", "R.T4.2"),
        ("r.t4.2", "R.T4.2"),
        ("R.T4.2b", "R.T4.2b"),
        ("R.T4.2 or R.T4.2b", "R.T4.2 R.T4.2b"),
        ("not R.T4.2", "R.T4.2.m1 R.T4.2b R.T4.2b.m1 R.T4x2 training"),
        ("T4.2", "R.T4.2 R.T4.2.m1 R.T4.2b R.T4.2b.m1"),  # no id: a word that occurs in some
        ("R.T4.2*", "R.T4.2 R.T4.2.m1 R.T4.2b R.T4.2b.m1"),
        ("r.t4.2.*", "R.T4.2.m1"),
        ("R.T4.2?", "R.T4.2b"),
        ("R.T4[.x]2", "R.T4.2 R.T4x2"),
        ("R.T4.2[!b]*", "R.T4.2.m1"),
        ("*.m? and not *b*", "R.T4.2.m1"),
        ("T4.2*", ""),  # a pattern is matched against the whole id
        ("mut*", "R.T4.2.m1 R.T4.2b.m1"),  # or a whole tag
        ("training", "R.T4.2 training"),  # an id, and the tag that is the same word
        ("train", "R.T4.2 training"),
        ("*", "R.T4.2 R.T4.2.m1 R.T4.2b R.T4.2b.m1 R.T4x2 training"),
        ("[", ""),
    ],
)
def test_ids_and_patterns(expression, chosen):
    assert [claim.id for claim in select_claims(FAMILY, expression)] == chosen.split()


def test_the_deepest_expression_that_is_allowed():
    half = (MAX_TOKENS - 2) // 2
    assert compile_selection("(" * half + "lemma" + ")" * half, [])(CLAIMS[0])
    assert compile_selection("not " * (MAX_TOKENS - 1) + "lemma", [])(CLAIMS[0]) is False
