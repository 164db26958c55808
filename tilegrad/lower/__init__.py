"""Stage 5: a kernel becomes a program, loops and scalar or vector instructions in an order."""
