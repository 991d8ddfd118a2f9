"""The MCAP file of a run: `LogFile`. Each `flush` passes everything to the operating system."""

import contextlib
import fcntl
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from robot_runtime.log.config import RunInfo
from robot_runtime.log.foxglove import LOG_SCHEMA, image_schema
from robot_runtime.log.people import json_schema
from robot_runtime.log.records import CRC, Channel, crc_of

PROFILE = "robot-runtime"
"""Profile in the header of our files."""
CHUNK_BYTES = 256 * 1024
"""Size at which a chunk is written, however little time has passed."""
INFO, END = "run", "end"
"""Names of the metadata at the beginning and the end of a log."""


class Sink(Protocol):
    """Destination of messages: a file, or memory."""

    files: list[Path]
    """The files that were written so far."""

    def add(self, topic: str, log_ns: int, data: bytes, example: Any) -> None:
        """example: the value that `data` encodes, for a JSON message with a schema of its own."""
        ...

    def flush(self) -> None: ...

    def close(self, end: Mapping[str, str]) -> None: ...

    def keep(self, why: str, seconds: float | None = None) -> None:
        """Note an event for which the last seconds are worth keeping."""
        ...


class LogFile:
    """One file, written by one thread. Any method may raise OSError: the disk is full, or gone."""

    def __init__(self, path: Path, info: RunInfo) -> None:
        """FileExistsError: there is such a file."""
        from mcap.writer import CompressionType, IndexType, Writer

        self.path, self.files = path, [path]
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)  # marks it as in use for `folder.tidy`
        self._file = io.FileIO(number, "w")
        self._buffered = io.BufferedWriter(self._file, 64 * 1024)
        self._writer: Writer = Writer(
            self._buffered,
            chunk_size=CHUNK_BYTES,
            compression=CompressionType.ZSTD,
            index_types=IndexType.ALL,
        )
        self._channels: dict[str, int] = {}
        self._writer.start(profile=PROFILE)
        self._add_metadata(INFO, {"json": info.to_json()})
        self._buffered.flush()

    def add(self, topic: str, log_ns: int, data: bytes, example: Any) -> None:
        """Write a message of a topic."""
        channel = self._channels.get(topic)
        if channel is None:
            channel = self._channels[topic] = self._register(topic, example)
        self._writer.add_message(channel, log_time=log_ns, data=data, publish_time=log_ns)

    def _add_metadata(self, name: str, values: Mapping[str, str]) -> None:
        self._writer.add_metadata(name, {**values, CRC: crc_of(name, values)})

    def _register(self, topic: str, example: Any) -> int:
        name, encoding, schema, message_encoding = described(topic, example)
        number = self._writer.register_schema(name, encoding, schema) if name else 0
        return self._writer.register_channel(topic, message_encoding, number)

    def flush(self) -> None:
        """Pass everything to the operating system: a killed process loses nothing of it."""
        self._writer.flush()
        if os.fstat(self._file.fileno()).st_nlink == 0:
            raise OSError(f"{self.path} was removed while it was written")

    def close(self, end: Mapping[str, str]) -> None:
        """Write the index, and the result of the run."""
        try:
            self._add_metadata(END, end)
            self._writer.finish()
            self._buffered.flush()
        finally:
            self.abandon()

    def keep(self, why: str, seconds: float | None = None) -> None:
        """Do nothing: everything is in the file."""

    def abandon(self) -> None:
        """Leave the file as it is: flushed messages can be read."""
        with contextlib.suppress(OSError):
            self._file.close()


def described(topic: str, example: Any) -> tuple[str, str, bytes, str]:
    """Describe a topic: its schema's name, encoding and content, and the encoding of its messages."""
    if isinstance(example, Channel):  # of another file
        schema = example.schema
        about = (schema.name, schema.encoding, schema.data) if schema else ("", "", b"")
        return *about, example.encoding
    if topic.startswith("/camera/"):
        return "foxglove.CompressedImage", "protobuf", image_schema(), "protobuf"
    if topic == "/journal":
        return "", "", b"", "msgpack"
    if topic == "/log":
        return "foxglove.Log", "jsonschema", msgspec.json.encode(LOG_SCHEMA), "json"
    name = f"robot_runtime.{topic.strip('/')}"
    return name, "jsonschema", msgspec.json.encode(json_schema(topic, example)), "json"
