"""What a person says of a LeRobot checkpoint: `Declared`, checked before torch or LeRobot are loaded."""

from dataclasses import dataclass
from pathlib import Path

from policies.files import read_json
from robot_runtime.core.values.action import RowTiming
from robot_runtime.errors import CheckpointError, InvalidValueError


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What a person says of a checkpoint."""

    dataset: Path | None = None
    """That it was trained on; None takes the one its training noted, if it is still there."""
    num_joints: int | None = None
    has_gripper: bool = False
    fps: float | None = None
    """Rows a second."""
    joints: tuple[str, ...] = ()
    """Names that the dataset has for the robot's joints, in the robot's order; those of two arms begin with
    left_ and right_."""
    grippers: tuple[str, ...] = ()
    """Names that the dataset has for the grippers."""
    timing: RowTiming | None = None
    """What a row means in time. None: as the dataset says, and else the command sent, as all of LeRobot's."""
    joint_unit_rad: float | None = None
    """What 1 of a joint is [rad]; None: 1 rad, or unknown if the dataset's names are not ours."""
    convention: str | None = None
    """Of `core.conventions`: what the gripper's number says. None: it is a distance [m]."""
    stroke_m: float | None = None
    """How wide the gripper opens [m]; alone: its number is a share of that."""
    tasks: tuple[str, ...] = ()
    """Texts it was trained on; none: any."""
    are_numbers: bool = False
    """Whether all are plain numbers of a simulator, in its own units: no joints, no grippers."""
    action_names: tuple[str, ...] = ()
    """Without a dataset, what the simulator calls its actions; none: action_1, action_2, ..., as those of a
    Gymnasium environment are called here."""

    def known_dataset(self, folder: Path) -> Path | None:
        """The one that names the numbers of the checkpoint in that folder; None: nothing does.

        InvalidValueError: what was given contradicts itself, or does not say what the numbers are. It takes
        no network and no configuration to see that.
        """
        known = self.dataset or noted_dataset(folder)
        given = {
            "--joints": self.num_joints, "--gripper": self.has_gripper, "--joint-names": self.joints,
            "--gripper-name": self.grippers, "--joint-unit": self.joint_unit_rad,
            "--convention": self.convention, "--gripper-stroke-m": self.stroke_m,
        }  # fmt: skip
        if self.are_numbers and (too_many := [name for name, value in given.items() if value]):
            raise InvalidValueError(
                f"--numbers are a simulator's, which are no joints and no grippers: leave out "
                f"{', '.join(too_many)}"
            )
        if self.action_names and not self.are_numbers:
            raise InvalidValueError("--action-names are those of a simulator: give --numbers too")
        if self.action_names and known is not None:
            raise InvalidValueError(f"the dataset {known} names the actions: leave out --action-names")
        if known is None and (self.joints or self.grippers):
            raise InvalidValueError(
                "names of joints are those of a dataset: give --dataset too, or describe without them and "
                "name the joints in policy.json (docs/lerobot.md)"
            )
        if known is None and (self.fps is None or not (self.are_numbers or self.num_joints)):
            raise InvalidValueError(
                f"{folder} does not say what its numbers are: give --joints and --fps, or --dataset; of a "
                "simulator --numbers and --fps"
            )
        return known


def noted_dataset(folder: Path) -> Path | None:
    """Where the dataset was when LeRobot trained the checkpoint in that folder; None: it is not there now."""
    try:
        noted = read_json(folder / "train_config.json")["dataset"]["root"]
    except (CheckpointError, KeyError, TypeError):
        return None
    is_there = isinstance(noted, str) and noted and (Path(noted) / "meta" / "info.json").is_file()
    return Path(noted) if is_there else None
