"""Stage 8: a binary and buffers to results; needs no compiler."""
