"""A scripted expert behind the `Policy` protocol: how a method does when the policy is perfect."""

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

import numpy as np
from jaxtyping import Float

from robot_runtime.core.method.request_parts import LastTarget, RollForward
from robot_runtime.core.method.sampler_parts import SamplerPart
from robot_runtime.core.values.action import ActionSpec
from robot_runtime.core.values.state import Observation
from sim.experts import action_spec_of, make_expert
from sim.tasks import make_task

EXPERT_POLICY = "expert"
"""Its name where a policy is asked for."""


class ExpertPolicy:
    """Plans from the observation it is given, however old that is; streams its rows in two blocks.

    It continues committed rows, and takes any sampler part: there is nothing to sample.
    """

    tasks: tuple[str, ...] = ()
    samplers: tuple[type[SamplerPart], ...] = get_args(SamplerPart)
    recipe = ""
    roll_forward: RollForward = LastTarget()
    execution_horizon: int | None = None

    def __init__(self, task_name: str, *, seed: int = 0) -> None:
        """seed: of what the expert is free to choose."""
        self.name = f"{task_name} expert"
        self.schema = replace(make_task(task_name).schema, cameras={})
        self._expert = make_expert(task_name, seed=seed)
        self._spec = action_spec_of(task_name)

    @property
    def action_spec(self) -> ActionSpec:
        return self._spec

    @property
    def max_inference_delay(self) -> int:
        return self._spec.horizon - 1

    def infer(
        self,
        observation: Observation,
        *,
        prev_action_chunk: Float[np.ndarray, "n D"] | None = None,
        inference_delay: int = 0,
        sampler: SamplerPart,
        seed: int,
    ) -> Iterator[Float[np.ndarray, "n D"]]:
        committed = None
        if prev_action_chunk is not None and inference_delay > 0:
            committed = prev_action_chunk[:inference_delay]
        rows = self._expert.plan(observation, committed)
        yield rows[:8]
        yield rows[8:]
