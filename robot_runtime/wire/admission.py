"""What a server admits before it works on it: a rate for each peer (`PeerRates`), robots that fit the policy
(`refusal`), requests that fit it (`misfit`)."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_S, ActionSpec
from robot_runtime.core.values.mismatches import mismatches
from robot_runtime.core.values.schema import ArmSchema, BaseSchema, GripperSchema, PartSchema, Schema
from robot_runtime.core.values.state import ArmState, BaseState, GripperState, Observation, PartState
from robot_runtime.wire.arrays import Picture
from robot_runtime.wire.fields import MAX_MAGNITUDE, MAX_REASON
from robot_runtime.wire.messages import Hello, RefusalCode, Refused

PACKETS_PER_S = 2000
"""Limit of one client; a robot needs about 40 heartbeats and up to 100 requests a second."""
PACKETS_AT_ONCE = 1000
STRANGER_PACKETS_PER_S, ONE_STRANGERS_PER_S = 1000, 20
"""Limits of all unknown peers together, and of one; packets beyond them are not read."""
_STRANGER_BYTES = 4096  # an unknown peer's packet counts once for each so many bytes
STRANGER_AT_ONCE_BYTES = PACKETS_AT_ONCE * ONE_STRANGERS_PER_S // PACKETS_PER_S * _STRANGER_BYTES - 1
_MAX_PEERS = 4096


class RateLimit:
    """Lets `per_s` packets a second through, and `burst` of them at once."""

    def __init__(self, *, per_s: int, burst: int) -> None:
        self._cost_ns = NS_PER_S // per_s
        self._burst_ns = burst * self._cost_ns
        self._used_until_ns: int | None = None

    def take(self, now_ns: int, cost: int = 1) -> bool:
        """Return whether something that counts as `cost` packets is within the limit."""
        used_until_ns = now_ns if self._used_until_ns is None else max(self._used_until_ns, now_ns)
        is_allowed = used_until_ns + cost * self._cost_ns <= now_ns + self._burst_ns
        if is_allowed:
            self._used_until_ns = used_until_ns + cost * self._cost_ns
        return is_allowed


class PeerRates:
    """How much each peer may send. Its use is kept, however often it greets and leaves."""

    def __init__(self) -> None:
        self._rates: dict[bytes, RateLimit] = {}  # the last sender comes last
        self._unknown = RateLimit(per_s=STRANGER_PACKETS_PER_S, burst=STRANGER_PACKETS_PER_S)

    def take(self, peer: bytes, num_bytes: int, now_ns: int, *, is_known: bool) -> bool:
        """Return whether one more packet of that peer is within the limits."""
        rate = self._rates.pop(peer, None) or RateLimit(per_s=PACKETS_PER_S, burst=PACKETS_AT_ONCE)
        self._rates[peer] = rate
        if len(self._rates) > _MAX_PEERS:
            del self._rates[next(iter(self._rates))]
        if is_known:
            return rate.take(now_ns)
        cost = 1 + num_bytes // _STRANGER_BYTES
        alone = cost * PACKETS_PER_S // ONE_STRANGERS_PER_S
        # Its own limit first: a peer that floods takes nothing from other unknown peers.
        return rate.take(now_ns, alone) and self._unknown.take(now_ns, cost)


def refusal(hello: Hello, info: PolicyInfo, *, policies: Collection[str], key: str | None) -> Refused | None:
    """Return why a robot is refused; None if it fits the policy.

    policies: all policies of the server. key: the robot's name by its key; None without keys.
    """
    if key is not None and hello.robot != key:
        code, reason = RefusalCode.KEY, f"this is the key of robot {key!r}, not of {hello.robot!r}"
    elif hello.policy != info.name and (hello.policy or len(policies) > 1):
        asked = f"no policy {hello.policy!r}" if hello.policy else "more than one policy: name yours"
        code, reason = RefusalCode.POLICY, f"this server has {asked}; it has {', '.join(policies)}"
    elif differences := mismatches(robot=hello.schema, policy=info.schema):
        names = f"robot {hello.robot!r} does not fit policy {info.name!r}: "
        code, reason = RefusalCode.SCHEMA, names + "; ".join(differences)
    else:
        return None
    return Refused(code=code, reason=reason[:MAX_REASON])


def misfit(
    request: ChunkRequest,
    pictures: Sequence[Picture],
    info: PolicyInfo,
    *,
    expected_ns: int | None,
    useful_ns: int,
) -> str | None:
    """Return why a request does not fit the policy, naming both sides; None if it fits.

    pictures: its images, of which only the header is checked.
    expected_ns: the duration of its sampler part [ns]; None if it is the policy's ordinary work.
    useful_ns: how long its robot waits for the answer [ns].
    """
    newest, *earlier = (request.observation, *request.observation.history)
    sizes: list[dict[str, tuple[int, ...]]] = [{} for _ in (newest, *earlier)]
    for picture in pictures:
        sizes[picture.frame][picture.name] = picture.shape
    found = _misfit_of_observation(newest, sizes[0], info.schema)
    if found is None and earlier:
        found = _misfit_of_history(newest, earlier, sizes[1:], info)
    if found is None and info.tasks and newest.task not in info.tasks:
        valid = ", ".join(map(repr, info.tasks))
        found = f"the policy was not trained on the task {newest.task[:200]!r}, but on {valid}"
    found = found or _misfit_of_plan(request, info.action_spec)
    if found is None and expected_ns is not None:
        found = _misfit_of_work(request, info.action_spec, expected_ns, useful_ns)
    return found


def _misfit_of_work(request: ChunkRequest, spec: ActionSpec, expected_ns: int, useful_ns: int) -> str | None:
    """Return why an answer cannot be computed while it is of use."""
    useful_ns = min(useful_ns, spec.horizon * spec.dt_ns)
    if expected_ns <= useful_ns:
        return None
    return (
        f"{request.sampler} takes about {expected_ns / NS_PER_S:.3g} s here, and the answer is of use for "
        f"{useful_ns / NS_PER_S:.3g} s: ask for fewer samples or steps"
    )


def _misfit_of_observation(
    seen: Observation, sizes: Mapping[str, tuple[int, ...]], schema: Schema
) -> str | None:
    parts = seen.state.parts
    for name, part in schema.parts.items():  # additional ones are ignored
        if (has := _shape(parts[name]) if name in parts else "none") != (needs := _shape(part)):
            return f"{name}: the observation has {has}, the policy needs {needs}"
    measured = {n: len(numbers) for n, numbers in seen.state.measured.items() if n in schema.measured}
    for what, mine, wanted in (
        ("numbers of environment state", len(seen.environment_state), schema.environment_state_dim),
        ("camera sizes", sizes, {name: (*size, 3) for name, size in schema.cameras.items()}),
        ("quantities", measured, schema.measured),
    ):
        if mine != wanted:
            return f"{what}: the observation has {mine}, the policy needs {wanted}"
    return None


def _misfit_of_history(
    newest: Observation,
    earlier: Sequence[Observation],
    sizes: Sequence[Mapping[str, tuple[int, ...]]],
    info: PolicyInfo,
) -> str | None:
    if len(earlier) >= info.n_obs_steps:
        return f"there are {1 + len(earlier)} observations, the policy looks at {info.n_obs_steps}"
    for seen, shapes in zip(earlier, sizes, strict=True):
        if (found := _misfit_of_observation(seen, shapes, info.schema)) is not None:
            return f"earlier {found}"
    times = [seen.t_obs_ns for seen in earlier]
    if sorted(times) != times or times[-1] > newest.t_obs_ns:
        return f"earlier observations come oldest first, got {times} ns before {newest.t_obs_ns} ns"
    return None


def _misfit_of_plan(request: ChunkRequest, spec: ActionSpec) -> str | None:
    planned = request.prev_action_chunk
    rows, columns = (0, spec.dim) if planned is None else planned.shape
    if columns != spec.dim or rows > spec.horizon:
        limit = (spec.horizon, spec.dim)
        return f"prev_action_chunk has shape {(rows, columns)}, the policy takes up to {limit}"
    if request.inference_delay > rows:
        return f"inference_delay is {request.inference_delay}, but prev_action_chunk has {rows} rows"
    if planned is not None and planned.size and (largest := float(np.abs(planned).max())) > MAX_MAGNITUDE:
        return f"prev_action_chunk holds {largest:.3g}; numbers go up to {MAX_MAGNITUDE:.0e}"
    return None


def _shape(part: PartState | PartSchema) -> str:
    """Describe a part in words, to compare both sides."""
    match part:
        case ArmState(q=q):
            return f"{len(q)} joints"
        case ArmSchema(names=names):
            return f"{len(names)} joints"
        case GripperState() | GripperSchema():
            return "a gripper"
        case BaseState(x_WB=None):
            return "a base without a pose"
        case BaseState() | BaseSchema():
            return "a base"
