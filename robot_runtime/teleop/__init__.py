"""Teleoperation: from the readings of a device to commands for the executor."""
