"""The Opts: as data (`opt`), as checked rewrites (`opts`), and those that need their own file."""
