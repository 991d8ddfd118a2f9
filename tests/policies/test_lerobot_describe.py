"""What numbers are is known by their names in the dataset; what contradicts them is refused."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from policies.commands.describe import Describe
from policies.lerobot.metadata import PolicyMetadata
from policies.load import load_policy
from robot_runtime import evaluate
from robot_runtime.core.method.choose import Default, default_for
from robot_runtime.core.method.sampler_parts import ConstantSchedule
from robot_runtime.core.method.splice_parts import TemporalEnsembling
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import Numbers, RowTiming
from robot_runtime.core.values.state import ArmState, GripperState, Image, Observation, RobotState
from robot_runtime.errors import CheckpointError, InvalidValueError
from robot_runtime.evaluation.gymnasium_env import GymnasiumEnv, GymnasiumSettings
from tests.policies import test_lerobot_types as types
from tests.policies.test_lerobot_types import described, observation

pytest.importorskip("lerobot", reason="whose checkpoints they are")
gymnasium = pytest.importorskip("gymnasium")

ARM = ["shoulder_pan.pos", "shoulder_lift.pos", "gripper.pos"]
OURS = ["joint_0", "joint_1", "gripper_width"]


@pytest.fixture(scope="module")
def act(tmp_path_factory) -> Path:
    return types.save("act", tmp_path_factory.mktemp("act"))


def save(tmp_path: Path, monkeypatch, **options) -> Path:
    """An ACT of other options."""
    monkeypatch.setitem(types.CONFIGS, "act", types.CONFIGS["act"] | options)
    return types.save("act", tmp_path / "act")


def dataset(
    tmp_path: Path, state: object, action: object, *, fps: int = 30, cameras: dict | None = None
) -> Path:
    """What LeRobot notes of one."""
    pictures = {"wrist": (96, 96)} if cameras is None else cameras
    features = {
        "observation.state": {"dtype": "float32", "shape": [3], "names": state},
        "action": {"dtype": "float32", "shape": [3], "names": action},
    } | {f"observation.images.{name}": {"dtype": "video", "shape": [*hw, 3]} for name, hw in pictures.items()}
    folder = tmp_path / "dataset"
    (folder / "meta").mkdir(parents=True, exist_ok=True)
    (folder / "meta" / "info.json").write_text(json.dumps({"fps": fps, "features": features}))
    return folder


def told(folder: Path, data: Path, **more):
    return described(
        folder, **({"num_joints": None, "has_gripper": False, "fps": None, "dataset": data} | more)
    )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"num_joints": 3}, "--joints 3 contradicts the dataset .* has 2"),
        ({"fps": 15.0}, "--fps 15.0 contradicts the dataset .* has 30.0"),
    ],
)
def test_what_is_said_beside_a_dataset_may_not_contradict_it(act: Path, tmp_path: Path, more, words):
    data = dataset(tmp_path, OURS, OURS)
    with pytest.raises(InvalidValueError, match=words):
        told(act, data, **more)
    metadata = told(act, data, num_joints=2, has_gripper=True, fps=30.0)
    assert metadata.info.action_spec.dt_ns == 33_333_333


def test_actions_in_another_order_are_those_of_the_joints_they_name(act: Path, tmp_path: Path):
    for names in (["joint_1", "joint_0", "gripper_width"], ["arm.joint_2", "arm.joint_1", "gripper.width"]):
        metadata = told(act, dataset(tmp_path, OURS, names))
        assert metadata.info.action_spec.names == ("arm.joint_2", "arm.joint_1", "gripper.width")
        assert metadata.info.schema.arms["arm"].names == ("joint_2", "joint_1")


def test_columns_of_a_part_that_do_not_stand_together_are_refused(act: Path, tmp_path: Path):
    data = dataset(tmp_path, OURS, ["joint_1", "gripper_width", "joint_0"])
    with pytest.raises(InvalidValueError, match="the actions of arm are not contiguous"):
        told(act, data)


def test_a_state_in_another_order_is_shown_by_name(act: Path, tmp_path: Path):
    metadata = told(act, dataset(tmp_path, ["gripper_width", "joint_1", "joint_0"], OURS))
    seen = observation(load_policy(act), 1)
    (row,) = metadata.seen([seen])["observation.state"].tolist()
    assert row == pytest.approx([seen.state.gripper_width, *seen.state.q[::-1]])


def test_names_of_other_arms_are_told_in_the_robots_order(act: Path, tmp_path: Path):
    data = dataset(tmp_path, {"motors": ARM}, ARM)
    names = {"joints": ("shoulder_pan.pos", "shoulder_lift.pos"), "grippers": ("gripper.pos",)}
    for more in ({}, names):
        with pytest.raises(InvalidValueError, match="add --gripper-stroke-m"):
            told(act, data, **more)
        with pytest.raises(InvalidValueError, match=r"the unit of shoulder_pan.* is undeclared"):
            told(act, data, stroke_m=0.08, **more)
    with pytest.raises(InvalidValueError, match="has no elbow"):
        told(act, data, **(names | {"joints": ("shoulder_pan.pos", "elbow")}))
    as_called = told(act, data, stroke_m=0.08, convention="so101").info
    assert as_called.schema.arms["arm"].names == ("shoulder_pan", "shoulder_lift")
    turned = told(act, data, stroke_m=0.08, convention="so101", **(names | {"joints": names["joints"][::-1]}))
    assert turned.info.action_spec.names == ("arm.joint_2", "arm.joint_1", "gripper.width")
    told(act, data, stroke_m=0.08, convention="so101", **names)
    policy = load_policy(act)
    seen = observation(policy, 1)
    (row,) = policy._metadata.seen([seen])["observation.state"].tolist()
    per_cent = 100.0 * seen.state.gripper_width / 0.08
    assert row == pytest.approx([*np.degrees(seen.state.q), per_cent], rel=1e-5)


@pytest.mark.parametrize(("convention", "closed", "opened"), [("droid", 1.0, 0.0), ("aloha", 0.0, 1.0)])
def test_a_gripper_closes_where_its_convention_says(act: Path, tmp_path: Path, convention, closed, opened):
    metadata = told(act, dataset(tmp_path, OURS, OURS), convention=convention, stroke_m=0.08)
    assert [metadata.gripper_action.ours(x) for x in (closed, opened)] == pytest.approx([0.0, 0.08])
    policy = load_policy(act)
    seen = observation(policy, 1)
    seen = structs.replace(seen, state=replace(seen.state, gripper_width=0.08))
    assert policy._metadata.seen([seen])["observation.state"][0, 2].item() == pytest.approx(opened)
    (rows,) = policy.infer(ChunkRequest(observation=seen, sampler=ConstantSchedule(), seed=0))
    theirs = policy.predict([seen], [0])[0]
    np.testing.assert_allclose(rows[:, 2], 0.08 * (theirs[:, 2] - closed) / (opened - closed), atol=1e-6)


@pytest.mark.parametrize("cameras", [{}, {"chest": (96, 96)}, {"wrist": (48, 64)}])
def test_cameras_of_the_dataset_are_those_the_checkpoint_looks_through(act: Path, tmp_path: Path, cameras):
    with pytest.raises(CheckpointError, match=r"it uses camera wrist, \(96, 96\); the dataset has"):
        told(act, dataset(tmp_path, OURS, OURS, cameras=cameras))


def test_pictures_whose_channels_come_first_have_the_size_that_lerobot_reads(act: Path, tmp_path: Path):
    data = dataset(tmp_path, OURS, OURS)
    info = json.loads((data / "meta" / "info.json").read_text())
    wrist = info["features"]["observation.images.wrist"]
    wrist |= {"shape": [3, 96, 96], "names": ["channels", "height", "width"]}
    (data / "meta" / "info.json").write_text(json.dumps(info))
    assert told(act, data).info.schema.cameras == {"wrist": (96, 96)}


@pytest.mark.parametrize("fps", [0, -30, 1e-12, 1e12])
def test_a_rate_that_no_rows_have_is_refused(act: Path, tmp_path: Path, fps: float):
    with pytest.raises(InvalidValueError, match="rows per second"):
        told(act, dataset(tmp_path, OURS, OURS, fps=fps))
    with pytest.raises(InvalidValueError, match="rows per second"):
        described(act, fps=float(fps))


def test_a_name_that_is_told_may_not_be_one_that_is_there(act: Path, tmp_path: Path):
    data = dataset(tmp_path, ["a", "joint_0", "joint_1"], ["a", "joint_1", "gripper_width"])
    with pytest.raises(InvalidValueError, match="two numbers of the state would have one name"):
        told(act, data, joints=("a",), joint_unit_rad=1.0, stroke_m=0.08)


def test_a_part_that_is_moved_is_a_part_of_the_robot_though_the_state_does_not_tell_of_it(
    act: Path, tmp_path: Path
):
    state = ["joint_0", "joint_velocity_0", "joint_velocity_1"]
    schema = told(act, dataset(tmp_path, state, OURS)).info.schema
    assert (schema.num_joints, schema.has_gripper, schema.has_base) == (2, True, False)
    assert not schema.arms["arm"].has_hand


def test_a_camera_that_was_renamed_for_training_has_the_name_of_the_robots(tmp_path: Path, monkeypatch):
    folder = save(tmp_path, monkeypatch)
    steps = json.loads((folder / "policy_preprocessor.json").read_text())
    steps["steps"][0]["config"] = {"rename_map": {"observation.images.hand": "observation.images.wrist"}}
    (folder / "policy_preprocessor.json").write_text(json.dumps(steps))
    metadata = told(folder, dataset(tmp_path, OURS, OURS, cameras={"hand": (96, 96)}))
    assert metadata.info.schema.cameras == {"hand": (96, 96)}
    policy = load_policy(folder)
    (rows,) = policy.infer(
        ChunkRequest(observation=observation(policy, 1), sampler=ConstantSchedule(), seed=0)
    )
    assert np.isfinite(rows).all()


def test_numbers_that_nobody_has_explained_are_named(act: Path, tmp_path: Path):
    with pytest.raises(InvalidValueError, match=r"has undeclared numbers one, three\. List .* --joint-names"):
        told(act, dataset(tmp_path, ["one", "arm.joint_1", "three"], OURS))


@pytest.mark.parametrize("names", [["a", "a", "b"], [1, 2, 3], "abc", None])
def test_names_that_name_nothing_are_refused(act: Path, tmp_path: Path, names):
    with pytest.raises(InvalidValueError, match="does not declare what its numbers are"):
        told(act, dataset(tmp_path, names, OURS))


def test_acts_temporal_ensembling_is_the_method_it_is_run_by_unless_told_otherwise(tmp_path, monkeypatch):
    folder = save(tmp_path, monkeypatch, temporal_ensemble_coeff=0.03, n_action_steps=1)
    told(folder, dataset(tmp_path, OURS, OURS))
    choice = default_for(Default(), load_policy(folder).info.capabilities)
    assert choice.name == "temporal-ensembling"
    assert choice.method.blend == TemporalEnsembling(m=0.03)


def test_as_many_rows_are_run_as_lerobots_own_loop_runs(tmp_path: Path, monkeypatch):
    folder = save(tmp_path, monkeypatch, n_action_steps=4)
    told(folder, dataset(tmp_path, OURS, OURS))
    policy = load_policy(folder)
    assert (policy.info.action_spec.horizon, policy.info.capabilities.execution_horizon) == (6, 4)


def test_a_policy_that_looks_at_several_observations_says_so(tmp_path: Path):
    folder = types.save("diffusion", tmp_path / "diffusion")
    info = described(folder).info
    assert (info.n_obs_steps, info.obs_spacing_ns) == (2, info.action_spec.dt_ns)
    assert load_policy(folder).info.n_obs_steps == 2


def test_a_file_that_says_another_number_of_observations_is_refused(tmp_path: Path):
    folder = types.save("diffusion", tmp_path / "diffusion")
    metadata = described(folder)
    replace(metadata, info=replace(metadata.info, n_obs_steps=3)).save(folder)
    with pytest.raises(CheckpointError, match="observations as input: 3; the policy has 2"):
        load_policy(folder)


# ---- two arms ----------------------------------------------------------------------------------------------

ALOHA = [
    f"{side}_{name}"
    for side in ("left", "right")
    for name in ("waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate", "gripper")
]


@pytest.fixture(scope="module")
def aloha(tmp_path_factory) -> Path:
    """An ACT of fourteen numbers, as LeRobot's for ALOHA have."""
    return types.save("act", tmp_path_factory.mktemp("aloha") / "act", state_dim=14, action_dim=14)


