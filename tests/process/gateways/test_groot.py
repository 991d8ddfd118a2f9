"""GR00T's protocol at our server, over a real REQ socket and messages as GR00T's client makes them."""

import contextlib
import io
from collections.abc import Iterator
from threading import Thread

import msgspec
import numpy as np
import pytest
import zmq
from echo import ECHO, SPEC, echo_server
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.errors import InvalidValueError
from robot_runtime.server.gateways.groot import GrootGateway, unpack
from robot_runtime.server.gateways.key_map import KeyMap
from robot_runtime.server.gateways.policy_session import MAX_ASKING

TOKEN = "open sesame"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with (
        echo_server() as server,
        GrootGateway(
            ECHO, server=server, address="127.0.0.1:*", token=TOKEN, names=KeyMap(convention="si")
        ) as gateway,
    ):
        yield gateway.address


def as_npy(array: np.ndarray) -> dict:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return {"__ndarray_class__": True, "as_npy": file.getvalue()}


def shown(joint: float = 0.5, **changes) -> dict:
    video = np.stack([np.zeros((4, 6, 3), np.uint8), np.full((4, 6, 3), 9, np.uint8)])[None]
    observation = {
        "video": {"wrist": as_npy(video)},
        "state": {
            "joint_position": as_npy(np.array([[[9.0, 9.0], [joint, -1.0]]], np.float32)),
            "gripper_position": as_npy(np.array([[[0.0], [0.05]]], np.float32)),
        },
        "language": {"annotation.human.task_description": [["pick it up"]]},
    }
    return observation | changes


class Client:
    """A REQ socket that serialises as theirs does."""

    def __init__(self, address: str, token: str | None = TOKEN) -> None:
        self.context, self.token = zmq.Context(), token
        self.socket = self.context.socket(zmq.REQ)
        self.socket.set(zmq.LINGER, 0)
        self.socket.set(zmq.RCVTIMEO, 10_000)
        self.socket.connect(f"tcp://{address}")

    def send(self, data: bytes):
        self.socket.send(data)
        return self._loaded(msgspec.msgpack.decode(self.socket.recv()))

    def call(self, endpoint: str, data: dict | None = None):
        request = {"endpoint": endpoint} | ({} if data is None else {"data": data})
        return self.send(msgspec.msgpack.encode(request | ({"api_token": self.token} if self.token else {})))

    def act(self, observation: dict):
        return self.call("get_action", {"observation": observation, "options": None})

    def close(self) -> None:
        self.socket.close()
        self.context.term()

    def _loaded(self, value):
        if isinstance(value, list):
            return [self._loaded(item) for item in value]
        if isinstance(value, dict) and "__ndarray_class__" in value:
            return np.load(io.BytesIO(value["as_npy"]), allow_pickle=False)
        return {k: self._loaded(v) for k, v in value.items()} if isinstance(value, dict) else value


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    client = Client(address)
    yield client
    client.close()


def test_an_observation_is_answered_with_actions_by_field_of_its_last_frame(client: Client):
    for joint in (0.5, 0.75):
        action, info = client.act(shown(joint))
        assert action["joint_position"].shape == (1, SPEC.horizon, 2)
        np.testing.assert_allclose(action["joint_position"][0], np.tile([joint, 9.0], (SPEC.horizon, 1)))
        np.testing.assert_allclose(action["gripper_position"], np.full((1, SPEC.horizon, 1), 0.05))
        assert info["infer_ms"] >= 0.0


def test_the_other_endpoints_answer_and_nobody_can_end_the_server(client: Client):
    assert client.call("ping")["status"] == "ok"
    assert client.call("reset", {"options": None}) == {}
    modalities = {k: v["as_json"] for k, v in client.call("get_modality_config").items()}
    assert modalities["video"]["modality_keys"] == ["wrist"]
    assert modalities["action"] == {
        "delta_indices": list(range(SPEC.horizon)),
        "modality_keys": ["joint_position", "gripper_position"],
    }
    assert "there is no endpoint 'kill'" in client.call("kill")["error"]
    assert client.call("ping")["status"] == "ok"


