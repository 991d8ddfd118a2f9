"""Episodes under a virtual clock, and their results."""
