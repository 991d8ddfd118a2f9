"""The newest part of a run in memory, written when there is a reason: `Ring`.

run       ----------------------------------------! an event ----------------------------------
in memory                     |<---- seconds ----->|
on disk                       |<--------- one file -------------->|      as long again after it
"""

from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.log.file import LogFile

MAX_BYTES = 512_000_000
"""Maximum size of messages in memory, whatever the seconds."""
JOURNAL = "/journal"


class Ring:
    """A sink that forgets; one thread owns it."""

    def __init__(self, seconds: float, open_file: Callable[[], LogFile]) -> None:
        """open_file: makes the file when there is a reason. OSError, InvalidValueError: it cannot."""
        self._length_ns, self._open = round(seconds * NS_PER_S), open_file
        self.files: list[Path] = []
        """The files that were written."""
        self._held: deque[tuple[str, int, bytes, Any]] = deque()
        self._examples: dict[str, Any] = {}
        self._first: tuple[str, int, bytes, Any] | None = None
        self._bytes = self._newest_ns = 0
        self._file: LogFile | None = None
        self._until_ns = 0

    @property
    def num_bytes(self) -> int:
        """Size of the messages in memory."""
        return self._bytes

    def add(self, topic: str, log_ns: int, data: bytes, example: Any) -> None:
        """The first message of the journal, which has the configuration, is never forgotten."""
        example = self._examples.setdefault(topic, example)
        message = (topic, log_ns, data, example)
        if self._first is None and topic == JOURNAL:
            self._first = message
        self._newest_ns = max(self._newest_ns, log_ns)
        if self._file is not None:
            self._file.add(*message)
            if log_ns > self._until_ns:
                self._close({})
            return
        self._held.append(message)
        self._bytes += len(data)
        while self._held and (
            self._held[0][1] < self._newest_ns - self._length_ns or self._bytes > MAX_BYTES
        ):
            self._bytes -= len(self._held.popleft()[2])

    def keep(self, why: str, seconds: float | None = None) -> None:
        """Write the messages in memory, of the last `seconds` if given, and those of an equal time after."""
        self._until_ns = self._newest_ns + self._length_ns
        if self._file is not None:
            return
        self._file = self._open()
        self.files.append(self._file.path)
        since_ns = 0 if seconds is None else self._newest_ns - round(seconds * NS_PER_S)
        if self._first is not None and (not self._held or self._held[0] is not self._first):
            self._file.add(*self._first)
        for message in self._held:
            if message[1] >= since_ns or message is self._first:
                self._file.add(*message)
        self._held.clear()
        self._bytes = 0
        self._file.flush()

    def flush(self) -> None:
        """Flush the file, if one is being written."""
        if self._file is not None:
            self._file.flush()

    def close(self, end: Mapping[str, str]) -> None:
        """End the run's file, if there is one."""
        self._close(end)

    def _close(self, end: Mapping[str, str]) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close(end)


class Nowhere:
    """A sink that keeps nothing: for runs that are only watched."""

    def __init__(self) -> None:
        self.files: list[Path] = []

    def add(self, topic: str, log_ns: int, data: bytes, example: Any) -> None:
        """Drop it."""

    def flush(self) -> None:
        """Do nothing."""

    def close(self, end: Mapping[str, str]) -> None:
        """Do nothing."""

    def keep(self, why: str, seconds: float | None = None) -> None:
        """Do nothing."""
