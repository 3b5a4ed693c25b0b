"""The solvers: options, registry, and Anderson's behaviour where others break."""

import math

import pytest
import torch

from ntk_deq.equilibrium import SOLVERS, Anderson, Damped, Picard, Status, make_solver, solve_fixed_point
from ntk_deq.equilibrium.driver import row_norms
from ntk_deq.errors import ArgumentError


def zeros(*shape, dtype=torch.float64):
    return torch.zeros(*shape, dtype=dtype)


def contraction(q, n, seed=0, dtype=torch.float64):
    """A matrix of spectral norm q."""
    A = torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (A * (q / torch.linalg.matrix_norm(A, ord=2))).to(dtype)


def test_registry_names_match_the_classes():
    for name, cls in SOLVERS.items():
        assert cls.name == name
        assert make_solver(name) == cls()


def test_misspelt_option_names_the_nearest_one():
    with pytest.raises(ArgumentError, match=r"anderson has no option 'memmory'.*memory, mixing.*Did you mean 'memory'"):
        make_solver("anderson", memmory=3)
    with pytest.raises(ArgumentError, match=r"picard has no option 'damping'\. It has no options"):
        make_solver("picard", damping=0.5)


def test_misspelt_solver_names_the_nearest_one():
    with pytest.raises(ArgumentError, match=r"Unknown solver 'andersen'.*Did you mean 'anderson'"):
        solve_fixed_point(torch.cos, zeros(1, 1), solver="andersen")
    with pytest.raises(ArgumentError, match=r"must be a name .* or a Solver. Got int"):
        solve_fixed_point(torch.cos, zeros(1, 1), solver=3)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("damped", {"damping": 0.0}),
        ("damped", {"damping": 1.5}),
        ("damped", {"damping": math.nan}),
        ("damped", {"damping": "half"}),
        ("anderson", {"memory": 0}),
        ("anderson", {"memory": 2.5}),
        ("anderson", {"mixing": 0}),
        ("anderson", {"decrease": 1.1}),
        ("anderson", {"regularisation": 0.0}),
        ("anderson", {"regularisation": math.inf}),
        ("anderson", {"restart_every": 0}),
    ],
)
def test_option_out_of_range_says_which(name, options):
    option = next(iter(options))
    with pytest.raises(ArgumentError, match=f"`{option}` of the solver {name} must be"):
        make_solver(name, **options)


def test_damped_with_damping_one_is_picard():
    A = contraction(0.8, 6)
    start = torch.ones(3, 6, dtype=torch.float64)
    plain = solve_fixed_point(lambda z: torch.tanh(z @ A + 1), start, solver=Picard())
    damped = solve_fixed_point(lambda z: torch.tanh(z @ A + 1), start, solver=Damped(damping=1.0))
    assert torch.equal(plain.steps, damped.steps)
    torch.testing.assert_close(plain.value, damped.value, rtol=1e-15, atol=1e-15)  # one rounding of z + (f - z)


def test_anderson_needs_about_as_many_steps_as_unknowns_on_a_linear_map():
    # Type II with full memory is equivalent to GMRES on an affine map (Walker and Ni, 2011): n + 1 residuals suffice.
    A, b = contraction(0.999, 6), torch.arange(6, dtype=torch.float64)
    found = solve_fixed_point(lambda z: z @ A + b, zeros(1, 6), solver=Anderson(memory=8), rtol=1e-12)
    assert found.steps.item() <= 12
    torch.testing.assert_close(found.value[0], torch.linalg.inv(torch.eye(6).double() - A).T @ b, rtol=1e-9, atol=0)


@pytest.mark.parametrize("memory", [3, 5, 8])
def test_anderson_needs_few_steps_when_the_history_is_rank_deficient(memory):
    """Three distinct eigenvalues: GMRES ends after three products, and further columns depend on the first ones."""
    slopes = torch.tensor([0.99, 0.9, -0.95, 0.99, 0.9, 0.99, 0.9, -0.95], dtype=torch.float64)
    found = solve_fixed_point(lambda z: slopes * z + 1, zeros(2, 8), solver=Anderson(memory=memory))
    assert found.steps.max() <= 6
    torch.testing.assert_close(found.value[0], 1 / (1 - slopes), rtol=1e-10, atol=0)


def test_anderson_beats_picard_on_a_slow_contraction():
    A = contraction(0.99, 8)
    A = (A + A.T) / 2
    A = A * (0.99 / torch.linalg.matrix_norm(A, ord=2))
    steps = {
        name: int(solve_fixed_point(lambda z: z @ A + 1, zeros(2, 8), solver=name).steps.max())
        for name in ("picard", "anderson")
    }
    assert steps["anderson"] < steps["picard"] / 5


