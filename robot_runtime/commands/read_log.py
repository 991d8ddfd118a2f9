"""`log_of`: opens the log of a run for a command."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.user_code import of_user

if TYPE_CHECKING:
    from robot_runtime.log.reader import RunLog

logger = logging.getLogger(__name__)


@contextmanager
def log_of(path: Path, *, needs_whole: bool = True) -> "Iterator[RunLog]":
    """Open a log while a command works on it.

    needs_whole: fail once the work is done if the log was cut or is damaged.
    InvalidValueError: it was cut or is damaged, or its values are inconsistent; in one sentence.
    """
    from robot_runtime.log.reader import RunLog

    log = RunLog.open(path)
    try:
        yield log
    except (RobotRuntimeError, OSError, ImportError):
        raise
    except Exception as error:
        if of_user(error) is not None:
            raise
        logger.debug("while %s was read", path, exc_info=True)
        text = f"{type(error).__name__}: {error!s:.300}"
        raise InvalidValueError(f"{path}: values of this log do not fit together: {text}") from error
    if needs_whole:
        log.refuse_damage()
