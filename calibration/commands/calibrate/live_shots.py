"""Pictures with the pose of an arm's hand, of a robot that is here: moved by a person, or by itself.

by a person   hand-guided, by the vendor's own jog, or teleoperated by another program: whenever the hand
stands for a moment at a new place, and the board is seen, a view is taken
--poses FILE  the arm goes slowly to places of its joints that a file gives, one after another
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
"""A picture that is more blurred is not taken [pixels]."""
LEAST_SPAN = 0.15
"""Of the picture's width, covered by the board's corners."""
SHARE = 0.1
"""Of the arm's speeds and accelerations, when it goes by itself."""
SETTLE_S = 3.0
"""After a move the hand has to stand within this time [s]."""
_LOOK_NS = 10_000_000
_GO_ON = "move and turn the hand to another place, and let it stand"


@dataclass(frozen=True, kw_only=True, eq=False)
class Glance:
    """What is seen now, of which no view has been made yet."""

    picture: np.ndarray | None = None
    """(h, w, 3) uint8, RGB; None: none is looked at."""
    corners: "Corners | None" = None
    """None: they were not looked for, as the hand moves or has been here."""
    do: str = ""
    """What happens, or what to do; empty: go on."""
    problem: str = ""
    """What keeps the picture from being a view; empty: nothing does."""


class LiveShots:
    """Of one arm and one camera of an open robot; one thread reads both."""

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
        board: `calibration.board.Board`. say: gets what to do next. look: gets what is seen, picture by
        picture; it does not wait. should_stop: ends it.
        InvalidValueError, UnknownNameError: there is no such part or camera, or nothing knows its hand.
        """
        robot = opened.robot
        arms = [name for name, each in robot.read().parts.items() if isinstance(each, ArmState)]
        self._robot, self._options = robot, opened.options
        self._part = only("part", part, arms, "the robot")
        self._camera = robot.cameras[only("camera", camera, tuple(robot.cameras), "the robot")]
        self._board, self._say, self._look, self._should_stop = board, say, look, should_stop
        self._hand(robot.read())

    @property
    def part(self) -> str:
        return self._part

    @property
    def joint_names(self) -> tuple[str, ...]:
        return joint_names(self._robot.parts[self._part])

    def by_person(self, num: int) -> Iterator[Shot]:
        """Until there are so many, or it is ended."""
        from calibration.stillness import Stillness, is_new

        standing, taken = Stillness(), list[pin.SE3]()
        stamp_ns, said, there = 0, "", None
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
            else:  # it stands where its last view was taken, or was here before
                glance = Glance(picture=image.pixels, corners=there, do=_GO_ON)
            self._look(glance)
            if not (line := glance.do or glance.problem):
                taken.append(X_AE)
                yield Shot(name=f"view {len(taken)}", picture=image.pixels, X_AE=X_AE)
                continue
            if line != said or state.t_ns > stamp_ns + 5_000_000_000:
                self._say(line)
                said, stamp_ns = line, state.t_ns

    def by_itself(self, places: Sequence[np.ndarray], *, clock: Any) -> Iterator[Shot]:
        """From place to place of its joints [rad], slowly; a place from which no board is seen is left
        out."""
        from robot_runtime.robot.joint_move import go_home

        for k, q in enumerate(places):
            if self._should_stop():
                return
            self._look(Glance(do=f"{self._part} goes to place {k + 1} of {len(places)}"))
            go_home(
                self._robot,
                {self._part: q},
                clock=clock,
                control_hz=self._options.get("control_hz", 500.0),
                share=SHARE,
                should_stop=self._should_stop,
            )
            shot = self._settled(f"place {k + 1}", clock)
            self._look(glance := self._glance(shot.picture))
            if not glance.problem:
                yield shot
            else:
                self._say(f"{shot.name}: {glance.problem}")

    def _settled(self, name: str, clock: Any) -> Shot:
        from calibration.stillness import Stillness

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
                f"nothing knows where the hand of {self._part} is: robot.toml needs "
                f"[parts.{self._part}.kinematics]"
            )
        return X_AE

    def _glance(self, picture: np.ndarray) -> Glance:
        """With what keeps this picture from being a view, if anything does."""
        from calibration.detection import detect

        corners = detect(self._board, picture)
        return Glance(picture=picture, corners=corners, problem=_problem(corners))


def _problem(corners: "Corners") -> str:
    if not len(corners):
        return "the board is not seen: point the camera at it, from 0.3 to 0.8 m"
    if corners.blur_px > MOST_BLUR_PX:
        return f"the picture is blurred ({corners.blur_px:.1f} px): let it stand, focus, more light"
    if corners.span[0] < LEAST_SPAN:
        return "the board is far: go nearer, until it fills a quarter of the picture's width"
    return ""


def read_places(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    """Joint positions [rad], a row each: columns by the joints' names, or joint_1, joint_2, ...

    InvalidValueError names the line.
    """
    try:
        rows = list(csv.DictReader(path.read_text().splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValueError(f"{path} cannot be read: {reason(error)}") from None
    numbered = [f"joint_{i + 1}" for i in range(len(names))]
    columns = next((each for each in ([*names], numbered) if rows and not set(each) - set(rows[0])), None)
    if columns is None:
        raise InvalidValueError(f"{path} needs a row per place, with columns {','.join(numbered)} [rad]")
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
    """InvalidValueError: a place is beyond what the arm may be told."""
    if limits is None:
        raise InvalidValueError(f"robot.toml says no limits of {part}: it is moved by nobody but a person")
    arm = limits.arm(part)
    for number, q in enumerate(places, start=2):
        if len(q) != len(arm.q_min) or (q < arm.q_min).any() or (q > arm.q_max).any():
            raise InvalidValueError(f"{path}, line {number}: {part} may not be told {np.round(q, 3)} rad")


def ask(part: str, num: int, *, yes: bool) -> None:
    """InvalidValueError: nobody said that it may move."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidValueError(f"{part} would move: --yes allows it where there is no terminal to ask")
    if input(f"{part} will go to {num} places, slowly. Is its way free? [y/N] ").strip().lower() != "y":
        raise InvalidValueError(f"{part} was not moved: nobody allowed it")


def joint_names(driver: Any) -> tuple[str, ...]:
    """As the driver calls them, or joint_1, joint_2, ..."""
    names = getattr(driver, "joint_names", None)
    return tuple(names) if names else tuple(f"joint_{i + 1}" for i in range(driver.num_joints))
