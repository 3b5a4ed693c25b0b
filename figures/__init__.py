"""Figures over stored results, and the experiments that store them.

deq_digits.py, solver_comparison.py     experiments: each a command that writes a file below checks/results
gallery.py                              the figures of docs/gallery, drawn from these files (`make figures`)

Nothing here is installed. A figure computes nothing again; an experiment draws nothing.
"""
