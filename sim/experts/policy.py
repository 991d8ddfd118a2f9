"""A scripted expert behind the `Policy` protocol, to evaluate methods with a perfect policy."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from policies.scripted import takes_anything
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import PolicyInfo
from sim.experts import action_spec_of, make_expert
from sim.tasks import make_task

EXPERT_POLICY = "expert"
"""Its name where a policy is named."""


class ExpertPolicy:
    """Plans from the given observation, however old; streams its rows in two blocks.

    It continues committed rows, and accepts any sampler part, as it samples nothing.
    """

    def __init__(self, task_name: str, *, seed: int = 0) -> None:
        """seed: of the expert's free choices."""
        self._expert = make_expert(task_name, seed=seed)
        spec = action_spec_of(task_name)
        self.info = PolicyInfo(
            name=f"{task_name} expert",
            action_spec=spec,
            schema=replace(make_task(task_name).schema, cameras={}),
            capabilities=takes_anything(spec.horizon),
        )

    def infer(self, request: ChunkRequest) -> Iterator[Float[np.ndarray, "n D"]]:
        committed = None
        if request.prev_action_chunk is not None and request.inference_delay > 0:
            committed = request.prev_action_chunk[: request.inference_delay]
        rows = self._expert.plan(request.observation, committed)
        yield rows[:8]
        yield rows[8:]
