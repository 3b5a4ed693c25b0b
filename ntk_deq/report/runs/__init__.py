"""Training runs in the report: curves, words, where they are kept."""
