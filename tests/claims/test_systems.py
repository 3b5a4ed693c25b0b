"""`systems` of a claim file: models written down as formulas, read strictly and usable by the settings of that file."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources

import pytest

from ntk_deq.claims.claim import Verdict
from ntk_deq.claims.describe import describe_systems
from ntk_deq.claims.load import load_suite
from ntk_deq.claims.statement import claim_file
from ntk_deq.claims.systems import read_systems
from ntk_deq.errors import ClaimFileError
from ntk_deq.files.yaml import read_text, to_yaml
from ntk_deq.language.declaration import Role, model_names, model_signature
from ntk_deq.verify.runner import Options, judge

FEW = Options(instances=30, search=40)

FILE = """
suite: t
systems:
  biased:
    variables:
      A: {shape: "[m, m]", role: parameter}
      W: {shape: [d, m], role: parameter}
      c: {shape: "[m]", role: parameter, description: the bias}
      u: {shape: "[m]", role: parameter}
      gamma: {role: hyperparameter, domain: "(0, 1)"}
      X: {shape: "[N, d]", role: input}
      y: {shape: "[N]", role: target}
    equilibrium: {Z: "relu(gamma*Z*A + drive)"}
    contraction: gamma*norm(A)
    define: {drive: "X*W + ones(N)*c'", yhat: Z*u, L: "norm(yhat - y)^2/2"}
settings:
  s: {model: biased, sizes: {N: 2, d: 2, m: 2}}
claims:
  - id: T
    setting: s
    instances: 10
    assume: gamma*norm(A) < 1
    conclude: fro(Z) <= fro(drive)/(1 - gamma*norm(A))
"""


def loaded(tmp_path, text=FILE, name="claims.yaml"):
    path = tmp_path / name
    path.write_text(text)
    return load_suite(str(path)).claims[0]


def wrong(tmp_path, old, new):
    assert old in FILE
    with pytest.raises(ClaimFileError) as caught:
        loaded(tmp_path, FILE.replace(old, new))
    (problem, *_) = caught.value.problems
    return f"{problem.position.line}:{problem.position.column}", problem.message


def test_a_system_is_a_model_of_its_file(tmp_path):
    claim = loaded(tmp_path)
    model = claim.settings[0].model
    assert (model.name, model.state_shape, model.sizes) == ("biased", ("N", "m"), ("m", "d", "N"))
    assert model.names(Role.PARAMETER) == ("A", "W", "c", "u")
    assert model.contraction == "max(gamma*norm(A), abs(gamma)*norm(A))"
    assert "biased" not in model_names()
    assert judge(claim, FEW).verdict is Verdict.HOLDS


def test_two_files_may_use_one_name(tmp_path):
    first, second = loaded(tmp_path), loaded(tmp_path, FILE.replace("+ drive)", "- drive)"), "other.yaml")
    assert first.settings[0].model.map != second.settings[0].model.map
    bound = "    conclude: fro(Z) <= 0\n"
    for claim in (first, second):
        assert judge(claim, FEW).verdict is Verdict.HOLDS
    broken = loaded(tmp_path, FILE[: FILE.index("    conclude")] + bound)
    assert judge(broken, FEW).verdict is Verdict.REFUTED


def test_the_contraction_is_read_off_the_map(tmp_path):
    text = FILE.replace("    contraction: gamma*norm(A)\n", "")
    assert loaded(tmp_path, text).settings[0].model.contraction == "abs(gamma)*norm(A)"


def test_a_constant_that_is_too_small_is_not_believed(tmp_path):
    """With 0, every state would count as the equilibrium that is one step away, where there is none."""
    text = FILE.replace("contraction: gamma*norm(A)", "contraction: 0")
    assert loaded(tmp_path, text).settings[0].model.contraction == "max(0, abs(gamma)*norm(A))"
    single = text.replace(
        "m: 2}}", "m: 1}, domain: {A: '[3, 3]', W: '[1, 1]', c: '[1, 1]', X: '[0, 1]', gamma: '[1/2, 1/2]'}}"
    )
    single = single.replace("assume: gamma*norm(A) < 1", "assume: gamma > 0")
    claim = loaded(tmp_path, single[: single.index("    conclude")] + "    conclude: fro(Z) <= 0\n")
    assert judge(claim, FEW).verdict is Verdict.UNDECIDED


def test_a_statement_holds_its_systems(tmp_path):
    claim = loaded(tmp_path)
    again = loaded(tmp_path, to_yaml(claim_file(claim)), "again.yaml")
    assert again.settings[0].model == claim.settings[0].model


TRAINED = """
claims:
  - id: T
    setting: s
    instances: 1
    run: {method: gradient-descent, step: 1/50, steps: 10, until: 0.7, beyond: false}
    conclude: "L[k] <= FACTOR*L[0] for all k"
