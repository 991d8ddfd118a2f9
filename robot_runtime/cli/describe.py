"""`robot-runtime describe`: what a LeRobot checkpoint's numbers mean, so that it can be served."""

import math
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional

from robot_runtime.cli.options import InputFolder, Maybe, Several, Within, check_option, need


@dataclass(frozen=True, kw_only=True)
class Describe:
    """Say what the numbers of a LeRobot checkpoint mean, so that it can be served.

    For whoever has trained a policy with LeRobot. Writes `robot_runtime.json` beside the checkpoint. Cameras,
    sizes and the length of a chunk are read from the checkpoint, the meaning of the numbers from a dataset of
    `robot-runtime record`. Without such a dataset, state and actions are taken as joints and then the
    gripper.
    """

    policy: Annotated[str, Positional]
    """Folder in which LeRobot has saved the policy, or hf://OWNER/NAME."""
    dataset: Maybe[InputFolder] = None
    """Dataset that the policy was trained on; if not given, the one that LeRobot's training noted."""
    joints: Maybe[Annotated[int, Within(1, 1000)]] = None
    """Without a dataset: number of joints of the arm."""
    fps: Maybe[Annotated[float, Within(0.001, 1000)]] = None
    """Without a dataset: rows of a chunk per second."""
    gripper: bool = False
    """The last number of the state and of an action is the width of a gripper."""
    degrees: bool = False
    """Joint angles are in degrees, as with LeRobot's own arms, and not in rad."""
    gripper_stroke_m: Annotated[float, Within(0, 1000, is_above=True)] = 1.0
    """Width that the gripper's number 1 stands for [m]: 0.08 if it is a share of a Franka hand's stroke."""
    tasks: Several[str] = ()
    """Instructions that the policy was trained on; any if not given."""

    def main(self) -> int:
        """Write the file and say what was found; returns the exit code."""
        from policies.loading import local_folder

        check_option("POLICY", InputFolder, folder := local_folder(self.policy))
        need("lerobot", "torch")
        from policies.lerobot_describe import describe  # takes seconds

        sidecar = describe(
            folder,
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
