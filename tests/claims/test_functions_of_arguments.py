"""Functions of arguments: how they are written, what is wrong with them, what is left of them in formulas."""

from __future__ import annotations

from pathlib import Path

import pytest

from ntk_deq.claims.claim import Claim, IllFormed
from ntk_deq.claims.depths import at_depth
from ntk_deq.claims.load import load_suite
from ntk_deq.claims.statement import claim_file, differences, fingerprint
from ntk_deq.errors import ClaimFileError
from ntk_deq.files.yaml import to_yaml
from ntk_deq.language.application import Functions
from ntk_deq.language.arguments import Definition, definition
from ntk_deq.language.expansion import substituted
from ntk_deq.language.format import format_expr
from ntk_deq.language.parser import parse
from ntk_deq.language.types import SizeRange, matrix
from ntk_deq.language.typing import infer

ENVIRONMENT = {"A": matrix("m", "n"), "y": matrix("m"), "x": matrix("n"), "u": matrix("n")}
SIZES = {"m": SizeRange(1, 3), "n": SizeRange(1, 3)}
DEFINED = {
    "phi(u)": "norm(A*u - y)^2/2",
    "h(t[])": "t^2",
    "Lag(v, w)": "phi(v) + dot(v, w)",
    "weighted(v)": "sum(l*phi(l*v) for l in 1..2)",
    "twice(t)": "h(h(t))",
    "four": "compose(h, twice)",
    "f[l](z) for l in 1..3": "l*z",
    "f[0](z)": "z",
}

FILE = """suite: t
settings:
  any:
    sizes: {{m: 1..3, n: 1..3}}
    domain: {{A: "real[m, n]", y: "real[m]", x: "real[n]", u: "real[n]", c: real}}
claims:
  - id: C
    setting: any
    let: {let}
    conclude: "{statement}"
"""


def functions(defined=DEFINED) -> Functions:
    parts: dict[str, tuple] = {}
    for key, text in defined.items():
        body = parse(text)
        found = definition(key, text, body) if "(" in key else Definition(key, key, (), body, text)
        parts[found.name] = (*parts.get(found.name, ()), found)
    return Functions(parts, frozenset(ENVIRONMENT))


def written(text: str, defined=DEFINED) -> str:
    return format_expr(infer(functions(defined).written_out(parse(text)), ENVIRONMENT, sizes=SIZES))


def claim_of(folder: Path, statement: str, let: str) -> Claim | IllFormed:
    path = folder / "a.yaml"
    path.write_text(FILE.format(statement=statement, let=let))
    return load_suite(path).claims[0]


def problems(claim: Claim | IllFormed) -> str:
    assert isinstance(claim, IllFormed)
    return " ".join(f"{problem.message} Hint: {problem.hint}." for problem in claim.problems)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("phi(x)", "norm(A*x - y)^2/2"),
        ("phi(2*x) + h(3)", "norm(A*(2*x) - y)^2/2 + 3^2"),
        ("Lag(x, u)", "norm(A*x - y)^2/2 + dot(x, u)"),
        ("twice(3)", "(3^2)^2"),
        ("four(3)", "((3^2)^2)^2"),
        ("f[2](x) + f[0](x)", "2*x + x"),
        ("grad(phi, x)", "grad(u[n] -> norm(A*u - y)^2/2, x)"),
        ("grad(phi(x), x)", "grad(norm(A*x - y)^2/2, x)"),
        ("grad(Lag(_, u), 2*x)", "grad(v[n] -> norm(A*v - y)^2/2 + dot(v, u), 2*x)"),
        ("grad(Lag(u, _), x)", "grad(w[n] -> norm(A*u - y)^2/2 + dot(u, w), x)"),
        ("jac(f[3], x)", "jac(z[n] -> 3*z, x)"),
        ("grad(compose(h, h), 3)", "grad(t[] -> (t^2)^2, 3)"),
        ("argmin(phi)", "argmin(u[n] -> norm(A*u - y)^2/2)"),
        ("argmin(norm(A*u - x{1}*y), u)", "argmin(u[n] -> norm(A*u - x{1}*y))"),
        ("minimum(Lag(_, u), x)", "minimum(v[n] -> norm(A*v - y)^2/2 + dot(v, u))"),
        ("prox(abs, 3, 1/2)", "prox(x[] -> abs(x), 3, 1/2)"),
        ("moreau(v -> norm(v), x, 2)", "moreau(v[n] -> norm(v), x, 2)"),
    ],
)
def test_what_is_written_out(text, meaning):
    assert written(text) == meaning
    assert format_expr(infer(parse(meaning), ENVIRONMENT, sizes=SIZES)) == meaning