def test_an_alohas_checkpoint_is_described_by_the_names_of_its_dataset(aloha: Path, tmp_path: Path):
    data = dataset(tmp_path, ALOHA, {"motors": ALOHA}, fps=50)
    with pytest.raises(InvalidValueError, match="the unit of left_waist is undeclared"):
        told(aloha, data, stroke_m=0.1)
    info = told(aloha, data, stroke_m=0.1, joint_unit_rad=1.0).info
    parts = ("left_arm", "left_gripper", "right_arm", "right_gripper")
    assert (tuple(info.schema.parts), info.action_spec.dt_ns) == (parts, 20_000_000)
    assert info.action_spec.names[5:9] == (
        "left_arm.wrist_rotate", "left_gripper.width", "right_arm.waist", "right_arm.shoulder",
    )  # fmt: skip
    assert not any(info.schema.needs_hand(part) for part in parts)
    policy = load_policy(aloha)
    q = np.linspace(-1.0, 1.0, 12)
    state = RobotState(
        t_ns=1,
        parts={
            "right_gripper": GripperState(width=0.05),
            "right_arm": ArmState(q=q[6:], dq=np.zeros(6)),
            "left_gripper": GripperState(width=0.1),
            "left_arm": ArmState(q=q[:6], dq=np.zeros(6)),
        },
    )
    pixels = np.zeros((96, 96, 3), np.uint8)
    seen = Observation(state=state, images={"wrist": Image(t_ns=1, pixels=pixels)})
    (row,) = policy._metadata.seen([seen])["observation.state"].tolist()
    assert row == pytest.approx([*q[:6], 1.0, *q[6:], 0.5])
    (rows,) = policy.infer(ChunkRequest(observation=seen, sampler=ConstantSchedule(), seed=0))
    theirs = policy.predict([seen], [0])[0]
    np.testing.assert_allclose(rows[:, [6, 13]], 0.1 * theirs[:, [6, 13]], atol=1e-6)
    lost = replace(state, parts={name: part for name, part in state.parts.items() if name != "right_arm"})
    with pytest.raises(ValueError, match=r"the policy needs right_arm\.waist, right_arm\.shoulder"):
        policy._metadata.seen([structs.replace(seen, state=lost)])


