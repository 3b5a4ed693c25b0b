"""The judge of steps: what it allows where the gradient is smooth, at a kink, and along a sliding mode."""

import math

import pytest

from ntk_deq.dynamics.flow import StepJudge


def judge(parts: int = 1, **options: float) -> StepJudge:
    chosen = {"order": 5, "understated": 250.0, "tolerance": 1e-6, "pace": 1e-2, "scale": 1.0, "unit": 1.0, **options}
    return StepJudge(parts, **chosen)  # type: ignore[arg-type]


def ratio(of: StepJudge, *errors: float, step: float = 0.1, time: float = 0.0, **options: float) -> float:
    chosen = {"path": 0.0, "speed": 1.0, **options}
    return of.ratio(errors, time=time, step=step, **chosen)


def test_smooth_errors_are_held_to_the_path_of_the_step() -> None:
    assert ratio(judge(), 1e-7) == pytest.approx(1.0)
    assert ratio(judge(), 2e-7) > 1
    assert ratio(judge(), 2e-7, speed=2.0) == pytest.approx(1.0)
    assert ratio(judge(), 2e-7, noise=1e-6) == pytest.approx(1.0)
    assert ratio(judge(), 2e-7, path=1e9) > 1  # the path so far does not help


def test_the_controller_hits_the_next_step() -> None:
    """An error of order h^5, judged per unit of time, falls by h^4: the factor ratio^(-1/5) must say so."""
    assert ratio(judge(), 1e-7 * 16) ** (-1 / 5) == pytest.approx(0.5)


def test_the_worst_part_decides() -> None:
    assert ratio(judge(2), 1e-9, 3e-7) == ratio(judge(2), 3e-7, 1e-9) == ratio(judge(), 3e-7)


def test_a_part_with_a_kink_is_held_to_the_path_so_far_and_the_others_are_not() -> None:
    of = judge(2)
    assert ratio(of, 1e-3, 3e-8) > 1
    assert ratio(of, 1e-4, 1e-13, step=0.01) > 1  # order one: a kink, but still too much
    assert ratio(of, 4e-9, 1e-19, step=1e-5) == pytest.approx(1.0)
    assert ratio(of, 1e-19, 4e-9, step=1e-5, time=0.1) > 1


def test_an_error_that_falls_as_it_should_is_no_kink() -> None:
    of = judge()
    assert ratio(of, 1e-3) > 1
    assert ratio(of, 1e-3 / 32, step=0.05) > 1
    of.accept()
    assert of.rough_steps == 0


def test_a_step_from_elsewhere_or_about_as_long_says_nothing_about_the_order() -> None:
    of = judge()
    ratio(of, 1e-3)
    ratio(of, 1e-3, step=0.097)
    ratio(of, 1e-3, step=0.01, time=0.5)
    of.accept()
    assert of.rough_steps == 0


def crossing(of: StepJudge) -> None:
    ratio(of, 1e-3)
    ratio(of, 3e-9, step=1e-5)


def test_behind_the_kink_the_part_is_smooth_again() -> None:
    of = judge()
    crossing(of)
    of.accept()
    assert of.rough_steps == 1
    assert ratio(of, 1e-13, step=1e-4, time=1e-5) < 1
    of.accept()
    assert of.rough_steps == 1
    assert ratio(of, 3e-9, step=1e-4, time=2e-3) > 1


def test_a_lasting_kink_relaxes_the_allowance_until_the_pace_is_reached() -> None:
    of = judge()
    crossing(of)
    time, step, taken = 0.0, 1e-5, 0
    while time < 10 and taken < 5000:
        if ratio(of, 0.1 * step, step=step, time=time) <= 1:
            of.accept()
            time, taken = time + step, taken + 1
            step *= 2
        else:
            step /= 2
    assert time >= 10
    assert of.relaxed > 1
    # About 1/pace steps for each doubling of time, and a few to get there.
    assert taken < 4 / 1e-2 * math.log(11)


def test_without_a_kink_nothing_is_relaxed() -> None:
    of = judge()
    for place in range(100):
        assert ratio(of, 1e-12, step=1e-5, time=place * 1e-5) < 1
        of.accept()
    assert of.relaxed == 1.0


@pytest.mark.parametrize("error", [math.inf, math.nan])
def test_an_error_that_is_no_number_is_rejected(error: float) -> None:
    assert ratio(judge(2), 0.0, error) == math.inf
    assert ratio(judge(2), error, 0.0) == math.inf


def test_no_error_is_accepted_even_without_speed() -> None:
    assert ratio(judge(), 0.0, speed=0.0) == 0.0
    assert ratio(judge(), 1e-9, speed=0.0) > 1


def test_huge_errors_do_not_overflow() -> None:
    of = judge(order=8)
    assert 1 < ratio(of, 1e300) < math.inf
    assert 1 < ratio(of, 1e300, step=1e-3) < math.inf


def test_accepted_errors_are_added_up() -> None:
    of = judge(2)
    ratio(of, 3e-8, 4e-8)
    of.accept()
    ratio(of, 1e-9, 0.0, time=0.1, step=0.2)
    of.accept()
    assert of.total == pytest.approx(5e-8 + 1e-9)
    assert of.largest == pytest.approx(5e-8 / 0.1)
