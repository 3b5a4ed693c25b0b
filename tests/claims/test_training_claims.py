"""Claims about training runs: the theorems of a paper load, and each mistake has its message and its place."""

from __future__ import annotations

import textwrap
from fractions import Fraction

import pytest

from ntk_deq.claims.claim import Claim, IllFormed
from ntk_deq.claims.load import load_suite
from ntk_deq.language.declaration import ModelSignature, Role, Variable
from ntk_deq.language.run import GRADIENT_DESCENT, GRADIENT_FLOW
from ntk_deq.language.tree import Kind
from ntk_deq.language.types import STEP, TIME

HEAD = """
suite: training
settings:
  any: {model: implicit-relu, sizes: {N: 1..6, d: 1..6, m: 1..6}}
  other: {model: linear-implicit, sizes: {N: 1..6, d: 1..6, m: 1..6}}
  plain: {sizes: {n: 1..6}, domain: {P: "real[n, n]", c: positive}}
  drawn:
    model: implicit-relu
    sizes: {N: 5, d: 6, m: 8}
    data: {X: orthonormal_rows, y: rademacher}
    init: {W: "beta*normal(0, 1/m)", A: zeros, b: zeros, gamma: 1/2}
claims:
"""

THEOREMS = """
- id: R.T4.4
  title: Gradient descent converges linearly
  where: Theorem 4.4
  setting: drawn
  given: {C1: positive, C2: positive, C3: positive, beta: positive, eta: positive}
  choose: {maximize: eta*alpha0^2}
  let:
    alpha0: sigma_min(Z[0])
    lam1: norm(W[0]) + C1
    lam2: norm(A[0]) + C2
    lam3: norm(b[0]) + C3
    gamma0: gamma*lam2
    lam0: max(lam1/C3, gamma0*lam1*lam3/((1 - gamma0)*C2*lam2), lam3/C1)
    kappa: 1 + gamma0^2/(1 - gamma0)^2*lam1^2/lam2^2
    lbar: kappa*(kappa*lam1^-2 + lam3^-2)^-2
    H: Z*Z'
    gb: grad(L, b)
  assume:
    well-posed: gamma0 < 1
    (17): alpha0^2 >= 8/(1 - gamma0)*lam0*fro(X)*norm(yhat[0] - y)
    (18): alpha0^3 >= kappa*16*lam3/(1 - gamma0)^2*fro(X)^2*norm(yhat[0] - y)
    (19): alpha0^2 >= kappa*16*lam3^2/(1 - gamma0)^2*fro(X)^2
    (20): eta < min(4/alpha0^2, 2*(1 - gamma0)^2*lbar*lam1^-4*lam3^-2*fro(X)^-2)
  run: {method: gradient-descent, step: eta}
  conclude:
    (i): norm(W[k]) <= lam1 and norm(A[k]) <= lam2 and norm(b[k]) <= lam3 for all k
    (ii): sigma_min(Z[k]) >= alpha0/2 for all k
    (iii): L[k] <= (1 - eta*alpha0^2/4)^k*L[0] for all k
    kernel: lambda_min(H[k]) >= alpha0^2/4 for all k
    length: path_length[k] <= C1 + C2 + C3 for all k
    slope: norm(gb[k+1]) <= norm(Z[k+1])*norm(yhat[k+1] - y) for all k

- id: R.T4.2
  title: Gradient flow converges linearly
  where: Theorem 4.2
  setting: drawn
  given: {C1: positive, C2: positive, C3: positive, beta: positive}
  choose: {maximize: alpha0}
  let:
    alpha0: sigma_min(Z[0])
    lam1: norm(W[0]) + C1
    lam2: norm(A[0]) + C2
    lam3: norm(b[0]) + C3
    gamma0: gamma*lam2
    lam0: max(lam1/C3, gamma0*lam1*lam3/((1 - gamma0)*C2*lam2), lam3/C1)
    kappa: 1 + gamma0^2/(1 - gamma0)^2*lam1^2/lam2^2
  assume:
    well-posed: gamma0 < 1
    (14): alpha0^2 >= 4/(1 - gamma0)*lam0*fro(X)*norm(yhat[0] - y)
    (15): alpha0^3 >= kappa*8*lam3/(1 - gamma0)^2*fro(X)^2*norm(yhat[0] - y)
  run: {method: gradient-flow, horizon: 5/alpha0^2, until: 1e-8, steps: 300}
  conclude:
    (i): norm(W[t]) <= lam1 and norm(A[t]) <= lam2 and norm(b[t]) <= lam3 for all t
    (ii): sigma_min(Z[t]) >= alpha0/2 for all t
    (iii): L[t] <= exp(-alpha0^2*t/2)*L[0] for all t
    monotone: L[t] <= L[s] for all s, t with s + 0.5 <= t
"""


