"""The strict YAML reader: what it takes, what it refuses, and where it says things stand."""

from __future__ import annotations

import os

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ntk_deq.errors import ClaimFileError
from ntk_deq.files import yaml as yaml_strict
from ntk_deq.files.yaml import Mapping, Scalar, plain, problems_below, read_file, read_text


def entry(text: str, key: str = "a") -> Scalar:
    root = read_text(text)
    assert isinstance(root, Mapping)
    node = root.entries[key]
    assert isinstance(node, Scalar)
    return node


@pytest.fixture(params=["libyaml", "pure Python"])
def loader(request, monkeypatch):
    if request.param == "pure Python":
        monkeypatch.setattr(yaml_strict, "_LOADER", yaml.SafeLoader)
    elif not yaml.__with_libyaml__:
        pytest.skip("PyYAML was built without libyaml")


@pytest.mark.usefixtures("loader")
class TestValues:
    @pytest.mark.parametrize(
        ("written", "value"),
        [
            ("3", 3),
            ("-3", -3),
            ("0.10", 0.1),
            ("1e-3", 1e-3),
            ("true", True),
            ("false", False),
            ("null", None),
            ("~", None),
            ("", None),
            ("yes", "yes"),
            ("no", "no"),
            ("On", "On"),
            ("off", "off"),
            ("True", "True"),
            ("012", "012"),
            ("1_000", "1_000"),
            ("1:30", "1:30"),
            ("2020-01-01", "2020-01-01"),
            ("0x10", "0x10"),
            (".inf", ".inf"),
            ("'3'", "3"),
            ('"true"', "true"),
            ("1..6", "1..6"),
        ],
    )
    def test_only_true_false_null_and_plain_decimals_are_not_text(self, written, value):
        found = entry(f"a: {written}")
        assert found.value == value
        assert type(found.value) is type(value)

    def test_the_exact_text_of_a_number_is_kept(self):
        assert entry("a: 0.10").text == "0.10"

    def test_a_comma_inside_parentheses_does_not_end_a_value_in_flow_style(self):
        root = read_text("{A: real, gamma: (0, 1), W: f(g(1, 2), 3), N: 1..6}")
        assert plain(root) == {"A": "real", "gamma": "(0, 1)", "W": "f(g(1, 2), 3)", "N": "1..6"}
        assert not list(problems_below(root))

    def test_a_parenthesis_that_never_closes_swallows_no_real_entry(self):
        assert plain(read_text("{a: (0, b: 2}")) == {"a": "(0", "b": 2}

    def test_a_number_of_5000_digits_stays_text(self):
        assert entry("a: " + "9" * 5000).value == "9" * 5000


@pytest.mark.usefixtures("loader")
class TestPositions:
    @pytest.mark.parametrize(
        ("written", "text", "columns"),
        [
            ("xy + z", "xy + z", [4, 5, 6, 7, 8, 9]),
            ("'b''c'", "b'c", [5, 6, 8]),
            (r'"a\u0041\x42\"c"', 'aAB"c', [5, 6, 12, 16, 18]),
            ("γ*𝛾 + 1", "γ*𝛾 + 1", [4, 5, 6, 7, 8, 9, 10]),
        ],
    )
    def test_every_character_of_a_one_line_scalar_has_its_column(self, written, text, columns):
        node = entry(f"k: 1\na: {written}   # comment")
        assert node.text == text
        assert [node.position_of(i).column for i in range(len(text))] == columns
        assert {node.position_of(i).line for i in range(len(text))} == {2}

    def test_a_joined_value_has_the_columns_of_its_source(self):
        node = entry("{a: (0, 1), b: 2}")
        assert node.position_of(node.text.index("1")).column == 9

    @pytest.mark.parametrize("written", [">\n  one\n  two", "|\n  one\n  two", "one\n  two"])
    def test_a_scalar_over_several_lines_points_at_its_start(self, written):
        node = entry(f"a: {written}")
        assert node.position_of(5) == node.position
        assert (node.position.line, node.position.column) == (1, 4)

    def test_a_byte_order_mark_shifts_nothing(self):
        assert entry("\ufeffa: b").position.column == 4


