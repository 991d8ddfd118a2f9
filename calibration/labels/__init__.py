"""From a capture to what a policy learns: the hand in the virtual base, the base on the floor, how sure."""
