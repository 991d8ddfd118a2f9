"""Logging of a command's runs: every line into a file, and a summary of the warnings for the screen."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SUM = re.compile(r"(\d+) times: (.*)", re.DOTALL)
_SO_FAR = re.compile(r" \(\d+ times so far\)$")


class WarningSummary(logging.Handler):
    """Keeps the warnings of a run, each kind once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._counts: dict[str, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Count a warning; a total at the end of a run ("3 times: ...") replaces the count of its kind."""
        text = _SO_FAR.sub("", record.getMessage())
        if (total := _SUM.fullmatch(text)) is not None:
            self._counts[total[2]] = int(total[1])
        else:
            self._counts[text] = self._counts.get(text, 0) + 1

    def take(self) -> list[str]:
        """Return a line for each kind since the last call, with its count if it happened more than once."""
        lines = [text if count == 1 else f"{text} ({count} times)" for text, count in self._counts.items()]
        self._counts.clear()
        return lines


@contextmanager
def logged_to(path: Path) -> Iterator[WarningSummary]:
    """Write this package's log to a file while the context lasts, and collect its warnings for a summary."""
    logger, log = logging.getLogger("robot_runtime"), WarningSummary()
    file = logging.FileHandler(path, mode="w")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handlers, was = (file, log), (logger.propagate, logger.level)
    for handler in handlers:
        logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    try:
        yield log
    finally:
        logger.propagate = was[0]
        logger.setLevel(was[1])
        for handler in handlers:
            logger.removeHandler(handler)
        file.close()
