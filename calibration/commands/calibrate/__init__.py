"""Measure once what cameras, arms and grippers are: where they sit, how they see, how late they are.

Each command writes a small JSON file that states its units, its frames and how far it can be trusted;
docs/calibration.md and docs/calibration_robot.md lead through them.
"""
