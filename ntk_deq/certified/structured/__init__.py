"""Matrix balls that are never formed: diagonal, block-diagonal, Kronecker, and products of these.

`vec` stacks columns, so entry (n, j) of an N x m matrix is at n + N j, and kron(A', I(N)) is one block A' for each n.
"""

from ntk_deq.certified.structured.base import MAX_ENTRIES, MatrixBall, Structured, densified, require_room
from ntk_deq.certified.structured.blocks import Blocks, Diagonal
from ntk_deq.certified.structured.chain import Chain
from ntk_deq.certified.structured.creation import LAZY_ENTRIES, diag, identity, kron, lazy_above
from ntk_deq.certified.structured.family import STRUCTURED
from ntk_deq.certified.structured.kronecker import Kronecker

__all__ = [
    "LAZY_ENTRIES",
    "MAX_ENTRIES",
    "STRUCTURED",
    "Blocks",
    "Chain",
    "Diagonal",
    "Kronecker",
    "MatrixBall",
    "Structured",
    "densified",
    "diag",
    "identity",
    "kron",
    "lazy_above",
    "require_room",
]
