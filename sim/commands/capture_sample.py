"""`robot-runtime capture sample`: a small capture of a simulated person, to try the other commands on."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from robot_runtime.cli.options import HouseholdTask, NewFolder, Seed, Within, need
from robot_runtime.cli.progress import counted
from robot_runtime.error_text import writing


@dataclass(frozen=True, kw_only=True)
class CaptureSample:
    """Make a small capture to try check, label and replay on: a simulated person, by a simulated rig.

    It has clocks, odometry and corners of the board as devices have them, with all their errors, and no
    pictures. Takes half a minute. Exit code 1: no demonstration came off.

    Example: robot-runtime capture sample --output captures/sample
    """

    output: NewFolder
    """The capture's folder."""
    task: HouseholdTask = "fetch"
    """What is demonstrated."""
    demonstrations: Annotated[int, Within(1, 50)] = 2
    """How often. One that fails is in it as a discarded one."""
    seed: Seed = 0
    """Decides the rooms, the person and the devices."""

    def main(self) -> int:
        need("mujoco", "scipy", "av", "cv2", extras=("sim", "calibration"))
        from robot_runtime.staging import whole_folder
        from sim.capture.recorded import record_session

        seeds = range(self.seed, self.seed + self.demonstrations)
        with writing(self.output), whole_folder(self.output) as place, counted(stays=False) as progress:
            bar = progress.add_task("demonstrate and record", total=len(seeds) + 1)
            clips = record_session(
                self.task, seeds, place, on_demonstration=lambda clip: progress.advance(bar)
            )
            _keep_capture_alone(place)
            progress.advance(bar)
        done = sum(clip.success for clip in clips if clip.kind == "demonstration")
        print(f"{self.output}: {done} of {len(seeds)} demonstrations of {self.task} came off")
        print(f"next: robot-runtime capture check {self.output}")
        return 0 if done else 1


def _keep_capture_alone(session: Path) -> None:
    """Of a session with its hidden truth, what a device would have written."""
    shutil.rmtree(session / "truth")
    capture = session / "capture"
    for each in capture.iterdir():
        each.rename(session / each.name)
    capture.rmdir()
