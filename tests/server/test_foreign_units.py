"""What robots of other projects send means what their makers mean, by their real key names, or is told."""

import math
from dataclasses import replace

import msgspec
import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replace_names

from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import (
    ActionSpec,
    EndEffectorPose,
    GripperWidth,
    JointPosition,
    Reference,
)
from robot_runtime.core.values.fields import Rotation
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.core.values.transforms import rotation_to_6d
from robot_runtime.core.values.waypoints import Waypoints
from robot_runtime.errors import InvalidValueError
from robot_runtime.server.gateways import groot, lerobot
from robot_runtime.server.gateways.key_map import Entry, KeyMap
from robot_runtime.server.gateways.policy_session import refuse_for_all, sent_rows
from robot_runtime.server.gateways.values import fitted

STROKE_M = 0.08
N = 7
SPEC = ActionSpec(fields=(JointPosition(N), GripperWidth()), horizon=2, dt_ns=50_000_000)
SCHEMA = Schema(action_fields=SPEC.fields, num_joints=N, has_gripper=True, has_base=False)
SO101 = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll")
JOINTS = np.linspace(-0.6, 0.6, N)


def droid(gripper: float) -> dict:
    return {
        "observation/joint_position": JOINTS,
        "observation/gripper_position": np.array([gripper]),
        "prompt": "pick it up",
    }


def libero(gripper: float) -> dict:
    """As robosuite has it; the two fingers mirror each other."""
    return {"robot0_joint_pos": JOINTS, "robot0_gripper_qpos": np.array([gripper, -gripper])}


def aloha(gripper: float) -> dict:
    """Both arms in one row: six joints and a gripper each."""
    return {"state": np.array([*JOINTS[:6], gripper, *np.zeros(6), 0.0])}


def umi(gripper: float) -> dict:
    return {"robot0_joint_pos": JOINTS, "robot0_gripper_width": np.array([gripper])}


def of_groot(gripper: float) -> dict:
    return {"state": {"joint_position": JOINTS, "gripper_position": np.array([gripper])}}


def so101(gripper: float) -> dict:
    names = [*SO101, "extra_1", "extra_2"]
    return {f"{name}.pos": math.degrees(q) for name, q in zip(names, JOINTS, strict=True)} | {
        "gripper.pos": gripper
    }


MAPS = {
    "droid": KeyMap(convention="droid", stroke_m=STROKE_M).over(KeyMap.of(SCHEMA)),
    "libero": KeyMap(
        convention="libero",
        q=Entry(key="robot0_joint_pos"),
        gripper_width=Entry(key="robot0_gripper_qpos", stop=1),
        stroke_m=STROKE_M,
    ),
    "aloha": KeyMap(
        convention="aloha",
        stroke_m=STROKE_M,
        q=Entry(key="state", stop=6),
        gripper_width=Entry(key="state", start=6, stop=7),
    ),
    "umi": KeyMap(
        convention="umi",
        q=Entry(key="robot0_joint_pos"),
        gripper_width=Entry(key="robot0_gripper_width"),
    ),
    "groot": KeyMap(convention="groot", stroke_m=STROKE_M).over(groot.names_of(SCHEMA)),
    "so101": KeyMap(
        convention="so101",
        stroke_m=STROKE_M,
        q=Entry(names=tuple(so101(0.0))[:N]),
        gripper_width=Entry(names=("gripper.pos",)),
    ),
}
SENT = {"droid": droid, "libero": libero, "aloha": aloha, "umi": umi, "groot": of_groot, "so101": so101}


