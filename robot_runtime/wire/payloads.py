"""Wire forms: messages with arrays or the runtime's own values in them, as they stand in the header.

A `Form` is built from a message and gives it back; msgspec has checked every type, length and number by then,
and what is left to check here is what takes two fields. The other messages are their own form.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, Union, get_args

import numpy as np
from msgspec import Meta, Struct, field
from msgspec.structs import asdict, replace

from robot_runtime.core.method.sampler_parts import SamplerPart
from robot_runtime.core.plan.request_planner import MAX_IN_FLIGHT
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import PolicyInfo, form_of
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S, ActionSpec, ChunkPart
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
from robot_runtime.wire.arrays import ArrayReader, ArrayWriter, Picture, WireImage, WireTable
from robot_runtime.wire.fields import Count, Fields, Finite, Int64, Positive, Text
from robot_runtime.wire.frames import ProtocolError
from robot_runtime.wire.messages import ChunkReply, Hello, Welcome

MIN_HEARTBEAT_NS, MAX_HEARTBEAT_NS = 5 * NS_PER_MS, 60 * NS_PER_S
"""How often a server may ask for a sign of life."""
_MAX_SQUARE_ERROR = 1e-3
_Pose = tuple[Finite, Finite, Finite, Finite, Finite, Finite, Finite]
"""Position (3) [m], quaternion (4) wxyz."""
_PartName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]


_SAMPLER_FORMS: dict[type, type[Struct]] = {part: form_of(part) for part in get_args(SamplerPart)}
_SAMPLER_PARTS = {form: part for part, form in _SAMPLER_FORMS.items()}


@lru_cache(maxsize=64)
def _sampler(form: Struct) -> SamplerPart:
    part: SamplerPart = _SAMPLER_PARTS[type(form)](**asdict(form))
    return part


class WireArm(Struct, frozen=True, gc=False, array_like=True, tag="arm", forbid_unknown_fields=True):
    """An `ArmState`."""

    q: list[Finite]
    dq: list[Finite]
    pose: _Pose | None


class WireGripper(Struct, frozen=True, gc=False, array_like=True, tag="gripper", forbid_unknown_fields=True):
    """A `GripperState`."""

    width: Finite


class WireBase(Struct, frozen=True, gc=False, array_like=True, tag="base", forbid_unknown_fields=True):
    """A `BaseState`."""

    pose: tuple[Finite, Finite, Finite] | None
    twist: tuple[Finite, Finite, Finite] | None


WirePart = WireArm | WireGripper | WireBase


class WireObservation(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """An `Observation` without task and history: numbers in the header, images in frames of their own."""

    t_obs_ns: Int64
    parts: dict[_PartName, WirePart]
    environment_state: list[Finite]
    images: list[WireImage]
    measured: dict[_PartName, list[Finite]] = field(default_factory=dict)

    @classmethod
    def of(cls, seen: Observation, arrays: ArrayWriter) -> "WireObservation":
        state = seen.state
        return cls(
            state.t_ns,
            {name: _wire_part(part) for name, part in state.parts.items()},
            seen.environment_state.tolist(),
            [arrays.image(name, image) for name, image in seen.images.items()],
            {name: numbers.tolist() for name, numbers in state.measured.items()},
        )

    def observation(self, task: str) -> Observation:
        """Without images and history."""
        state = RobotState(
            t_ns=self.t_obs_ns,
            parts={name: _part(part) for name, part in self.parts.items()},
            measured={name: _vector(values) for name, values in self.measured.items()},
        )
        return Observation(state=state, environment_state=_vector(self.environment_state), task=task)


class WireRequest(Fields, frozen=True, kw_only=True, omit_defaults=True, tag="ChunkRequest"):
    """A `ChunkRequest`."""

    request_id: Int64
    epoch: Int64
    seed: Int64
    deadline_ns: Positive
    in_flight: tuple[Int64, ...]
    sampler: Union[*_SAMPLER_FORMS.values()]  # type: ignore[valid-type]
    prev_action_chunk: WireTable | None
    inference_delay: Count
    task: Text
    observation: WireObservation
    history: tuple[WireObservation, ...] = ()
    """Oldest first; not there if the policy does not look back."""

    @classmethod
    def of(cls, request: ChunkRequest, arrays: ArrayWriter) -> "WireRequest":
        observation, planned = request.observation, request.prev_action_chunk
        return cls(
            request_id=request.request_id,
            epoch=request.epoch,
            seed=request.seed,
            deadline_ns=request.deadline_ns,
            in_flight=request.in_flight,
            sampler=_SAMPLER_FORMS[type(request.sampler)](**vars(request.sampler)),
            prev_action_chunk=None if planned is None else arrays.table(planned),
            inference_delay=request.inference_delay,
            task=observation.task,
            observation=WireObservation.of(observation, arrays),
            history=tuple(WireObservation.of(seen, arrays) for seen in observation.history),
        )

    def message(self, arrays: ArrayReader) -> ChunkRequest:
        """Without its images, which are `pictures`."""
        form = self.prev_action_chunk
        return ChunkRequest(
            request_id=self.request_id,
            epoch=self.epoch,
            observation=self._observation(),
            prev_action_chunk=None if form is None else arrays.table(form, "prev_action_chunk"),
            inference_delay=self.inference_delay,
            sampler=_sampler(self.sampler),
            seed=self.seed,
            deadline_ns=self.deadline_ns,
            in_flight=self._in_flight(),
        )

    def pictures(self, arrays: ArrayReader) -> tuple[Picture, ...]:
        """Its images as they came; after `message`, as their frames do."""
        return tuple(
            arrays.picture(image, frame)
            for frame, seen in enumerate((self.observation, *self.history))
            for image in _different(seen.images)
        )

    def _in_flight(self) -> tuple[int, ...]:
        ids = self.in_flight
        if not ids:
            return ()
        if len(ids) > MAX_IN_FLIGHT:
            raise ProtocolError(f"in_flight names at most {MAX_IN_FLIGHT} requests, got {len(ids)}")
        if any(a >= b for a, b in pairwise((*ids, self.request_id))):
            raise ProtocolError(
                f"in_flight must rise and stay below the request's own id {self.request_id}, got {list(ids)}"
            )
        return ids

    def _observation(self) -> Observation:
        seen = self.observation.observation(self.task)
        if not self.history:
            return seen
        return replace(seen, history=tuple(form.observation(self.task) for form in self.history))


def _different(images: list[WireImage]) -> list[WireImage]:
    if len({image.name for image in images}) < len(images):
        raise ProtocolError(f"there are two images of one camera, got {[i.name for i in images]}")
    return images


def _wire_part(part: PartState) -> WirePart:
    match part:
        case ArmState(q=q, dq=dq, X_BE=X_BE):
            return WireArm(q.tolist(), dq.tolist(), None if X_BE is None else pose_to_numbers(X_BE))
        case GripperState(width=width):
            return WireGripper(width)
        case BaseState(x_WB=x_WB, V_WB_B=twist):
            pose, turn = (None if v is None else tuple(v.tolist()) for v in (x_WB, twist))
            return WireBase(pose, turn)


def _part(form: WirePart) -> PartState:
    match form:
        case WireArm(q=q, dq=dq, pose=pose):
            if (n := len(q)) != len(dq):
                raise ProtocolError(f"q and dq must be of one length, got {n} and {len(dq)}")
            _check_quaternion(pose)
            numbers = _vector([*q, *dq])  # one array for two: making one costs more than filling it
            X_BE = None if pose is None else pose_from_numbers(pose)
            return ArmState(q=numbers[:n], dq=numbers[n:], X_BE=X_BE)
        case WireGripper(width=width):
            return GripperState(width=width)
        case WireBase(pose=pose, twist=twist):
            return BaseState(
                x_WB=None if pose is None else _vector(pose), V_WB_B=None if twist is None else _vector(twist)
            )


def _check_quaternion(pose: Sequence[float] | None) -> None:
    if pose is not None and abs(sum(x * x for x in pose[3:]) - 1.0) > _MAX_SQUARE_ERROR:
        raise ProtocolError(f"the pose of the end effector needs a unit quaternion, got {pose[3:]}")


class WireReply(Fields, frozen=True, kw_only=True, tag="ChunkReply"):
    """A `ChunkReply`."""

    request_id: Int64
    epoch: Int64
    t_obs_ns: Int64
    first_row: Int64
    rows: WireTable
    is_last: bool
    queue_ns: Int64
    infer_ns: Int64

    @classmethod
    def of(cls, reply: ChunkReply, arrays: ArrayWriter) -> "WireReply":
        part = reply.part
        return cls(
            request_id=part.request_id,
            epoch=part.epoch,
            t_obs_ns=part.t_obs_ns,
            first_row=part.first_row,
            rows=arrays.table(part.rows),
            is_last=part.is_last,
            queue_ns=reply.queue_ns,
            infer_ns=reply.infer_ns,
        )

    def message(self, arrays: ArrayReader) -> ChunkReply:
        part = ChunkPart(
            request_id=self.request_id,
            epoch=self.epoch,
            t_obs_ns=self.t_obs_ns,
            first_row=self.first_row,
            rows=arrays.table(self.rows, "rows"),
            is_last=self.is_last,
        )
        return ChunkReply(part=part, queue_ns=self.queue_ns, infer_ns=self.infer_ns)


class WireHello(Fields, frozen=True, kw_only=True, tag="Hello"):
    """A `Hello`."""

    robot: Text
    schema: dict[str, Any]
    policy: Text

    @classmethod
    def of(cls, hello: Hello, arrays: ArrayWriter) -> "WireHello":
        return cls(robot=hello.robot, schema=hello.schema.to_dict(), policy=hello.policy)

    def message(self, arrays: ArrayReader) -> Hello:
        schema = _from_dict(Schema.from_dict, self.schema, "schema")
        return Hello(robot=self.robot, schema=schema, policy=self.policy)


class WireStatistics(Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """A policy's `RowStatistics`."""

    mean: WireTable
    std: WireTable
    from_measured: bool

    @classmethod
    def of(cls, statistics: RowStatistics, arrays: ArrayWriter) -> "WireStatistics":
        return cls(
            mean=arrays.table(statistics.mean),
            std=arrays.table(statistics.std),
            from_measured=statistics.from_measured,
        )

    def value(self, arrays: ArrayReader, spec: ActionSpec) -> RowStatistics:
        mean, std = arrays.table(self.mean, "row mean"), arrays.table(self.std, "row deviation")
        if mean.shape not in ((1, spec.dim), (spec.horizon, spec.dim)):
            raise ProtocolError(
                f"statistics of rows have shape {mean.shape}, rows {(spec.horizon, spec.dim)}"
            )
        try:
            return RowStatistics(mean=mean, std=std, from_measured=self.from_measured)
        except ValueError as error:
            raise ProtocolError(str(error)) from error


