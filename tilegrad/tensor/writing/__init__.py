"""Assignment, updates in place, hooks on gradients."""
