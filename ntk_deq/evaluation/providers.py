"""How states and derivatives come about in balls, as an environment is handed them: the one place that knows both."""

from __future__ import annotations

from ntk_deq.evaluation.convex.moved import moved
from ntk_deq.evaluation.convex.operators import extreme, least
from ntk_deq.evaluation.derivatives.derivative import derivative
from ntk_deq.evaluation.derivatives.reverse import state_quotients
from ntk_deq.evaluation.environment import Providers
from ntk_deq.evaluation.equilibria import equilibrium_ball, iterate_ball, map_once, value_at_step

PROVIDERS = Providers(
    equilibrium=equilibrium_ball,
    iterate=iterate_ball,
    image=map_once,
    quotients=state_quotients,
    derivative=derivative,
    at_step=value_at_step,
    extreme=extreme,
    least=least,
    moved=moved,
)
"""Equilibria by a float solve and a certificate, derivatives by reverse mode, minima where they are known."""
