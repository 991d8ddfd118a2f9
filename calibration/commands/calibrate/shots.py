"""Images with the pose of an arm's end effector, from a folder, a run's log or a connected robot.

FOLDER/  poses.csv     picture,px,py,pz,qw,qx,qy,qz     end effector in the arm's base [m]; columns by name
         000.png ...
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pinocchio as pin

from robot_runtime.core.values.transforms import pose_from_quaternion, pose_to_numbers
from robot_runtime.error_text import reason
from robot_runtime.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from robot_runtime.log.reader import RunLog


STILL_M, STILL_RAD = 5e-4, 2e-3
"""Motion below which an end effector counts as stationary."""
APART_M, APART_DEG = 0.02, 4.0
"""Least motion against every other view for a new one."""


class Stillness:
    """Measures for how long an end effector has been stationary, from its poses in order of time."""

    def __init__(self) -> None:
        self.since_ns = 0
        """Time at which it came to rest [ns]."""
        self._there: pin.SE3 | None = None

    def feed(self, t_ns: int, X_AE: pin.SE3) -> int:
        """Register a pose; returns for how long it has been stationary [ns]."""
        if self._there is None or not is_near(X_AE, self._there, m=STILL_M, rad=STILL_RAD):
            self.since_ns, self._there = t_ns, X_AE.copy()
        return t_ns - self.since_ns


def is_new(X_AE: pin.SE3, others: Iterable[pin.SE3]) -> bool:
    """Whether a view from here differs from all others."""
    return not any(is_near(X_AE, X, m=APART_M, rad=float(np.deg2rad(APART_DEG))) for X in others)


def is_near(X: pin.SE3, Y: pin.SE3, *, m: float, rad: float) -> bool:
    """Whether two poses differ by less than this in position and rotation."""
    from calibration.chain import angle_between

    return bool(np.linalg.norm(X.translation - Y.translation) < m) and (
        angle_between(X.rotation, Y.rotation) < rad
    )


POSES = "poses.csv"
COLUMNS = ("picture", "px", "py", "pz", "qw", "qx", "qy", "qz")
STANDS_NS = 400_000_000
"""How long an end effector must be stationary before an image counts [ns]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Shot:
    """One image, and the pose of the end effector."""

    name: str
    picture: np.ndarray
    """(h, w, 3) uint8, RGB."""
    X_AE: pin.SE3


def shots_of_folder(folder: Path) -> Iterator[Shot]:
    """Yield every row of poses.csv. InvalidValueError names the row and its fault."""
    import cv2

    if not (folder / POSES).is_file():
        raise InvalidValueError(
            f"{folder} has no {POSES}: expected pictures, and a line in {POSES} for each of them, with "
            f"columns {','.join(COLUMNS)} (metres, and a unit quaternion)"
        )
    for number, (name, X_AE) in enumerate(read_poses(folder / POSES), start=2):
        path = folder / name
        if (picture := cv2.imread(str(path))) is None:
            why = "" if path.is_file() else ": there is no such file beside poses.csv"
            raise InvalidValueError(
                f"{folder / POSES}, line {number}: {path} is no picture that can be read{why}"
            )
        yield Shot(name=name, picture=np.ascontiguousarray(picture[..., ::-1]), X_AE=X_AE)


