"""The fields of a `ChunkRequest`, the one message with an observation in it. See `codec`."""

from functools import cache
from typing import Any, get_args, get_type_hints

import numpy as np

from robot_runtime.core.method import SamplerPart
from robot_runtime.core.request import ChunkRequest
from robot_runtime.core.state import Image, Observation, RobotState
from robot_runtime.core.transforms import pose_from_quaternion, quaternion_from_rotation
from robot_runtime.wire.packing import INT64_MAX, ProtocolError, Reader, Writer

_SAMPLERS: dict[str, type] = {part.__name__: part for part in get_args(SamplerPart)}


def request_fields(request: ChunkRequest, writer: Writer) -> dict[str, Any]:
    observation = request.observation
    return {
        "request_id": request.request_id,
        "epoch": request.epoch,
        "seed": request.seed,
        "deadline_ns": request.deadline_ns,
        "sampler": {"kind": type(request.sampler).__name__, **vars(request.sampler)},
        "prev_action_chunk": writer.optional_array(request.prev_action_chunk),
        "inference_delay": request.inference_delay,
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


def parse_request(reader: Reader) -> ChunkRequest:
    # In the order of `request_fields`: frames are named in the order of their use.
    prev_action_chunk = reader.optional_numbers("prev_action_chunk", ndim=2)
    state, environment_state = _parse_state(reader)
    observation = Observation(
        state=state,
        images=_parse_images(reader),
        environment_state=environment_state,
        task=reader.text("task"),
    )
    return ChunkRequest(
        request_id=reader.integer("request_id"),
        epoch=reader.integer("epoch"),
        observation=observation,
        prev_action_chunk=prev_action_chunk,
        inference_delay=reader.integer("inference_delay"),
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
        if type(entry) is not list or len(entry) != 3:
            raise ProtocolError("an image is [name, capture time, array]")
        name, t_ns, field = entry
        if reader.checked_text(name, "camera name") in images:
            raise ProtocolError(f"there are two images of camera {name!r}")
        if type(t_ns) is not int or not 0 <= t_ns <= INT64_MAX:
            raise ProtocolError(f"image {name!r} needs a capture time")
        images[name] = Image(t_ns=t_ns, pixels=reader.pixels(field, name))
    return images


@cache
def _sampler_hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)  # of a dataclass: its fields


def _parse_sampler(value: Any) -> SamplerPart:
    name = value.get("kind") if type(value) is dict else None
    if type(name) is not str or name not in _SAMPLERS:
        raise ProtocolError(f"the sampler must be one of {', '.join(_SAMPLERS)}")
    kind = _SAMPLERS[name]
    options = {option: setting for option, setting in value.items() if option != "kind"}
    hints = _sampler_hints(kind)
    if options.keys() != hints.keys():
        raise ProtocolError(f"sampler {name} has options {', '.join(hints)}, and needs all of them")
    for option, setting in options.items():
        if not isinstance(setting, hints[option]):
            raise ProtocolError(f"option {option} of sampler {name} must be {hints[option]}")
    part: SamplerPart = kind(**options)
    return part
