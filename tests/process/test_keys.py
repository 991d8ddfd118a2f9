"""Servers that ask for keys, over real sockets."""

import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from toy import ANY_PORT, ToyPolicy, serving, toy_request, toy_schema

from robot_runtime.cli import main
from robot_runtime.errors import InvalidValueError, ServerUnavailableError
from robot_runtime.keys import RobotKeys, ServerKeys, make_keys
from robot_runtime.robot.client import PolicyClient
from robot_runtime.server.server import PolicyServer
from robot_runtime.transport.address import is_local
from robot_runtime.transport.server import ServerTransport
from robot_runtime.wire.events import PartReceived


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("keys") / "keys"
    assert [path.name for path in make_keys(folder, ["left", "right"])] == ["server", "left", "right"]
    return folder


@pytest.fixture(scope="module")
def address(folder: Path):
    with serving(ToyPolicy(), keys=ServerKeys.load(folder / "server")) as server:
        yield server.address


def greet(address: str, keys: RobotKeys | None) -> None:
    with PolicyClient(address, schema=toy_schema(), keys=keys) as client:
        client.wait_until_ready(2.0)


def test_a_robot_whose_key_the_server_has_is_answered(address: str, folder: Path):
    with PolicyClient(address, schema=toy_schema(), keys=RobotKeys.load(folder / "right")) as client:
        client.wait_until_ready(2.0)
        client.events()
        client.submit(toy_request(1))
        parts: list[PartReceived] = []
        while not parts or not parts[-1].part.is_last:
            assert client.wait_for_events(2.0)
            parts += [event for event in client.events() if isinstance(event, PartReceived)]
    assert [part.part.request_id for part in parts] == [1, 1]


def test_a_robot_without_keys_or_with_keys_that_the_server_lacks_is_told_so(
    address: str, folder: Path, tmp_path: Path
):
    with pytest.raises(ServerUnavailableError, match="requires keys, and this robot has none"):
        greet(address, None)
    make_keys(tmp_path / "keys", ["left"])
    with pytest.raises(ServerUnavailableError, match="rejects this robot's keys"):
        greet(address, RobotKeys.load(tmp_path / "keys" / "left"))
    greet(address, RobotKeys.load(folder / "left"))  # the others notice nothing


def test_a_robot_that_takes_another_server_for_its_own_is_not_answered(address: str, folder: Path):
    left, right = RobotKeys.load(folder / "left"), RobotKeys.load(folder / "right")
    impostor = RobotKeys(name="left", public=left.public, secret=left.secret, server=right.public)
    with pytest.raises(ServerUnavailableError, match="own keys are not those that this robot expects"):
        greet(address, impostor)


def test_a_key_lets_in_the_robot_that_it_belongs_to_and_no_other(address: str, folder: Path):
    left = RobotKeys.load(folder / "left")
    assert left.name == "left"
    with pytest.raises(ServerUnavailableError, match="the key of robot 'left', not of 'right'"):
        greet(address, replace(left, name="right"))
    greet(address, left)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_secret_that_others_can_use_is_refused_with_what_to_do(tmp_path: Path, mode: int):
    make_keys(tmp_path, ["one"])
    for load, path in (
        (ServerKeys.load, tmp_path / "server" / "server.key_secret"),
        (RobotKeys.load, tmp_path / "one" / "robot.key_secret"),
    ):
        path.chmod(mode)
        with pytest.raises(InvalidValueError, match=f"chmod 600 {path}"):
            load(path.parent)
        path.chmod(0o600)
        load(path.parent)


@pytest.mark.parametrize("option", ["--token", "--lerobot-tls"])
def test_other_secrets_that_others_can_use_are_refused_too(tmp_path: Path, option: str, capsys):
    secret = tmp_path / "secret"
    secret.write_text("1234")
    secret.chmod(0o644)
    files = [str(secret)] * (2 if option == "--lerobot-tls" else 1)
    assert main(["serve", "--policy", "hold", option, *files]) == 1
    assert f"chmod 600 {secret}" in capsys.readouterr().err