"""
INIT = """init:
      {A: "normal(0, 1/36)", W: "normal(0, 1/2)", c: "normal(0, 1/4)", u: "normal(0, 1/3)",
       X: orthonormal_rows, y: rademacher}"""


@pytest.mark.parametrize(("factor", "verdict"), [("1", Verdict.HOLDS), ("exp(-1000*k)", Verdict.REFUTED)])
def test_a_system_is_trained(tmp_path, factor, verdict):
    head = FILE[: FILE.index("claims:")].replace("m: 2}}", f"m: 2}}, {INIT}}}")
    claim = loaded(tmp_path, head + TRAINED.replace("FACTOR", factor))
    result = judge(claim, Options(search=40))
    assert result.verdict is verdict, result.reason


@pytest.mark.parametrize(
    ("old", "new", "at", "message"),
    [
        ("role: target", "role: aim", "12:31", "must be one of 'parameter'"),
        ("    contraction", "    contractoin", "14:5", "Unknown key `contractoin`"),
        ("[m, m]", "[m m]", "6:18", "one or two size letters"),
        ('Z: "relu(gamma*Z*A + drive)"', 'Z: "relu(gamma*Z*A + drive)", Y: X', "13:5", "at most one equilibrium"),
        ("relu(gamma*Z*A + drive)", "relu(gamma*Z*A + drve)", "13:40", "unknown name `drve`"),
        ("relu(gamma*Z*A + drive)", "relu(gamma*Z*A + X*A)", "13:41", "cannot multiply"),
        ("relu(gamma*Z*A + drive)", "Z/norm(Z)", "13:22", "may have more than one shape"),
        ("relu(gamma*Z*A + drive)", "drive/norm(Z) + 0*Z", "13:29", "no Lipschitz constant"),
        ("yhat: Z*u", "yhat: Z*v", "15:49", "unknown name `v`"),
        ("gamma*norm(A)\n    define", "A\n    define", "14:18", "a number is needed"),
        ("  biased:\n", "  implicit-relu:\n", "4:3", "a registered model has this name"),
        ("      u: ", "      ones: ", "9:7", "a function of the language"),
        ('"(0, 1)"', '"(0, 1)[m]"', "10:45", "the shape stands under `shape`"),
    ],
)
def test_what_is_wrong_with_a_system_is_said_at_its_place(tmp_path, old, new, at, message):
    place, text = wrong(tmp_path, old, new)
    assert message in text
    assert place == at


def test_a_system_that_mixes_samples_is_judged_and_not_trained(tmp_path):
    head = FILE[: FILE.index("claims:")].replace("gamma*Z*A + drive", "gamma*ones(N, N)*Z*A/N + drive")
    claim = loaded(tmp_path, head.replace("m: 2}}", f"m: 2}}, {INIT}}}") + TRAINED.replace("FACTOR", "1"))
    assert "cannot be compiled from its map" in claim.problems[0].message
    assert "`N` is the number of all samples" in claim.problems[0].message or "mixes them" in claim.problems[0].message


def test_definitions_that_double_are_refused_at_once(tmp_path):
    doubling = ", ".join(f"q{k}: q{k - 1} + q{k - 1}" for k in range(1, 100))
    _, text = wrong(tmp_path, "define: {drive", f"define: {{q0: X*W, {doubling}, drive")
    assert "at most 10,000 parts" in text


SMOOTH = """
suite: smooth
systems:
  smooth:
    variables:
      A: {shape: "[m, m]", role: parameter}
      u: {shape: "[m]", role: parameter}
      X: {shape: "[N, m]", role: input}
      y: {shape: "[N]", role: target}
    equilibrium: {Z: "softplus(Z*A + X)"}
    define: {yhat: Z*u, L: norm(yhat - y)^2/2}
