"""LeRobot's stock robot client at our server, over real gRPC, with a robot that only keeps its actions."""

import json
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import numpy as np
import pytest
from echo import ECHO, SCHEMA, SPEC, EchoPolicy, echo_server

from policies.commands.serve_gateways import _checkpoint
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError

grpc = pytest.importorskip("grpc", reason="LeRobot's transport")
pytest.importorskip("lerobot", reason="whose client it is")

import torch  # noqa: E402
from lerobot.async_inference import helpers  # noqa: E402
from lerobot.async_inference.helpers import RemotePolicyConfig, TimedObservation  # noqa: E402
from lerobot.transport import services_pb2, services_pb2_grpc  # noqa: E402

from policies.load import load_policy  # noqa: E402
from robot_runtime.server.gateways.key_map import Entry, KeyMap  # noqa: E402
from robot_runtime.server.gateways.lerobot import LeRobotGateway  # noqa: E402
from robot_runtime.server.gateways.lerobot_messages import (  # noqa: E402
    Checkpoint,
    read_instructions,
    read_observation,
    written_actions,
)
from robot_runtime.server.gateways.lerobot_names import declared_names_given  # noqa: E402
from robot_runtime.server.gateways.policy_session import MAX_ASKING  # noqa: E402
from tests.policies.test_lerobot_types import described, save  # noqa: E402

pytestmark = pytest.mark.long

NAMES = KeyMap(
    convention="si",
    q=Entry(names=("one.pos", "two.pos")),
    gripper_width=Entry(names=("gripper.pos",)),
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with (
        echo_server() as server,
        LeRobotGateway({"echo": ECHO}, server=server, address="127.0.0.1:0", names=NAMES) as gateway,
    ):
        yield gateway.address


@pytest.fixture(scope="module")
def acted(address: str, tmp_path_factory: pytest.TempPathFactory) -> dict[float, list[dict[str, float]]]:
    """The actions of two stock clients at the same time, by where the joint of their robot began."""
    script, joints = Path(__file__).with_name("stock_lerobot.py"), (0.5, 5.5)
    command = [sys.executable, str(script), address, ",".join(map(str, joints)), "40"]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=tmp_path_factory.mktemp("clients")
    )
    return dict(zip(joints, json.loads(done.stdout), strict=True))


@pytest.mark.long
def test_the_stock_robot_client_works_unchanged(acted):
    for actions in acted.values():
        assert len(actions) >= 40
        for action in actions:
            assert action["two.pos"] == pytest.approx(9.0)  # its picture, shrunk to the policy's size
            assert action["gripper.pos"] == pytest.approx(0.04)


def test_two_robots_get_each_their_own_actions(acted):
    for joint, own in acted.items():
        assert all(joint <= action["one.pos"] < joint + 5.0 for action in own)  # where it was seen


@pytest.fixture
def stub(address: str):
    """On a connection of its own, as of another process: gRPC would go on with that of the test before."""
    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield services_pb2_grpc.AsyncInferenceStub(channel)


FEATURES = {
    "observation.state": {
        "dtype": "float32",
        "shape": (3,),
        "names": ["one.pos", "two.pos", "gripper.pos"],
    },
    "observation.images.wrist": {"dtype": "image", "shape": (4, 6, 3), "names": []},
}


def instructions(**changes) -> bytes:
    values = {"policy_type": "act", "pretrained_name_or_path": "x", "lerobot_features": FEATURES}
    return pickle.dumps(RemotePolicyConfig(**(values | {"actions_per_chunk": 4} | changes)))


def instruct(stub, **changes) -> None:
    stub.SendPolicyInstructions(services_pb2.PolicySetup(data=instructions(**changes)))


def observe(stub, raw: dict, *, timestamp: float = 1.0, timestep: int = 7) -> None:
    data = pickle.dumps(TimedObservation(timestamp=timestamp, timestep=timestep, observation=raw))
    stub.SendObservations(
        iter([services_pb2.Observation(transfer_state=services_pb2.TRANSFER_END, data=data)])
    )