@pytest.fixture
def suite(tmp_path):
    def write(claims, head=HEAD):
        path = tmp_path / "suite.yaml"
        path.write_text(head + textwrap.dedent(claims).lstrip("\n"), encoding="utf-8")
        return load_suite(path).claims

    return write


@pytest.fixture
def one(suite):
    """Return the only claim of a file, written on one line behind its id."""
    return lambda body: suite(f"- {{id: a, {body}}}")[0]


class TestTheorems:
    def test_gradient_descent(self, suite):
        claim, _ = suite(THEOREMS)
        assert isinstance(claim, Claim), claim.problems
        run, choose = claim.run, claim.choose
        assert (run.kind, run.steps, run.until, run.horizon) == (
            GRADIENT_DESCENT,
            2000,
            Fraction(1, 10**6),
            None,
        )
        assert (run.step.name, run.step.text, run.step.position.line) == ("step", "eta", 36)
        assert str(run.step.expr.type) == "scalar"
        assert (choose.objective.name, choose.objective.text, choose.maximize) == ("maximize", "eta*alpha0^2", True)
        assert all(node.type is not None for node in choose.objective.expr.walk())
        index = next(node for node in claim.conclude["(i)"].expr.walk() if node.kind is Kind.INDEX)
        assert (index.name, str(index.type), index.args[0].type) == ("W", "matrix d x m", STEP)
        assert str(claim.let["H"].expr.type) == "matrix N x N"

    def test_gradient_flow(self, suite):
        _, claim = suite(THEOREMS)
        assert isinstance(claim, Claim), claim.problems
        run = claim.run
        assert (run.kind, run.steps, run.until, run.step) == (GRADIENT_FLOW, 300, Fraction(1, 10**8), None)
        assert (run.horizon.name, run.horizon.text) == ("horizon", "5/alpha0^2")
        index = next(node for node in claim.conclude["(ii)"].expr.walk() if node.kind is Kind.INDEX)
        assert index.args[0].type == TIME

    def test_a_mutant_takes_over_run_and_choice_and_may_replace_them(self, suite):
        _, _, same, other, dropped = suite(
            THEOREMS
            + """
            - {id: M1, mutates: R.T4.4, assume: {(20): null}}
            - id: M2
              mutates: R.T4.4
              given: {eta: null}
              choose: {minimize: C1}
              assume: {(20): null}
              run: {method: gradient-flow}
              conclude: {(iii): null, slope: null}
            - {id: M3, mutates: R.T4.2, choose: null}
            """.replace("\n            ", "\n")
        )
        assert (same.run.step.text, same.choose.objective.text) == ("eta", "eta*alpha0^2")
        assert (other.run.kind, other.run.step, other.choose.maximize) == (GRADIENT_FLOW, None, False)
        assert (other.run.steps, other.run.until) == (10_000, Fraction(1, 10**10))
        assert (dropped.run.horizon.text, dropped.choose) == ("5/alpha0^2", None)

    def test_several_settings_with_several_models(self, one):
        body = "run: {method: gradient-flow}, let: {q: norm(W)}, conclude: 'q[t] <= q[0] + path_length[t] for all t'"
        assert isinstance(one(f"setting: [any, other], {body}"), Claim)
        # A is a parameter of one of the two models only.
        wrong = one("setting: [any, other], run: {method: gradient-flow}, conclude: 'norm(A[t]) <= 1 for all t'")
        assert [p.message for p in wrong.problems] == ["`conclude.conclusion`: unknown name `A`. (in setting other)"]


DESCENT = "setting: any, given: {eta: positive}, run: {method: gradient-descent, step: eta}, "
FLOW = "setting: any, run: {method: gradient-flow}, "


