"""Comparisons and connectives: what is certain, what is tight, what is unsure, and what a quantifier ranges over."""

import math

import pytest
import torch
from verify_harness import environment, truth_of

from ntk_deq.errors import LimitError
from ntk_deq.evaluation.quantity import Truth

EYE = torch.eye(2, dtype=torch.float64)


class TestExactNumbers:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("1 <= 1", Truth.TRUE),
            ("1 >= 1", Truth.TRUE),
            ("1 == 1", Truth.TRUE),
            ("1 < 1", Truth.FALSE),
            ("1 > 1", Truth.FALSE),
            ("1 != 1", Truth.FALSE),
            ("1 < 2", Truth.TRUE),
            ("2 < 1", Truth.FALSE),
            ("2 <= 1", Truth.FALSE),
            ("1 != 2", Truth.TRUE),
            ("1 == 2", Truth.FALSE),
            ("1 <= 2 <= 3", Truth.TRUE),
            ("1 <= 3 <= 2", Truth.FALSE),
            ("3 > 2 > 1 >= 1", Truth.TRUE),
            ("1 < 2 == 2 < 2", Truth.FALSE),
        ],
    )
    def test_equality_is_decided(self, text, expected):
        assert truth_of(text).truth is expected

    @pytest.mark.parametrize(
        ("text", "margin"),
        [("1 <= 3", 2), ("3 >= 1", 2), ("3 <= 1", -2), ("1 < 3", 2), ("1 == 3", -2), ("1 != 3", 2), ("3 > 2 > 0", 1)],
    )
    def test_a_positive_margin_is_good(self, text, margin):
        comparison = truth_of(text).comparison
        assert comparison.margin.lo == comparison.margin.hi == margin


class TestBalls:
    @pytest.mark.parametrize(
        ("text", "radius", "expected"),
        [
            ("x <= 1", 1e-12, Truth.TIGHT),
            ("x >= 1", 1e-12, Truth.TIGHT),
            ("x == 1", 1e-12, Truth.TIGHT),
            ("x < 1", 1e-12, Truth.STRICT_TIGHT),
            ("x > 1", 1e-12, Truth.STRICT_TIGHT),
            ("x != 1", 1e-12, Truth.STRICT_TIGHT),
            ("x <= 1", 1e-3, Truth.UNSURE),
            ("x < 1", 1e-3, Truth.UNSURE),
            ("x == 1", 1e-3, Truth.UNSURE),
            ("x != 1", 1e-3, Truth.UNSURE),
            ("x <= 1.1", 1e-3, Truth.TRUE),
            ("x == 1.1", 1e-3, Truth.FALSE),
            ("x != 1.1", 1e-3, Truth.TRUE),
            ("x < 0.9", 1e-3, Truth.FALSE),
            ("x >= 1.1", 1e-3, Truth.FALSE),
        ],
    )
    def test_narrow_is_tight_and_wide_is_unsure(self, text, radius, expected):
        outcome = truth_of(text, environment({"x": 1.0}, radius={"x": radius}))
        assert outcome.truth is expected
        assert outcome.comparison.margin.lo <= outcome.comparison.margin.hi
        assert bool(outcome.reason) is (expected is Truth.UNSURE)

    def test_tightness_is_relative_to_the_larger_side(self):
        env = environment({"x": 1e6}, radius={"x": 1e-4})
        assert truth_of("x <= 1000000", env).truth is Truth.TIGHT
        env = environment({"x": 1e6}, radius={"x": 1e-2})
        assert truth_of("x <= 1000000", env).truth is Truth.UNSURE

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("x <= y", Truth.TIGHT),
            ("x - y <= 0", Truth.NEAR_ZERO),
            ("x - y == 0", Truth.NEAR_ZERO),
            ("0 >= x - y", Truth.NEAR_ZERO),
            ("x - y < 0", Truth.STRICT_TIGHT),
            ("x - y <= 1e-6", Truth.TRUE),
        ],
    )
    def test_sides_that_cancel_are_near_zero_and_not_tight(self, text, expected):
        """A true difference of 1e-13, say, would pass unseen where the sides themselves are of that size."""
        assert truth_of(text, environment({"x": 1.0, "y": 1.0}, radius={"x": 1e-12})).truth is expected

    def test_a_ball_that_touches_its_bound_is_true_weakly(self):
        outcome = truth_of("abs(x) >= 0", environment({"x": 0.0}, radius={"x": 1e-3}))
        assert outcome.truth is Truth.TRUE
        assert outcome.comparison.margin.lo == 0

    @pytest.mark.parametrize("text", ["x <= 1", "x < 1", "x == 1", "x != 1", "1 >= x", "not x <= 1", "not x == 1"])
    def test_nothing_known_is_unsure(self, text):
        outcome = truth_of(text, environment({"x": 0.0}, radius={"x": math.inf}))
        assert outcome.truth is Truth.UNSURE

    def test_an_unbounded_scale_takes_nothing_from_what_is_certain(self):
        # exp(exp(30)) is no float, so its scale is infinite; the ball is still certain.
        assert truth_of("exp(exp(30)) > 1").truth is Truth.TRUE
        assert truth_of("exp(exp(30)) < 1").truth is Truth.FALSE


