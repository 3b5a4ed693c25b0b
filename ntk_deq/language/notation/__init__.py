"""How formulas are written: LaTeX, MathML, SymPy."""
