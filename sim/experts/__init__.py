"""Scripted experts: they map an observation to the 32 rows that they intend to command.

An expert is a planner without memory (apart from the side of the wall): it starts from the measured state,
predicts the motion by its rule, and returns the setpoints. So the label of a state depends on that state
alone, also just after a disturbance, and a policy that sees one observation can learn it.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.action import ActionSpec, GripperWidth, JointPosition
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import UnknownNameError
from sim.experts.clear import ClearExpert
from sim.experts.conveyor import ConveyorExpert
from sim.experts.drawer import DrawerExpert
from sim.experts.fetch import FetchExpert
from sim.experts.handover import HandoverExpert
from sim.experts.mobile import MOBILE_SPEC
from sim.experts.motion import DT_NS, HORIZON
from sim.experts.pick_place import PickPlaceExpert
from sim.experts.strike import StrikeExpert
from sim.experts.track import TrackExpert
from sim.experts.two_hands import TWO_HAND_SPEC
from sim.experts.wipe import WipeExpert
from sim.tasks import HOUSEHOLD_TASKS, TWO_ARM_TASKS

ACTION_SPEC = ActionSpec(fields=(JointPosition(7), GripperWidth()), horizon=HORIZON, dt_ns=DT_NS)
"""32 rows at 20 Hz of absolute joint positions [rad] and gripper width [m]."""


class Expert(Protocol):
    """Plans how to do a task."""

    def plan(
        self, observation: Observation, committed: Float[np.ndarray, "d D"] | None = None
    ) -> Float[np.ndarray, "32 D"]:
        """Rows from here on, of `action_spec_of` the task; row i is the command due at `t_obs + i * dt`.

        committed: rows that will run in any case; the plan repeats them and continues from there.
        """
        ...


EXPERTS: dict[str, Callable[[np.random.Generator], Expert]] = {
    "clear": lambda rng: ClearExpert(),
    "conveyor": lambda rng: ConveyorExpert(),
    "drawer": lambda rng: DrawerExpert(),
    "fetch": lambda rng: FetchExpert(),
    "handover": lambda rng: HandoverExpert(),
    "pick_place": lambda rng: PickPlaceExpert(side=1 if rng.random() < 0.5 else -1),
    "strike": lambda rng: StrikeExpert(),
    "track": lambda rng: TrackExpert(),
    "wipe": lambda rng: WipeExpert(),
}


def action_spec_of(task_name: str) -> ActionSpec:
    """Columns of an expert's rows, by robot: on a table, on a mobile base, or with two arms."""
    if task_name in TWO_ARM_TASKS:
        return TWO_HAND_SPEC
    return MOBILE_SPEC if task_name in HOUSEHOLD_TASKS else ACTION_SPEC


def make_expert(task_name: str, *, seed: int) -> Expert:
    """An expert for one episode; the seed determines its free choices (the side of the wall)."""
    factory = EXPERTS.get(task_name)
    if factory is None:
        raise UnknownNameError("task", task_name, EXPERTS)
    return factory(np.random.default_rng([seed, 1]))
