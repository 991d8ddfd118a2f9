r"""The `wipe` expert: the sponge goes to and fro across the area while the base drives along it.

across
  |   /\    /\    /\           path of the sponge's centre; its position along the area determines the leg,
  |  /  \  /  \  /  \          so the expert needs no memory. A missed spot is wiped again, and all that
  | /    \/    \/    \         comes after it
  +-----------------------> along
   |-- 2 pitch -|
"""

import math

import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.state import Observation
from robot_runtime.core.values.transforms import turn_planar
from sim.experts.grasping import ramp
from sim.experts.handling import HAND_SPEED, READY, drive_to, hand_to, hand_to_still, stand_before
from sim.experts.mobile import Errand, MobileIntention, MobileScene
from sim.experts.motion import limit, limit_norm
from sim.tasks.household import in_base
from sim.tasks.wipe import AREA_WIDTH, SPONGE_BELOW, SPONGE_HALF

WIPE_SPEED = 0.28
PITCH, REACH = 0.055, AREA_WIDTH / 2 - SPONGE_HALF[0] + 0.045
"""Length of a leg along the area, and lateral amplitude of the sponge's centre [m]."""
BEYOND = 0.065
"""Overrun of the path before and after the area, so that its corners are wiped [m]."""
PRESS = 0.005
"""Depth of the setpoint below first contact [m]."""
HOVER, LOW = 0.08, 0.025
"""Heights above that: while approaching the area, and below which it wipes [m]."""
WIDTH = 0.03


class WipeExpert:
    """Wipes the area along the module's path."""

    def plan(
        self, observation: Observation, committed: Float[np.ndarray, "d 13"] | None = None
    ) -> Float[np.ndarray, "32 13"]:
        """Rows of the rule from here on, without disturbances; see `Expert.plan`."""
        return self.errand(observation.environment_state).plan(observation, committed)

    def errand(self, seen: Float[np.ndarray, "10"]) -> Errand:
        """The errand for an environment state of `Wipe`."""
        area = _Area(frontier=seen[:3], end=seen[3:6], along=seen[6:8], across=seen[8:10])
        return Errand(intend=area.intend)


class _Area:
    """The remaining area, in O."""

    def __init__(
        self,
        *,
        frontier: Float[np.ndarray, "3"],
        end: Float[np.ndarray, "3"],
        along: Float[np.ndarray, "2"],
        across: Float[np.ndarray, "2"],
    ) -> None:
        # The near point is measured better than the far one, so it determines height and lateral position.
        self.left = float((end - frontier)[:2] @ along)
        self.end, self.along, self.across = frontier[:2] + self.left * along, along, across
        self.z = float(frontier[2]) + SPONGE_BELOW - PRESS

    def intend(self, scene: MobileScene) -> MobileIntention:
        """The rule that applies to a scene."""
        p = turn_planar(scene.p, scene.x[2]) + np.array([scene.x[0], scene.x[1], 0.0])
        s, t = self._from_end(p)
        if self.left < 0.005:
            return MobileIntention(v=np.zeros(3), v_hand=hand_to(scene, READY), width=WIDTH)
        start = -self.left
        is_low = p[2] < self.z + LOW
        if is_low and start - 1.5 * BEYOND < s < BEYOND and abs(t) < AREA_WIDTH:
            v = drive_to(scene, stand_before(self._point(min(s, 0.0) + 0.06, 0.0), self.across))
            return MobileIntention(v=v, v_hand=self._wipe(scene, p, s, t), width=WIDTH)
        v = drive_to(scene, stand_before(self._point(start, 0.0), self.across))
        return MobileIntention(v=v, v_hand=self._over_to(scene, start - BEYOND), width=WIDTH)

    def _wipe(
        self, scene: MobileScene, p: Float[np.ndarray, "3"], s: float, t: float
    ) -> Float[np.ndarray, "3"]:
        """Velocity along the path, correcting deviations from it."""
        goal, slope = _zigzag(s)
        along = np.array([1.0, slope]) / math.hypot(1.0, slope)
        u = WIPE_SPEED * along + np.array([0.0, 5.0 * (goal - t)])
        v = limit_norm(u[0] * self.along + u[1] * self.across, 1.5 * WIPE_SPEED)
        down = limit(6.0 * (self.z - p[2]), -0.25, 0.25)
        return _relative(scene, np.array([*v, down]))

    def _over_to(self, scene: MobileScene, s: float) -> Float[np.ndarray, "3"]:
        """Velocity through the air to where the path resumes, and down to it."""
        goal = self._point(s, _zigzag(s)[0])
        d = in_base(scene.x, goal) - scene.p
        goal[2] += HOVER * ramp(math.hypot(d[0], d[1]), 0.02, 0.06)
        if math.hypot(*in_base(scene.x, goal)[:2]) > 0.85:
            return hand_to(scene, READY)
        return hand_to_still(scene, goal)

    def _point(self, s: float, t: float) -> Float[np.ndarray, "3"]:
        """Position of E with the sponge's centre at s from the area's end and t from its centre line."""
        p = self.end + s * self.along + (0.5 * AREA_WIDTH + t) * self.across
        return np.array([*p, self.z])

    def _from_end(self, p: Float[np.ndarray, "3"]) -> tuple[float, float]:
        d = p[:2] - self.end
        return float(d @ self.along), float(d @ self.across) - 0.5 * AREA_WIDTH


def _zigzag(s: float) -> tuple[float, float]:
    """(across, slope) of the path at a position along the area."""
    phase = (s / PITCH) % 2.0
    rising = phase < 1.0
    t = REACH * (2.0 * phase - 1.0) if rising else REACH * (3.0 - 2.0 * phase)
    return t, (2.0 if rising else -2.0) * REACH / PITCH


def _relative(scene: MobileScene, v_O: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"]:
    """Velocity relative to B of an end effector that moves with v_O in the world."""
    v, p = turn_planar(v_O - np.array([scene.v[0], scene.v[1], 0.0]), -scene.x[2]), scene.p
    return limit_norm(v + scene.v[2] * np.array([p[1], -p[0], 0.0]), 1.6 * HAND_SPEED)