def test_joints_of_two_arms_are_told_in_the_robots_order(aloha: Path, tmp_path: Path):
    joints = [name for name in ALOHA if not name.endswith("gripper")]
    turned = (*joints[6:], *joints[5::-1])
    retargeted_of = {"joints": turned, "grippers": ("left_gripper", "right_gripper")}
    info = told(
        aloha, dataset(tmp_path, ALOHA, ALOHA), stroke_m=0.1, joint_unit_rad=1.0, **retargeted_of
    ).info
    assert info.action_spec.names[:7] == (
        *(f"left_arm.joint_{i}" for i in (6, 5, 4, 3, 2, 1)), "left_gripper.width",
    )  # fmt: skip
    assert info.action_spec.names[7:9] == ("right_arm.joint_1", "right_arm.joint_2")


def test_two_grippers_may_not_stand_between_the_joints_of_one_arm(aloha: Path, tmp_path: Path):
    mixed = [*ALOHA[:3], *ALOHA[6:7], *ALOHA[3:6], *ALOHA[7:]]
    with pytest.raises(InvalidValueError, match="the actions of left_arm are not contiguous"):
        told(aloha, dataset(tmp_path, ALOHA, mixed), stroke_m=0.1, joint_unit_rad=1.0)


# ---- plain numbers of a simulator --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "shown", "needs"),
    [
        (["x", "y", "grip"], ["action.x", "action.y", "action.grip"], ({"action": 3}, 0)),
        (["grip", "x", "y"], ["action.grip", "action.x", "action.y"], ({"action": 3}, 0)),
        (["a", "b", "c"], ["scene_0", "scene_1", "scene_2"], ({}, 3)),
    ],
)
def test_a_simulators_numbers_are_what_the_env_calls_so(act: Path, tmp_path: Path, state, shown, needs):
    data = dataset(tmp_path, state, ["x", "y", "grip"])
    metadata = told(act, data, are_numbers=True)
    info = metadata.info
    assert info.action_spec.fields == (Numbers(names=("x", "y", "grip")),)
    assert info.action_spec.timing is RowTiming.SENT
    assert [*metadata.state_names] == shown
    assert (dict(info.schema.measured), info.schema.environment_state_dim) == needs
    policy = load_policy(act)
    pixels = np.zeros((96, 96, 3), np.uint8)
    seen = Observation(
        state=RobotState(t_ns=1, measured={"action": np.array([1.0, 2.0, 3.0])}),
        environment_state=np.array([4.0, 5.0, 6.0]),
        images={"wrist": Image(t_ns=1, pixels=pixels)},
    )
    batch = policy._metadata.seen([seen])
    expected = {"x": 1.0, "y": 2.0, "grip": 3.0, "a": 4.0, "b": 5.0, "c": 6.0}
    assert batch["observation.state"][0].tolist() == [expected[name] for name in state]
    assert "observation.environment_state" not in batch
    (rows,) = policy.infer(ChunkRequest(observation=seen, sampler=ConstantSchedule(), seed=0))
    assert np.array_equal(rows, policy.predict([seen], [0])[0])


