"""Norms written in place, by whichever way is fastest."""

from __future__ import annotations

import pytest
import torch

from ntk_deq.equilibrium.starts import write_norm


@pytest.mark.parametrize("size", [3, 1 << 8, 1 << 9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", [torch.clone, torch.t, lambda value: value[:, ::2]], ids=["rows", "columns", "gaps"])
def test_norms_agree_whatever_size_and_layout(size, dtype, layout):
    value = layout(torch.randn(size, size, generator=torch.Generator().manual_seed(size), dtype=dtype))
    out = torch.zeros((), dtype=dtype)
    write_norm(value, out)
    expected = torch.linalg.vector_norm(value.double())
    assert float(out) == pytest.approx(float(expected), rel=8 * torch.finfo(dtype).eps * size**0.5)


def test_zero_has_the_norm_zero():
    out = torch.ones((), dtype=torch.float64)
    write_norm(torch.zeros(256, 256, dtype=torch.float64), out)
    assert float(out) == 0
