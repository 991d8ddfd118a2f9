"""A deliberately faulty policy of `fetch`: `ShortSightedPolicy` sees the cup nearer than it is."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from msgspec import structs

from robot_runtime.core.policy import ChunkRequest, Policy
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import InvalidValueError
from sim.tasks.household import CUP_RADIUS

SHORT_BY = 0.09
"""Error of the cup's position [m]: the fingers close on nothing."""
NEAR = 0.45
"""Distance from the end effector to the cup below which the error applies [m]."""


class ShortSightedPolicy:
    """Wraps a policy and shifts the observed cup while the end effector is near and does not hold it.

        hand ───────────────► 0.45 m          the cup, and where it is seen
                                │               ○ ◄──0.09 m── ●
        far: no error           near: the hand stops short, closes, and stays

    Once the cup is in its gripper it continues as the wrapped policy does.
    """

    def __init__(self, policy: Policy) -> None:
        """policy: of the task `fetch`. InvalidValueError: its observations are of another task."""
        if policy.info.schema.environment_state_dim != 14:
            raise InvalidValueError(
                f"expected a policy of fetch, whose scene state has the cup; got {policy.info.name!r}"
            )
        self._policy = policy
        self.info = replace(policy.info, name=f"short-sighted {policy.info.name}")

    def infer(self, request: ChunkRequest) -> Iterator[Float[np.ndarray, "n D"]]:
        observation = request.observation
        seen = observation.environment_state
        if is_near(observation) and is_before_door(observation) and not holds_cup(observation):
            towards = seen[:3] - np.array([0.0, 0.0, seen[2]])
            short = seen.copy()
            short[:3] -= SHORT_BY * towards / max(float(np.linalg.norm(towards)), 1e-9)
            request = structs.replace(
                request, observation=structs.replace(observation, environment_state=short)
            )
        yield from self._policy.infer(request)


def is_near(observation: Observation) -> bool:
    """Whether the end effector is near the cup."""
    return hand_to_cup(observation) < NEAR


def is_before_door(observation: Observation) -> bool:
    """Whether the cup is still in its first room."""
    cup, door, through = np.split(observation.environment_state[[0, 1, 6, 7, 8, 9]], 3)
    return float((cup - door) @ through) < 0.0


def hand_to_cup(observation: Observation) -> float:
    """Distance from the end effector to the cup [m]."""
    hand = observation.state.X_BE
    assert hand is not None
    return float(np.linalg.norm(observation.environment_state[:3] - hand.translation))


def holds_cup(observation: Observation) -> bool:
    """Whether the fingers have closed on the cup."""
    width = observation.state.gripper_width
    assert width is not None
    return abs(width - 2 * CUP_RADIUS) < 0.006 and hand_to_cup(observation) < 0.07
