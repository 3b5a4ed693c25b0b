"""What a script cannot say."""

from __future__ import annotations

from ntk_deq.errors import NtkDeqError


class UnwritableError(NtkDeqError):
    """A formula that has no form in a NumPy script; the message says which, and why."""
