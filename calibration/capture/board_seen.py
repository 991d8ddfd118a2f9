"""Checks what anchor clips show of the board before any anchor is solved: `board_seen`, `seen_wrong`."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pinocchio as pin

from calibration.anchor_verdict import frontal_views
from calibration.anchor_views import FASTEST, MOST_RMS_PX, Agreed, DeviceViews, View, agreed, mean_pose
from calibration.board import Board
from calibration.board_pose import pose_of
from calibration.camera import CameraModel
from calibration.capture.gravity import MOST_TILT
from calibration.capture.odometry import MOST_SCALE, moved_between, moved_in_clip, scales
from calibration.capture.raw import Device, RawCapture
from calibration.capture.values import BoardCorners
from calibration.clocks import ClockFit
from calibration.detection import LEAST_CORNERS, Corners, detect, wrong_board
from calibration.image_clock import image_clock, looks
from calibration.readings import READINGS, explains
from calibration.trajectory import LOST
from calibration.verdict import Reason
from robot_runtime.errors import InvalidValueError

MOST_PICTURES = 60
"""Images searched per clip and device, spread over the clip."""
_MOST_WITHOUT = 8
"""Images without a detected board that are kept, to find out which board they show."""
_ENOUGH_VIEWS = 8
"""Views needed of each device for a rough pose of one world in the other."""
_OTHER_SIZE = 0.1
"""Logarithm of the scale from which on it is another board; the anchor measures smaller errors of a print."""
_MISFIT, _MISFIT_WIDTHS = 0.4, 0.05
"""Ratio of outlier views to agreeing views from which on other readings of the poses are tried; reprojection
error, in image widths, beyond which poses that fit no image are fatal."""
_LEAST_SPREAD_M = 0.06
"""RMS of the camera's positions about their mean [m]; below it, they determine no scale."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Seen:
    """The board in one clip, as one device saw it."""

    clip: int
    device: Device
    board: Board
    camera: CameraModel
    corners: BoardCorners
    """On the device's clock."""
    num_pictures: int
    """Images that were searched."""
    without: tuple[np.ndarray, ...] = ()
    """A few of them in which the declared board was not detected."""
    shown: tuple[np.ndarray, ...] = ()
    """A few of those in which corners were found."""

    @property
    def is_of_another(self) -> bool:
        """Whether corner ids occur that the board does not have."""
        return bool((self.corners.corner >= self.board.num_corners).any())

    @cached_property
    def by_picture(self) -> list[tuple[int, Corners]]:
        """(time [ns], corners) of the images with enough corners."""
        _, first = np.unique(self.corners.t_ns, return_index=True)
        out = []
        for rows in np.split(np.arange(len(self.corners.t_ns)), first[1:]):
            if len(rows) >= LEAST_CORNERS:
                order = rows[np.argsort(self.corners.corner[rows])]
                corners = Corners(
                    ids=self.corners.corner[order], uv=self.corners.uv[order], size=self.camera.size
                )
                out.append((int(self.corners.t_ns[rows[0]]), corners))
        return out

    @cached_property
    def views(self) -> list[View]:
        """Views while the device tracked and hardly turned, at most `MOST_PICTURES`."""
        poses = self.device.poses
        if len(poses) < 3:
            return []
        middles, speeds = poses.angular_speed()
        t_ns = np.array([t for t, _ in self.by_picture], dtype=np.int64)
        inside = (t_ns >= poses.t_ns[0]) & (t_ns <= poses.t_ns[-1])
        at = np.flatnonzero(inside & (np.interp(t_ns, middles, speeds) < FASTEST))
        if not at.size:
            return []
        at = at[np.unique(np.linspace(0, len(at) - 1, MOST_PICTURES).astype(int))]
        there = poses.sampled(t_ns[at])
        return [
            View(t_ns=int(t_ns[i]), corners=self.by_picture[i][1], X_WC=there[k])
            for k, i in enumerate(at.tolist())
            if there.tracking[k] > LOST
        ]

    @cached_property
    def scale(self) -> float | None:
        """Size of the board by the device's odometry over its declared size; None: undetermined.

        The camera's position plus the scaled vector from there to the board is one point for all views.
        """
        vectors = []
        for view in self.views if not self.is_of_another else []:
            try:
                pose = pose_of(self.board, view.corners, self.camera)
            except InvalidValueError:
                continue
            if pose.rms_px <= MOST_RMS_PX:
                vectors.append((view.X_WC.translation, view.X_WC.rotation @ pose.X_CB.translation))
        return _scale(*map(np.array, zip(*vectors, strict=True))) if len(vectors) >= _ENOUGH_VIEWS else None

    @cached_property
    def moved(self) -> Reason | None:
        """Whether the board is elsewhere from some moment of the clip on."""
        side = self.agreed
        has_other_scale = self.scale is not None and abs(np.log(self.scale)) > MOST_SCALE
        if side is None or has_other_scale:  # the board then moves with the camera
            return None
        seen = [(view.t_ns, X) for view, X in zip(side.views, side.X_WB, strict=True)] + [*side.rejected]
        seen.sort(key=lambda each: each[0])
        t_ns, p = np.array([t for t, _ in seen]), np.array([X.translation for _, X in seen])
        return moved_in_clip(self.device.role, self.clip, t_ns, p, self.device.poses, int(t_ns[0]))

    @property
    def misread(self) -> Reason | None:
        """Which wrong convention the poses were read with, or that they fit no images; None: they fit.

        The board is stationary, so X_WC X_CB is the same in all images if poses are read correctly.
        """
        side = self.agreed
        if side is None or len(side.rejected) < max(_ENOUGH_VIEWS // 2, _MISFIT * len(side.views)):
            return None
        posed = []
        for view in self.views:
            with contextlib.suppress(InvalidValueError):
                pose = pose_of(self.board, view.corners, self.camera)
                posed += [(view, pose.X_CB)] * (pose.rms_px <= MOST_RMS_PX)
        unread_px, width = self._px(posed, lambda X: X), self.camera.size[1]
        found = {
            name: min(self._px(posed, read) for read in reading.poses) for name, reading in READINGS.items()
        }
        best = min(found, key=lambda name: found[name])
        what = f"{self.device.role}: the poses put the board {unread_px:.0f} px from where the images show it"
        if explains(found[best], unread_px, width):
            return Reason(
                name=best,
                what=f"{what} (median); {found[best]:.1f} px if {READINGS[best].what}.",
                do="Import it again with the convention that it was written in, or convert its file.",
            )
        return Reason(
            name="poses-off-pictures",
            what=f"{what} (median), and no other reading of them fits.",
            do="Check that the poses are of this device, camera and recording, on the clock of its images, "
            "that the board did not move, and that tracking did not jump.",
            is_fatal=len(side.rejected) > 2 * len(side.views) and unread_px > _MISFIT_WIDTHS * width,
        )

    def _px(self, posed: Sequence[tuple[View, pin.SE3]], read: Callable[[pin.SE3], pin.SE3]) -> float:
        """Reprojection error of corners with poses read this way: median over the views of each rms."""
        X_WC = [read(view.X_WC) for view, _ in posed]
        X_WB = [X * X_CB for X, (_, X_CB) in zip(X_WC, posed, strict=True)]
        half = len(X_WB) // 2 + 1
        centre = np.median([X.translation for X in X_WB], axis=0)
        near = sorted(X_WB, key=lambda X: float(np.linalg.norm(X.translation - centre)))[:half]
        mean = mean_pose(near)
        near = sorted(X_WB, key=lambda X: float(np.linalg.norm(pin.log3(mean.rotation.T @ X.rotation))))[
            :half
        ]
        mean = mean_pose(near)
        off = []
        for X, (view, _) in zip(X_WC, posed, strict=True):
            X_CB = X.inverse() * mean
            p_C = self.board.corners_B[view.corners.ids] @ X_CB.rotation.T + X_CB.translation
            rms = float(np.sqrt(((self.camera.project(p_C) - view.corners.uv) ** 2).sum(axis=1).mean()))
            off.append(rms if np.isfinite(rms) and (p_C[:, 2] > 0.0).all() else float("inf"))
        return float(np.median(off))

    @property
    def is_of_another_size(self) -> bool:
        return self.scale is not None and abs(np.log(self.scale)) > _OTHER_SIZE

    @cached_property
    def agreed(self) -> Agreed | None:
        """The views that agree with each other; None: no view fits the board and the camera."""
        if self.is_of_another:
            return None
        try:
            return agreed(self.board, DeviceViews(camera=self.camera, views=self.views), self.device.role)
        except InvalidValueError:
            return None


def board_seen(
    capture: RawCapture,
    devices: Mapping[str, Device],
    clocks: Mapping[str, ClockFit],
    *,
    in_videos: bool,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> list[Seen]:
    """Board corners per anchor clip and device with known intrinsics; empty without a board.

    in_videos: search the videos where corners were not found already. InvalidValueError: a table of the
    capture cannot be read.
    """
    corners, declared, clips = capture.corners, capture.board, capture.clips("anchor")
    if declared is None or not clips or not (corners or in_videos):
        return []
    board = Board.from_dict(declared)
    wanted = [(clip, role) for clip in range(len(clips)) for role in devices]
    out = []
    for number, (clip, role) in enumerate(wanted):
        device, camera = devices[role], _camera(devices[role])
        if camera is not None:
            begin_ns, end_ns = _on_clock_of(role, clocks, clips[clip])
            empty = Seen(clip=clip, device=device, board=board, camera=camera, corners=_NONE, num_pictures=0)
            if role in corners:
                [found] = looks(corners[role], [(begin_ns, end_ns)]) or [_NONE]
                out.append(replace(empty, corners=found, num_pictures=len(np.unique(found.t_ns))))
            elif in_videos and not corners and device.video is not None:
                out.append(_looked(empty, begin_ns, end_ns))
        progress(number + 1, len(wanted))
    return out


def seen_wrong(seen: Sequence[Seen]) -> list[Reason]:
    """Reasons about the board, the viewpoints or the times of images, by device."""
    out: list[Reason] = []
    is_right = any(each.agreed for each in seen if each.by_picture)
    for role in dict.fromkeys(each.device.role for each in seen):
        of_role = [each for each in seen if each.device.role == role]
        shown = [each for each in of_role if each.by_picture]
        if not shown:
            out += _not_seen(role, of_role, is_right=is_right)
        elif any(each.is_of_another for each in shown) or (
            any(each.views for each in shown) and not any(each.agreed for each in shown)
        ):
            out.append(_fits_nowhere(role, shown))
        elif (misread := _misread(role, shown)) is not None and misread.name in READINGS:
            out.append(misread)
        elif moved := [each.moved for each in shown if each.moved is not None]:
            out += moved[:1]
        elif any(each.is_of_another_size for each in shown) and not _fits_others(role, seen):
            out.append(_of_another_size(role, next(each for each in shown if each.is_of_another_size)))
        else:
            out += [*_frontal(role, shown), *(_off_poses(role, shown) if misread is None else [misread])]
    return out


def odometry_wrong(
    seen: Sequence[Seen], devices: Mapping[str, Device], joined: Mapping[str, pin.SE3]
) -> list[Reason]:
    """Reasons about scale and drift of odometry, and a board that was moved between two clips."""
    by_role: dict[str, list[float]] = {}
    boards: dict[str, dict[int, tuple[int, pin.SE3]]] = {}
    for each in seen:
        role = each.device.role
        if each.scale is not None:
            by_role.setdefault(role, []).append(each.scale)
        if each.agreed is not None and len(each.agreed.views) >= _ENOUGH_VIEWS:
            t_ns = int(np.mean([view.t_ns - each.agreed.views[0].t_ns for view in each.agreed.views]))
            at = (each.agreed.views[0].t_ns + t_ns, each.agreed.mean)
            boards.setdefault(role, {})[each.clip] = at
    found = scales(by_role)
    return found or moved_between(boards, devices, joined)


def _fits_others(role: str, seen: Sequence[Seen]) -> bool:
    """Whether the board has its declared size by another device's odometry."""
    return (
        any(
            each.scale is not None and not each.is_of_another_size
            for each in seen
            if each.device.role != role
        )
        or len({each.is_of_another_size for each in seen if each.device.role == role and each.scale}) > 1
    )


def worlds_joined(seen: Sequence[Seen]) -> dict[str, pin.SE3]:
    """Role of a hand -> rough X_WcWh, by the first clip in which both devices saw the board well."""
    out: dict[str, pin.SE3] = {}
    chests = {each.clip: each.agreed for each in seen if each.device.role == "chest" and _is_good(each)}
    for each in seen:
        chest = chests.get(each.clip)
        if each.device.role != "chest" and each.device.role not in out and chest and _is_good(each):
            assert each.agreed is not None
            out[each.device.role] = chest.mean * each.agreed.mean.inverse()
    return out


def worlds_tilted(joined: Mapping[str, pin.SE3]) -> list[Reason]:
    """Reasons for hands whose odometry has another up axis than the chest's. joined: X_WcWh by role."""
    out = []
    for role, X_WcWh in joined.items():
        up_Wh = X_WcWh.rotation[2]
        tilt = float(np.arccos(np.clip(up_Wh[2], -1.0, 1.0)))
        if tilt <= MOST_TILT:
            continue
        axis = int(np.abs(up_Wh).argmax())
        is_straight = abs(up_Wh[axis]) > np.cos(MOST_TILT)
        name = f"{'-' * bool(up_Wh[axis] < 0.0)}{'xyz'[axis]}"
        hint = f"; they agree if its world has {name} up, not z" if is_straight else ""
        out.append(
            Reason(
                name="y-up" if is_straight and name == "y" else "worlds-tilted",
                what=f"{role}: by the board that both saw, its up axis and the chest's differ by "
                f"{np.degrees(tilt):.0f} degrees{hint}.",
                do="Import it again with the convention that it was written in (up=y), or with poses "
                "that are aligned with gravity.",
            )
        )
    return out


_NONE = BoardCorners(
    t_ns=np.zeros(0, dtype=np.int64),
    index=np.zeros(0, dtype=np.int64),
    corner=np.zeros(0, dtype=np.int64),
    uv=np.zeros((0, 2)),
)


def _is_good(seen: Seen) -> bool:
    side = seen.agreed
    return (
        side is not None
        and not seen.is_of_another_size
        and len(side.views) >= _ENOUGH_VIEWS
        and frontal_views(seen.device.role, side.tilts) is None
    )


def _camera(device: Device) -> CameraModel | None:
    """The device's camera model; None: unknown, or its file is invalid."""
    try:
        return None if device.info.camera is None else CameraModel.from_dict(device.info.camera)
    except (ValueError, TypeError, KeyError, OverflowError):
        return None


def _on_clock_of(role: str, clocks: Mapping[str, ClockFit], span: tuple[int, int]) -> tuple[int, int]:
    if role not in clocks:
        return span
    begin, end = clocks[role].b_of_a(np.array(span, dtype=np.int64))
    return int(begin), int(end)


def _looked(seen: Seen, begin_ns: int, end_ns: int) -> Seen:
    """Search the device's video for the board."""
    numbers = seen.device.frames.span(begin_ns, end_ns)
    if not len(numbers):
        return seen
    wanted = np.unique(np.linspace(numbers[0], numbers[-1], MOST_PICTURES).astype(int))
    found: list[tuple[int, int, Corners]] = []
    without: list[np.ndarray] = []
    shown: list[np.ndarray] = []
    for index, t_ns, rgb in seen.device.pictures(int(numbers[0]), int(numbers[-1]) + 1):
        if index not in wanted:
            continue
        if len(corners := detect(seen.board, rgb)):
            found.append((t_ns, index, corners))
            shown += [rgb] if len(shown) < _MOST_WITHOUT else []
        elif len(without) < _MOST_WITHOUT:
            without.append(rgb)
    if not found:
        return replace(seen, num_pictures=len(wanted), without=tuple(without))
    lengths = [len(each) for _, _, each in found]
    corners_found = BoardCorners(
        t_ns=np.repeat(np.array([t for t, _, _ in found], dtype=np.int64), lengths),
        index=np.repeat(np.array([i for _, i, _ in found], dtype=np.int64), lengths),
        corner=np.concatenate([each.ids for _, _, each in found]),
        uv=np.concatenate([each.uv for _, _, each in found]),
    )
    return replace(
        seen,
        corners=corners_found,
        num_pictures=len(wanted),
        without=tuple(without),
        shown=tuple(shown),
    )


def _not_seen(role: str, seen: Sequence[Seen], *, is_right: bool) -> list[Reason]:
    """is_right: another device saw this board."""
    pictures = [picture for each in seen for picture in each.without][:_MOST_WITHOUT]
    if not pictures:
        return []  # not searched, or no image of that time
    reason = None if is_right else wrong_board(seen[0].board, pictures)
    if reason is not None:
        return [replace(reason, what=f"{role}: {reason.what}", do=f"{reason.do} Then import again.")]
    return [
        Reason(
            name="board-not-seen",
            what=f"{role}: the board is in none of {sum(each.num_pictures for each in seen)} images of the "
            f"anchor clips; expected {seen[0].board}.",
            do="Show it whole, flat and lit, or mark the clips that show it; is this the device's video?",
            is_fatal=False,
        )
    ]


def _fits_nowhere(role: str, seen: Sequence[Seen]) -> Reason:
    pictures = [picture for each in seen for picture in (*each.shown, *each.without)][:_MOST_WITHOUT]
    if (reason := wrong_board(seen[0].board, pictures) if pictures else None) is not None:
        return replace(reason, what=f"{role}: {reason.what}", do=f"{reason.do} Then import again.")
    num = sum(len(each.by_picture) for each in seen)
    return Reason(
        name="wrong-board",
        what=f"{role}: corners of a board are found in {num} images, and in none do they lie as on "
        f"{seen[0].board}.",
        do="Give the board that was printed: columns, rows and layout are printed on it. If it is that one, "
        "the camera file belongs to another camera.",
    )


def _scale(p: np.ndarray, vector: np.ndarray) -> float | None:
    """s for which p + s vector is one point for all rows (N, 3); None: s is uncertain."""
    kept: np.ndarray = np.full(len(p), True)
    for _ in range(3):
        p0, vector0 = p - p[kept].mean(axis=0), vector - vector[kept].mean(axis=0)
        spread = float((vector0[kept] ** 2).sum())
        moved_m = float(np.sqrt((p0[kept] ** 2).sum(axis=1).mean()))
        if kept.sum() < _ENOUGH_VIEWS or moved_m < _LEAST_SPREAD_M or spread <= 0.0:
            return None
        s = -float((p0[kept] * vector0[kept]).sum()) / spread
        off = np.linalg.norm(p0 + s * vector0, axis=1)
        kept = off <= max(3.0 * float(np.median(off)), 1e-3)
    sigma = float(np.sqrt((off[kept] ** 2).mean() / spread))
    return s if s > 0.0 and sigma < 0.2 * _OTHER_SIZE * s else None


def _of_another_size(role: str, seen: Seen) -> Reason:
    assert seen.scale is not None
    square_mm = 1e3 * seen.board.square_m
    return Reason(
        name="wrong-board",
        what=f"{role}: by its odometry, the squares of the board are {seen.scale * square_mm:.0f} mm wide, "
        f"and {square_mm:.4g} mm are declared.",
        do="Give the board that was printed: the size of its squares is printed on it. If it is that one, "
        "the camera file belongs to another camera, or its poses are not in metres.",
    )


def _frontal(role: str, seen: Sequence[Seen]) -> list[Reason]:
    """Reasons for clips that cannot join worlds; fatal if there is no other clip."""
    reasons = [frontal_views(role, each.agreed.tilts) for each in seen if each.agreed]
    frontal = [reason for reason in reasons if reason is not None]
    return [replace(frontal[0], is_fatal=len(frontal) == len(reasons))] if frontal else []


def _misread(role: str, seen: Sequence[Seen]) -> Reason | None:
    """Which other convention the poses were written in, or that they fit no image although their times do."""
    for each in seen:
        if (reason := each.misread) is not None:
            late = _off_poses(role, [each]) if reason.name == "poses-off-pictures" else []
            return late[0] if late else reason
    return None


def _off_poses(role: str, seen: Sequence[Seen]) -> list[Reason]:
    """Whether images and poses have the same time, by clips that were not seen from the front alone."""
    for each in seen:
        if each.agreed is None or frontal_views(role, each.agreed.tilts) is not None:
            continue  # from the front, tilt of the board is unobservable and would pass for a time offset
        try:
            found = image_clock(each.board, each.camera, each.corners, each.device.poses).reason
        except InvalidValueError:
            continue  # it hardly moved, or is seen badly: the offset is unobservable
        if found is not None:
            return [replace(found, what=f"{role}: {found.what}")]
    return []
