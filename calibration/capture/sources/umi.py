"""A UMI replay buffer, `NAME.zarr` or `NAME.zarr.zip` (Zarr v2): one hand of one episode.

    data/robot0_eef_pos (N, 3)   robot0_eef_rot_axis_angle (N, 3)   robot0_gripper_width (N, 1)
    data/camera0_rgb (N, h, w, 3), an image in each chunk            meta/episode_ends (E,)

It has no times: rows are 1 / fps apart, from 0. Poses are of the TCP; the camera's follow from UMI's mount,
or from tcp=FILE. It has no chest, and images are cropped, so their intrinsics are unknown.
"""

import importlib.util
import json
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
from scipy.spatial.transform import Rotation

from calibration.capture.sources.axes import OPTICAL, trajectory
from calibration.capture.sources.recording import Recording
from calibration.capture.values import DeviceInfo, Widths
from calibration.tcp import UMI_GRIPPER
from robot_runtime.errors import InvalidValueError

FPS = 60_000 / 1_001
"""Rate of UMI's GoPro videos, at which its pipeline writes rows."""
_JPEG_XL = "imagecodecs_jpegxl"


def read_umi(
    path: Path,
    *,
    episode: int = 0,
    robot: int = 0,
    fps: float = FPS,
    up: str = "z",
    X_HE: pin.SE3 = UMI_GRIPPER.X_HE,
) -> Recording:
    """Read one hand of an episode.

    robot: number of the hand, 0 or 1. fps: rows a second. up: axis of its world. X_HE: the TCP in the camera.
    InvalidValueError: no replay buffer, or no such episode or hand.
    """
    get = _opened(path)
    if not 1.0 <= fps <= 1000.0:
        raise InvalidValueError(f"{path}: expected fps from 1 to 1000, got {fps:g}")
    ends = _Array.of(path, get, "meta/episode_ends").rows(0, None).ravel()
    if not 0 <= episode < len(ends):
        raise InvalidValueError(
            f"{path} has episodes 0 to {len(ends) - 1}; got {episode}: set episode=NUMBER"
        )
    start, stop = int(ends[episode - 1]) if episode else 0, int(ends[episode])
    names = ("eef_pos", "eef_rot_axis_angle", "gripper_width")
    p, turn, width = (_Array.of(path, get, f"data/robot{robot}_{name}").rows(start, stop) for name in names)
    t_ns = np.rint(np.arange(stop - start) * 1e9 / fps).astype(np.int64)
    q = Rotation.from_rotvec(turn).as_quat(scalar_first=True)
    poses = trajectory(path, t_ns, p.astype(float), q, axes=OPTICAL, up=up).then(X_HE.inverse())
    images, no_images = _images(path, get, robot, stop)
    return Recording(
        info=DeviceInfo(
            kind="umi",
            size=None if images is None else (images.shape[1], images.shape[2]),
            fps=None if images is None else fps,
            X_HE=X_HE,
            gripper="sensor",
            source=f"{path.name}, episode {episode}, robot{robot}",
        ),
        poses=poses,
        frames_ns=None if images is None else t_ns,
        pictures=None if images is None else lambda: (images.image(i) for i in range(start, stop)),
        widths=Widths(t_ns=t_ns, width_m=width.ravel().astype(float)),
        lacks=(
            f"{path.name}: a UMI replay buffer has no times, so its rows are taken to be {1e3 / fps:.2f} ms "
            "apart, and a chest's clock can be joined only by a sync clip in the same episode. Import the "
            "session's videos where you have them: gopro:raw_video.mp4,trajectory=camera_trajectory.csv",
            *no_images,
        ),
    )


