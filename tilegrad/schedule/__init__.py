"""Stage 3: a tensor graph becomes a Schedule, an ordered list of kernels and copies."""
