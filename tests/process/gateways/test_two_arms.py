"""A robot with two arms, as ALOHA has them, through every gateway: what comes back is what was shown."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from aloha import ALOHA, EXPECTED, NAMES, PICTURE, SCHEMA, SERVED, SPEC, STATE, STROKE_M, EchoPolicy
from echo import echo_server
from msgspec.structs import replace as replace_names
from test_groot import Client, as_npy
from test_openpi import ask

from policies.openpi import OpenpiPolicy
from robot_runtime.core.method.sampler_parts import ConstantSchedule
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import (
    ActionSpec,
    GripperFraction,
    JointPosition,
)
from robot_runtime.core.values.schema import ArmSchema, BaseSchema, Schema
from robot_runtime.core.values.state import ArmState, GripperState, Image, Observation, RobotState
from robot_runtime.errors import InvalidValueError
from robot_runtime.server.gateways.groot import GrootGateway
from robot_runtime.server.gateways.key_map import Entry, KeyMap
from robot_runtime.server.gateways.openpi import OpenpiGateway, pack
from robot_runtime.server.gateways.part_entries import PartEntries

TOKEN = "open sesame"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with echo_server(policy=EchoPolicy()) as address:
        yield address


@pytest.fixture(scope="module")
def url(server: str) -> Iterator[str]:
    with OpenpiGateway(
        {"echo": SERVED}, server=server, address="127.0.0.1:0", names=ALOHA, token=TOKEN
    ) as gateway:
        yield f"ws://{gateway.address}"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": STATE[:13]}, "'state' has 13 numbers, 14 are needed"),
        ({"state": np.where(np.arange(14) == 13, 60.0, STATE)}, "is no gripper's width"),
        (
            {"images": {"cam_high": PICTURE}},
            'is (3, h, w) uint8, got (4, 6, 3) uint8: declare "channels": "last"',
        ),
        ({"state": np.where(np.arange(14) == 9, np.nan, STATE)}, "NaN"),
    ],
)
def test_an_aloha_that_shows_something_else_is_told_what_in_words(url: str, change, words: str):
    shown = {"state": STATE, "images": {"cam_high": PICTURE.transpose(2, 0, 1)}, "prompt": ""}
    answer = ask(url, pack(shown | change))
    assert isinstance(answer, str)
    assert words in answer
    np.testing.assert_allclose(ask(url, pack(shown))["actions"], EXPECTED, atol=1e-6)


def test_our_robot_with_two_arms_asks_an_openpi_server_as_an_aloha_does(url: str):
    names = replace_names(ALOHA, cameras={"cam_high": "images/cam_high"})
    policy = OpenpiPolicy(url, schema=SCHEMA, action_spec=SPEC, names=names, api_key=TOKEN)
    q = STATE * np.where(np.arange(14) % 7 == 6, STROKE_M, 1.0)
    parts = {
        "right_arm": ArmState(q=q[7:13], dq=np.zeros(6)),
        "right_gripper": GripperState(width=q[13]),
        "left_arm": ArmState(q=q[:6], dq=np.zeros(6)),
        "left_gripper": GripperState(width=q[6]),
    }
    images = {"cam_high": Image(t_ns=1, pixels=PICTURE)}
    seen = Observation(state=RobotState(t_ns=1, parts=parts), images=images)
    (rows,) = policy.infer(ChunkRequest(observation=seen, sampler=ConstantSchedule(), seed=0))
    np.testing.assert_allclose(rows, np.tile(q + 9.0 * np.eye(14)[0], (SPEC.horizon, 1)), atol=1e-6)


def test_groots_client_names_each_part(server: str):
    names = KeyMap(convention="aloha", stroke_m=STROKE_M)
    with GrootGateway(SERVED, server=server, address="127.0.0.1:*", token=TOKEN, names=names) as gateway:
        client = Client(gateway.address)
        try:
            parts = dict(zip(SCHEMA.parts, np.split(STATE, [6, 7, 13]), strict=True))
            observation = {
                "video": {"cam_high": as_npy(PICTURE[None, None])},
                "state": {name: as_npy(x[None, None]) for name, x in reversed(parts.items())},
                "language": {"task": [["fold it"]]},
            }
            action, _ = client.act(observation)
            assert list(action) == list(SCHEMA.parts)
            together = np.concatenate([action[name][0] for name in SCHEMA.parts], axis=1)
            np.testing.assert_allclose(together, EXPECTED, atol=1e-6)
            modalities = {k: v["as_json"] for k, v in client.call("get_modality_config").items()}
            assert set(modalities["state"]["modality_keys"]) == set(SCHEMA.parts)
            assert modalities["action"]["modality_keys"] == list(SCHEMA.parts)
            del observation["state"]["right_arm"]
            assert "no 'state/right_arm'" in client.act(observation)["error"]
        finally:
            client.close()


@pytest.fixture(scope="module")
def lerobot_address(server: str) -> Iterator[str]:
    pytest.importorskip("grpc", reason="LeRobot's transport")
    pytest.importorskip("lerobot", reason="whose client it is")
    from robot_runtime.server.gateways.lerobot import LeRobotGateway

    names = KeyMap(convention="aloha", stroke_m=STROKE_M, joint_unit="rad")
    with LeRobotGateway({"echo": SERVED}, server=server, address="127.0.0.1:0", names=names) as gateway:
        yield gateway.address


@pytest.mark.parametrize(
    "order", [range(14), [*range(7, 14), *range(7)], [13, 0, 7, *range(1, 7), *range(8, 13)]]
)
def test_lerobots_numbers_are_matched_by_name_in_whatever_order_the_robot_has_them(
    lerobot_address: str, order
):
    import grpc
    from lerobot.async_inference.helpers import RemotePolicyConfig, TimedObservation
    from lerobot.transport import services_pb2, services_pb2_grpc

    names = [NAMES[i] for i in order]
    features = {
        "observation.state": {"dtype": "float32", "shape": (14,), "names": names},
        "observation.images.cam_high": {"dtype": "image", "shape": (4, 6, 3), "names": []},
    }
    raw = {name: float(x) for name, x in zip(NAMES, STATE, strict=True)} | {"cam_high": PICTURE, "task": ""}
    with grpc.insecure_channel(lerobot_address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = services_pb2_grpc.AsyncInferenceStub(channel)

        def instruct(**changes) -> None:
            said = {"lerobot_features": features} | changes
            setup = RemotePolicyConfig(
                policy_type="act", pretrained_name_or_path="x", actions_per_chunk=4, **said
            )
            stub.SendPolicyInstructions(services_pb2.PolicySetup(data=pickle.dumps(setup)))

        fewer = features | {"observation.state": features["observation.state"] | {"names": NAMES[:13]}}
        with pytest.raises(grpc.RpcError, match="moves 14 numbers by name"):
            instruct(lerobot_features=fewer)
        doubled = features["observation.state"] | {"names": [*NAMES[:13], NAMES[0]]}
        with pytest.raises(grpc.RpcError, match=r"two numbers of one name, left_waist\.pos"):
            instruct(lerobot_features=features | {"observation.state": doubled})
        instruct()
        shown = pickle.dumps(TimedObservation(timestamp=1.0, timestep=7, observation=raw))
        stub.SendObservations(
            iter([services_pb2.Observation(transfer_state=services_pb2.TRANSFER_END, data=shown)])
        )
        answered = pickle.loads(stub.GetActions(services_pb2.Empty()).data)
        rows = np.array([timed.action.numpy() for timed in answered])
        np.testing.assert_allclose(rows, EXPECTED[:, list(order)], rtol=1e-6)


@pytest.mark.long
def test_lerobots_stock_client_drives_a_robot_with_two_arms(lerobot_address: str, tmp_path: Path):
    script = Path(__file__).with_name("stock_lerobot.py")
    env = os.environ | {"NUMBERS": ",".join(NAMES), "CAMERA": "cam_high"}
    command = [sys.executable, str(script), lerobot_address, "0.5", "10"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path, env=env).stdout
    actions = json.loads(said)
    assert len(actions) >= 10
    for action in actions:
        assert [*action] == NAMES
        assert action["right_waist.pos"] == pytest.approx(0.06)  # as it was shown
        assert action["right_gripper.pos"] == pytest.approx(0.04)


# ---- what a file of names says -----------------------------------------------------------------------------


def refused(names: KeyMap) -> str:
    with pytest.raises(InvalidValueError) as refusal:
        names.refuse_misfit(SCHEMA, SPEC)
    return str(refusal.value)


def test_a_part_that_the_policy_does_not_have_or_of_another_size_is_refused_by_name():
    said = KeyMap(parts={"middle_arm": PartEntries(q=Entry(key="state"))})
    assert "the part 'middle_arm'; the parts of the policy are left_arm, left_gripper, right" in refused(said)
    assert "the part 'arm'" in refused(KeyMap(q=Entry(key="state")))
    said = KeyMap(parts={"left_arm": PartEntries(q=Entry(key="state", stop=7))})
    assert '"left_arm.q" has 7 numbers, the policy needs 6' in refused(said)
    said = KeyMap(parts={"left_gripper": PartEntries(q=Entry(key="state"))})
    assert '"left_gripper.q" has 1 numbers, the policy needs 0' in refused(said)


def test_one_part_said_twice_or_of_two_kinds_is_refused():
    with pytest.raises(ValueError, match='"q" of arm is declared twice'):
        KeyMap(q=Entry(key="a"), parts={"arm": PartEntries(q=Entry(key="b"))})
    with pytest.raises(ValueError, match="a part has entries of one kind"):
        PartEntries(q=Entry(key="a"), width=Entry(key="b"))
    assert KeyMap(parts={"arm": PartEntries(q=Entry(key="b"))}) == KeyMap(q=Entry(key="b"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '{"parts": {"left_arm": {"joints": {"key": "s"}}}}',
            "there are q, dq, hand_pose, width, pose, twist",
        ),
        ('{"parts": {"left_arm": {"q": {"kay": "s"}}}}', "there are key, names, start"),
        ('{"joint_unit": "percent", "joint_ranges": {"left_arm": [[0, 0]]}}', "finite and not 0"),
    ],
)
def test_a_file_that_says_a_part_wrongly_is_told_what_there_is(tmp_path: Path, text: str, words: str):
    path = tmp_path / "names.json"
    path.write_text(text)
    with pytest.raises(InvalidValueError, match=words):
        KeyMap.load(path)


def test_per_cent_are_of_the_range_of_each_arm():
    ranges = {"left_arm": ((-1.0, 1.0),) * 6, "right_arm": ((0.0, 4.0),) * 6}
    said = KeyMap(convention="aloha", stroke_m=STROKE_M, joint_unit="percent", joint_ranges=ranges)
    names = said.over(KeyMap.of(replace(SCHEMA, cameras={})))
    shown = np.array([*np.full(6, 50.0), 1.0, *np.full(6, 50.0), 0.0])
    state = names.observation({"state": shown}, now_ns=1).state
    np.testing.assert_allclose(state.arm("left_arm").q, 0.5)
    np.testing.assert_allclose(state.arm("right_arm").q, 3.0)
    row = np.concatenate([np.full(6, 0.5), [STROKE_M], np.full(6, 3.0), [0.0]])[None]
    np.testing.assert_allclose(names.sent_actions(row, SPEC)[0], shown)
    half = replace_names(names, joint_ranges={"left_arm": ranges["left_arm"]})
    with pytest.raises(ValueError, match="the range of the joints of right_arm is undeclared"):
        half.observation({"state": shown}, now_ns=1)


def test_a_policy_that_tells_shares_of_an_opening_is_heard_in_the_robots_own_numbers():
    for one_is_open, convention, theirs in (
        (True, "aloha", 0.25),
        (False, "aloha", 0.75),
        (False, "droid", 0.25),
    ):
        fields = (JointPosition(1, part="left_arm"), GripperFraction("left_gripper", one_is_open=one_is_open))
        spec = ActionSpec(fields=fields, horizon=1, dt_ns=1)
        names = KeyMap(convention=convention, stroke_m=STROKE_M, joint_unit="rad")
        np.testing.assert_allclose(names.sent_actions(np.array([[0.3, 0.25]]), spec), [[0.3, theirs]])
        with pytest.raises(ValueError, match='declare "stroke_m"'):
            KeyMap(convention="si").sent_actions(np.array([[0.3, 0.25]]), spec)


def test_a_base_and_a_force_come_through_by_their_names():
    schema = Schema(parts={"left_arm": ArmSchema(1), "front": BaseSchema()}, measured={"force": 2})
    names = KeyMap.of(schema)
    sent = {
        "state": np.array([0.5]), "front_pose": np.array([1.0, 2.0, 3.0]), "front_twist": np.zeros(3),
        "force": np.array([4.0, 5.0]),
    }  # fmt: skip
    state = names.observation(sent, now_ns=1).state
    np.testing.assert_allclose(state.base("front").x_WB, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(state.measured["force"], [4.0, 5.0])
    back = names.sent(names.observation(sent, now_ns=1))
    assert {key: back[key].tolist() for key in sent} == {key: x.tolist() for key, x in sent.items()}
    with pytest.raises(ValueError, match="expected three numbers 'front_pose' of a mobile base, got 2"):
        names.observation(sent | {"front_pose": np.zeros(2)}, now_ns=1)


def test_what_is_sent_of_two_arms_is_read_as_it_was():
    names = ALOHA.over(KeyMap.of(SCHEMA))
    seen = names.observation({"state": STATE, "images": {"cam_high": PICTURE.transpose(2, 0, 1)}}, now_ns=1)
    np.testing.assert_allclose(names.sent(seen)["state"], STATE, rtol=1e-6)
    assert isinstance(seen, Observation)
    assert isinstance(seen.images["cam_high"], Image)