def test_nothing_is_captured():
    """A letter that runs over a range in a body, and the argument of a function in one, are not those of a use."""
    body = parse("sum(u*l for l in 1..3) + v")
    assert format_expr(substituted(body, {"u": parse("l + 1")})) == "sum((l + 1)*l_ for l_ in 1..3) + v"
    inner = {"g(a)": "grad(u -> dot(u, a)*norm(u), x)", "phi(u)": "norm(u)^2"}
    shown = written("g(2*u)", inner)
    assert shown == "grad(u1[n] -> dot(u1, 2*u)*norm(u1), x)"
    assert format_expr(infer(parse(shown), ENVIRONMENT, sizes=SIZES)) == shown


@pytest.mark.parametrize(
    ("let", "statement", "message"),
    [
        ('{"phi(u)": phi(u) + 1}', "phi(x) >= 0", "`phi` is defined by itself: phi(u) -> phi(u)."),
        ('{"f(u)": "g(u)", "g(u)": "f(u)"}', "f(x) >= 0", "is defined by itself: f(u) -> g(u) -> f(u)."),
        ('{"phi(u)": norm(A*u)}', "phi(x, x) >= 0", "`phi` takes 1 argument. Got 2. Hint: write phi(u)."),
        ('{"phi(u)": norm(A*u)}', "phi() >= 0", "`phi` takes 1 argument. Got 0."),
        (
            '{"phi(u)": norm(A*u)}',
            "phi(y) >= 0",
            "`u` in phi(u) is vector n. Got vector m.",
        ),
        ('{"h(t[])": t^2}', "h(x) >= 0", "`t` in h(t[]) is a scalar. Got vector n."),
        ('{"g(v)": norm(A*v)}', "g(y) >= 0", "inner sizes n and m differ. Hint: in g(v): norm(A*v)."),
        ('{"phi(u)": norm(A*u)}', "phi >= 0", "`phi` is a function, and a value is needed here. Hint: write phi(u)."),
        ('{"phi(u)": norm(A*u), "w(a, b)": a + b}', "w(_, x) >= 0", "a function is no value."),
        ("{q: norm(A)}", "q(x) >= 0", "`q` is no function. Hint: write q*(...) for a product."),
        ("{q: norm(A)}", "q[2](x) >= 0", "`q` is no family of functions."),
        ('{"phi(u)": norm(A*u)}', "norm(_) >= 0", "`_` stands for the open argument of a function"),
        ('{"w(a, b)": dot(a, b)}', "grad(w, x) == x", "w(a, b) has 2 arguments, and one is needed. Hint: leave one"),
        ('{"w(a, b)": dot(a, b)}', "grad(w(_, _), x) == x", "one argument may be left open. Got 2."),
        ('{"g(v[n])": A*v}', "norm(jac(compose(g, g), x)) >= 0", "`v` in compose is vector n. Got vector m."),
        ('{"g(v[n])": A*v}', "grad(g, x) == x", "grad needs a function whose values are numbers. Got vector m."),
        ('{"h(t)": t^2}', "minimum(h) >= 0", "`minimum` needs to know the shape of `t`. Hint: state it, as in t[n]"),
        ("{q: norm(A*u)}", "minimum(q, u) <= 0", "`q` depends on `u`, and minimum is over what stands in the formula"),
        ("{q: norm(A*u), r: q + 1}", "minimum(r + norm(u), u) <= 0", "`r` depends on `u`, and minimum is over"),
        ('{"norm(u)": u}', "c >= 0", "`norm` is a function of the language."),
        ('{"A(u)": u}', "c >= 0", "`let` cannot define `A`: that is a variable of setting any."),
        ('{"f(u, u)": u}', "c >= 0", "two parameters are called `u`."),
        ('{"f(u": u}', "c >= 0", "must be a letter or _"),
        ('{"f(2)": c}', "c >= 0", "unexpected '2'"),
        ('{"f(u)": "grad(norm(A*u), c)"}', "f(x) == 0", "would reach into the arguments of the function."),
        ('{"f(u)": "at(norm(A*u), x = u)"}', "f(x) == 0", "`at` would reach into the arguments of the function."),
        ('{"f(t)": t*t}', "f(f(f(f(f(f(f(f(f(f(f(f(f(f(c)))))))))))))) >= 0", "more than 20000 parts"),
    ],
)
def test_bad_input(tmp_path, let, statement, message):
    assert message in problems(claim_of(tmp_path, statement, let))


@pytest.mark.parametrize(
    "statement", ["x in subdiff(norm1, u)", "norm(prox(norm1, x, 1)) <= norm(x)", "infimum(softplus) <= 1"]
)
def test_a_function_of_the_language_is_taken_by_its_name(tmp_path, statement):
    claim = claim_of(tmp_path, statement, "{}")
    assert isinstance(claim, Claim), claim


def test_a_function_that_nothing_uses_is_a_warning(tmp_path):
    claim = claim_of(tmp_path, "c^2 >= 0", '{"phi(u)": norm(u)}')
    assert isinstance(claim, Claim)
    assert [warning.message for warning in claim.warnings] == ["`let.phi(u)` is used nowhere."]


