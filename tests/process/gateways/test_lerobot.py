"""LeRobot's stock robot client at our server, over real gRPC, with a robot that only keeps its actions."""

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from echo import EchoPolicy, echo_server

from robot_runtime.errors import InvalidValueError
from robot_runtime.transport.address import OpenAddressError

grpc = pytest.importorskip("grpc", reason="LeRobot's transport")
pytest.importorskip("lerobot", reason="whose client it is")

from lerobot.async_inference import helpers  # noqa: E402
from lerobot.async_inference.helpers import RemotePolicyConfig, TimedObservation  # noqa: E402
from lerobot.transport import services_pb2, services_pb2_grpc  # noqa: E402

from robot_runtime.server.gateways.lerobot import LeRobotGateway, unpickled  # noqa: E402

NUMBERS = ("one.pos", "two.pos", "gripper.pos")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with (
        echo_server() as server,
        LeRobotGateway({"echo": EchoPolicy()}, server=server, address="127.0.0.1:0") as gateway,
    ):
        yield gateway.address


def run_client(address: str, folder: Path, joint: float, num_actions: int) -> list[dict[str, float]]:
    """The actions of a robot whose joint starts there."""
    script = Path(__file__).with_name("stock_lerobot.py")
    command = [sys.executable, str(script), address, str(joint), str(num_actions)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder).stdout)


def test_the_stock_robot_client_works_unchanged(address: str, tmp_path: Path):
    actions = run_client(address, tmp_path, 0.5, 40)
    assert len(actions) >= 40
    for action in actions:
        assert 0.5 <= action["one.pos"] < 10.0  # where some observation was taken
        assert action["two.pos"] == pytest.approx(9.0)  # its picture, shrunk to the policy's size
        assert action["gripper.pos"] == pytest.approx(0.04)


def test_two_robots_get_each_their_own_actions(address: str, tmp_path: Path):
    actions: dict[float, list[dict[str, float]]] = {}
    threads = [
        Thread(target=lambda joint=joint: actions.update({joint: run_client(address, tmp_path, joint, 20)}))
        for joint in (0.0, 100.0)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for joint, own in actions.items():
        assert len(own) >= 20
        assert all(joint <= action["one.pos"] < joint + 10.0 for action in own)
    assert len(actions) == 2


@pytest.fixture
def stub(address: str):
    with grpc.insecure_channel(address) as channel:
        yield services_pb2_grpc.AsyncInferenceStub(channel)


def instructions(**changes) -> bytes:
    features = {
        "observation.state": {
            "dtype": "float32",
            "shape": (3,),
            "names": ["one.pos", "two.pos", "gripper.pos"],
        },
        "observation.images.wrist": {"dtype": "image", "shape": (4, 6, 3), "names": []},
    }
    values = {"policy_type": "act", "pretrained_name_or_path": "x", "lerobot_features": features}
    return pickle.dumps(RemotePolicyConfig(**(values | {"actions_per_chunk": 4} | changes)))


def observe(stub, raw: dict) -> None:
    data = pickle.dumps(TimedObservation(timestamp=1.0, timestep=7, observation=raw))
    stub.SendObservations(
        iter([services_pb2.Observation(transfer_state=services_pb2.TRANSFER_END, data=data)])
    )


RAW = {
    "one.pos": 0.5,
    "two.pos": 0.0,
    "gripper.pos": 0.04,
    "wrist": np.zeros((8, 12, 3), np.uint8),
    "task": "",
}


def test_what_is_wrong_is_said_in_the_status_and_the_next_is_answered(stub):
    with pytest.raises(grpc.RpcError, match="send policy instructions first"):
        stub.GetActions(services_pb2.Empty())
    with pytest.raises(grpc.RpcError, match=r"needs the cameras \['wrist'\]"):
        stub.SendPolicyInstructions(
            services_pb2.PolicySetup(data=instructions(lerobot_features={"observation.state": {"names": []}}))
        )
    stub.SendPolicyInstructions(services_pb2.PolicySetup(data=instructions()))
    for raw, words in (
        ({"one.pos": 0.5}, "the observation lacks"),
        (RAW | {"wrist": np.zeros((3, 4, 6), np.uint8)}, "uint8, got"),
        (RAW | {"one.pos": float("nan")}, "NaN"),
    ):
        observe(stub, raw)
        with pytest.raises(grpc.RpcError, match=words):
            stub.GetActions(services_pb2.Empty())
    observe(stub, RAW)
    actions = pickle.loads(stub.GetActions(services_pb2.Empty()).data)
    assert [action.timestep for action in actions] == [7, 8, 9, 10]
    assert [action.get_timestamp() for action in actions] == pytest.approx([1.0 + i / 20 for i in range(4)])


class Runs:
    """A pickle that would run a command."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('ran')",))


@pytest.mark.parametrize("payload", [Runs(), {"a": Runs()}, helpers.FPSTracker(target_fps=1.0)])
def test_a_pickle_of_anything_else_is_not_loaded(stub, payload):
    with pytest.raises(ValueError, match="is not allowed here"):
        unpickled(pickle.dumps(payload), TimedObservation)
    with pytest.raises(grpc.RpcError, match="is not allowed here"):
        stub.SendPolicyInstructions(services_pb2.PolicySetup(data=pickle.dumps(payload)))


def test_arrays_and_numpy_numbers_come_through():
    raw = RAW | {"one.pos": np.float32(0.25)}
    out = unpickled(
        pickle.dumps(TimedObservation(timestamp=0.0, timestep=1, observation=raw)), TimedObservation
    )
    assert out.observation["one.pos"] == np.float32(0.25)
    assert np.array_equal(out.observation["wrist"], RAW["wrist"])
    with pytest.raises(ValueError, match="expected a TimedObservation, got list"):
        unpickled(pickle.dumps([1]), TimedObservation)


def test_beyond_this_machine_it_needs_tls_and_a_wrong_address_says_so(tmp_path):
    with pytest.raises(OpenAddressError):
        LeRobotGateway({"echo": EchoPolicy()}, server="tcp://127.0.0.1:1", address="0.0.0.0:0")
    with pytest.raises(InvalidValueError, match="cannot read certificate and key"):
        LeRobotGateway(
            {"echo": EchoPolicy()},
            server="tcp://127.0.0.1:1",
            address="0.0.0.0:0",
            tls=(tmp_path / "cert.pem", tmp_path / "key.pem"),
        )
