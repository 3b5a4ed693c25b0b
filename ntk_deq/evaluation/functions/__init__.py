"""What a function of the language is to each kind of number: balls, floats, slopes."""
