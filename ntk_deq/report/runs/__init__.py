"""Training runs in the report: curves and words."""
