"""A robot's model for pages, by name: `body_named`.

robot.urdf, robot.xml    a file
fr3                      a Franka Research 3 with its gripper, as franky-sim ships it
task:fetch               a simulated task's robot and its scene
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from robot_runtime.errors import InvalidValueError
from robot_runtime.providers import provider

if TYPE_CHECKING:
    from robot_runtime.page.body import Body

FR3 = "fr3"
TASK = "task:"


def body_named(model: str, columns: Sequence[str]) -> "Body | None":
    """None: the model is not here, so that the robot's end effectors and bases are shown as frames.

    columns: of the robot's states. InvalidValueError: the file is unreadable, or not a model.
    """
    from robot_runtime.page.load_body import load_body

    if not model:
        return None
    if model.startswith(TASK):
        return _of_task(model.removeprefix(TASK), columns)
    if model == FR3:
        found = find_spec("franky_sim")
        if found is None or found.origin is None:
            return None
        return load_body(Path(found.origin).parent / "assets" / "fr3.xml", columns)
    return load_body(Path(model), columns)


def _of_task(task: str, columns: Sequence[str]) -> "Body | None":
    if find_spec("mujoco") is None:
        return None
    body: Body = provider("simulation").page_body(task, columns)
    return body


def check_model(model: str) -> None:
    """InvalidValueError: it names a file that does not exist."""
    if model and model != FR3 and not model.startswith(TASK) and not Path(model).is_file():
        raise InvalidValueError(f"a robot's model is a file, .urdf or .xml, or {FR3}; there is no {model}")
