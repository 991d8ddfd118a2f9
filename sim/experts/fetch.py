"""The `fetch` expert: a rule from state to velocities of base and end effector, predicted 32 rows ahead.

    cup                       fingers           rule
    in the tray               any               open, rise, stay
    between closed fingers    on the cup        lift; through the door to the tray, and down into it
    anywhere else             any               drive to it, reaching out meanwhile, and close

Base and arm do not wait for each other: each moves as soon as it can.
"""

import math

import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.state import Observation
from sim.experts.handling import can_reach, carry, drive_to, grasp, let_go, place, stand_before
from sim.experts.mobile import Errand, MobileIntention, MobileScene, Thing
from sim.tasks.household import CUP_RADIUS
from sim.tasks.tray import TRAY_HALF

_BEFORE_DOOR, _DOOR_LANE = 0.75, 0.16


class FetchExpert:
    """Fetches the cup by the module's table of rules."""

    def plan(
        self, observation: Observation, committed: Float[np.ndarray, "d 13"] | None = None
    ) -> Float[np.ndarray, "32 13"]:
        """Rows of the rule from here on, without disturbances; see `Expert.plan`."""
        return self.errand(observation.environment_state).plan(observation, committed)

    def errand(self, seen: Float[np.ndarray, "14"]) -> Errand:
        """The errand for an environment state of `Fetch`."""
        rooms = _Rooms(tray=seen[3:6], door=seen[6:8], through=seen[8:10], to_a=seen[10:12], to_b=seen[12:14])
        return Errand(intend=rooms.intend, things=(Thing(p=seen[:3]),))


class _Rooms:
    """Tray, door and directions of the rooms, in O."""

    def __init__(
        self,
        *,
        tray: Float[np.ndarray, "3"],
        door: Float[np.ndarray, "2"],
        through: Float[np.ndarray, "2"],
        to_a: Float[np.ndarray, "2"],
        to_b: Float[np.ndarray, "2"],
    ) -> None:
        self.tray, self.door, self.through, self.to_a, self.to_b = tray, door, through, to_a, to_b

    def intend(self, scene: MobileScene) -> MobileIntention:
        """The rule that applies to a scene."""
        (cup,) = scene.things
        if self._is_in_tray(cup):
            return let_go(scene, cup, np.zeros(3))
        if scene.holds(cup):
            return self._bring(scene, cup)
        return grasp(scene, cup, drive_to(scene, stand_before(cup.p, self.to_a)))

    def _is_in_tray(self, cup: Thing) -> bool:
        off = cup.p - self.tray
        return bool(np.abs(off[:2]).max() < TRAY_HALF - CUP_RADIUS / 2 and off[2] < 0.012)

    def _bring(self, scene: MobileScene, cup: Thing) -> MobileIntention:
        goal = stand_before(self.tray, self.to_b)
        if float(np.linalg.norm(goal[:2] - scene.x[:2])) < 0.6 and can_reach(scene, self.tray):
            return place(scene, cup, self.tray, drive_to(scene, goal))
        return carry(scene, cup, drive_to(scene, self._by_the_door(scene, goal)))

    def _by_the_door(self, scene: MobileScene, goal: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"]:
        """The next waypoint towards a pose: before the door, behind it, or the pose itself."""
        along = float((scene.x[:2] - self.door) @ self.through)
        if along > 0.45:
            return goal
        across = abs(float(np.array([-self.through[1], self.through[0]]) @ (scene.x[:2] - self.door)))
        yaw = math.atan2(self.through[1], self.through[0])
        if across > _DOOR_LANE and along < -0.30:
            return np.array([*(self.door - _BEFORE_DOOR * self.through), yaw])
        return np.array([*(self.door + _BEFORE_DOOR * self.through), yaw])