@pytest.mark.parametrize(
    ("whose", "closed", "opened"),
    [
        ("droid", (1.0, 1.0), (0.0, 0.0)),  # in its state, in its actions
        ("libero", (0.0, 1.0), (0.04, -1.0)),
        ("aloha", (0.0, 0.0), (1.0, 1.0)),
        ("umi", (0.0, 0.0), (0.08, 0.08)),
        ("groot", (1.0, 1.0), (0.0, 0.0)),
        ("so101", (0.0, 0.0), (100.0, 100.0)),
    ],
)
def test_a_gripper_is_closed_and_open_where_its_makers_say(whose: str, closed, opened):
    names = MAPS[whose]
    for (state, action), width in ((closed, 0.0), (opened, STROKE_M)):
        seen = names.observation(SENT[whose](state), now_ns=0).state
        assert seen.gripper_width == pytest.approx(width, abs=1e-9)
        n = 6 if whose == "aloha" else N
        np.testing.assert_allclose(seen.q, JOINTS[:n])
        spec = replace(SPEC, fields=(JointPosition(n), GripperWidth()))
        (row,) = names.sent_actions(np.array([[*JOINTS[:n], width]]), spec)
        assert row[-1] == pytest.approx(action)
        np.testing.assert_allclose(row[:-1], np.degrees(JOINTS) if whose == "so101" else JOINTS[:n])


def test_the_map_of_droid_is_two_lines_of_a_file(tmp_path):
    path = tmp_path / "names.json"
    path.write_text('{"convention": "droid", "stroke_m": 0.08}')
    assert KeyMap.load(path).over(KeyMap.of(SCHEMA)) == MAPS["droid"]


@pytest.mark.parametrize("number", [0.0, 0.04, 1.0])
def test_a_gripper_that_nobody_has_declared_is_refused_with_the_conventions_there_are(number: float):
    with pytest.raises(ValueError, match=r"nothing says what is open.*droid, libero.*such keys are droid's"):
        KeyMap.of(SCHEMA).observation(droid(number), now_ns=0)
    with pytest.raises(ValueError, match="nothing says what an open gripper is"):
        KeyMap.of(SCHEMA).sent_actions(np.zeros((1, N + 1)), SPEC)


@pytest.mark.parametrize(
    ("whose", "gripper"), [("droid", 1.2), ("droid", -0.5), ("umi", 1.0), ("libero", 1.0), ("aloha", 85.0)]
)
def test_a_gripper_outside_of_what_its_convention_can_be_is_refused(whose: str, gripper: float):
    with pytest.raises(ValueError, match="no gripper's width"):
        MAPS[whose].observation(SENT[whose](gripper), now_ns=0)


def test_joints_of_ninety_are_no_radians():
    with pytest.raises(ValueError, match=r"more than two turns in rad.*joint_unit"):
        MAPS["droid"].observation(droid(0.0) | {"observation/joint_position": np.full(N, 90.0)}, now_ns=0)


@given(st.lists(st.floats(-100.0, 100.0), min_size=N, max_size=N))
def test_per_cent_of_a_range_come_and_go(percent: list[float]):
    limits = tuple((-1.0 - i, 2.0 + i) for i in range(N))
    names = KeyMap(
        convention="si",
        joint_unit="percent",
        joint_range=limits,
        q=Entry(key="q"),
        gripper_width=Entry(key="w"),
    )
    q = names.observation({"q": np.array(percent), "w": 0.0}, now_ns=0).state.q
    low, high = np.array(limits).T
    np.testing.assert_allclose(q, low + (np.array(percent) + 100.0) / 200.0 * (high - low), atol=1e-9)
    back = names.sent_actions(np.array([[*q, 0.0]]), SPEC)[0, :N]
    np.testing.assert_allclose(back, percent, atol=1e-9)


def test_a_delta_of_a_joint_is_scaled_and_not_shifted():
    spec = ActionSpec(fields=(JointPosition(1, Reference.DELTA),), horizon=1, dt_ns=1)
    names = KeyMap(joint_unit="percent", joint_range=((0.0, 2.0),), q=Entry(key="q"))
    np.testing.assert_allclose(names.sent_actions(np.array([[0.1]]), spec), [[10.0]])


