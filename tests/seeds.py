"""Seeds of tests that are repeated: the first ones in every run, the others in `make test-long`."""

import pytest


def seeds(count, usual=1, start=0):
    """Return parameters for `count` seeds, of which all but the first `usual` are long."""
    return [pytest.param(start + n, marks=pytest.mark.long if n >= usual else ()) for n in range(count)]
