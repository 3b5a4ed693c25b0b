"""The page of a run: axes, margins, formulas, what the templates see."""
