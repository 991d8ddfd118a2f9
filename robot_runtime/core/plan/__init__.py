"""Processing of answers: the timeline, the chunks that enter it, and the limits of its commands."""
