"""Settings: sizes, domains, distributions and images; what a setting lacks and what it may not say."""

from __future__ import annotations

from fractions import Fraction

import pytest

from ntk_deq.claims.claim import Claim, IllFormed
from ntk_deq.claims.load import load_suite
from ntk_deq.claims.settings import build_setting
from ntk_deq.errors import ExpressionError
from ntk_deq.files.yaml import read_text
from ntk_deq.language.domain import DISTRIBUTIONS, DomainKind, check_distribution, parse_domain, split_shape
from ntk_deq.language.parser import parse
from ntk_deq.language.types import SCALAR, SizeRange, matrix

RELU = "model: implicit-relu\nsizes: {N: 8, d: 16, m: 4}\n"


def build(text, tmp_path="/nowhere", **options):
    from pathlib import Path

    return build_setting("s", read_text(text), directory=Path(tmp_path), **options)


def good(text, *arguments, **options):
    record = build(text, *arguments, **options)
    assert record.problems == ()
    return record.setting


def wrong(text, *arguments, **options):
    record = build(text, *arguments, **options)
    assert record.setting is None
    return [(p.position.line, p.position.column, p.message, p.hint) for p in record.problems]


class TestDomains:
    def test_a_model_s_variables_take_their_default_domain(self):
        setting = good(RELU + "domain: {A: nonnegative}")
        assert setting.universal
        assert setting.free["A"].domain.kind is DomainKind.NONNEGATIVE
        assert (setting.free["gamma"].domain.low, setting.free["gamma"].domain.high) == (0, 1)
        assert {name: str(free.type) for name, free in setting.free.items()} == {
            "A": "matrix m x m",
            "W": "matrix d x m",
            "b": "vector m",
            "gamma": "scalar",
            "X": "matrix N x d",
            "y": "vector N",
        }

    def test_without_a_model_the_shape_is_written(self):
        setting = good(
            "sizes: {n: 1..3, m: 2}\ndomain: {P: 'real[n, m]', v: 'unit_rows [m^2]', k: 'real[n*m, 3]', c: positive}"
        )
        assert setting.model is None
        assert [str(f.type) for f in setting.free.values()] == [
            "matrix n x m",
            "vector m^2",
            "matrix m*n x 3",
            "scalar",
        ]
        assert setting.sizes == {"n": SizeRange(1, 3), "m": SizeRange(2, 2)}

    @pytest.mark.parametrize(
        ("text", "kind", "low", "high", "open_"),
        [
            ("(0, 1]", DomainKind.INTERVAL, 0, 1, (True, False)),
            ("[-1/2, 1e2)", DomainKind.INTERVAL, Fraction(-1, 2), 100, (False, True)),
            ("(-inf, 0.1]", DomainKind.INTERVAL, None, Fraction(1, 10), (True, False)),
            ("[2, 2]", DomainKind.INTERVAL, 2, 2, (False, False)),
            ("integer", DomainKind.INTEGER, None, None, (False, False)),
            ("integer -2..5", DomainKind.INTEGER, -2, 5, (False, False)),
            ("orthogonal", DomainKind.ORTHOGONAL, None, None, (False, False)),
        ],
    )
    def test_the_grammar(self, text, kind, low, high, open_):
        domain, shape = parse_domain(text)
        assert shape is None
        assert (domain.kind, domain.low, domain.high, (domain.low_open, domain.high_open)) == (kind, low, high, open_)

    @pytest.mark.parametrize(
        ("text", "span", "words"),
        [
            ("symetric", (0, 8), "Got 'symetric'"),
            ("interval", (0, 8), "Got 'interval'"),
            ("(1, 0)", (0, 6), "is empty"),
            ("(1, 1]", (0, 6), "is empty"),
            ("(0, yes)", (4, 7), "Got 'yes'"),
            ("(0, )", (3, 4), "a bound of an interval"),
            ("(0, 1/0)", (4, 7), "a bound of an interval"),
            ("(0, 1e999)", (4, 9), "a bound of an interval"),
            ("(0, inf, 2)", (0, 11), "a domain must be one of"),
            ("integer 5..1", (0, 12), "lo <= hi"),
            ("real[n, m, k]", (4, 13), "one or two sizes. Got 3"),
            ("real[n + 1]", (5, 10), "a size in a shape must be"),
            ("real[]", (5, 5), "a size in a shape must be"),
            ("real[n, 0]", (7, 9), "a size in a shape must be"),
        ],
    )
    def test_what_is_no_domain(self, text, span, words):
        with pytest.raises(ExpressionError) as caught:
            parse_domain(text)
        assert words in caught.value.message
        assert caught.value.span == span

    def test_an_interval_is_not_taken_for_a_shape(self):
        assert split_shape("[0, 1]") == ("[0, 1]", None)
        assert str(split_shape("[0, 1][n]")[1]) == "vector n"

    @pytest.mark.parametrize(
        ("domain", "words"),
        [
            ("{A: 'real[m, d]'}", "in the model A is a matrix m x m. Got the shape of a matrix m x d"),
            ("{A: 'real[k, k]'}", "the size k is not among `sizes` (N, d, m)"),
            ("{W: psd}", "psd needs a square matrix. Got matrix d x m"),
            ("{gamma: symmetric}", "symmetric needs a square matrix. Got scalar"),
            ("{gamma: unit_rows}", "unit_rows needs a matrix. Got scalar"),
            ("{Z: real}", "cannot be called `Z`: that is the state of model implicit-relu"),
            ("{yhat: real}", "cannot be called `yhat`: that is defined by model implicit-relu as Z*b"),
            ("{m: real}", "cannot be called `m`: that is a size letter of setting s"),
            ("{zeros: real}", "cannot be called `zeros`: that is a function of the language"),
            ("{all: real}", "cannot be called `all`: that is a word of the language"),
        ],
    )
    def test_what_does_not_fit_the_model(self, domain, words):
        ((line, _, message, _),) = wrong(RELU + f"domain: {domain}")
        assert words in message
        assert line == 3

    def test_the_model_exactly_as_its_shape_may_be_repeated(self):
        assert good(RELU + "domain: {A: 'real[m, m]'}")


