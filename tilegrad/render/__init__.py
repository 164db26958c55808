"""Stage 6: a linear program becomes source text."""
