"""The `clear` expert: takes the nearest cup, and drives to the next one while the arm moves it to the bin.

cup                       fingers           rule
over the bin              around it         open
between closed fingers    on the cup        lift it, over to the bin and down; drive on to the next
all in the bin            any               hold
anywhere else             any               drive to the nearest, reaching out meanwhile
"""

import math

import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.state import Observation
from sim.experts.grasping import ramp
from sim.experts.handling import GRASP_ABOVE, READY, drive_to, grasp, hand_to, let_go, stand_before
from sim.experts.mobile import Deck, Errand, MobileIntention, MobileScene, Thing
from sim.tasks.clear import BIN_HALF, BIN_HEIGHT, BIN_P, CUPS
from sim.tasks.household import CUP_HALF_HEIGHT, TABLE_Z, in_base

_P, _HALF = np.array(BIN_P), np.array([BIN_HALF, BIN_HALF, 0.0])
BIN = Deck(lower=_P - _HALF, upper=_P + _HALF + [0.0, 0.0, BIN_HEIGHT + 0.12])
"""Things inside that are not held lie in the bin, or fall into it."""
_CUP_OFFSETS = ((-0.06, -0.06), (0.06, -0.06), (0.0, 0.065))
"""Positions of the three cups in the bin, in order, from its centre [m]."""
_CARRY_Z = TABLE_Z + CUP_HALF_HEIGHT + 0.06
_DROP_Z = BIN_P[2] + BIN_HEIGHT + 0.5 * CUP_HALF_HEIGHT
"""Heights of the centre of a carried cup, and of one released over the bin [m]."""


class ClearExpert:
    """Clears the counter by the module's table of rules."""

    def plan(
        self, observation: Observation, committed: Float[np.ndarray, "d 13"] | None = None
    ) -> Float[np.ndarray, "32 13"]:
        """Rows of the rule from here on, without disturbances; see `Expert.plan`."""
        return self.errand(observation.environment_state).plan(observation, committed)

    def errand(self, seen: Float[np.ndarray, "11"]) -> Errand:
        """The errand for an environment state of `Clear`."""
        cups = tuple(Thing(p=seen[3 * i : 3 * i + 3]) for i in range(len(CUPS)))
        facing = seen[9:11]
        return Errand(intend=lambda scene: _intend(scene, facing), things=cups, deck=BIN)


def _intend(scene: MobileScene, facing: Float[np.ndarray, "2"]) -> MobileIntention:
    left = [cup for cup in scene.things if not scene.is_on_deck(cup) and not scene.holds(cup)]
    left.sort(key=lambda cup: float(np.linalg.norm(cup.p[:2] - scene.x[:2])))
    v = drive_to(scene, stand_before(left[0].p, facing)) if left else np.zeros(3)
    for cup in scene.things:
        if scene.holds(cup):
            return _bring(scene, cup, v)
        if scene.is_on_deck(cup) and scene.is_around(cup):
            return let_go(scene, cup, v)
    if not left:
        return MobileIntention(v=v, v_hand=hand_to(scene, READY), width=0.08)
    return grasp(scene, left[0], v)


def _bring(scene: MobileScene, cup: Thing, v: Float[np.ndarray, "3"]) -> MobileIntention:
    """Move up, over the bin, and down until the cup may fall; the base waits only for the lift."""
    at = in_base(scene.x, cup.p)
    num_in_bin = sum(scene.is_on_deck(other) for other in scene.things)
    over = _P[:2] + _CUP_OFFSETS[min(num_in_bin, len(_CUP_OFFSETS) - 1)]
    lifted = ramp(at[2], _CARRY_Z - 0.08, _CARRY_Z - 0.02)
    aside = math.hypot(at[0] - over[0], at[1] - over[1])
    if aside < 0.03 and at[2] < _DROP_Z + 0.02:
        return let_go(scene, cup, v)
    if aside > 0.3 and lifted < 1.0:
        up = np.array([*scene.p[:2], _CARRY_Z + GRASP_ABOVE + 0.03])
        return MobileIntention(v=lifted * v, v_hand=hand_to(scene, up), width=cup.close_width)
    height = _DROP_Z + (_CARRY_Z - _DROP_Z) * ramp(aside, 0.05, 0.20)
    goal = np.array([*over, height + GRASP_ABOVE])
    return MobileIntention(v=v, v_hand=hand_to(scene, goal), width=cup.close_width)
