"""From requested nodes to a plan: known values, shared signatures, changing sizes and numbers."""
