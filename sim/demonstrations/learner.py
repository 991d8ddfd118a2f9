"""Adapts a policy to a planner, so that an expert can label the states it visits."""

import numpy as np
from jaxtyping import Float

from robot_runtime.core.method.sampler_parts import ClampedPrefix
from robot_runtime.core.policy import ChunkRequest, Policy
from robot_runtime.core.values.mismatches import mismatches
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import InvalidValueError, SchemaMismatchError


class Learner:
    """Plans by a policy that continues committed rows; the same seed gives the same sequence of plans."""

    def __init__(self, policy: Policy, *, robot: Schema, seed: int) -> None:
        """
        robot: schema of its observations.
        SchemaMismatchError: the policy needs another schema.
        InvalidValueError: the policy cannot continue committed rows.
        """
        wrong = mismatches(robot=robot, policy=policy.info.schema)
        if wrong:
            raise SchemaMismatchError(
                f"policy {policy.info.name!r} cannot drive this robot: " + "; ".join(wrong)
            )
        if ClampedPrefix not in policy.info.capabilities.samplers:
            raise InvalidValueError(
                f"policy {policy.info.name!r} was not trained to go on from committed rows, and a learner "
                "has to (recipe prefix, or mixed-schedule)"
            )
        self._policy = policy
        self._rng = np.random.default_rng(seed)

    def plan(
        self, observation: Observation, committed: Float[np.ndarray, "d D"] | None = None
    ) -> Float[np.ndarray, "32 D"]:
        """Like `Expert.plan`; committed rows beyond those it was trained for are replanned."""
        d = (
            0
            if committed is None
            else min(len(committed), self._policy.info.capabilities.max_inference_delay)
        )
        request = ChunkRequest(
            observation=observation,
            prev_action_chunk=committed,
            inference_delay=d,
            sampler=ClampedPrefix(),
            seed=int(self._rng.integers(2**31)),
        )
        return np.concatenate([np.array(rows) for rows in self._policy.infer(request)])
