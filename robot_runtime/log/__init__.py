"""One log per run: written while it runs, read, cut, exported and replayed."""

from pathlib import Path

DEFAULT_FOLDER = Path("outputs/runs")
"""Where runs leave their logs."""
FORMAT = 1
"""Version of the log format; a reader accepts this one and names others in its error."""
