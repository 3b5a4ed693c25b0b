"""Figures of training runs, for a notebook and for the command `convergence-figures`."""
