"""Systems with families: a feed-forward network of any depth as a declaration, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path

import pytest

from ntk_deq.claims.claim import Claim, IllFormed, Suite, Verdict
from ntk_deq.claims.depths import at_depth
from ntk_deq.claims.describe import describe_systems
from ntk_deq.claims.load import load_suite
from ntk_deq.claims.statement import claim_file, differences
from ntk_deq.errors import ClaimFileError, ExpressionError
from ntk_deq.files.yaml import to_yaml
from ntk_deq.language.declaration import ModelSignature
from ntk_deq.language.parser import parse
from ntk_deq.verify.runner import Options, judge

FILE = """suite: t
systems:
  ff:
    variables:
      W: {{shape: "{shape}", role: parameter}}
      X: {{shape: "[n[0], N]", role: input}}
{extra}    define: {define}
settings:
  s: {{model: ff, sizes: {{{sizes}}}{setting}}}
claims:
  - {{id: C, setting: s, conclude: "{statement}"{claim}}}
"""
SHAPE = "[n[l], n[l-1]] for l in 1..D"
DEFINE = '{"z[0]": X, "z[l] for l in 1..D": "relu(W[l]*z[l-1])", L: "fro(z[D])^2"}'
SIZES = 'D: 1..2, N: 2, n: "1..2 for l in 0..D"'


def loaded(
    folder: Path,
    *,
    shape=SHAPE,
    define=DEFINE,
    sizes=SIZES,
    extra="",
    setting="",
    statement="norm(z[D]) >= 0",
    claim="",
) -> Suite:
    path = folder / "a.yaml"
    path.write_text(
        FILE.format(
            shape=shape, define=define, sizes=sizes, extra=extra, setting=setting, statement=statement, claim=claim
        )
    )
    return load_suite(path)


def claim_of(folder: Path, **parts: str) -> Claim:
    (claim,) = loaded(folder, **parts).claims
    assert isinstance(claim, Claim), claim.problems
    return claim


class TestDeclaration:
    def test_at_a_depth_it_is_an_ordinary_model(self, tmp_path):
        claim = claim_of(tmp_path)
        model = at_depth(claim, claim.depths[1]).settings[0].model
        assert model is not None
        assert not model.has_families
        assert {v.name: v.shape for v in model.variables} == {
            "W[1]": ("n[1]", "n[0]"),
            "W[2]": ("n[2]", "n[1]"),
            "X": ("n[0]", "N"),
        }
        assert model.definitions == {
            "z[0]": "X",
            "z[1]": "relu(`W[1]`*`z[0]`)",
            "z[2]": "relu(`W[2]`*`z[1]`)",
            "L": "fro(`z[2]`)^2",
        }

    def test_what_check_says_of_it(self, tmp_path):
        (system,) = describe_systems(loaded(tmp_path).claims)
        assert system.variables[0] == ("W[l]", "matrix n[l] x n[l-1]", "parameter for l in 1..D")
        assert ("z[l] for l in 1..D", "matrix n[l] x N", "relu(W[l]*z[l-1])") in system.definitions

    def test_a_claim_file_of_its_own_declares_it_too(self, tmp_path):
        claim = claim_of(tmp_path, statement="norm(grad(L, W[1])) >= 0")
        path = tmp_path / "b.yaml"
        path.write_text(to_yaml(claim_file(claim)))
        (again,) = load_suite(path).claims
        assert isinstance(again, Claim)
        assert not differences(claim, again)

    def test_draws_need_no_range_of_their_own(self, tmp_path):
        claim = claim_of(tmp_path, setting=', init: {W: "normal(0, 1/n[l-1])"}, data: {X: "normal(0, 1)"}')
        draws = at_depth(claim, claim.depths[1]).settings[0].draws
        assert draws["W[2]"].text == "normal(0, 1/n[1])"

    def test_a_family_of_numbers(self, tmp_path):
        define = '{"z[0]": X, "z[l] for l in 1..D": "W[l]*z[l-1]"}'
        claim = claim_of(tmp_path, shape="for l in 1..D", define=define)
        assert str(at_depth(claim, claim.depths[1]).settings[0].free["W[2]"].type) == "scalar"

    def test_members_in_backquotes_are_names(self):
        assert parse("`W[1]`'*`z[0]`[k]").args[0].args[0].name == "W[1]"
        for text in ("`W`", "`W[l]`", "`1[1]`"):
            with pytest.raises(ExpressionError, match="member by its number"):
                parse(text)

    def test_nobody_can_name_a_member_so_in_a_claim(self, tmp_path):
        (claim,) = loaded(tmp_path, statement="norm(`W[1]`) >= 0").claims
        assert isinstance(claim, IllFormed)
        assert "unknown name `W[1]`" in claim.problems[0].message


class TestRuns:
    RUN = ", run: {method: gradient-descent, step: 1/100}"

    def test_what_carries_a_step(self, tmp_path):
        (claim,) = loaded(tmp_path, statement="norm(X[k]) + norm(W[1][k]) >= 0 for all k", claim=self.RUN).claims
        assert isinstance(claim, IllFormed)
        assert claim.problems[0].hint == "what carries a step: L, W, path_length, z"

    def test_a_product_over_the_layers_of_a_step(self, tmp_path):
        claim_of(tmp_path, statement="prod(norm(W[l][k]) for l in 1..D) >= 0 for all k", claim=self.RUN)

    def test_a_step_where_a_member_is_meant(self, tmp_path):
        (claim,) = loaded(tmp_path, statement="norm(W[k][1]) >= 0 for all k", claim=self.RUN).claims
        assert isinstance(claim, IllFormed)
        assert "`k` is a step, and the first brackets behind a family take a member" in claim.problems[0].message


BAD_SYSTEMS = [
    ({"define": DEFINE.replace("W[l]*", "W[l]'*")}, "matrix n[l-1] x n[l] by matrix n[l-1] x N: inner sizes n[l] and"),
    ({"define": DEFINE.replace('"z[0]": X, ', "")}, "none of its members is defined without others"),
    ({"define": DEFINE.replace("relu(W[l]*", "relu(W[l+1]*W[l]*")}, "z[l] is matrix n[l] x N by its other members"),
    ({"define": DEFINE.replace("}", ', "W[1]": X}')}, "`W` cannot be called so: that is another name of this system."),
    ({"define": DEFINE.replace("}", ', "q[": X}')}, "or a member such as z[0]"),
    ({"shape": SHAPE.replace("1..D", "1..2*D")}, "an index may be made of"),
    ({"shape": SHAPE.replace("l in", "N in")}, "`N` is a size letter and cannot run over a range."),
    ({"shape": "[n[l], n[l-1]]"}, "`W` is no family"),
    ({"extra": '    equilibrium: {Z: "Z*0"}\n'}, "may have more than one shape, [D] and [N]; `shape` must"),
    ({"extra": '    shape: "[N] for l in 1..2"\n'}, "must be one or two sizes, such as `[m]`"),
]


@pytest.mark.parametrize(("parts", "message"), BAD_SYSTEMS)
def test_systems_that_are_none(tmp_path, parts, message):
    with pytest.raises(ClaimFileError) as caught:
        loaded(tmp_path, **parts)
    assert message in " ".join(problem.message for problem in caught.value.problems)


BAD_SETTINGS = [
    ({"sizes": "D: 1..2, N: 2, n: 2"}, "`sizes.n` must be a family, as in `n: 1..5 for l in 0..L` in the model ff."),
    ({"sizes": SIZES.replace("N: 2", 'N: "2 for l in 0..D"')}, "`sizes.N` must be a single size in the model ff."),
    ({"sizes": 'N: 2, n: "1..2 for l in 0..3"'}, "Model ff needs the size D"),
    ({"sizes": SIZES.replace("0..D", "1..D")}, "there is no size n[0] at D = 1."),
    ({"setting": ', domain: {W: "real for l in 1..2"}'}, "in the model W is a family for l in 1..D."),
    ({"setting": ', domain: {X: "real for l in 1..D"}'}, "in the model X is a single matrix n[0] x N, and no family."),
    ({"setting": ', domain: {W: "psd"}'}, "psd needs a square matrix"),
    ({"claim": ', let: {"z[7]": X}'}, "`let` cannot define `z`: that is defined by model ff as"),
]


@pytest.mark.parametrize(("parts", "message"), BAD_SETTINGS)
def test_settings_that_do_not_fit(tmp_path, parts, message):
    (claim,) = loaded(tmp_path, **parts).claims
    assert isinstance(claim, IllFormed)
    assert message in " ".join(problem.message for problem in claim.problems)


def test_a_system_that_doubles_at_each_layer_is_too_long_written_out(tmp_path):
    define = '{"z[0]": "norm(X)", "z[l] for l in 1..D": "z[l-1] + z[l-1]*norm(W[l])"}'
    sizes = 'D: 20, N: 2, n: "1..2 for l in 0..D"'
    (claim,) = loaded(tmp_path, define=define, sizes=sizes).claims
    assert isinstance(claim, IllFormed)
    assert "of model ff has more than 10,000 parts" in claim.problems[0].message


EQUILIBRIUM = """suite: t
systems:
  net:
    variables:
      W: {shape: "[m, m] for l in 1..L", role: parameter}
      X: {shape: "[m, N]", role: input}
    equilibrium: {Z: "z[L]"}
