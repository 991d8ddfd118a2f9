"""`robot-runtime calibrate hand-eye` and `robot-world`: calibrate a camera on an arm, or beside it."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional

from calibration.commands.calibrate.live_guide import LiveGuide, need_page, refuse_page
from calibration.commands.calibrate.result import keep, pose_words, sigma_words
from calibration.commands.calibrate.shots import Shot, ShotsFolder, shots_of_folder, shots_of_log, views_of
from robot_runtime.cli.options import (
    Count,
    InputFile,
    Maybe,
    OutputFile,
    OutputFolder,
    PageAddress,
    Several,
    need,
)
from robot_runtime.errors import InvalidValueError

if TYPE_CHECKING:
    from calibration.hand_eye import HandEye, RobotWorld


@dataclass(frozen=True, kw_only=True)
class _ArmViews:
    """Options of both commands."""

    source: Annotated[str, Positional]
    """Source of images and poses: a folder with images and poses.csv (picture,px,py,pz,qw,qx,qy,qz), the log
    of a run (.mcap), or a connected robot (robot.toml, or anything that `run --robot` takes)."""
    board: InputFile
    """board.json of the board, by `calibrate board`."""
    intrinsics: InputFile
    """camera.json of the camera, by `calibrate intrinsics`."""
    output: OutputFile
    """File to write."""
    camera: Maybe[str] = None
    """Camera of the log or the robot, if it has several."""
    part: Maybe[str] = None
    """Arm, if there are several."""
    views: Count = 20
    """With a robot: number of views to take; Ctrl-C ends it with those taken so far."""
    poses: Maybe[InputFile] = None
    """With a robot: CSV file with a row of joint positions [rad] for each pose, in columns
    joint_1,joint_2,..., to which the arm moves by itself, slowly. If not given, the operator moves the arm,
    and views are taken where it holds still."""
    keep_shots: Maybe[OutputFolder] = None
    """With a robot: save its images and poses in this folder, to calibrate from again."""
    set: Several[str] = ()
    """Values that override robot.toml, one or more, as in parts.arm.host=172.16.0.3."""
    yes: bool = False
    """Allow the arm to move to --poses; asks on the terminal if not given."""
    page: PageAddress = None
    """With a robot: show the image, the board found in it and what to do next in a browser, at this address;
    127.0.0.1:8080 if the option has no value. Beyond this machine the page requires a token, which the
    printed address has."""

    def _solved(
        self, name: str, solve: Callable[..., Any], rows_of: Callable[[Any], Mapping[str, str]]
    ) -> int:
        """Take views, solve and save; return the exit code.

        name: of the command. solve: function of views and camera. rows_of: rows of the result to print.
        """
        need_page(self.page)
        from calibration.board import Board
        from calibration.camera import Intrinsics
        from calibration.chain_verdict import lacking
        from calibration.store import load

        board, camera = load(self.board, Board), load(self.intrinsics, Intrinsics).camera
        with ExitStack() as held:
            guide = None
            if (shots := self._kept_shots(held)) is not None:
                refuse_page(self.page)
                views = views_of(shots, board, camera, say=print)
            else:
                title = f"calibrate {name} {self.source}"
                guide = LiveGuide(title, self.page, also=(signal.SIGHUP, signal.SIGTSTP))
                views = self._live(board, camera, guide, held)
                guide.compute()
            found = solve(views, camera)
            rows = {**rows_of(found), "views": f"{found.num_views} of {len(views)}"}
            code = keep(self.output, found, rows, to_do=lacking([view.X_AE for view in views]))
            if guide is not None:
                guide.judge(found, rows)
            return code

    def _kept_shots(self, held: ExitStack) -> Iterator[Shot] | None:
        """Return the shots of a folder or a log; None: the source is a robot.

        held: refuses a damaged log when all is done.
        """
        path = Path(self.source)
        if path.is_dir():
            return _counted(shots_of_folder(path), path)
        if path.suffix == ".mcap":
            from robot_runtime.log.reader import RunLog

            log = RunLog.open(path)
            held.callback(log.refuse_damage)
            return _counted(shots_of_log(log, camera=self.camera, part=self.part), path)
        if path.suffix in (".csv", ".png", ".jpg", ".mp4"):
            raise InvalidValueError(
                f"{path}: expected a folder with poses.csv, a run's log, or a robot's file"
            )
        return None

    def _live(self, board: Any, camera: Any, guide: LiveGuide, held: ExitStack) -> list[Any]:
        """Take views with a connected robot. held: keeps the guide open longer than the robot."""
        from calibration.commands.calibrate.arm_guide import BEGIN, ArmGuide
        from calibration.commands.calibrate.live_shots import (
            LiveShots,
            ask,
            read_places,
            refuse_out_of_limits,
        )
        from robot_runtime.clock import MonotonicClock
        from robot_runtime.robot.watched_switch import is_held
        from robot_runtime.robot_file import open_robot

        with open_robot(self.source, self.set) as opened:
            hold, arm = opened.options.get("hold_to_run"), ArmGuide(guide)
            live = LiveShots(
                opened,
                part=self.part,
                camera=self.camera,
                board=board,
                say=print,
                look=arm.look,
                should_stop=lambda: guide.is_stopped or not is_held(hold),
            )
            if self.poses is None:
                print(BEGIN)
                shots, num = live.by_person(self.views), self.views
            else:
                targets = read_places(self.poses, live.joint_names)
                refuse_out_of_limits(targets, opened.robot.limits, live.part, self.poses)
                ask(live.part, len(targets), yes=self.yes)
                shots, num = live.by_itself(targets, clock=MonotonicClock()), len(targets)
            held.enter_context(guide)
            folder = None if self.keep_shots is None else ShotsFolder(self.keep_shots)
            return views_of(arm.taken(shots, folder, num=num), board, camera, say=print)


@dataclass(frozen=True, kw_only=True)
class CalibrateHandEye(_ArmViews):
    """Calibrate the pose of a camera on an arm's end effector.

    The camera views a stationary board. Take ten views or more, rotate the end effector by 20 degrees or more
    about two directions, and view the board at an angle. Prints what is missing while views are taken. Exit
    code 1: the result is not usable, and the reason is printed.

    Example: robot-runtime calibrate hand-eye robot.toml --camera wrist --board board/board.json
    --intrinsics wrist_lens.json --output wrist.json
    """

    def main(self) -> int:
        need("scipy", "cv2", extras=("calibration",))
        from calibration.hand_eye import solve_hand_eye

        return self._solved("hand-eye", solve_hand_eye, _hand_eye_rows)


@dataclass(frozen=True, kw_only=True)
class CalibrateRobotWorld(_ArmViews):
    """Calibrate the pose of a fixed camera beside an arm that holds the board.

    Also finds the pose of the board in the end effector. Works as `calibrate hand-eye`, with camera and board
    exchanged. (AX = ZB.)

    Example: robot-runtime calibrate robot-world robot.toml --camera side --board board/board.json
    --intrinsics side_lens.json --output side.json
    """

    def main(self) -> int:
        need("scipy", "cv2", extras=("calibration",))
        from calibration.hand_eye import solve_robot_world

        return self._solved("robot-world", solve_robot_world, _robot_world_rows)


def _hand_eye_rows(found: "HandEye") -> dict[str, str]:
    return {
        "camera in the end effector": pose_words(found.X_EC),
        "uncertain by": sigma_words(found.covariance),
        "board in the base": pose_words(found.X_AB),
    }


def _robot_world_rows(found: "RobotWorld") -> dict[str, str]:
    return {
        "camera in the base": pose_words(found.X_AC),
        "uncertain by": sigma_words(found.covariance),
        "board in the end effector": pose_words(found.X_EB),
    }


def _counted(shots: Iterator[Shot], path: Path) -> Iterator[Shot]:
    """Pass shots on, and move a progress bar."""
    from robot_runtime.cli.progress import counted

    with counted(stays=False) as progress:
        bar = progress.add_task(f"pictures of {path.name}", total=None)
        for shot in shots:
            yield shot
            progress.advance(bar)
