"""The `drawer` expert.

cup             drawer    fingers         rule
elsewhere       closed    any             close on the handle and pull, with arm and base
elsewhere       open      on the handle   release it
elsewhere       open      free            drive to the cup and close on it
held            open      on the cup      move it over the drawer, put it in
in the drawer   open      any             release it, close on the handle and push
in the drawer   closed    any             release the handle, rise
"""

import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.state import Observation
from sim.experts.handling import (
    GRASP_ABOVE,
    READY,
    can_reach,
    carry,
    drive_to,
    grasp,
    hand_to,
    hand_to_still,
    let_go,
    place,
    stand_before,
)
from sim.experts.mobile import Errand, MobileIntention, MobileScene, Thing
from sim.experts.motion import limit_norm
from sim.tasks.drawer import (
    CLOSED,
    DRAWER_BACK,
    DRAWER_FLOOR,
    DRAWER_FRONT,
    DRAWER_SIDE,
    HANDLE_HALF_HEIGHT,
    HANDLE_RADIUS,
    HANDLE_X,
)
from sim.tasks.household import CUP_HALF_HEIGHT

PULL_TO, OPEN_ENOUGH = 0.26, 0.235
"""Target opening of the drawer, and the opening from which a cup can be put in [m]."""
HANDLE_SPEED = 0.28
"""Speed of the handle [m/s]."""
BEHIND_HANDLE = 0.19
"""Distance of the cup's target from the handle, into the drawer [m]."""
_IN_Z = DRAWER_FLOOR + CUP_HALF_HEIGHT


class DrawerExpert:
    """Opens, fills and closes the drawer by the module's table of rules."""

    def plan(
        self, observation: Observation, committed: Float[np.ndarray, "d 13"] | None = None
    ) -> Float[np.ndarray, "32 13"]:
        """Rows of the rule from here on, without disturbances; see `Expert.plan`."""
        return self.errand(observation.environment_state).plan(observation, committed)

    def errand(self, seen: Float[np.ndarray, "9"]) -> Errand:
        """The errand for an environment state of `Drawer`."""
        cup = Thing(p=seen[:3])
        handle = Thing(p=seen[3:6], radius=HANDLE_RADIUS, half_height=HANDLE_HALF_HEIGHT, way=seen[7:9])
        cabinet = _Cabinet(closed=seen[3:6] - seen[6] * np.array([*seen[7:9], 0.0]), out=seen[7:9])
        cabinet.holds_cup = cabinet.is_in(cup, handle)
        return Errand(intend=cabinet.intend, things=(cup, handle))


class _Cabinet:
    """The drawer, in O."""

    def __init__(self, *, closed: Float[np.ndarray, "3"], out: Float[np.ndarray, "2"]) -> None:
        """closed: position of the handle when the drawer is closed. out: the direction in which it opens."""
        self.closed, self.out = closed, out
        self.holds_cup = False
        """Whether the cup was observed in the drawer; it then moves along, which is not predicted."""

    def opening(self, handle: Thing) -> float:
        return float((handle.p - self.closed)[:2] @ self.out)

    def handle_at(self, opening: float) -> Float[np.ndarray, "3"]:
        return self.closed + opening * np.array([*self.out, 0.0])

    def is_in(self, cup: Thing, handle: Thing) -> bool:
        """Whether the cup is in the drawer."""
        d = (cup.p - handle.p)[:2]
        along, across = float(d @ self.out), abs(float(d @ np.array([-self.out[1], self.out[0]])))
        inside = DRAWER_BACK - HANDLE_X < along < DRAWER_FRONT - HANDLE_X and across < DRAWER_SIDE
        return inside and bool(cup.p[2] < _IN_Z + 0.014)

    def intend(self, scene: MobileScene) -> MobileIntention:
        """The rule that applies to a scene."""
        cup, handle = scene.things
        if self.holds_cup or self.is_in(cup, handle):
            return self._close(scene, cup, handle)
        if scene.holds(cup):
            return self._bring(scene, cup, handle)
        if self.opening(handle) < OPEN_ENOUGH:
            return self._move_handle(scene, handle, PULL_TO)
        if scene.is_around(handle):
            return let_go(scene, handle, np.zeros(3))
        return grasp(scene, cup, drive_to(scene, stand_before(cup.p, -self.out)))

    def _move_handle(self, scene: MobileScene, handle: Thing, opening: float) -> MobileIntention:
        """Close on the handle and move it; the base drives to where it faces the handle afterwards."""
        goal = self.handle_at(opening)
        if not scene.holds(handle):
            return grasp(scene, handle, drive_to(scene, stand_before(handle.p, -self.out)))
        ahead = limit_norm(goal - handle.p, 0.10)
        above = np.array([0.0, 0.0, GRASP_ABOVE])
        v_hand = limit_norm(hand_to_still(scene, handle.p + ahead + above), HANDLE_SPEED)
        v = drive_to(scene, stand_before(goal, -self.out), speed=0.7 * HANDLE_SPEED)
        return MobileIntention(v=v, v_hand=v_hand, width=handle.close_width)

    def _bring(self, scene: MobileScene, cup: Thing, handle: Thing) -> MobileIntention:
        target = handle.p - BEHIND_HANDLE * np.array([*self.out, 0.0])
        target[2] = _IN_Z
        goal = stand_before(target, -self.out)
        if float(np.linalg.norm(goal[:2] - scene.x[:2])) < 0.4 and can_reach(scene, target):
            return place(scene, cup, target, drive_to(scene, goal))
        return carry(scene, cup, drive_to(scene, goal))

    def _close(self, scene: MobileScene, cup: Thing, handle: Thing) -> MobileIntention:
        if scene.is_around(cup):
            return let_go(scene, cup, np.zeros(3))
        if self.opening(handle) > 0.5 * CLOSED:
            return self._move_handle(scene, handle, -0.01)
        if scene.is_around(handle):
            return let_go(scene, handle, np.zeros(3))
        v_hand = hand_to(scene, READY)
        return MobileIntention(v=np.zeros(3), v_hand=v_hand, width=0.08)
