"""Calibration of cameras, end effectors, clocks and delays. Pure maths; commands move devices and call it."""