def _images(path: Path, get: "Get", robot: int, stop: int) -> "tuple[_Array | None, tuple[str, ...]]":
    """Images of its camera, if there are any that can be read; and a sentence on those that cannot."""
    if get(f"data/camera{robot}_rgb/.zarray") is None:
        return None, (f"{path.name} has no images of camera{robot}",)
    images = _Array.of(path, get, f"data/camera{robot}_rgb")
    if len(images.shape) != 4 or images.chunks[0] != 1 or images.shape[0] < stop:
        raise InvalidValueError(
            f"{path}: expected camera{robot}_rgb (N, h, w, 3) with an image in each chunk, got "
            f"{images.shape} in chunks of {images.chunks}"
        )
    if images.is_jpeg_xl and importlib.util.find_spec("imagecodecs") is None:
        return None, (
            f"{path.name}: its images are in JPEG XL and are left out: reading them needs a library, "
            "`pip install imagecodecs`",
        )
    return images, ()


Get = Callable[[str], bytes | None]


def _opened(path: Path) -> Get:
    """Function that returns the content of a member by its name; None: there is none."""
    if path.is_dir():
        return lambda name: (path / name).read_bytes() if (path / name).is_file() else None
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise InvalidValueError(f"{path} is no folder and no zip of a Zarr: {error}") from error
    names = set(archive.namelist())
    return lambda name: archive.read(name) if name in names else None


@dataclass(frozen=True, eq=False)
class _Array:
    """One array of a Zarr v2 store."""

    where: str
    get: Get
    name: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    header: dict[str, Any]

    @classmethod
    def of(cls, path: Path, get: Get, name: str) -> "_Array":
        found = get(f"{name}/.zarray")
        if found is None:
            raise InvalidValueError(f"{path} has no {name}: it is no UMI replay buffer in Zarr v2")
        header = json.loads(found)
        if header.get("order", "C") != "C" or header.get("filters"):
            raise InvalidValueError(f"{path}, {name}: expected an array in C order without filters")
        return cls(str(path), get, name, tuple(header["shape"]), tuple(header["chunks"]), header)

    @property
    def is_jpeg_xl(self) -> bool:
        return (self.header.get("compressor") or {}).get("id") == _JPEG_XL

    def rows(self, start: int, stop: int | None) -> np.ndarray:
        """Rows [start, stop) of an array whose chunks hold whole rows."""
        stop = self.shape[0] if stop is None else stop
        if self.shape[1:] != self.chunks[1:]:
            raise InvalidValueError(f"{self.where}, {self.name}: expected chunks of whole rows")
        if stop > self.shape[0]:
            raise InvalidValueError(f"{self.where}, {self.name}: expected {stop} rows, got {self.shape[0]}")
        per, parts = self.chunks[0], []
        for number in range(start // per, -(-stop // per)):
            parts.append(
                np.frombuffer(self._unpacked(number), dtype=self.header["dtype"]).reshape(self.chunks)
            )
        first = start // per * per
        joined: np.ndarray = np.concatenate(parts)[start - first : stop - first]
        return joined

    def image(self, number: int) -> np.ndarray:
        """One image (h, w, 3)."""
        if self.is_jpeg_xl:
            import imagecodecs

            return np.asarray(imagecodecs.jpegxl_decode(self._packed(number)))
        return np.frombuffer(self._unpacked(number), np.uint8).reshape(self.shape[1:])

    def _packed(self, number: int) -> bytes:
        separator = self.header.get("dimension_separator", ".")
        name = separator.join([str(number), *["0"] * (len(self.shape) - 1)])
        found = self.get(f"{self.name}/{name}")
        if found is None:
            raise InvalidValueError(f"{self.where}, {self.name}: chunk {name} is missing")
        return found

    def _unpacked(self, number: int) -> bytes:
        codec, packed = self.header.get("compressor"), self._packed(number)
        if codec is None:
            return packed
        if codec.get("id") == "zlib":
            return zlib.decompress(packed)
        try:
            import numcodecs
        except ImportError:
            raise InvalidValueError(
                f"{self.where} is compressed by {codec.get('id')}, which needs a library: "
                "pip install numcodecs"
            ) from None
        try:
            return bytes(numcodecs.get_codec(codec).decode(packed))
        except (ValueError, RuntimeError) as error:
            raise InvalidValueError(f"{self.where}, {self.name}: {codec.get('id')}: {error}") from error