@pytest.mark.parametrize("rotation", ["columns", "rows", "interleaved"])
def test_a_hand_turns_the_way_it_was_meant_in_every_layout(rotation: str):
    R = pin.exp3(np.array([0.0, 0.0, math.radians(30.0)]))
    theirs = {"columns": [*R[:, 0], *R[:, 1]], "rows": R[:2].ravel(), "interleaved": R[:, :2].ravel()}[
        rotation
    ]
    names = KeyMap(rotation=rotation, q=Entry(key="q"), hand_pose=Entry(key="hand"))
    sent = {"q": np.zeros(N), "hand": np.array([0.1, 0.2, 0.3, *theirs])}
    pose = names.observation(sent, now_ns=0).state.X_BE
    assert pose is not None
    np.testing.assert_allclose(pose.rotation, R, atol=1e-9)
    spec = ActionSpec(fields=(EndEffectorPose(),), horizon=1, dt_ns=1)
    row = np.array([[0.1, 0.2, 0.3, *rotation_to_6d(R)]])
    np.testing.assert_allclose(names.sent_actions(row, spec)[0, 3:], theirs, atol=1e-9)
    with pytest.raises(ValueError, match="columns, rows or interleaved"):
        KeyMap(q=Entry(key="q")).sent_actions(row, spec)


def test_a_hand_of_axis_angle_is_read_and_sent_as_it_is_declared():
    R = pin.exp3(v := np.array([0.3, -3.0, 0.2]))
    names = KeyMap(rotation="vector", q=Entry(key="q"), hand_pose=Entry(key="hand"))
    sent = {"q": np.zeros(N), "hand": np.array([0.1, 0.2, 0.3, *v])}
    observation = names.observation(sent, now_ns=0)
    assert observation.state.X_BE is not None
    np.testing.assert_allclose(observation.state.X_BE.rotation, R, atol=1e-9)
    np.testing.assert_allclose(names.sent(observation)["hand"], sent["hand"], atol=1e-9)
    spec = ActionSpec(fields=(EndEffectorPose(rotation=Rotation.VECTOR),), horizon=1, dt_ns=1)
    row = np.array([[0.1, 0.2, 0.3, *v]])
    np.testing.assert_array_equal(names.sent_actions(row, spec), row)
    np.testing.assert_array_equal(names.rows({"actions": row}, spec), row)
    with pytest.raises(ValueError, match='declare "rotation": "vector" of its field in "action_spec", too'):
        names.sent_actions(np.zeros((1, 9)), replace(spec, fields=(EndEffectorPose(),)))


def test_lerobots_numbers_are_found_by_the_names_that_recordings_have():
    names = lerobot.names_of(SCHEMA, [*[f"joint_{i}.pos" for i in range(N)][::-1], "gripper.pos"], {})
    assert names.q == Entry(names=tuple(f"joint_{i}.pos" for i in range(N)))
    assert names.gripper_width == Entry(names=("gripper.pos",))
    assert lerobot.names_of(SCHEMA, [*SO101], {}).q is None


@pytest.mark.parametrize("changes", [{"scale": 0.0}, {"scale": math.nan}, {"offset": math.inf}])
def test_a_scale_that_cannot_be_undone_is_refused(changes):
    with pytest.raises((InvalidValueError, ValueError), match="finite and not 0"):
        Entry(key="x", **changes)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"q": {"key": "state", "stop": 6}}, '"q" has 6 numbers, the policy needs 7'),
        ({"q": {"names": ["a", "b"]}}, '"q" has 2 numbers, the policy needs 7'),
        ({"gripper_width": {"key": "state", "start": 6, "stop": 8}}, '"gripper_width" has 2 numbers'),
        ({"hand_pose": {"key": "hand", "stop": 8}}, '"hand_pose" has 8 numbers, the policy needs 7 or 9'),
        ({"joint_unit": "percent", "joint_range": [[0, 1]]}, '"joint_range" has 1 numbers'),
        ({"action_scale": [1] * 7}, '"action_scale" has 7 numbers, the policy needs 8'),
        ({"cameras": {"wirst": "images/wrist"}}, '"cameras" has wirst; the policy also looks at wrist'),
    ],
)
def test_names_that_no_policy_of_the_server_can_be_meant_by_are_refused_before_anybody_asks(said, words: str):
    seeing = PolicyInfo(name="seeing", action_spec=SPEC, schema=replace(SCHEMA, cameras={"wrist": (4, 6)}))
    names = msgspec.convert(said, KeyMap)
    with pytest.raises(InvalidValueError, match=f"does not fit policy 'seeing': {words}"):
        refuse_for_all(names, [seeing])
    fields = (JointPosition(2), GripperWidth())
    other = PolicyInfo(name="other", action_spec=replace(SPEC, fields=fields))
    refuse_for_all(KeyMap(q=Entry(key="state", stop=2)), [seeing, other])


