"""The language of claims: files, expressions, shapes. Needs no torch; `load.load_suite` is the entrance."""

from ntk_deq.claims.claim import Claim, IllFormed, Problem, Setting, Suite, Verdict
from ntk_deq.claims.errors import ClaimFileError, ExpressionError

__all__ = ["Claim", "ClaimFileError", "ExpressionError", "IllFormed", "Problem", "Setting", "Suite", "Verdict"]
