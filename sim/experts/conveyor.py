"""The `conveyor` expert: a rule from state to velocity, predicted 32 rows ahead.

    cube                      fingers           rule
    between closed fingers    on the cube       lift, and come to rest
    anywhere else             any               move above and along with it, descend open, close

The belt's velocity is assumed constant.
"""

import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.state import Observation
from sim.experts.grasping import CLOSE_WIDTH, Intention, Scene, plan_by_rule, reach, scene_at, towards
from sim.experts.motion import Setpoint
from sim.scene.kinematics import Kinematics
from sim.tasks.conveyor import CUBE_ON_BELT_Z, HAND_YAW, LIFT

HOLD_Z = CUBE_ON_BELT_Z + LIFT + 0.05
"""Final height of the cube [m]."""


class ConveyorExpert:
    """Picks up the cube by the module's table of rules."""

    def __init__(self) -> None:
        self._kinematics = Kinematics()

    def plan(
        self, observation: Observation, committed: Float[np.ndarray, "d 8"] | None = None
    ) -> Float[np.ndarray, "32 8"]:
        """Rows of the rule from here on, at constant belt velocity; see `Expert.plan`."""
        return plan_by_rule(observation, committed, self._kinematics, see=see, rule=intend)


def intend(scene: Scene) -> Intention:
    """The rule that applies to a scene."""
    if not scene.is_held:
        return reach(scene)
    goal = np.array([*scene.p[:2], HOLD_Z])
    return Intention(v=towards(scene.p, goal), yaw=scene.yaw, width=CLOSE_WIDTH)


def see(observation: Observation, start: Setpoint) -> Scene:
    """The scene of end effector, cube and belt."""
    belt = observation.environment_state
    yaw_cube = HAND_YAW + float(np.arctan2(belt[4], belt[5])) / 4
    return scene_at(start, observation.state, p_cube=belt[:3], yaw_cube=yaw_cube, v_belt=float(belt[3]))
