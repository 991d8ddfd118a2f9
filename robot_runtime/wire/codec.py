"""Packets to frames and back: one msgpack header, then the large arrays as they lie in memory.

    frame 0    [version, client id, session, {"type": message, field: value}]     at most 64 KiB
    frame 1..  raw arrays and JPEGs, in the order in which the header names them

One call of msgspec reads and checks the header. Arrays are not copied: `encode` hands out views of the
caller's memory, which must stay unchanged until the frames are sent, and decoded arrays are read-only views
of the given frames. Any input yields a `Packet` or a `ProtocolError`.

Images are the expensive part. `read` leaves them encoded, beside their request, until the policy needs
them: `with_images`. `decode` does both.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Raw, Struct
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import replace

from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.state import Image
from robot_runtime.wire.arrays import ArrayReader, ArrayWriter, Picture
from robot_runtime.wire.fields import Int64, Text
from robot_runtime.wire.frames import (
    LIMITS,
    Buffer,
    DecodeJpeg,
    EncodeJpeg,
    ProtocolError,
    WireLimits,
    check_sizes,
)
from robot_runtime.wire.kept_pictures import KeptPictures
from robot_runtime.wire.messages import VERSION, Packet
from robot_runtime.wire.payloads import Form, form_of, message_of


class _Header(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    version: Literal[VERSION]  # type: ignore[valid-type]
    client_id: Text
    session: Int64
    message: Form


class _Version(Struct, array_like=True):
    version: int


class _Sender(Struct, array_like=True):
    version: int
    client_id: Text
    session: Int64
    message: Raw


class _Identity(Struct):
    request_id: Int64
    epoch: Int64


_ENCODER = Encoder()
_HEADER = Decoder(_Header)
_VERSION, _SENDER, _IDENTITY = Decoder(_Version), Decoder(_Sender), Decoder(_Identity)


def encode(
    packet: Packet, *, encode_jpeg: EncodeJpeg | None = None, limits: WireLimits = LIMITS
) -> list[Buffer]:
    """Return the frames of a packet; images as JPEG if this side encodes. ProtocolError beyond the limits."""
    arrays = ArrayWriter(encode_jpeg, packet.sent)
    form = form_of(packet.message, arrays)
    try:
        header = _ENCODER.encode(_Header(VERSION, packet.client_id, packet.session, form))
    except (ValueError, TypeError, OverflowError) as error:
        raise ProtocolError(f"{type(packet.message).__name__} cannot be packed: {error}") from error
    arrays.frames[0] = header
    check_sizes(arrays.frames, limits)
    return arrays.frames


def read(frames: Sequence[Buffer]) -> Packet | ProtocolError:
    """Return the packet in the frames with its images unopened, or the error in it."""
    try:
        return _read(frames, LIMITS)
    except ProtocolError as error:
        return error


def decode(
    frames: Sequence[Buffer], *, decode_jpeg: DecodeJpeg | None = None, limits: WireLimits = LIMITS
) -> Packet:
    """Return the packet in the frames with its images opened, or raise ProtocolError."""
    packet = _read(frames, limits)
    if not isinstance(packet.message, ChunkRequest):
        return packet
    pictures = KeptPictures().resolved(packet.pictures)
    return Packet(packet.client_id, packet.session, with_images(packet.message, pictures, decode_jpeg))


def with_images(
    request: ChunkRequest, pictures: Sequence[Picture], decode_jpeg: DecodeJpeg | None
) -> ChunkRequest:
    """Return the request with its images opened; ProtocolError if one does not fit its header."""
    newest = request.observation
    if not newest.history:
        images = {picture.name: picture.opened(decode_jpeg) for picture in pictures}
        return replace(request, observation=replace(newest, images=images))
    opened: dict[int, Image] = {}  # an image in several frames is opened once
    seen: list[dict[str, Image]] = [{} for _ in (newest, *newest.history)]
    for picture in pictures:
        if (image := opened.get(id(picture.buffer))) is None:
            image = opened[id(picture.buffer)] = picture.opened(decode_jpeg)
        seen[picture.frame][picture.name] = image
    history = tuple(replace(o, images=i) for o, i in zip(newest.history, seen[1:], strict=True))
    return replace(request, observation=replace(newest, images=seen[0], history=history))


def _read(frames: Sequence[Buffer], limits: WireLimits) -> Packet:
    check_sizes(frames, limits)
    try:
        header = _HEADER.decode(frames[0])
    except (ValueError, RecursionError) as error:
        raise _with_sender(ProtocolError(f"the header is malformed: {error}"), frames[0]) from error
    try:
        arrays = ArrayReader(frames, limits=limits)
        message, pictures = message_of(header.message, arrays)
        arrays.finish()
    except ProtocolError as error:
        raise _named(error, header) from error.__cause__
    except ValueError as error:
        raise _named(ProtocolError(f"the message is malformed: {error}"), header) from error
    return Packet(header.client_id, header.session, message, pictures=pictures)


def _named(error: ProtocolError, header: _Header) -> ProtocolError:
    error.client_id, error.session = header.client_id, header.session
    error.request_id = getattr(header.message, "request_id", None)
    error.epoch = getattr(header.message, "epoch", None)
    return error


def _with_sender(error: ProtocolError, header: Buffer) -> ProtocolError:
    """Add the sender to the error as far as it can be read, or report another version."""
    try:
        theirs = _VERSION.decode(header).version
        if theirs != VERSION:
            words = f"this side speaks protocol version {VERSION}, the peer speaks {theirs}"
            return ProtocolError(words, their_version=theirs)
        sender = _SENDER.decode(header)
        error.client_id, error.session = sender.client_id, sender.session
        identity = _IDENTITY.decode(sender.message)
        error.request_id, error.epoch = identity.request_id, identity.epoch
    except (ValueError, RecursionError):
        return error  # as far as that could be read
    return error
