"""A robot of any parts is recorded by the names of its numbers, and found again by them."""

import json
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
from msgspec import structs

from policies.lerobot.data import NUM_COMMITTED, ROWS, load_dataset
from robot_runtime.core.values.action import (
    BasePoseCommand,
    BaseTwistCommand,
    Command,
    GripperCommand,
    JointCommand,
    JointVelocityCommand,
    Numbers,
    NumbersCommand,
    PoseCommand,
    RowTiming,
)
from robot_runtime.core.values.schema import ArmSchema, BaseSchema, GripperSchema, Schema
from robot_runtime.core.values.state import ArmState, BaseState, GripperState, Observation, RobotState
from robot_runtime.dataset.recorder import DatasetRecorder
from robot_runtime.dataset.recording import Recording
from robot_runtime.errors import InvalidValueError
from robot_runtime.load_object import load_object

pytest.importorskip("datasets", reason="writes LeRobot datasets")
SCHEMA = Schema(
    action_fields=(Numbers(part="lights", names=("red", "green")),),
    parts={
        "left_arm": ArmSchema(3),
        "left_gripper": GripperSchema(),
        "right_arm": ArmSchema(2, ("shoulder", "elbow"), has_hand=False),
        "right_gripper": GripperSchema(),
        "base": BaseSchema(),
    },
    measured={"wrist_force": 2},
)
RECORDING = Recording(schema=SCHEMA, extra={ROWS: (2, 3), NUM_COMMITTED: (1,)})
LABELS = {ROWS: np.zeros((2, 3)), NUM_COMMITTED: np.zeros(1)}
X_BE = pin.SE3(pin.exp3(np.array([0.1, 0.2, 0.3])), np.array([0.4, 0.5, 0.6]))
COMMAND = Command(
    {
        "left_arm": PoseCommand(p_BE=np.array([0.1, 0.2, 0.3]), quat_BE=np.array([1.0, 0.0, 0.0, 0.0])),
        "left_gripper": GripperCommand(width=0.03),
        "right_arm": JointVelocityCommand(dq=np.array([0.4, 0.5])),
        "right_gripper": GripperCommand(width=0.05),
        "base": BaseTwistCommand(V_WB_B=np.array([0.6, 0.7, 0.8])),
        "lights": NumbersCommand(values=np.array([9.0, 10.0])),
    }
)
COMMANDED = {
    "left_arm.x": 0.1, "left_arm.z": 0.3, "left_arm.r1": 1.0, "left_arm.r2": 0.0, "left_gripper.width": 0.03,
    "right_arm.shoulder.velocity": 0.4, "right_arm.elbow.velocity": 0.5, "right_gripper.width": 0.05,
    "base.vx": 0.6, "base.wz": 0.8, "lights.red": 9.0, "lights.green": 10.0,
}  # fmt: skip


def state(k: int = 0) -> RobotState:
    return RobotState(
        t_ns=10**12 + 50_000_000 * k,
        parts={
            "left_arm": ArmState(q=np.array([1.0, 2.0, 3.0]), dq=np.array([4.0, 5.0, 6.0]), X_BE=X_BE),
            "left_gripper": GripperState(width=0.01),
            "right_arm": ArmState(q=np.array([7.0, 8.0 + k]), dq=np.array([9.0, 10.0])),
            "right_gripper": GripperState(width=0.02),
            "base": BaseState(x_WB=np.array([11.0, 12.0, 13.0]), V_WB_B=np.array([14.0, 15.0, 16.0])),
        },
        measured={"wrist_force": np.array([17.0, 18.0])},
    )


def seen(k: int = 0) -> Observation:
    return Observation(state=state(k), task="do it")


def record(folder: Path, recording: Recording = RECORDING, *, command: Command = COMMAND, **options) -> Path:
    with DatasetRecorder(folder, recording, **options) as recorder:
        for k in range(3):
            recorder.add(seen(k), command, LABELS)
        recorder.end_episode(keep=True)
    return folder