class WireWelcome(Fields, frozen=True, kw_only=True, tag="Welcome"):
    """A `Welcome`."""

    info: dict[str, Any]
    """`PolicyInfo.to_dict`."""
    row_statistics: WireStatistics | None
    heartbeat_ns: Annotated[int, Meta(ge=MIN_HEARTBEAT_NS, le=MAX_HEARTBEAT_NS)]

    @classmethod
    def of(cls, welcome: Welcome, arrays: ArrayWriter) -> "WireWelcome":
        knows = welcome.info.capabilities.row_statistics
        return cls(
            info=welcome.info.to_dict(),
            row_statistics=None if knows is None else WireStatistics.of(knows, arrays),
            heartbeat_ns=welcome.heartbeat_ns,
        )

    def message(self, arrays: ArrayReader) -> Welcome:
        info, knows = _from_dict(PolicyInfo.from_dict, self.info, "info"), self.row_statistics
        if knows is not None:
            info = info.with_statistics(knows.value(arrays, info.action_spec))
        return Welcome(info=info, heartbeat_ns=self.heartbeat_ns)


Form = WireRequest | WireReply | WireHello | WireWelcome


def _vector(numbers: Sequence[float]) -> np.ndarray:
    vector = np.array(numbers, dtype=np.float64)
    vector.flags.writeable = False
    return vector


def _from_dict[T](build: Callable[[dict], T], value: dict, name: str) -> T:
    try:
        return build(value)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ProtocolError(f"{name} is malformed: {error}") from error
