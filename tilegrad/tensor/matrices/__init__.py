"""Factorised matrices and what follows from the factors."""
