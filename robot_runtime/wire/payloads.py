"""Header forms of messages that differ from the runtime's own types: `form_of`, `message_of`.

Requests, answers, greetings and welcomes hold arrays or the runtime's own values, and have a form for the
header. msgspec checks every type, length and number of it, and what is left to check here is what involves
two fields. The other messages are their own form.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, Union, get_args

import numpy as np
from msgspec import Meta, Struct, field
from msgspec.structs import asdict, replace

from robot_runtime.core.method.sampler_parts import SamplerPart
from robot_runtime.core.plan.request_planner import MAX_IN_FLIGHT
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.policy_info import form_of as struct_of
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S, ChunkPart
from robot_runtime.core.values.fields import MAX_NAME
from robot_runtime.core.values.row_statistics import RowStatistics
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import (
    ArmState,
    BaseState,
    GripperState,
    Observation,
    PartState,
    RobotState,
)
from robot_runtime.core.values.transforms import pose_from_numbers, pose_to_numbers
from robot_runtime.wire.arrays import ArrayReader, ArrayWriter, ImageForm, Picture, TableForm
from robot_runtime.wire.fields import Count, Int64, Number, Positive, Text
from robot_runtime.wire.frames import ProtocolError
from robot_runtime.wire.messages import (
    Cancel,
    Dropped,
    ErrorReply,
    Goodbye,
    Heartbeat,
    Hello,
    Message,
    Readiness,
    Refused,
    Welcome,
)

MIN_HEARTBEAT_NS, MAX_HEARTBEAT_NS = 5 * NS_PER_MS, 60 * NS_PER_S
"""Shortest and longest interval of heartbeats that a server may request."""
_MAX_SQUARE_ERROR = 1e-3
_Pose = tuple[Number, Number, Number, Number, Number, Number, Number]
"""Position (3) [m], quaternion (4) wxyz."""
_PartName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
_SAMPLER_FORMS: dict[type, type[Struct]] = {part: struct_of(part) for part in get_args(SamplerPart)}
_SAMPLER_PARTS = {form: part for part, form in _SAMPLER_FORMS.items()}


class _Arm(Struct, frozen=True, gc=False, array_like=True, tag="arm", forbid_unknown_fields=True):
    q: list[Number]
    dq: list[Number]
    pose: _Pose | None
    t_ns: Int64 | None = None


class _Gripper(Struct, frozen=True, gc=False, array_like=True, tag="gripper", forbid_unknown_fields=True):
    width: Number
    t_ns: Int64 | None = None


class _Base(Struct, frozen=True, gc=False, array_like=True, tag="base", forbid_unknown_fields=True):
    pose: tuple[Number, Number, Number] | None
    twist: tuple[Number, Number, Number] | None
    t_ns: Int64 | None = None


class _Observation(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """An observation without task and history: numbers in the header, images in separate frames."""

    t_obs_ns: Int64
    parts: dict[_PartName, _Arm | _Gripper | _Base]
    environment_state: list[Number]
    images: list[ImageForm]
    measured: dict[_PartName, list[Number]] = field(default_factory=dict)


class _Form(Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    pass


class _Request(_Form, frozen=True, kw_only=True, tag="ChunkRequest"):
    request_id: Int64
    epoch: Int64
    seed: Int64
    deadline_ns: Positive
    in_flight: tuple[Int64, ...]
    sampler: Union[*_SAMPLER_FORMS.values()]  # type: ignore[valid-type]
    prev_action_chunk: TableForm | None
    inference_delay: Count
    task: Text
    observation: _Observation
    history: tuple[_Observation, ...] = ()
    """Oldest first; absent if the policy does not look back."""


class _Rows(_Form, frozen=True, kw_only=True, tag="ChunkPart"):
    request_id: Int64
    epoch: Int64
    t_obs_ns: Int64
    first_row: Int64
    rows: TableForm
    is_last: bool
    queue_ns: Int64
    infer_ns: Int64


class _Hello(_Form, frozen=True, kw_only=True, tag="Hello"):
    robot: Text
    schema: dict[str, Any]
    policy: Text


class _Welcome(_Form, frozen=True, kw_only=True, tag="Welcome"):
    info: dict[str, Any]
    """`PolicyInfo.to_dict`."""
    row_statistics: tuple[TableForm, TableForm, bool] | None
    """Mean, deviation, and whether they are `from_measured`."""
    heartbeat_ns: Annotated[int, Meta(ge=MIN_HEARTBEAT_NS, le=MAX_HEARTBEAT_NS)]


Form = (
    _Request
    | _Rows
    | _Hello
    | _Welcome
    | Refused
    | Readiness
    | Cancel
    | Dropped
    | ErrorReply
    | Heartbeat
    | Goodbye
)
"""The form of a message in the header."""


def form_of(message: Message, arrays: ArrayWriter) -> Form:
    """Return the form of a message; its arrays go to `arrays`."""
    match message:
        case ChunkRequest():
            return _form_of_request(message, arrays)
        case ChunkPart():
            return _form_of_rows(message, arrays.table(message.rows))
        case Hello(robot=robot, schema=schema, policy=policy):
            return _Hello(robot=robot, schema=schema.to_dict(), policy=policy)
        case Welcome(info=info, heartbeat_ns=heartbeat_ns):
            knows = info.capabilities.row_statistics
            rows = None
            if knows is not None:
                rows = arrays.table(knows.mean), arrays.table(knows.std), knows.from_measured
            return _Welcome(info=info.to_dict(), row_statistics=rows, heartbeat_ns=heartbeat_ns)
    return message


def message_of(form: Form, arrays: ArrayReader) -> tuple[Message, tuple[Picture, ...]]:
    """Return the message without its images, and the encoded images. ProtocolError or ValueError."""
    match form:
        case _Request():
            return _request(form, arrays), tuple(_pictures(form, arrays))
        case _Rows():
            return _chunk_part(form, arrays.table(form.rows, "rows")), ()
        case _Hello(robot=robot, schema=schema, policy=policy):
            return Hello(
                robot=robot, schema=_from_dict(Schema.from_dict, schema, "schema"), policy=policy
            ), ()
        case _Welcome(heartbeat_ns=heartbeat_ns):
            return Welcome(info=_info(form, arrays), heartbeat_ns=heartbeat_ns), ()
    return form, ()


# ---- requests --------------------------------------------------------------------------------------------


def _form_of_request(request: ChunkRequest, arrays: ArrayWriter) -> _Request:
    observation, planned = request.observation, request.prev_action_chunk
    return _Request(
        request_id=request.request_id,
        epoch=request.epoch,
        seed=request.seed,
        deadline_ns=request.deadline_ns,
        in_flight=request.in_flight,
        sampler=_SAMPLER_FORMS[type(request.sampler)](**vars(request.sampler)),
        prev_action_chunk=None if planned is None else arrays.table(planned),
        inference_delay=request.inference_delay,
        task=observation.task,
        observation=_form_of_observation(observation, arrays),
        history=tuple(_form_of_observation(seen, arrays) for seen in observation.history),
    )


def _form_of_observation(seen: Observation, arrays: ArrayWriter) -> _Observation:
    state = seen.state
    return _Observation(
        state.t_ns,
        {name: _form_of_part(part) for name, part in state.parts.items()},
        seen.environment_state.tolist(),
        [arrays.image(name, image) for name, image in seen.images.items()],
        {name: numbers.tolist() for name, numbers in state.measured.items()},
    )


def _form_of_part(part: PartState) -> _Arm | _Gripper | _Base:
    match part:
        case ArmState(q=q, dq=dq, X_BE=X_BE, t_ns=t_ns):
            return _Arm(q.tolist(), dq.tolist(), None if X_BE is None else pose_to_numbers(X_BE), t_ns)
        case GripperState(width=width, t_ns=t_ns):
            return _Gripper(width, t_ns)
        case BaseState(x_WB=x_WB, V_WB_B=twist, t_ns=t_ns):
            pose, turn = (None if v is None else tuple(v.tolist()) for v in (x_WB, twist))
            return _Base(pose, turn, t_ns)


def _request(form: _Request, arrays: ArrayReader) -> ChunkRequest:
    planned, observation = form.prev_action_chunk, _observation(form.observation, form.task)
    if form.history:
        history = tuple(_observation(seen, form.task) for seen in form.history)
        observation = replace(observation, history=history)
    return ChunkRequest(
        request_id=form.request_id,
        epoch=form.epoch,
        observation=observation,
        prev_action_chunk=None if planned is None else arrays.table(planned, "prev_action_chunk"),
        inference_delay=form.inference_delay,
        sampler=_sampler(form.sampler),
        seed=form.seed,
        deadline_ns=form.deadline_ns,
        in_flight=_in_flight(form),
    )


def _pictures(form: _Request, arrays: ArrayReader) -> Iterator[Picture]:
    """Yield the images, after `_request`, in the order of their frames."""
    for frame, seen in enumerate((form.observation, *form.history)):
        if len({image[0] for image in seen.images}) < len(seen.images):
            raise ProtocolError(f"there are two images of one camera, got {[i[0] for i in seen.images]}")
        for image in seen.images:
            yield arrays.picture(image, frame)


def _in_flight(form: _Request) -> tuple[int, ...]:
    ids = form.in_flight
    if not ids:
        return ()
    if len(ids) > MAX_IN_FLIGHT:
        raise ProtocolError(f"in_flight names at most {MAX_IN_FLIGHT} requests, got {len(ids)}")
    if any(a >= b for a, b in pairwise((*ids, form.request_id))):
        raise ProtocolError(
            f"in_flight must rise and stay below the request's own id {form.request_id}, got {list(ids)}"
        )
    return ids


@lru_cache(maxsize=64)
def _sampler(form: Struct) -> SamplerPart:
    part: SamplerPart = _SAMPLER_PARTS[type(form)](**asdict(form))
    return part


def _observation(form: _Observation, task: str) -> Observation:
    stamps = [part.t_ns for part in form.parts.values() if part.t_ns is not None]
    state = RobotState(
        t_ns=form.t_obs_ns,
        t_newest_ns=max(stamps, default=None),
        parts={name: _part(part) for name, part in form.parts.items()},
        measured={name: _vector(values) for name, values in form.measured.items()},
    )
    return Observation(state=state, environment_state=_vector(form.environment_state), task=task)


def _part(form: _Arm | _Gripper | _Base) -> PartState:
    match form:
        case _Arm(q=q, dq=dq, pose=pose, t_ns=t_ns):
            if (n := len(q)) != len(dq):
                raise ProtocolError(f"q and dq must be of one length, got {n} and {len(dq)}")
            _check_quaternion(pose)
            numbers = _vector([*q, *dq])  # one array for both: making an array costs more than filling it
            X_BE = None if pose is None else pose_from_numbers(pose)
            return ArmState(q=numbers[:n], dq=numbers[n:], X_BE=X_BE, t_ns=t_ns)
        case _Gripper(width=width, t_ns=t_ns):
            return GripperState(width=width, t_ns=t_ns)
        case _Base(pose=pose, twist=twist, t_ns=t_ns):
            x_WB, V_WB_B = (None if each is None else _vector(each) for each in (pose, twist))
            return BaseState(x_WB=x_WB, V_WB_B=V_WB_B, t_ns=t_ns)


def _check_quaternion(pose: Sequence[float] | None) -> None:
    if pose is not None and abs(sum(x * x for x in pose[3:]) - 1.0) > _MAX_SQUARE_ERROR:
        raise ProtocolError(f"the pose of the end effector needs a unit quaternion, got {pose[3:]}")


def _vector(numbers: Sequence[float]) -> np.ndarray:
    vector = np.array(numbers, dtype=np.float64)
    vector.flags.writeable = False
    return vector


# ---- answers ---------------------------------------------------------------------------------------------


def _form_of_rows(part: ChunkPart, rows: TableForm) -> _Rows:
    return _Rows(
        request_id=part.request_id,
        epoch=part.epoch,
        t_obs_ns=part.t_obs_ns,
        first_row=part.first_row,
        rows=rows,
        is_last=part.is_last,
        queue_ns=part.queue_ns,
        infer_ns=part.infer_ns,
    )


def _chunk_part(form: _Rows, rows: np.ndarray) -> ChunkPart:
    return ChunkPart(
        request_id=form.request_id,
        epoch=form.epoch,
        t_obs_ns=form.t_obs_ns,
        first_row=form.first_row,
        rows=rows,
        is_last=form.is_last,
        queue_ns=form.queue_ns,
        infer_ns=form.infer_ns,
    )


# ---- welcomes --------------------------------------------------------------------------------------------


def _info(form: _Welcome, arrays: ArrayReader) -> PolicyInfo:
    info: PolicyInfo = _from_dict(PolicyInfo.from_dict, form.info, "info")
    if form.row_statistics is None:
        return info
    spec, (mean, std, from_measured) = info.action_spec, form.row_statistics
    rows = arrays.table(mean, "row mean"), arrays.table(std, "row deviation")
    if rows[0].shape not in ((1, spec.dim), (spec.horizon, spec.dim)):
        raise ProtocolError(f"statistics of rows have shape {rows[0].shape}, rows {(spec.horizon, spec.dim)}")
    return info.with_statistics(RowStatistics(mean=rows[0], std=rows[1], from_measured=from_measured))


def _from_dict[T](build: Callable[[dict], T], value: dict, name: str) -> T:
    try:
        return build(value)
    except KeyError as error:
        raise ProtocolError(f"{name} is malformed: it has no {error}") from error
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise ProtocolError(f"{name} is malformed: {error}") from error
