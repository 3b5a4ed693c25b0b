"""Gradient flow: the integrator, its passes, kinks, and the run."""
