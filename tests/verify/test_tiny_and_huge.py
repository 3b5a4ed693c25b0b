"""Numbers at the ends of what floats hold: no error of ours, and no work without end."""

import flint
import pytest

from ntk_deq.certified.functions import power
from ntk_deq.certified.scalar import exact
from ntk_deq.claims.load import load_suite
from ntk_deq.verify.results import Verdict
from ntk_deq.verify.runner import Options, judge

FILE = """
suite: t
settings:
  tiny:
    model: linear-implicit
    sizes: {{N: 1, d: 1, m: 1}}
    domain: {{s: "(0, 1]"}}
    init: {{W: zeros, U: "s*1e-60*ones", b: "s*1e-60*ones", X: "1e-60*ones", y: "s*1e-60*ones"}}
claims:
  - {{id: c, setting: tiny, instances: 2, run: {run}, conclude: "L[{i}] <= L[0] for all {i}"}}
"""


@pytest.mark.parametrize(
    ("run", "index"),
    [("{method: gradient-flow, horizon: 1}", "t"), ("{method: gradient-descent, step: 1/8, steps: 4}", "k")],
)
def test_a_gradient_whose_square_is_no_float(tmp_path, run, index):
    path = tmp_path / "claims.yaml"
    path.write_text(FILE.format(run=run, i=index))
    (claim,) = load_suite(str(path)).claims
    result = judge(claim, Options(search=4))
    assert result.verdict in (Verdict.HOLDS, Verdict.UNDECIDED), result.reason


@pytest.mark.parametrize("base", [1.0, 1 + 2.0**-50, 1 - 2.0**-50, 3.0])
def test_a_power_with_a_long_exponent(base):
    """Products for each of its bits would lose as many digits, and take for ever where it has a thousand."""
    exponent = 2**66 + 1
    found = power(exact(base), exponent)
    with flint.ctx.workprec(400):
        truth = (flint.arb(exponent) * flint.arb(base).log()).exp()
    assert found.overlaps(truth)
    assert power(exact(-base), exponent).overlaps(-truth)
    assert power(exact(base), 10**300).is_finite() or base > 1