settings:
  any: {model: smooth, sizes: {N: 1..2, m: 1..2}}
claims:
  - {id: bound, setting: any, assume: norm(A) < 1, conclude: "fro(Z) <= FACTOR*fro(softplus(X))/(1 - norm(A))"}
  - {id: step, setting: any, instances: 3, assume: norm(A) < 1/2 and norm(y) >= 1, run: {method: gradient-descent,
     step: 1/1000, steps: 5, beyond: false}, conclude: "u[1] == u[0] - FACTOR/1000*Z[0]'*(yhat[0] - y)"}
"""


@pytest.mark.parametrize(("factor", "verdict"), [("1", Verdict.HOLDS), ("0.9", Verdict.REFUTED)])
def test_a_smooth_activation(tmp_path, factor, verdict):
    path = tmp_path / "smooth.yaml"
    path.write_text(SMOOTH.replace("FACTOR", factor))
    for claim in load_suite(str(path)).claims:
        result = judge(claim, Options(instances=12, search=20))
        assert result.verdict is verdict, (claim.id, result.reason)


def test_the_shipped_models_are_what_a_claim_file_would_declare():
    text = resources.files("ntk_deq.language").joinpath("models.yaml").read_text(encoding="utf-8")
    for name in model_names():
        assert text.count(f"  {name}:\n") == 1
        text = text.replace(f"  {name}:\n", f"  own-{name}:\n")
    systems, problems = read_systems(read_text(text).entries["systems"])
    assert not problems
    for name in model_names():
        own, known = systems[f"own-{name}"], model_signature(name)
        assert known.contraction in own.contraction  # which is the larger of it and of what is read off the map
        assert replace(own, name=name, contraction=known.contraction) == replace(known, implementation="")


FORMS = {
    "without": 'define: {L: "x\'*Q*x/2"}',
    "found": 'equilibrium: {z: "relu(Q*z + x)"}',
    "no constant": 'equilibrium: {z: "x*sum(z)*sum(z)"}',
    "declared": 'equilibrium: {z: "relu(Q*z + x)"}\n    contraction: 2*norm(Q)',
    "monotone": 'equilibrium: {z: "relu(W*z + x)"}\n    monotone: q/2\n    define: {W: (1 - q)*I(n) - Q\'*Q}',
    "number": 'equilibrium: {s: "q*s - 1/2"}\n    define: {t: s*Q*x}',
}
FORMED = """
suite: forms
systems:
  formed:
    variables:
      x: {shape: "[n]", role: parameter}
      Q: {shape: "[n, n]", role: hyperparameter, domain: psd}
      q: {role: hyperparameter, domain: "(0, 1)"}
    FORM
settings: {s: {model: formed, sizes: {n: 1..2}}}
claims:
  - {id: T, setting: s, conclude: CONCLUDE}
