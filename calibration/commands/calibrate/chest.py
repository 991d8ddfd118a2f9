"""`robot-runtime calibrate chest`: calibrates the chest camera's pose in the robot's base."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional

from calibration.commands.calibrate.result import keep, pose_words, sigma_words
from calibration.commands.calibrate.shots import shots_of_folder, views_of
from calibration.commands.calibrate.sources import device_of
from robot_runtime.cli.options import InputFile, InputFolder, Maybe, OutputFile, Within, need
from robot_runtime.errors import InvalidValueError

if TYPE_CHECKING:
    from calibration.chest import ChestCamera, Mount


@dataclass(frozen=True, kw_only=True)
class CalibrateChest:
    """Calibrate the pose of the chest camera on the robot's base.

    FOLDER has images and poses.csv (picture,px,py,pz,qw,qx,qy,qz). --poses-of selects what its poses are:
    base: those of the base by odometry, while the board was stationary; board: those of the board in the
    base, measured; hand: those of the robot's end effector in the base, which held the board. With --wearer,
    prints how to move the camera so that it sees as the wearer's does. Exit code 1: the result is not usable,
    and the reason is printed.

    Example: robot-runtime calibrate chest drive --poses-of base --board-height-m 0.004 --lies-flat
    --board board/board.json --intrinsics chest_lens.json --output chest.json
    """

    folder: Annotated[InputFolder, Positional]
    board: InputFile
    """board.json of `calibrate board`."""
    intrinsics: InputFile
    """camera.json of `calibrate intrinsics`."""
    output: OutputFile
    """File to write."""
    poses_of: Literal["base", "board", "hand"] = "base"
    board_height_m: Maybe[Annotated[float, Within(0.0, 5.0)]] = None
    """With --poses-of base: height of the board's centre above the floor [m]. It fixes the camera's height,
    which the motion of a base on a floor does not determine."""
    lies_flat: bool = False
    """With --poses-of base: the board lies on the floor; this is checked."""
    wearer: Maybe[InputFolder] = None
    """Capture whose chest camera the robot's camera should match; the wearer is upright in its first
    seconds."""
    wearer_height_m: Maybe[Annotated[float, Within(0.1, 3.0)]] = None
    """Height of the wearer's camera above the floor at that time, measured [m]."""
    stands_s: Annotated[float, Within(0.1, 1000.0)] = 3.0
    """How long the wearer is upright at the beginning of the capture [s]."""

    def main(self) -> int:
        need("scipy", "cv2", "av", extras=("calibration",))
        from calibration.chest import advice

        found = self._found()
        mount = found.mount
        rows = {
            "camera in the base": pose_words(found.X_GC),
            "uncertain by": sigma_words(found.covariance),
            "it looks": _words(mount),
            "by": f"{found.source}, {found.num_views} views",
        }
        to_do = []
        if self.wearer is not None:
            wearer = self._wearer(self.wearer)
            rows["the wearer's looks"] = _words(wearer)
            to_do = advice(mount, wearer) or ["nothing: the robot's camera sits as the wearer's does"]
        return keep(self.output, found, rows, to_do=to_do)

    def _found(self) -> "ChestCamera":
        from calibration.board import Board
        from calibration.camera import Intrinsics
        from calibration.chest import from_base_motion, from_hand, from_places
        from calibration.hand_eye import solve_robot_world
        from calibration.store import load

        board, camera = load(self.board, Board), load(self.intrinsics, Intrinsics).camera
        if self.poses_of == "base" and self.board_height_m is None:
            raise InvalidValueError(
                "--poses-of base needs --board-height-m: a base that drives on the floor cannot see how high "
                "its camera is; measure the board's middle over the floor"
            )
        views = views_of(shots_of_folder(self.folder), board, camera, say=print)
        poses = [view.X_AE for view in views]
        if self.poses_of == "base":
            assert self.board_height_m is not None
            return from_base_motion(
                poses, views, camera, board_height_m=self.board_height_m, lies_flat=self.lies_flat
            )
        if self.poses_of == "board":
            return from_places(poses, views, camera)
        return from_hand(solve_robot_world(views, camera))

    def _wearer(self, path: Path) -> "Mount":
        from calibration.chest import Mount

        poses = device_of(path, "chest").poses
        until_ns = int(poses.t_ns[0]) + round(self.stands_s * 1e9)
        stood = [poses[i] for i in range(len(poses)) if poses.t_ns[i] <= until_ns]
        if self.wearer_height_m is None:
            raise InvalidValueError(
                "--wearer needs --wearer-height-m: a capture's world has no floor; measure the wearer's "
                "camera over it"
            )
        floor_z = float(stood[0].translation[2]) - self.wearer_height_m
        return Mount.of_wearer(stood, floor_z=floor_z)


def _words(mount: "Mount") -> str:
    import numpy as np

    return (
        f"{np.rad2deg(mount.pitch):.1f} degrees below the horizon, rolled by {np.rad2deg(mount.roll):.1f}, "
        "from "
        f"{mount.height_m:.3f} m"
    )
