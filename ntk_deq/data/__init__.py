"""Where numbers come from: random draws and real images, imported on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ntk_deq.language.distributions import DISTRIBUTIONS, DistributionName

if TYPE_CHECKING:
    from ntk_deq.data.distributions import Sampler, draw, sampler
    from ntk_deq.data.images import ImageSample, load_images, load_mnist, resize_area, select_images
    from ntk_deq.data.readers import ImageSet

__all__ = [
    "DISTRIBUTIONS",
    "DistributionName",
    "ImageSample",
    "ImageSet",
    "Sampler",
    "draw",
    "load_images",
    "load_mnist",
    "resize_area",
    "sampler",
    "select_images",
]

_LAZY = {
    "ImageSample": "ntk_deq.data.images",
    "ImageSet": "ntk_deq.data.readers",
    "Sampler": "ntk_deq.data.distributions",
    "draw": "ntk_deq.data.distributions",
    "load_images": "ntk_deq.data.images",
    "load_mnist": "ntk_deq.data.images",
    "resize_area": "ntk_deq.data.images",
    "sampler": "ntk_deq.data.distributions",
    "select_images": "ntk_deq.data.images",
}


def __getattr__(name: str) -> object:
    """Import a name that needs torch or numpy when it is first asked for (PEP 562)."""
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the lazy names too."""
    return __all__
