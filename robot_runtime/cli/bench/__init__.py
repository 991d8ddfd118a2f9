"""Benchmarks and comparisons: `robot-runtime bench`."""
