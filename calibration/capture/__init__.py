"""Demonstrations recorded without a robot: the raw zone, its sources, marks and verdicts."""
