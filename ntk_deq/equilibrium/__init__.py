"""equilibrium."""
