"""A counterexample as a short script that reproduces both sides with NumPy alone.

`tangents` differentiates formulas, `printer` writes them in NumPy, `script` puts the script together.
"""
