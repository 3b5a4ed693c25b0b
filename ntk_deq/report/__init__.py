"""Verdicts written down for people and machines: terminal, JSON lines, JUnit, one-file HTML. Imports no torch."""