def read_poses(path: Path) -> list[tuple[str, pin.SE3]]:
    """Read names of images, and the end effector's pose at each. InvalidValueError names the line."""
    try:
        rows = list(csv.DictReader(path.read_text().splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValueError(
            f"poses stand in {path}, with columns {','.join(COLUMNS)}; it cannot be read: {reason(error)}"
        ) from None
    if not rows or (missing := set(COLUMNS) - set(rows[0])):
        what = f"lacks {', '.join(sorted(missing))}" if rows else "has no rows"
        raise InvalidValueError(f"{path} {what}; expected columns {','.join(COLUMNS)}, metres, any order")
    out = []
    for number, row in enumerate(rows, start=2):
        try:
            p = np.array([float(row[each]) for each in COLUMNS[1:4]])
            q = np.array([float(row[each]) for each in COLUMNS[4:]])
        except (TypeError, ValueError):
            raise InvalidValueError(f"{path}, line {number}: expected seven numbers, got {row}") from None
        if not np.isfinite(p).all() or not abs(float(np.linalg.norm(q)) - 1.0) < 0.01:
            raise InvalidValueError(
                f"{path}, line {number}: expected finite metres and a unit quaternion, got {p} and {q}"
            )
        out.append((row["picture"], pose_from_quaternion(p, q)))
    return out


class ShotsFolder:
    """Writes what `shots_of_folder` reads, row by row."""

    def __init__(self, folder: Path) -> None:
        """InvalidValueError: the folder has poses already."""
        if (folder / POSES).exists():
            raise InvalidValueError(f"{folder} has a {POSES} already: name a new folder")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._count = folder, 0
        (folder / POSES).write_text(",".join(COLUMNS) + "\n")

    def add(self, shot: Shot) -> None:
        """Write the image as PNG, and its row."""
        import cv2

        name = f"{self._count:03d}.png"
        cv2.imwrite(str(self._folder / name), shot.picture[..., ::-1])
        numbers = ",".join(f"{value:.9f}" for value in pose_to_numbers(shot.X_AE))
        with (self._folder / POSES).open("a") as file:
            file.write(f"{name},{numbers}\n")
        self._count += 1


def shots_of_log(log: "RunLog", *, camera: str | None, part: str | None) -> Iterator[Shot]:
    """Yield one image for every pose at which the end effector was stationary.

    InvalidValueError: there are no images, no end effector, or it was never stationary.
    """
    import simplejpeg

    camera = only("camera", camera, log.cameras, str(log.path))
    times, poses = _hand(log, part)
    standing = Stillness()
    stood_ns = np.array([standing.feed(t, X) for t, X in zip(times, poses, strict=True)])
    taken: list[pin.SE3] = []
    for image in log.images(camera):
        i = int(np.searchsorted(times, image.t_ns))
        later = int(np.searchsorted(times, image.t_ns + STANDS_NS // 4))
        if i == 0 or later >= len(times) or stood_ns[i] < STANDS_NS or stood_ns[later] < stood_ns[i]:
            continue
        if is_new(poses[i], taken):
            taken.append(poses[i])
            yield Shot(name=f"{image.t_ns} ns", picture=simplejpeg.decode_jpeg(image.jpeg), X_AE=poses[i])
    if not taken:
        raise InvalidValueError(
            f"{log.path}: the end effector was never stationary for {STANDS_NS / 1e9:g} s while camera "
            f"{camera} saw something: hold it still at 10 to 20 poses"
        )


def _hand(log: "RunLog", part: str | None) -> tuple[np.ndarray, list[pin.SE3]]:
    """Return the times of the states [ns], and the end effector's poses."""
    from robot_runtime.core.values.state import ArmState

    times: list[int] = []
    poses: list[pin.SE3] = []
    for row in log.ticks():
        arms = {name: each for name, each in row.state.parts.items() if isinstance(each, ArmState)}
        part = only("part", part, tuple(arms), str(log.path))
        arm = arms[part]
        if arm.X_BE is None:
            raise InvalidValueError(
                f"{log.path} has no end-effector pose of {part}: robot.toml needs "
                f"[parts.{part}.kinematics], or a driver that measures it"
            )
        t_ns = row.state.t_ns if arm.t_ns is None else arm.t_ns
        if not times or t_ns > times[-1]:
            times.append(t_ns)
            poses.append(arm.X_BE)
    if not times:
        raise InvalidValueError(f"{log.path} was cut before anything happened")
    return np.array(times), poses


def only(what: str, name: str | None, known: Sequence[str], where: str) -> str:
    """Return the named one, or the only one there is. InvalidValueError, UnknownNameError: there is none."""
    if name is not None:
        if name not in known:
            raise UnknownNameError(f"{what} of {where}", name, known)
        return name
    if len(known) != 1:
        raise InvalidValueError(f"{where} has {', '.join(known) or 'none'}: select one with --{what}")
    return known[0]


def views_of(
    shots: Iterator[Shot], board: Any, camera: Any, *, say: Callable[[str], None] = lambda line: None
) -> list[Any]:
    """Return the images in which the board is found, as `calibration.chain.ArmView`.

    InvalidValueError: it is found in none; names what is seen instead.
    """
    from calibration.chain import arm_view
    from calibration.detection import detect, wrong_board

    views, without = [], list[np.ndarray]()
    count = 0
    for shot in shots:
        count += 1
        corners = detect(board, shot.picture)
        if not len(corners):
            without.append(shot.picture)
            say(f"{shot.name}: no board")
            continue
        try:
            views.append(arm_view(board, corners, camera, shot.X_AE, name=shot.name))
        except InvalidValueError as error:
            if not views and corners.size != camera.size:
                raise
            say(f"{shot.name}: {error}")
    if not views:
        reason = wrong_board(board, without) if without else None
        raise InvalidValueError(
            f"the board is seen in none of {count} pictures; "
            + (
                f"{reason.name}: {reason}"
                if reason
                else f"expected {board}: is it in view, whole, sharp and lit?"
            )
        )
    return views
