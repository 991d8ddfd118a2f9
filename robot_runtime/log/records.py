"""An MCAP file as far as it can be read, wherever it was cut or damaged: `scan`, and `ChunkReader`.

MCAP 0: magic, then records of one byte of kind, eight of length, and that many of content. Chunks hold more
records, compressed; they are written four times a second. https://mcap.dev/spec

    header  chunk  chunk  chu??  chunk  chunk  end  footer
                          |lost|                            resumes at the next whole chunk, by its checksum

`mcap.records` parses single records. The library's readers trust every length and end at the first damage;
here lengths are checked, and decompression is bounded by the file's size.
"""

import io
import json
import re
import struct
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from mcap import records
from mcap.data_stream import ReadDataStream
from mcap.exceptions import EndOfFile
from mcap.opcode import Opcode

from robot_runtime.errors import InvalidValueError

MAGIC = b"\x89MCAP0\r\n"
LOST = "/lost"
"""Topic of the message in place of a part that cannot be read: its size, and the times around it [ns]."""
CRC = "crc32"
"""Key of a metadata record's checksum among its values; older logs have none and are not checked."""
FOR_EVER_NS = 2**63 - 1
"""End time of what is lost behind a cut."""
MAX_RECORD = 64 * 2**20
"""Maximum size of a record that is read, and of a decompressed chunk [bytes]: more is damage."""
MAX_RATIO = 100
"""A file decompresses to at most this many times its own size, plus `MAX_RECORD`."""
_HEAD = struct.Struct("<BQ")
_CHUNK = struct.Struct("<QQQI")
_MESSAGE = struct.Struct("<HIQQ")
_BLOCK = 2**20
_PRIVATE = 0x80
"""Record kinds from here on are private to other programs."""
_START = re.compile(
    rb"\x06.{3}[\x00-\x04]\x00{4}.{28}(?:\x04\x00{3}zstd|\x03\x00{3}lz4|\x00{4})|\x0c.{3}\x00{5}\x03\x00{3}end",
    re.DOTALL,
)
"""Matches the start of a chunk, or of the metadata that a log ends with."""
_START_BYTES = 64


@dataclass(frozen=True, slots=True)
class Chunk:
    """Position of a chunk, and the times of its messages."""

    offset: int
    """Offset of its content in the file."""
    length: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Channel:
    """One stream of messages."""

    topic: str
    encoding: str
    """Encoding of its messages: json, msgpack, protobuf."""
    schema: records.Schema | None
    """Schema of its messages, for other programs."""


@dataclass(kw_only=True)
class Layout:
    """What a file holds, up to where it ends or was cut."""

    profile: str = ""
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    chunks: list[Chunk] = field(default_factory=list)
    schemas: dict[int, records.Schema] = field(default_factory=dict)
    channels: dict[int, Channel] = field(default_factory=dict)
    """From the index at the end, for messages whose chunk does not declare them."""
    is_finished: bool = False
    """Whether the file was closed."""
    size: int = 0
    """Size of the file [bytes]."""
    lost: dict[int, int] = field(default_factory=dict)
    """Offset -> bytes that could not be read; damaged chunks are added as they are read."""
    undated: set[int] = field(default_factory=set)
    """Offsets in `lost` where the file's clock was recorded: no time in it is certain."""


@dataclass(frozen=True)
class RawMessage:
    """One message of a channel."""

    topic: str
    log_ns: int
    data: bytes
    channel: Channel | None = None
    """Its channel, for a message read from a file."""


def scan(path: Path) -> Layout:
    """Index a file without opening its chunks. InvalidValueError: it is not an MCAP file."""
    try:
        with path.open("rb") as file:
            out = Layout(size=path.stat().st_size)
            if file.read(len(MAGIC)) != MAGIC:
                raise InvalidValueError(f"{path} is not a log: it does not begin as an MCAP file does")
            _Scan(file, out).run()
    except OSError as error:
        raise InvalidValueError(f"{path} cannot be read: {error.strerror or error}") from error
    return out


