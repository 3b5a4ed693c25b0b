"""The schema of claim files: errors name key, place, what is allowed; the JSON Schema says the same to an editor."""

from __future__ import annotations

import re

import pytest

from ntk_deq.claims.schema import ClaimFile, ClaimModel, FileHead, SettingModel
from ntk_deq.claims.validate import DIALECT, claim_file_schema, place, validate
from ntk_deq.files.yaml import plain, read_text
from ntk_deq.language.declaration import model_names

GOOD = """
suite: example
source: {title: A title, authors: [One, Two], url: "https://example.org"}
include: [checks/*.yaml]
settings:
  any:
    model: implicit-relu
    sizes: {N: 1..6, d: 1..6, m: 4}
    domain: {A: real, gamma: [0, 1]}
  digits:
    sizes: {N: 12}
    images: {source: mnist, classes: [0, 1], side: 14}
    init: {c: 1/2, w: 0.5}
claims:
  - id: R.1
    setting: any
    given: {t: "(0, 1)"}
    let: {a: norm(A), two: 2}
    assume: a < 1
    conclude: {(i): a >= 0}
    run: {method: fixed-point, steps: 30}
    expect: holds
    tags: [lemma]
    instances: 10
  - {id: R.1.mutant, mutates: R.1, assume: null, choose: null, run: null, conclude: {(i): a >= 1}}
  - id: R.2
    setting: any
    given: {eta: positive}
    choose: {maximize: eta}
    conclude: "L[k] <= L[0] for all k"
    run: {method: gradient-descent, step: eta, steps: 1000000, until: 1e-3}
  - {id: R.3, setting: any, conclude: "L[t] > 0 for all t", run: {method: gradient-flow, horizon: 5, steps: 9}}
"""


CLAIM = "id: R\nsetting: s\nconclude: x\n"
YES = "Got the word 'yes' (only true and false are booleans)."
RANGE = "must be a whole number or a range `lo..hi` with 1 <= lo <= hi <= 1000000."
NOT_EXPRESSION = "`let.a` of claim R must be an expression (text or a number)."


class Subset:
    """The part of JSON Schema that `claim_file_schema` uses; the package jsonschema is no dependency."""

    def __init__(self, schema):
        self.root = schema

    def valid(self, value, schema=None):
        schema = self.root if schema is None else schema
        if "$ref" in schema:
            schema = self.root["$defs"][schema["$ref"].removeprefix("#/$defs/")] | {
                k: v for k, v in schema.items() if k != "$ref"
            }
        checks = [
            "type" not in schema or self.has_type(value, schema["type"]),
            "enum" not in schema or value in schema["enum"],
            "const" not in schema or value == schema["const"],
            "anyOf" not in schema or any(self.valid(value, option) for option in schema["anyOf"]),
            "oneOf" not in schema or sum(self.valid(value, option) for option in schema["oneOf"]) == 1,
            not isinstance(value, str) or self.text(value, schema),
            not isinstance(value, int | float) or isinstance(value, bool) or self.number(value, schema),
            not isinstance(value, list) or self.array(value, schema),
            not isinstance(value, dict) or self.object(value, schema),
        ]
        return all(checks)

    @staticmethod
    def has_type(value, name):
        if isinstance(value, bool):
            return name == "boolean"
        kinds = {
            "object": dict,
            "array": list,
            "string": str,
            "integer": int,
            "number": (int, float),
            "null": type(None),
        }
        return name in kinds and isinstance(value, kinds[name])

    @staticmethod
    def text(value, schema):
        fits = "pattern" not in schema or re.search(schema["pattern"], value) is not None
        return fits and schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 10**9)

    @staticmethod
    def number(value, schema):
        inside = schema.get("exclusiveMinimum", value - 1) < value < schema.get("exclusiveMaximum", value + 1)
        return inside and schema.get("minimum", value) <= value <= schema.get("maximum", value)

    def array(self, value, schema):
        sized = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 10**9)
        return sized and all(self.valid(item, schema.get("items", {})) for item in value)

    def object(self, value, schema):
        if not set(schema.get("required", ())) <= set(value):
            return False
        if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
            return False
        for key, item in value.items():
            patterns = [s for pattern, s in schema.get("patternProperties", {}).items() if re.search(pattern, key)]
            options = [schema["properties"][key]] if key in schema.get("properties", {}) else patterns
            rest = schema.get("additionalProperties", {})
            if not options:
                if rest is False:
                    return False
                options = [rest if isinstance(rest, dict) else {}]
            if not all(self.valid(item, option) for option in options):
                return False
        return True