class TestMatrices:
    def test_identities(self):
        env = environment({"A": EYE, "B": 2 * EYE})
        assert truth_of("2*A == B", env).truth is Truth.TRUE
        assert truth_of("2*A == B", env).identity
        false = truth_of("A == B", env)
        assert false.truth is Truth.FALSE
        assert false.comparison.margin.hi == pytest.approx(-math.sqrt(2))

    def test_identities_with_rounding_are_tight(self):
        env = environment({"A": torch.full((3, 3), 0.1, dtype=torch.float64)})
        outcome = truth_of("A*A*A == A^2*A*1", env)
        assert outcome.truth in (Truth.TIGHT, Truth.TRUE)
        assert outcome.identity
        assert truth_of("A*A*A == A^2*A + 0.000001*ones(3, 3)", env).truth is Truth.FALSE

    def test_identities_with_wide_balls_are_unsure(self):
        outcome = truth_of("A == B", environment({"A": EYE, "B": EYE}, radius={"A": 1e-3}))
        assert outcome.truth is Truth.UNSURE

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("A <= B", Truth.TRUE),
            ("A < B", Truth.FALSE),  # zeros off the diagonal of both
            ("A < B + ones(2, 2)", Truth.TRUE),
            ("B >= A", Truth.TRUE),
            ("B > A", Truth.FALSE),
            ("B <= A", Truth.FALSE),
            ("A <= 1", Truth.TRUE),
            ("A < 1", Truth.FALSE),
            ("0 <= A <= 1", Truth.TRUE),
            ("1/2 >= A", Truth.FALSE),
            ("A > -0.5", Truth.TRUE),
            ("A <= A", Truth.TRUE),
            ("A < A", Truth.FALSE),
        ],
    )
    def test_entrywise(self, text, expected):
        assert truth_of(text, environment({"A": EYE, "B": 2 * EYE})).truth is expected

    def test_entrywise_with_radius(self):
        narrow = environment({"A": EYE}, radius={"A": 1e-13})
        wide = environment({"A": EYE}, radius={"A": 1e-3})
        assert [truth_of(t, narrow).truth for t in ("A >= 0", "A > 0")] == [Truth.TIGHT, Truth.STRICT_TIGHT]
        assert [truth_of(t, wide).truth for t in ("A >= 0", "A > -1", "A > 2")] == [
            Truth.UNSURE,
            Truth.TRUE,
            Truth.FALSE,
        ]

    def test_one_by_one_matrices_compare_as_numbers(self):
        env = environment({"v": torch.ones(1, 1, dtype=torch.float64)})
        assert truth_of("v'*v == 1 and 0 < v'*v <= 1", env).truth is Truth.TRUE
        assert truth_of("v'*v != 1", env).truth is Truth.FALSE


X = {"x": 1.0, "w": 1.0, "y": 1.0}
RADIUS = {"x": 1e-12, "w": 1e-3}
TRUTHS = {"1 <= 2": Truth.TRUE, "2 <= 1": Truth.FALSE, "x <= 1": Truth.TIGHT, "x < 1": Truth.STRICT_TIGHT}
TRUTHS |= {"w <= 1": Truth.UNSURE, "x - 1 <= 0": Truth.NEAR_ZERO}


