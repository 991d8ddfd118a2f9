"""Calibrate cameras, arms and grippers: intrinsics, mounting poses and latencies.

Each command writes a small JSON file that states its units, its frames and how far it can be trusted;
docs/calibration.md and docs/calibration_robot.md explain the commands step by step.
"""
