"""Declarations on a LeRobot checkpoint: `Declared`, checked before torch or LeRobot are loaded."""

from dataclasses import dataclass
from pathlib import Path

from policies.files import read_json
from robot_runtime.core.values.action import RowTiming
from robot_runtime.errors import CheckpointError, InvalidValueError


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A user's declarations on a checkpoint."""

    dataset: Path | None = None
    """Dataset that it was trained on; None takes the one its training recorded, if it still exists."""
    num_joints: int | None = None
    has_gripper: bool = False
    fps: float | None = None
    """Rows per second."""
    joints: tuple[str, ...] = ()
    """The dataset's names of the robot's joints, in the robot's order; with two arms they begin with left_
    and right_."""
    grippers: tuple[str, ...] = ()
    """The dataset's names of the grippers."""
    timing: RowTiming | None = None
    """Meaning of a row in time. None: as the dataset declares, else the command sent, as in LeRobot."""
    joint_unit_rad: float | None = None
    """Unit of a joint's number [rad]; None: 1 rad, or unknown if the dataset's names are not ours."""
    convention: str | None = None
    """Convention of the gripper's number, from `core.conventions`. None: it is a distance [m]."""
    stroke_m: float | None = None
    """Opening of the gripper [m]; without a convention, its number is a share of that."""
    tasks: tuple[str, ...] = ()
    """Task texts that it was trained on; empty for any."""
    are_numbers: bool = False
    """Whether all numbers are a simulator's, in its own units, without joints or grippers."""
    action_names: tuple[str, ...] = ()
    """Without a dataset, the simulator's names of its actions; empty for action_1, action_2, ..., the names
    that a Gymnasium environment gets here."""

    def known_dataset(self, folder: Path) -> Path | None:
        """The dataset that names the numbers of the checkpoint in that folder; None if there is none.

        InvalidValueError: the declarations contradict each other or leave the numbers undeclared, which shows
        without the network or its configuration.
        """
        known = self.dataset or noted_dataset(folder)
        given = {
            "--joints": self.num_joints, "--gripper": self.has_gripper, "--joint-names": self.joints,
            "--gripper-name": self.grippers, "--joint-unit": self.joint_unit_rad,
            "--convention": self.convention, "--gripper-stroke-m": self.stroke_m,
        }  # fmt: skip
        if self.are_numbers and (too_many := [name for name, value in given.items() if value]):
            raise InvalidValueError(
                f"--numbers declares numbers of a simulator, not joints or grippers; leave out "
                f"{', '.join(too_many)}"
            )
        if self.action_names and not self.are_numbers:
            raise InvalidValueError("--action-names names a simulator's actions; add --numbers")
        if self.action_names and known is not None:
            raise InvalidValueError(f"the dataset {known} names the actions; leave out --action-names")
        if known is None and (self.joints or self.grippers):
            raise InvalidValueError(
                "joint and gripper names refer to a dataset; add --dataset, or describe without them and "
                "name the joints in policy.json (docs/lerobot.md)"
            )
        if known is None and (self.fps is None or not (self.are_numbers or self.num_joints)):
            raise InvalidValueError(
                f"{folder} does not declare what its numbers are; add --joints and --fps, or --dataset, or "
                "for a simulator --numbers and --fps"
            )
        return known


def noted_dataset(folder: Path) -> Path | None:
    """The dataset on which LeRobot trained the checkpoint in that folder; None if it no longer exists."""
    try:
        noted = read_json(folder / "train_config.json")["dataset"]["root"]
    except (CheckpointError, KeyError, TypeError):
        return None
    is_there = isinstance(noted, str) and noted and (Path(noted) / "meta" / "info.json").is_file()
    return Path(noted) if is_there else None
