"""Robot hardware: the protocols every device follows, and one vendor per file."""
