"""`robot-runtime describe`: what a LeRobot checkpoint's numbers mean, so that it can be served."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional

from robot_runtime.core.conventions import CONVENTIONS, RAD_PER_DEGREE
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True)
class Describe:
    """Write `robot_runtime.json` beside a LeRobot checkpoint.

    Cameras, sizes and the length of a chunk are the checkpoint's own. What its numbers are is in a dataset of
    `robot-runtime record`; for others, whose state and actions are joints and then the gripper, say so.
    """

    policy: Annotated[str, Positional]
    """Folder that LeRobot has saved it in, or hf://OWNER/NAME."""
    dataset: Path | None = None
    """That it was trained on; if not given, the one LeRobot's training noted, if it is still there."""
    joints: int | None = None
    """Without a dataset: of the arm."""
    fps: float | None = None
    """Without a dataset: rows a second."""
    gripper: bool = False
    """Without a dataset: the last number of an action, and of the state, is a gripper's."""
    joint_names: tuple[str, ...] = ()
    """What the dataset calls the robot's joints, in the robot's order, if not joint_0, joint_1, ..."""
    gripper_name: str | None = None
    """What the dataset calls the gripper, if not gripper_width."""
    joint_unit: Literal["rad", "degrees"] | None = None
    """Of its numbers for joints; to be said if their names are not ours."""
    convention: Literal[*CONVENTIONS] | None = None  # type: ignore[valid-type]
    """What its number for the gripper says, open and closed; if not given: a distance [m]."""
    gripper_stroke_m: float | None = None
    """How wide the gripper opens; alone: its number is a share of that, 1 open."""
    tasks: tuple[str, ...] = ()
    """Texts it was trained on; none: any."""

    def main(self) -> int:
        """Write the file and say what was found; returns the exit code."""
        from policies.lerobot_describe import Told, describe
        from policies.loading import local_folder

        fits = self.joints is None or self.joints >= 1
        fits &= self.fps is None or 0.0 < self.fps < 1000.0
        if not fits or (self.gripper_stroke_m is not None and not 0.0 < self.gripper_stroke_m < 1.0):
            raise InvalidValueError(
                "need joints >= 1, fps in (0, 1000) and a stroke in (0, 1) m, "
                f"got {self.joints}, {self.fps} and {self.gripper_stroke_m}"
            )
        units = {None: None, "rad": 1.0, "degrees": RAD_PER_DEGREE}
        told = Told(
            dataset=self.dataset,
            num_joints=self.joints,
            has_gripper=self.gripper,
            fps=self.fps,
            joints=self.joint_names,
            gripper=self.gripper_name,
            joint_unit_rad=units[self.joint_unit],
            convention=self.convention,
            stroke_m=self.gripper_stroke_m,
            tasks=self.tasks,
        )
        sidecar = describe(local_folder(self.policy), told)
        cameras = ", ".join(f"{name} {h} x {w}" for name, (h, w) in sidecar.schema.cameras.items())
        fields = ", ".join(type(field).__name__ for field in sidecar.action_spec.fields)
        print(f"chunks of {sidecar.action_spec.horizon} rows of {fields}; cameras: {cameras or 'none'}")
        print(f"its state: {', '.join(sidecar.state_names)}")
        print(f"robot-runtime serve --policy {self.policy}")
        return 0
