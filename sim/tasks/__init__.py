"""The simulated tasks, by name."""

from collections.abc import Callable

from robot_runtime.core.plan.predict import HandPose
from robot_runtime.errors import UnknownNameError
from sim.scene.arms import mounts_of
from sim.scene.kinematics import Kinematics
from sim.scene.task import Task
from sim.tasks.clear import Clear
from sim.tasks.conveyor import Conveyor
from sim.tasks.drawer import Drawer
from sim.tasks.fetch import Fetch
from sim.tasks.handover import Handover
from sim.tasks.pick_place import PickPlace
from sim.tasks.strike import Strike
from sim.tasks.track import Track
from sim.tasks.wipe import Wipe

TABLE_TASKS: dict[str, Callable[[], Task]] = {
    "conveyor": Conveyor,
    "pick_place": PickPlace,
    "strike": Strike,
    "track": Track,
}
"""Tasks for the arm on a table; with trained policies."""
HOUSEHOLD_TASKS: dict[str, Callable[[], Task]] = {
    "clear": Clear,
    "drawer": Drawer,
    "fetch": Fetch,
    "wipe": Wipe,
}
"""Tasks for the mobile robot."""
TWO_ARM_TASKS: dict[str, Callable[[], Task]] = {"handover": Handover}
"""Tasks for two arms at a table."""
TASKS = {**TABLE_TASKS, **HOUSEHOLD_TASKS, **TWO_ARM_TASKS}


def make_task(name: str) -> Task:
    """Make a task for one world; UnknownNameError lists the available names."""
    factory = TASKS.get(name)
    if factory is None:
        raise UnknownNameError("task", name, TASKS)
    return factory()


def hand_poses_of(name: str) -> dict[str, HandPose]:
    """Forward kinematics of each arm of the task's robot: `X_BE` from joint positions."""
    mounts = mounts_of(make_task(name).schema)
    return {mount.arm: Kinematics(p_BA=mount.p_BA, yaw=mount.yaw).forward for mount in mounts}
