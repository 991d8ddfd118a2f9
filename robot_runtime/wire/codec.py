"""Packets to frames and back: one msgpack header, then the large arrays as they lie in memory.

    frame 0    [version, type, client id, session, {field: value}]     at most 64 KiB
    frame 1..  raw arrays and JPEGs, in the order in which the header names them

Arrays are not copied: `encode` hands out views of the caller's memory, which must stay unchanged until the
frames are sent, and `decode` returns read-only views of the frames it was given. Whatever comes in, `decode`
returns a Packet or raises ProtocolError. `RobotState.X_BE` travels as position (3) [m], quaternion (4) wxyz.
"""

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

import msgpack

from robot_runtime.core.action import ActionSpec, ChunkPart
from robot_runtime.core.request import ChunkRequest
from robot_runtime.core.schema import Schema
from robot_runtime.wire.messages import (
    VERSION,
    Cancel,
    ChunkReply,
    Dropped,
    DropReason,
    ErrorCode,
    ErrorReply,
    Goodbye,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Message,
    Packet,
    RefusalCode,
    Refused,
    Welcome,
)
from robot_runtime.wire.packing import (
    INT64_MAX,
    LIMITS,
    Buffer,
    DecodeJpeg,
    EncodeJpeg,
    ProtocolError,
    Reader,
    VersionMismatchError,
    WireLimits,
    Writer,
    check_sizes,
    unpack_header,
)
from robot_runtime.wire.request_codec import parse_request, request_fields


def encode(
    packet: Packet, *, encode_jpeg: EncodeJpeg | None = None, limits: WireLimits = LIMITS
) -> list[Buffer]:
    """Frames of a packet; images as JPEG if this side encodes. ProtocolError beyond the limits."""
    writer = Writer(encode_jpeg)
    message = packet.message
    fields = _fields_of(message, writer)
    header = [VERSION, type(message).__name__, packet.client_id, packet.session, fields]
    try:
        frames: list[Buffer] = [msgpack.packb(header), *writer.frames]
    except (ValueError, TypeError, OverflowError) as error:
        raise ProtocolError(f"{type(message).__name__} cannot be packed: {error}") from error
    if len(frames[0]) > limits.header:
        raise ProtocolError(f"the header would have {len(frames[0])} bytes, allowed are {limits.header}")
    check_sizes(frames, limits)
    return frames


def decode(
    frames: Sequence[Buffer], *, decode_jpeg: DecodeJpeg | None = None, limits: WireLimits = LIMITS
) -> Packet:
    """The packet in the frames, or ProtocolError."""
    check_sizes(frames, limits)
    header = unpack_header(frames[0], limits)
    if header and type(header[0]) is int and header[0] != VERSION:
        raise VersionMismatchError(ours=VERSION, theirs=header[0])
    if [type(value) for value in header[:4]] != [int, str, str, int] or len(header) != 5:
        raise ProtocolError("the header is not [version, type, client id, session, fields]")
    _, kind, client_id, session, fields = header
    if not 0 <= session <= INT64_MAX:
        raise ProtocolError(f"the session must be in [0, {INT64_MAX}]")
    parse = _PARSERS.get(kind)
    try:
        if parse is None:
            raise ProtocolError("the message is of an unknown type")
        reader = Reader(fields, frames[1:], limits, decode_jpeg)
        reader.checked_text(client_id, "client id")
        message = parse(reader)
        if reader.num_frames_used != len(frames) - 1:
            raise ProtocolError(f"{len(frames) - 1} array frames, {reader.num_frames_used} are named")
    except ProtocolError as error:
        _name_sender(error, client_id, session, fields)
        raise
    return Packet(client_id, session, message)


def _name_sender(error: ProtocolError, client_id: str, session: int, fields: object) -> None:
    error.client_id, error.session = client_id[:256], session
    match fields:
        case {"request_id": int(request_id), "epoch": int(epoch)}:
            error.request_id, error.epoch = request_id, epoch


