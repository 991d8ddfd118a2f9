"""The simulated mobile robot to which a capture's labels are retargeted: `of_task`."""

from typing import TYPE_CHECKING

import numpy as np
import pinocchio as pin

from calibration.commands.capture.reach import Target, is_there
from robot_runtime.errors import InvalidValueError

if TYPE_CHECKING:
    from calibration.labels.values import Labels


class SimReach:
    """Inverse kinematics of the simulated mobile robot's arm, with its experts' posture."""

    num_joints = 7

    def __init__(self) -> None:
        from drivers.fr3 import FR3_LIMITS
        from sim.scene.kinematics import Q_HOME, Kinematics
        from sim.scene.mobile_base import P_BA

        self._kinematics = Kinematics(p_BA=P_BA)
        self.q_home = np.array(Q_HOME)
        self.dq_max = FR3_LIMITS.arm("arm").dq_max

    def solve(self, X_BE: pin.SE3, q_start: np.ndarray) -> tuple[np.ndarray, bool]:
        """Joints (7,) [rad], and whether the end effector reaches the pose."""
        q = self._kinematics.solve(X_BE, q_start)
        return q, is_there(self._kinematics.forward(q), X_BE)


def of_task(task: str) -> Target:
    """The simulated robot of a household task, and its policies' scene state.

    InvalidValueError: a table task, whose robot has no mobile base.
    """
    from calibration.labels.columns import Scene
    from calibration.labels.smoothing import Pace
    from sim.capture.retargeted import fit_offset, places_of
    from sim.capture.samples import seen_from
    from sim.capture.things import environment_state, in_words, names_of
    from sim.scene.mobile_base import ACCELERATION_MAX, SPEED_MAX
    from sim.scene.model import MAX_WIDTH
    from sim.tasks import HOUSEHOLD_TASKS

    if task not in HOUSEHOLD_TASKS:
        raise InvalidValueError(
            f"captures are for mobile robots: --task takes {', '.join(sorted(HOUSEHOLD_TASKS))}; got {task}"
        )
    things, size = names_of(task), _scene_size(task)

    def scene_of(labels: "Labels", x_WB: np.ndarray) -> np.ndarray:
        if missing := [name for name in things if name not in labels.glimpses]:
            there = ", ".join(map(in_words, labels.glimpses))
            raise InvalidValueError(
                f"policies of {task} need the positions of {', '.join(map(in_words, missing))}; "
                f"the capture's glimpses.csv has {there or 'none'}"
            )
        try:
            positions = places_of(labels, task)
        except InvalidValueError:
            # these are another capture's demonstrations
            return np.full((len(labels), size), np.nan)
        seen = {name: seen_from(x_WB, p_W) for name, p_W in positions.items()}
        return np.array(
            [environment_state(task, {name: p[k] for name, p in seen.items()}) for k in range(len(labels))]
        )

    return Target(
        name="simulated FR3",
        reach=SimReach(),
        most_width_m=MAX_WIDTH,
        pace=Pace(
            speed=float(SPEED_MAX[0]),
            acceleration=float(ACCELERATION_MAX[0]),
            turn=float(SPEED_MAX[2]),
            turn_acceleration=float(ACCELERATION_MAX[2]),
        ),
        scene=Scene(
            names=tuple(f"scene_{i}" for i in range(size)),
            of=scene_of,
            things=things,
            places=lambda labels: places_of(labels, task),
        ),
        place=lambda labels: fit_offset(labels, task=task),
    )


def _scene_size(task: str) -> int:
    from sim.tasks import make_task

    return make_task(task).schema.environment_state_dim