def test_a_camera_that_a_policy_does_not_look_at_may_be_named_for_another():
    names = replace_names(MAPS["droid"], cameras={"wrist": "w", "chest": "c"})
    sent = droid(0.0) | {"w": np.zeros((4, 6, 3), np.uint8)}
    assert [*names.observation(sent, now_ns=0, sizes={"wrist": (4, 6)}).images] == ["wrist"]


@pytest.mark.parametrize(
    "said",
    [
        {"q": {"key": "s"}, "dq": {"key": "s"}},
        {"q": {"key": "s"}, "gripper_width": {"key": "s", "start": N - 1}},
        {"q": {"key": "s"}, "gripper_width": {"key": "s", "start": N + 1}},
        {"q": {"key": "s", "stop": N - 1}, "gripper_width": {"key": "s", "start": N - 1}},
    ],
    ids=["one over the other", "overlapping", "with a gap", "cut"],
)
def test_numbers_that_would_overwrite_each_other_or_leave_a_gap_are_not_sent(said):
    state = RobotState(t_ns=0, q=JOINTS, dq=np.zeros(N), gripper_width=0.04)
    seen = Observation(state=state, images={})
    names = replace_names(MAPS["droid"], **{name: Entry(**entry) for name, entry in said.items()})
    with pytest.raises(ValueError, match="declared"):
        names.sent(seen)
    fine = replace_names(MAPS["droid"], q=Entry(key="s"), gripper_width=Entry(key="s", start=N))
    np.testing.assert_allclose(fine.sent(seen)["s"], [*JOINTS, 0.5], rtol=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        '{"convention": "droid", "stroke_m": 0}',
        '{"stroke_m": 85}',
        '{"convention": "libero"}',
        '{"q": {"key": "s", "start": 2, "stop": 2}}',
        '{"q": {"names": ["a.pos", "a.pos"]}}',
    ],
    ids=["no stroke", "millimetres", "actions without a stroke", "nothing", "one number twice"],
)
def test_what_a_file_of_names_cannot_mean_is_said_when_it_is_read(text: str, tmp_path):
    path = tmp_path / "names.json"
    path.write_text(text)
    with pytest.raises(InvalidValueError, match="does not say what is where"):
        KeyMap.load(path)


def test_one_file_of_names_is_for_openpis_and_lerobots_clients_together(tmp_path):
    path = tmp_path / "names.json"
    arm = {"names": [f"{name}.pos" for name in SO101] + ["elbow_roll.pos", "wrist_yaw.pos"]}
    mine = {"joint_unit": "deg", "q": arm, "gripper_width": {"names": ["gripper.pos"]}}
    path.write_bytes(msgspec.json.encode({"convention": "si", "lerobot": mine}))
    assert KeyMap.load(path) == KeyMap.load(path, "openpi") == KeyMap(convention="si")
    openpi, own = KeyMap.load(path, "openpi").over(KeyMap.of(SCHEMA)), KeyMap.load(path, "lerobot")
    sent = {"observation/joint_position": JOINTS, "observation/gripper_position": np.array([0.03])}
    named = dict(zip(arm["names"], map(float, np.degrees(JOINTS)), strict=True)) | {"gripper.pos": 0.03}
    for names, message in ((openpi, sent), (own, named)):
        state = names.observation(message, now_ns=1).state
        np.testing.assert_allclose(state.q, JOINTS, atol=1e-12)
        assert state.gripper_width == pytest.approx(0.03)
    for wrong in ({"lerobot": 3}, {"lerobot": {"groot": {}}}, {"lerobots": {}}):
        path.write_bytes(msgspec.json.encode(wrong))
        with pytest.raises(InvalidValueError, match="does not say what is where"):
            KeyMap.load(path, "lerobot")


