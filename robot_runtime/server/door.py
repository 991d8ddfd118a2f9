"""What a policy has to be before a server opens its address for it: `checked_welcome`."""

from robot_runtime.core.policy import Policy, capabilities_of
from robot_runtime.core.values.schema import Schema
from robot_runtime.errors import PolicyError
from robot_runtime.wire.codec import decode, encode
from robot_runtime.wire.frames import LIMITS, ProtocolError
from robot_runtime.wire.messages import Packet, Welcome

MAX_HORIZON = 1024
"""Rows of a chunk; published ones have up to 100."""
MAX_NUMBERS = 1024
"""Of a row, and of environment state."""
_MAX_NAME = 256


def checked_welcome(policy: Policy, heartbeat_ns: int) -> Welcome:
    """What robots are told of a policy; PolicyError if it could not be served, whatever they asked."""
    name, spec, schema = policy.name, policy.action_spec, policy.schema
    if not isinstance(name, str) or not 1 <= len(name) <= _MAX_NAME or not name.isprintable():
        raise PolicyError(f"a policy's name is a line of 1 to {_MAX_NAME} characters, got {name!r:.300}")
    _check(name, "chunks of so many rows", spec.horizon, 1, MAX_HORIZON)
    _check(name, "rows of so many numbers", spec.dim, 1, MAX_NUMBERS)
    _check(name, "committed rows", policy.max_inference_delay, 0, spec.horizon)
    if not policy.samplers:
        raise PolicyError(f"policy {name!r} takes no sampler part at all")
    _check_schema(name, schema)
    welcome = Welcome(
        policy=name,
        schema=schema,
        action_spec=spec,
        tasks=policy.tasks,
        capabilities=capabilities_of(policy),
        heartbeat_ns=heartbeat_ns,
    )
    try:
        decode(encode(Packet("", 0, welcome)))
    except ProtocolError as error:
        raise PolicyError(f"robots cannot be told what policy {name!r} is: {error}") from error
    return welcome


def _check_schema(name: str, schema: Schema) -> None:
    """An observation of that schema fits in one message."""
    _check(name, "numbers of environment state", schema.environment_state_dim, 0, MAX_NUMBERS)
    _check(name, "cameras", len(schema.cameras), 0, LIMITS.num_frames - 2)  # one frame for the plan
    for camera, (height, width) in schema.cameras.items():
        _check(name, f"bytes of a picture of camera {camera!r:.100}", height * width * 3, 1, LIMITS.frame)
    of_all = sum(height * width * 3 for height, width in schema.cameras.values())
    _check(name, "bytes of pictures in all", of_all, 0, LIMITS.total - LIMITS.frame // 8)


def _check(name: str, what: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or not low <= value <= high:
        raise PolicyError(f"policy {name!r} has {what}: {value!r:.100}; expected {low} to {high}")
