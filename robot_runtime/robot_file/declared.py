"""The limits that a robot's file declares, without any device: `declared_limits`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from robot_runtime.core.plan.limits import Limits
from robot_runtime.errors import InvalidValueError, placed
from robot_runtime.robot_file import RobotFile
from robot_runtime.robot_file.limits import limits_of
from robot_runtime.robot_file.names import data_sheet


@dataclass(frozen=True)
class _Joints:
    """The part of a driver that `limits_of` uses."""

    num_joints: int


def declared_limits(path: Path, joints: Mapping[str, tuple[str, ...]]) -> Limits:
    """
    joints: names of the joints of each part; parts that are not named have none.
    InvalidValueError: the file is invalid, or declares no limits of these parts.
    """
    tables = RobotFile.load(path).table.get("parts", {})
    found = {}
    for part, table in tables.items():
        if "limits" not in table:
            continue
        driver = _Joints(len(joints[part])) if part in joints else None
        try:
            sheets = partial(data_sheet, folder=path.parent)
            found[part] = limits_of(f"parts.{part}.limits", table["limits"], driver, part, sheets)
        except InvalidValueError as error:
            raise placed(error, path) from error
    if not found:
        raise InvalidValueError(f"{path} declares no limits: nothing to check a dataset against")
    return Limits(found)
