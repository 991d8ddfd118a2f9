"""Images with the pose of an arm's end effector, of a connected robot moved by an operator or by itself.

by an operator  hand-guided, by the vendor's own jog, or teleoperated by another program: a view is taken
                whenever the end effector holds still at a new pose and the board is seen
--poses FILE    the arm moves slowly to joint positions from a file, one after another
"""

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pinocchio as pin

from calibration.commands.calibrate.shots import STANDS_NS, Shot, only
from robot_runtime.core.values.state import ArmState, RobotState
from robot_runtime.error_text import reason
from robot_runtime.errors import DriverError, InvalidValueError

if TYPE_CHECKING:
    from calibration.detection import Corners
    from robot_runtime.robot_file import OpenRobot

MOST_BLUR_PX = 2.5
"""Largest blur of an image that is used [pixels]."""
LEAST_SPAN = 0.15
"""Least share of the image's width that the board's corners cover."""
SHARE = 0.1
"""Share of the arm's speed and acceleration limits when it moves by itself."""
SETTLE_S = 3.0
"""Time within which the end effector must come to rest after a move [s]."""
_LOOK_NS = 10_000_000
_GO_ON = "move and turn the end effector to another pose, and hold it still"


@dataclass(frozen=True, kw_only=True, eq=False)
class Glance:
    """What the camera sees now, before it becomes a view."""

    picture: np.ndarray | None = None
    """(h, w, 3) uint8, RGB; None: there is no image."""
    corners: "Corners | None" = None
    """None: not searched, as the end effector moves or has been here."""
    do: str = ""
    """What happens, or what to do; empty: continue."""
    problem: str = ""
    """Why the image is not a view; empty: it is one."""


