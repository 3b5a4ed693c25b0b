"""Fixtures that the tests of training runs share."""

from __future__ import annotations

import pytest
from dynamics_samples import drawn

from ntk_deq.language.declaration import model_names, model_signature


@pytest.fixture(params=[name for name in model_names() if model_signature(name).implementation])
def problem(request):
    """Every model with a class of its own in turn."""
    return drawn(request.param)


@pytest.fixture
def relu():
    return drawn("implicit-relu")