class _Scan:
    """One pass over a file."""

    def __init__(self, file: BinaryIO, out: Layout) -> None:
        self._file, self._out, self._size = file, out, out.size
        self._allowed = _allowed(out.size)

    def run(self) -> None:
        out, at, before = self._out, len(MAGIC), len(MAGIC)
        while at < self._size:
            found = self._head(at)
            if found is None:  # damaged here, or the record before this one has a wrong length
                at = self._behind_damage(at, before)
                before = at
                continue
            kind, start, end = found
            self._note(kind, start, end - start)
            before, at = at, end
            if kind == Opcode.FOOTER:
                self._file.seek(at)
                out.is_finished = self._file.read(len(MAGIC)) == MAGIC
                at += len(MAGIC) if out.is_finished else 0
                break
        if at < self._size:
            out.lost[at] = self._size - at

    def _head(self, at: int) -> tuple[int, int, int] | None:
        """Kind, start and end of a record's content; None: no record can be here."""
        self._file.seek(at)
        head = self._file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return None
        kind, length = _HEAD.unpack(head)
        start, end = at + _HEAD.size, at + _HEAD.size + length
        is_known = 0 < kind <= Opcode.DATA_END or kind >= _PRIVATE
        return (kind, start, end) if is_known and end <= self._size else None

    def _note(self, kind: int, start: int, length: int) -> None:
        out, file = self._out, self._file
        if kind == Opcode.CHUNK:
            times = _CHUNK.unpack(file.read(_CHUNK.size)) if length >= _CHUNK.size else (0, 0)
            out.chunks.append(Chunk(start, length, times[0], times[1]))
        elif kind in (Opcode.HEADER, Opcode.METADATA, Opcode.SCHEMA, Opcode.CHANNEL):
            match _parsed(kind, file.read(length)) if length <= MAX_RECORD else None:
                case records.Header(profile=profile):
                    out.profile = out.profile or profile
                case records.Metadata(name=name, metadata=metadata):
                    is_whole = metadata.pop(CRC, None) in (None, crc_of(name, metadata))
                    out.metadata[name] = metadata
                    if not is_whole:
                        out.lost[start] = length
                        if not out.chunks:
                            out.undated.add(start)
                case records.Schema() as schema:
                    out.schemas[schema.id] = schema
                case records.Channel() as channel:
                    out.channels[channel.id] = _channel(channel, out.schemas)
                case _:
                    out.lost[start] = length

    def _behind_damage(self, at: int, before: int) -> int:
        """Note what is lost; return where to resume. before: end of the last record, if its length holds."""
        chunks = self._out.chunks
        lost = before
        if chunks and chunks[-1].offset == before + _HEAD.size:
            if self._is_whole(chunks[-1]):
                lost = at
            else:
                chunks.pop()
        after = self._next_start(max(lost + 1, len(MAGIC)))
        self._out.lost[lost] = after - lost
        return after

    def _next_start(self, at: int) -> int:
        """Offset of the next whole chunk, or of the metadata at the end; the file's size: there is none."""
        while at < self._size:
            self._file.seek(at)
            block = self._file.read(_BLOCK)
            found = _START.search(block)
            while found is not None:
                if self._begins(at + found.start()):
                    return at + found.start()
                if self._allowed <= 0:
                    return self._size
                found = _START.search(block, found.start() + 1)
            at += len(block) - _START_BYTES if at + len(block) < self._size else len(block)
        return self._size

    def _begins(self, at: int) -> bool:
        head = self._head(at)
        if head is None:
            return False
        kind, start, end = head
        return kind == Opcode.METADATA or self._is_whole(Chunk(start, end - start, 0, 0))

    def _is_whole(self, chunk: Chunk) -> bool:
        self._file.seek(chunk.offset)
        content = _parsed(Opcode.CHUNK, self._file.read(chunk.length)) if chunk.length <= MAX_RECORD else None
        self._allowed -= chunk.length + (0 if content is None else content.uncompressed_size)
        return (
            content is not None
            and content.uncompressed_crc != 0
            and self._allowed > 0
            and _opened(content) is not None
        )


