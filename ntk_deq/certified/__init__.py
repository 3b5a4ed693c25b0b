"""certified."""
