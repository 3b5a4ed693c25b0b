"""Fixtures that the tests of training runs share."""

from __future__ import annotations

import pytest
from dynamics_samples import drawn

from ntk_deq.language.library import model_names


@pytest.fixture(params=model_names())
def problem(request):
    """Every registered model in turn."""
    return drawn(request.param)


@pytest.fixture
def relu():
    return drawn("implicit-relu")
