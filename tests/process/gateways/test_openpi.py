"""openpi's protocol, both ways: their stock client at our server, our robot side at an openpi server."""

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Semaphore, Thread

import aloha
import numpy as np
import pytest
from echo import ECHO, SCHEMA, SPEC, StepPolicy, echo_server
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection, serve

from policies.load import load_policy
from policies.openpi import OpenpiPolicy
from robot_runtime.core.method.sampler_parts import ClampedPrefix, ConstantSchedule
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.errors import CheckpointError, InvalidValueError, PolicyError, ServerUnavailableError
from robot_runtime.server.gateways.key_map import Entry, KeyMap
from robot_runtime.server.gateways.openpi import OpenpiGateway, pack, unpack
from robot_runtime.server.gateways.policy_session import MAX_ASKING

OPEN = 0.08
JOINTS, PICTURE = "observation/joint_position", "observation/wrist_image_left"
DROID = KeyMap(
    convention="droid",
    stroke_m=OPEN,
    q=Entry(key=JOINTS),
    gripper_width=Entry(key="observation/gripper_position"),
    cameras={"wrist": PICTURE},
    task="prompt",
)
TOKEN = "open sesame"
gateways: dict[str, OpenpiGateway] = {}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    policies = {"echo": ECHO}
    with (
        echo_server() as server,
        OpenpiGateway(policies, server=server, address="127.0.0.1:0", names=DROID, token=TOKEN) as gateway,
    ):
        gateways[f"ws://{gateway.address}"] = gateway
        yield f"ws://{gateway.address}"


def shown(**changes) -> dict:
    return {
        JOINTS: np.array([0.5, -1.0], np.float32),
        "observation/gripper_position": np.array([0.25], np.float32),
        PICTURE: np.full((4, 6, 3), 9, np.uint8),
        "prompt": "pick it up",
    } | changes


def ask(url: str, message: bytes | str) -> dict | str:
    with connect(url, additional_headers={"Authorization": f"Api-Key {TOKEN}"}) as connection:
        unpack(connection.recv())
        connection.send(message)
        answer = connection.recv()
    return answer if isinstance(answer, str) else unpack(answer)


def test_stock_openpi_client_talks_to_our_server_unchanged(url: str, stock_python: Path, tmp_path: Path):
    np.savez(tmp_path / "shown.npz", **shown())
    script = Path(__file__).with_name("stock_openpi.py")
    run = [str(stock_python), str(script), url, TOKEN, str(tmp_path / "shown.npz")]
    said = json.loads(subprocess.run(run, check=True, capture_output=True, text=True, cwd=tmp_path).stdout)
    assert said["metadata"]["action_horizon"] == SPEC.horizon
    expected = np.tile([0.5, 9.0, 0.25], (SPEC.horizon, 1))  # the gripper as a share of its way, as it came
    for answer in said["answers"]:
        np.testing.assert_allclose(answer, expected, atol=1e-6)
    np.testing.assert_allclose(said["rows"], expected, atol=1e-6)
    assert "no 'observation/joint_position'; it has prompt" in said["error"]


def test_the_stock_client_sends_an_alohas_fourteen_numbers_in_the_order_of_the_parts(
    stock_python: Path, tmp_path: Path
):
    shown = {"state": aloha.STATE, "images/cam_high": aloha.PICTURE.transpose(2, 0, 1), "prompt": "fold it"}
    np.savez(tmp_path / "shown.npz", **shown)
    script, policies = Path(__file__).with_name("stock_openpi.py"), {"echo": aloha.SERVED}
    with (
        echo_server(policy=aloha.EchoPolicy()) as server,
        OpenpiGateway(policies, server=server, address="127.0.0.1:0", names=aloha.ALOHA) as gateway,
    ):
        run = [str(stock_python), str(script), f"ws://{gateway.address}", "", str(tmp_path / "shown.npz")]
        done = subprocess.run(run, check=True, capture_output=True, text=True, cwd=tmp_path)
    said = json.loads(done.stdout)
    assert said["metadata"]["action_dim"] == 14
    np.testing.assert_allclose(said["answers"][0], aloha.EXPECTED, atol=1e-6)
    assert "no 'state'" in said["error"]


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            pack(shown(**{PICTURE: np.zeros((3, 4, 6), np.uint8)})),
            "is (h, w, 3) uint8",
        ),
        (
            pack(shown(**{PICTURE: np.full((4, 6, 3), np.nan)})),
            "uint8, got (4, 6, 3) float64",
        ),
        (pack(shown(**{PICTURE: np.zeros((8, 6, 3), np.uint8)})), "camera sizes"),
        (
            pack(shown(**{JOINTS: np.zeros(3)})),
            "arm: the observation has 3 joints, the policy needs 2 joints",
        ),
        (pack(shown(**{JOINTS: np.array([np.nan, 0.0])})), "NaN"),
        (b"\xc1", "not a message of openpi's"),
        (b"\x01", "a message of openpi's is a dict"),
        ("hello", "an observation is a binary message"),
    ],
)
def test_an_observation_that_does_not_fit_is_refused_in_words_and_the_next_is_answered(
    url: str, message: bytes | str, words: str
):
    answer = ask(url, message)
    assert isinstance(answer, str)
    assert words in answer
    assert "Traceback" not in answer
    assert ask(url, pack(shown()))["actions"].shape == (SPEC.horizon, SPEC.dim)


