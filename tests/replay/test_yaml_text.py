"""The YAML that is written is the data that the strict reader reads."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ntk_deq.files.yaml import NumberText, plain, problems_below, read_text, to_yaml

WORDS = "yes null ~ true 1 -1.5e3 0x1p3 # ' \" \\ \x00 \x7f [ {a &x *x !t | > % @ ` << = ...".split(" ")
ODD = (*WORDS, "", " ", "a: b", "- a", "\n", "a\nb", "\t", "\x85", "\u2028", "\ufeff")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(ODD)
KEYS = TEXT.filter(bool)
DATA = st.recursive(
    TEXT | st.integers(-(10**12), 10**12) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=15,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(KEYS, DATA, min_size=1, max_size=5))
def test_data_comes_back(data: dict[str, object]) -> None:
    root = read_text(to_yaml(data))
    assert not list(problems_below(root))
    assert plain(root) == data


def test_numbers_in_exact_text_are_plain_and_matrices_stay_readable() -> None:
    text = to_yaml({"A": [[NumberText("1/2"), NumberText("-0x1.8p-3")]], "v": [NumberText("7")] * 60})
    assert text.splitlines()[0] == "A: [[1/2, -0x1.8p-3]]"
    assert text.splitlines()[1:4] == ["v:", "  - 7", "  - 7"]


def test_a_list_without_entries_is_no_empty_value_even_after_a_long_key() -> None:
    data = {"k" * 200: [], "m": {}}
    assert plain(read_text(to_yaml(data))) == data


def test_a_float_has_no_exact_text() -> None:
    with pytest.raises(TypeError, match="no exact text"):
        to_yaml({"a": 0.1})
