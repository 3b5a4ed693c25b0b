"""Proofs of claims about real numbers: exact arguments first, then branch and bound (docs/design.md, section 1)."""
