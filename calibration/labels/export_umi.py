"""Writes labels as a UMI replay buffer, a Zarr v2 folder: `export_umi`.

FILE.zarr/data/robot0_eef_pos, robot0_eef_rot_axis_angle, robot0_gripper_width,
               robot0_demo_start_pose, robot0_demo_end_pose      float32, (rows, n)
               camera0_rgb                                       uint8, (rows, h, w, 3), square
         meta/episode_ends                                       int64
         meta/captures.json                                      origin of each episode (ours)

Version 2 has a JSON header and one compressed file per chunk, so no library is needed to write it; stock
`zarr` and UMI's own `ReplayBuffer` read it. UMI compresses images by JPEG XL; here it is zlib, which every
reader supports.
"""

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from scipy.spatial.transform import Rotation

from calibration.capture.raw import Device
from calibration.labels.export_lerobot import Labelled, key_of, pictures_between
from calibration.labels.values import Labels
from calibration.trajectory import Trajectory
from robot_runtime.errors import InvalidValueError
from robot_runtime.staging import whole_folder

ROWS_IN_CHUNK = 1000
SIDE = 224
"""Side of UMI's images [pixels]."""


@final
@dataclass(frozen=True, kw_only=True)
class UmiWritten:
    """Contents of a replay buffer that was written."""

    num_episodes: int
    num_rows: int
    without_video: int
    """Episodes of captures whose hand has no video: one of them suffices to leave out all images."""

    def __str__(self) -> str:
        counts = f"{self.num_episodes} episodes, {self.num_rows} rows"
        if not self.without_video:
            return f"{counts}, with images (camera0_rgb)"
        return (
            f"{counts}. warning: it has no images (camera0_rgb), which UMI's training wants: the hand has "
            f"no video in the captures of {self.without_video} of them"
        )


def export_umi(
    labelled: Sequence[Labelled],
    path: Path,
    *,
    side: int = SIDE,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> UmiWritten:
    """Write all usable demonstrations; the folder appears complete or not at all.

    The hand's pose is X_WE, as in UMI, whose policies take rows relative to the current pose. Images are the
    hand camera's central square, scaled to side by side; if one capture has no video there are none.
    InvalidValueError: the folder exists or does not end in .zarr, or no demonstration is usable.
    """
    if path.suffix != ".zarr":
        raise InvalidValueError(f"expected a folder for a UMI dataset that ends in .zarr, got {path.name}")
    if path.exists():
        raise InvalidValueError(f"{path} exists: a UMI dataset needs a new folder")
    usable = [each for each in labelled if each.labels.verdict.ok and each.labels.is_valid.any()]
    if not usable:
        raise InvalidValueError("no demonstration can be used: `robot-runtime capture check` says why")
    with whole_folder(path) as unfinished:
        return _write(unfinished, usable, side, progress)


def _write(
    root: Path, usable: Sequence[Labelled], side: int, progress: Callable[[int, int], object]
) -> UmiWritten:
    root.mkdir(parents=True)
    for group in (root, root / "data", root / "meta"):
        group.mkdir(exist_ok=True)
        (group / ".zgroup").write_text(json.dumps({"zarr_format": 2}))
    parts = [_numbers(each.labels) for each in usable]
    for name in parts[0]:
        _array(root / "data" / name, np.concatenate([part[name] for part in parts]).astype(np.float32))
    ends = np.cumsum([len(each.labels) for each in usable])
    _array(root / "meta" / "episode_ends", ends.astype(np.int64))
    without_video = sum(_hand(each).video is None for each in usable)
    if not without_video:
        _pictures(root / "data" / "camera0_rgb", usable, side, int(ends[-1]), progress)
    where = [{"key": key_of(each), "demonstration": each.labels.demonstration} for each in usable]
    progress(len(usable), len(usable))
    (root / "meta" / "captures.json").write_text(json.dumps(where, indent=1) + "\n")
    return UmiWritten(num_episodes=len(usable), num_rows=int(ends[-1]), without_video=without_video)


def _hand(each: Labelled) -> Device:
    return each.joined.device(each.joined.hand_role)


def _numbers(labels: Labels) -> dict[str, np.ndarray]:
    n = len(labels)
    pose = _axis_angle(labels.X_WE)
    return {
        "robot0_eef_pos": pose[:, :3],
        "robot0_eef_rot_axis_angle": pose[:, 3:],
        "robot0_gripper_width": np.nan_to_num(labels.width)[:, None],
        "robot0_demo_start_pose": np.tile(pose[0], (n, 1)),
        "robot0_demo_end_pose": np.tile(pose[-1], (n, 1)),
    }


def _axis_angle(X: Trajectory) -> np.ndarray:
    """Poses (N, 6): position [m] and rotation vector [rad]."""
    return np.hstack([X.p, Rotation.from_quat(X.q, scalar_first=True).as_rotvec()])


def _pictures(
    folder: Path, usable: Sequence[Labelled], side: int, num: int, progress: Callable[[int, int], object]
) -> None:
    import cv2

    shape = (num, side, side, 3)
    _header(folder, shape, (1, side, side, 3), np.dtype(np.uint8))
    row = 0
    for number, each in enumerate(usable):
        index = np.maximum(each.labels.picture_index[each.joined.hand_role], 0)
        shown = pictures_between(_hand(each), int(index[0]), int(index[-1]) + 1)
        now, chunk = -1, b""
        for wanted in index.tolist():
            while now < wanted:
                now, rgb = next(shown)
                if now == wanted:
                    square = cv2.resize(_middle(rgb), (side, side), interpolation=cv2.INTER_AREA)
                    chunk = zlib.compress(np.ascontiguousarray(square).tobytes(), 1)
            (folder / f"{row}.0.0.0").write_bytes(chunk)
            row += 1
        progress(number + 1, len(usable))


def _middle(rgb: np.ndarray) -> np.ndarray:
    height, width, _ = rgb.shape
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return rgb[top : top + side, left : left + side]


def _array(folder: Path, values: np.ndarray) -> None:
    """Write an array in chunks of rows; the last one is padded, as the format requires."""
    per_chunk = min(ROWS_IN_CHUNK, len(values))
    chunk_shape = (per_chunk, *values.shape[1:])
    _header(folder, values.shape, chunk_shape, values.dtype)
    for number, start in enumerate(range(0, len(values), per_chunk)):
        chunk = np.zeros(chunk_shape, dtype=values.dtype)
        part = values[start : start + per_chunk]
        chunk[: len(part)] = part
        name = ".".join([str(number), *["0"] * (values.ndim - 1)])
        (folder / name).write_bytes(zlib.compress(chunk.tobytes(), 1))


def _header(folder: Path, shape: Sequence[int], chunks: Sequence[int], dtype: np.dtype[Any]) -> None:
    folder.mkdir()
    header = {
        "zarr_format": 2,
        "shape": [*shape],
        "chunks": [*chunks],
        "dtype": dtype.str,
        "compressor": {"id": "zlib", "level": 1},
        "fill_value": 0,
        "order": "C",
        "filters": None,
    }
    (folder / ".zarray").write_text(json.dumps(header))