def test_plain_numbers_have_no_joints_and_need_names(act: Path, tmp_path: Path):
    data = dataset(tmp_path, ["x", "y", "z"], ["x", "y", "z"])
    with pytest.raises(InvalidValueError, match="not joints or grippers"):
        told(act, data, are_numbers=True, grippers=("z",))
    with pytest.raises(InvalidValueError, match=r"leave out --joints, --gripper$"):
        described(act, are_numbers=True)
    with pytest.raises(InvalidValueError, match="for a simulator --numbers and --fps"):
        described(act, are_numbers=True, num_joints=None, has_gripper=False, fps=None)
    with pytest.raises(InvalidValueError, match="names the actions; leave out --action-names"):
        told(act, data, are_numbers=True, action_names=("x", "y", "z"))


class PushLike(gymnasium.Env):
    """As PushT: where to push is said in pixels of a picture."""

    metadata = {"render_fps": 10}  # noqa: RUF012
    action_space = gymnasium.spaces.Box(-512.0, 512.0, (2,), np.float32)
    observation_space = gymnasium.spaces.Dict(
        pixels=gymnasium.spaces.Box(0, 255, (96, 96, 3), np.uint8),
        agent_pos=gymnasium.spaces.Box(0.0, 512.0, (2,)),
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.actions: list = []
        return self.shown(), {}

    def step(self, action):
        self.actions.append(action)
        return self.shown(), 0.0, False, False, {"is_success": False}

    def shown(self):
        return {"pixels": np.full((96, 96, 3), 7, np.uint8), "agent_pos": np.array([3.0, 4.0])}


def test_a_simulators_checkpoint_is_described_by_one_command_without_its_dataset(tmp_path: Path, capsys):
    folder = types.save("act", tmp_path / "act", state_dim=2, action_dim=2, pictures=("observation.image",))
    assert Describe(policy=str(folder), numbers=True, fps=10.0).main() == 0
    assert "action.action_1, action.action_2" in capsys.readouterr().out
    policy = load_policy(folder)
    env = GymnasiumEnv(PushLike(), GymnasiumSettings(max_steps=6))
    evaluate(policy, env, method="synchronous", seeds=[0])
    seen = Observation(
        state=RobotState(t_ns=1),
        environment_state=np.array([3.0, 4.0]),
        images={"image": Image(t_ns=1, pixels=np.full((96, 96, 3), 7, np.uint8))},
    )
    (rows,) = policy.infer(ChunkRequest(observation=seen, sampler=ConstantSchedule(), seed=0))
    np.testing.assert_array_equal(env.unwrapped.actions, rows.astype(np.float32))
    named = Describe(policy=str(folder), numbers=True, fps=10.0, action_names=("x", "y"))
    assert named.main() == 0
    assert load_policy(folder).info.action_spec.fields == (Numbers(names=("x", "y")),)
    with pytest.raises(CheckpointError, match="its actions have 2 numbers, --action-names has 1"):
        Describe(policy=str(folder), numbers=True, fps=10.0, action_names=("x",)).main()


def test_the_policy_json_of_the_page_describes_a_checkpoint(tmp_path: Path):
    folder = types.save("act", tmp_path, state_dim=2, action_dim=2, pictures=("observation.image",))
    page = (Path(__file__).parents[2] / "docs" / "lerobot.md").read_text()
    shown = page.partition("### policy.json")[2].partition("| key |")[0].partition("{")
    (folder / "policy.json").write_text(shown[1] + shown[2].replace('"horizon": 16', '"horizon": 6'))
    metadata = PolicyMetadata.load(folder)
    described = Describe(policy=str(folder), numbers=True, fps=10.0, action_names=("x", "y"))
    assert described.main() == 0
    same = replace(PolicyMetadata.load(folder).info, name="act pusht")
    assert (metadata.info, metadata.state_names) == (same, ("scene_0", "scene_1"))
    assert load_policy(folder).info.action_spec.timing is RowTiming.SENT


def test_a_simulators_scene_beside_its_state_is_what_comes_behind_it(tmp_path: Path):
    folder = types.save("diffusion-scene", tmp_path / "diffusion")
    simulated = {"are_numbers": True, "num_joints": None, "has_gripper": False}
    metadata = described(folder, **simulated)
    assert metadata.info.schema.environment_state_dim == 5
    seen = Observation(state=RobotState(t_ns=1), environment_state=np.arange(5.0))
    batch = load_policy(folder)._metadata.seen([seen])
    assert batch["observation.state"].tolist() == [[0.0, 1.0, 2.0]]
    assert batch["observation.environment_state"].tolist() == [[3.0, 4.0]]


def test_what_is_said_of_a_checkpoint_is_refused_before_anything_large_is_loaded(tmp_path: Path):
    refused = (
        "import sys\nfrom policies.commands.describe import Describe\nfrom robot_runtime.errors import "
        "InvalidValueError\ntry:\n    Describe(policy=sys.argv[1], numbers=True, joints=7).main()\nexcept "
        "InvalidValueError as error:\n    print(error, {'torch', 'lerobot'} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", refused, str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert done.stdout.endswith("leave out --joints set()\n")
