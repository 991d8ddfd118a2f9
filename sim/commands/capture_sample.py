"""`robot-runtime capture sample`: makes a small capture of a simulated person, to try other commands on."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from robot_runtime.cli.options import HouseholdTask, Maybe, NewFolder, Pixels, Seed, Within, need
from robot_runtime.cli.progress import counted
from robot_runtime.error_text import writing


@dataclass(frozen=True, kw_only=True)
class CaptureSample:
    """Make a small simulated capture for trying check, label and replay.

    A simulated rig records a simulated person: clocks, odometry and board corners with all errors of real
    devices; with --images also videos of both cameras. Takes half a minute, with videos two. Exit code 1: no
    demonstration succeeded.

    Example: robot-runtime capture sample --output captures/sample
    """

    output: NewFolder
    """Folder of the capture."""
    task: HouseholdTask = "fetch"
    """Task to demonstrate."""
    demonstrations: Annotated[int, Within(1, 50)] = 2
    """Number of demonstrations; failed ones are marked as discarded."""
    images: Maybe[tuple[Pixels, Pixels]] = None
    """Height and width of videos, in place of positions of things; no videos if not given."""
    seed: Seed = 0
    """Seed of the rooms, the person and the devices."""

    def main(self) -> int:
        need("mujoco", "scipy", "av", "cv2", extras=("sim", "calibration"))
        from robot_runtime.staging import whole_folder
        from sim.capture.session import record_session

        seeds = range(self.seed, self.seed + self.demonstrations)
        with writing(self.output), whole_folder(self.output) as folder, counted(stays=False) as progress:
            bar = progress.add_task("demonstrate and record", total=len(seeds) + 1)
            drawn = progress.add_task("draw images", total=None, visible=self.images is not None)
            clips = record_session(
                self.task,
                seeds,
                folder,
                image_size=self.images,
                on_demonstration=lambda clip: progress.advance(bar),
                on_image=lambda: progress.advance(drawn),
            )
            _keep_capture_alone(folder)
            progress.advance(bar)
        done = sum(clip.success for clip in clips if clip.kind == "demonstration")
        print(f"{self.output}: {done} of {len(seeds)} demonstrations of {self.task} succeeded")
        print(f"next: robot-runtime capture check {self.output}")
        return 0 if done else 1


def _keep_capture_alone(session: Path) -> None:
    """Keep only what a device would have written, and remove the session's hidden ground truth."""
    shutil.rmtree(session / "truth")
    capture = session / "capture"
    for each in capture.iterdir():
        each.rename(session / each.name)
    capture.rmdir()