class TestConnectives:
    @pytest.mark.parametrize("left", TRUTHS)
    @pytest.mark.parametrize("right", TRUTHS)
    def test_and_is_the_worse_or_the_better(self, left, right):
        env = environment(X, radius=RADIUS)
        assert truth_of(f"{left} and {right}", env).truth is min(TRUTHS[left], TRUTHS[right])
        assert truth_of(f"{left} or {right}", env).truth is max(TRUTHS[left], TRUTHS[right])

    @pytest.mark.parametrize("text", TRUTHS)
    def test_only_what_is_certain_can_be_negated(self, text):
        expected = {Truth.TRUE: Truth.FALSE, Truth.FALSE: Truth.TRUE}.get(TRUTHS[text], Truth.UNSURE)
        outcome = truth_of(f"not {text}", environment(X, radius=RADIUS))
        assert outcome.truth is expected
        assert not outcome.identity

    def test_a_negated_margin_changes_sign(self):
        comparison = truth_of("not 1 <= 3").comparison
        assert (comparison.margin.lo, comparison.margin.hi, comparison.relation) == (-2, -2, "not <=")

    def test_of_equally_good_parts_the_closer_one_is_shown(self):
        assert truth_of("1 <= 100 and 1 <= 1.5 and 1 <= 50").comparison.margin.lo == 0.5

    def test_a_conjunction_is_an_identity_where_its_tight_parts_are(self):
        env = environment(X, radius=RADIUS)
        assert truth_of("x == 1 and 1 <= 2", env).identity
        assert not truth_of("x == 1 and x <= 1", env).identity
        assert not truth_of("x <= 1 and 1 == 1", env).identity


class TestQuantifiers:
    """The map of this model at these values is Z -> Z/2 + 1, so Z[l] = 2 (1 - 2^-l)."""

    def env(self, steps):
        one = torch.ones(1, 1, dtype=torch.float64)
        variables = {"W": one / 2, "U": one, "b": one, "X": one, "y": one}
        return environment(variables, sizes={"N": 1, "d": 1, "m": 1}, model="linear-implicit", steps=steps)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("sum(Z[l]) == 2*(1 - 2^(-l)) for all l", Truth.TRUE),
            ("sum(Z[l]) < 2 for all l", Truth.TRUE),
            ("sum(Z[l]) < 15/8 for all l", Truth.FALSE),  # first false at l = 4
            ("sum(Z[l+1]) > sum(Z[l]) for all l", Truth.TRUE),
            ("sum(Z[l+1] - Z[l]) == sum(Z[l] - Z[l-1])/2 for all l", Truth.TRUE),
            ("sum(Z[p]) <= sum(Z[q]) for all p, q with p <= q", Truth.TRUE),
            ("sum(Z[p]) < sum(Z[q]) for all p, q with p <= q", Truth.FALSE),
            ("sum(Z[p]) < sum(Z[q]) for all p, q with p < q and q > 0", Truth.TRUE),
            ("(sum(Z[p+q]) >= sum(Z[p]) for all q) for all p", Truth.TRUE),
            ("(sum(Z[p]) <= sum(Z[q]) for all q) for all p", Truth.FALSE),
            ("not (sum(Z[l]) > 0 for all l)", Truth.TRUE),
            ("Z[0] == zeros(N, m) and Z[1] == X*U'", Truth.TRUE),
            ("next(Z[2]) == Z[3]", Truth.TRUE),
            ("next(next(Z[l])) == Z[l+2] for all l", Truth.TRUE),
            ("at(sum(Z[l]), W = 0*W) == min(l, 1) for all l", Truth.TRUE),
            ("l >= 0 and sum(Z[l]) >= 0 for all l", Truth.TRUE),
        ],
    )
    def test_range_over_the_steps_of_the_run(self, text, expected):
        assert truth_of(text, self.env(5)).truth is expected

    def test_the_step_that_breaks_it_is_told(self):
        outcome = truth_of("sum(Z[l]) < 15/8 for all l", self.env(5))
        assert dict(outcome.comparison.steps) == {"l": 4}

    def test_a_range_without_a_step_proves_nothing(self):
        outcome = truth_of("sum(Z[l]) >= 0 for all l with l > 5", self.env(5))
        assert outcome.truth is Truth.UNSURE
        assert "ranges over no step" in outcome.reason

    @pytest.mark.parametrize("text", ["Z[-1] == Z[0]", "Z[6] == Z[5]", "Z[1000000] == Z[0]"])
    def test_a_step_outside_of_the_run_is_no_value(self, text):
        with pytest.raises(LimitError, match="the run has steps 0 to 5"):
            truth_of(text, self.env(5))

    def test_too_many_tuples_of_steps_are_refused(self):
        with pytest.raises(LimitError, match="ranges over 1,002,001 tuples of steps"):
            truth_of("sum(Z[p]) >= sum(Z[q]) for all p, q", self.env(1000))
