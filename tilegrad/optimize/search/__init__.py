"""Search of better Opts by measuring."""
