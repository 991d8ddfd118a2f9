"""Commands that run a robot and look at what it did."""
