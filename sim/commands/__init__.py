"""Commands that run, evaluate and record in simulation."""