def _fields_of(message: Message, writer: Writer) -> dict[str, Any]:
    match message:
        case ChunkRequest():
            return request_fields(message, writer)
        case ChunkReply(part=part):
            return {
                "request_id": part.request_id,
                "epoch": part.epoch,
                "t_obs_ns": part.t_obs_ns,
                "first_row": part.first_row,
                "rows": writer.array(part.rows),
                "is_last": part.is_last,
                "queue_ns": message.queue_ns,
                "infer_ns": message.infer_ns,
            }
        case Hello():
            return {"robot": message.robot, "schema": message.schema.to_dict()}
        case Welcome():
            schema, spec = message.schema.to_dict(), message.action_spec.to_dict()
            return {**vars(message), "schema": schema, "action_spec": spec}
        case Refused() | ErrorReply():
            return {**vars(message), "code": message.code.value}
        case Dropped():
            return {**vars(message), "reason": message.reason.value}
        case Cancel() | Heartbeat() | HeartbeatReply() | Goodbye():
            return dict(vars(message))


def _parse_chunk_reply(reader: Reader) -> ChunkReply:
    part = ChunkPart(
        request_id=reader.integer("request_id"),
        epoch=reader.integer("epoch"),
        t_obs_ns=reader.integer("t_obs_ns"),
        first_row=reader.integer("first_row"),
        rows=reader.numbers("rows", ndim=2),
        is_last=reader.flag("is_last"),
    )
    return ChunkReply(part=part, queue_ns=reader.integer("queue_ns"), infer_ns=reader.integer("infer_ns"))


def _from_dict[T](build: Callable[[dict], T], reader: Reader, name: str) -> T:
    try:
        return build(reader.value(name))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ProtocolError(f"{name} is malformed") from error


def _parse_welcome(reader: Reader) -> Welcome:
    return Welcome(
        policy=reader.text("policy"),
        schema=_from_dict(Schema.from_dict, reader, "schema"),
        action_spec=_from_dict(ActionSpec.from_dict, reader, "action_spec"),
        tasks=tuple(reader.checked_text(task, "task") for task in reader.sequence("tasks")),
        heartbeat_ns=reader.integer("heartbeat_ns", low=1),
    )


def _member[E](kind: Callable[[object], E], reader: Reader, name: str) -> E:
    try:
        return kind(reader.text(name))
    except ValueError as error:
        raise ProtocolError(f"{name} is not one this side knows") from error


def _parse_error(reader: Reader) -> ErrorReply:
    return ErrorReply(
        code=_member(ErrorCode, reader, "code"),
        message=reader.text("message"),
        request_id=reader.optional_integer("request_id"),
        epoch=reader.optional_integer("epoch"),
    )


_PARSERS: MappingProxyType[str, Callable[[Reader], Message]] = MappingProxyType(
    {
        "Hello": lambda r: Hello(robot=r.text("robot"), schema=_from_dict(Schema.from_dict, r, "schema")),
        "Welcome": _parse_welcome,
        "Refused": lambda r: Refused(code=_member(RefusalCode, r, "code"), reason=r.text("reason")),
        "ChunkRequest": parse_request,
        "ChunkReply": _parse_chunk_reply,
        "Cancel": lambda r: Cancel(request_id=r.integer("request_id"), epoch=r.integer("epoch")),
        "Dropped": lambda r: Dropped(
            request_id=r.integer("request_id"),
            epoch=r.integer("epoch"),
            reason=_member(DropReason, r, "reason"),
        ),
        "ErrorReply": _parse_error,
        "Heartbeat": lambda r: Heartbeat(t_ns=r.integer("t_ns")),
        "HeartbeatReply": lambda r: HeartbeatReply(t_ns=r.integer("t_ns")),
        "Goodbye": lambda r: Goodbye(),
    }
)
