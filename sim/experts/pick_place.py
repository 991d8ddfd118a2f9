"""The `pick_place` expert: a rule from state to velocity, predicted 32 rows ahead.

The stage of the task is determined from the measured state at every plan:

    cube                      fingers           rule
    in the tray               narrow            open, stay
    in the tray               wide              rise
    between closed fingers    on the cube       carry: up, round the wall, over the tray, down
    anywhere else             any               move above it, turn, descend open, close on it

Only the side on which to pass the wall is the expert's choice, and only until it is beside the wall.
"""

import math

import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.state import Observation
from sim.experts.grasping import CLOSE_WIDTH, Intention, Scene, plan_by_rule, ramp, reach, scene_at, towards
from sim.experts.motion import Setpoint
from sim.scene.kinematics import Kinematics
from sim.scene.model import MAX_WIDTH
from sim.tasks.cube import CUBE_SIZE
from sim.tasks.pick_place import CUBE_IN_TRAY_Z, TRAY_P, WALL_P
from sim.tasks.tray import TRAY_HALF

CARRY_Z, RETREAT_Z = 0.17, 0.22
PASS_X = 0.165
"""Distance along x from the wall's centre at which the end effector passes it [m]."""
GATE_Y = 0.13
"""Distance in y from the wall at which PASS_X must be reached [m]."""
_LOOKAHEAD = 0.10


def release(scene: Scene) -> Intention:
    """Open in place; rise once the fingers are clear of the cube; end above the tray."""
    goal_z = scene.p[2] + (RETREAT_Z - scene.p[2]) * ramp(scene.width, 0.060, 0.070)
    return Intention(v=towards(scene.p, np.array([*scene.p[:2], goal_z])), yaw=0.0, width=MAX_WIDTH)


def carry(scene: Scene, side: int) -> Intention:
    """Lift, pass the wall on the given side (+1 far end, -1 near end), lower into the tray."""
    x, y, z = scene.p
    to_tray = math.hypot(TRAY_P[0] - x, TRAY_P[1] - y)
    goal_z = CUBE_IN_TRAY_Z + 0.003 + (CARRY_Z - CUBE_IN_TRAY_Z) * ramp(to_tray, 0.012, 0.07)
    lifted = max(ramp(z, 0.05, 0.11), 1.0 - ramp(to_tray, 0.05, 0.07))
    velocity = towards(scene.p, np.array([*carrot(x, y, side), goal_z]), xy_share=lifted)
    return Intention(v=velocity, yaw=scene.yaw * (1.0 - lifted), width=CLOSE_WIDTH)


def carrot(x: float, y: float, side: int) -> Float[np.ndarray, "2"]:
    """The point to head for in the plane, round one end of the wall; continuous in x and y on each side."""
    if y > -GATE_Y / 2:
        side = 1 if x > WALL_P[0] else -1
    x_pass = WALL_P[0] + side * PASS_X
    if y < 0.02:
        out = 1.0 - ramp(abs(x_pass - x), 0.02, 0.10)
        return np.array([x_pass, -GATE_Y + out * (max(y, -GATE_Y) + GATE_Y + _LOOKAHEAD)])
    past = ramp(y, 0.02, GATE_Y + 0.02)
    return (1.0 - past) * np.array([x_pass, y + _LOOKAHEAD]) + past * TRAY_P[:2]


class PickPlaceExpert:
    """Picks, carries and places by the module's table of rules."""

    def __init__(self, *, side: int) -> None:
        self.side = side
        """+1 passes the far end of the wall, -1 the near end."""
        self._kinematics = Kinematics()

    def intend(self, scene: Scene) -> Intention:
        """The rule that applies to a scene."""
        if is_in_tray(scene):
            return release(scene)
        if scene.is_held:
            return carry(scene, self.side)
        return reach(scene)

    def plan(
        self, observation: Observation, committed: Float[np.ndarray, "d 8"] | None = None
    ) -> Float[np.ndarray, "32 8"]:
        """Rows of the rule from here on, without disturbances; see `Expert.plan`."""
        return plan_by_rule(observation, committed, self._kinematics, see=see, rule=self.intend)


def is_in_tray(scene: Scene) -> bool:
    """Whether the cube lies in the tray."""
    inside = np.abs(scene.p_cube[:2] - TRAY_P[:2]).max() < TRAY_HALF - CUBE_SIZE / 2
    return bool(inside and scene.p_cube[2] < CUBE_IN_TRAY_Z + 0.008)


def see(observation: Observation, start: Setpoint) -> Scene:
    """The scene of end effector and cube."""
    cube = observation.environment_state
    yaw_cube = float(np.arctan2(cube[3], cube[4])) / 4
    return scene_at(start, observation.state, p_cube=cube[:3], yaw_cube=yaw_cube)