class LiveShots:
    """Takes shots of one arm and one camera of an open robot; one thread reads both."""

    def __init__(
        self,
        opened: "OpenRobot",
        *,
        part: str | None,
        camera: str | None,
        board: Any,
        say: Callable[[str], None],
        look: Callable[[Glance], None] = lambda glance: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        board: `calibration.board.Board`. say: gets what to do next. look: gets each image with its result; it
        must not block. should_stop: ends it.
        InvalidValueError, UnknownNameError: there is no such part or camera, or its end-effector pose is
        unknown.
        """
        robot = opened.robot
        arms = [name for name, each in robot.read().parts.items() if isinstance(each, ArmState)]
        self._robot, self._options = robot, opened.options
        self._part = only("part", part, arms, "the robot")
        found = robot.cameras[only("camera", camera, tuple(robot.cameras), "the robot")]
        self._camera = getattr(found, "unmatched", found)
        self._board, self._say, self._look, self._should_stop = board, say, look, should_stop
        self._hand(robot.read())

    @property
    def part(self) -> str:
        return self._part

    @property
    def joint_names(self) -> tuple[str, ...]:
        return joint_names(self._robot.parts[self._part])

    def by_person(self, num: int) -> Iterator[Shot]:
        """Take shots while the operator moves the arm, until there are `num`, or it is stopped."""
        from calibration.commands.calibrate.shots import Stillness, is_new

        standing, taken = Stillness(), list[pin.SE3]()
        stamp_ns, last_line, there = 0, "", None
        while len(taken) < num and not self._should_stop():
            image = self._camera.read()
            state = self._robot.read()
            X_AE = self._hand(state)
            stood_ns = standing.feed(state.t_ns, X_AE)
            if stood_ns < STANDS_NS or image.t_ns < standing.since_ns + STANDS_NS // 4:
                self._look(Glance(picture=image.pixels))
                there = None
                continue
            if is_new(X_AE, taken):
                glance = self._glance(image.pixels)
                there = glance.corners
            else:  # it is where its last view was taken, or at another pose that it has had
                glance = Glance(picture=image.pixels, corners=there, do=_GO_ON)
            self._look(glance)
            if not (line := glance.do or glance.problem):
                taken.append(X_AE)
                yield Shot(name=f"view {len(taken)}", picture=image.pixels, X_AE=X_AE)
                continue
            if line != last_line or state.t_ns > stamp_ns + 5_000_000_000:
                self._say(line)
                last_line, stamp_ns = line, state.t_ns

    def by_itself(self, places: Sequence[np.ndarray], *, clock: Any) -> Iterator[Shot]:
        """Move the arm slowly through joint positions [rad]; one without a view of the board is left out."""
        from robot_runtime.robot.joint_move import go_home

        for k, q in enumerate(places):
            if self._should_stop():
                return
            self._look(Glance(do=f"{self._part} moves to pose {k + 1} of {len(places)}"))
            go_home(
                self._robot,
                {self._part: q},
                clock=clock,
                control_hz=self._options.get("control_hz", 500.0),
                share=SHARE,
                should_stop=self._should_stop,
            )
            shot = self._settled(f"pose {k + 1}", clock)
            self._look(glance := self._glance(shot.picture))
            if not glance.problem:
                yield shot
            else:
                self._say(f"{shot.name}: {glance.problem}")

    def _settled(self, name: str, clock: Any) -> Shot:
        from calibration.commands.calibrate.shots import Stillness

        standing, end_ns = Stillness(), clock.now_ns() + round(SETTLE_S * 1e9)
        while standing.feed((state := self._robot.read()).t_ns, self._hand(state)) < STANDS_NS:
            if clock.now_ns() > end_ns:
                raise DriverError(f"{self._part} does not come to rest within {SETTLE_S:g} s at {name}")
            clock.sleep_until_ns(clock.now_ns() + _LOOK_NS)
        stood_ns = state.t_ns
        while (image := self._camera.read()).t_ns < stood_ns:
            pass
        return Shot(name=name, picture=image.pixels, X_AE=self._hand(self._robot.read()))

    def _hand(self, state: RobotState) -> pin.SE3:
        X_AE = state.arm(self._part).X_BE
        if X_AE is None:
            raise InvalidValueError(
                f"the end-effector pose of {self._part} is unknown: robot.toml needs "
                f"[parts.{self._part}.kinematics]"
            )
        return X_AE

    def _glance(self, picture: np.ndarray) -> Glance:
        """Search an image for the board, and note why it is not a view."""
        from calibration.detection import detect

        corners = detect(self._board, picture)
        return Glance(picture=picture, corners=corners, problem=_problem(corners))


def _problem(corners: "Corners") -> str:
    if not len(corners):
        return "the board is not seen: point the camera at it, from 0.3 to 0.8 m"
    if corners.blur_px > MOST_BLUR_PX:
        return f"the picture is blurred ({corners.blur_px:.1f} px): hold it still, focus, add light"
    if corners.span[0] < LEAST_SPAN:
        return "the board is far: go nearer, until it fills a quarter of the image's width"
    return ""


def read_places(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    """Read joint positions [rad], a row each: columns by the joints' names, or joint_1, joint_2, ...

    InvalidValueError names the line.
    """
    try:
        rows = list(csv.DictReader(path.read_text().splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValueError(f"{path} cannot be read: {reason(error)}") from None
    numbered = [f"joint_{i + 1}" for i in range(len(names))]
    columns = next((each for each in ([*names], numbered) if rows and not set(each) - set(rows[0])), None)
    if columns is None:
        raise InvalidValueError(f"{path} needs a row per pose, with columns {','.join(numbered)} [rad]")
    out = []
    for number, row in enumerate(rows, start=2):
        try:
            q = np.array([float(row[each]) for each in columns])
        except (TypeError, ValueError):
            raise InvalidValueError(
                f"{path}, line {number}: expected {len(names)} numbers, got {row}"
            ) from None
        if not np.isfinite(q).all() or np.abs(q).max() > 7.0:
            raise InvalidValueError(f"{path}, line {number}: joints are in radians, got {q}")
        out.append(q)
    return out


def refuse_out_of_limits(places: Sequence[np.ndarray], limits: Any, part: str, path: Path) -> None:
    """Raise InvalidValueError if a target is beyond the arm's limits."""
    if limits is None:
        raise InvalidValueError(f"robot.toml has no limits of {part}: only an operator may move it")
    arm = limits.arm(part)
    for number, q in enumerate(places, start=2):
        if len(q) != len(arm.q_min) or (q < arm.q_min).any() or (q > arm.q_max).any():
            raise InvalidValueError(
                f"{path}, line {number}: {np.round(q, 3)} rad is beyond the limits of {part}"
            )


def ask(part: str, num: int, *, yes: bool) -> None:
    """Ask whether a part may move. InvalidValueError: it may not."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidValueError(f"{part} would move: --yes allows it where there is no terminal to ask")
    if input(f"{part} will move to {num} poses, slowly. Is its path clear? [y/N] ").strip().lower() != "y":
        raise InvalidValueError(f"{part} was not moved: the operator did not allow it")


def joint_names(driver: Any) -> tuple[str, ...]:
    """Return the driver's joint names, or joint_1, joint_2, ..."""
    names = getattr(driver, "joint_names", None)
    return tuple(names) if names else tuple(f"joint_{i + 1}" for i in range(driver.num_joints))
