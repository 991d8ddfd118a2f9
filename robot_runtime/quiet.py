"""Loggers for libraries that log, with a traceback, what this project reports in one line: `quiet_logger`."""

import logging


def quiet_logger(name: str) -> logging.Logger:
    """Return a logger that drops records below CRITICAL; name: of the module that uses the library."""
    logger = logging.getLogger(f"{name}.quiet")
    logger.setLevel(logging.CRITICAL)
    return logger
