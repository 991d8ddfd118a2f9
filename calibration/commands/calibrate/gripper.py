"""`robot-runtime calibrate gripper`: calibrates a gripper's width against the distance of two finger tags."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from calibration.commands.calibrate.result import keep
from calibration.commands.calibrate.sources import pictures_of
from robot_runtime.cli.options import AnyCount, InputFile, OutputFile, Within, need
from robot_runtime.cli.progress import counted
from robot_runtime.errors import InvalidValueError

Metres = Annotated[float, Within(0.0, 1.0)]


@dataclass(frozen=True, kw_only=True)
class CalibrateGripper:
    """Calibrate a gripper's width from two tags on its fingers.

    Uses a clip in which the gripper closes and opens fully three times, and pauses at each end. Exit code 1:
    the result is not usable, and the reason is printed.

    Example: robot-runtime calibrate gripper clip.mp4 --intrinsics hand.json --open-m 0.08
    --output gripper.json
    """

    source: Annotated[str, Positional]
    """A video, a folder of images in order, or a capture."""
    intrinsics: InputFile
    """camera.json of the hand's camera, by `calibrate intrinsics`."""
    output: OutputFile
    """File to write."""
    open_m: Annotated[float, Within(0.001, 1.0)]
    """Width of the fully open gripper, measured [m]."""
    closed_m: Metres = 0.0
    """Width of the closed gripper [m]."""
    left: AnyCount = 0
    """Number of the tag on the finger that is on the left in the image."""
    right: AnyCount = 1
    tag_m: Annotated[float, Within(0.002, 1.0)] = 0.016
    """Side length of a tag [m]."""
    dictionary: str = "4X4_50"
    role: str = "hand"
    """Device of the capture."""

    def main(self) -> int:
        need("cv2", extras=("calibration",))
        from calibration.camera import Intrinsics
        from calibration.gripper import calibrate, find_tags
        from calibration.store import load

        if not Path(self.source).exists():
            raise InvalidValueError(f"SOURCE names a video, a folder or a capture; there is no {self.source}")
        camera = load(self.intrinsics, Intrinsics).camera
        seen = []
        with counted(stays=False) as progress:
            bar = progress.add_task("pictures", total=None)
            for _, picture in pictures_of(Path(self.source), self.role):
                seen.append(find_tags(picture, camera, dictionary=self.dictionary, tag_m=self.tag_m))
                progress.advance(bar)
        found = calibrate(
            seen,
            left=self.left,
            right=self.right,
            tag_m=self.tag_m,
            dictionary=self.dictionary,
            width_open_m=self.open_m,
            width_closed_m=self.closed_m,
        )
        rows = {
            "tags": f"{found.left} left, {found.right} right, {1e3 * found.z_m:.1f} mm before the camera",
            "closed": f"{1e3 * found.distance_closed_m:.2f} mm between the tags",
            "width": f"{1e3 * found.width_closed_m:.1f} mm + {found.slope:.3f} x what they are farther apart",
            "pictures": str(len(seen)),
        }
        return keep(self.output, found, rows)