class ChunkReader:
    """Opens chunks one after the other, and remembers the channels that they declare."""

    def __init__(self, path: Path, layout: Layout) -> None:
        """layout: of the file; damage that is found is noted in it."""
        self._path, self._layout = path, layout
        self._schemas, self._channels = dict(layout.schemas), dict(layout.channels)
        self._charged, self._allowed = set[int](), _allowed(layout.size)

    def messages(self, chunks: Sequence[Chunk], topics: frozenset[str] | None = None) -> Iterator[RawMessage]:
        """All messages in file order, of some topics or of all; in place of an unreadable part, one of
        `LOST`. InvalidValueError: the file decompresses to more than its size allows."""
        last_ns, noted = 0, set[int]()
        with self._path.open("rb") as file:
            for chunk in chunks:
                yield from self._lost(chunk.offset, last_ns, chunk.start_ns, noted)
                opened = self._open(file, chunk)
                if opened is not None and (yield from self._of_chunk(opened, topics)):
                    last_ns = max(last_ns, chunk.end_ns)
                else:
                    self._layout.lost[chunk.offset] = chunk.length
            end_ns = max([last_ns, *(chunk.end_ns for chunk in chunks[-1:])])
            end_ns = min(end_ns, FOR_EVER_NS - 1) if self._layout.is_finished else FOR_EVER_NS
            yield from self._lost(self._layout.size, last_ns, end_ns, noted)

    def _open(self, file: BinaryIO, chunk: Chunk) -> bytes | None:
        """The records of a chunk; None: it is damaged."""
        if chunk.length > MAX_RECORD:
            return None
        file.seek(chunk.offset)
        content = _parsed(Opcode.CHUNK, file.read(chunk.length))
        if content is None or content.uncompressed_size > MAX_RECORD:
            return None
        if chunk.offset not in self._charged:
            self._charged.add(chunk.offset)
            self._allowed -= content.uncompressed_size
        if self._allowed < 0:
            raise InvalidValueError(
                f"{self._path}: expected a log that opens to at most {MAX_RATIO} times its size, got more"
            )
        return _opened(content)

    def _lost(self, until: int, last_ns: int, next_ns: int, noted: set[int]) -> Iterator[RawMessage]:
        """One message about what is lost before an offset and has not been reported yet."""
        new = {at: size for at, size in self._layout.lost.items() if at < until and at not in noted}
        noted.update(new)
        if new or next_ns == FOR_EVER_NS:
            since_ns, until_ns = sorted((last_ns, next_ns))
            if new.keys() & self._layout.undated:
                until_ns = max(until_ns, FOR_EVER_NS - 1)
            lost = {"since_ns": since_ns, "until_ns": until_ns, "bytes": sum(new.values())}
            yield RawMessage(LOST, since_ns, json.dumps(lost).encode())

    def _of_chunk(self, opened: bytes, topics: frozenset[str] | None) -> Generator[RawMessage, None, bool]:
        """Yield the messages of a chunk; return whether all of it could be read."""
        at, size, is_whole = 0, len(opened), True
        while at < size:
            if at + _HEAD.size > size:
                return False
            kind, length = _HEAD.unpack_from(opened, at)
            start, at = at + _HEAD.size, at + _HEAD.size + length
            if at > size:
                return False
            if kind == Opcode.MESSAGE and length >= _MESSAGE.size:
                channel_id, _, log_ns, _ = _MESSAGE.unpack_from(opened, start)
                channel = self._channels.get(channel_id)
                if channel is None:
                    is_whole = False
                elif topics is None or channel.topic in topics:
                    yield RawMessage(channel.topic, log_ns, opened[start + _MESSAGE.size : at], channel)
                continue
            match _parsed(kind, opened[start:at]):
                case records.Schema() as schema:
                    self._schemas[schema.id] = schema
                case records.Channel() as of_file:
                    self._channels[of_file.id] = _channel(of_file, self._schemas)
                case _:
                    return False
        return is_whole


def crc_of(name: str, metadata: Mapping[str, str]) -> str:
    """Checksum of a metadata record, which MCAP does not have; `CRC` itself is not part of it."""
    return f"{zlib.crc32(repr((name, sorted(metadata.items()))).encode()):08x}"


def _channel(of_file: records.Channel, schemas: dict[int, records.Schema]) -> Channel:
    return Channel(of_file.topic, of_file.message_encoding, schemas.get(of_file.schema_id))


_PARSED: dict[int, Any] = {
    Opcode.HEADER: records.Header,
    Opcode.SCHEMA: records.Schema,
    Opcode.CHANNEL: records.Channel,
    Opcode.CHUNK: records.Chunk,
    Opcode.METADATA: records.Metadata,
}


def _parsed(kind: int, content: bytes) -> Any:
    """Parse a record; None: it is damaged, or of another kind."""
    if kind not in _PARSED:
        return None
    try:
        return _PARSED[kind].read(ReadDataStream(io.BytesIO(content)))
    except (struct.error, UnicodeDecodeError, EndOfFile, OverflowError):
        return None


def _allowed(size: int) -> int:
    """Bytes that a file of this size may decompress to."""
    return MAX_RECORD + MAX_RATIO * size


def _opened(chunk: records.Chunk) -> bytes | None:
    """The records of a chunk; None: it is damaged."""
    if chunk.uncompressed_size > MAX_RECORD:
        return None
    out = _decompressed(chunk)
    if out is None or len(out) != chunk.uncompressed_size:
        return None
    return out if chunk.uncompressed_crc in (0, zlib.crc32(out)) else None


def _decompressed(chunk: records.Chunk) -> bytes | None:
    """Decompress at most the declared size and a byte."""
    size = chunk.uncompressed_size + 1
    match chunk.compression:
        case "":
            return chunk.data
        case "zstd":
            import zstandard

            try:
                unpacking = zstandard.ZstdDecompressor(max_window_size=2 * MAX_RECORD)
                return unpacking.stream_reader(chunk.data).read(size)
            except (zstandard.ZstdError, MemoryError):
                return None
        case "lz4":
            import lz4.frame

            try:
                out: bytes = lz4.frame.LZ4FrameDecompressor().decompress(chunk.data, max_length=size)
            except (RuntimeError, EOFError, MemoryError):
                return None
            return out
    return None
