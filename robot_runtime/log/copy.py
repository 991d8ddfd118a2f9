"""Writes a log anew: `recovered` repairs one that was cut; `cut_out` extracts a part."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from robot_runtime.errors import InvalidValueError
from robot_runtime.log.file import LogFile
from robot_runtime.log.reader import RunLog
from robot_runtime.log.ring import JOURNAL


def recovered(log: RunLog, path: Path, *, on_message: Callable[[], None] = lambda: None) -> int:
    """Write all readable messages into a file that every program opens; returns their number."""
    return _copied(log, path, 0, 2**63, is_part=log.info.is_part, on_message=on_message)


def cut_out(
    log: RunLog,
    path: Path,
    *,
    start_s: float = 0.0,
    end_s: float | None = None,
    on_message: Callable[[], None] = lambda: None,
) -> int:
    """Write the messages from start_s to before end_s, counted from the first tick [s].

    Returns their number. A part from the very beginning can be replayed, others cannot.
    InvalidValueError: there are none.
    """
    begin_ns = next((row.tick.now_ns for row in log.ticks()), None)
    if begin_ns is None:
        raise InvalidValueError(f"{log.path} has no control tick in it")
    begin_ns += log.info.offset_ns
    start_ns = 0 if start_s <= 0.0 else begin_ns + round(start_s * 1e9)
    end_ns = 2**63 if end_s is None else begin_ns + round(end_s * 1e9)
    if end_ns <= start_ns:
        raise InvalidValueError(f"a part ends after it starts, got {start_s:g} s to {end_s:g} s")
    is_part = log.info.is_part or start_s > 0.0
    count = _copied(log, path, start_ns, end_ns, is_part=is_part, on_message=on_message)
    if count == 0:
        path.unlink()
        raise InvalidValueError(f"{log.path} has nothing from {start_s:g} s on")
    return count


def _copied(
    log: RunLog, path: Path, start_ns: int, end_ns: int, *, is_part: bool, on_message: Callable[[], None]
) -> int:
    try:
        file = LogFile(path, replace(log.info, is_part=is_part))
    except OSError as error:
        raise InvalidValueError(f"{path} cannot be written: {error.strerror or error}") from error
    count, has_configuration = 0, False
    for message in log.messages_and_gaps():
        on_message()
        is_first = message.topic == JOURNAL and not has_configuration
        has_configuration = has_configuration or is_first
        is_inside = start_ns <= message.log_ns < end_ns
        if is_first or is_inside:
            example = json.loads(message.data) if message.channel is None else message.channel
            file.add(message.topic, message.log_ns, message.data, example)
            count += is_inside
    file.close(log.end if end_ns >= 2**63 else {})
    return count
