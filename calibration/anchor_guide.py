"""Collects views of the board for an anchor from live images and poses: `AnchorGuide`. Pure.

pose    ─► hear ─► the last second of each device's odometry
image   ─► see  ─► one per device waits for its pose
           look ─► no board, blurred, turning, from the front, or the same viewpoint again: what is wrong
                └► a view; what to do next
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

import numpy as np
import pinocchio as pin

from calibration.anchor_verdict import (
    BLUR_PX,
    ENOUGH,
    ENOUGH_SIDES,
    LEAST_SPAN,
    MOST_TILT,
    TILTED,
    quarter,
)
from calibration.anchor_views import FASTEST, MOST_RMS_PX, DeviceViews, View, apart
from calibration.board import Board
from calibration.board_pose import BoardPose, pose_of
from calibration.camera import CameraModel
from calibration.detection import LEAST_CORNERS, Corners, detect
from calibration.trajectory import LOST, Trajectory
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError

MOST_FRONTAL_SHARE = 0.3
"""Most frontal views, of those needed; more are refused, as they do not determine the board's tilt."""
EVERY_NS = 150_000_000
"""Time between two processed images of a device: more add nothing, and no browser shows them."""
_STAND_M, _STAND_RAD, _MOST_STANDING = 0.03, float(np.deg2rad(3.0)), 6
"""Views within this distance are of one viewpoint, and at most this many are taken there."""
_KEPT_NS, _AROUND_NS = NS_PER_S, NS_PER_S // 20


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class AnchorLook:
    """Result of one image of one device."""

    role: str
    picture: np.ndarray
    """(h, w, 3) uint8."""
    corners: Corners
    problem: str = ""
    """Why it is not a view, and what to do; empty: it is one."""
    is_taken: bool = False


@final
@dataclass(kw_only=True)
class Progress:
    """Views of one device so far."""

    views: list[View] = field(default_factory=list)
    tilts: list[float] = field(default_factory=list)
    """Angle of each view between the board's normal and the line of sight [rad]."""
    sides: set[int] = field(default_factory=set)
    """Quarters around the board from which it was seen tilted."""

    @property
    def num_tilted(self) -> int:
        return sum(tilt > TILTED for tilt in self.tilts)

    @property
    def span(self) -> float:
        """Median share of the image that the board fills."""
        return float(np.median([max(view.corners.span) for view in self.views])) if self.views else 0.0

    @property
    def lacking(self) -> str:
        """What to do next with this device; empty: it has enough views."""
        if not self.views:
            return "look at the board, from the side and not straight on, and hold still"
        if len(self.views) < ENOUGH:
            return "hold still, then look from elsewhere, at 25 to 50 degrees"
        if len(self.sides) < ENOUGH_SIDES:
            return "look from another side of the board"
        if self.span < LEAST_SPAN:
            return "go nearer, to 0.4 to 0.8 m"
        return ""


