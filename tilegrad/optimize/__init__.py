"""Stage 4: a kernel becomes the same kernel in a better shape."""