class TestSizes:
    def test_every_size_of_the_model_is_needed(self):
        found = wrong("model: implicit-relu\nsizes: {N: 3}")
        assert [message for *_, message, _ in found] == [
            "Model implicit-relu needs the size d; `sizes` must give it.",
            "Model implicit-relu needs the size m; `sizes` must give it.",
        ]

    def test_an_unknown_model_names_the_nearest(self):
        ((line, column, message, hint),) = wrong("sizes: {N: 1}\nmodel: implicit-rely")
        assert (line, column) == (2, 8)
        assert "Known models: implicit-relu, linear-implicit, monotone-deq." in message
        assert hint == "did you mean `implicit-relu`?"

    def test_a_size_that_is_a_function(self):
        assert "A size letter cannot be called `ones`" in wrong("sizes: {ones: 3}")[0][2]

    def test_variables_that_no_memory_holds(self):
        found = wrong("model: implicit-relu\nsizes: {N: 1, d: 1, m: 1000000}")
        assert "The model's variable A: a matrix m x m is 1000000 x 1000000" in found[0][2]
        assert "1000000000000 entries" in wrong("sizes: {n: 1000000}\ndomain: {P: 'real[n, n]'}")[0][2]


class TestDistributions:
    def test_data_and_init_are_read_alike(self):
        setting = good(
            RELU
            + "data: {X: sphere, y: rademacher}\ndomain: {beta: positive}\n"
            + "init: {W: beta*normal(0, 1/m), A: zeros, b: ones, gamma: 1/2}"
        )
        assert not setting.universal
        assert list(setting.draws) == ["X", "y", "W", "A", "b", "gamma"]
        assert list(setting.free) == ["beta"]
        assert setting.draws["W"].text == "beta*normal(0, 1/m)"
        assert setting.draws["gamma"].distribution.type is None

    def test_a_shape_behind_a_distribution(self):
        setting = good("sizes: {n: 2, m: 3}\ninit: {P: 'normal(0, 1/n) [n, m]', u: uniform(0, 1)}")
        assert str(setting.draws["P"].type) == "matrix n x m"
        assert str(setting.draws["u"].type) == "scalar"

    @pytest.mark.parametrize("name", DISTRIBUTIONS)
    def test_every_distribution_of_the_table_is_accepted(self, name):
        arguments = ["normal(0, 1)" if p == "distribution" else "1/2" for p in DISTRIBUTIONS[name].parameters]
        text = f"{name}({', '.join(arguments)})" if arguments else name
        check_distribution(parse(text), matrix("n", "n"), {"n": SizeRange(3, 3)})

    @pytest.mark.parametrize(
        "text",
        [
            "-identity",
            "2*normal(0, 1)/sqrt(m)",
            "beta*identity + 0.1*gaussian",
            "nonnegative(symmetric(normal(0, max(1, m)^2)))",
            "low_rank(gaussian, 2) - rank_one(sphere)",
            "diagonal(rademacher)",
        ],
    )
    def test_what_may_be_combined(self, text):
        check_distribution(parse(text), matrix("m", "m"), {"m": SizeRange(4, 4)})

    @pytest.mark.parametrize(
        ("text", "underlined", "words", "hint"),
        [
            ("zeroes", "zeroes", "must be drawn from a distribution", "did you mean `zeros`?"),
            ("1/2", "1/2", "must be drawn from a distribution", "write c*ones"),
            ("normall(0, 1)", "normall(0, 1)", "unknown distribution or function `normall`", "did you mean `normal`?"),
            ("2*nromal(0, 1)*ones", "nromal(0, 1)", "unknown distribution or function", "did you mean `normal`?"),
            ("normal(0)", "normal(0)", "takes 2 parameters, as in `normal(mean, variance)`. Got 1", None),
            ("normal", "normal", "takes 2 parameters", None),
            ("zeros(2)", "zeros(2)", "takes 0 parameters, as in `zeros`. Got 1", None),
            ("normal(0, -1)", "-1", "`variance` of normal must be a number >= 0", None),
            ("normal(0, ones)", "ones", "`variance` of normal must be a number. Got a distribution", None),
            ("nonnegative(2)", "2", "`distribution` of nonnegative must be a distribution", None),
            ("ones*ones", "ones*ones", "multiplied only by a number", None),
            ("1/ones", "ones", "nothing may be divided by a distribution", None),
            ("ones + 1", "1", "a number cannot be added to a distribution", "write c*ones"),
            ("ones^2", "ones^2", "may not stand inside a 'power'", None),
            ("ones'", "ones'", "may not stand inside a 'transpose'", None),
            ("relu(ones)", "relu(ones)", "may not stand inside `relu(...)`", None),
            ("ones <= 1", "ones <= 1", "may not stand inside a 'compare'", None),
            ("(1 <= 2)*ones", "(1 <= 2)", "may not contain a 'compare'", None),
            ("sqrt(1, 2)*ones", "sqrt(1, 2)", "`sqrt` takes 1 argument. Got 2", None),
        ],
    )
    def test_what_is_no_distribution(self, text, underlined, words, hint):
        with pytest.raises(ExpressionError) as caught:
            check_distribution(parse(text), matrix("m", "m"), {"m": SizeRange(4, 4)})
        assert words in caught.value.message
        assert text[slice(*caught.value.span)] == underlined
        assert (caught.value.hint or "").startswith(hint or "")

    @pytest.mark.parametrize(
        ("text", "type_", "words"),
        [
            ("orthogonal", matrix("n", "m"), "`orthogonal` needs a square matrix. Got matrix n x m"),
            ("sphere", SCALAR, "`sphere` needs a vector or a matrix. Got a scalar"),
            ("rank_one(gaussian)", matrix("n"), "`rank_one` needs a matrix. Got vector n"),
            ("rank_one(identity)", matrix("n", "m"), "`identity` needs a square matrix. Got vector n"),
            ("orthonormal_rows", matrix("n", "m"), "n goes up to 6, m down to 4"),
        ],
    )
    def test_shapes_that_a_distribution_does_not_have(self, text, type_, words):
        with pytest.raises(ExpressionError, match=words.replace("(", r"\(")):
            check_distribution(parse(text), type_, {"n": SizeRange(2, 6), "m": SizeRange(4, 9)})

    @pytest.mark.parametrize("text", ["identity", "orthogonal", "identity/2 + skew(gaussian)"])
    def test_sizes_of_one_value_make_a_square(self, text):
        check_distribution(parse(text), matrix("n", "m"), {"n": SizeRange(2, 2), "m": SizeRange(2, 2)})
        for m in (SizeRange(3, 3), SizeRange(2, 3)):
            with pytest.raises(ExpressionError, match="needs a square matrix"):
                check_distribution(parse(text), matrix("n", "m"), {"n": SizeRange(2, 2), "m": m})

    @pytest.mark.parametrize(
        ("body", "column", "words"),
        [
            ("init: {gamma: yes}", 15, "Got the word 'yes' (only true and false are booleans)"),
            ("init: {W: normal(0 1)}", 20, "unexpected '1'"),
            ("init: {A: zeros, A: ones}", 18, "The key `A` is here twice"),
            ("init: {A: 'zeros[m, d]'}", 11, "in the model A is a matrix m x m"),
            ("init: {gamma: 2*gamma}", 8, "`init.gamma` uses itself: gamma -> gamma."),
            ("init: {gamma: 2*s, s: gamma/2}", 8, "`init.gamma` uses itself: gamma -> s -> gamma."),
            ("init: {A: ones, b: A*ones}", 20, "`A` is none of them"),
        ],
    )
    def test_the_place_of_what_is_wrong(self, body, column, words):
        ((line, found, message, _),) = wrong(RELU + body)
        assert words in message
        assert (line, found) == (3, column)

    def test_a_distribution_may_use_another_scalar_that_is_drawn(self):
        setting = good(RELU + "init: {A: gamma*spread*ones, gamma: 1/2, spread: uniform(0, 1)}")
        assert set(setting.draws) == {"A", "gamma", "spread"}

    @pytest.mark.parametrize("other", ["domain: {A: real}", "data: {A: ones}"])
    def test_a_variable_comes_from_one_place(self, other):
        ((_, _, message, _),) = wrong(RELU + f"init: {{A: zeros}}\n{other}")
        assert message.startswith("`A` is given twice, by")

    def test_a_scalar_that_only_the_claim_gives(self, tmp_path):
        path = tmp_path / "a.yaml"
        path.write_text(
            f"suite: s\nsettings:\n  s: {{{', '.join(RELU.strip().splitlines())}, init: {{W: 'beta*ones'}}}}\nclaims:\n"
            "- {id: a, setting: s, given: {beta: positive}, conclude: norm(W) >= 0}\n"
            "- {id: b, setting: s, conclude: norm(W) >= 0}\n"
            "- {id: c, setting: s, given: {bta: positive}, conclude: norm(W) >= 0}\n"
            "- {id: d, setting: s, given: {beta: 'real[m]'}, conclude: norm(W) >= 0}\n"
        )
        a, b, c, d = load_suite(path).claims
        assert isinstance(a, Claim)
        assert list(a.given) == ["beta"]
        assert all(isinstance(claim, IllFormed) for claim in (b, c, d))
        (problem,) = b.problems
        assert "`init.W` of setting s uses `beta`" in problem.message
        assert problem.source[slice(*problem.span)] == "beta"
        assert {p.hint for p in c.problems if "uses `beta`" in p.message} == {"did you mean `bta`?"}


