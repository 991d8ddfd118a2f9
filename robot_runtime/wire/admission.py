"""What a server lets in: how fast, and only what fits its policy."""

import numpy as np

from robot_runtime.core.action import NS_PER_S, ActionSpec
from robot_runtime.core.request import ChunkRequest
from robot_runtime.core.schema import Schema

_PARTS = ("arm joints", "a gripper width", "a base pose", "numbers of environment state", "camera sizes")


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


class Fit:
    """What a request must look like to fit one policy."""

    def __init__(self, *, schema: Schema, spec: ActionSpec) -> None:
        self._spec = spec
        self._needed = (
            schema.num_joints,
            schema.has_gripper,
            schema.has_base,
            schema.environment_state_dim,
            dict(schema.cameras),
        )

    def misfit(self, request: ChunkRequest) -> str | None:
        """Why the request does not fit what was agreed, naming both sides; None if it does."""
        observation = request.observation
        state = observation.state
        have = (
            state.q.shape[0],
            state.gripper_width is not None,
            state.x_WB is not None,
            observation.environment_state.shape[0],
            {name: image.pixels.shape[:2] for name, image in observation.images.items()},
        )
        if have != self._needed:
            for what, ours, theirs in zip(_PARTS, have, self._needed, strict=True):
                if ours != theirs:
                    return f"{what}: the observation has {ours}, the policy needs {theirs}"
        return self._misfit_of_plan(request.prev_action_chunk, request.inference_delay)

    def _misfit_of_plan(self, planned: np.ndarray | None, inference_delay: int) -> str | None:
        limit = (self._spec.horizon, self._spec.dim)
        rows, columns = (0, self._spec.dim) if planned is None else planned.shape
        if columns != self._spec.dim or rows > self._spec.horizon:
            return f"prev_action_chunk has shape {(rows, columns)}, the policy takes up to {limit}"
        if inference_delay > rows:
            return f"inference_delay is {inference_delay}, but prev_action_chunk has {rows} rows"
        return None
