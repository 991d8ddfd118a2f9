"""The simulation's interface for commands of other packages; see `robot_runtime.providers`.

Functions import modules that need MuJoCo only when called.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.commands.train_data import demonstrations, training_data
from sim.tasks import HOUSEHOLD_TASKS, TABLE_TASKS, hand_poses_of, make_task

if TYPE_CHECKING:
    from robot_runtime.core.values.action import ActionSpec
    from robot_runtime.dataset.check.dataset import Robot
    from robot_runtime.evaluation.result import Episode
    from robot_runtime.log.reader import RunLog
    from robot_runtime.page.body import Body
    from sim.capture.robot import Target
    from sim.episodes.run_episode import TeleopScene

__all__ = [
    "HOUSEHOLD_TASKS",
    "TABLE_TASKS",
    "action_spec_of",
    "capture_robot",
    "dataset_robot",
    "demonstrations",
    "hand_poses_of",
    "make_task",
    "page_body",
    "recipe_facts",
    "replay_log",
    "run_real_time",
    "teleop_scene",
    "training_data",
]


def run_real_time(task: str, **options: Any) -> "Episode":
    """Call `sim.episodes.run_episode.run_real_time`."""
    from sim.episodes.run_episode import run_real_time

    return run_real_time(task, **options)


def replay_log(log: "RunLog", episode: int, *, video: Path | None) -> str:
    """Call `sim.episodes.replay.on_simulation`."""
    from sim.episodes.replay import on_simulation

    return on_simulation(log, episode, video=video)


def page_body(task: str, columns: Sequence[str]) -> "Body":
    """The robot and scene of a task, for drawing. columns: of the robot's states."""
    from robot_runtime.page.mujoco_body import MujocoBody
    from sim.scene.model import build_model

    return MujocoBody(build_model(make_task(task)), columns)


def dataset_robot(task: str) -> "Robot":
    """Limits and reach of a task's robot, against which a dataset is checked."""
    from robot_runtime.dataset.check.dataset import Robot
    from robot_runtime.dataset.check.reach import Reach, bounds_of
    from sim.scene.drivers import sim_limits
    from sim.scene.world import World

    world = World(make_task(task))
    limits, schema = sim_limits(world), world.task.schema
    joints = {part: arm.names for part, arm in schema.arms.items()}
    hands = {
        part: Reach.of(hand, tuple(f"{part}.{name}" for name in joints[part]), limits.arm(part))
        for part, hand in hand_poses_of(task).items()
    }
    return Robot(bounds_of(limits, joints), hands)


def capture_robot(task: str) -> "Target":
    """Call `sim.capture.robot.of_task`."""
    from sim.capture.robot import of_task

    return of_task(task)


def action_spec_of(task: str) -> "ActionSpec":
    """Call `sim.experts.action_spec_of`."""
    from sim.experts import action_spec_of

    return action_spec_of(task)


def recipe_facts(task: str) -> tuple[int, float]:
    """Facts for a training recipe: rows of a chunk, and the lag of the robot's servos [s]."""
    from sim.experts import action_spec_of
    from sim.scene.model import SERVO_LAG_S

    return action_spec_of(task).horizon, SERVO_LAG_S


def teleop_scene(task: str, **options: Any) -> "TeleopScene":
    """Call `sim.episodes.run_episode.TeleopScene`."""
    from sim.episodes.run_episode import TeleopScene

    return TeleopScene(task, **options)
