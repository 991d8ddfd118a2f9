"""`robot-runtime calibrate hand-eye` and `robot-world`: a camera on an arm, and one beside it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional

from robot_runtime.cli.calibrate.result import keep, pose_words, sigma_words
from robot_runtime.cli.calibrate.shots import Shot, ShotsFolder, shots_of_folder, shots_of_log, views_of
from robot_runtime.cli.options import Count, InputFile, Maybe, OutputFile, OutputFolder, Several, need
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True)
class _ArmViews:
    """What both commands take."""

    source: Annotated[str, Positional]
    """Where pictures and poses come from: a folder with pictures and poses.csv
    (picture,px,py,pz,qw,qx,qy,qz), the log of a run (.mcap), or a robot that is here (robot.toml, or what
    `run --robot` takes)."""
    board: InputFile
    """The board that is seen, board.json of `calibrate board`."""
    intrinsics: InputFile
    """The camera, camera.json of `calibrate intrinsics`."""
    output: OutputFile
    """File to write."""
    camera: Maybe[str] = None
    """Which camera of the log or the robot, if it has several."""
    part: Maybe[str] = None
    """Which arm, if there are several."""
    views: Count = 20
    """Of a robot: how many to take; Ctrl-C ends it with those there are."""
    poses: Maybe[InputFile] = None
    """Of a robot: the arm goes there by itself, slowly. A CSV file with a row of joint positions [rad] for
    each place, columns joint_1,joint_2,... If not given, a person moves the arm, and views are taken where it
    stands."""
    keep_shots: Maybe[OutputFolder] = None
    """Of a robot: keep its pictures and poses in this folder, to calibrate from again."""
    set: Several[str] = ()
    """Over what robot.toml says."""
    yes: bool = False
    """The arm may move to --poses; asks on the terminal if not given."""

    def _found(self, lacking: Callable[[Sequence[Any]], list[str]]) -> tuple[Sequence[Any], Any]:
        """Views and camera."""
        from calibration.board import Board
        from calibration.camera import Intrinsics
        from calibration.store import load

        board, camera = load(self.board, Board), load(self.intrinsics, Intrinsics).camera
        path = Path(self.source)
        if path.is_dir():
            return views_of(_counted(shots_of_folder(path), path), board, camera, say=print), camera
        if path.suffix == ".mcap":
            from robot_runtime.log.reader import RunLog

            shots = shots_of_log(RunLog.open(path), camera=self.camera, part=self.part)
            return views_of(_counted(shots, path), board, camera, say=print), camera
        if path.suffix in (".csv", ".png", ".jpg", ".mp4"):
            raise InvalidValueError(
                f"{path}: expected a folder with poses.csv, a run's log, or a robot's file"
            )
        return self._live(board, camera, lacking), camera

    def _live(self, board: Any, camera: Any, lacking: Callable[[Sequence[Any]], list[str]]) -> Sequence[Any]:
        from robot_runtime.cli.calibrate.live_shots import LiveShots, ask, read_places, refuse_out_of_limits
        from robot_runtime.cli.robot_file import open_robot
        from robot_runtime.cli.run import Orders
        from robot_runtime.clock import MonotonicClock
        from robot_runtime.robot.watched_switch import is_held

        with ExitStack() as held:
            opened = held.enter_context(open_robot(self.source, self.set))
            orders = held.enter_context(Orders())
            hold = opened.options.get("hold_to_run")
            live = LiveShots(
                opened,
                part=self.part,
                camera=self.camera,
                board=board,
                say=print,
                should_stop=lambda: bool(orders.signals) or not is_held(hold),
            )
            if self.poses is None:
                print("Move the arm, and let its hand stand at each place for half a second; Ctrl-C ends it.")
                shots = live.by_person(self.views)
            else:
                places = read_places(self.poses, live.joint_names)
                refuse_out_of_limits(places, opened.robot.limits, live.part, self.poses)
                ask(live.part, len(places), yes=self.yes)
                shots = live.by_itself(places, clock=MonotonicClock())
            orders.on_tick()
            folder = None if self.keep_shots is None else ShotsFolder(self.keep_shots)
            return views_of(_guided(shots, folder, lacking), board, camera, say=print)


@dataclass(frozen=True, kw_only=True)
class CalibrateHandEye(_ArmViews):
    """Where a camera sits on an arm's hand, from views of a board that stands still.

    Ten views or more; turn the hand by 20 degrees and more about two directions, and look at the board from
    aside. Says what is lacking while views are taken. Exit code 1: it cannot be used, and why.

    Example: robot-runtime calibrate hand-eye robot.toml --camera wrist --board board/board.json
    --intrinsics wrist_lens.json --output wrist.json
    """

    def main(self) -> int:
        need("scipy", "cv2", extras=("calibration",))
        from calibration.chain_verdict import lacking
        from calibration.hand_eye import solve_hand_eye

        views, camera = self._found(lacking)
        found = solve_hand_eye(views, camera)
        rows = {
            "camera in the hand": pose_words(found.X_EC),
            "uncertain by": sigma_words(found.covariance),
            "board in the base": pose_words(found.X_AB),
            "views": f"{found.num_views} of {len(views)}",
        }
        return keep(self.output, found, rows, to_do=lacking([view.X_AE for view in views]))


@dataclass(frozen=True, kw_only=True)
class CalibrateRobotWorld(_ArmViews):
    """Where a camera stands beside an arm, from views of a board that the hand holds; and where it holds it.

    As `calibrate hand-eye`, with camera and board exchanged. (AX = ZB.)

    Example: robot-runtime calibrate robot-world robot.toml --camera side --board board/board.json
    --intrinsics side_lens.json --output side.json
    """

    def main(self) -> int:
        need("scipy", "cv2", extras=("calibration",))
        from calibration.chain_verdict import lacking
        from calibration.robot_world import solve_robot_world

        views, camera = self._found(lacking)
        found = solve_robot_world(views, camera)
        rows = {
            "camera in the base": pose_words(found.X_AC),
            "uncertain by": sigma_words(found.covariance),
            "board in the hand": pose_words(found.X_EB),
            "views": f"{found.num_views} of {len(views)}",
        }
        return keep(self.output, found, rows, to_do=lacking([view.X_AE for view in views]))


def _guided(
    shots: Iterator[Shot], folder: ShotsFolder | None, lacking: Callable[[Sequence[Any]], list[str]]
) -> Iterator[Shot]:
    """As they come, each said with what is lacking next."""
    poses = []
    for shot in shots:
        poses.append(shot.X_AE)
        if folder is not None:
            folder.add(shot)
        advice = lacking(poses)
        print(f"\a{shot.name} taken, {len(poses)} so far{': ' if advice else ''}{'; '.join(advice[:2])}")
        yield shot


def _counted(shots: Iterator[Shot], path: Path) -> Iterator[Shot]:
    """As they come, with a bar."""
    from robot_runtime.cli.progress import counted

    with counted(stays=False) as progress:
        bar = progress.add_task(f"pictures of {path.name}", total=None)
        for shot in shots:
            yield shot
            progress.advance(bar)
