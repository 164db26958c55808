"""New tensors, drawn at random or not; elements that a key picks, and writing to these."""