@pytest.mark.parametrize(
    "body",
    [
        DESCENT + "conclude: 'fro(W[k] - W[0]) <= path_length[k] for all k'",
        DESCENT + "conclude: 'L[k+1] - L[k-1] + L[5] + L - L[0] <= 3 for all k'",
        DESCENT + "conclude: 'L[p] >= L[q] for all p, q with p <= q + 1'",
        DESCENT + "conclude: 'norm(at(L, W = W[k])) >= 0 for all k'",
        DESCENT + "let: {D: 'Z - Z[0]', r: next(Z) - Z, n: norm(D)}, conclude: 'n[k] <= norm(r[k]) + k for all k'",
        DESCENT + "let: {ok: 'norm(W[k]) <= 1 for all k'}, assume: ok, conclude: 'L[k] <= L[0] for all k'",
        DESCENT + "let: {g: 'grad(L, A)', h: 'jac(yhat, A)'}, conclude: 'fro(g[k]) <= norm(h[k])*fro(W) for all k'",
        DESCENT + "assume: 'norm(A[k]) <= 1 for all k', conclude: 'L[k] <= L[0] for all k'",
        DESCENT + "choose: {minimize: 'eta*L[0]'}, conclude: 'L[k] <= L[0] for all k'",
        FLOW + "conclude: 'norm(Phi[t]) + exp(-t) + 2^-t >= 0 for all t'",
        FLOW + "conclude: 'L[t] <= L[s] for all s, t with not (s > t) and s >= 0.5'",
        "setting: any, run: {method: gradient-descent, step: '1/(1 + norm(X)^2)'}, conclude: 'L[k] >= 0 for all k'",
        "setting: any, run: {method: gradient-descent, step: 1e-3, until: 0.5}, conclude: 'L[k] >= 0 for all k'",
        "setting: any, run: {method: gradient-descent, step: 'N/10 + L[0]'}, conclude: 'L[k] >= 0 for all k'",
        "setting: plain, choose: {maximize: eta}, given: {eta: positive}, conclude: eta > 0",
        "setting: any, let: {path_length: norm(W)}, conclude: path_length >= 0",
    ],
)
def test_well_formed(one, body):
    claim = one(body)
    assert isinstance(claim, Claim), claim.problems


CARRIERS = "what carries a step: A, L, Phi, W, Z, b, path_length, yhat"


