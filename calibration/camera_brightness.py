"""How bright a camera's images are, of a dataset, a capture, a run's log or a folder: `mean_brightness`."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from calibration.camera_match import CameraMatch
from calibration.capture.raw import RawCapture
from calibration.labels.columns import CAMERA_OF
from calibration.matched_camera import Warp
from robot_runtime.dataset.recording import PICTURES
from robot_runtime.dataset.stored import StoredDataset
from robot_runtime.errors import InvalidValueError

_LUMA = np.array([0.299, 0.587, 0.114])


def mean_brightness(path: Path, camera: str) -> float:
    """Mean grey level of some images of a camera, 0 to 255."""
    return float(np.mean([(rgb @ _LUMA).mean() for rgb in sampled_images(path, camera)]))


def mean_brightness_warped(path: Path, match: CameraMatch) -> float:
    """The same of the robot's images, where the captured camera looked too.

    InvalidValueError: they have neither the size of the robot's camera nor, warped already, the dataset's.
    """
    warp, levels = Warp(match), []
    for rgb in sampled_images(path, match.name):
        if rgb.shape[:2] not in (warp.source, warp.size):
            raise InvalidValueError(
                f"expected images of {match.name} of {warp.source} (height, width), for which the robot's "
                f"camera was calibrated, got {rgb.shape[:2]} in {path}: calibrate it as it "
                "is now"
            )
        shown = rgb if rgb.shape[:2] == warp.size else warp(rgb)
        levels.append((shown[warp.is_seen] @ _LUMA).mean() if warp.is_seen.any() else 0.0)
    return float(np.mean(levels))


_SAMPLED = 8


def sampled_images(path: Path, camera: str) -> Iterator[np.ndarray]:
    """Some images of a camera, (h, w, 3) RGB: of a dataset, a capture, a run's log, or a folder with
    CAMERA.png, CAMERA_1.png or a folder CAMERA. InvalidValueError: it has none."""
    if path.suffix == ".mcap":
        yield from _of_log(path, camera)
    elif (path / "capture.json").is_file():
        capture = RawCapture.open(path)
        [role] = [role for role, name in CAMERA_OF.items() if name == camera and role in capture.devices]
        device = capture.devices[role]
        for index in np.linspace(0, len(device.frames) - 1, _SAMPLED).astype(int).tolist():
            yield from (rgb for _, _, rgb in device.pictures(index, index + 1))
    elif (path / "meta" / "info.json").is_file():
        yield from _of_videos(StoredDataset(path), camera)
    else:
        yield from _of_folder(path, camera)


def _of_log(path: Path, camera: str) -> Iterator[np.ndarray]:
    import simplejpeg

    from robot_runtime.log.reader import RunLog

    shown = [image.jpeg for image in RunLog.open(path).images(camera)]
    yield from (simplejpeg.decode_jpeg(jpeg) for jpeg in shown[:: max(1, len(shown) // _SAMPLED)])


def _of_videos(data: StoredDataset, camera: str) -> Iterator[np.ndarray]:
    from calibration.capture.video import pictures

    column = f"{PICTURES}.{camera}"
    if column not in data.cameras:
        raise InvalidValueError(f"{data.root} has no images of camera {camera}")
    for episode in data.episodes[:: max(1, len(data.episodes) // _SAMPLED)]:
        at = round(episode.span_s(column)[0] * data.fps) + episode.length // 2
        yield from (rgb for _, rgb in pictures(data.video(episode, column), at, at + 1))


def _of_folder(path: Path, camera: str) -> Iterator[np.ndarray]:
    import cv2

    endings = (".png", ".jpg", ".jpeg", ".bmp")
    files = sorted(
        file
        for file in [*path.glob(f"{camera}.*"), *path.glob(f"{camera}_*"), *path.glob(f"{camera}/*")]
        if file.suffix.lower() in endings
    )
    if not files:
        raise InvalidValueError(
            f"{path} has no image of camera {camera}: expected {camera}.png, or a folder {camera} with images"
        )
    for file in files:
        if (found := cv2.imread(str(file))) is None:
            raise InvalidValueError(f"{file} is no image that can be read")
        yield np.ascontiguousarray(found[..., ::-1])
