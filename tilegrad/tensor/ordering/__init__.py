"""Sorting, rows by index, selection by value, positions in an order."""
