"""The stages in their order: graphs are scheduled, compiled, kept as plans, and run."""
