"""From requested nodes to a plan: what is known, what equal graphs share, what changes."""
