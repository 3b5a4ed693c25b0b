"""What changes along a run, for any model: by what uses what, never by a name."""

from __future__ import annotations

import pytest

from ntk_deq.errors import ExpressionError, Position
from ntk_deq.language.declaration import ModelSignature, Role, Variable, model_names, model_signature
from ntk_deq.language.parser import parse
from ntk_deq.language.run import FIXED_POINT, GRADIENT_DESCENT, GRADIENT_FLOW, PATH_LENGTH, Course, changing_names
from ntk_deq.language.tree import Formula

MODEL = ModelSignature(
    name="odd",
    title="A model of its own",
    sizes=("n",),
    variables=(
        Variable("p", ("n",), Role.PARAMETER, "trained"),
        Variable("q", (), Role.HYPERPARAMETER, "fixed"),
        Variable("v", ("n",), Role.INPUT, "given"),
        Variable("w", ("n",), Role.TARGET, "wanted"),
    ),
    state="s",
    state_shape=("n",),
    map="q*s + p",
    contraction="abs(q)",
    definitions={"data": "norm(v)", "out": "2*s", "L": "norm(out - w)^2", "scale": "q*data"},
)
BASE = {"p", "s", "out", "L", PATH_LENGTH}
TRAINING = (GRADIENT_DESCENT, GRADIENT_FLOW)


def definitions(**texts):
    return {name: Formula(name, text, parse(text), Position("a", 1, 1)) for name, text in texts.items()}


def own(kind=GRADIENT_DESCENT, **texts):
    """Return which of the definitions change."""
    return changing_names(kind, MODEL, definitions(**texts)) - BASE


@pytest.mark.parametrize("kind", TRAINING)
def test_parameters_state_and_what_depends_on_them(kind):
    assert changing_names(kind, MODEL) == BASE


def test_a_fixed_point_run_changes_the_state_only():
    assert changing_names(FIXED_POINT, MODEL, definitions(a="norm(p)", c="norm(s)")) == {"s"}
    assert changing_names(None, MODEL) == changing_names(GRADIENT_FLOW, None) == frozenset()


@pytest.mark.parametrize("name", model_names())
@pytest.mark.parametrize("kind", TRAINING)
def test_every_model_changes_in_its_parameters_state_and_loss(name, kind):
    model = model_signature(name)
    found = changing_names(kind, model)
    assert found >= {*model.names(Role.PARAMETER), model.state, "L", PATH_LENGTH}
    assert not found & set(model.names(Role.INPUT, Role.TARGET, Role.HYPERPARAMETER))


def test_definitions_change_where_something_without_a_step_in_them_does():
    assert own(a="norm(p)", b="a + data", c="norm(p[0]) + q", d="s[1] - s[0]", e="s - s[0]") == {"a", "b", "e"}


def test_definitions_may_stand_in_any_order():
    assert own(b="a + 1", a="norm(p)", c="b[0]") == {"a", "b"}


def test_the_map_of_the_model_changes_with_its_parameters():
    assert own(a="next(v)", b="fixed_point(v)", c="norm(v)") == {"a", "b"}


def test_derivatives_change_with_what_they_name():
    assert own(g="grad(L, p)", h="grad(data, v)", j="jac(data, p)", k="at(L, p = v)") == {"g", "j", "k"}


@pytest.fixture
def course():
    course = Course(GRADIENT_DESCENT, MODEL)
    for name, text in {
        "start": "norm(p[0])",
        "one": "norm(p[1])",
        "more": "2*one",
        "all_small": "norm(p[k]) < 1",
    }.items():
        course.define(name, parse(f"({text} for all k)" if "k" in text else text))
    return course


def test_what_needs_more_than_the_start(course):
    assert course.late == {"one", "more", "all_small"}
    assert course.stepped == {"start", "one", "more", "all_small"}
    course.check_start(parse("start + norm(p[0]) + L"))
    for text in ("one", "more + 1", "norm(p[1])", "norm(p[0 + 0])", "L[k]", "1 > L for all k", "more[0]"):
        with pytest.raises(ExpressionError, match="fixed before the run"):
            course.check_start(parse(text))


def test_derivatives_do_not_reach_through_steps(course):
    course.check_derivatives(parse("grad(L, p) + at(L, p = p[1])*next(s[0])"))
    for text in ("grad(start*L, p)", "jac(L[k], p)", "at(more, p = v)"):
        with pytest.raises(ExpressionError, match="cannot go through a step of training"):
            course.check_derivatives(parse(text))
    for text in ("next(s[1])", "fixed_point(s[k])", "next(more*s)"):
        with pytest.raises(ExpressionError, match="parameters of the start"):
            course.check_derivatives(parse(text))


def test_in_a_fixed_point_run_they_do():
    Course(FIXED_POINT, MODEL).check_derivatives(parse("grad(norm(s[2]), p)"))
