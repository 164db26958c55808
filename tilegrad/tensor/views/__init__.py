"""The same values at other positions: movement, concatenation and windows."""
