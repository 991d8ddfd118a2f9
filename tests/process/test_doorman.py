"""What strangers and robots may take of a server, over real sockets."""

import logging
import os
import resource
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
import zmq

from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError
from robot_runtime.keys import ServerKeys, make_keys
from robot_runtime.mailbox import Doorbell
from robot_runtime.transport import connection_limiter
from robot_runtime.transport.client import ClientTransport
from robot_runtime.transport.connection import Connection
from robot_runtime.transport.server import ServerTransport

ANY_PORT = "tcp://127.0.0.1:*"
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16 + 32)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER"
MB = 1_000_000
TIMEOUT_S = 20.0


class Listening:
    """A server transport whose owner takes what comes; peers that say "known" are known."""

    def __init__(self, **options) -> None:
        self.known: set[bytes] = set()
        self.taken: list[tuple[bytes, bytes]] = []
        self.transport = ServerTransport(ANY_PORT, is_known=self.known.__contains__, **options)
        self.counts = self.transport.doorman.counts
        self.bell = Doorbell()
        self.port = int(self.transport.address.rpartition(":")[2])

    def close(self) -> None:
        self.transport.close()
        self.bell.close()

    def turn(self) -> None:
        self.transport.wait(5_000_000, self.bell)
        while (arrival := self.transport.receive()) is not None:
            peer, frames = arrival
            self.taken.append((peer, bytes(frames[0])))
            if bytes(frames[0]) == b"known":
                self.known.add(peer)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline_s, (self.counts, len(self.taken))
            self.turn()

    def greeted(self, said: bytes = b"") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S)
        connection.sendall(GREETING + READY)
        answered = b""
        while b"READY" not in answered:  # before that nobody may say more
            answered += (more := connection.recv(1000))
            assert more
        if said:
            connection.sendall(b"\x00" + bytes([len(said)]) + said)
            num_taken = len(self.taken)
            self.until(lambda: len(self.taken) > num_taken)
        return connection


@pytest.fixture
def server() -> Iterator[Listening]:
    with closing(Listening()) as listening:
        yield listening


def is_over(connection: socket.socket) -> bool:
    """Whether the other side has hung up; what it said before is dropped."""
    connection.settimeout(0.001)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def send(server: Listening, connection: socket.socket, data: bytes, times: int) -> None:
    """As often, while the server lives on; it may hang up meanwhile."""
    connection.settimeout(0.2)
    for _ in range(times):
        try:
            connection.sendall(data)
        except TimeoutError:
            server.turn()
        except OSError:
            return


@pytest.mark.parametrize(
    ("what", "data"),
    [("a message that is never finished", b"\x01\x00" * 50_000), ("commands", b"\x04\x01\x00" * 33_333)],
)
def test_a_stranger_that_holds_back_a_megabyte_is_cut(server: Listening, what: str, data: bytes):
    with server.greeted() as rude, server.greeted(b"known") as robot:
        send(server, rude, data, times=40)
        server.until(lambda: is_over(rude))
        assert not is_over(robot)
    assert server.counts["connection cut: more bytes than one may hold back"] == 1


def test_a_robot_may_be_at_a_message_of_30_megabytes_and_not_at_200(server: Listening):
    with server.greeted(b"known") as robot, server.greeted(b"known") as greedy:
        robot.sendall(b"\x02" + (30 * MB).to_bytes(8, "big"))
        for _ in range(29):
            robot.sendall(bytes(MB))
        time.sleep(0.2)
        robot.sendall(bytes(MB))
        num_taken = len(server.taken)
        server.until(lambda: len(server.taken) > num_taken)
        for _ in range(7):
            send(server, greedy, b"\x03" + (30 * MB).to_bytes(8, "big") + bytes(30 * MB), times=1)
        server.until(lambda: is_over(greedy))
        assert not is_over(robot)


