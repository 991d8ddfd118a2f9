"""`robot-runtime describe`: describes the inputs and outputs of a LeRobot checkpoint for serving."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import Positional

from robot_runtime.cli.options import InputFolder, Maybe, Several, Within, check_option, need
from robot_runtime.core.values.action import RowTiming
from robot_runtime.core.values.conventions import CONVENTIONS, RAD_PER_DEGREE


@dataclass(frozen=True, kw_only=True)
class Describe:
    """Describe the inputs and outputs of a LeRobot checkpoint so that it can be served.

    Writes `policy.json` beside the checkpoint of a policy trained with LeRobot. Cameras, sizes and the length
    of a chunk come from the checkpoint, the meaning of the numbers from its dataset. Without a dataset, state
    and actions are read as joints followed by the gripper, or with --numbers as those of a simulator.
    """

    policy: Annotated[str, Positional]
    """Folder of the policy as LeRobot saved it, or hf://OWNER/NAME."""
    dataset: Maybe[InputFolder] = None
    """Dataset that the policy was trained on; the one that LeRobot's training recorded if not given."""
    joints: Maybe[Annotated[int, Within(1, 1000)]] = None
    """Without a dataset: number of joints of the arm."""
    fps: Maybe[Annotated[float, Within(0.001, 1000)]] = None
    """Without a dataset: rows of a chunk per second, which are the steps of a simulator."""
    gripper: bool = False
    """Without a dataset: the last number of the state and of an action is the gripper."""
    joint_names: Several[str] = ()
    """Names of the robot's joints in the dataset, in the robot's order, if the robot names them joint_1,
    joint_2, ... and the dataset does not; names of two arms begin with left_ and right_."""
    gripper_name: Several[str] = ()
    """Name of the gripper in the dataset, or of the left and right one, if the names do not show it."""
    row_timing: Maybe[Literal["sent", "reached"]] = None
    """Meaning of a row at its time. sent: the command to send and hold, as in LeRobot's datasets; reached:
    the position to have reached. As the dataset declares if not given, else sent."""
    joint_unit: Maybe[Literal["rad", "degrees"]] = None
    """Unit of the joints' numbers; required if the dataset's names are not those of `record`."""
    convention: Maybe[Literal[*CONVENTIONS]] = None  # type: ignore[valid-type]
    """Robot whose convention the gripper's number follows for open and closed; a distance [m] if not
    given."""
    gripper_stroke_m: Maybe[Annotated[float, Within(0, 1, is_above=True)]] = None
    """Opening of the gripper [m]; without --convention its number is a share of that, with 1 for open."""
    numbers: bool = False
    """All numbers are those of a simulator, in its own units, for eval --env: no joints and no gripper. A
    dataset names them as the env does; without one, the state is the env's whole observation, in its
    order."""
    action_names: Several[str] = ()
    """With --numbers and without a dataset: the env's names of its actions, if not action_1, action_2, ..."""
    tasks: Several[str] = ()
    """Instructions that the policy was trained on; any if not given."""

    def main(self) -> int:
        """Write the file and print the description; return the exit code."""
        from policies.lerobot.declared import Declared
        from policies.load import local_folder

        check_option("POLICY", InputFolder, folder := local_folder(self.policy))
        need("lerobot", "torch")
        units = {None: None, "rad": 1.0, "degrees": RAD_PER_DEGREE}
        declared = Declared(
            dataset=self.dataset,
            num_joints=self.joints,
            has_gripper=self.gripper,
            fps=self.fps,
            joints=self.joint_names,
            grippers=self.gripper_name,
            timing=None if self.row_timing is None else RowTiming(self.row_timing),
            joint_unit_rad=units[self.joint_unit],
            convention=self.convention,
            stroke_m=self.gripper_stroke_m,
            tasks=self.tasks,
            are_numbers=self.numbers,
            action_names=self.action_names,
        )
        declared.known_dataset(folder)
        from policies.lerobot.describe import describe  # takes seconds

        metadata = describe(folder, declared)
        cameras = ", ".join(f"{name} {h} x {w}" for name, (h, w) in metadata.info.schema.cameras.items())
        spec = metadata.info.action_spec
        rows = "the command sent then" if spec.timing is RowTiming.SENT else "the place to be then"
        print(f"chunks of {spec.horizon} rows, each {rows}: {', '.join(spec.names)}")
        print(f"cameras: {cameras or 'none'}")
        print(f"its state: {', '.join(metadata.state_names)}")
        print(f"robot-runtime serve --policy {self.policy}")
        return 0
