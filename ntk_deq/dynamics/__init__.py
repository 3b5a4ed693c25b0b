"""Training runs: gradient descent and gradient flow through the equilibrium."""