def test_who_sends_too_many_messages_is_cut_and_only_who_does(server: Listening):
    with server.greeted() as rude, server.greeted(b"known") as robot, server.greeted(b"known") as flood:
        send(server, rude, b"\x00\x00" * 1000, times=1)
        server.until(lambda: is_over(rude))
        for _ in range(10):
            robot.sendall(b"\x00\x02hi" * 50)
            server.turn()
        server.until(lambda: server.taken.count((server.taken[-1][0], b"hi")) == 500)
        send(server, flood, b"\x00\x00" * 10_000, times=20)
        server.until(lambda: is_over(flood))
        assert not is_over(robot)
    assert server.counts["connection cut: more messages than one may send"] == 2


def test_connections_are_limited_and_robots_keep_theirs(server: Listening, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection_limiter, "MAX_CONNECTIONS", 10)
    with ExitStack() as stack:
        robots = [stack.enter_context(server.greeted(b"known")) for _ in range(5)]
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(30)
        ]
        server.until(lambda: sum(map(is_over, silent)) >= 25)
        assert not any(map(is_over, robots))
        late = stack.enter_context(server.greeted(b"known"))
        assert not is_over(late)


def test_who_stays_a_stranger_is_cut(server: Listening, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection_limiter, "STRANGER_NS", 200_000_000)
    with server.greeted(b"known") as robot, server.greeted(b"what") as stranger:
        server.until(lambda: is_over(stranger))
        assert not is_over(robot)


def test_the_owner_hears_whose_connection_has_ended(server: Listening):
    with server.greeted(b"known"):
        ((peer, _),) = server.taken
        assert server.transport.doorman.departed() == []
    departed: list[bytes] = []
    server.until(lambda: bool(departed.extend(server.transport.doorman.departed()) or departed))
    assert departed == [peer]


def test_a_connection_that_broke_is_heard_of_and_another_one_made(server: Listening):
    with closing(ClientTransport(server.transport.address)) as client, closing(Doorbell()) as bell:

        def said() -> bool:
            client.wait(1_000_000, bell, to_send=True)
            return client.send([b"known"])

        server.until(said)
        server.until(lambda: len(server.taken) == 1)
        assert not client.has_broken()
        server.transport.doorman.end(server.taken[0][0])
        server.until(lambda: client.wait(1_000_000, bell, to_send=False) or client.has_broken())
        server.until(said)
        server.until(lambda: len(server.taken) == 2)


def test_a_server_that_never_finishes_an_answer_is_left():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        closing(ClientTransport(f"tcp://127.0.0.1:{listener.getsockname()[1]}")) as client,
        closing(Doorbell()) as bell,
    ):
        listener.settimeout(TIMEOUT_S)
        rude, _ = listener.accept()
        with rude:
            rude.sendall(GREETING + READY.replace(b"DEALER", b"ROUTER"))
            rude.settimeout(0.05)
            deadline_s = time.monotonic() + TIMEOUT_S
            while not client.has_broken():
                assert time.monotonic() < deadline_s
                with suppress(OSError):
                    rude.sendall(b"\x03" + (MB).to_bytes(8, "big") + bytes(MB))
                client.wait(1_000_000, bell, to_send=False)


def test_a_newcomer_on_the_descriptor_of_one_who_left_is_not_taken_for_the_one_who_left(server: Listening):
    keeper = server.transport.doorman
    keeper.stop()  # its thread is not let run, as on a busy machine
    first = server.greeted(b"known")
    (descriptor,) = keeper._entries
    first.close()
    server.until(lambda: not Path(f"/proc/self/fd/{descriptor}").exists())
    with closing(server.greeted(b"known")):
        assert list(keeper._entries) == [descriptor]
        keeper._take_events()
        (left, _), (came, _) = server.taken
        assert left != came
        assert keeper.departed() == [left]


def test_handshakes_that_fail_are_counted_and_logged_but_not_one_by_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    make_keys(tmp_path / "keys", ["left"])
    make_keys(tmp_path / "others", ["left"])
    caplog.set_level(logging.WARNING)
    with closing(Listening(keys=ServerKeys.load(tmp_path / "keys" / "server"))) as server:
        plain = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        for connection in plain:
            connection.sendall(GREETING + READY)
        server.until(lambda: server.counts["handshake that failed"] >= 20)
        for connection in plain:
            connection.close()
    assert sum("handshake that failed" in line for line in caplog.messages) == 1