def problems(model, text, what="claim R"):
    _, found = validate(model, read_text(text), what, claim="R")
    return [(p.position.line, p.position.column, p.message, p.hint) for p in found]


class TestMessages:
    def test_a_good_file_has_none(self):
        text = GOOD.replace(", conclude: {(i): a >= 1}}", ", setting: any, conclude: {(i): a >= 1}}").replace(
            "assume: null, choose: null", "instances: 1"
        )
        model, found = validate(ClaimFile, read_text(text), "a claim file")
        assert found == []
        assert model.settings["any"].sizes["N"].high == 6
        assert model.claims[0].assume == {"assumption": "a < 1"}
        assert model.claims[0].setting == ["any"]

    @pytest.mark.parametrize(
        ("model", "text", "line", "column", "message", "hint"),
        [
            (
                ClaimModel,
                CLAIM + "asume: y",
                4,
                1,
                "Unknown key `asume` in claim R. Allowed: id,",
                "did you mean `assume`?",
            ),
            (ClaimModel, "id: R\nconclude: x", 1, 1, "Claim R needs the key `setting`.", None),
            (
                ClaimModel,
                CLAIM + "run: {method: fixed-point, steps: yes}",
                4,
                35,
                "`run.steps` of claim R must be a whole number. " + YES,
                None,
            ),
            (
                ClaimModel,
                CLAIM + "run: {method: fixed-point, steps: 10001}",
                4,
                35,
                "must be a number <= 10000. Got 10001",
                None,
            ),
            (
                ClaimModel,
                CLAIM + "run: {method: fixed-point, stpes: 3, steps: 3}",
                4,
                28,
                "Unknown key `stpes` in `run` of claim R. Allowed: method, steps.",
                "did you mean `steps`?",
            ),
            (
                ClaimModel,
                CLAIM + "run: {method: gradient-flow, step: 3}",
                4,
                30,
                "`run.step` belongs to gradient-descent. The method gradient-flow takes method, steps, until, horizon.",
                None,
            ),
            (
                ClaimModel,
                CLAIM + "run: {method: fixed-point, steps: 3, until: 0.1}",
                4,
                38,
                "`run.until` belongs to gradient-descent and gradient-flow. The method fixed-point takes method, st",
                None,
            ),
            (
                ClaimModel,
                CLAIM + "run: {method: gradient-flow, horzion: 3}",
                4,
                30,
                "Unknown key `horzion` in `run` of claim R. Allowed: method, steps, until, horizon.",
                "did you mean `horizon`?",
            ),
            (ClaimModel, CLAIM + "run: {method: gradient-descent}", 4, 6, "Claim R needs the key `run.step`.", None),
            (ClaimModel, CLAIM + "run: {steps: 3}", 4, 6, "Claim R needs the key `run.method`.", None),
            (ClaimModel, CLAIM + "run: gradient-flow", 4, 6, "`run` of claim R must be a mapping", None),
            (
                ClaimModel,
                CLAIM + "run: {method: gradient-flwo}",
                4,
                15,
                "`run.method` of claim R must be one of 'fixed-point', 'gradient-descent', 'gradient-flow', "
                "'recursion'. Got 'gra",
                "did you mean `gradient-flow`?",
            ),
            (
                ClaimModel,
                CLAIM + "run: {method: [gradient-flow]}",
                4,
                15,
                "`run.method` of claim R must be one of 'fixed-point', 'gradient-descent', 'gradient-flow', "
                "'recursion'. Got a list",
                None,
            ),
            (ClaimModel, CLAIM + "run: {method: gradient-flow, steps: 0}", 4, 37, "a number >= 1. Got 0.", None),
            (
                ClaimModel,
                CLAIM + "run: {method: gradient-descent, step: 1, steps: 1000001}",
                4,
                49,
                "`run.steps` of claim R must be a number <= 1000000. Got 1000001.",
                None,
            ),
            *(
                (
                    ClaimModel,
                    CLAIM + f"run: {{method: gradient-flow, until: {text}}}",
                    4,
                    37,
                    f"`run.until` of claim R must be a number with 0 < until < 1. Got {shown}.",
                    None,
                )
                for text, shown in (("1", "1"), ("0", "0"), ("-0.1", "-0.1"), (".nan", "'.nan'"), ("eta", "'eta'"))
            ),
            (
                ClaimModel,
                CLAIM + "choose: {maximize: a, minimize: b}",
                4,
                9,
                "`choose` of claim R must be a mapping with one key, `maximize` or `minimize`. Got a mapping.",
                None,
            ),
            (ClaimModel, CLAIM + "choose: {}", 4, 9, "with one key, `maximize` or `minimize`. Got an empty", None),
            (ClaimModel, CLAIM + "choose: eta", 4, 9, "`choose` of claim R must be a mapping", None),
            (
                ClaimModel,
                CLAIM + "choose: {maximise: eta}",
                4,
                10,
                "Unknown key `maximise` in `choose` of claim R. Allowed: maximize, minimize, aims.",
                "did you mean `maximize`?",
            ),
            (
                ClaimModel,
                CLAIM + "expect: refutes",
                4,
                9,
                "`expect` of claim R must be one of",
                "did you mean `refuted`?",
            ),
            (ClaimModel, CLAIM + "title: 3", 4, 8, "`title` of claim R must be text. Got 3.", "put it in quotes"),
            (ClaimModel, CLAIM + "let: {1a: x}", 4, 7, "The name `1a` in `let` of claim R must be a letter or _", None),
            (ClaimModel, CLAIM + "let: {a: true}", 4, 10, NOT_EXPRESSION + " Got true.", None),
            (ClaimModel, CLAIM + "let: {a: }", 4, 10, NOT_EXPRESSION + " Got nothing.", None),
            (
                ClaimModel,
                "id: R\nsetting: s\nconclude: {}",
                3,
                11,
                "`conclude` of claim R must be a list or mapping with at least 1 entry. Got an empty",
                None,
            ),
            (
                ClaimModel,
                "id: a b\nsetting: s\nconclude: x",
                1,
                5,
                "`id` of claim R must be letters, digits and . _ + -",
                None,
            ),
            (ClaimModel, "- x", 1, 1, "Claim R must be a mapping (`name: value` lines). Got a list.", None),
            (SettingModel, "sizes: {N: yes}", 1, 12, f"`sizes.N` of claim R {RANGE} {YES}", None),
            (SettingModel, "sizes: {N: 6..1}", 1, 12, RANGE, None),
            (SettingModel, "sizes: {N: 0}", 1, 12, RANGE, None),
            (SettingModel, "sizes: {N: 2.5}", 1, 12, RANGE, None),
            (SettingModel, "sizes: {N: 1..10000000}", 1, 12, RANGE, None),
            (
                SettingModel,
                "images: {source: mmist}",
                1,
                18,
                "`images.source` of claim R must be one of 'mnist', 'idx', 'npz'.",
                "did you mean `mnist`?",
            ),
            (SettingModel, "images: {unit_norm: yes}", 1, 21, "must be true or false. Got the word 'yes'", None),
            (SettingModel, "domain: {A: 3}", 1, 13, "must be a domain such as", None),
            (SettingModel, "domain: {A: [0]}", 1, 13, "must be a domain such as", None),
            (FileHead, "suite: 3", 1, 8, "`suite` of claim R must be text. Got 3.", "put it in quotes"),
            (FileHead, "suite: s\nclaims: {a: 1}", 2, 9, "`claims` of claim R must be a list. Got a mapping.", None),
        ],
    )
    def test_each_says_where_what_and_what_is_allowed(self, model, text, line, column, message, hint):
        ((found_line, found_column, found, found_hint),) = problems(model, text)
        assert message in found
        assert (found_line, found_column) == (line, column)
        assert found_hint == hint

    def test_all_are_collected(self):
        assert (
            len(problems(ClaimModel, "id: 3\nexpect: x\nrun: {method: fixed-point, steps: yes, a: 1}\ntitel: a")) == 7
        )

    def test_with_only_unknown_keys_the_rest_is_still_read(self):
        text = "id: R\nsetting: s\nconclude: x\nasume: y\nrun: {method: fixed-point, steps: 3, tsep: 1}"
        model, found = validate(ClaimModel, read_text(text), "claim R")
        assert len(found) == 2
        assert model.run.steps == 3

    def test_the_place_of_something_absent_is_that_of_its_surroundings(self):
        root = read_text("a:\n  b: [1, 2]")
        assert place(root, ("a", "b", 1)).column == 10
        assert place(root, ("a", "b", 7)).column == 6
        assert place(root, ("a", "c")).line == 2
        assert place(root, ("a",), key=True).line == 1


