"""VRS, the container format of Project Aria's recordings: `VrsFile`, its tags and records.

    file    | header | description: tags of the file and of its streams | record | record | ... | index |
    record  | header: size, stream, time, kind, compression | fields (DataLayout) | an image's bytes |

Everything is little-endian. Records follow each other, so they are walked once; the index, which may precede
them, holds their number. Tags of the file declare the fields of a stream's records and their offsets, by kind
and version of the format:

    RF:Data:2     data_layout/size=64+image/jpg
    DL:Data:2:0   {"data_layout": [{"name": "capture_timestamp_ns", "type": "DataPieceValue<int64_t>",
                                    "offset": 40}, ...]}

Meta's libraries are not used: of 300 damaged files (three bytes changed, a third of them cut as well) pyvrs
1.2.2 crashed the process on 23 and read 100 in part without an error; projectaria-tools 2.3 depends on
jupyter and on pillow below 12.
"""

import json
import mmap
import struct
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robot_runtime.errors import InvalidValueError

STATE, CONFIGURATION, DATA = "State", "Configuration", "Data"
_KINDS = {1: STATE, 2: CONFIGURATION, 3: DATA}
_FILE = struct.Struct("<8sQIIqqq24s4s4s")
_RECORD = struct.Struct("<IIiIdHBBI")
_STREAM = struct.Struct("<iH")
_U32 = struct.Struct("<I")
_MAGIC, _MAGIC_2, _FORMATS = b"VisionRe", b"cord", (b"VRS1", b"VRS2", b"VRS3")
_DESCRIPTION_FORMAT, _INDEX_FORMAT, _OWN_TYPES = 2, 2, (1, 2)  # types: the index, the description
_MOST_GROWTH = 200
"""How much longer than ours headers may be [bytes]: newer versions append fields."""
MOST_RECORD = 256 << 20
"""Largest unpacked size of a record [bytes]."""