class TestImages:
    def test_inputs_targets_and_sizes_come_from_the_images(self):
        setting = good(
            "model: implicit-relu\nsizes: {N: 12, m: 24}\ninit: {W: gaussian}\n"
            "images: {classes: [3, 7], side: 14, split: test}"
        )
        assert setting.images.classes == (3, 7)
        assert (setting.images.inputs, setting.images.targets) == ("X", "y")
        assert setting.sizes["d"] == SizeRange(196, 196)
        assert not {"X", "y"} & (set(setting.free) | set(setting.draws))
        assert str(setting.variable_types()["X"]) == "matrix N x d"
        assert not setting.universal

    def test_mnist_has_784_pixels_and_targets_may_be_drawn(self):
        setting = good("sizes: {N: 1..20, d: 700..800}\nimages: {count: 12}\ndata: {y: 'rademacher[N]'}")
        assert setting.sizes == {"N": SizeRange(12, 12), "d": SizeRange(784, 784)}
        assert setting.images.targets is None

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            (
                "sizes: {N: 3, d: 100}\nimages: {side: 14}",
                "Images of 14 x 14 pixels make d = 196; `sizes` asks for 100.",
            ),
            ("sizes: {N: 3..5}\nimages: {count: 12}", "12 samples make N = 12; `sizes` asks for 3..5."),
            ("images: {side: 14}", "The size N must be given, or `count`."),
            (
                "sizes: {N: 3}\nimages: {source: npz, images: a.npz}",
                "The size d must be one number, or `side` must be given",
            ),
            ("sizes: {N: 3}\nimages: {images: a.npz}", "`images.source: mnist` takes no `images`."),
            ("sizes: {N: 3, d: 4}\nimages: {source: npz}", "`images.source: npz` needs `images`."),
            ("sizes: {N: 3, d: 4}\nimages: {source: idx, images: a}", "`images.source: idx` needs `labels`."),
            ("sizes: {N: 3}\nimages: {classes: [1, 1]}", "must name each class once"),
            (
                "sizes: {N: 3}\nimages: {side: 2}\ndata: {X: 'ones[N, d]'}",
                "`X` is given twice, by `images` and by `data`.",
            ),
        ],
    )
    def test_what_does_not_fit(self, text, words):
        ((_, _, message, _),) = wrong(text)
        assert words.lower() in message.lower()

    def test_data_files_stay_in_the_folder_unless_allowed(self, tmp_path):
        folder, other = tmp_path / "claims", tmp_path / "data"
        folder.mkdir()
        other.mkdir()
        (folder / "link").symlink_to(other)
        text = "sizes: {{N: 3, d: 4}}\nimages: {{source: npz, images: {}}}"
        inside = good(text.format("sub/a.npz"), folder)
        assert inside.images.images == str(folder / "sub" / "a.npz")
        for path in ("../data/a.npz", str(other / "a.npz"), "link/a.npz", '"a\\0.npz"', "~/../../a.npz"):
            assert "must lie in the folder of the claim file" in wrong(text.format(path), folder)[0][2]
        for path in ("../data/a.npz", str(other / "a.npz"), "link/a.npz"):
            assert good(text.format(path), folder, allow_data=[other]).images.images == str(other / "a.npz")
        exact = other / "a.npz"
        assert good(text.format(exact), folder, allow_data=[exact])
        assert wrong(text.format(other / "b.npz"), folder, allow_data=[exact])


def test_a_broken_setting_spoils_only_the_claims_that_use_it(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(
        "suite: s\nsettings:\n  bad: {domain: {c: positve}}\n  worse: {colour: red}\n  idle: 3\n"
        "  good: {domain: {c: real}}\n"
        "claims:\n- {id: a, setting: bad, conclude: c > 0}\n- {id: b, setting: good, conclude: c > 0}\n"
        "- {id: c, setting: [good, worse], conclude: c > 0}\n"
    )
    a, b, c = load_suite(path).claims
    assert isinstance(b, Claim)
    assert [p.position.line for p in a.problems] == [3]
    assert "Unknown key `colour` in setting worse" in c.problems[0].message
    assert {p.claim for p in c.problems} == {"c"}
