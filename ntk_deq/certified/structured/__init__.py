"""Matrix balls that are never formed: diagonal, block-diagonal, Kronecker, and products of these.

`vec` stacks columns, so entry (n, j) of an N x m matrix is at n + N j, and kron(A', I(N)) is one block A' for each n.
"""

from ntk_deq.certified.structured import arithmetic, products, spectra
from ntk_deq.certified.structured.blocks import (
    LAZY_ENTRIES,
    MAX_ENTRIES,
    Blocks,
    Diagonal,
    MatrixBall,
    Structured,
    densified,
    lazy_above,
    require_room,
)
from ntk_deq.certified.structured.products import Chain, Kronecker, diag, identity, kron

__all__ = [
    "LAZY_ENTRIES",
    "MAX_ENTRIES",
    "Blocks",
    "Chain",
    "Diagonal",
    "Kronecker",
    "MatrixBall",
    "Structured",
    "arithmetic",
    "densified",
    "diag",
    "identity",
    "kron",
    "lazy_above",
    "products",
    "require_room",
    "spectra",
]