@pytest.mark.parametrize("api_key", [None, "wrong", TOKEN + "x"])
def test_a_client_without_the_token_is_turned_away(url: str, api_key: str | None):
    headers = None if api_key is None else {"Authorization": f"Api-Key {api_key}"}
    with pytest.raises(InvalidStatus, match="401"), connect(url, additional_headers=headers):
        pass


def test_a_policy_that_is_not_there_is_not_found(url: str):
    headers = {"Authorization": f"Api-Key {TOKEN}"}
    with connect(f"{url}/echo", additional_headers=headers) as connection:
        assert unpack(connection.recv())["policy"] == "echo"
    with pytest.raises(InvalidStatus, match="404"), connect(f"{url}/other", additional_headers=headers):
        pass


@pytest.mark.parametrize("path", ["act%20pretrained_model", "act%20pretrained_model/?robot=7"])
def test_a_policy_whose_name_has_a_space_is_found_as_clients_write_it(path: str):
    """LeRobot calls every folder of a checkpoint pretrained_model, and we a policy after type and folder."""
    policies = {"echo": ECHO, "act pretrained_model": replace(ECHO, name="act pretrained_model")}
    names = KeyMap(convention="si")
    with (
        OpenpiGateway(policies, server="tcp://127.0.0.1:1", address="127.0.0.1:0", names=names) as gateway,
        connect(f"ws://{gateway.address}/{path}") as client,
    ):
        assert unpack(client.recv())["policy"] == "act pretrained_model"


def test_connections_that_never_speak_keep_nobody_out(url: str):
    host, port = url.removeprefix("ws://").split(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(100)]
    try:
        assert ask(url, pack(shown()))["actions"].shape == (SPEC.horizon, SPEC.dim)
    finally:
        for connection in silent:
            connection.close()


