"""Instance files: a claim with one instance of it, written down so that anyone can judge it again."""
