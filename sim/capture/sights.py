"""Simulated detections in the images of a recording, without images: board, tags, things."""

import numpy as np
import pinocchio as pin
from jaxtyping import Bool, Float

from calibration.board import Board
from sim.capture import tags as gripper_tags
from sim.capture.cameras import Sight, board_is_facing, look
from sim.capture.devices import Device
from sim.capture.takes import ANCHOR, Recording, Span

BOARD_REACH_M, THINGS_REACH_M = 1.6, 4.5
LEAST_CORNERS = 4
_LEAST_TAG_PX, _SLANT = 14.0, np.cos(np.deg2rad(65.0))


def see_board(
    device: Device,
    X_WB: pin.SE3,
    board: Board,
    p_B: Float[np.ndarray, "K 3"],
    inside: Bool[np.ndarray, " N"],
    rng: np.random.Generator,
) -> Sight:
    """Detect points p_B of a stationary board in kept images; `picture` counts all frames."""
    centre = X_WB.act(board.centre_B)
    rows = device.kept[inside[device.kept]]
    if not rows.size:
        return Sight.nothing()
    at = device.X_W.sampled(device.frames[rows])
    rows = rows[board_is_facing(at, centre, X_WB.rotation[:, 2], reach_m=BOARD_REACH_M)]
    points = (p_B @ X_WB.rotation.T + X_WB.translation)[None]
    return _enough(_looked(device, rows, points, rng), LEAST_CORNERS)


def see_cube(device: Device, recording: Recording, rng: np.random.Generator) -> Sight:
    """Detect corners of the gripper's cube in the chest's images; point is 4 * face + corner."""
    rows = device.kept
    E = recording.X_WE.sampled(device.frames[rows])
    C = device.X_W.sampled(device.frames[rows])
    faces = gripper_tags.cube()
    points = np.concatenate([tag.corners_E for tag in faces])
    corners = np.einsum("nij,kj->nki", E.R, points) + E.p[:, None, :]
    for k, tag in enumerate(faces):
        normal = -E.R @ tag.X_ET.rotation[:, 2]
        view = C.p - corners[:, 4 * k : 4 * k + 4].mean(axis=1)
        facing = (normal * view).sum(axis=1) / np.linalg.norm(view, axis=1) > _SLANT
        corners[~facing, 4 * k : 4 * k + 4] = np.nan
    return _whole_tags(_looked(device, rows, corners, rng))


def see_things(
    device: Device, recording: Recording, span: Span, rng: np.random.Generator, *, noise_m: float
) -> list[tuple[int, str, np.ndarray, float]]:
    """(frame, name, position in the camera, standard deviation [m]) of each detection within a span.

    Things outside the image or beyond THINGS_REACH_M are not found; walls do not occlude.
    """
    times = device.frames[device.kept]
    rows = device.kept[(times >= span.start_ns) & (times < span.stop_ns)]
    if not rows.size:
        return []
    at, found = device.X_W.sampled(device.frames[rows]), []
    for name, p_W in recording.things(span, device.frames[rows]).items():
        p_C = np.einsum("nji,nj->ni", at.R, p_W - at.p)
        far = np.linalg.norm(p_C, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            seen = device.camera.lens.sees(device.camera.lens.project(p_C))
        seen &= (p_C[:, 2] > 0.05) & (far < THINGS_REACH_M)
        sigma = noise_m * np.maximum(far, 0.3)
        measured = p_C + rng.normal(size=p_C.shape) * sigma[:, None]
        found += [(int(rows[i]), name, measured[i], float(sigma[i])) for i in np.flatnonzero(seen)]
    return sorted(found, key=lambda each: each[0])


def board_during(recording: Recording) -> list[tuple[Span, pin.SE3]]:
    """Spans with a board, and its pose."""
    spans = [(span, recording.takes[span.take].X_WB) for span in recording.spans_of(ANCHOR)]
    return [(span, X_WB) for span, X_WB in spans if X_WB is not None]


def _looked(device: Device, rows: np.ndarray, points: np.ndarray, rng: np.random.Generator) -> Sight:
    """`look` at frames; `picture` counts all frames of the device."""
    if not rows.size or not points.size:
        return Sight.nothing()
    sight = look(device.camera, device.X_W, device.frames[rows], points, rng)
    return Sight(picture=rows[sight.picture], point=sight.point, uv=sight.uv)


def _enough(sight: Sight, least: int) -> Sight:
    """Drop images that show fewer than `least` points."""
    _, back, count = np.unique(sight.picture, return_inverse=True, return_counts=True)
    return sight.kept(count[back] >= least)


def _whole_tags(sight: Sight) -> Sight:
    """Keep tags with all four corners visible and large enough to be read."""
    key = sight.picture * 64 + sight.point // 4
    _, back, count = np.unique(key, return_inverse=True, return_counts=True)
    sight = sight.kept(count[back] == 4)
    if not len(sight):
        return sight
    quads = sight.uv.reshape(-1, 4, 2)
    sides = np.linalg.norm(np.roll(quads, -1, axis=1) - quads, axis=2).min(axis=1)
    return sight.kept(np.repeat(sides > _LEAST_TAG_PX, 4))