def test_many_at_once_are_answered_or_told_that_there_is_no_place_and_the_next_is_answered(url: str):
    headers = {"Authorization": f"Api-Key {TOKEN}"}
    said: list[str] = []

    def come() -> None:
        try:
            with connect(url, additional_headers=headers, open_timeout=20.0) as connection:
                connection.recv()
                connection.send(pack(shown()))
                said.append("answered" if isinstance(connection.recv(), bytes) else "an error")
                leave.wait(20.0)
        except ConnectionClosed as closed:
            said.append(closed.rcvd.reason if closed.rcvd else "closed")
        except (OSError, InvalidHandshake):
            said.append("not let in")

    leave = Event()
    threads = [Thread(target=come) for _ in range(100)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 20.0
    while len(said) < len(threads) and time.monotonic() < deadline:
        time.sleep(0.02)
    leave.set()
    for thread in threads:
        thread.join()
    assert 0 < said.count("answered") <= MAX_ASKING  # some may not have greeted in time for a place
    assert said.count("an error") == 0
    assert said.count(f"this server has {MAX_ASKING} clients already") > 0
    deadline = time.monotonic() + 10.0
    while True:  # the places are free as soon as the library has seen them go
        with contextlib.suppress(ConnectionClosed):
            assert ask(url, pack(shown()))["actions"].shape == (SPEC.horizon, SPEC.dim)
            return
        assert time.monotonic() < deadline


@pytest.mark.parametrize(
    "message",
    [{f"k{i}": 1 for i in range(30_000)}, {JOINTS: [0.5] * 30_000}, {"a": [[[]] * 10_000] * 3}],
    ids=["keys", "numbers", "lists"],
)
def test_a_message_of_too_many_values_is_refused_before_anything_is_made_of_it(message: dict):
    with pytest.raises(ValueError, match="more than 20000 values"):
        unpack(pack(message))


def test_nobody_is_asked_for_signs_of_life(url: str):
    """A simulator that loads for minutes answers no pings."""
    headers = {"Authorization": f"Api-Key {TOKEN}"}
    with connect(url, additional_headers=headers) as connection:
        connection.recv()
        server_side = next(iter(gateways[url]._heard_s))
        assert server_side.ping_interval is None


def test_rows_that_count_from_what_is_seen_are_sent_as_positions():
    policy, names = StepPolicy(), KeyMap(convention="si")
    with (
        echo_server(policy=policy) as server,
        OpenpiGateway({"steps": policy.info}, server=server, address="127.0.0.1:0", names=names) as gateway,
        connect(f"ws://{gateway.address}") as client,
    ):
        client.recv()
        seen = {"observation/joint_position": np.array([1.0, 2.0]), "observation/gripper_position": 0.04}
        client.send(pack(seen))
        rows = unpack(client.recv())["actions"]
    np.testing.assert_allclose(rows, [[1.01, 1.99, 0.05], [1.02, 1.98, 0.05], [1.03, 1.97, 0.05]])


def test_an_address_beyond_this_machine_needs_a_token():
    with pytest.raises(InvalidValueError):
        OpenpiGateway({"echo": ECHO}, server="tcp://127.0.0.1:1", address="0.0.0.0:0")
    with pytest.raises(InvalidValueError, match="expected HOST:PORT"):
        OpenpiGateway({"echo": ECHO}, server="tcp://127.0.0.1:1", address="127.0.0.1:no", names=DROID)


def test_a_gripper_of_which_nothing_says_what_is_open_is_refused_before_a_client_comes():
    with pytest.raises(InvalidValueError, match="of policy 'echo' nothing says what an open gripper is"):
        OpenpiGateway({"echo": ECHO}, server="tcp://127.0.0.1:1", address="127.0.0.1:0")
    scaled = KeyMap(gripper_width=Entry(key="observation/gripper_position", scale=-0.085, offset=0.085))
    scaled.over(KeyMap.of(ECHO.schema)).refuse_undeclared(ECHO.schema, ECHO.action_spec, policy="echo")


def observation(q: float = 0.5) -> Observation:
    state = RobotState(t_ns=0, q=np.array([q, -1.0]), dq=np.zeros(2), gripper_width=0.06)
    images = {"wrist": Image(t_ns=0, pixels=np.full((4, 6, 3), 9, np.uint8))}
    return Observation(state=state, images=images, task="pick it up")


def test_our_robot_side_uses_a_policy_of_an_openpi_server(url: str, tmp_path: Path):
    import msgspec

    described = {
        "url": url,
        "api_key": TOKEN,
        "schema": SCHEMA.to_dict(),
        "action_spec": SPEC.to_dict(),
        "names": msgspec.to_builtins(DROID),
    }
    (tmp_path / "openpi.json").write_text(json.dumps(described))
    policy = load_policy(tmp_path)
    for q in (0.5, 0.7):
        (rows,) = policy.infer(ChunkRequest(observation=observation(q), sampler=ConstantSchedule(), seed=0))
        np.testing.assert_allclose(rows, np.tile([q, 9.0, 0.06], (SPEC.horizon, 1)), atol=1e-6)
    with pytest.raises(InvalidValueError, match="takes no committed rows"):
        policy.infer(ChunkRequest(observation=observation(), sampler=ClampedPrefix(), seed=0))


def test_an_openpi_server_that_is_not_there_or_not_described_says_so(tmp_path: Path):
    with pytest.raises(ServerUnavailableError, match="no openpi server answers at"):
        OpenpiPolicy("ws://127.0.0.1:1", schema=SCHEMA, action_spec=SPEC)
    (tmp_path / "openpi.json").write_text('{"url": "ws://127.0.0.1:1"}')
    with pytest.raises(CheckpointError, match="does not describe an openpi server's policy"):
        load_policy(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"url": "ws://gpu.example:8000"},
            "would ask gpu.example, another machine; to allow this, add --policy-host",
        ),
        ({"url": "ws://169.254.169.254/latest"}, "another machine"),
        ({"url": "ws://127.0.0.1.example"}, "another machine"),
        ({"url": "http://127.0.0.1:8000"}, "url is ws://HOST:PORT/NAME"),
        ({"url": "file:///etc/passwd"}, "url is ws://HOST:PORT/NAME"),
        ({"url": "ws://127.0.0.1:99999"}, "[Pp]ort"),
        ({"url": "ws://me:secret@127.0.0.1:8000"}, "url is ws://HOST:PORT/NAME"),
        ({"url": "ws://127.0.0.1:8000/a?b=c"}, "url is ws://HOST:PORT/NAME"),
        ({"url": 7}, "url is ws://HOST:PORT/NAME"),
        ({"url": "ws://127.0.0.1:1", "api_key": "a\r\nHost: b"}, "an api_key is"),
        ({"url": "ws://127.0.0.1:1", "names": {"q": {"key": 1}}}, "Expected `str`"),
        ({"url": "ws://127.0.0.1:1", "tasks": [1]}, "tasks is a list of texts"),
        ({"url": "ws://127.0.0.1:1", "names": {}}, "nothing says what an open gripper is"),
        ({"url": "ws://127.0.0.1:1", "name": {}}, "there is no 'name', but url, "),
    ],
)
def test_a_folder_does_not_choose_whom_this_machine_asks(tmp_path: Path, changes: dict, words: str):
    described = {"schema": SCHEMA.to_dict(), "action_spec": SPEC.to_dict(), "names": {"convention": "si"}}
    described |= changes
    (tmp_path / "openpi.json").write_text(json.dumps(described))
    with pytest.raises(CheckpointError, match=words):
        load_policy(tmp_path)