def actions(stub) -> np.ndarray:
    return np.array([a.action.numpy() for a in pickle.loads(stub.GetActions(services_pb2.Empty()).data)])


RAW = {
    "one.pos": 0.5,
    "two.pos": 0.0,
    "gripper.pos": 0.04,
    "wrist": np.zeros((8, 12, 3), np.uint8),
    "task": "",
}


def test_what_is_wrong_comes_as_a_status_and_the_next_is_answered(stub):
    with pytest.raises(grpc.RpcError, match=r"needs the cameras \['wrist'\]"):
        instruct(stub, lerobot_features={"observation.state": FEATURES["observation.state"]})
    instruct(stub)
    for raw, words in (
        ({"one.pos": 0.5}, "the observation has no 'two.pos'"),
        (RAW | {"wrist": np.zeros((3, 4, 6), np.uint8)}, "uint8, got"),
        (RAW | {"one.pos": float("nan")}, "NaN"),
        (RAW | {"one.pos": 90.0}, "more than two turns in rad"),
        (RAW | {"gripper.pos": 1.0}, "no gripper's width"),
        (RAW | {"one.pos": "secret words"}, "'one.pos' is an array of at most 4096 numbers, got str"),
        (RAW | {"task": 3}, "'task' is a text, got int"),
    ):
        with pytest.raises(grpc.RpcError, match=re.escape(words)) as refused:
            observe(stub, raw)
        assert "secret" not in refused.value.details()
    observe(stub, RAW)
    answered = pickle.loads(stub.GetActions(services_pb2.Empty()).data)
    assert [action.timestep for action in answered] == [7, 8, 9, 10]
    assert [action.get_timestamp() for action in answered] == pytest.approx([1.0 + i / 20 for i in range(4)])
    assert all(action.action.dtype == torch.float32 for action in answered)


def test_a_client_that_asks_before_it_has_shown_anything_is_to_ask_again(stub):
    assert stub.GetActions(services_pb2.Empty()).data == b""


