"""Instances to test a claim on, and the search for one that breaks it; knows no claim. Imported on first use.

ladder.py        instance number k of a setting: structured ones (families.py, exact_builders.py) and random ones
domains.py, scalars.py, draws.py    members of domains, telling scalars, distributions
repair.py        one that meets the hypotheses in the place of one that does not
score.py         what a search asks of a claim: margins of hypotheses and conclusions
search/          campaign.py: places, points, descents; descents.py: the methods;
                 feasible.py: moved into the hypotheses; wild.py: matrices that break norms' folklore
shrink/          a counterexample with smaller sizes and plainer numbers
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ntk_deq.evaluation.instance import Instance, scale_variable, with_values
    from ntk_deq.falsify.domains import contains
    from ntk_deq.falsify.draws import draw_expression
    from ntk_deq.falsify.ladder import instance_at, instances
    from ntk_deq.falsify.repair import shrink_variants

__all__ = [
    "Instance",
    "contains",
    "draw_expression",
    "instance_at",
    "instances",
    "scale_variable",
    "shrink_variants",
    "with_values",
]

_LAZY = {
    "Instance": "ntk_deq.evaluation.instance",
    "contains": "ntk_deq.falsify.domains",
    "draw_expression": "ntk_deq.falsify.draws",
    "instance_at": "ntk_deq.falsify.ladder",
    "instances": "ntk_deq.falsify.ladder",
    "scale_variable": "ntk_deq.evaluation.instance",
    "shrink_variants": "ntk_deq.falsify.repair",
    "with_values": "ntk_deq.evaluation.instance",
}


def __getattr__(name: str) -> object:
    """Import a name that needs torch when it is first asked for (PEP 562)."""
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the lazy names too."""
    return __all__
