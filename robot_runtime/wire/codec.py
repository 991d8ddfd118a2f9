"""Packets to frames and back: one msgpack header, then the large arrays as they lie in memory.

    frame 0    [version, type, client id, session, {field: value}]     at most 64 KiB
    frame 1..  raw arrays and JPEGs, in the order in which the header names them

Arrays are not copied: `encode` hands out views of the caller's memory, which must stay unchanged until the
frames are sent, and `decode` returns read-only views of the frames it was given. Whatever comes in, `decode`
returns a Packet or raises ProtocolError. `RobotState.X_BE` travels as position (3) [m], quaternion (4) wxyz.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields as dataclass_fields
from functools import cache
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

import msgpack
import numpy as np

from robot_runtime.core.action import ActionSpec, ChunkPart
from robot_runtime.core.method import SamplerPart
from robot_runtime.core.schema import Schema
from robot_runtime.core.state import Image, Observation, RobotState
from robot_runtime.core.transforms import pose_from_quaternion, quaternion_from_rotation
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
    Request,
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

_SAMPLERS: dict[str, type] = {part.__name__: part for part in get_args(SamplerPart)}


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
    match header:
        case [int(), str(kind), str(client_id), int(session), fields] if 0 <= session <= INT64_MAX:
            pass
        case _:
            raise ProtocolError("the header is not [version, type, client id, session, fields]")
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
        case Request():
            return _request_fields(message, writer)
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


def _request_fields(request: Request, writer: Writer) -> dict[str, Any]:
    observation = request.observation
    return {
        "request_id": request.request_id,
        "epoch": request.epoch,
        "seed": request.seed,
        "deadline_ns": request.deadline_ns,
        "sampler": {"kind": type(request.sampler).__name__, **vars(request.sampler)},
        "prefix": writer.optional_array(request.prefix),
        "task": observation.task,
        "t_obs_ns": observation.t_obs_ns,
        **_state_fields(observation, writer),
        "images": [
            [name, image.t_ns, writer.pixels(image.pixels)] for name, image in observation.images.items()
        ],
    }


def _state_fields(observation: Observation, writer: Writer) -> dict[str, Any]:
    """All measured numbers as one vector, because reading an array costs the same for 3 numbers as for 50.

    q (N) | dq (N) | p_BE, quat_BE (7) | gripper (1) | x_WB (3) | V_WB_B (3) | environment state (the rest)
    """
    state = observation.state
    parts = [state.q, state.dq]
    if state.X_BE is not None:
        parts += [state.X_BE.translation, quaternion_from_rotation(state.X_BE.rotation)]
    if state.gripper_width is not None:
        parts.append(np.array([state.gripper_width]))
    parts += [part for part in (state.x_WB, state.V_WB_B) if part is not None]
    parts.append(observation.environment_state)
    return {
        "state": writer.array(np.concatenate(parts)),
        "num_joints": len(state.q),
        "has_pose": state.X_BE is not None,
        "has_gripper": state.gripper_width is not None,
        "has_base_pose": state.x_WB is not None,
        "has_base_twist": state.V_WB_B is not None,
    }


def _parse_request(reader: Reader) -> Request:
    # In the order of `_request_fields`: frames are named in the order of their use.
    prefix = reader.optional_numbers("prefix", ndim=2)
    state, environment_state = _parse_state(reader)
    observation = Observation(
        state=state,
        images=_parse_images(reader),
        environment_state=environment_state,
        task=reader.text("task"),
    )
    return Request(
        request_id=reader.integer("request_id"),
        epoch=reader.integer("epoch"),
        observation=observation,
        prefix=prefix,
        sampler=_parse_sampler(reader.value("sampler")),
        seed=reader.integer("seed"),
        deadline_ns=reader.integer("deadline_ns", low=1),
    )


def _parse_state(reader: Reader) -> tuple[RobotState, np.ndarray]:
    numbers = reader.numbers("state", ndim=1)
    num_joints = reader.integer("num_joints")
    start = 0

    def take(count: int) -> np.ndarray:
        nonlocal start
        start += count
        if start > len(numbers):
            raise ProtocolError(f"the state has {len(numbers)} numbers, fewer than it says")
        return numbers[start - count : start]

    def take_if(flag: str, count: int) -> np.ndarray | None:
        return take(count) if reader.flag(flag) else None

    q, dq = take(num_joints), take(num_joints)
    pose, gripper = take_if("has_pose", 7), take_if("has_gripper", 1)
    if pose is not None and abs(float(pose[3:] @ pose[3:]) - 1.0) > 1e-3:
        raise ProtocolError("the pose of the end effector needs a unit quaternion")
    state = RobotState(
        t_ns=reader.integer("t_obs_ns"),
        q=q,
        dq=dq,
        X_BE=None if pose is None else pose_from_quaternion(pose[:3], pose[3:]),
        gripper_width=None if gripper is None else float(gripper[0]),
        x_WB=take_if("has_base_pose", 3),
        V_WB_B=take_if("has_base_twist", 3),
    )
    return state, numbers[start:]


def _parse_images(reader: Reader) -> dict[str, Image]:
    images: dict[str, Image] = {}
    for entry in reader.sequence("images"):
        match entry:
            case [str(name), int(t_ns), field] if name not in images and 0 <= t_ns <= INT64_MAX:
                reader.checked_text(name, "camera name")
                images[name] = Image(t_ns=t_ns, pixels=reader.pixels(field, name))
            case _:
                raise ProtocolError("an image is [name, capture time, array], names differ")
    return images


@cache
def _sampler_hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _parse_sampler(value: Any) -> SamplerPart:
    match value:
        case {"kind": str(name)} if name in _SAMPLERS:
            kind = _SAMPLERS[name]
        case _:
            raise ProtocolError(f"the sampler must be one of {', '.join(_SAMPLERS)}")
    options: dict[str, Any] = {str(option): setting for option, setting in value.items() if option != "kind"}
    if set(options) != {f.name for f in dataclass_fields(kind)}:
        raise ProtocolError(f"sampler {name} does not have options {sorted(options)}")
    hints = _sampler_hints(kind)
    for option, setting in options.items():
        if not isinstance(setting, hints[option]):
            raise ProtocolError(f"option {option} of sampler {name} must be {hints[option]}")
    part: SamplerPart = kind(**options)
    return part


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


def _ids(reader: Reader) -> dict[str, int]:
    return {"request_id": reader.integer("request_id"), "epoch": reader.integer("epoch")}


_PARSERS: MappingProxyType[str, Callable[[Reader], Message]] = MappingProxyType(
    {
        "Hello": lambda r: Hello(robot=r.text("robot"), schema=_from_dict(Schema.from_dict, r, "schema")),
        "Welcome": _parse_welcome,
        "Refused": lambda r: Refused(code=_member(RefusalCode, r, "code"), reason=r.text("reason")),
        "Request": _parse_request,
        "ChunkReply": _parse_chunk_reply,
        "Cancel": lambda r: Cancel(**_ids(r)),
        "Dropped": lambda r: Dropped(**_ids(r), reason=_member(DropReason, r, "reason")),
        "ErrorReply": _parse_error,
        "Heartbeat": lambda r: Heartbeat(t_ns=r.integer("t_ns")),
        "HeartbeatReply": lambda r: HeartbeatReply(t_ns=r.integer("t_ns")),
        "Goodbye": lambda r: Goodbye(),
    }
)
