"""Results that took long to make: if they cannot be written where they should, they are kept elsewhere."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from robot_runtime.errors import RobotRuntimeError


class KeptElsewhereError(RobotRuntimeError):
    """The result is not where it should be; says where it is."""


def keep(path: Path, write: Callable[[Path], object]) -> None:
    """Have `write(path)` make a file or a folder, and `write` another path in a temporary folder if that
    fails.

    KeptElsewhereError: that was needed. Whatever `write` raises: it fails there too.
    """
    try:
        write(path)
    except Exception as error:  # a library's own for a full disk, too
        other = Path(tempfile.mkdtemp(prefix="robot-runtime-")) / path.name
        write(other)
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise KeptElsewhereError(f"{path} cannot be written ({why}): it is kept as {other}") from error


def keep_text(path: Path, text: str) -> None:
    """As `keep`; what the file held before is only replaced by the whole text."""
    keep(path, lambda to: _write_whole(to, text))


def _write_whole(path: Path, text: str) -> None:
    path = path.resolve()
    if path.exists() and not path.is_file():  # a device or a pipe
        path.write_text(text)
        return
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(text)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
