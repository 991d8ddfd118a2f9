"""Packets to frames and back: one msgpack header, then the large arrays as they lie in memory.

    frame 0    [version, client id, session, {"type": message, field: value}]     at most 64 KiB
    frame 1..  raw arrays and JPEGs, in the order in which the header names them

One call of msgspec reads and checks the header. Arrays are not copied: `encode` hands out views of the
caller's memory, which must stay unchanged until the frames are sent, and `decode` returns read-only views of
the frames it was given. Whatever comes in, `decode` returns a Packet or raises ProtocolError.

A server reads in three steps, and looks at what it has before it pays for the next: `read_header`, then
`Sealed.message`, and the images, which are the dear part, only once the policy is to see them: `with_images`.
"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Literal

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
    VersionMismatchError,
    WireLimits,
    check_sizes,
)
from robot_runtime.wire.kept_pictures import KeptPictures
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
    Message,
    Packet,
    Refused,
    Welcome,
)
from robot_runtime.wire.payloads import Form, WireHello, WireReply, WireRequest, WireWelcome

_FORMS: MappingProxyType[type, Any] = MappingProxyType(
    {ChunkRequest: WireRequest, ChunkReply: WireReply, Hello: WireHello, Welcome: WireWelcome}
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
    arrays = ArrayWriter(encode_jpeg, packet.sent)
    form = _FORMS.get(type(message))
    fields: Any = message if form is None else form.of(message, arrays)
    try:
        header = _ENCODER.encode(_Header(VERSION, packet.client_id, packet.session, fields))
    except (ValueError, TypeError, OverflowError) as error:
        raise ProtocolError(f"{type(message).__name__} cannot be packed: {error}") from error
    arrays.frames[0] = header
    check_sizes(arrays.frames, limits)
    return arrays.frames


class Sealed(Struct, frozen=True, eq=False, gc=False):
    """A packet of which only the header has been read: whose it is and what, at a bounded price."""

    client_id: str
    session: int
    form: Form | Refused | Cancel | Dropped | ErrorReply | Heartbeat | HeartbeatReply | Goodbye
    """The message, but for what is in its arrays."""
    frames: Sequence[Buffer]
    limits: WireLimits

    def message(self) -> tuple[Message, tuple[Picture, ...]]:
        """The message, and the images that belong to it, still as they came. ProtocolError."""
        form = self.form
        try:
            arrays = ArrayReader(self.frames, limits=self.limits)
            message: Message = form.message(arrays) if isinstance(form, Form) else form
            pictures = form.pictures(arrays) if isinstance(form, WireRequest) else ()
            arrays.finish()
        except ProtocolError as error:
            raise self._named(error) from error.__cause__
        except ValueError as error:
            raise self._named(ProtocolError(f"the message is malformed: {error}")) from error
        return message, pictures

    def _named(self, error: ProtocolError) -> ProtocolError:
        error.client_id, error.session = self.client_id, self.session
        error.request_id = getattr(self.form, "request_id", None)
        error.epoch = getattr(self.form, "epoch", None)
        return error


def read_header(frames: Sequence[Buffer], *, limits: WireLimits = LIMITS) -> Sealed:
    """What arrived, sealed; ProtocolError if the frames are too large or their header is none."""
    check_sizes(frames, limits)
    try:
        header = _HEADER.decode(frames[0])
    except (ValueError, RecursionError) as error:
        raise _with_sender(ProtocolError(f"the header is malformed: {error}"), frames[0]) from error
    return Sealed(header.client_id, header.session, header.message, frames, limits)


def decode(
    frames: Sequence[Buffer], *, decode_jpeg: DecodeJpeg | None = None, limits: WireLimits = LIMITS
) -> Packet:
    """The packet in the frames, images and all, or ProtocolError."""
    sealed = read_header(frames, limits=limits)
    message, pictures = sealed.message()
    if pictures and isinstance(message, ChunkRequest):
        message = with_images(message, KeptPictures().resolved(pictures), decode_jpeg)
    return Packet(sealed.client_id, sealed.session, message)


def with_images(
    request: ChunkRequest, pictures: Sequence[Picture], decode_jpeg: DecodeJpeg | None
) -> ChunkRequest:
    """A request with its images opened; ProtocolError if one is not what the header says of it."""
    newest = request.observation
    if not newest.history:
        images = {picture.form.name: picture.opened(decode_jpeg) for picture in pictures}
        return replace(request, observation=replace(newest, images=images))
    opened: dict[int, Image] = {}  # one that several frames show is opened once
    seen: list[dict[str, Image]] = [{} for _ in (newest, *newest.history)]
    for picture in pictures:
        if (image := opened.get(id(picture.buffer))) is None:
            image = opened[id(picture.buffer)] = picture.opened(decode_jpeg)
        seen[picture.frame][picture.form.name] = image
    history = tuple(replace(o, images=i) for o, i in zip(newest.history, seen[1:], strict=True))
    return replace(request, observation=replace(newest, images=seen[0], history=history))


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