class TestIllFormed:
    def check(self, claim, marked, message, hint=None):
        assert isinstance(claim, IllFormed)
        (problem,) = claim.problems
        assert message in problem.message
        assert problem.source[slice(*problem.span)] == marked
        assert problem.hint == hint
        return problem

    @pytest.mark.parametrize(
        ("body", "marked", "message", "hint"),
        [
            ("conclude: 'X[k] >= 0 for all k'", "X[k]", "`X` does not change with the step.", CARRIERS),
            ("conclude: 'gamma[k] >= 0 for all k'", "gamma[k]", "`gamma` does not change with the step.", CARRIERS),
            ("conclude: 'eta[k] >= 0 for all k'", "eta[k]", "`eta` does not change with the step.", CARRIERS),
            (
                "let: {lam1: 'norm(W[0])'}, conclude: 'lam1[k] >= 0 for all k'",
                "lam1[k]",
                "`lam1` does not change with the step.",
                CARRIERS,
            ),
            ("conclude: 'WW[k] >= 0 for all k'", "WW", "unknown name `WW`.", "did you mean `W`?"),
            (
                "conclude: 'path_length >= 0'",
                "path_length",
                "`path_length` has a value at a step only.",
                "write path_length[...]",
            ),
            (
                "conclude: 'L[k] >= 0'",
                "k",
                "`k` is no step index here.",
                "add `for all k` at the end of the statement; a definition takes its names without a step",
            ),
            ("conclude: 'L[k/2] >= 0 for all k'", "k/2", "a step may be made of integers and step indices", None),
            (
                "conclude: 'L[k] > 0 for all path_length, k'",
                "L[k] > 0 for all path_length, k",
                "`path_length` has a meaning already and cannot be a step index.",
                None,
            ),
            (
                "conclude: 'norm(grad(L, b)[k]) >= 0 for all k'",
                "[",
                "unexpected '['.",
                "only a name can carry a step, as in Z[k]: name this under `let`; brackets are ( )",
            ),
            (
                "conclude: 'norm(grad(L[k], b)) >= 0 for all k'",
                "L[k]",
                "`grad` cannot go through a step of training.",
                "name it under `let` without a step, as in `g: grad(...)`, and write g[...]",
            ),
            (
                "let: {q: 'L - L[0]'}, conclude: 'norm(jac(q, b)) >= 0'",
                "q",
                "`jac` cannot go through a step of training.",
                "name it under `let` without a step, as in `g: jac(...)`, and write g[...]",
            ),
            (
                "conclude: 'norm(at(Z[k], W = 2*W)) >= 0 for all k'",
                "Z[k]",
                "`at` cannot go through a step of training.",
                "name it under `let` without a step, as in `g: at(...)`, and write g[...]",
            ),
            ("conclude: 'W(k) >= 0 for all k'", "W(k)", "`W` is no function.", "write W[...]"),
        ],
    )
    def test_descent(self, one, body, marked, message, hint):
        self.check(one(DESCENT + body), marked, message, hint)

    @pytest.mark.parametrize(
        ("conclusion", "marked", "message", "hint"),
        [
            ("L[t+1] >= 0 for all t", "t+1", "a time is 0 or the index alone: gradient-flow has no numbered", None),
            ("L[5] >= 0", "5", "a time is 0 or the index alone", None),
            ("L[-t] >= 0 for all t", "-t", "a time is 0 or the index alone", None),
            ("L[t - X] >= 0 for all t", "t - X", "a time is 0 or the index alone", None),
            ("X[t] >= 0 for all t", "X[t]", "`X` does not change with time.", CARRIERS.replace("step", "time")),
            ("path_length >= 0", "path_length", "has a value at a time only.", "write path_length[...]"),
            ("L[t] > 0 for all t with 2*t > 1", "2*t", "a time may be made of numbers and times with + and -", None),
            ("L[t] > 0 for all t with t", "t", "`with` takes comparisons of times, such as p <= q.", None),
            ("L[t] > 0 for all L, t", "L[t] > 0 for all L, t", "`L` has a meaning already and cannot be a time.", None),
            ("norm(t*Z[t]) > t + X for all t", " + ", "cannot add a time and matrix N x d.", None),
        ],
    )
    def test_flow(self, one, conclusion, marked, message, hint):
        claim = one(FLOW + f"conclude: '{conclusion}'")
        if hint is None:
            (problem,) = claim.problems
            hint = problem.hint
        self.check(claim, marked.strip(), message, hint)

    def test_in_a_fixed_point_run_nothing_but_the_state_carries_a_step(self, one):
        run = "setting: any, run: {method: fixed-point, steps: 3}, "
        self.check(
            one(run + "conclude: 'norm(W[k]) >= 0 for all k'"), "W[k]", "does not change", "what carries a step: Z"
        )
        self.check(one(run + "conclude: 'path_length[k] >= 0 for all k'"), "path_length", "unknown name `path_length`")

    @pytest.mark.parametrize("text", ["0", "-0.1", "0.5 - 1/2", "0*norm(X)", "-norm(X)", "-(2)", "0.0"])
    @pytest.mark.parametrize(("method", "key"), [("gradient-descent", "step"), ("gradient-flow", "horizon")])
    def test_a_step_or_horizon_that_cannot_be_positive(self, one, method, key, text):
        claim = one(f"conclude: 'L[t] > 0 for all t', setting: any, run: {{method: {method}, {key}: {text}}}")
        problem = self.check(claim, text, f"`run.{key}` of {method} must be > 0. Got {text}.")
        assert (problem.position.line, problem.position.column) == (13, 75 + len(method + key))

    @pytest.mark.parametrize("text", [".nan", ".inf", "-.inf", ".NaN"])
    def test_a_step_that_is_no_number(self, one, text):
        claim = one(f"conclude: 'L[t] > 0 for all t', setting: any, run: {{method: gradient-descent, step: {text}}}")
        self.check(claim, text, f"`run.step` of gradient-descent must be > 0. Got {text}.")

    @pytest.mark.parametrize(
        ("text", "marked", "message", "hint"),
        [
            ("norm(W[5])", "W[5]", "fixed before the run, when `W` at another step than 0 is not", "only [0] may be"),
            ("1/norm(W[k])", "k", "`k` is no step index here.", "add `for all k`"),
            ("late", "late", "this is fixed before the run, and `late` needs more of the run than its start.", None),
            ("latest", "latest", "and `latest` needs more of the run than its start.", None),
            ("W", "W", "a number is needed here. Got matrix d x m.", None),
            ("1 < 2", "1 < 2", "a number is needed here. Got a boolean.", None),
            ("nan", "nan", "unknown name `nan`.", None),
            ("1/(", "(", "the expression ends too early.", "close the bracket"),
        ],
    )
    @pytest.mark.parametrize("place", ["run.step", "choose.maximize"])
    def test_what_is_fixed_before_the_run(self, suite, place, text, marked, message, hint):
        step, objective = (text, "eta") if place == "run.step" else ("eta", text)
        (claim,) = suite(f"""
            - id: a
              setting: any
              given: {{eta: positive}}
              choose:
                maximize: {objective}
              let: {{late: "norm(Z[1])", latest: 2*late}}
              run:
                method: gradient-descent
                step: {step}
              conclude: L[k] <= eta*latest for all k
            """)
        problem = next(p for p in claim.problems if message in p.message)
        assert problem.message.startswith(f"`{place}`: ")
        assert problem.source[slice(*problem.span)] == marked
        assert (problem.hint or "").startswith(hint or "")
        assert problem.position.line == (21 if place == "run.step" else 17)

    def test_the_path_length_is_reserved_in_claims_with_training_only(self, suite):
        claim, fixed = suite("""
            - {id: a, setting: any, let: {path_length: 1}, run: {method: gradient-flow}, conclude: path_length > 0}
            - {id: b, setting: any, let: {path_length: 1}, conclude: path_length > 0}
            """)
        message = "`let` cannot define `path_length`: that is the length of the trajectory of a training run."
        assert [p.message for p in claim.problems] == [message]
        assert claim.problems[0].position.column == 31
        assert isinstance(fixed, Claim)

    @pytest.mark.parametrize(
        ("body", "message", "column"),
        [
            ("setting: plain, run: {method: gradient-flow}, conclude: c > 0", "needs a model; setting plain", 27),
            ("setting: other, choose: {maximize: 1}, conclude: 2 > 1", "and this claim has none.", 27),
            (
                "setting: any, given: {c: positive}, choose: {maximize: c}, run: {method: gradient-flow}, "
                "assume: {h: 'norm(W[t]) <= c for all t'}, conclude: c > 0",
                "`choose` keeps the hypotheses that are known at the start, and `h` speaks of every step of the run.",
                None,
            ),
            (
                "setting: other, given: {v: 'real[m]'}, choose: {maximize: norm(v)}, conclude: 2 > 1",
                "`choose` chooses the scalars of `given` and of `domain`, and this claim has none.",
                50,
            ),
            (DESCENT + "given: {nu: real}, conclude: L > 0", "The key `given` is here twice", None),
            (DESCENT.replace("eta: p", "nu: positive, eta: p") + "conclude: L > 0", "`given.nu` is used nowhere.", 33),
        ],
    )
    def test_other_conditions(self, one, body, message, column):
        problem = next(p for p in one(body).problems if message in p.message)
        assert column is None or problem.position.column == column

    def test_names_of_step_horizon_and_choice_are_used(self, one):
        for run, choice in (("step: s", "v"), ("step: 1", "s + v")):
            claim = one(
                "setting: any, given: {eta: positive}, let: {s: eta, v: 2*eta}, conclude: 'L[k] > 0 for all k', "
                f"run: {{method: gradient-descent, {run}}}, choose: {{maximize: {choice}}}"
            )
            assert isinstance(claim, Claim), claim.problems
        claim = one("setting: any, let: {h: norm(X)}, run: {method: gradient-flow, horizon: h}, conclude: L > 0")
        assert list(claim.let) == ["h"]