class TestJsonSchema:
    schema = claim_file_schema()

    def valid(self, text):
        return Subset(self.schema).valid(plain(read_text(text)))

    def test_dialect_title_and_models(self):
        assert self.schema["$schema"] == DIALECT
        assert self.schema["$defs"]["SettingModel"]["properties"]["model"]["examples"] == list(model_names())

    def test_every_key_is_explained(self):
        for name, definition in self.schema["$defs"].items():
            for key, value in definition.get("properties", {}).items():
                assert value.get("description"), f"{name}.{key}"

    def test_every_reference_resolves(self):
        references = re.findall(r"'\$ref': '#/\$defs/(\w+)'", str(self.schema))
        assert set(references) <= set(self.schema["$defs"])

    def test_a_good_file_is_valid(self):
        assert self.valid(GOOD)

    def test_a_setting_may_name_a_system_of_its_file(self):
        system = "systems: {own: {variables: {c: {role: parameter}}, equilibrium: {z: c*z}}}\nsettings:"
        named = GOOD.replace("model: implicit-relu", "model: own")
        assert not self.valid(named)
        assert self.valid(named.replace("settings:", system, 1))
        assert not self.valid(named.replace("settings:", system.replace("role: parameter", "role: own"), 1))

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("suite: example", "suit: example"),
            ("suite: example", "suite: 3"),
            ("model: implicit-relu", "model: implicit-rely"),
            ("N: 1..6", "N: yes"),
            ("m: 4", "m: 0"),
            ("gamma: [0, 1]", "gamma: 3"),
            ("gamma: [0, 1]", "gamma: [0, 1, 2]"),
            ("gamma: [0, 1]", "1gamma: [0, 1]"),
            ("source: mnist", "source: mmist"),
            ("side: 14", "side: no"),
            ("  - id: R.1\n", "  - title: R.1\n"),
            ("steps: 30", "steps: 10001"),
            ("method: fixed-point, ", ""),
            ("method: fixed-point", "method: gradient-flow, step: 1"),
            ("method: gradient-descent, step: eta", "method: gradient-descent"),
            ("horizon: 5", "step: 5"),
            ("steps: 1000000", "steps: 1000001"),
            ("until: 1e-3", "until: 1"),
            ("until: 1e-3", "until: 0"),
            ("{maximize: eta}", "{}"),
            ("{maximize: eta}", "{maximize: eta, minimize: eta}"),
            ("{maximize: eta}", "{maximise: eta}"),
            ("{maximize: eta}", "eta"),
            ("expect: holds", "expect: hold"),
            ("tags: [lemma]", "tags: lemma"),
            ("instances: 10", "instances: yes"),
            ("let: {a: norm(A), two: 2}", "let: [a]"),
            ("assume: a < 1", "asume: a < 1"),
            ("    setting: any\n", ""),
            ("{id: R.1.mutant, mutates: R.1, ", "{id: R.1.mutant, "),
        ],
    )
    def test_a_bad_file_is_not(self, old, new):
        assert old in GOOD
        assert not self.valid(GOOD.replace(old, new))
