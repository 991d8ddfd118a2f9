"""Episodes under a virtual clock, and what they come to."""