"""


def formed(tmp_path, form, conclude="sum(x) == sum(x)"):
    return loaded(tmp_path, FORMED.replace("FORM", FORMS.get(form, form), 1).replace("CONCLUDE", f'"{conclude}"'))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read_and_written(tmp_path, form):
    claim = formed(tmp_path, form)
    again = loaded(tmp_path, to_yaml(claim_file(claim)), "again.yaml")
    model = claim.settings[0].model
    assert again.settings[0].model == model
    assert model.has_equilibrium is (form != "without")
    assert (model.local, bool(model.monotone)) == (form in ("found", "no constant", "number"), form == "monotone")
    assert bool(model.contraction) is (form not in ("without", "no constant"))


@pytest.mark.parametrize(
    ("form", "conclude", "verdict"),
    [
        ("without", "grad(L, x) == Q*x", Verdict.HOLDS),
        ("without", "grad(L, x) == 2*Q*x", Verdict.REFUTED),
        ("number", "s == -1/(2*(1 - q))", Verdict.HOLDS),
        ("number", "norm(t) <= norm(Q*x)/2", Verdict.REFUTED),
        ("monotone", "norm(z) <= 2*norm(x)/q", Verdict.HOLDS),
    ],
)
def test_every_form_is_judged(tmp_path, form, conclude, verdict):
    result = judge(formed(tmp_path, form, conclude), Options(instances=30, search=0))
    assert result.verdict is verdict, result.reason


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("define: {}", "neither an `equilibrium` nor definitions"),
        ("contraction: q\n    define: {L: x'*x}", "the system has none"),
        ('shape: "[n]"\n    define: {L: x\'*x}', "the system has none"),
        ('equilibrium: {z: "relu(Q*z + x)"}\n    contraction: norm(P)', "unknown name `P`"),
        ('equilibrium: {z: "relu(Q*z + x)"}\n    monotone: mu', "unknown name `mu`"),
        ('equilibrium: {z: "relu(Q*z + x)"}\n    monotone: 0', "must be > 0. Got 0"),
        ('equilibrium: {z: "relu(Q*z + x)"}\n    monotone: -1/2', "must be > 0. Got -1/2"),
        ('equilibrium: {z: "relu(Q*z + x)"}\n    monotone: Q', "a number is needed"),
        ('equilibrium: {z: "relu(Q*z + x)"}\n    monotone: q\n    contraction: q', "one certificate"),
        ('equilibrium: {z: "abs(Q*z + x)"}\n    monotone: q', "not seen to be one layer"),
        ('equilibrium: {z: "relu(Q*z + x)"}\n    contraction: norm(z)', "cannot rest on `z` itself"),
        (
            'equilibrium: {z: "relu(Q*z + x)"}\n    monotone: k\n    define: {k: 1 + sum(z)}',
            "cannot rest on `z` itself",
        ),
        ('equilibrium: {z: "relu(Q*z + x)", w: x}', "a system has at most one equilibrium. Got z, w."),
        ('equilibrium: {z: "sign(Q*z + x)"}\n    contraction: q', "no Lipschitz constant"),
        ('equilibrium: {z: "sign(Q*z + x)"}\n    monotone: q', "not seen to be one layer"),
        ('equilibrium: {z: "relu(Q*fixed_point(z) + x)"}', "`fixed_point` cannot stand in the map"),
        ('equilibrium: {z: "relu(Q*z + g)"}\n    define: {g: "grad(x\'*Q*x, x)"}', "`grad` cannot stand in the map"),
        ('equilibrium: {z: "sum(z)*Q"}\n    shape: "[n]"', "the map must be a vector n"),
        ('equilibrium: {z: "relu(Q*z) + exp(sum(z))*x"}\n    contraction: q', "no Lipschitz constant"),
    ],
)
def test_what_is_wrong_with_a_form_is_said(tmp_path, form, message):
    with pytest.raises(ClaimFileError) as caught:
        formed(tmp_path, form)
    assert any(message in problem.message for problem in caught.value.problems), caught.value.problems


@pytest.mark.parametrize(
    ("conclude", "message"),
    [
        ("norm(fixed_point(x)) >= 0", "`fixed_point` needs an equilibrium, and model formed has none"),
        ("norm(next(x)) >= 0", "`next` needs an equilibrium, and model formed has none"),
        ("norm(Z) >= 0", "unknown name `Z`"),
    ],
)
def test_a_system_without_an_equilibrium_has_no_state(tmp_path, conclude, message):
    claim = formed(tmp_path, "without", conclude)
    assert message in claim.problems[0].message


def test_a_run_of_the_map_needs_one(tmp_path):
    text = FORMED.replace("FORM", FORMS["without"]).replace("conclude: CONCLUDE", "RUN, conclude: norm(x) >= 0")
    claim = loaded(tmp_path, text.replace("RUN", "run: {method: fixed-point, steps: 3}"))
    assert "needs an equilibrium; model formed has none" in claim.problems[0].message


def test_a_file_of_systems_that_includes_itself(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(FILE.replace("suite: t", "suite: t\ninclude: [a.yaml]"))
    with pytest.raises(ClaimFileError, match="include itself"):
        load_suite(path)


@pytest.mark.parametrize(
    ("conclude", "hint"),
    [
        ("ddt(x'*x) <= 0", "for a derivative along the gradient flow of L"),
        ("loss(x) >= 0", "write L, the loss that the model defines"),
        ("logdet(Q) >= 0", "write log(det(A))"),
        ("rows(Q) >= 0", "write A{i..p, :} for rows, A{:, j..q} for columns"),
        ("Q[1, 2] >= 0", "write A{i, j} for an entry; Z[k] is a value at a step"),
        ("norm(Q[1, 2] + Q) >= 0", "write A{i, j} for an entry; Z[k] is a value at a step"),
        ("π >= 0", "write pi"),
    ],
)
def test_hints_name_what_is_missing(tmp_path, conclude, hint):
    claim = formed(tmp_path, "without", conclude)
    assert hint in claim.problems[0].hint


@pytest.mark.parametrize(
    ("key", "hint"), [("train: [x]", "the role hyperparameter"), ("loss: x'*x", "the model's `L`")]
)
def test_a_part_of_the_parameters_or_another_loss_is_that_of_a_system(tmp_path, key, hint):
    path = tmp_path / "a.yaml"
    run = f"run: {{method: gradient-descent, step: 1, {key}}}"
    path.write_text(FILE.replace("    instances: 10", f"    {run}"))
    (claim,) = load_suite(path).claims
    assert hint in claim.problems[0].hint


@pytest.mark.parametrize(
    ("old", "new", "kernel"),
    [
        ("", "", "N x N, a sample in each row of X; blocks of A, W, c (1 place each in the map), u (1 place in yhat)"),
        ('u: {shape: "[m]"', 'u: {shape: "[m, k]"', "N*k x N*k in the order of vec(yhat), a sample in each row of X"),
        ("drive)", "drive + X*W*A)", "blocks of A, W (2 places each in the map), c (1 place in the map), u"),
        ("yhat: Z*u", "yhat: Z*u + Z*Z'*Z*u", "not sample by sample: `Z*Z'*Z` multiplies samples from the left"),
        ("norm(yhat - y)^2/2", "norm(yhat - y)^2/2 + fro(W)^2", "u (1 place in yhat); L reads W beside yhat"),
        ("norm(yhat - y)^2/2", "norm(yhat - y)^2/2 + sum(Z)^2", "u (1 place in yhat); L reads Z beside yhat"),
        ("yhat: Z*u, ", "", ""),
    ],
)
def test_what_the_kernel_consists_of(tmp_path, old, new, kernel):
    text = FILE.replace(old, new)
    if "k]" in new:
        text = text.replace('y: {shape: "[N]"', 'y: {shape: "[N, k]"').replace("norm(yhat - y)", "fro(yhat - y)")
        text = text.replace("N: 2,", "N: 2, k: 2,")
    if not kernel:
        text = text.replace(', L: "norm(yhat - y)^2/2"', "").replace("yhat", "q")
        text = text.replace("define: {drive", "define: {drive")
    path = tmp_path / "a.yaml"
    path.write_text(text if kernel else text.replace(', L: "norm(q - y)^2/2"', ""))
    (system,) = describe_systems(load_suite(path).claims)
    assert kernel in system.kernel if kernel else system.kernel == ""
