"""Derivatives of formulas: reverse mode in balls, with automatic differentiation beside it."""
