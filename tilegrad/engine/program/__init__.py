"""From a kernel graph to a program, and its cost."""
