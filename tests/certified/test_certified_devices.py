"""No certificate where float64 products may not be what they seem: settings, emulation, other algorithms."""

import math
import sys

import pytest
import torch

from ntk_deq import certified as ct
from ntk_deq.certified import Ball, rounding


@pytest.fixture
def cuda_settings(monkeypatch):
    """Settings of matrix products on CUDA as they are by default, whatever this machine has."""

    class Settings:
        fp32_precision = "none"

    settings = Settings()
    monkeypatch.setattr(torch.backends.cuda, "matmul", settings)
    for name in ("CUBLAS_EMULATE_DOUBLE_PRECISION", "CUBLAS_EMULATION_STRATEGY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(rounding, "probe", lambda device: "")
    return settings


def test_this_machine_is_fit():
    assert ct.certification_fault("cpu") == ""
    assert ct.certification_fault(torch.device("cpu"), torch.float32) == ""


@pytest.mark.parametrize("precision", ["none", "ieee"])
def test_full_precision_on_cuda_is_fit(cuda_settings, precision):
    cuda_settings.fp32_precision = precision
    assert ct.certification_fault("cuda:0") == ""


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_reduced_precision_on_cuda_is_refused(cuda_settings, precision):
    cuda_settings.fp32_precision = precision
    assert precision in ct.certification_fault("cuda")
    assert "fp32_precision = 'ieee'" in ct.certification_fault("cuda")
    assert ct.certification_fault("cpu") == ""


def test_the_older_switch_is_read_where_there_is_no_newer(monkeypatch, cuda_settings):
    class Older:
        allow_tf32 = True

    monkeypatch.setattr(torch.backends.cuda, "matmul", Older())
    assert "tf32" in ct.certification_fault("cuda")
    monkeypatch.setattr(Older, "allow_tf32", False)
    assert ct.certification_fault("cuda") == ""


@pytest.mark.parametrize(
    ("variables", "refused"),
    [
        ({"CUBLAS_EMULATE_DOUBLE_PRECISION": "1"}, True),
        ({"CUBLAS_EMULATE_DOUBLE_PRECISION": "0"}, False),
        ({"CUBLAS_EMULATION_STRATEGY": "eager"}, True),
        ({"CUBLAS_EMULATION_STRATEGY": "performant", "CUBLAS_EMULATE_DOUBLE_PRECISION": "0"}, False),
    ],
)
def test_emulated_products_are_refused(monkeypatch, cuda_settings, variables, refused):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    fault = ct.certification_fault("cuda")
    assert bool(fault) == refused
    assert not refused or "emulated" in fault


def test_settings_of_the_real_torch_are_read():
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        torch.backends.cuda.matmul.allow_tf32 = True
        assert "tf32" in ct.certification_fault("cuda")
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def test_unknown_devices_and_types_are_refused(cuda_settings, monkeypatch):
    assert "mps" in ct.certification_fault("mps")
    assert "float16" in ct.certification_fault("cpu", torch.float16)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert ct.certification_fault("cuda") == "no CUDA device is available"


def test_a_fault_takes_the_information_away(monkeypatch):
    exact = Ball(torch.eye(2, dtype=torch.float64))
    monkeypatch.setattr(
        sys.modules["ntk_deq.certified.dense"], "certification_fault", lambda device: "products are emulated"
    )
    product = ct.matmul(exact, exact)
    assert product.radius == math.inf
    assert product.reason == "products are emulated"
    assert ct.lambda_min_at_least(product, 0.0) is None
    assert not ct.spectral_norm(product).is_finite()


def split_by_rows(a: torch.Tensor, bits: int = 55) -> torch.Tensor:
    """Return a matrix cut to so many bits below the largest entry of each row, as fixed-point emulation does."""
    unit = 2.0 ** (torch.frexp(a.abs().amax(dim=1))[1] - bits).double()[:, None]
    return (a / unit).round() * unit


def strassen(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    n = a.shape[0] // 2
    (a11, a12), (a21, a22) = ((h[:, :n], h[:, n:]) for h in (a[:n], a[n:]))
    (b11, b12), (b21, b22) = ((h[:, :n], h[:, n:]) for h in (b[:n], b[n:]))
    m1, m2, m3 = (a11 + a22) @ (b11 + b22), (a21 + a22) @ b11, a11 @ (b12 - b22)
    m4, m5, m6 = a22 @ (b21 - b11), (a11 + a12) @ b22, (a21 - a11) @ (b11 + b12)
    m7 = (a12 - a22) @ (b21 + b22)
    return torch.cat([torch.cat([m1 + m4 - m5 + m7, m3 + m5], 1), torch.cat([m2 + m4, m1 - m2 + m3 + m6], 1)])


@pytest.mark.parametrize(
    "product",
    [
        lambda a, b: (a.float() @ b.float()).double(),
        lambda a, b: split_by_rows(a) @ split_by_rows(b.mT).mT,
        lambda a, b: split_by_rows(a, 100) @ split_by_rows(b.mT, 100).mT,
        strassen,
    ],
)
def test_the_probe_tells_other_arithmetic_apart(product):
    a, b, expected = rounding._known_product()
    assert torch.equal(a @ b, expected)
    assert not torch.equal(product(a, b), expected)


def test_the_probe_reports_and_remembers(monkeypatch):
    a, b, expected = rounding._known_product()
    monkeypatch.setattr(rounding, "_known_product", lambda: (a, b, expected * (1 + 2.0**-52)))
    assert "not IEEE double precision" in rounding.probe.__wrapped__("cpu")
    assert rounding.probe("cpu") == ""