def test_clients_get_each_their_own_actions(address: str):
    def ask(joint: float) -> None:
        client = Client(address)
        for _ in range(20):
            action, _ = client.act(shown(joint))
            answers[joint].append(float(action["joint_position"][0, 0, 0]))
        client.close()

    answers: dict[float, list[float]] = {0.25: [], 0.5: [], 0.75: []}
    threads = [Thread(target=ask, args=(joint,)) for joint in answers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    assert all(answers[joint] == [joint] * 20 for joint in answers)


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        (shown(video={}), "no picture 'video/wrist'"),
        (shown(video={"wrist": as_npy(np.zeros((1, 1, 3, 4, 6), np.uint8))}), "is (h, w, 3) uint8"),
        (shown(video={"wrist": as_npy(np.zeros((2, 1, 4, 6, 3), np.uint8))}), "a batch of one"),
        (shown(video={"wrist": as_npy(np.zeros((1, 1, 8, 6, 3), np.uint8))}), "camera sizes"),
        (shown(state=3), "'state' of an observation is a dict, got int"),
        (shown(float("nan")), "NaN"),
        (
            shown(language={"a": [["pick it up"]], "b": [["lay it down"]]}),
            "has the texts a, b: declare the task",
        ),
        (shown(language={"task": [["pick it up"], ["lay it down"]]}), "got a list of 2"),
        (shown(language={"task": [["x" * 5000]]}), "a text of at most 4096 characters, got 5000"),
    ],
)
def test_what_does_not_fit_is_said_and_the_next_is_answered(client: Client, observation: dict, words: str):
    assert words in client.act(observation)["error"]
    assert len(client.act(shown())) == 2


def flat(joint: float, *, has_batch: bool = False) -> dict:
    """As N1.5's `ExternalRobotInferenceClient` is given it, or in a batch of one."""
    arrays = {
        "video.wrist": np.full((1, 4, 6, 3), 9, np.uint8),
        "state.joint_position": np.array([[joint, -1.0]]),
        "state.gripper_position": np.array([[0.05]]),
    }
    shaped = {key: as_npy(x[None] if has_batch else x) for key, x in arrays.items()}
    return shaped | {"annotation.human.action.task_description": ["pick it up"]}


@pytest.mark.parametrize("has_batch", [False, True])
def test_a_client_of_n1_5_gets_flat_actions_for_its_flat_observation(client: Client, has_batch: bool):
    action = client.call("get_action", flat(0.5, has_batch=has_batch))
    rows = np.tile([0.5, 9.0], (SPEC.horizon, 1))
    expected = {"action.joint_position": rows, "action.gripper_position": np.full((SPEC.horizon, 1), 0.05)}
    assert action.keys() == expected.keys()
    for name, theirs in action.items():
        np.testing.assert_allclose(theirs, expected[name][None] if has_batch else expected[name])


def test_flat_keys_in_an_observation_are_answered_as_n1_6s_simulators_ask(client: Client):
    action, info = client.act(flat(0.5, has_batch=True))
    assert action["action.joint_position"].shape == (1, SPEC.horizon, 2)
    assert info["infer_ms"] >= 0.0


@pytest.mark.parametrize(
    "data", [{"video": {}, "state": {}}, {"wrist": 3}, {"video.wrist": 3, "hand": 2}, {"observation": 3}]
)
def test_a_message_of_no_known_version_is_refused_with_those_that_there_are(client: Client, data: dict):
    error = client.call("get_action", data)["error"]
    assert "as GR00T N1.6 and N1.7 send it, or with the flat keys of N1.5, video.NAME" in error


