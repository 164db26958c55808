"""Reduced axes, and scans along them."""
