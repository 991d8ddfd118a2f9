"""Solves the anchors of a capture, one per clip in which both cameras see the board: `anchors_of`."""

from collections.abc import Callable

import numpy as np

from calibration.anchor import Anchor, AnchorConfig, DeviceViews, View, solve_anchor
from calibration.anchor_views import FASTEST
from calibration.board import Board
from calibration.camera import CameraModel, Intrinsics
from calibration.capture.raw import Device, RawCapture
from calibration.detection import Corners, detect
from calibration.labels.joined import CHEST, readout_ns
from calibration.labels.values import HandClock
from calibration.trajectory import LOST
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError

MOST_VIEWS = 120
"""Images searched per clip and device, spread over the clip."""


def anchors_of(
    capture: RawCapture,
    hand: str,
    clock: HandClock,
    *,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> list[Anchor]:
    """One anchor for each marked clip, in order of time; corners found already are not searched again.

    clock: of the hand. InvalidValueError: no marked clip, unknown board, a camera that is not calibrated,
    or a clip that shows no board.
    """
    clips = capture.clips("anchor")
    if not clips:
        raise InvalidValueError(
            f"{capture.path} has no anchor clip: look at the board with both cameras (key a begins and ends "
            "it, or a line of --marks gives its times)"
        )
    if capture.board is None:
        raise InvalidValueError(f"{capture.path} does not declare the board of its anchors")
    board = Board.from_dict(capture.board)
    out = []
    for i, (begin_ns, end_ns) in enumerate(clips):
        views = []
        for role in (CHEST, hand):
            of_chest = role == CHEST
            span = (
                (begin_ns, end_ns) if of_chest else tuple(clock.back(np.array([begin_ns, end_ns])).tolist())
            )
            views.append(views_in(capture, board, role, (int(span[0]), int(span[1]))))
            progress(2 * i + (1 if of_chest else 2), 2 * len(clips))
        config = AnchorConfig(hand_time=lambda t_ns: int(clock.back(np.array([t_ns]))[0]))
        out.append(solve_anchor(board, views[0], views[1], config))
    return out


def views_in(
    capture: RawCapture,
    board: Board,
    role: str,
    span: tuple[int, int],
    calibrated: Intrinsics | None = None,
) -> DeviceViews:
    """Views of the board that a device saw while its camera was nearly stationary and tracked.

    span: [ns] on the device's own clock. calibrated: its camera; None: as the capture declares.
    InvalidValueError: the camera is not calibrated, or never shows the board.
    """
    device = capture.devices[role]
    if calibrated is None and device.info.camera is None:
        raise InvalidValueError(
            f"the camera of {role} is not calibrated: run `robot-runtime calibrate intrinsics`"
        )
    if calibrated is None:
        calibrated = Intrinsics(camera=CameraModel.from_dict(device.info.camera or {}))
    camera = calibrated.camera
    found = (
        _known(capture, board, role, span, camera)
        if role in capture.corners
        else _looked(board, device, span)
    )
    poses = device.poses
    middles, speeds = poses.angular_speed()
    views = []
    for t_ns, corners in found:
        if not poses.t_ns[0] <= t_ns <= poses.t_ns[-1] or np.interp(t_ns, middles, speeds) > FASTEST:
            continue
        late_ns = int(readout_ns(capture, role, corners.uv[:, 1].mean(keepdims=True))[0])
        there = poses.sampled(np.clip([t_ns + late_ns], poses.t_ns[0], poses.t_ns[-1]))
        if there.tracking[0] > LOST:
            views.append(View(t_ns=t_ns, corners=corners, X_WC=there[0]))
    if not views:
        seconds = (span[1] - span[0]) / NS_PER_S
        raise InvalidValueError(
            f"{capture.path}: in an anchor clip of {seconds:.1f} s the camera of {role} never shows the "
            f"board while stationary: hold it still and tilted before the board ({board})"
        )
    focal_sigma = float(calibrated.residuals.get("focal_sigma_share", 0.0))
    return DeviceViews(camera=camera, views=views, focal_sigma=focal_sigma)


def _known(
    capture: RawCapture, board: Board, role: str, span: tuple[int, int], camera: CameraModel
) -> list[tuple[int, Corners]]:
    found = capture.corners.get(role)
    if found is None:
        return []
    if len(found.corner) and int(found.corner.max()) >= board.num_corners:
        raise InvalidValueError(
            f"{capture.path / 'corners.csv'} has corner {found.corner.max()}, expected up to "
            f"{board.num_corners - 1} on {board}: they belong to another board"
        )
    rows = np.flatnonzero((found.t_ns >= span[0]) & (found.t_ns < span[1]))
    out = []
    for t_ns in np.unique(found.t_ns[rows]):
        at = rows[found.t_ns[rows] == t_ns]
        at = at[np.argsort(found.corner[at])]
        out.append((int(t_ns), Corners(ids=found.corner[at], uv=found.uv[at], size=camera.size)))
    return out


def _looked(board: Board, device: Device, span: tuple[int, int]) -> list[tuple[int, Corners]]:
    numbers = device.frames.span(*span)
    if not len(numbers):
        return []
    wanted = set(np.linspace(numbers[0], numbers[-1], min(MOST_VIEWS, len(numbers))).astype(int).tolist())
    out = []
    for index, t_ns, rgb in device.pictures(numbers[0], numbers[-1] + 1):
        if index in wanted and len(corners := detect(board, rgb)):
            out.append((t_ns, corners))
    return out
