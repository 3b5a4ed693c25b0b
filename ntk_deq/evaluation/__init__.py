"""Formulas on instances: in balls, in many bits, in torch; equilibria and derivatives."""