def test_what_is_no_certificate_is_said_before_a_policy_is_loaded(tmp_path: Path, capsys):
    pem = tmp_path / "key.pem"
    pem.write_text("-----BEGIN PRIVATE KEY-----\nnonsense\n-----END PRIVATE KEY-----\n")
    pem.chmod(0o600)
    options = ["--lerobot", "127.0.0.1:0", "--lerobot-tls", str(pem), str(pem)]
    assert main(["serve", "--policy", "nowhere", *options]) == 1
    assert "takes a certificate and its private key, as PEM files" in capsys.readouterr().err


def test_a_peer_that_left_before_its_greeting_was_read_has_nobodys_name(folder: Path):
    with closing(ServerTransport(ANY_PORT, keys=ServerKeys.load(folder / "server"))) as keyed:
        assert keyed.doorman.name_of(b"gone") == ""
    with closing(ServerTransport(ANY_PORT)) as open_to_all:
        assert open_to_all.doorman.name_of(b"gone") is None


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("tcp://127.0.0.1:1", True),
        ("tcp://[::1]:1", True),
        ("tcp://localhost:1", True),
        ("ipc:///tmp/x", True),
        ("tcp://127.evil.example:1", False),
        ("tcp://127.0.0.1.evil.example:1", False),
        ("tcp://0.0.0.0:1", False),
        ("tcp://*:1", False),
        ("127.0.0.1.example:1", False),
    ],
)
def test_only_addresses_of_this_machine_are_local(address: str, expected: bool):
    assert is_local(address) is expected


def test_an_address_beyond_this_machine_needs_keys_or_the_word_that_it_is_open(folder: Path):
    for address in ("tcp://*:*", "tcp://0.0.0.0:*"):
        with pytest.raises(InvalidValueError, match="any client there could use the policy"):
            PolicyServer(ToyPolicy(), address)
        PolicyServer(ToyPolicy(), address, is_open=True).close()
        PolicyServer(ToyPolicy(), address, keys=ServerKeys.load(folder / "server")).close()


def test_secret_keys_are_for_their_owner_alone_and_robots_are_added_without_new_server_keys(tmp_path: Path):
    make_keys(tmp_path, ["one"])
    before = (tmp_path / "server" / "server.key_secret").read_text()
    assert [path.name for path in make_keys(tmp_path, ["two"])] == ["two"]
    assert (tmp_path / "server" / "server.key_secret").read_text() == before
    assert {path.stem for path in (tmp_path / "server" / "allowed").iterdir()} == {"one", "two"}
    for path in tmp_path.rglob("*.key_secret"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(list(tmp_path.rglob("*.key_secret"))) == 3


@pytest.mark.parametrize("name", ["server", "one", "../up", ""])
def test_a_name_that_is_taken_or_no_name_is_refused(tmp_path: Path, name: str):
    make_keys(tmp_path, ["one"])
    with pytest.raises(InvalidValueError, match="a name of letters, digits and underscores"):
        make_keys(tmp_path, ["fresh", name])
    assert not (tmp_path / "fresh").exists()


def test_a_robot_that_is_named_twice_gets_no_folder_and_neither_does_the_server(tmp_path: Path):
    with pytest.raises(InvalidValueError, match="'left' is named 2 times"):
        make_keys(tmp_path / "keys", ["left", "right", "left"])
    assert not (tmp_path / "keys").exists()


def test_keys_that_are_missing_damaged_or_of_the_wrong_machine_say_so(folder: Path, tmp_path: Path):
    with pytest.raises(InvalidValueError, match=r"server\.key_secret is not a key"):
        ServerKeys.load(folder / "left")
    with pytest.raises(InvalidValueError, match="is not a key"):
        RobotKeys.load(tmp_path)
    make_keys(tmp_path, ["one"])
    (tmp_path / "one" / "server.key").write_text("nonsense")
    with pytest.raises(InvalidValueError, match=r"server\.key is not a key"):
        RobotKeys.load(tmp_path / "one")
    (tmp_path / "server" / "allowed" / "one.key").unlink()
    with pytest.raises(InvalidValueError, match="no robot could connect"):
        ServerKeys.load(tmp_path / "server")
