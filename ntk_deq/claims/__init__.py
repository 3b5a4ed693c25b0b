"""The language of claims: files, expressions, shapes. Needs no torch; `load.load_suite` is the entrance."""

from ntk_deq.claims.claim import Claim, IllFormed, Suite, Verdict
from ntk_deq.errors import ClaimFileError, ExpressionError, Problem
from ntk_deq.language.setting import Setting

__all__ = ["Claim", "ClaimFileError", "ExpressionError", "IllFormed", "Problem", "Setting", "Suite", "Verdict"]
