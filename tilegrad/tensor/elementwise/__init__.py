"""One result for each element."""
