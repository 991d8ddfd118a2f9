"""Commands that serve, train and describe policies."""
