"""Generators of Opts: a list for a kernel without measuring. `heuristic` chooses the generator."""
