"""Instances that the tests of training runs share."""

from __future__ import annotations

import torch

from ntk_deq.systems.model import model_class


def drawn(name: str, *, N: int = 4, d: int = 5, m: int = 7, seed: int = 0, dtype=torch.float64, **more):
    """A registered model with inputs and targets."""
    generator = torch.Generator().manual_seed(seed)
    model = model_class(name).random(d, m, generator=generator, dtype=dtype, **more)
    X = torch.randn(N, d, generator=generator, dtype=torch.float64)
    y = torch.randn(N, generator=generator, dtype=torch.float64)
    return model, (X / X.norm(dim=1, keepdim=True)).to(dtype), y.to(dtype)


def copied(model):
    """The parameters as tensors of their own."""
    return {name: value.clone() for name, value in model.parameters().items()}


def moved_along(parameters, gradients, step):
    """Plain descent."""
    return {name: value - step * gradients[name] for name, value in parameters.items()}
