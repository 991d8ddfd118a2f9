"""Benchmarks and comparisons: `python -m scripts.bench`, and modules with their own commands."""
