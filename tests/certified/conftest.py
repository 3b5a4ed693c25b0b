"""One thread for matrices of a few entries: threads that wait for each other cost more than they bring."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

# The fuzzer's families and exact arithmetic live in `benchmarks`, which is no installed package.
sys.path.insert(0, str(Path(__file__).parents[2]))


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
