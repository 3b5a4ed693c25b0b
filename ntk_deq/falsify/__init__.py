"""falsify."""