@pytest.mark.usefixtures("loader")
class TestRefused:
    @pytest.mark.parametrize(
        ("text", "line", "column", "words"),
        [
            ("a: &x 1\nb: *x", 1, 4, "anchors are not allowed"),
            ("a: *x", 1, 4, "aliases are not allowed"),
            ("a: 1\n---\nb: 2", 2, 1, "one YAML document"),
            ("a: ]", 1, 4, "not YAML"),
            ("a: b: c", 1, 5, "not YAML"),
            ("a:\n\t- b", 2, 1, "not YAML"),
            ("a: 'b", 1, 6, "not YAML"),
            ("a: \x00", 1, 4, "U+0000 is not allowed"),
            ("a: 1\nb: \ud800", 2, 4, "U+D800 is not allowed"),
            ("", 1, 1, "is empty"),
            ("# only a comment\n", 1, 1, "is empty"),
        ],
    )
    def test_a_file_that_is_unusable_says_where(self, text, line, column, words):
        with pytest.raises(ClaimFileError) as caught:
            read_text(text)
        (problem,) = caught.value.problems
        assert words in problem.message
        assert (problem.position.line, problem.position.column) == (line, column)

    @pytest.mark.parametrize(
        ("text", "line", "column", "words"),
        [
            ("a: 1\na: 2", 2, 1, "`a` is here twice; first at line 1, column 1"),
            ("a: {b: 1, b: 2}", 1, 11, "`b` is here twice"),
            ("20: x", 1, 1, "key must be text. Got 20, which YAML reads as a number"),
            ("true: x", 1, 1, "which YAML reads as a boolean"),
            ("~: x", 1, 1, "which YAML reads as an empty value"),
            ("? [p]\n: x", 1, 3, "key must be text. Got a list or a mapping"),
            ("<<: {b: 1}", 1, 1, "merge keys"),
            ("a: !!python/name:os.system x", 1, 4, "tags are not allowed"),
            ("a: !mine {b: 1}", 1, 4, "tags are not allowed"),
            ("a: ! x", 1, 4, "tags are not allowed"),
        ],
    )
    def test_a_local_fault_is_kept_with_its_node(self, text, line, column, words):
        (problem,) = problems_below(read_text(text))
        assert words in problem.message
        assert (problem.position.line, problem.position.column) == (line, column)

    def test_billion_laughs_gives_one_error_at_its_first_anchor(self):
        lines = ["a0: &a0 [lol, lol]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60)]
        with pytest.raises(ClaimFileError) as caught:
            read_text("\n".join(lines))
        assert len(caught.value.problems) == 1
        assert caught.value.problems[0].position.line == 1

    @pytest.mark.parametrize("text", ["a: " + "[" * 200, "{" * 200, "- " * 20_000 + "x", "? " * 20_000, "[" * 100_000])
    def test_depth_is_bounded_whatever_the_style(self, text):
        with pytest.raises(ClaimFileError):
            read_text(text)

    def test_depth_of_50_is_allowed_and_51_is_not(self):
        assert read_text("[" * 50 + "]" * 50)
        with pytest.raises(ClaimFileError, match="at most 50 deep"):
            read_text("[" * 51 + "]" * 51)


def test_number_of_values_is_bounded(monkeypatch):
    monkeypatch.setattr(yaml_strict, "MAX_NODES", 100)
    with pytest.raises(ClaimFileError, match="at most 100 values"):
        read_text("[" + "a, " * 100 + "]")


class TestFiles:
    def problem(self, path):
        with pytest.raises(ClaimFileError) as caught:
            read_file(path, "shown.yaml")
        (problem,) = caught.value.problems
        assert problem.position.file == "shown.yaml"
        return problem

    def test_missing_and_folder(self, tmp_path):
        assert "no file" in self.problem(tmp_path / "none.yaml").message
        assert "is a folder" in self.problem(tmp_path).message

    def test_a_name_with_a_nul_is_no_file(self, tmp_path):
        assert "cannot be read: its name holds a NUL" in self.problem(tmp_path / "a\0b").message

    def test_not_utf8_names_byte_and_line(self, tmp_path):
        path = tmp_path / "latin.yaml"
        path.write_bytes(b"a: 1\nb: caf\xe9\n")
        problem = self.problem(path)
        assert "0xe9" in problem.message
        assert problem.position.line == 2

    def test_utf16_is_refused(self, tmp_path):
        path = tmp_path / "wide.yaml"
        path.write_text("suite: x", encoding="utf-16")
        assert "UTF-8" in self.problem(path).message

    def test_larger_than_4_mib(self, tmp_path):
        path = tmp_path / "large.yaml"
        path.write_bytes(b"#" * (4 * 2**20) + b"\n")
        assert "4 MiB" in self.problem(path).message

    def test_a_pipe_is_not_waited_for(self, tmp_path):
        path = tmp_path / "pipe.yaml"
        os.mkfifo(path)
        assert "it is a pipe, no regular file" in self.problem(path).message


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab:{}[],&*!|>'\"%@`#-? \n\t()<~0\\u", max_size=60))
def test_any_text_is_read_or_refused_with_a_claim_file_error(text):
    try:
        root = read_text(text)
    except ClaimFileError:
        return
    plain(root)
    list(problems_below(root))


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text("abcde", min_size=1), st.text(st.characters(codec="utf-8"), max_size=20), max_size=5))
def test_what_yaml_writes_is_read_back(data):
    for style in (False, True):
        text = yaml.safe_dump(data, allow_unicode=True, default_flow_style=style, default_style='"')
        assert plain(read_text(text)) == data
