"""Messages in Foxglove's schemas: log lines as JSON, images as protobuf.

Schemas: https://github.com/foxglove/foxglove-sdk/tree/main/schemas (MIT). A test compares these bytes with
the official encoder's.
"""

import struct

from robot_runtime.core.values.action import NS_PER_S

LOG_SCHEMA = {
    "title": "foxglove.Log",
    "type": "object",
    "properties": {
        "timestamp": {
            "type": "object",
            "title": "time",
            "properties": {
                "sec": {"type": "integer", "minimum": 0},
                "nsec": {"type": "integer", "minimum": 0, "maximum": 999_999_999},
            },
        },
        "level": {
            "title": "foxglove.LogLevel",
            "oneOf": [
                {"title": name, "const": number}
                for number, name in enumerate(("UNKNOWN", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"))
            ],
        },
        "message": {"type": "string"},
        "name": {"type": "string"},
        "file": {"type": "string"},
        "line": {"type": "integer", "minimum": 0},
    },
}
INFO, WARNING, ERROR = 2, 3, 4


def log_message(t_ns: int, level: int, text: str) -> dict[str, object]:
    """foxglove.Log; t_ns: calendar time."""
    return {
        "timestamp": {"sec": t_ns // NS_PER_S, "nsec": t_ns % NS_PER_S},
        "level": level,
        "message": text,
        "name": "robot_runtime",
        "file": "",
        "line": 0,
    }


# ---- protobuf, as much of it as an image needs -------------------------------------------------------------


def compressed_image(t_ns: int, jpeg: bytes, camera: str) -> bytes:
    """foxglove.CompressedImage; t_ns: calendar time."""
    seconds, rest = divmod(t_ns, NS_PER_S)
    stamp = (_number(1, seconds) if seconds else b"") + (_number(2, rest) if rest else b"")
    head = _bytes(1, stamp) + _head(2, len(jpeg))
    return b"".join((head, jpeg, _bytes(3, b"jpeg"), _bytes(4, camera.encode())))


def jpeg_of(message: bytes) -> bytes:
    """The JPEG in a foxglove.CompressedImage. ValueError: there is none."""
    at = 0
    while at < len(message):
        tag, at = _varint_at(message, at)
        if tag & 7 != 2:
            raise ValueError("expected a field of a CompressedImage, got one of another kind")
        length, at = _varint_at(message, at)
        if tag >> 3 == 2:
            return message[at : at + length]
        at += length
    raise ValueError("expected a CompressedImage with data, got none")


def image_schema() -> bytes:
    """The FileDescriptorSet of foxglove.CompressedImage and its dependencies."""
    stamp = _file(
        "google/protobuf/timestamp.proto",
        "google.protobuf",
        "Timestamp",
        [("seconds", 1, 3, ""), ("nanos", 2, 5, "")],
    )
    image = _file(
        "foxglove/CompressedImage.proto",
        "foxglove",
        "CompressedImage",
        [
            ("timestamp", 1, 11, ".google.protobuf.Timestamp"),
            ("frame_id", 4, 9, ""),
            ("data", 2, 12, ""),
            ("format", 3, 9, ""),
        ],
        needs="google/protobuf/timestamp.proto",
    )
    return _bytes(1, stamp) + _bytes(1, image)


def _file(
    path: str, package: str, message: str, fields: list[tuple[str, int, int, str]], *, needs: str = ""
) -> bytes:
    """A FileDescriptorProto with one message; fields: name, number, type, name of a message's type."""
    described = _bytes(1, message.encode())
    for name, number, kind, type_name in fields:
        one = _bytes(1, name.encode()) + _number(3, number) + _number(4, 1) + _number(5, kind)
        described += _bytes(2, one + (_bytes(6, type_name.encode()) if type_name else b""))
    out = _bytes(1, path.encode()) + _bytes(2, package.encode())
    out += _bytes(3, needs.encode()) if needs else b""
    return out + _bytes(4, described) + _bytes(12, b"proto3")


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _head(field, len(value)) + value


def _head(field: int, length: int) -> bytes:
    return _varint(field << 3 | 2) + _varint(length)


def _varint(value: int) -> bytes:
    if value < 0x80:
        return struct.pack("B", value)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint_at(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
