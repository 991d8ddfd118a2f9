"""Packets to frames and back: one msgpack header, then the large arrays as they lie in memory.

    frame 0    [version, client id, session, {"type": message, field: value}]     at most 64 KiB
    frame 1..  raw arrays and JPEGs, in the order in which the header names them

One call of msgspec reads and checks the header. Arrays are not copied: `encode` hands out views of the
caller's memory, which must stay unchanged until the frames are sent, and `decode` returns read-only views of
the frames it was given. Whatever comes in, `decode` returns a Packet or raises ProtocolError.
"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Raw, Struct
from msgspec.msgpack import Decoder, Encoder

from robot_runtime.core.request import ChunkRequest
from robot_runtime.wire.arrays import ArrayReader, ArrayWriter
from robot_runtime.wire.fields import Int64, Text
from robot_runtime.wire.forms import Form, HelloForm, ReplyForm, RequestForm, WelcomeForm
from robot_runtime.wire.frames import (
    LIMITS,
    Buffer,
    DecodeJpeg,
    EncodeJpeg,
    ProtocolError,
    VersionMismatchError,
    WireLimits,
    check_sizes,
)
from robot_runtime.wire.messages import (
    VERSION,
    Cancel,
    ChunkReply,
    Dropped,
    ErrorReply,
    Goodbye,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Packet,
    Refused,
    Welcome,
)

_FORMS: MappingProxyType[type, Any] = MappingProxyType(
    {ChunkRequest: RequestForm, ChunkReply: ReplyForm, Hello: HelloForm, Welcome: WelcomeForm}
)


class _Header(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    version: Literal[VERSION]  # type: ignore[valid-type]
    client_id: Text
    session: Int64
    message: Form | Refused | Cancel | Dropped | ErrorReply | Heartbeat | HeartbeatReply | Goodbye


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
    """Frames of a packet; images as JPEG if this side encodes. ProtocolError beyond the limits."""
    message = packet.message
    arrays = ArrayWriter(encode_jpeg)
    form = _FORMS.get(type(message))
    fields: Any = message if form is None else form.of(message, arrays)
    try:
        header = _ENCODER.encode(_Header(VERSION, packet.client_id, packet.session, fields))
    except (ValueError, TypeError, OverflowError) as error:
        raise ProtocolError(f"{type(message).__name__} cannot be packed: {error}") from error
    arrays.frames[0] = header
    check_sizes(arrays.frames, limits)
    return arrays.frames


def decode(
    frames: Sequence[Buffer], *, decode_jpeg: DecodeJpeg | None = None, limits: WireLimits = LIMITS
) -> Packet:
    """The packet in the frames, or ProtocolError."""
    check_sizes(frames, limits)
    try:
        header = _HEADER.decode(frames[0])
        arrays = ArrayReader(frames, limits=limits, decode_jpeg=decode_jpeg)
        form = header.message
        message = form.message(arrays) if isinstance(form, Form) else form
        arrays.finish()
    except ProtocolError as error:
        raise _with_sender(error, frames[0]) from error.__cause__
    except (ValueError, RecursionError) as error:
        raise _with_sender(ProtocolError(f"the header is malformed: {error}"), frames[0]) from error
    return Packet(header.client_id, header.session, message)


def _with_sender(error: ProtocolError, header: Buffer) -> ProtocolError:
    """The error with what can be read of where the header came from, or that it is of another version."""
    try:
        version = _VERSION.decode(header).version
        if version != VERSION:
            return VersionMismatchError(ours=VERSION, theirs=version)
        sender = _SENDER.decode(header)
        error.client_id, error.session = sender.client_id, sender.session
        identity = _IDENTITY.decode(sender.message)
        error.request_id, error.epoch = identity.request_id, identity.epoch
    except (ValueError, RecursionError):
        return error  # as far as that could be read
    return error