def test_a_claim_as_a_file_states_the_same(tmp_path):
    claim = claim_of(
        tmp_path, "norm(grad(phi, x)) + h(c) >= D", '{"phi(u)": norm(A*u - y)^2/2, "h(t[])": t^2, D: -h(c)}'
    )
    assert isinstance(claim, Claim)
    path = tmp_path / "again.yaml"
    path.write_text(to_yaml(claim_file(claim)))
    again = load_suite(path).claims[0]
    assert differences(claim, again) == []
    assert fingerprint(claim) == fingerprint(again)
    assert again.conclude["conclusion"].text == "norm(grad(phi, x)) + h(c) >= D"


SETS = """suite: t
settings:
  any:
    sizes: {n: 1..2}
    domain: {u: "real[n]", L: positive, f: "convex(smooth = L)[n]"}
claims:
  - id: C
    setting: any
    given: {s: "activation(slopes = [0, 1])"}
    conclude: "norm(s(u)) + f(u) + infimum(f) >= 0"
"""


def test_a_claim_about_sets_of_functions_has_a_variant_for_each_choice(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(SETS.replace("convex(smooth = L)", "pl(1, smooth = L)"))
    wide = load_suite(path).claims[0]
    assert len(wide.depths) == 24  # of 6 x 7
    path.write_text(SETS.replace("convex(smooth = L)", "strongly_convex(L)").replace("norm(s(u)) + ", ""))
    assert "`given.s` is used nowhere." in problems(load_suite(path).claims[0])
    path.write_text(SETS.replace("convex(smooth = L)", "strongly_convex(L)"))
    claim = load_suite(path).claims[0]
    assert isinstance(claim, Claim)
    assert str(claim.depths[0]) == "f = flattest quadratic, s = lowest slope"
    assert len(claim.depths) == 24
    assert len({depth.members[0] for depth in claim.depths}) == 4
    assert len({depth.members[1] for depth in claim.depths}) == 7
    part = at_depth(claim, claim.depths[-1])
    assert part.settings[0].sizes["f"] == SizeRange(4, 4)
    assert part.assume.keys() == {"f is strongly_convex(L)[n]", "s is activation(slopes = [0, 1])"}
    assert {"f_c", "f_b", "f_d", "s_b"} == part.given.keys()
    again = tmp_path / "again.yaml"
    again.write_text(to_yaml(claim_file(part)))
    assert differences(claim, load_suite(again).claims[0]) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[0, 1]", "[2, 1]", "slopes run from the lowest to the highest. Got activation(slopes = [2, 1])."),
        ("s(u)", "s(u, u)", "`s` takes 1 argument. Got 2."),
        ("f(u)", "f(L)", "in f(x__[n]) is vector n. Got a scalar."),
        ('", L: pos', '", M: pos', "unknown name `L`"),
    ],
)
def test_bad_sets_of_functions(tmp_path, old, new, message):
    path = tmp_path / "a.yaml"
    path.write_text(SETS.replace("convex(smooth = L)", "strongly_convex(L)").replace(old, new))
    assert message in problems(load_suite(path).claims[0])


SYSTEM = """suite: t
systems:
  line:
    variables:
      a: {role: parameter}
      x: {role: input}
    define:
      scaled(t): 3*t
      shifted(t[]): t - a
      L: scaled(x + a)^2*shifted(x + 1)
settings:
  any: {model: line}
claims:
  - {id: C, setting: any, conclude: "L == 9*(x + a)^2*(x + 1 - a)"}
  - {id: D, setting: any, conclude: "scaled(x + 2*a) == 3*x + 6*a"}
"""


def test_functions_of_a_system_keep_what_belongs_together(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(SYSTEM)
    claims = load_suite(path).claims
    model = claims[0].settings[0].model
    assert model.definitions == {"L": "(3*(x + a))^2*(x + 1 - a)"}
    assert model.functions == {"scaled(t)": "3*t", "shifted(t[])": "t - a"}
    path.write_text(to_yaml(claim_file(claims[1])))
    assert differences(claims[1], load_suite(path).claims[0]) == []
    path.write_text(SYSTEM.replace("scaled(x + a)^2", "scaled(x, a)"))
    with pytest.raises(ClaimFileError, match=r"`scaled` takes 1 argument\. Got 2\."):
        load_suite(path)


def test_a_derivative_of_a_member_is_written_as_its_author_did(tmp_path):
    path = tmp_path / "a.yaml"
    text = "f(u) + norm(grad(f, u)) >= 0"
    path.write_text(
        SETS.replace("norm(s(u)) + f(u) + infimum(f) >= 0", text).replace(
            'given: {s: "activation(slopes = [0, 1])"}', ""
        )
    )
    claim = load_suite(path).claims[0]
    assert isinstance(claim, Claim), problems(claim)
    again = tmp_path / "again.yaml"
    again.write_text(to_yaml(claim_file(at_depth(claim, claim.depths[-1]))))
    assert text in again.read_text()
    assert isinstance(load_suite(again).claims[0], Claim)