def test_a_key_that_nobody_has_is_told_from_where_it_came(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    make_keys(tmp_path, ["left"])
    keys = ServerKeys.load(tmp_path / "server")
    with closing(Listening(keys=keys)) as server, zmq.Context() as context:
        foreign = context.socket(zmq.DEALER)
        foreign.set(zmq.LINGER, 0)
        foreign.curve_publickey, foreign.curve_secretkey = zmq.curve_keypair()
        foreign.curve_serverkey = keys.public
        foreign.connect(server.transport.address)
        server.until(lambda: server.counts["unknown key"] >= 1)
        foreign.close()
    assert "unknown key (from '127.0.0.1')" in caplog.text


def test_a_file_that_somebody_listens_on_is_in_use_and_one_that_a_killed_server_has_left_is_not(
    tmp_path: Path,
):
    address = f"ipc://{tmp_path / 'socket'}"
    with closing(ServerTransport(address)), pytest.raises(InvalidValueError, match="is in use"):
        ServerTransport(address)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "left"))
    ServerTransport(f"ipc://{tmp_path / 'left'}").close()


def test_a_file_that_is_no_socket_stays_what_it_was(tmp_path: Path):
    notes, link = tmp_path / "notes.txt", tmp_path / "link"
    notes.write_text("mine")
    link.symlink_to(notes)
    for path in (notes, link):
        with pytest.raises(InvalidValueError, match="a file of that name, and it is no socket"):
            ServerTransport(f"ipc://{path}")
    assert link.read_text() == "mine"


def test_a_descriptor_that_has_come_to_mean_a_file_is_no_connection_and_none_is_kept():
    read_end, write_end = os.pipe()
    try:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            with pytest.raises(OSError, match="ocket"):
                Connection(read_end)
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        os.close(read_end)
        os.close(write_end)


def test_robots_and_servers_speak_over_ipv6_too():
    try:
        server = ServerTransport("tcp://[::1]:*")
    except InvalidValueError:
        pytest.skip("this machine has no IPv6")
    with closing(server), closing(ClientTransport(server.address)) as client, closing(Doorbell()) as bell:
        end_s = time.monotonic() + 10.0
        while not client.send([b"hello"]):
            assert time.monotonic() < end_s
            client.wait(NS_PER_S // 100, bell, to_send=True)
        server.wait(10 * NS_PER_S, bell)
        arrival = server.receive()
        assert arrival is not None
        assert bytes(arrival[1][0]) == b"hello"


def test_a_file_that_is_the_address_is_for_its_user_alone(tmp_path: Path):
    path = tmp_path / "socket"
    before = os.umask(0)
    try:
        with closing(ServerTransport(f"ipc://{path}")):
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    finally:
        os.umask(before)
    with suppress(FileNotFoundError):
        path.unlink()


@contextmanager
def descriptors_left(num: int) -> Iterator[None]:
    """So many more can be opened here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        highest = max(map(int, os.listdir("/proc/self/fd")))
        while (descriptor := os.dup(0)) < highest:
            stack.callback(os.close, descriptor)
        os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptor + num, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        yield


def test_a_robot_that_took_the_last_descriptor_is_heard_and_held_to_its_limits(server: Listening):
    with descriptors_left(2), server.greeted(b"hello") as robot:  # its own end, and libzmq's of the server
        assert [said for _, said in server.taken] == [b"hello"]
        robot.sendall(b"\x00\x00" * 1000)  # more messages than a stranger may send
        server.until(lambda: server.counts["connection cut: more messages than one may send"] == 1)
        assert not is_over(robot)  # there is no descriptor to cut it by
        resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)[1:] * 2)
        server.until(lambda: is_over(robot))
