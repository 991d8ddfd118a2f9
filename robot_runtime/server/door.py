"""What a policy has to be before a server opens its address for it: `checked_welcome`."""

from robot_runtime.core.policy import Policy, policy_problems
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.schema import Schema
from robot_runtime.errors import PolicyError
from robot_runtime.wire.codec import decode, encode
from robot_runtime.wire.frames import LIMITS, ProtocolError
from robot_runtime.wire.messages import Packet, Welcome

MAX_HORIZON = 1024
"""Rows of a chunk; published ones have up to 100."""
MAX_NUMBERS = 1024
"""Of a row, and of environment state."""


def checked_welcome(policy: Policy, heartbeat_ns: int) -> Welcome:
    """What robots are told of a policy; PolicyError if it could not be served, whatever they asked."""
    if problems := policy_problems(policy):
        raise PolicyError(f"{type(policy).__name__} is no policy: " + "; ".join(problems))
    info = policy.info
    _check(info, "chunks of so many rows", info.action_spec.horizon, 1, MAX_HORIZON)
    _check(info, "rows of so many numbers", info.action_spec.dim, 1, MAX_NUMBERS)
    _check_schema(info, info.schema)
    welcome = Welcome(info=info, heartbeat_ns=heartbeat_ns)
    try:
        decode(encode(Packet("", 0, welcome)))
    except ProtocolError as error:
        raise PolicyError(f"robots cannot be told what policy {info.name!r} is: {error}") from error
    return welcome


def _check_schema(info: PolicyInfo, schema: Schema) -> None:
    """An observation of that schema fits in one message."""
    _check(info, "numbers of environment state", schema.environment_state_dim, 0, MAX_NUMBERS)
    _check(info, "cameras", len(schema.cameras), 0, LIMITS.num_frames - 2)  # one frame for the plan
    for camera, (height, width) in schema.cameras.items():
        _check(info, f"bytes of a picture of camera {camera!r:.100}", height * width * 3, 1, LIMITS.frame)
    of_all = sum(height * width * 3 for height, width in schema.cameras.values())
    _check(info, "bytes of pictures in all", of_all, 0, LIMITS.total - LIMITS.frame // 8)


def _check(info: PolicyInfo, what: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or not low <= value <= high:
        raise PolicyError(f"policy {info.name!r} has {what}: {value!r:.100}; expected {low} to {high}")
