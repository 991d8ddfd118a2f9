"""An MCAP file as far as it goes, wherever it was cut: `scan`, and `messages` of its chunks.

MCAP 0: magic, then records of one byte of kind, eight of length, and so many of content. Chunks hold further
records, compressed; they are written four times a second. https://mcap.dev/spec
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from robot_runtime.errors import InvalidValueError

MAGIC = b"\x89MCAP0\r\n"
HEADER, FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK, METADATA, DATA_END = 1, 2, 3, 4, 5, 6, 0x0C, 0x0F
_HEAD = struct.Struct("<BQ")
_CHUNK = struct.Struct("<QQQI")
_MESSAGE = struct.Struct("<HIQQ")
MAX_CHUNK = 2**31
"""Bytes of a chunk, or what it opens to: more is damage."""


@dataclass(frozen=True)
class Chunk:
    """Where one lies, and what times its messages have."""

    offset: int
    """Of its content in the file."""
    length: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Schema:
    """What a channel's messages look like, for programs that do not know us."""

    name: str = ""
    encoding: str = ""
    data: bytes = b""


@dataclass(frozen=True)
class Channel:
    """One stream of messages."""

    id: int
    topic: str
    encoding: str
    """Of its messages: json, msgpack, protobuf."""
    schema: Schema


@dataclass(kw_only=True)
class Layout:
    """What a file holds, from the front to where it ends or was cut."""

    library: str = ""
    profile: str = ""
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    chunks: list[Chunk] = field(default_factory=list)
    is_finished: bool = False
    """Whether it was closed."""
    end: int = 0
    """Bytes up to the end of the last whole record."""
    num_lost: int = 0
    """Bytes behind that, or behind a damaged chunk once somebody has read so far."""
    is_damaged: bool = False
    """Whether a chunk could not be opened; known once somebody has read so far."""


@dataclass(frozen=True)
class RawMessage:
    """One message of a channel."""

    topic: str
    log_ns: int
    data: bytes
    channel: Channel | None = None
    """Of one out of a file."""


def scan(path: Path) -> Layout:
    """Look through a file without opening its chunks. InvalidValueError: it is no MCAP file at all."""
    out = Layout()
    try:
        with path.open("rb") as file:
            _scan(file, path.stat().st_size, out)
    except OSError as error:
        raise InvalidValueError(f"{path} cannot be read: {error.strerror or error}") from error
    if out.end == 0:
        raise InvalidValueError(f"{path} is no log: it does not begin as an MCAP file does")
    return out


def _scan(file: BinaryIO, size: int, out: Layout) -> None:
    if file.read(len(MAGIC)) != MAGIC:
        return
    out.end = at = len(MAGIC)
    while at + _HEAD.size <= size:
        kind, length = _HEAD.unpack(file.read(_HEAD.size))
        start, at = at + _HEAD.size, at + _HEAD.size + length
        if at > size or kind == 0:
            break
        if kind == CHUNK:
            if length < _CHUNK.size:
                break
            start_ns, end_ns, _, _ = _CHUNK.unpack(file.read(_CHUNK.size))
            out.chunks.append(Chunk(start, length, start_ns, end_ns))
        elif kind in (HEADER, METADATA):
            _note(kind, file.read(length), out)
        out.end = at
        if kind == FOOTER:
            out.is_finished = file.read(len(MAGIC)) == MAGIC if file.seek(at) else False
            out.end = at + len(MAGIC) if out.is_finished else at
            break
        file.seek(at)
    out.num_lost = size - out.end


def _note(kind: int, content: bytes, out: Layout) -> None:
    try:
        first, at = _text(content, 0)
        if kind == HEADER:
            out.profile, (out.library, _) = first, _text(content, at)
            return
        end = at + 4 + int.from_bytes(content[at : at + 4], "little")
        found, at = dict[str, str](), at + 4
        while at < end:
            key, at = _text(content, at)
            found[key], at = _text(content, at)
        out.metadata[first] = found
    except (UnicodeDecodeError, struct.error):
        return


def _text(content: bytes | memoryview, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<I", content, at)
    end = at + 4 + length
    return bytes(content[at + 4 : end]).decode(), end


class ChunkReader:
    """Opens chunks one after the other, and remembers the channels that they declare."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.damaged: Chunk | None = None
        """The first that could not be opened, once it has been read."""
        self.channels: dict[int, Channel] = {}
        self._schemas: dict[int, Schema] = {0: Schema()}

    def messages(self, chunks: list[Chunk], topics: frozenset[str] | None = None) -> Iterator[RawMessage]:
        """All messages in the order of the file, of some topics or of all; up to the first damaged chunk."""
        with self._path.open("rb") as file:
            for chunk in chunks:
                file.seek(chunk.offset)
                opened = _opened(file.read(chunk.length))
                if opened is None:
                    self.damaged = chunk
                    return
                yield from self._of_chunk(opened, topics)

    def _of_chunk(self, records: bytes, topics: frozenset[str] | None) -> Iterator[RawMessage]:
        at, view = 0, memoryview(records)
        while at + _HEAD.size <= len(records):
            kind, length = _HEAD.unpack_from(records, at)
            start, at = at + _HEAD.size, at + _HEAD.size + length
            if kind == MESSAGE:
                channel_id, _, log_ns, _ = _MESSAGE.unpack_from(records, start)
                channel = self.channels.get(channel_id)
                if channel is not None and (topics is None or channel.topic in topics):
                    yield RawMessage(channel.topic, log_ns, bytes(view[start + _MESSAGE.size : at]), channel)
            elif kind == SCHEMA:
                (schema_id,) = struct.unpack_from("<H", records, start)
                name, next_at = _text(view, start + 2)
                encoding, next_at = _text(view, next_at)
                data = bytes(view[next_at + 4 : at])
                self._schemas[schema_id] = Schema(name, encoding, data)
            elif kind == CHANNEL:
                channel_id, schema_id = struct.unpack_from("<HH", records, start)
                topic, next_at = _text(view, start + 4)
                encoding, _ = _text(view, next_at)
                schema = self._schemas.get(schema_id, Schema())
                self.channels[channel_id] = Channel(channel_id, topic, encoding, schema)


def _opened(content: bytes) -> bytes | None:
    """The records of a chunk; None: it is damaged."""
    try:
        _, _, size, crc = _CHUNK.unpack_from(content, 0)
        compression, at = _text(content, _CHUNK.size)
        (length,) = struct.unpack_from("<Q", content, at)
        packed = content[at + 8 : at + 8 + length]
        if size > MAX_CHUNK or len(packed) != length:
            return None
        opened = _decompressed(compression, packed, size)
    except (struct.error, UnicodeDecodeError):
        return None
    return opened if opened is not None and (crc == 0 or zlib.crc32(opened) == crc) else None


def _decompressed(compression: str, packed: bytes, size: int) -> bytes | None:
    match compression:
        case "":
            return packed
        case "zstd":
            import zstandard

            try:
                return zstandard.ZstdDecompressor().decompress(packed, max_output_size=size)
            except zstandard.ZstdError:
                return None
        case "lz4":
            import lz4.frame

            try:
                out: bytes = lz4.frame.decompress(packed)
            except RuntimeError:
                return None
            return out
    return None
