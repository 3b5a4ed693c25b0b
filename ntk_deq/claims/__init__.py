"""The language of claims: files, expressions, shapes. Needs no torch; `load.load_suite` is the entrance."""
