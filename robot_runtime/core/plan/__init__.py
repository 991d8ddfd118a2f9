"""What becomes of an answer: the timeline, what enters it, and the limits on what leaves it."""
