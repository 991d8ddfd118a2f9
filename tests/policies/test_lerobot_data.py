"""A dataset that is damaged in any of its files is a sentence; a sound one is read by the names it has."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from policies.lerobot.data import NUM_COMMITTED, ROWS, load_dataset
from robot_runtime.core.values.columns import HAND
from robot_runtime.core.values.schema import ArmSchema, Schema
from robot_runtime.errors import InvalidValueError

pa = pytest.importorskip("pyarrow", reason="which datasets are written with")
pytest.importorskip("pandas", reason="which tasks are read with")

JOINTS = ("arm.joint_1", "arm.joint_2")
NAMES = [*JOINTS, *(f"{joint}.velocity" for joint in JOINTS), *(f"arm.{name}" for name in HAND)]
OLDER = ["joint_0", "joint_1", "joint_velocity_0", "joint_velocity_1"]
OLDER += [f"hand_{name}" for name in ("x", "y", "z", *(f"rotation_{i}" for i in range(6)))]
STATE = [0.1, 0.2, 0.3, 0.4, 1.0, 2.0, 3.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0]


def dataset(folder: Path, names: list[str] = NAMES) -> Path:
    """Two frames without pictures, as `record` leaves them."""
    import pyarrow.parquet as pq

    features = {"observation.state": {"names": names}, ROWS: {}}
    order = OLDER if names[0] in OLDER else NAMES
    state = [STATE[order.index(name)] for name in names]
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


@pytest.mark.parametrize("names", [NAMES, NAMES[::-1], OLDER, OLDER[::-1]])
def test_numbers_are_read_by_their_names_in_whatever_order(tmp_path: Path, names: list[str]):
    first, second = load_dataset(dataset(tmp_path, names))
    assert first.observation.state.q.tolist() == pytest.approx([0.1, 0.2])
    np.testing.assert_allclose(first.observation.state.X_BE.translation, [1.0, 2.0, 3.0])
    assert (first.observation.task, second.num_committed) == ("pick it up", 1)


def test_a_robots_numbers_are_taken_in_the_order_of_its_joints_and_what_is_missing_is_named(tmp_path: Path):
    folder = dataset(tmp_path)
    turned = Schema(parts={"arm": ArmSchema(2, ("joint_2", "joint_1"), has_hand=False)})
    state = load_dataset(folder, turned)[0].observation.state
    assert state.q.tolist() == pytest.approx([0.2, 0.1])
    assert state.X_BE is None
    two = Schema(parts={"arm": ArmSchema(3), "left_arm": ArmSchema(1, has_hand=False)})
    with pytest.raises(InvalidValueError, match=r"has no arm\.joint_3, arm\.joint_3\.velocity, left_arm"):
        load_dataset(folder, two)


def test_two_numbers_of_one_name_are_refused(tmp_path: Path):
    folder = dataset(tmp_path)
    path = folder / "meta" / "info.json"
    data = json.loads(path.read_text())
    data["features"]["observation.state"]["names"] = ["arm.joint_1", "joint_0", *NAMES[2:]]
    path.write_text(json.dumps(data))
    with pytest.raises(InvalidValueError, match=r"has two numbers of one name: arm\.joint_1"):
        load_dataset(folder)


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
