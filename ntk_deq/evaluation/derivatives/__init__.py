"""Derivatives of formulas: reverse mode in balls along a tape, kinks, and an estimate where there is no rule."""
