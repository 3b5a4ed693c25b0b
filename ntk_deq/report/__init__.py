"""Verdicts written down for people and machines: terminal, JSON lines, JUnit, one-file HTML. Imports no torch.

terminal.py, console.py    lines as claims are judged; words.py: what they call things
jsonl.py, junit.py         results.jsonl, written and read back, and junit.xml
page/, templates/          report.html: formulas, margins drawn, counterexamples
runs/                      training runs: curves, words
check.py, mutants.py, replay.py    what the other subcommands print
"""
