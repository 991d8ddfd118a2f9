"""`robot-runtime describe`: what a LeRobot checkpoint's numbers mean, so that it can be served."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

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
        from policies.loading import local_folder

        fits = self.joints is None or self.joints >= 1
        fits &= self.fps is None or 0.0 < self.fps < 1000.0
        if not fits or not self.gripper_stroke_m > 0.0:
            raise InvalidValueError(
                "need joints >= 1, fps in (0, 1000) and a stroke above 0, "
                f"got {self.joints}, {self.fps} and {self.gripper_stroke_m:g}"
            )
        sidecar = describe(
            local_folder(self.policy),
            dataset=self.dataset,
            num_joints=self.joints,
            has_gripper=self.gripper,
            fps=self.fps,
            tasks=self.tasks,
            joint_unit_rad=math.pi / 180 if self.degrees else 1.0,
            gripper_unit_m=self.gripper_stroke_m,
        )
        cameras = ", ".join(f"{name} {h} x {w}" for name, (h, w) in sidecar.schema.cameras.items())
        fields = ", ".join(type(field).__name__ for field in sidecar.action_spec.fields)
        print(f"chunks of {sidecar.action_spec.horizon} rows of {fields}; cameras: {cameras or 'none'}")
        print(f"its state: {', '.join(sidecar.state_names)}")
        print(f"robot-runtime serve --policy {self.policy}")
        return 0