def test_a_host_that_the_user_names_may_be_asked(tmp_path: Path):
    described = {"url": "ws://gpu.invalid", "schema": SCHEMA.to_dict(), "action_spec": SPEC.to_dict()}
    described["names"] = {"convention": "si"}
    (tmp_path / "openpi.json").write_text(json.dumps(described))
    with pytest.raises(ServerUnavailableError, match="no openpi server answers at ws://gpu"):
        load_policy(tmp_path, hosts=("gpu.invalid",))


@contextlib.contextmanager
def openpi_server(talk: Callable[[ServerConnection], None]) -> Iterator[str]:
    """A server that greets as openpi's does and then talks like that."""

    def greeting_first(connection: ServerConnection) -> None:
        talking.append(connection)
        connection.send(b"\x80")
        with contextlib.suppress(ConnectionClosed):
            talk(connection)

    talking: list[ServerConnection] = []

    with serve(greeting_first, "127.0.0.1", 0) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join()
        for connection in talking:
            connection.close_socket()


def test_an_answer_without_end_is_cut(monkeypatch):
    def flood(connection: ServerConnection) -> None:
        connection.recv()
        connection.send(bytes(1000))

    monkeypatch.setattr("policies.openpi.MAX_ANSWER", 500)
    with openpi_server(flood) as url:
        policy = OpenpiPolicy(url, schema=SCHEMA, action_spec=SPEC, names=DROID)
        with pytest.raises(PolicyError, match="has more than 500 bytes"):
            policy.infer(ChunkRequest(observation=observation(), sampler=ConstantSchedule(), seed=0))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            "Traceback (most recent call last):\n  File x\nKeyError: 'observation/image'\n",
            "failed: KeyError: 'obs",
        ),
        (pack({"actions": np.ones((2, 3))}), "gave 2 rows, expected 12"),
        (pack({"actions": np.ones(3)}), r"got \(3,\)"),
        (pack({"actions": [["a"] * 3] * 12}), "answer is invalid: could not convert"),
        (pack({"action": np.ones((12, 3))}), "'actions', got action"),
        (b"\xc1", "not a message of openpi's"),
        (None, "gives no answer"),
    ],
)
def test_what_an_openpi_server_does_wrong_is_said_of_the_policy_and_not_of_the_robot(answer, words: str):
    def answer_so(connection: ServerConnection) -> None:
        connection.recv()
        if answer is not None:
            connection.send(answer)

    with openpi_server(answer_so) as url:
        policy = OpenpiPolicy(url, schema=SCHEMA, action_spec=SPEC, names=DROID)
        with pytest.raises(PolicyError, match=words):
            policy.infer(ChunkRequest(observation=observation(), sampler=ConstantSchedule(), seed=0))


