"""The claim language: formulas, types, functions, declarations and their notation. Needs no torch."""
