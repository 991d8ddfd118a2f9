"""Demonstrations without a robot, as devices gave them: the raw zone, its sources, marks and verdicts."""