%s    define:
      z[0]: Z
      z[l] for l in 1..L: relu(W[l]*z[l-1] + X)
settings:
  s: {model: net, sizes: {L: 1..3, m: 1..2, N: 1..2}}
claims:
  - {id: C, setting: s, conclude: "fro(Z) >= 0"}
"""
PRODUCT = "    contraction: prod(norm(W[l]) for l in 1..L)\n"


class TestEquilibria:
    """A state that is the fixed point of a composition of layers, or of one layer with blocks."""

    @staticmethod
    def suite_of(folder: Path, text: str) -> Suite:
        path = folder / "a.yaml"
        path.write_text(text)
        return load_suite(path)

    def model(self, folder: Path, text: str, depth: int = -1) -> ModelSignature:
        (claim,) = self.suite_of(folder, text).claims
        assert isinstance(claim, Claim), claim.problems
        model = at_depth(claim, claim.depths[depth]).settings[0].model
        assert model is not None
        return model

    def test_a_composition_of_layers(self, tmp_path):
        model = self.model(tmp_path, EQUILIBRIUM % PRODUCT, depth=1)
        assert (model.state, model.state_shape, model.map) == ("Z", ("m", "N"), "`z[2]`")
        assert model.contraction == "norm(`W[1]`)*norm(`W[2]`)"  # what is read off the map has its factors turned round
        assert not model.local

    def test_without_a_certificate_the_constant_is_read_off_at_each_depth(self, tmp_path):
        model = self.model(tmp_path, EQUILIBRIUM % "")
        assert model.contraction == "norm(`W[3]`)*norm(`W[2]`)*norm(`W[1]`)"
        assert model.local

    def test_a_constant_that_is_too_small_is_not_believed(self, tmp_path):
        model = self.model(tmp_path, EQUILIBRIUM % "    contraction: norm(W[1])/2\n", depth=1)
        assert model.contraction == "max(norm(`W[1]`)/2, norm(`W[2]`)*norm(`W[1]`))"

    def test_layers_with_a_skip_do_not_double(self, tmp_path):
        text = EQUILIBRIUM.replace("+ X)", "+ X) + z[l-1]/2") % ""
        assert self.model(tmp_path, text, depth=1).contraction == "(norm(`W[2]`) + 1/2)*(norm(`W[1]`) + 1/2)"

    def test_blocks(self, tmp_path):
        text = EQUILIBRIUM.replace('"z[L]"', '"relu(B*Z + kron(ones(L), X))"') % '    shape: "[L*m, N]"\n'
        text = text.replace("z[0]: Z", "B: blockdiag(W[l] for l in 1..L)").replace(
            "      z[l] for l in 1..L: relu(W[l]*z[l-1] + X)\n", ""
        )
        assert self.model(tmp_path, text).state_shape == ("3*m", "N")
        monotone = text.replace("    define", "    monotone: 1/2\n    define")
        assert self.model(tmp_path, monotone).monotone == "1/2"

    def test_blocks_of_several_sizes(self, tmp_path):
        text = EQUILIBRIUM.replace("[m, m]", "[n[l], n[l]]").replace("[m, N]", "[N]").replace('"z[L]"', '"relu(B*Z)"')
        text = text.replace("z[0]: Z", "B: blockdiag(W[l] for l in 1..L)").replace(
            "      z[l] for l in 1..L: relu(W[l]*z[l-1] + X)\n", ""
        )
        text = text.replace("m: 1..2", 'n: "1..2 for l in 1..L"') % '    shape: "[sum(n[i] for i in 1..L)]"\n'
        model = self.model(tmp_path, text)
        assert model.state_shape == ("n[1] + n[2] + n[3]",)
        assert model.state_at({"n[1]": 1, "n[2]": 2, "n[3]": 2}) == (5, 1)

    def test_what_check_says_and_the_file_of_a_counterexample(self, tmp_path):
        suite = self.suite_of(tmp_path, EQUILIBRIUM % PRODUCT)
        (system,) = describe_systems(suite.claims)
        assert system.equilibrium == ("Z", "matrix m x N", "Z = z[L]")
        assert system.certificate == "contraction: prod(norm(W[l]) for l in 1..L) < 1"
        (claim,) = suite.claims
        path = tmp_path / "b.yaml"
        path.write_text(to_yaml(claim_file(claim)))
        (again,) = load_suite(path).claims
        assert not differences(claim, again)

    BAD = (
        ("", "      z[0]: Z\n", "      z[0]: Z'\n", "this must be matrix N x m. Got matrix m x N."),
        ("    contraction: norm(Z)\n", "", "", "a certificate of `Z` cannot rest on `Z` itself"),
        ("    contraction: W[1]\n", "", "", "this must be a scalar. Got matrix m x m."),
        ("    monotone: 1/2\n", "", "", "the map is not seen to be one layer"),
        (PRODUCT + "    monotone: 1/2\n", "", "", "a system has one certificate"),
        (PRODUCT, "relu(W", "step(W", "no Lipschitz constant of this part in the state is known"),
        ('    shape: "[L-1, N]"\n', "", "", "a size is made of whole numbers and size letters"),
        (PRODUCT, '"z[L]"', '"z[L+1]"', "`z[L+1]` is z[2], which is no member of `z`"),
        (PRODUCT, '"z[L]"', '"fixed_point(Z)"', "`fixed_point` cannot stand in the map"),
    )

    @pytest.mark.parametrize(("certificate", "old", "new", "message"), BAD)
    def test_systems_that_are_none(self, tmp_path, certificate, old, new, message):
        try:
            (claim,) = self.suite_of(tmp_path, EQUILIBRIUM.replace(old, new) % certificate).claims
            assert isinstance(claim, IllFormed)
            problems = list(claim.problems)
        except ClaimFileError as error:
            problems = error.problems
        assert message in " ".join(problem.message for problem in problems)


def test_an_equilibrium_of_layers_is_trained(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(TRAINED)
    descent, rise = (judge(claim, Options(search=0)) for claim in load_suite(path).claims)
    assert (descent.verdict, rise.verdict) == (Verdict.HOLDS, Verdict.REFUTED), (descent.reason, rise.reason)


TRAINED = """suite: t
systems:
  net:
    variables:
      W: {shape: "[m, m] for l in 1..D", role: parameter}
      a: {shape: "[m]", role: parameter}
      X: {shape: "[m, N]", role: input}
      y: {shape: "[N]", role: target}
    equilibrium: {Z: "z[D]"}
    contraction: prod(norm(W[l]) for l in 1..D)
    define:
      z[0]: Z
      z[l] for l in 1..D: relu(W[l]*z[l-1] + X)
      yhat: Z'*a/D
      L: norm(yhat - y)^2/2
settings:
  s:
    model: net
    sizes: {D: 1..2, N: 2, m: 2}
    init: {W: "normal(0, 1/36)", a: "normal(0, 1/3)"}
    data: {X: gaussian, y: rademacher}
claims:
  - id: T
    setting: s
    instances: 1
    run: {method: gradient-descent, step: 1/100, steps: 6, until: 0.7, beyond: false}
    conclude: L[k+1] <= L[k] for all k
  - id: F
    setting: s
    instances: 1
    run: {method: gradient-descent, step: 1/100, steps: 6, until: 0.7, beyond: false}
    conclude: L[k+1] >= L[k] for all k
"""
