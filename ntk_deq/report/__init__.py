"""Verdicts written down for people and machines: terminal, JSON lines, JUnit, one-file HTML. Imports no torch.

terminal.py, console.py    lines as claims are judged; words.py: what they call things, runs too
jsonl.py, junit.py         results.jsonl, written and read back, and junit.xml
html.py, templates/        report.html: formulas, margins drawn (margins.py, axes.py), counterexamples
runs.py, curves.py         training runs on the page
check.py                   what `check` prints; other commands print with what does their work, in `cli`
"""