_NUMBERS = {
    "Bool": "?", "char": "<i1", "int8_t": "<i1", "uint8_t": "<u1", "int16_t": "<i2", "uint16_t": "<u2",
    "int32_t": "<i4", "uint32_t": "<u4", "int64_t": "<i8", "uint64_t": "<u8", "float": "<f4", "double": "<f8",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RecordLayout:
    """Layout of the records of one stream, kind and version."""

    fields: np.dtype[Any]
    """Structured type of the fields with a fixed offset, by name."""
    num_varying: int
    """Number of fields of varying length that follow."""
    content: str
    """Content after the fields: image/jpg, image/raw; empty: none."""


class VrsFile:
    """Reads a VRS file; a context manager.

    All methods raise InvalidValueError: not a VRS file, or one that was cut or damaged, with the byte.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.stat().st_size < _FILE.size:
            raise InvalidValueError(
                f"{path} is no VRS file: it has {path.stat().st_size} bytes, the header alone {_FILE.size}"
            )
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.tags: dict[str, str] = {}
        """Tags of the file."""
        self.stream_tags: dict[str, dict[str, str]] = {}
        """Tags of each stream, the user's and VRS's own; a stream is named TYPE-INSTANCE, e.g. 214-1."""
        self._at: dict[tuple[str, str], array[int]] = {}
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "VrsFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._bytes.close()

    @property
    def streams(self) -> tuple[str, ...]:
        """Streams with data records, in order of their first record."""
        return tuple(stream for stream, kind in self._at if kind == DATA)

    def count(self, stream: str, kind: str = DATA) -> int:
        """Number of records of a kind in a stream."""
        return len(self._at.get((stream, kind), ()))

    def layout(self, stream: str, kind: str = DATA) -> RecordLayout:
        """The one layout of the stream's records of that kind."""
        version = self._header(self._at[stream, kind][0])[3]
        tags, where = self.stream_tags.get(stream, {}), f"{self.path}, stream {stream}"
        declared = tags.get(f"RF:{kind}:{version}")
        fields = tags.get(f"DL:{kind}:{version}:0")
        if declared is None or fields is None or not declared.startswith("data_layout"):
            raise InvalidValueError(
                f"{where} does not declare its {kind} records (tags RF and DL of version {version}; "
                f"got {declared!r})"
            )
        head, _, content = declared.partition("+")
        return _layout_of(where, fields, head, content)

    def rows(self, stream: str, kind: str = DATA) -> np.ndarray:
        """Fields of all records of a kind in a stream, a structured array (N,)."""
        layout = self.layout(stream, kind)
        size, parts = layout.fields.itemsize, []
        for at in self._records(stream, kind):
            part = self._payload(at, size)
            if len(part) < size:
                raise self._damaged(at, f"a record of stream {stream} lacks fields")
            parts.append(part)
        return np.frombuffer(b"".join(parts), dtype=layout.fields)

    def contents(self, stream: str) -> Iterator[bytes]:
        """Content after the fields of each data record of a stream: an image's bytes."""
        layout = self.layout(stream)
        fixed, varying = layout.fields.itemsize, layout.num_varying
        for at in self._records(stream, DATA):
            whole = self._payload(at, None)
            start = fixed + 8 * varying
            if varying and len(whole) >= start:  # preceded by their offsets and lengths
                start += max(sum(struct.unpack_from("<II", whole, fixed + 8 * i)) for i in range(varying))
            if len(whole) < start:
                raise self._damaged(at, f"a record of stream {stream} lacks fields")
            yield whole[start:]

    # ---- the container -------------------------------------------------------------------------------

    def _open(self) -> None:
        head = _FILE.unpack_from(self._bytes)
        magic, _, file_size, self._head_size, index_at, description_at, first_at, _, magic_2, form = head
        if (magic, magic_2) != (_MAGIC, _MAGIC_2):
            raise InvalidValueError(f"{self.path} is no VRS file: it begins with {magic!r}, not {_MAGIC!r}")
        longest = (_FILE.size + _MOST_GROWTH, _RECORD.size + _MOST_GROWTH)
        if form not in _FORMATS or not (
            _FILE.size <= file_size <= longest[0] and _RECORD.size <= self._head_size <= longest[1]
        ):
            raise InvalidValueError(
                f"{self.path} is VRS of format {form!r} with headers of {file_size} and {self._head_size} "
                f"bytes, expected {', '.join(each.decode() for each in _FORMATS)}"
            )
        after = self._read_description(description_at)
        first, total = first_at or after, len(self._bytes)
        listed = self._listed(index_at)
        found = self._walk(first, index_at if index_at > first else total)
        if listed is not None and found < listed:
            raise self._cut(total)

    def _listed(self, at: int) -> int | None:
        """Number of records in the index; None: no index, or one of another format."""
        total = len(self._bytes)
        if at <= 0:
            return None  # a recording that was not closed: its records so far are read
        if at + self._head_size > total or at + self._header(at)[0] > total:
            raise self._cut(min(at, total))
        size, _, kind_id, version, *_ = self._header(at)
        start, stop = at + self._head_size, at + size
        if kind_id != 1 or version != _INDEX_FORMAT or size < self._head_size + 2 * _U32.size:
            return None
        (num_streams,) = _U32.unpack_from(self._bytes, start)
        count_at = start + _U32.size + _STREAM.size * num_streams
        if count_at + _U32.size > stop:
            raise self._damaged(at, "its index is shorter than declared")
        return int(_U32.unpack_from(self._bytes, count_at)[0])

    def _walk(self, at: int, end: int) -> int:
        """Store the offset of each record; returns their number."""
        found = 0
        while at < end:
            if at + self._head_size > end:
                raise self._cut(at)
            size, _, kind_id, _, _, instance, kind, compression, _ = self._header(at)
            if size < self._head_size or kind > 4 or compression > 2:
                raise self._damaged(at, "expected the header of a record")
            if at + size > end:
                raise self._cut(at)
            if kind_id not in _OWN_TYPES:
                found += 1
                if kind in _KINDS:
                    key = (f"{kind_id}-{instance}", _KINDS[kind])
                    self._at.setdefault(key, array("q")).append(at)
            at += size
        return found

    def _records(self, stream: str, kind: str) -> "array[int]":
        """Offsets of these records; InvalidValueError: they are of several versions."""
        found = self._at[stream, kind]
        versions = {self._header(at)[3] for at in found}
        if len(versions) > 1:
            raise InvalidValueError(
                f"{self.path}, stream {stream}: its {kind} records are of versions {sorted(versions)}, "
                "expected one"
            )
        return found

    def _header(self, at: int) -> tuple[Any, ...]:
        return _RECORD.unpack_from(self._bytes, at)

    def _payload(self, at: int, most: int | None) -> bytes:
        """Unpacked bytes after a record's header; only the first `most`, if given."""
        size, *_, compression, unpacked = self._header(at)
        start, stop = at + self._head_size, at + size
        if not compression:
            return self._bytes[start : stop if most is None else min(stop, start + most)]
        if unpacked > MOST_RECORD:
            raise self._damaged(at, f"a record declares {unpacked} unpacked bytes")
        import lz4.frame
        import zstandard

        packed = self._bytes[start:stop]
        try:
            if compression == 1:
                out = lz4.frame.LZ4FrameDecompressor().decompress(packed, max_length=unpacked)
            elif zstandard.get_frame_parameters(packed).content_size > MOST_RECORD:
                out = b""
            else:
                out = zstandard.ZstdDecompressor().decompress(packed, max_output_size=unpacked)
        except (RuntimeError, EOFError, zstandard.ZstdError) as error:
            raise self._damaged(at, f"a record cannot be unpacked, {error}") from error
        if len(out) != unpacked:
            raise self._damaged(at, f"a record unpacks to {len(out)} bytes in place of {unpacked}")
        return bytes(out[:most])

    def _cut(self, at: int) -> InvalidValueError:
        return InvalidValueError(
            f"{self.path} is cut: the data at byte {at} extends beyond its end, byte {len(self._bytes)}. "
            "Copy it from the device again; `vrs copy` of the vrs tools recovers its complete part"
        )

    def _damaged(self, at: int, what: str) -> InvalidValueError:
        return InvalidValueError(
            f"{self.path} is damaged at byte {at}: {what}; copy it from the device again"
        )

    # ---- tags ----------------------------------------------------------------------------------------

    def _read_description(self, at: int) -> int:
        """Read tags; returns the end of the record."""
        if not _FILE.size <= at <= len(self._bytes) - self._head_size:
            raise self._cut(max(at, 0))
        size, _, kind_id, version, *_ = self._header(at)
        if kind_id != 2 or version != _DESCRIPTION_FORMAT:
            raise self._damaged(at, f"expected its tags, of format {_DESCRIPTION_FORMAT}")
        if at + size > len(self._bytes):
            raise self._cut(at)
        tags = _Tags(self._bytes[at + self._head_size : at + size])
        try:
            for _ in range(tags.number()):
                stream, own = tags.stream(), tags.pairs()
                self.stream_tags[stream] = own | tags.pairs()
            self.tags = tags.pairs()
        except (struct.error, UnicodeDecodeError) as error:
            raise self._damaged(at, f"its tags cannot be read, {error}") from error
        return at + int(size)


class _Tags:
    """Reads numbers and texts in sequence."""

    def __init__(self, raw: bytes) -> None:
        self._raw, self._at = raw, 0

    def number(self) -> int:
        (value,) = _U32.unpack_from(self._raw, self._at)
        self._at += _U32.size
        return int(value)

    def text(self) -> str:
        size = self.number()
        if self._at + size > len(self._raw):
            raise struct.error(f"a text of {size} bytes extends beyond them")
        self._at += size
        return self._raw[self._at - size : self._at].decode()

    def pairs(self) -> dict[str, str]:
        return {self.text(): self.text() for _ in range(self.number())}

    def stream(self) -> str:
        kind, instance = _STREAM.unpack_from(self._raw, self._at)
        self._at += _STREAM.size
        return f"{kind}-{instance}"


def _layout_of(where: str, fields: str, head: str, content: str) -> RecordLayout:
    """Parse a layout.

    where: prefix of errors; fields: the tag DL; head, content: the tag RF before and after its first +.
    InvalidValueError: not of that form.
    """
    try:
        pieces = json.loads(fields)["data_layout"]
        placed = [each for each in pieces if "offset" in each]
        known = [(each, form) for each in placed if (form := _form(each)) is not None]
        ends = [each["offset"] + np.dtype(form).itemsize for each, form in known]
        _, has_size, declared = head.partition("/size=")
        last = max((each["offset"] for each in placed), default=0)
        if not has_size and placed and _form(max(placed, key=lambda each: each["offset"])) is None:
            raise InvalidValueError(f"{where}: the length of its records is undeclared, last field at {last}")
        size = int(declared) if has_size else max(ends, default=0)
        names = [each["name"] for each, _ in known]
        shape = {"names": names, "formats": [form for _, form in known], "itemsize": size}
        dtype: np.dtype[Any] = np.dtype({**shape, "offsets": [each["offset"] for each, _ in known]})  # type: ignore[call-overload]
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, InvalidValueError):
            raise
        raise InvalidValueError(f"{where}: its fields cannot be read, {error}: {fields[:80]}") from error
    return RecordLayout(fields=dtype, num_varying=len(pieces) - len(placed), content=content)


def _form(piece: Mapping[str, Any]) -> Any:
    """numpy's type of a field; None: unsupported."""
    outer, _, inner = str(piece["type"]).partition("<")
    number = _NUMBERS.get(inner.rstrip(">"))
    if number is None or outer not in ("DataPieceValue", "DataPieceArray"):
        return None
    return number if outer == "DataPieceValue" else (number, (int(piece["size"]),))