@pytest.fixture(scope="module")
def act(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ACT of the numbers in `FEATURES`, which sees 96 x 96 pixels."""
    folder = save("act", tmp_path_factory.mktemp("act"))
    described(folder, fps=20.0)
    return folder


DEVIATION = 50.0
"""Of that ACT's joints."""


def lerobots_rows(folder: Path, raw: dict, features: dict) -> np.ndarray:
    """What LeRobot's own server answers, by its own functions."""
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    policy = get_policy_class("act").from_pretrained(folder)
    before, after = make_pre_post_processors(policy.config, pretrained_path=str(folder))
    seen = helpers.raw_observation_to_observation(raw, features, policy.config.image_features)
    with torch.no_grad():
        return after(policy.predict_action_chunk(before(seen)))[0].numpy()


@pytest.mark.parametrize("is_smooth", [True, False])
def test_rows_are_those_of_lerobots_own_server_whatever_size_the_camera_has(
    act: Path, is_smooth: bool, caplog: pytest.LogCaptureFixture
):
    policy = load_policy(act)
    y, x = np.mgrid[:480, :640]
    smooth = np.stack([y / 2, x / 3, (x + y) / 5], axis=2).astype(np.uint8)
    noise = np.random.default_rng(0).integers(0, 256, (480, 640, 3), np.uint8)
    raw = RAW | {"one.pos": -0.2, "two.pos": 0.3, "wrist": smooth if is_smooth else noise}
    wrist = {"dtype": "image", "shape": (480, 640, 3), "names": ["height", "width", "channels"]}
    features = FEATURES | {"observation.images.wrist": wrist}
    with (
        echo_server(policy=policy) as server,
        LeRobotGateway(
            {policy.info.name: policy.info}, server=server, address="127.0.0.1:0", names=NAMES
        ) as gateway,
        caplog.at_level("INFO", "robot_runtime.server.gateways.lerobot"),
        grpc.insecure_channel(gateway.address, [("grpc.use_local_subchannel_pool", 1)]) as channel,
    ):
        stub = services_pb2_grpc.AsyncInferenceStub(channel)
        instruct(stub, lerobot_features=features, actions_per_chunk=6)
        for timestep in range(3):
            observe(stub, raw, timestep=timestep)
        rows = actions(stub)
    np.testing.assert_allclose(rows, lerobots_rows(act, raw, features), atol=1e-5 * DEVIATION)
    resized = [line for line in caplog.messages if "resized" in line]
    assert resized == ["images 'wrist' of 480 x 640 are resized to 96 x 96: stretch"]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_numbers_are_matched_by_name_in_whatever_order_the_robot_has_them(stub, order):
    names = [("one.pos", "two.pos", "gripper.pos")[i] for i in order]
    state = FEATURES["observation.state"] | {"names": names}
    instruct(stub, lerobot_features=FEATURES | {"observation.state": state})
    raw = {name: RAW[name] for name in names} | {"wrist": np.full((4, 6, 3), 9, np.uint8), "task": ""}
    observe(stub, raw)
    expected = {
        "one.pos": 0.5,
        "two.pos": 9.0,
        "gripper.pos": 0.04,
    }  # what the echo makes of joint and picture
    np.testing.assert_allclose(actions(stub), [[expected[name] for name in names]] * 4, rtol=1e-6)


@pytest.mark.parametrize(
    ("asked", "is_said"),
    [
        ({"policy_type": "smolvla", "pretrained_name_or_path": "lerobot/smolvla_base"}, True),
        ({"policy_type": "diffusion", "pretrained_name_or_path": "echo"}, True),
        ({"policy_type": "act", "pretrained_name_or_path": "echo"}, False),
        ({"policy_type": "act", "pretrained_name_or_path": "/data/echo"}, False),
    ],
)
def test_a_client_that_asks_for_another_policy_is_answered_and_the_log_names_both_once(
    asked: dict, is_said: bool, caplog: pytest.LogCaptureFixture
):
    checkpoints = {"echo": Checkpoint(kind="act", called=("/data/echo",))}
    with (
        echo_server() as server,
        LeRobotGateway(
            {"echo": ECHO}, server=server, address="127.0.0.1:0", names=NAMES, checkpoints=checkpoints
        ) as gateway,
        caplog.at_level("WARNING", "robot_runtime.server.gateways.lerobot"),
        grpc.insecure_channel(gateway.address, [("grpc.use_local_subchannel_pool", 1)]) as channel,
    ):
        stub = services_pb2_grpc.AsyncInferenceStub(channel)
        for _ in range(3):
            instruct(stub, **asked)
    kind, name = asked["policy_type"], asked["pretrained_name_or_path"]
    said = f"asks for {kind} '{name}', and is answered by policy 'echo', act"
    assert [said in line for line in caplog.messages if "asks for" in line] == [True] * is_said


def test_a_client_gets_the_policy_that_it_names_by_its_checkpoint(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"type": "act"}')
    checkpoint = _checkpoint(str(tmp_path))
    assert checkpoint.kind == "act"
    other = replace(ECHO, name="other")
    with LeRobotGateway(
        {"other": other, "echo": ECHO}, server="tcp://127.0.0.1:1", address="127.0.0.1:0", names=NAMES,
        checkpoints={"echo": checkpoint, "other": _checkpoint("hf://somebody/act")},
    ) as gateway:  # fmt: skip
        for name, found in ((str(tmp_path), ECHO), ("somebody/act", other), ("other", other)):
            told = read_instructions(instructions(pretrained_name_or_path=name))
            assert gateway._asked_for(told) == found
        with pytest.raises(ValueError, match="there is no policy 'nothing'; there are other, echo"):
            gateway._asked_for(read_instructions(instructions(pretrained_name_or_path="nothing")))


def test_names_that_nobody_has_declared_are_refused_with_what_to_write(stub, address: str):
    state = FEATURES["observation.state"] | {"names": ["a.pos", "b.pos", "gripper.pos"]}
    with pytest.raises(grpc.RpcError, match=re.escape("lacks one.pos, two.pos: declare which is which")):
        instruct(stub, lerobot_features=FEATURES | {"observation.state": state})


def test_a_camera_is_renamed_as_the_client_says_and_other_names_are_not(stub):
    renamed = {"observation.images.hand": "observation.images.wrist"}
    features = {"observation.state": FEATURES["observation.state"], "observation.images.hand": {}}
    instruct(stub, lerobot_features=features, rename_map=renamed)
    observe(stub, RAW | {"hand": np.full((4, 6, 3), 7, np.uint8)})
    assert (actions(stub)[:, 1] == 7.0).all()
    told = {"observation.images.hand": "observation.image"}  # as LeRobot's PushT calls its only picture
    assert declared_names_given(read_instructions(instructions(lerobot_features=features, rename_map=told)))[
        1
    ] == {"image": "hand"}
    with pytest.raises(grpc.RpcError, match="supported for images only"):
        instruct(stub, rename_map={"observation.state": "observation.images.x"})


def test_a_client_whose_instructions_went_to_another_server_is_answered(stub):
    observe(stub, RAW)
    rows = actions(stub)
    assert rows.shape == (12, 3)
    np.testing.assert_allclose(rows[:, 0], 0.5)


def test_a_client_may_come_anew_more_often_than_there_are_places():
    """Of a gateway of its own: for ten seconds those that came may come back."""
    with (
        echo_server() as server,
        LeRobotGateway({"echo": ECHO}, server=server, address="127.0.0.1:0", names=NAMES) as gateway,
    ):
        for _ in range(3 * MAX_ASKING):
            with grpc.insecure_channel(gateway.address) as channel:
                stub = services_pb2_grpc.AsyncInferenceStub(channel)
                instruct(stub)
                observe(stub, RAW)
                assert len(actions(stub)) == 4


def test_two_clients_of_one_process_are_told_so_and_get_nothing_of_each_others(address: str):
    with grpc.insecure_channel(address) as one, grpc.insecure_channel(address) as other:
        left, right = (services_pb2_grpc.AsyncInferenceStub(channel) for channel in (one, other))
        instruct(left)
        waits = [stub.GetActions.future(services_pb2.Empty()) for stub in (left, right)]
        for asks in (*(wait.result for wait in waits), lambda: observe(right, RAW), lambda: actions(left)):
            with pytest.raises(grpc.RpcError, match="each robot in a process of its own"):
                asks()
        left.Ready(services_pb2.Empty())
        observe(left, RAW)
        assert len(actions(left)) == 4


def test_a_client_that_has_given_up_waiting_may_ask_again(address: str):
    with grpc.insecure_channel(address) as channel:
        stub = services_pb2_grpc.AsyncInferenceStub(channel)
        instruct(stub)
        with pytest.raises(grpc.RpcError, match="Deadline"):
            stub.GetActions(services_pb2.Empty(), timeout=0.05)
        observe(stub, RAW)
        assert len(actions(stub)) == 4


def test_a_client_that_begins_again_gets_nothing_of_what_was_seen_before(stub):
    instruct(stub)
    observe(stub, RAW)
    stub.Ready(services_pb2.Empty())
    instruct(stub)
    assert stub.GetActions(services_pb2.Empty()).data == b""


def test_a_client_that_never_ends_its_message_is_hung_up_on(address: str):
    def unfinished():
        yield services_pb2.Observation(transfer_state=services_pb2.TRANSFER_BEGIN, data=b"x")
        over.wait(30.0)

    over = Event()
    with grpc.insecure_channel(address) as channel:
        stub = services_pb2_grpc.AsyncInferenceStub(channel)
        sends = stub.SendObservations.future(unfinished())
        assert sends.code() is grpc.StatusCode.CANCELLED
        over.set()


@pytest.mark.parametrize(("fps", "is_said"), [(20, False), (30, True), (10, True)])
def test_a_client_that_runs_rows_at_another_rate_than_they_are_meant_for_is_told_of_once(
    address: str, caplog: pytest.LogCaptureFixture, fps: int, is_said: bool
):
    gateway_log = "robot_runtime.server.gateways.lerobot"
    with grpc.insecure_channel(address) as channel, caplog.at_level("WARNING", gateway_log):
        stub = services_pb2_grpc.AsyncInferenceStub(channel)
        instruct(stub)
        for step in range(0, 200, 10):
            observe(stub, RAW, timestamp=1e9 + step / fps, timestep=step)
    said = [line for line in caplog.messages if f"runs {fps:.1f} rows a second" in line]
    assert len(said) == is_said
    assert all("meant for 20.0: start it with --fps 20" in line for line in said)


def test_in_which_unit_a_lerobot_robots_joints_are_has_to_be_said():
    """Five degrees and five radians look alike; a robot at its zero would only later be told so."""
    names = KeyMap(stroke_m=0.08, gripper_width=Entry(names=("gripper.pos",), scale=1.0))
    state = FEATURES["observation.state"] | {"names": ["joint_0.pos", "joint_1.pos", "gripper.pos"]}
    features = FEATURES | {"observation.state": state}
    with (
        echo_server() as server,
        LeRobotGateway({"echo": ECHO}, server=server, address="127.0.0.1:0", names=names) as gateway,
        grpc.insecure_channel(gateway.address) as channel,
    ):
        stub = services_pb2_grpc.AsyncInferenceStub(channel)
        with pytest.raises(grpc.RpcError, match=r"the unit of joint_0.pos, joint_1.pos is undeclared"):
            instruct(stub, lerobot_features=features)
        ours = state | {"names": ["joint_0", "joint_1", "gripper.pos"]}
        instruct(stub, lerobot_features=FEATURES | {"observation.state": ours})


def test_a_robot_of_more_motors_than_the_policy_moves_is_refused(stub):
    state = FEATURES["observation.state"] | {"names": ["one.pos", "three.pos", "two.pos", "gripper.pos"]}
    with pytest.raises(grpc.RpcError, match=r"does not move three.pos"):
        instruct(stub, lerobot_features=FEATURES | {"observation.state": state})
    speeds = state | {"names": ["one.pos", "one.vel", "two.pos", "gripper.pos"]}
    instruct(stub, lerobot_features=FEATURES | {"observation.state": speeds})


class Runs:
    """A pickle that would run a command."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('ran')",))


@pytest.mark.parametrize("payload", [Runs(), {"a": Runs()}, helpers.FPSTracker(target_fps=1.0)])
def test_a_pickle_of_anything_else_is_not_loaded(stub, payload):
    with pytest.raises(ValueError, match="is not allowed here"):
        read_observation(pickle.dumps(payload))
    with pytest.raises(grpc.RpcError, match="is not allowed here"):
        stub.SendPolicyInstructions(services_pb2.PolicySetup(data=pickle.dumps(payload)))


@pytest.mark.parametrize("protocol", [4, 5])
def test_what_the_stock_client_pickles_is_read(protocol: int):
    raw = RAW | {"one.pos": np.float32(0.25), "wrist": np.arange(24, dtype=np.uint8).reshape(2, 4, 3)}
    timed = TimedObservation(timestamp=0.5, timestep=1, observation=raw, must_go=True)
    timestamp, timestep, seen = read_observation(pickle.dumps(timed, protocol))
    assert (timestamp, timestep) == (0.5, 1)
    assert seen["one.pos"] == 0.25
    assert np.array_equal(seen["wrist"], raw["wrist"])
    robot = SimpleNamespace(observation_features={"a.pos": float, "wrist": (4, 6, 3), "hand": (4, 6, 3)})
    features = helpers.map_robot_keys_to_lerobot_features(robot)
    told = read_instructions(pickle.dumps(RemotePolicyConfig("act", "x", features, 50), protocol))
    assert told.features == features
    with pytest.raises(ValueError, match="expected a TimedObservation, got list"):
        read_observation(pickle.dumps([1], protocol))


def test_actions_are_written_as_a_client_without_us_unpickles_them():
    rows = np.array([[0.5, -1.0], [0.25, 2.0]])
    answered = pickle.loads(written_actions(rows, timestamp=2.0, timestep=70_000, dt_s=0.5))
    assert [type(action) for action in answered] == [helpers.TimedAction] * 2
    assert [(a.timestamp, a.timestep) for a in answered] == [(2.0, 70_000), (2.5, 70_001)]
    assert torch.equal(torch.stack([a.action for a in answered]), torch.tensor(rows, dtype=torch.float32))


def test_a_gripper_of_which_nothing_says_what_is_open_is_refused_before_a_client_comes():
    with pytest.raises(InvalidValueError, match="of policy 'echo' nothing says what an open gripper is"):
        LeRobotGateway({"echo": ECHO}, server="tcp://127.0.0.1:1", address="127.0.0.1:0")


def test_beyond_this_machine_it_needs_tls_and_a_wrong_address_says_so(tmp_path):
    with pytest.raises(InvalidValueError):
        LeRobotGateway({"echo": ECHO}, server="tcp://127.0.0.1:1", address="0.0.0.0:0")
    with pytest.raises(InvalidValueError, match="cannot read certificate and key"):
        LeRobotGateway(
            {"echo": ECHO},
            server="tcp://127.0.0.1:1",
            address="0.0.0.0:0",
            names=NAMES,
            tls=(tmp_path / "cert.pem", tmp_path / "key.pem"),
        )


class LookingBack(EchoPolicy):
    """Rows of joint 1 in the three observations that it looks at."""

    info = PolicyInfo(
        name="looking back", action_spec=SPEC, schema=SCHEMA, n_obs_steps=3, obs_spacing_ns=NS_PER_S // 5
    )

    def infer(self, request) -> Iterator[np.ndarray]:
        seen = [frame.state.q[0] for frame in request.observation.frames(3)]
        yield np.tile([seen[0], seen[1], seen[2]], (SPEC.horizon, 1))


class SettableClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.t_ns = MonotonicClock().now_ns()

    def now_ns(self) -> int:
        return self.t_ns


def test_what_a_client_has_shown_before_is_kept_for_a_policy_that_looks_back(monkeypatch):
    clock = SettableClock()
    monkeypatch.setattr("robot_runtime.server.gateways.lerobot.MonotonicClock", lambda: clock)
    served = {"looking back": LookingBack.info}
    with (
        echo_server(policy=LookingBack()) as server,
        LeRobotGateway(served, server=server, address="127.0.0.1:0", names=NAMES) as gateway,
        grpc.insecure_channel(gateway.address, [("grpc.use_local_subchannel_pool", 1)]) as channel,
    ):
        stub = services_pb2_grpc.AsyncInferenceStub(channel)
        instruct(stub)
        observe(stub, RAW | {"one.pos": 0.1})
        np.testing.assert_allclose(actions(stub)[0], [0.1, 0.1, 0.1], rtol=1e-6)  # there is no other
        for joint in (0.2, 0.3):
            clock.t_ns += NS_PER_S // 5
            observe(stub, RAW | {"one.pos": joint})
        np.testing.assert_allclose(actions(stub)[0], [0.1, 0.2, 0.3], rtol=1e-6)
        stub.Ready(services_pb2.Empty())  # another run
        observe(stub, RAW | {"one.pos": 0.4})
        np.testing.assert_allclose(actions(stub)[0], [0.4, 0.4, 0.4], rtol=1e-6)
