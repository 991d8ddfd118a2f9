"""`robot-runtime describe`: what a LeRobot checkpoint's numbers mean, so that it can be served."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True)
class Describe:
    """Write `robot_runtime.json` beside a LeRobot checkpoint, for robots whose actions are joint positions.

    Cameras, sizes and the length of a chunk are the checkpoint's own.
    """

    folder: Annotated[Path, Positional]
    """Where LeRobot has saved the policy."""
    joints: int
    """Of the arm."""
    fps: float
    """Rows a second, as in the dataset it was trained on."""
    gripper: bool = False
    """The last number of an action, and of the state, is the width of a gripper."""
    degrees: bool = False
    """Joints are in degrees, as with LeRobot's own arms, and not in rad."""
    gripper_stroke_m: float = 1.0
    """What the gripper's number 1 means; 0.08 for a share of a Franka hand's stroke."""
    tasks: tuple[str, ...] = ()
    """Texts it was trained on; none: any."""

    def main(self) -> int:
        """Write the file and say what was found; returns the exit code."""
        from policies.lerobot_describe import describe

        if self.joints < 1 or not 0.0 < self.fps < 1000.0 or not self.gripper_stroke_m > 0.0:
            raise InvalidValueError(
                "need joints >= 1, fps in (0, 1000) and a stroke above 0, "
                f"got {self.joints}, {self.fps:g} and {self.gripper_stroke_m:g}"
            )
        sidecar = describe(
            self.folder,
            num_joints=self.joints,
            has_gripper=self.gripper,
            fps=self.fps,
            tasks=self.tasks,
            joint_unit_rad=math.pi / 180 if self.degrees else 1.0,
            gripper_unit_m=self.gripper_stroke_m,
        )
        cameras = ", ".join(f"{name} {h} x {w}" for name, (h, w) in sidecar.schema.cameras.items())
        print(f"chunks of {sidecar.action_spec.horizon} rows; cameras: {cameras or 'none'}")
        print(f"robot-runtime serve --policy {self.folder}")
        return 0
