"""Checks a policy before a server opens its address for it: `checked_policy`, `checked_welcome`."""

import inspect
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from msgspec import structs

from robot_runtime.core.policy import ChunkRequest, Policy
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.schema import Schema
from robot_runtime.errors import PolicyError
from robot_runtime.server.warming import zero_observation
from robot_runtime.wire.codec import decode, encode
from robot_runtime.wire.frames import LIMITS, ProtocolError
from robot_runtime.wire.messages import Packet, Welcome

MAX_HORIZON = 1024
"""Maximum number of rows of a chunk; published ones have up to 100."""
MAX_NUMBERS = 1024
"""Maximum size of a row, and of environment state."""
SPARE_BYTES = 4096
"""Bytes of a request's header reserved for names, request numbers and the task's text."""


def checked_welcome(policy: Policy, heartbeat_ns: int) -> Welcome:
    """The policy's description for robots; PolicyError if it cannot be served at all."""
    info = checked_policy(policy).info
    _check(info, "chunks of so many rows", info.action_spec.horizon, 1, MAX_HORIZON)
    _check(info, "rows of so many numbers", info.action_spec.dim, 1, MAX_NUMBERS)
    _check_schema(info, info.schema)
    welcome = Welcome(info=info, heartbeat_ns=heartbeat_ns)
    try:
        decode(encode(Packet("", 0, welcome)))
    except ProtocolError as error:
        raise PolicyError(f"policy {info.name!r} cannot be described to robots: {error}") from error
    _check_request(info)
    return welcome


def _check_request(info: PolicyInfo) -> None:
    """Check that the numbers of all observations it uses fit in the header of a request."""
    names = replace(info.schema, cameras=dict.fromkeys(info.schema.cameras, (1, 1)))
    seen = zero_observation(names, max(info.tasks, key=len, default=""))
    seen = structs.replace(seen, history=(seen,) * (info.n_obs_steps - 1))
    planned = np.zeros((info.action_spec.horizon, info.action_spec.dim))
    limits = replace(LIMITS, header=LIMITS.header - SPARE_BYTES)
    try:
        encode(Packet("", 0, ChunkRequest(observation=seen, prev_action_chunk=planned)), limits=limits)
    except ProtocolError as error:
        parts = ", ".join([*info.schema.parts, *info.schema.measured])
        raise PolicyError(
            f"robots cannot ask policy {info.name!r}: {info.n_obs_steps} observations of {parts} and "
            f"{info.schema.environment_state_dim} numbers of environment state are more than fits in a "
            f"request: {error}"
        ) from error


def _check_schema(info: PolicyInfo, schema: Schema) -> None:
    """Check that an observation of that schema fits in one message."""
    _check(info, "numbers of environment state", schema.environment_state_dim, 0, MAX_NUMBERS)
    pictures, most = len(schema.cameras) * info.n_obs_steps, LIMITS.num_frames - 2  # one frame for the plan
    _check(info, "pictures in a request", pictures, 0, most)
    for camera, (height, width) in schema.cameras.items():
        _check(info, f"bytes of a picture of camera {camera!r:.100}", height * width * 3, 1, LIMITS.frame)
    of_all = info.n_obs_steps * sum(height * width * 3 for height, width in schema.cameras.values())
    _check(info, "bytes of pictures in all", of_all, 0, LIMITS.total - LIMITS.frame // 8)


def _check(info: PolicyInfo, what: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or not low <= value <= high:
        raise PolicyError(f"policy {info.name!r} has {what}: {value!r:.100}; expected {low} to {high}")


def checked_policy(candidate: object) -> Policy:
    """The object, if it is a policy; PolicyError reports everything that it lacks."""
    if problems := policy_problems(candidate):
        raise PolicyError(f"{_named(candidate)} is no policy: " + "; ".join(problems))
    assert isinstance(candidate, Policy)
    return candidate


def _named(candidate: object) -> str:
    return str(getattr(candidate, "__name__", type(candidate).__name__))


def _takes_one(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # a builtin has no signature
        return True
    return True


def policy_problems(candidate: object) -> list[str]:
    """What keeps an object from being a `Policy`, a sentence each; none if it is one."""
    if isinstance(candidate, type):
        return [f"it is the class {candidate.__name__}, expected an object: {candidate.__name__}(...)"]
    if inspect.isroutine(candidate):
        return ["it is a plain function: put @policy(PolicyInfo(name=..., action_spec=...)) above it"]
    out = []
    info, infer = getattr(candidate, "info", None), getattr(candidate, "infer", None)
    if info is None:
        out.append("it has no `info`: a PolicyInfo with its name and action_spec")
    elif not isinstance(info, PolicyInfo):
        out.append(f"its `info` is {type(info).__name__}; expected a PolicyInfo")
    if infer is None:
        out.append("it has no `infer(request)`, which gives blocks of rows")
    elif not callable(infer):
        out.append(f"its `infer` is {type(infer).__name__}; expected a method infer(request)")
    elif not _takes_one(infer):
        out.append(f"its `infer` has to be called as infer(request), it is infer{inspect.signature(infer)}")
    return out
