"""Datasets to look at: one that stock LeRobot wrote for a stranger's arm, and copies of it with one fault."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

FPS, EPISODES, FRAMES = 20, 4, 60
NAMES = ["shoulder_pan.pos", "shoulder_lift.pos", "elbow_flex.pos", "gripper.pos"]
SIZE = (48, 64)


def state_of(episode: int, k: np.ndarray) -> np.ndarray:
    """Three joints on their way, with some noise, and a gripper that closes half way [degrees, percent]."""
    noise = np.random.default_rng(episode).normal(0, 0.05, (len(k), 4))
    t = k[:, None] / FPS
    joints = 40 * np.sin(t * np.array([0.9, 1.3, 0.7]) + episode)
    fingers = 90.0 / (1 + np.exp((k - 32.0) / 2))
    return np.hstack([joints, fingers[:, None]]) + noise


def action_of(episode: int, k: np.ndarray) -> np.ndarray:
    """The state of two frames later; the gripper is told at once."""
    out = state_of(episode, k + 2)
    out[:, 3] = np.where(k < 28, 90.0, 0.0)
    return out


def picture(episode: int, k: int) -> np.ndarray:
    """A bright square that moves across noise."""
    pixels = np.random.default_rng(1000 * episode + k).integers(0, 40, (*SIZE, 3), dtype=np.uint8)
    pixels[10:26, k % 48 : k % 48 + 16] = 220
    return pixels


def write_stranger(root: Path, names: list[str], *, episodes: range = range(EPISODES)) -> None:
    """By stock LeRobot, all episodes in one file of each kind."""
    from lerobot.configs.video import RGBEncoderConfig
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    numbers = {"dtype": "float32", "shape": (len(names),), "names": names}
    axes = ["height", "width", "channels"]
    features = {
        "observation.state": numbers,
        "action": numbers,
        "observation.images.top": {"dtype": "video", "shape": (*SIZE, 3), "names": axes},
    }
    order = [NAMES.index(name) for name in names]
    encoder = RGBEncoderConfig(vcodec="h264", crf=18)
    dataset = LeRobotDataset.create(
        "a/stranger", FPS, features, root=root, robot_type="so100", rgb_encoder=encoder
    )
    k = np.arange(FRAMES)
    for episode in episodes:
        states, actions = state_of(episode, k)[:, order], action_of(episode, k)[:, order]
        for i in range(FRAMES):
            frame = {
                "observation.state": states[i].astype(np.float32),
                "action": actions[i].astype(np.float32),
                "observation.images.top": picture(episode, i),
                "task": "put the block into the box" if episode % 2 == 0 else "fold the cloth",
            }
            dataset.add_frame(frame)
        dataset.save_episode(parallel_encoding=False)
    dataset.finalize()


@pytest.fixture(scope="session")
def stranger(tmp_path_factory) -> Path:
    """Somebody's dataset of four episodes."""
    pytest.importorskip("datasets", reason="writes LeRobot datasets")
    root = tmp_path_factory.mktemp("stranger") / "dataset"
    write_stranger(root, NAMES)
    return root


@pytest.fixture(scope="session")
def turned(tmp_path_factory) -> Path:
    """The same robot's, by somebody who names its numbers in another order."""
    root = tmp_path_factory.mktemp("turned") / "dataset"
    write_stranger(root, NAMES[::-1], episodes=range(6, 7))
    return root


Change = Callable[[dict[str, np.ndarray]], None]


def change_data(root: Path, change: Change, *, with_stats: bool = True) -> None:
    """Rewrite the rows of all episodes, and by default the figures that follow from them."""
    [path] = (root / "data").glob("*/*.parquet")
    table = pq.read_table(path)
    columns = {name: np.array(table[name].to_pylist()) for name in table.column_names}
    change(columns)
    arrays = {
        name: pa.array([*values], type=table.schema.field(name).type)
        if name in table.column_names
        else pa.array([*values])
        for name, values in columns.items()
    }
    pq.write_table(pa.table(arrays), path)
    if with_stats:
        stats = json.loads((root / "meta/stats.json").read_text())
        for name, values in columns.items():
            rows = np.asarray(values, float).reshape(len(values), -1)
            figures = {"min": rows.min(0), "max": rows.max(0), "mean": rows.mean(0), "std": rows.std(0)}
            stats.setdefault(name, {}).update({what: value.tolist() for what, value in figures.items()})
        (root / "meta/stats.json").write_text(json.dumps(stats))


def change_json(path: Path, change: Callable[[dict], None]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def change_episodes(root: Path, change: Callable[[list[dict]], None]) -> None:
    """Rewrite meta/episodes."""
    [path] = (root / "meta/episodes").glob("*/*.parquet")
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)


@pytest.fixture
def copied(stranger, tmp_path) -> Path:
    """A copy of the stranger's dataset, to be damaged."""
    return Path(shutil.copytree(stranger, tmp_path / "copy"))
