"""Bounds that are proven for runs: descent in balls, curvature, kinks; errors along recursions."""
