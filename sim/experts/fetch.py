"""The `fetch` expert: a rule from state to velocities of base and hand, imagined 32 rows ahead.

    cup                       fingers           rule
    in the tray               any               open, rise, stay
    between closed fingers    on the cup        lift; through the door to the tray, and down into it
    anywhere else             any               drive up to it, the hand reaching out on the way, and close

The base does not wait for the hand, nor the hand for the base: whichever can go on, goes on.
"""

import math

import numpy as np
from jaxtyping import Float

from robot_runtime.core.state import Observation
from sim.experts.grasping import ramp
from sim.experts.handling import (
    GRASP_ABOVE,
    READY,
    can_reach,
    drive_to,
    grasp,
    hand_to,
    hand_to_still,
    let_go,
    stand_before,
)
from sim.experts.mobile import MobileIntention, MobileScene, Thing, rows_by_rule, see
from sim.tasks.household import CUP_RADIUS, in_base
from sim.tasks.tray import TRAY_HALF

LIFT = 0.16
_BEFORE_DOOR, _DOOR_LANE = 0.75, 0.16


class FetchExpert:
    """Fetches and brings; see the table of rules on top."""

    def plan(
        self, observation: Observation, committed: Float[np.ndarray, "d 13"] | None = None
    ) -> Float[np.ndarray, "32 13"]:
        """Rows that the rule leads to from here, if nothing disturbs it; see `Expert.plan`."""
        seen = observation.environment_state
        places = _Places(
            tray=seen[3:6], door=seen[6:8], through=seen[8:10], to_a=seen[10:12], to_b=seen[12:14]
        )
        return rows_by_rule(see(observation, Thing(p=seen[:3])), places.intend, committed)


class _Places:
    """What stands in the rooms, in O."""

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
        goal, at = stand_before(self.tray, self.to_b), in_base(scene.x, cup.p)
        near = float(np.linalg.norm(goal[:2] - scene.x[:2]))
        if near < 0.6 and can_reach(scene, self.tray):
            d = in_base(scene.x, self.tray) - at
            over = 0.003 + LIFT * ramp(math.hypot(d[0], d[1]), 0.015, 0.06)
            target = self.tray + np.array([0.0, 0.0, GRASP_ABOVE + over])
            return MobileIntention(
                v=drive_to(scene, goal), v_hand=hand_to_still(scene, target), width=cup.close_width
            )
        lifted = ramp(at[2] - self.tray[2], 0.04, 0.12)
        v = lifted * drive_to(scene, self._by_the_door(scene, goal))
        up = np.array([*scene.p[:2], READY[2]]) if lifted < 1.0 else READY
        return MobileIntention(v=v, v_hand=hand_to(scene, up), width=cup.close_width)

    def _by_the_door(self, scene: MobileScene, goal: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"]:
        """The next place on the way to a pose: before the door, behind it, or the pose itself."""
        along = float((scene.x[:2] - self.door) @ self.through)
        if along > 0.45:
            return goal
        across = abs(float(np.array([-self.through[1], self.through[0]]) @ (scene.x[:2] - self.door)))
        yaw = math.atan2(self.through[1], self.through[0])
        if across > _DOOR_LANE and along < -0.30:
            return np.array([*(self.door - _BEFORE_DOOR * self.through), yaw])
        return np.array([*(self.door + _BEFORE_DOOR * self.through), yaw])
