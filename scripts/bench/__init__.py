"""Benchmarks and comparisons: `python -m scripts.bench`, and modules with a command of their own."""
