"""The claim language: formulas, types, functions, declarations and their notation. Needs no torch.

tree.py, parser.py        a formula as a tree, and from its text (grammar.lark)
types.py, typing.py       scalars and matrices of symbolic sizes; operators.py, calls.py: what fits together
record.py                 what is said of a function: shape, range, laws, notation, mutants, NumPy
functions.py, matrix_functions.py   the records; values.py: ranges as rules; hints.py: names from elsewhere
domain.py, interval.py, distributions.py, setting.py   where the values of variables come from
declaration.py, library.py   a model as data, and those that are known; loss.py, layer.py: what its loss and map are
run.py, steps.py          fixed-point, descent and flow: what changes along a run, and which step is meant
ranges.py, ordering.py, shapes.py   what follows: ranges of formulas, what lies below what, checked sizes
format.py, notation/      plain text; LaTeX, MathML, SymPy
"""
