"""One log per run: written while it runs, read, cut, exported and replayed."""

from pathlib import Path

DEFAULT_FOLDER = Path("outputs/runs")
"""Where runs leave their logs."""
