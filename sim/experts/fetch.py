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
from sim.experts.mobile import (
    CLOSE_WIDTH,
    READY,
    MobileIntention,
    MobileScene,
    can_reach,
    drive_to,
    hand_to,
    hand_to_still,
    rows_by_rule,
    see,
)
from sim.model import MAX_WIDTH
from sim.tasks.household import CUP_RADIUS, in_base
from sim.tasks.tray import TRAY_HALF

STANDOFF = 0.60
"""From the middle of the base to the object it stands before [m]."""
GRASP_ABOVE = 0.022
"""Hand over the middle of the cup [m]."""
HOVER, LIFT = 0.14, 0.16
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
        return rows_by_rule(see(observation), places.intend, committed)


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
        if self._is_in_tray(scene):
            return self._release(scene)
        if scene.is_held:
            return self._bring(scene)
        return self._reach(scene)

    def _is_in_tray(self, scene: MobileScene) -> bool:
        off = scene.cup - self.tray
        return bool(np.abs(off[:2]).max() < TRAY_HALF - CUP_RADIUS / 2 and off[2] < 0.012)

    def _release(self, scene: MobileScene) -> MobileIntention:
        p = in_base(scene.x, scene.cup)
        clear = ramp(scene.width, 0.064, 0.072)
        goal = np.array([*scene.p[:2], p[2] + GRASP_ABOVE + LIFT * clear])
        return MobileIntention(v=np.zeros(3), v_hand=hand_to(scene, goal), width=MAX_WIDTH)

    def _reach(self, scene: MobileScene) -> MobileIntention:
        v = drive_to(scene, self._before(scene.cup, self.to_a))
        if not can_reach(scene, scene.cup):
            return MobileIntention(v=v, v_hand=hand_to(scene, READY), width=MAX_WIDTH)
        d = in_base(scene.x, scene.cup) - scene.p
        aside = math.hypot(d[0], d[1])
        over = GRASP_ABOVE + HOVER * ramp(aside, 0.007, 0.035)
        low = abs(d[2] + GRASP_ABOVE) < 0.012
        closing = scene.width < MAX_WIDTH - 0.01 and scene.is_between_fingers
        goal = scene.cup + np.array([0.0, 0.0, over])
        width = CLOSE_WIDTH if (aside < 0.009 and low) or closing else MAX_WIDTH
        return MobileIntention(v=v, v_hand=hand_to_still(scene, goal), width=width)

    def _bring(self, scene: MobileScene) -> MobileIntention:
        goal = self._before(self.tray, self.to_b)
        near = float(np.linalg.norm(goal[:2] - scene.x[:2]))
        height = in_base(scene.x, scene.cup)[2] - self.tray[2]
        if near < 0.6 and can_reach(scene, self.tray):
            d = in_base(scene.x, self.tray) - in_base(scene.x, scene.cup)
            aside = math.hypot(d[0], d[1])
            over = 0.003 + LIFT * ramp(aside, 0.015, 0.06)
            target = self.tray + np.array([0.0, 0.0, GRASP_ABOVE + over])
            return MobileIntention(
                v=drive_to(scene, goal), v_hand=hand_to_still(scene, target), width=CLOSE_WIDTH
            )
        lifted = ramp(height, 0.04, 0.12)
        v = lifted * drive_to(scene, self._by_the_door(scene, goal))
        up = np.array([*scene.p[:2], READY[2]]) if lifted < 1.0 else READY
        return MobileIntention(v=v, v_hand=hand_to(scene, up), width=CLOSE_WIDTH)

    def _before(self, p: Float[np.ndarray, "3"], facing: Float[np.ndarray, "2"]) -> Float[np.ndarray, "3"]:
        """Where the base stands to reach a point on a table that lies in a direction."""
        return np.array([*(p[:2] - STANDOFF * facing), math.atan2(facing[1], facing[0])])

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
