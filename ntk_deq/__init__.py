"""Analysis and verification of equilibrium networks."""