def read(folder: Path) -> list[dict[str, dict[str, float]]]:
    """The frames as stock LeRobot has them: by column, by name."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    dataset = LeRobotDataset(folder.name, root=folder)
    named = {c: f["names"] for c, f in dataset.features.items() if f["names"] and f["dtype"] == "float32"}
    return [
        {c: dict(zip(names, dataset[i][c].tolist(), strict=True)) for c, names in named.items()}
        for i in range(dataset.num_frames)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return record(tmp_path_factory.mktemp("recorded") / "dataset")


def test_stock_lerobot_reads_every_number_under_the_name_of_its_part(folder: Path):
    frame = read(folder)[1]
    assert {name: frame["action"][name] for name in COMMANDED} == pytest.approx(COMMANDED)
    told = frame["observation.state"]
    wanted = {
        "left_arm.joint_3": 3.0, "left_arm.joint_1.velocity": 4.0, "left_arm.y": 0.5,
        "left_arm.r4": X_BE.rotation[0, 1], "left_gripper.width": 0.01, "right_arm.elbow": 9.0,
        "right_arm.shoulder.velocity": 9.0, "right_gripper.width": 0.02, "base.vy": 15.0,
    }  # fmt: skip
    assert {name: told[name] for name in wanted} == pytest.approx(wanted)
    assert not any(name.startswith(("right_arm.x", "base.x")) for name in told)
    assert frame["observation.pose_world_base"] == {"base.x": 11.0, "base.y": 12.0, "base.yaw": 13.0}
    assert frame["observation.wrist_force"] == {"wrist_force.1": 17.0, "wrist_force.2": 18.0}


def test_what_was_recorded_of_all_parts_is_read_back(folder: Path):
    for robot in (None, replace(SCHEMA, action_fields=())):
        back = load_dataset(folder, robot)[1].observation.state
        assert list(back.parts) == list(SCHEMA.parts)
        np.testing.assert_allclose(back.arm("right_arm").q, [7.0, 9.0])
        np.testing.assert_allclose(back.arm("left_arm").dq, [4.0, 5.0, 6.0])
        np.testing.assert_allclose(back.hand("left_arm").homogeneous, X_BE.homogeneous, atol=1e-6)
        assert back.hand("right_arm") is None
        assert back.gripper("right_gripper").width == pytest.approx(0.02)
        np.testing.assert_allclose(back.base("base").x_WB, [11.0, 12.0, 13.0])
        np.testing.assert_allclose(back.measured["wrist_force"], [17.0, 18.0])


def test_a_robot_that_names_its_numbers_in_another_order_goes_on_in_the_dataset(folder: Path, tmp_path: Path):
    shutil.copytree(folder, tmp_path / "dataset")
    parts = dict(reversed(SCHEMA.parts.items())) | {
        "right_arm": ArmSchema(2, ("elbow", "shoulder"), has_hand=False)
    }
    turned = replace(RECORDING, schema=replace(SCHEMA, parts=parts))
    with DatasetRecorder(tmp_path / "dataset", turned, resume=True) as recorder:
        moved = {"right_arm": JointVelocityCommand(dq=np.array([0.5, 0.4]))}
        others = dict(reversed(COMMAND.parts.items()))
        for k in (4, 5):
            arm = state(k).arm("right_arm")
            here = state(k).with_parts({"right_arm": ArmState(q=arm.q[::-1], dq=arm.dq[::-1])})
            recorder.add(structs.replace(seen(), state=here), Command(others | moved), LABELS)
        recorder.end_episode(keep=True)
    frame = read(tmp_path / "dataset")[3]
    assert frame["observation.state"]["right_arm.elbow"] == 12.0
    assert {name: frame["action"][name] for name in COMMANDED} == pytest.approx(COMMANDED)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"left_arm": ArmState(q=np.zeros(3), dq=np.zeros(3))}, "left_arm.x, .*has_hand=False"),
        ({"right_arm": ArmState(q=np.zeros(3), dq=np.zeros(3))}, "'right_arm' has 3 joints, the schema"),
        ({"right_gripper": None}, "the recording has right_gripper.width, which the state does not have"),
        ({"base": BaseState(V_WB_B=np.zeros(3))}, "base.x, base.y, base.yaw, which"),
    ],
)  # fmt: skip
def test_a_part_that_is_missing_or_of_another_size_is_refused_by_name(tmp_path: Path, change, words):
    parts = {name: part for name, part in (state().parts | change).items() if part is not None}
    with DatasetRecorder(tmp_path / "dataset", RECORDING) as recorder:
        for wrong in (RobotState(t_ns=1, parts=parts, measured=state().measured),):
            with pytest.raises(InvalidValueError, match=words):
                recorder.add(structs.replace(seen(), state=wrong), COMMAND, LABELS)
        with pytest.raises(InvalidValueError, match=r"wrist_force\.1, wrist_force\.2, which"):
            recorder.add(
                structs.replace(seen(), state=RobotState(t_ns=1, parts=state().parts)), COMMAND, LABELS
            )
        joints = Command({"right_arm": JointCommand(q=np.zeros(7))})
        with pytest.raises(InvalidValueError, match=r"a command does not fit .* 'right_arm' has 7 joints"):
            recorder.add(seen(), joints, LABELS)


def test_a_number_that_would_have_the_name_of_another_is_refused():
    parts = {"arm": ArmSchema(3, ("x", "lift", "turn"))}
    with pytest.raises(InvalidValueError, match=r"two numbers of the robot would have one name: arm\.x"):
        Recording(schema=Schema(parts=parts))
    with pytest.raises(InvalidValueError, match=r"observation\.NAME, and 'state' is taken"):
        Recording(schema=Schema(parts={}, measured={"state": 2}))


def test_a_dataset_of_another_meaning_of_an_action_is_not_gone_on_with(folder: Path):
    assert json.loads((folder / "meta/info.json").read_text())["features"]["action"]["info"] == {
        "timing": "reached"
    }
    with pytest.raises(InvalidValueError, match="is reached, of the recording sent"):
        DatasetRecorder(folder, replace(RECORDING, timing=RowTiming.SENT), resume=True)


# ---- of before parts had names -----------------------------------------------------------------------------

OLD_SCHEMA = Schema(parts={"arm": ArmSchema(2), "gripper": GripperSchema(), "base": BaseSchema()})
OLD = Recording(schema=OLD_SCHEMA, extra=RECORDING.extra)
OLD_COMMAND = Command(
    arm=JointCommand(q=np.array([0.1, 0.2])), base=BasePoseCommand(x_WB=np.array([1.0, 2, 3]))
)
OLDER_NAMES = {
    "observation.state": [
        "joint_0", "joint_1", "joint_velocity_0", "joint_velocity_1", "hand_x", "hand_y", "hand_z",
        *(f"hand_rotation_{i}" for i in range(6)), "gripper_width", "base_vx", "base_vy", "base_wz",
    ],
    "action": ["joint_0", "joint_1", "base_x", "base_y", "base_yaw"],
    "observation.pose_world_base": ["x", "y", "yaw"],
}  # fmt: skip


def old_seen(k: int) -> Observation:
    here = RobotState(
        t_ns=10**12 + 50_000_000 * k, q=np.array([0.5, 0.6 + k]), dq=np.zeros(2),
        X_BE=X_BE, gripper_width=0.04,
        x_WB=np.array([1.0, 2.0, 3.0]), V_WB_B=np.array([0.1, 0.2, 0.3]),
    )  # fmt: skip
    return Observation(state=here, task="do it")


def record_old(folder: Path, **options) -> None:
    with DatasetRecorder(folder, OLD, **options) as recorder:
        for k in range(3):
            recorder.add(old_seen(k), OLD_COMMAND, LABELS)
        recorder.end_episode(keep=True)


def test_a_dataset_of_before_parts_had_names_is_read_and_gone_on_with_under_its_own_names(tmp_path: Path):
    folder = tmp_path / "dataset"
    record_old(folder)
    path = folder / "meta" / "info.json"
    info = json.loads(path.read_text())
    for column, names in OLDER_NAMES.items():
        assert len(info["features"][column]["names"]) == len(names)
        info["features"][column]["names"] = names
    del info["features"]["action"]["info"]
    path.write_text(json.dumps(info))
    record_old(folder, resume=True)
    assert json.loads(path.read_text())["features"]["action"] == info["features"]["action"]
    back = load_dataset(folder, OLD_SCHEMA)
    assert len(back) == 6
    for k in (1, 4):
        np.testing.assert_allclose(back[k].observation.state.q, [0.5, 1.6])
        np.testing.assert_allclose(back[k].observation.state.V_WB_B, [0.1, 0.2, 0.3])
        np.testing.assert_allclose(back[k].observation.state.x_WB, [1.0, 2.0, 3.0])
    for frame in read(folder):
        assert frame["action"] == pytest.approx(
            {"joint_0": 0.1, "joint_1": 0.2, "base_x": 1.0, "base_y": 2.0, "base_yaw": 3.0}
        )


def keep_time_by_sleeping(monkeypatch):
    """Time passes while somebody sleeps, and not while a busy machine keeps him waiting."""
    now_ns = time.monotonic_ns()

    def sleep(seconds: float) -> None:
        nonlocal now_ns
        now_ns += round(seconds * 1e9)

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    monkeypatch.setattr(time, "monotonic", lambda: now_ns / 1e9)


def test_the_loop_of_the_page_records_a_robot_of_ones_own(tmp_path: Path, monkeypatch):
    root = Path(__file__).parents[2]
    page = (root / "docs" / "recording.md").read_text()
    (code,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "leader" in code]
    robot = load_object(f"{root / 'examples' / 'own_robot.py'}:robot", group="", what="robot")
    monkeypatch.chdir(tmp_path)
    keep_time_by_sleeping(monkeypatch)
    exec(code.replace("range(200)", "range(5)"), {"robot": robot})
    frames = read(tmp_path / "outputs" / "mine")
    assert len(frames) == 5
    assert frames[0]["action"]["arm.joint_2"] == pytest.approx(-0.8)
