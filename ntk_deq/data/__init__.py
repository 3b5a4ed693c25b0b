"""Where numbers come from: random draws and real images, imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ntk_deq.package import lazy_names

if TYPE_CHECKING:
    from ntk_deq.data.distributions import Sampler, draw, sampler
    from ntk_deq.data.images import ImageSample, load_images, load_mnist, resize_area, select_images
    from ntk_deq.data.readers import ImageSet
    from ntk_deq.language.domain import DISTRIBUTIONS, DistributionName

__getattr__, __dir__ = lazy_names(__name__)
