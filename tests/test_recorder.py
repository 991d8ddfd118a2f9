"""Demonstrations as a LeRobot dataset, written and read back."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from msgspec import structs

from robot_runtime.core.action import BasePoseCommand, Command, GripperCommand, JointCommand, PoseCommand
from robot_runtime.core.schema import Schema
from robot_runtime.core.state import Image, Observation, RobotState
from robot_runtime.errors import InvalidValueError
from robot_runtime.recorder import DatasetRecorder, Recording
from sim.tasks.household import mobile_schema

pytest.importorskip("datasets", reason="writes LeRobot datasets")
SIZE = (48, 64)
SCHEMA = replace(mobile_schema(2), cameras={"chest": SIZE})
RECORDING = Recording(schema=SCHEMA, extra={"label": (2, 3)})
DOWN = PoseCommand(p_BE=np.array([0.5, 0.1, 0.8]), quat_BE=np.array([0.0, 1.0, 0.0, 0.0]))


def observation(k: int) -> Observation:
    state = RobotState(
        t_ns=10**15 + 50_000_001 * k,
        q=np.arange(7) + 0.1 * k,
        dq=np.zeros(7),
        X_BE=pin.SE3(np.eye(3), np.array([0.1 * k, 0.0, 0.8])),
        gripper_width=0.04,
        x_WB=np.array([k, 2.0, 0.3], float),
        V_WB_B=np.array([0.1, 0.2, 0.3]),
    )
    pixels = np.full((*SIZE, 3), (20 * k, 100, 200), np.uint8)
    image = Image(t_ns=10**15 + 7 * k, pixels=pixels)
    return Observation(
        state=state, images={"chest": image}, environment_state=np.array([k, -k], float), task="do it"
    )


def command(k: int) -> Command:
    base = BasePoseCommand(x_WB=np.array([k, 0.0, 0.1], float))
    return Command(arm=DOWN, base=base, gripper=GripperCommand(width=0.03))


def label(k: int) -> dict[str, np.ndarray]:
    return {"label": np.full((2, 3), k)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two episodes of 12 and 5 frames, with one between them that was dropped."""
    out = tmp_path_factory.mktemp("recorded") / "dataset"
    with DatasetRecorder(out, RECORDING) as recorder:
        for num_frames, keep in ((12, True), (7, False), (5, True)):
            for k in range(num_frames):
                recorder.add(observation(k), command(k), label(k))
            recorder.end_episode(keep=keep)
        recorder.add(observation(0), command(0), label(0))
        assert recorder.num_episodes == 2
    return out


def test_what_is_recorded_is_read_back(folder):
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    dataset = LeRobotDataset(folder.name, root=folder)
    assert (dataset.num_episodes, dataset.num_frames, dataset.fps) == (2, 17, 20)
    for i, k in ((3, 3), (12, 0), (16, 4)):
        frame, seen = dataset[i], observation(k)
        assert frame["task"] == "do it"
        assert int(frame["capture.time_ns.state"]) == seen.t_obs_ns
        assert int(frame["capture.time_ns.chest"]) == seen.images["chest"].t_ns
        np.testing.assert_allclose(frame["observation.environment_state"], [k, -k])
        np.testing.assert_allclose(frame["observation.pose_world_base"], [k, 2.0, 0.3])
        np.testing.assert_allclose(frame["label"], label(k)["label"])
        state = dict(zip(RECORDING.state_names(), frame["observation.state"].tolist(), strict=True))
        assert state["joint_6"] == pytest.approx(6 + 0.1 * k)
        assert state["hand_x"] == pytest.approx(0.1 * k)
        assert state["base_wz"] == pytest.approx(0.3)
        action = dict(zip(dataset.features["action"]["names"], frame["action"].tolist(), strict=True))
        assert [action[name] for name in ("base_x", "hand_z", "gripper_width")] == pytest.approx(
            [k, 0.8, 0.03]
        )
        assert action["hand_rotation_4"] == pytest.approx(-1.0)
        picture = frame["observation.images.chest"].numpy().transpose(1, 2, 0) * 255
        np.testing.assert_allclose(picture.mean(axis=(0, 1)), [20 * k, 100, 200], atol=6)


def test_every_camera_has_as_many_pictures_as_there_are_frames(folder):
    av = pytest.importorskip("av")
    (video,) = (folder / "videos").rglob("*.mp4")
    with av.open(str(video)) as file:
        assert sum(1 for _ in file.decode(video=0)) == 17


def test_a_folder_that_is_there_is_not_written_into(tmp_path):
    with pytest.raises(InvalidValueError, match="a folder of its own"):
        DatasetRecorder(tmp_path, RECORDING)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": {}}, "no picture of camera 'chest' to record, there are none"),
        (
            {"images": {"chest": Image(t_ns=0, pixels=np.zeros((4, 4, 3), np.uint8))}},
            r"camera 'chest' is recorded at \(48, 64, 3\), got \(4, 4, 3\)",
        ),
        (
            {"environment_state": np.zeros(3)},
            r"the environment state is recorded with shape \(2,\), got \(3,\)",
        ),
        ({"state": structs.replace(observation(0).state, X_BE=None)}, "needs the hand pose X_BE"),
        ({"state": structs.replace(observation(0).state, x_WB=None)}, "the state has no x_WB or V_WB_B"),
        ({"state": structs.replace(observation(0).state, gripper_width=None)}, "no gripper_width"),
    ],
)
def test_a_frame_that_lacks_something_is_refused_by_name_and_nothing_is_lost(tmp_path, change, message):
    with DatasetRecorder(tmp_path / "dataset", RECORDING) as recorder:
        recorder.add(observation(0), command(0), label(0))
        with pytest.raises(InvalidValueError, match=message):
            recorder.add(structs.replace(observation(1), **change), command(1), label(1))
        with pytest.raises(InvalidValueError, match="declares 'label', the frame has none"):
            recorder.add(observation(1), command(1))
        recorder.add(observation(1), command(1), label(1))
        recorder.end_episode(keep=True)
        assert recorder.num_episodes == 1


def test_an_arm_on_a_table_is_recorded_by_its_joints(tmp_path):
    schema = Schema(action_fields=(), num_joints=7, has_gripper=True, has_base=False)
    with DatasetRecorder(tmp_path / "dataset", Recording(schema=schema)) as recorder:
        for k in range(3):
            joints = Command(arm=JointCommand(q=np.arange(7.0)), gripper=GripperCommand(width=0.01))
            recorder.add(observation(k), joints)
        recorder.end_episode(keep=True)
        assert recorder._dataset.features["action"]["names"] == [
            *(f"joint_{i}" for i in range(7)),
            "gripper_width",
        ]
