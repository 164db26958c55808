"""From a kernel graph to a program, and what it costs."""
