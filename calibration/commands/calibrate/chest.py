"""`robot-runtime calibrate chest`: the chest camera in the robot's base, and how it should sit."""

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
    """Where the chest camera sits on the robot's base, and how it has to move to see as the wearer's does.

    FOLDER has pictures and poses.csv (picture,px,py,pz,qw,qx,qy,qz). What its poses are, --poses-of says:
    base: the base's by odometry, while the board stood still; board: the board's in the base, measured; or
    hand: the robot's hand in the base, which held the board. Exit code 1: it cannot be used, and why.

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
    """With --poses-of base: of the board's middle over the floor [m]. A base that drives on a floor cannot
    see its camera's height: it follows from this."""
    lies_flat: bool = False
    """With --poses-of base: the board lies on the floor, which is checked."""
    wearer: Maybe[InputFolder] = None
    """A capture, whose chest camera the robot's should match: in its first seconds the wearer stands
    upright."""
    wearer_height_m: Maybe[Annotated[float, Within(0.1, 3.0)]] = None
    """Of the wearer's camera over the floor then, measured [m]."""
    stands_s: Annotated[float, Within(0.1, 1000.0)] = 3.0
    """How long the wearer stands upright at the capture's begin [s]."""

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
        from calibration.robot_world import solve_robot_world
        from calibration.store import load

        board, camera = load(self.board, Board), load(self.intrinsics, Intrinsics).camera
        if self.poses_of == "base" and self.board_height_m is None:
            raise InvalidValueError(
                "--poses-of base needs --board-height-m: a base that drives on the floor cannot see how high "
                "its camera is; measure the board's middle over the floor"
            )
        views = views_of(shots_of_folder(self.folder), board, camera, say=print)
        places = [view.X_AE for view in views]
        if self.poses_of == "base":
            assert self.board_height_m is not None
            return from_base_motion(
                places, views, camera, board_height_m=self.board_height_m, lies_flat=self.lies_flat
            )
        if self.poses_of == "board":
            return from_places(places, views, camera)
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
