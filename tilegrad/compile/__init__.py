"""Stage 7: source text to a binary."""
