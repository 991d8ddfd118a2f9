"""A dataset that is damaged in any of its files is a sentence; a sound one is read by the names it has."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from policies.lerobot.data import NUM_COMMITTED, ROWS, load_dataset
from robot_runtime.errors import InvalidValueError
from robot_runtime.robot.recorder import HAND_NAMES

pa = pytest.importorskip("pyarrow", reason="which datasets are written with")
pytest.importorskip("pandas", reason="which tasks are read with")

NAMES = ["joint_0", "joint_1", "joint_velocity_0", "joint_velocity_1", *HAND_NAMES]
STATE = [0.1, 0.2, 0.3, 0.4, 1.0, 2.0, 3.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0]


def dataset(folder: Path, names: list[str] = NAMES) -> Path:
    """Two frames without pictures, as `record` leaves them."""
    import pyarrow.parquet as pq

    features = {"observation.state": {"names": names}, ROWS: {}}
    state = [STATE[NAMES.index(name)] for name in names]
    columns = {
        "observation.state": [state] * 2,
        ROWS: [[[0.5, 0.6]]] * 2,
        NUM_COMMITTED: [0, 1],
        "capture.time_ns.state": [1, 2],
        "episode_index": [0, 0],
        "task_index": [0, 0],
    }
    episodes = {"episode_index": [0], "data/chunk_index": [0], "data/file_index": [0]}
    tasks = {"task_index": [0], "__index_level_0__": ["pick it up"]}
    by_text = pa.table(tasks).to_pandas().set_index("__index_level_0__")
    files = {
        "data/chunk-000/file-000.parquet": pa.table(columns),
        "meta/episodes/chunk-000/file-000.parquet": pa.table(episodes),
        "meta/tasks.parquet": pa.Table.from_pandas(by_text),
    }
    for name, table in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / name)
    info = {"fps": 20, "total_episodes": 1, "features": features}
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    return folder


@pytest.mark.parametrize("names", [NAMES, NAMES[::-1]])
def test_numbers_are_read_by_their_names_in_whatever_order(tmp_path: Path, names: list[str]):
    first, second = load_dataset(dataset(tmp_path, names))
    assert first.observation.state.q.tolist() == pytest.approx([0.1, 0.2])
    np.testing.assert_allclose(first.observation.state.X_BE.translation, [1.0, 2.0, 3.0])
    assert (first.observation.task, second.num_committed) == ("pick it up", 1)


def info(**changes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "meta" / "info.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def written(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def gone(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


DATA, EPISODES = "data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (written("meta/info.json", b"{"), "expected JSON"),
        (written("meta/info.json", b"[]"), "expected a JSON object"),
        (info(features=None), "is damaged"),
        (info(features={ROWS: {}}), "it has no 'observation.state'"),
        (info(features={ROWS: {}, "observation.state": {"names": NAMES[:3]}}), "is damaged"),
        (info(total_episodes="many"), "is damaged"),
        (info(total_episodes=0), "no finished episode"),
        (written(DATA, b"PAR1"), "parquet"),
        (written(EPISODES, b"garbage"), "(?i)parquet"),
        (gone(DATA), "file-000.parquet"),
        (gone("meta/tasks.parquet"), "tasks.parquet"),
        (gone("meta/info.json"), "is no LeRobot dataset"),
    ],
)
def test_a_damaged_dataset_is_a_sentence(tmp_path: Path, damage: Callable[[Path], object], words: str):
    damage(dataset(tmp_path))
    with pytest.raises(InvalidValueError) as refused:
        load_dataset(tmp_path)
    assert re.search(words, str(refused.value))
    assert "\n" not in str(refused.value)
