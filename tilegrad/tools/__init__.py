"""Tools for developers of tilegrad. Nothing here is needed to run a tensor."""
