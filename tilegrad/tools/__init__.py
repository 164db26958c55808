"""What developers of tilegrad give themselves. Nothing here is needed to run a tensor."""