class AnchorGuide:
    """Collects the views of an anchor and advises which to take next."""

    def __init__(self, board: Board, cameras: Mapping[str, CameraModel]) -> None:
        """cameras: role -> camera, the chest's first."""
        self.board = board
        self.progress = {role: Progress() for role in cameras}
        self._cameras = cameras
        self._poses: dict[str, deque[tuple[int, pin.SE3, int]]] = {role: deque() for role in cameras}
        self._waiting: dict[str, tuple[int, np.ndarray]] = {}
        self._looked_ns: dict[str, int] = {}

    def hear(self, role: str, t_ns: int, X_WC: pin.SE3, tracking: int) -> None:
        """Register a pose of the camera in the world of the device's odometry; times rise."""
        poses = self._poses[role]
        poses.append((t_ns, X_WC, tracking))
        while poses[0][0] < t_ns - _KEPT_NS:
            poses.popleft()

    def see(self, role: str, t_ns: int, picture: np.ndarray) -> None:
        """Register an image (h, w, 3) uint8, on the clock of the poses; dropped while an earlier one waits
        or shortly after a processed one."""
        if t_ns - self._looked_ns.get(role, t_ns - EVERY_NS) >= EVERY_NS:
            self._waiting.setdefault(role, (t_ns, picture))

    def look(self) -> AnchorLook | None:
        """Process one image whose pose is known by now; None: there is none."""
        for role, (t_ns, picture) in self._waiting.items():
            if self._is_known(role, t_ns):
                del self._waiting[role]
                self._looked_ns[role] = t_ns
                return self._looked(role, t_ns, picture)
        return None

    @property
    def next_role(self) -> str | None:
        """The first device that lacks views; None: all have enough."""
        return next((role for role, each in self.progress.items() if each.lacking), None)

    @property
    def advice(self) -> str:
        """What to do next; empty: all have enough."""
        role = self.next_role
        return "" if role is None else f"{role}: {self.progress[role].lacking}"

    def views(self, role: str) -> DeviceViews:
        """Views of a device for `solve_anchor`."""
        return DeviceViews(camera=self._cameras[role], views=tuple(self.progress[role].views))

    def _is_known(self, role: str, t_ns: int) -> bool:
        """Whether poses have arrived up to the end of the window after this time."""
        poses = self._poses[role]
        return bool(poses) and poses[-1][0] >= t_ns + _AROUND_NS

    def _looked(self, role: str, t_ns: int, picture: np.ndarray) -> AnchorLook:
        corners, each = detect(self.board, picture), self.progress[role]
        try:
            X_WC, is_turning = self._pose_at(role, t_ns)
            if len(corners) < LEAST_CORNERS:
                raise InvalidValueError("the board is not seen: whole, flat, lit?")
            if is_turning:
                raise InvalidValueError("turning: hold still")
            pose = pose_of(self.board, corners, self._cameras[role])
            _refuse(each, self.board, corners, pose, X_WC)
        except InvalidValueError as error:
            return AnchorLook(role=role, picture=picture, corners=corners, problem=str(error))
        each.views.append(View(t_ns=t_ns, corners=corners, X_WC=X_WC))
        each.tilts.append(pose.tilt)
        if pose.tilt > TILTED and not pose.is_ambiguous:
            each.sides.add(quarter(self.board, pose.X_CB.inverse()))
        return AnchorLook(role=role, picture=picture, corners=corners, is_taken=True)

    def _pose_at(self, role: str, t_ns: int) -> tuple[pin.SE3, bool]:
        """Pose of the camera, and whether it turned too fast. InvalidValueError: the pose is unknown."""
        around = [each for each in self._poses[role] if abs(each[0] - t_ns) <= 2 * _AROUND_NS]
        gaps_ns = np.diff([t_ns - 2 * _AROUND_NS, *(t for t, _, _ in around), t_ns + 2 * _AROUND_NS])
        if len(around) < 2 or not around[0][0] <= t_ns <= around[-1][0] or gaps_ns.max() >= 2 * _AROUND_NS:
            raise InvalidValueError("too few poses around the image's time: expected 20 a second")
        path = Trajectory.of([t for t, _, _ in around], [X for _, X, _ in around], [s for _, _, s in around])
        there = path.sampled([t_ns])
        if there.tracking[0] == LOST:
            raise InvalidValueError("TRACKING LOST")
        _, turn = apart(path[0], path[len(path) - 1])
        return there[0], turn * NS_PER_S > FASTEST * int(path.t_ns[-1] - path.t_ns[0])


def _refuse(each: Progress, board: Board, corners: Corners, pose: BoardPose, X_WC: pin.SE3) -> None:
    """Refuse an image that is no good view; InvalidValueError says why."""
    if corners.blur_px > BLUR_PX:
        raise InvalidValueError("blurred: hold still, or give more light")
    if pose.rms_px > MOST_RMS_PX:
        raise InvalidValueError(
            f"corners are {pose.rms_px:.0f} px from where they would lie on {board}: is it that board, flat, "
            "and the file of that camera?"
        )
    if pose.tilt >= MOST_TILT:
        raise InvalidValueError("too flat: look from higher, at 25 to 50 degrees")
    num_frontal = len(each.tilts) - each.num_tilted
    if pose.tilt <= TILTED and num_frontal >= MOST_FRONTAL_SHARE * ENOUGH:
        raise InvalidValueError("from the front again: look from the side, at 25 to 50 degrees")
    near = [apart(view.X_WC, X_WC) for view in each.views]
    if sum(m < _STAND_M and rad < _STAND_RAD for m, rad in near) >= _MOST_STANDING:
        raise InvalidValueError("enough from here: look from elsewhere")
