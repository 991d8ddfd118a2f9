"""One log per run: written while it runs, read, cut, exported and replayed."""