class TestModelsThatCannotBeTrained:
    def load(self, suite, signature, monkeypatch):
        monkeypatch.setattr("ntk_deq.language.declaration._REGISTRY", {signature.name: signature})
        head = "suite: s\nsettings: {any: {model: odd, sizes: {n: 2}}}\nclaims:\n"
        (claim,) = suite("- {id: a, setting: any, run: {method: gradient-flow}, conclude: norm(x) >= 0}", head)
        return [problem.message for problem in claim.problems]

    def signature(self, role=Role.PARAMETER, name="x", **options):
        variables = (Variable(name, ("n",), role, "a vector"), Variable("x", ("n",), Role.INPUT, "a vector"))
        variables = variables[: 1 if name == "x" else 2]
        return ModelSignature("odd", "Odd", ("n",), variables, "s", ("n",), "s/2", "1/2", **options)

    def test_without_a_loss(self, suite, monkeypatch):
        found = self.load(suite, self.signature(), monkeypatch)
        assert found == ["gradient-flow needs the loss `L`; model odd does not define it."]

    def test_with_an_equilibrium_and_no_samples(self, suite, monkeypatch):
        found = self.load(suite, self.signature(definitions={"L": "norm(x)^2"}), monkeypatch)
        assert found[0].startswith("gradient-flow: The model odd has no class and cannot be compiled from its formulas")
        assert found[0].endswith("it must have one variable of role input and one of role target.")

    def test_without_parameters(self, suite, monkeypatch):
        found = self.load(suite, self.signature(Role.INPUT, definitions={"L": "norm(x)^2"}), monkeypatch)
        assert found == ["gradient-flow needs parameters; model odd has none."]

    def test_with_a_variable_called_path_length(self, suite, monkeypatch):
        signature = self.signature(name="path_length", definitions={"L": "norm(path_length)^2"})
        found = self.load(suite, signature, monkeypatch)
        assert found[0].startswith("`path_length` is the length of the trajectory here; rename what setting any calls")