@pytest.mark.parametrize("kind", ["a REQ that counts", "a DEALER without an empty frame"])
def test_whoever_asks_in_another_envelope_gets_the_answer_in_it(address: str, kind: str):
    context = zmq.Context()
    socket = context.socket(zmq.REQ if "REQ" in kind else zmq.DEALER)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.RCVTIMEO, 10_000)
    if "REQ" in kind:
        socket.set(zmq.REQ_CORRELATE, 1)
    socket.connect(f"tcp://{address}")
    socket.send(msgspec.msgpack.encode({"endpoint": "ping", "api_token": TOKEN}))
    assert msgspec.msgpack.decode(socket.recv())["status"] == "ok"
    socket.close()
    context.term()


def test_a_request_without_data_is_told_what_is_missing(client: Client):
    assert 'get_action needs data with an "observation"' in client.call("get_action")["error"]


def test_bytes_that_are_no_request_and_a_wrong_token_are_refused(address: str, client: Client):
    assert "not a message of GR00T's" in client.send(b"\xc1")["error"]
    for token in (None, "wrong"):
        stranger = Client(address, token)
        assert stranger.call("ping") == {"error": "this server asks for an api_token"}
        stranger.close()


def npy(header: bytes, data: bytes = b"") -> dict:
    as_npy = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data
    return {"__ndarray_class__": True, "as_npy": as_npy}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }\n", "to the 0 bytes"),
        (b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n", "dtype, order and shape"),
        (b"{'descr': '|O8', 'fortran_order': False, 'shape': (1,), }\n", "do not travel here"),
        (b"{'descr': '<f8', 'fortran_order': False, 'shape': " + b"(" * 4000, "dtype, order and shape"),
        (b"(" * 400, "dtype, order and shape"),
    ],
    ids=["more than it has", "objects", "objects of a size", "long", "deep"],
)
def test_an_npy_header_is_matched_and_never_evaluated(header: bytes, words: str):
    with pytest.raises(ValueError, match=words):
        unpack(msgspec.msgpack.encode({"a": npy(header)}))


def test_messages_that_nobody_waits_for_are_not_kept_and_others_are_answered(address: str, client: Client):
    """A DEALER that never reads its answers, 200 observations of 1 MB: one of them is worked on at a time."""
    context = zmq.Context()
    flood = context.socket(zmq.DEALER)
    flood.set(zmq.LINGER, 0)
    flood.connect(f"tcp://{address}")
    request = {"endpoint": "get_action", "api_token": TOKEN, "data": {"observation": {"x": bytes(2**20)}}}
    for _ in range(200):
        with contextlib.suppress(zmq.Again):
            flood.send_multipart([b"", msgspec.msgpack.encode(request)], flags=zmq.NOBLOCK)
    assert len(client.act(shown())) == 2
    flood.close()
    context.term()


def test_a_client_that_comes_anew_takes_no_place(address: str):
    for _ in range(2 * MAX_ASKING):
        client = Client(address)
        assert len(client.act(shown())) == 2
        client.close()


def test_without_a_convention_a_gripper_is_refused():
    with pytest.raises(InvalidValueError, match=r"nothing says what an open gripper is: .*droid"):
        GrootGateway(ECHO, server="tcp://127.0.0.1:1", address="127.0.0.1:*")


@given(st.binary(max_size=200))
def test_no_bytes_break_the_decoder(data: bytes):
    for message in (data, msgspec.msgpack.encode({"a": {"__ndarray_class__": True, "as_npy": data}})):
        with contextlib.suppress(ValueError):
            assert isinstance(unpack(message), dict)


def test_an_address_beyond_this_machine_needs_a_token_and_a_wrong_one_says_so():
    with pytest.raises(InvalidValueError):
        GrootGateway(ECHO, server="tcp://127.0.0.1:1", address="0.0.0.0:*")
    with pytest.raises(InvalidValueError, match="expected HOST:PORT"):
        GrootGateway(ECHO, server="tcp://127.0.0.1:1", address="127.0.0.1:no", names=KeyMap(convention="si"))
