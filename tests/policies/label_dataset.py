"""A dataset with the columns of a capture's labels, made by the test: the hand goes to the side of a dot."""

from pathlib import Path

import av
import numpy as np

from calibration.labels.columns import KINDS, Kind, features, state_names
from robot_runtime.dataset.dataset_folder import DatasetFolder
from robot_runtime.dataset.recording import ACTION, BASE_POSES, CAPTURE, PICTURES, STATE
from robot_runtime.dataset.run_columns import NEXT_VALID, TRAINABLE
from robot_runtime.dataset.video import VideoWriter
from robot_runtime.dataset.whole_episode import whole_episode

FPS, TASK = 20, "point at the dot"
UPRIGHT = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)


def write_labels(
    folder: Path,
    *,
    episodes: int = 4,
    frames: int = 40,
    size: tuple[int, int] = (48, 64),
    num_joints: int = 3,
    cameras: tuple[str, ...] = ("chest", "wrist"),
    kind: Kind = "decoupled",
    task: str = TASK,
) -> Path:
    """Write whole episodes; the dot is on the left in even ones."""
    wanted = features(cameras=dict.fromkeys(cameras, size), num_joints=num_joints, scene=None, kind=kind)
    with DatasetFolder(folder) as target:
        for number in range(episodes):
            place = target.staging()
            place.mkdir()
            side = (-1, 1)[number % 2]
            videos = {f"{PICTURES}.{name}": place / f"{name}.mp4" for name in cameras}
            for path in videos.values():
                film(path, frames, size, side)
            numbers = columns(wanted, frames, side, num_joints)
            samples = {name: np.zeros((2, 3, *size), np.uint8) for name in videos}
            target.take(
                whole_episode(
                    features=wanted, fps=FPS, robot_type="person", columns=numbers, tasks=[task] * frames,
                    videos=videos, samples=samples, about={"labels": kind},
                ),
                {},
            )  # fmt: skip
    return folder


def film(path: Path, frames: int, size: tuple[int, int], side: int) -> None:
    """Write a video with a dot on one side."""
    height, width = size
    pixels = np.zeros((*size, 3), np.uint8)
    middle = width // 2 + side * width // 4
    pixels[height // 2 - 4 : height // 2 + 4, middle - 4 : middle + 4] = 255
    with VideoWriter(path, FPS, size) as writer:
        for _ in range(frames):
            writer.add(av.VideoFrame.from_ndarray(pixels, format="rgb24"))


def columns(wanted: dict, frames: int, side: int, num_joints: int) -> dict[str, np.ndarray]:
    """The values of all columns but images: the hand moves sideways by 1 cm a row."""
    y = side * 0.01 * np.arange(frames)
    hand = np.column_stack([np.full(frames, 0.5), y, np.full(frames, 0.8), np.tile(UPRIGHT, (frames, 1))])
    base, width = np.zeros((frames, 3)), np.full((frames, 1), 0.04)
    action = np.hstack([base, hand, width])
    state = np.hstack([np.zeros((frames, 2 * num_joints)), hand, width, np.zeros((frames, 3))])
    assert state.shape[1] == len(state_names(num_joints))
    out = {
        name: np.zeros((frames, *each["shape"])) for name, each in wanted.items() if each["dtype"] != "video"
    }
    stamps = np.arange(frames)[:, None] * (1_000_000_000 // FPS)
    out |= {name: stamps for name in out if name.startswith(f"{CAPTURE}.")}
    out |= {STATE: state, BASE_POSES: base, ACTION: action, TRAINABLE: np.ones((frames, 1), bool)}
    out |= {f"labels.{each}": action for each in KINDS}
    out[NEXT_VALID] = np.append(np.ones(frames - 1, bool), False)[:, None]
    return out
