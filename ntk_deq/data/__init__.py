"""Where numbers come from: random draws and real images, imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ntk_deq.package import lazy_names

if TYPE_CHECKING:
    from ntk_deq.data.distributions import (
        Sampler as Sampler,
        draw as draw,
        sampler as sampler,
    )
    from ntk_deq.data.images import (
        ImageSample as ImageSample,
        load_images as load_images,
        load_mnist as load_mnist,
        resize_area as resize_area,
        select_images as select_images,
    )
    from ntk_deq.data.readers import ImageSet as ImageSet
    from ntk_deq.language.domain import (
        DISTRIBUTIONS as DISTRIBUTIONS,
        DistributionName as DistributionName,
    )

__getattr__, __dir__ = lazy_names(__name__)
