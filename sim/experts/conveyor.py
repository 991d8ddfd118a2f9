"""The `conveyor` expert: a rule from state to velocity, imagined 32 rows ahead.

    cube                      fingers           rule
    between closed fingers    on the cube       lift, and come to rest
    anywhere else             any               fly over it, along with it, come down open, close

The belt is taken to keep its velocity for good.
"""

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from robot_runtime.core.state import Observation
from sim.experts.grasping import CLOSE_WIDTH, Intention, Scene, plan_by_rule, reach, towards
from sim.experts.motion import Setpoint, committed_setpoint, measured_setpoint
from sim.kinematics import Kinematics
from sim.model import SERVO_LAG_S
from sim.tasks.conveyor import CUBE_ON_BELT_Z, HAND_YAW, LIFT

HOLD_Z = CUBE_ON_BELT_Z + LIFT + 0.05
"""Where the cube is held in the end [m]."""


class ConveyorExpert:
    """Picks the cube up; see the table of rules on top."""

    def __init__(self) -> None:
        self._kinematics = Kinematics()

    def plan(
        self, observation: Observation, committed: Float[np.ndarray, "d 8"] | None = None
    ) -> Float[np.ndarray, "32 8"]:
        """Rows that the rule leads to from here, if the belt stays as it is; see `Expert.plan`."""
        if committed is None:
            start = measured_setpoint(observation.state, self._kinematics)
        else:
            start = committed_setpoint(observation.state, committed[:1], self._kinematics)
        return plan_by_rule(scene_from(observation, start), intend, committed, self._kinematics)


def intend(scene: Scene) -> Intention:
    """The rule that applies to a scene."""
    if not scene.is_held:
        return reach(scene)
    goal = np.array([*scene.p[:2], HOLD_Z])
    return Intention(v=towards(scene.p, goal), yaw=scene.yaw, width=CLOSE_WIDTH)


def scene_from(observation: Observation, start: Setpoint) -> Scene:
    """What is measured; hand and cube are taken where the setpoint will bring them, one servo lag later."""
    state, belt = observation.state, observation.environment_state
    assert state.X_BE is not None
    assert state.gripper_width is not None
    measured = Scene(
        p=state.X_BE.translation,
        v=start.v_BE,
        yaw=start.yaw,
        width=state.gripper_width,
        p_cube=belt[:3],
        yaw_cube=HAND_YAW + float(np.arctan2(belt[4], belt[5])) / 4,
        v_belt=float(belt[3]),
    )
    ride = np.array([0.0, SERVO_LAG_S * measured.v_belt, 0.0])
    lead = start.p_BE - measured.p if measured.is_held else ride
    return replace(measured, p=start.p_BE, p_cube=measured.p_cube + lead)