# ---- pictures ------------------------------------------------------------------------------------------


def circle() -> np.ndarray:
    """400 pixels wide in 720 x 1280, as of a camera."""
    y, x = np.mgrid[:720, :1280]
    return np.repeat((np.hypot(y - 360, x - 640) < 200)[..., None] * np.uint8(255), 3, axis=2)


@pytest.mark.parametrize(("fit", "across"), [("pad", 80), ("crop", 142)])
def test_a_circle_stays_one(fit, across: int):
    there = fitted(circle(), (256, 256), fit)[..., 0] > 127
    assert there.any(axis=0).sum() == pytest.approx(across, abs=2)
    assert there.any(axis=1).sum() == pytest.approx(across, abs=2)
    middle = np.argwhere(there).mean(axis=0)
    np.testing.assert_allclose(middle, [127.5, 127.5], atol=1.5)


@given(
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.sampled_from(["pad", "crop", "stretch"]),
)
def test_a_picture_of_any_size_becomes_one_of_any_other(there, here, fit):
    out = fitted(np.full((*there, 3), 7, np.uint8), here, fit)
    assert out.shape == (*here, 3)
    assert set(np.unique(out)) <= {0, 7}
    assert fit == "pad" or (out == 7).all()


@given(
    st.tuples(st.integers(1, 200), st.integers(1, 200)),
    st.tuples(st.integers(1, 200), st.integers(1, 200)),
    st.integers(0, 2**32 - 1),
)
def test_a_stretched_picture_is_lerobots_servers_to_the_last_bit(there, here, seed: int):
    torch = pytest.importorskip("torch")
    helpers = pytest.importorskip("lerobot.async_inference.helpers", reason="whose server it is")
    pixels = np.random.default_rng(seed).integers(0, 256, (*there, 3), np.uint8)
    theirs = helpers.resize_robot_observation_image(torch.tensor(pixels), (3, *here))
    np.testing.assert_array_equal(fitted(pixels, here, "stretch"), theirs.permute(1, 2, 0).numpy())


@given(
    hand=st.lists(st.floats(-1.0, 1.0), min_size=6, max_size=6),
    reference=st.sampled_from([Reference.RELATIVE, Reference.DELTA]),
    fields=st.sampled_from([(JointPosition(3), GripperWidth()), (GripperWidth(), EndEffectorPose())]),
)
def test_clients_are_told_where_to_be_whatever_a_policys_rows_count_from(hand, reference, fields):
    """LeRobot's, openpi's and GR00T's robots take what they get for absolute positions."""
    counting = tuple(f if isinstance(f, GripperWidth) else replace(f, reference=reference) for f in fields)
    spec = ActionSpec(fields=counting, horizon=4, dt_ns=1)
    seen = RobotState(t_ns=1, q=np.array(hand[:3]), dq=np.zeros(3), X_BE=pin.exp6(np.array(hand)))
    steps = pin.exp6(np.array([0.1, 0.0, -0.1, 0.0, 0.2, 0.1]))
    poses = [seen.X_BE * steps, seen.X_BE * steps * steps]
    targets = Waypoints(
        q=np.array([[1.0, 2.0, 3.0], [1.5, 2.5, 3.5]]),
        p_BE=np.array([pose.translation for pose in poses]),
        quat_BE=np.array([np.roll(pin.Quaternion(pose.rotation).coeffs(), 1) for pose in poses]),
        gripper=np.array([0.01, 0.02]),
    )
    sent = sent_rows(targets.encode(spec, seen), spec, seen)
    np.testing.assert_allclose(sent, targets.encode(spec.absolute(), seen), atol=1e-9)
    assert spec.absolute().fields == fields
