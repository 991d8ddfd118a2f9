"""Loads a robot's model from a file: `load_body`."""

from collections.abc import Iterable
from pathlib import Path

from robot_runtime.errors import InvalidValueError
from robot_runtime.page.body import Body


def load_body(path: Path, columns: Iterable[str]) -> Body:
    """Load a model; InvalidValueError: the file is unreadable, or not a model."""
    if not path.is_file():
        raise InvalidValueError(f"a robot's model is a file, and there is no {path}")
    match path.suffix:
        case ".urdf":
            from robot_runtime.page.urdf_body import UrdfBody

            return UrdfBody(path, columns)
        case ".xml":
            from robot_runtime.page.mujoco_body import MujocoBody

            return MujocoBody.load(path, columns)
    raise InvalidValueError(f"a robot's model ends in .urdf or .xml (MuJoCo), got {path}")
