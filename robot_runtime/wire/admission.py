"""What a server lets in: how fast, and only what fits its policy."""

from robot_runtime.core.action import NS_PER_S, ActionSpec
from robot_runtime.core.request import ChunkRequest
from robot_runtime.core.schema import Schema


class RateLimit:
    """Lets `per_s` packets a second through, and `burst` of them at once."""

    def __init__(self, *, per_s: int, burst: int) -> None:
        self.is_first_refusal = False
        """True while the last `take` was the first refusal after one that was let through."""
        self._cost_ns = NS_PER_S // per_s
        self._burst_ns = burst * self._cost_ns
        self._used_until_ns: int | None = None
        self._has_refused = False

    def take(self, now_ns: int) -> bool:
        """True if one more packet is within the limit."""
        used_until_ns = now_ns if self._used_until_ns is None else max(self._used_until_ns, now_ns)
        is_allowed = used_until_ns + self._cost_ns <= now_ns + self._burst_ns
        self.is_first_refusal = not is_allowed and not self._has_refused
        self._has_refused = not is_allowed
        if is_allowed:
            self._used_until_ns = used_until_ns + self._cost_ns
        return is_allowed


def misfit(request: ChunkRequest, *, schema: Schema, spec: ActionSpec) -> str | None:
    """Why the request does not fit what was agreed in the handshake, naming both sides; None if it does."""
    state, observation = request.observation.state, request.observation
    have = {name: image.pixels.shape[:2] for name, image in observation.images.items()}
    checks = [
        ("arm joints", state.q.shape[0], schema.num_joints),
        ("a gripper width", state.gripper_width is not None, schema.has_gripper),
        ("a base pose", state.x_WB is not None, schema.has_base),
        (
            "numbers of environment state",
            observation.environment_state.shape[0],
            schema.environment_state_dim,
        ),
        ("camera sizes", have, dict(schema.cameras)),
    ]
    for what, ours, theirs in checks:
        if ours != theirs:
            return f"{what}: the observation has {ours}, the policy needs {theirs}"
    rows, columns = (0, spec.dim) if request.prev_action_chunk is None else request.prev_action_chunk.shape
    limit = (spec.horizon, spec.dim)
    if columns != spec.dim or rows > spec.horizon:
        return f"prev_action_chunk has shape {(rows, columns)}, the policy takes up to {limit}"
    if request.inference_delay > rows:
        return f"inference_delay is {request.inference_delay}, but prev_action_chunk has {rows} rows"
    return None
