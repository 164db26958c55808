"""Sums of products (matrices, convolutions, attention) and losses."""
