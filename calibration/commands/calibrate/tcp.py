"""`robot-runtime calibrate tcp`: calibrates the tip's position in the hand's camera or on the flange."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pinocchio as pin
from tyro.conf import Positional

from calibration.commands.calibrate.result import keep, pose_words
from calibration.commands.calibrate.sources import pictures_of, poses_of
from robot_runtime.cli.options import AnyCount, InputFile, Maybe, OutputFile, Within, need
from robot_runtime.errors import InvalidValueError

Offset = Annotated[float, Within(-0.4, 0.4)]
"""[m]"""


@dataclass(frozen=True, kw_only=True)
class CalibrateTcp:
    """Calibrate the position of a gripper's tip in its camera, or on an arm's flange.

    Uses one of three: SOURCE with poses while the tip stayed on one point and the gripper was tilted to all
    sides (a pivot); SOURCE with images of a --tag at the tip; or a --preset. Exit code 1: the result is not
    usable.

    Example: robot-runtime calibrate tcp captures/pivot --from-s 4 --to-s 14 --output tcp.json
    """

    source: Annotated[Maybe[str], Positional] = None
    """A capture, a device's file as for `capture import` (KIND:FILE,option=value), or a table of poses (CSV
    with columns px,py,pz,qw,qx,qy,qz); with --tag, images."""
    output: OutputFile
    """File to write."""
    preset: Maybe[Literal["umi"]] = None
    """Known gripper. umi: UMI's printed gripper with a GoPro, by its drawings."""
    role: str = "hand"
    """Device of the capture."""
    from_s: Annotated[float, Within(0, 1e6)] = 0.0
    """Time at which the tip reached its point, counted from the first pose [s]."""
    to_s: Maybe[Annotated[float, Within(0.001, 1e6)]] = None
    """Time at which the tip left it [s]; the last pose if not given."""
    tag: Maybe[AnyCount] = None
    """Number of a tag fixed to the tip."""
    tag_m: Annotated[float, Within(0.002, 1.0)] = 0.016
    """Side length of the tag [m]."""
    dictionary: str = "4X4_50"
    intrinsics: Maybe[InputFile] = None
    """camera.json of the camera, for --tag."""
    tip_in_tag: tuple[Offset, Offset, Offset] = (0.0, 0.0, 0.0)
    """Position of the tip in the tag's frame (x right, y down, z into the tag) [m]."""

    def main(self) -> int:
        need("scipy", "cv2", "av", extras=("calibration",))
        from calibration.tcp import UMI_GRIPPER, from_tags, solve_pivot

        if self.preset is not None:
            found = UMI_GRIPPER
        elif self.source is None:
            raise InvalidValueError(
                "SOURCE is needed, or --preset: a capture in which the tip stood in one point and the "
                "gripper was leant to all sides; docs/calibration_robot.md says how to record it"
            )
        elif self.tag is not None:
            found = from_tags(self._sightings(), pin.SE3(np.eye(3), np.array(self.tip_in_tag)))
        else:
            poses = poses_of(self.source, self.role, from_s=self.from_s, to_s=self.to_s)
            step = max(len(poses) // 400, 1)  # neighbours add nothing new
            found = solve_pivot(poses[::step])
        rows = {
            "tip": pose_words(found.X_HE),
            "uncertain by": ", ".join(f"{1e3 * each:.2f}" for each in found.sigma_m) + " mm along x, y, z",
            "by": found.source,
            "of": f"{found.num_poses} poses",
        }
        return keep(self.output, found, rows)

    def _sightings(self) -> list[pin.SE3]:
        from calibration.camera import Intrinsics
        from calibration.gripper import find_tags
        from calibration.store import load

        if self.intrinsics is None or self.source is None:
            raise InvalidValueError("--tag needs --intrinsics, the camera that sees it")
        camera = load(self.intrinsics, Intrinsics).camera
        out = []
        for _, picture in pictures_of(Path(self.source), self.role):
            tags = find_tags(picture, camera, dictionary=self.dictionary, tag_m=self.tag_m)
            out += [each.X_HT for each in tags if each.number == self.tag and each.X_HT is not None]
        return out