@pytest.mark.parametrize(
    "solver", [Anderson(), Anderson(memory=1), Anderson(restart_every=2), Anderson(mixing=0.5), Anderson(decrease=0.5)]
)
def test_anderson_survives_singular_systems(solver):
    maps = {
        "constant": (lambda z: torch.full_like(z, 3.0), 3.0),
        "nilpotent": (lambda z: torch.stack([z[:, 1] + 1, torch.zeros_like(z[:, 1])], dim=1), None),
        "identical rows": (lambda z: 0.5 * z.mean(dim=1, keepdim=True).expand_as(z) + 1, 2.0),
    }
    for step, limit in maps.values():
        found = solve_fixed_point(step, zeros(3, 2), solver=solver)
        assert found.all_converged
        assert torch.isfinite(found.value).all()
        if limit is not None:
            torch.testing.assert_close(found.value, torch.full_like(found.value, limit))


def test_anderson_converges_in_one_step_on_a_constant_map():
    assert solve_fixed_point(lambda z: torch.full_like(z, 3.0), zeros(2, 4), solver="anderson").steps.tolist() == [1, 1]


def test_trial_point_outside_the_domain_does_not_end_the_sample():
    """From 0 the secant step lands at 25, where the map is undefined; plain steps climb to the fixed point 5."""
    outside = []

    def step(z):
        outside.append(bool((z > 6).any()))
        return torch.where(z > 6, math.nan, z + 1 - 0.04 * z * z)

    found = solve_fixed_point(step, zeros(1, 1), solver=Anderson(memory=1))
    assert any(outside)
    assert found.value.item() == pytest.approx(5.0, rel=1e-12)


def test_discarded_trial_point_is_not_kept():
    """With one step left after the bad trial point, the iteration stands at the plain step, not at the trial point."""
    reached = [
        solve_fixed_point(
            lambda z: torch.where(z > 6, math.nan, z + 1 - 0.04 * z * z),
            zeros(1, 1),
            solver=Anderson(memory=1),
            max_steps=budget,
            raise_on_failure=False,
        )
        for budget in (2, 3)
    ]
    assert [found.status.item() for found in reached] == [int(Status.MAX_STEPS)] * 2
    assert reached[0].value.item() == pytest.approx(25.0)
    assert reached[1].value.item() == pytest.approx(1 + 1 - 0.04)


def test_anderson_residual_never_ends_above_its_start_on_a_contraction():
    A = contraction(0.95, 10, seed=3)
    for budget in range(1, 15):
        found = solve_fixed_point(
            lambda z: torch.relu(z @ A + 1),
            zeros(4, 10),
            solver=Anderson(decrease=0.9),
            max_steps=2 * budget,
            raise_on_failure=False,
        )
        start = row_norms(torch.relu(torch.ones(4, 10, dtype=torch.float64)))
        assert (found.residual <= start).all()


@pytest.mark.parametrize("solver", sorted(SOLVERS))
@pytest.mark.parametrize("scale", [1e-250, 1e-150, 1.0, 1e150])
def test_the_answer_scales_with_the_problem(solver, scale):
    """A residual of 1e-250 squares to zero; it must not pass for a solution."""
    found = solve_fixed_point(lambda z: 0.5 * z + scale, zeros(2, 3), solver=solver)
    torch.testing.assert_close(found.value / scale, torch.full((2, 3), 2.0, dtype=torch.float64), rtol=1e-13, atol=0)


def test_solvers_agree_on_a_nonlinear_map():
    A = contraction(0.9, 7)
    B = torch.randn(5, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = [solve_fixed_point(lambda z: torch.tanh(z @ A + B), zeros(5, 7), solver=s).value for s in sorted(SOLVERS)]
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-12, atol=1e-12)  # 32 eps sqrt(7)/(1 - 0.9)


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_rows_do_not_influence_each_other(solver):
    A = contraction(0.9, 4)
    B = torch.randn(6, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    both = solve_fixed_point(lambda z: torch.tanh(z @ A + B), zeros(6, 4), solver=solver)
    for n in range(6):
        alone = solve_fixed_point(lambda z, n=n: torch.tanh(z @ A + B[n : n + 1]), zeros(1, 4), solver=solver)
        torch.testing.assert_close(alone.value[0], both.value[n], rtol=1e-12, atol=1e-12)
    order = torch.tensor([3, 1, 5, 0, 4, 2])
    shuffled = solve_fixed_point(lambda z: torch.tanh(z @ A + B[order]), zeros(6, 4), solver=solver)
    torch.testing.assert_close(shuffled.value, both.value[order], rtol=1e-12, atol=1e-12)


def test_row_norms_equal_the_plain_norm_and_pass_on_non_finite_entries():
    rows = torch.randn(4, 9, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    torch.testing.assert_close(row_norms(rows), torch.linalg.vector_norm(rows, dim=1))
    assert row_norms(zeros(2, 0)).tolist() == [0.0, 0.0]
    assert row_norms(zeros(0, 3)).shape == (0,)
    bad = torch.tensor([[1.0, math.nan], [math.inf, 0.0], [0.0, 0.0]], dtype=torch.float64)
    assert torch.isfinite(row_norms(bad)).tolist() == [False, False, True]
    tiny = torch.full((1, 4), 5e-324, dtype=torch.float64)
    assert row_norms(tiny).item() == pytest.approx(1e-323)


def test_status_texts_name_a_remedy():
    for status in Status:
        assert status.label
        assert len(status.text) > 40
    assert "damped" in Status.STAGNATED.text
    assert "max_steps" in Status.MAX_STEPS.text
