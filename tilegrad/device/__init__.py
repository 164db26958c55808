"""Stage 9: one file ties renderer, compiler and runtime to one kind of hardware."""