def test_a_folder_that_does_not_say_what_is_open_is_refused_before_anybody_is_asked(tmp_path: Path):
    described = {"url": "ws://127.0.0.1:1", "schema": SCHEMA.to_dict(), "action_spec": SPEC.to_dict()}
    (tmp_path / "openpi.json").write_text(json.dumps(described))
    with pytest.raises(CheckpointError, match="nothing says what an open gripper is"):
        load_policy(tmp_path)


def test_an_answer_too_many_is_not_taken_for_that_to_the_next_question():
    def answer_twice(connection: ServerConnection) -> None:
        for message in connection:
            q = float(unpack(message)[JOINTS][0])
            for number in (q, -1.0):
                connection.send(pack({"actions": np.full((SPEC.horizon, SPEC.dim), number)}))
            sent.release()

    sent = Semaphore(0)
    with openpi_server(answer_twice) as url:
        policy = OpenpiPolicy(url, schema=SCHEMA, action_spec=SPEC, names=DROID)
        for q in (0.5, 0.25, 0.75):
            (rows,) = policy.infer(
                ChunkRequest(observation=observation(q), sampler=ConstantSchedule(), seed=0)
            )
            assert rows[0, 0] == q
            assert sent.acquire(timeout=5.0)
            assert policy._connection.ping().wait(5.0)  # comes back behind what was sent before


def test_what_is_where_in_an_observation_is_read_from_a_file_and_faults_in_it_are_named(tmp_path: Path):
    path = tmp_path / "names.json"
    path.write_text('{"q": {"key": "state", "stop": 7}, "task": "instruction"}')
    assert KeyMap.load(path) == KeyMap(q=Entry(key="state", stop=7), task="instruction")
    for text in (
        "{",
        '{"q": {"key": "state", "colour": 1}}',
        '{"q": {"start": 1}}',
        '{"q": {"key": "state", "scale": 0}}',
        '{"action_scale": [1, 0]}',
        '{"convention": "mine"}',
        '{"convention": "droid"}',
        '{"convention": "droid", "stroke_m": 8}',
        '{"joint_unit": "percent"}',
    ):
        path.write_text(text)
        with pytest.raises(InvalidValueError, match="does not say what is where"):
            KeyMap.load(path)
    path.write_text('{"q": {"key": "state", "colour": 1}}')
    with pytest.raises(
        InvalidValueError, match=r"`colour` - at `\$.q`; there are key, names, start, stop, scale"
    ):
        KeyMap.load(path)
    path.write_text('{"conventoin": "si"}')
    with pytest.raises(
        InvalidValueError, match=r"`conventoin`; there are convention, stroke_m, joint_unit, "
    ):
        KeyMap.load(path)


def test_entries_are_found_in_nested_dicts_and_cut_to_their_numbers():
    names = KeyMap(
        q=Entry(key="state", stop=2),
        gripper_width=Entry(key="state", start=2, stop=3),
        convention="si",
        cameras={"wrist": "images/w"},
    )
    sent = {"state": np.array([0.1, 0.2, 0.03]), "images": {"w": np.zeros((4, 6, 3), np.uint8)}}
    seen = names.observation(sent, now_ns=5)
    assert seen.state.q.tolist() == [0.1, 0.2]
    assert seen.state.gripper_width == 0.03
    assert (seen.t_obs_ns, seen.images["wrist"].pixels.shape) == (5, (4, 6, 3))


@given(q=st.lists(st.floats(-3, 3, width=32), min_size=2, max_size=2), width=st.floats(0, 0.0625, width=32))
def test_an_observation_comes_back_as_it_went(q: list[float], width: float):
    state = RobotState(t_ns=0, q=np.array(q), dq=np.zeros(2), gripper_width=width)
    images = {"wrist": Image(t_ns=0, pixels=np.zeros((4, 6, 3), np.uint8))}
    sent = unpack(pack(DROID.sent(Observation(state=state, images=images, task="x"))))
    back = DROID.observation(sent, now_ns=0)
    np.testing.assert_allclose(back.state.q, q, atol=1e-6)
    assert abs(back.state.gripper_width - width) < 1e-6
    assert back.task == "x"


@given(st.binary(max_size=200))
def test_no_bytes_break_the_decoder(data: bytes):
    with contextlib.suppress(ValueError):
        assert isinstance(unpack(data), dict)
