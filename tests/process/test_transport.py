"""Both ends of the wire over real sockets."""

import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from threading import Thread

import numpy as np
import pytest

from robot_runtime.errors import InvalidValueError
from robot_runtime.mailbox import Doorbell
from robot_runtime.transport.client import ClientTransport
from robot_runtime.transport.server import ServerTransport
from robot_runtime.transport.sockets import HIGH_WATER_MARK

ANY_PORT = "tcp://127.0.0.1:*"
TURN_NS, MAX_TURNS = 20_000_000, 1000
TIMEOUT_S = 20.0
"""Far more than anything here takes."""
NEVER_LOST = HIGH_WATER_MARK // 2
"""Messages that a peer may have waiting: libzmq learns what was read only after half of that mark, and
counts as unread until then what is not."""


@pytest.fixture
def doorbells() -> Iterator[tuple[Doorbell, Doorbell]]:
    ours, theirs = Doorbell(), Doorbell()
    yield ours, theirs
    ours.close()
    theirs.close()


def turns() -> Iterator[None]:
    """Fails the test if the loop over them does not end."""
    yield from [None] * MAX_TURNS
    raise AssertionError(f"not over after {MAX_TURNS} turns")


def send(client: ClientTransport, doorbell: Doorbell, frames: list[bytes]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not client.send(frames):
        assert time.monotonic() < deadline_s, client.trouble()
        client.wait(TURN_NS, doorbell, to_send=True)


def answered(client: ClientTransport, doorbell: Doorbell) -> list[bytes]:
    for _ in turns():
        if (message := client.receive()) is not None:
            break
        client.wait(TURN_NS, doorbell, to_send=False)
    return [bytes(frame) for frame in message]


def echo(server: ServerTransport, doorbell: Doorbell, is_over: Callable[[], bool]) -> None:
    while not is_over():
        server.wait(None, doorbell)
        while (arrival := server.receive()) is not None:
            server.send(*arrival)


@pytest.fixture
def start_echo() -> Iterator[Callable[[ServerTransport], str]]:
    """Let a server say everything back, in a thread of its own; its address."""
    ends: list[Callable[[], None]] = []

    def start(server: ServerTransport) -> str:
        bell, over = Doorbell(), []
        thread = Thread(target=echo, args=(server, bell, lambda: bool(over)))
        thread.start()

        def end() -> None:
            over.append(True)
            bell.ring()
            thread.join()
            server.close()
            bell.close()

        ends.append(end)
        return server.address

    yield start
    for end in ends:
        end()


@pytest.mark.parametrize("address", ["tcp://*:5757", "tcp://127.0.0.1:*", "tcp://127.0.0.1:99999", "udp://x"])
def test_an_address_that_nobody_can_connect_to_is_refused_at_once(address: str):
    with pytest.raises(InvalidValueError, match=r"expected e\.g\. tcp://"):
        ClientTransport(address)


def test_messages_of_all_sizes_go_there_and_back(start_echo, doorbells):
    address = start_echo(ServerTransport(ANY_PORT))
    with closing(ClientTransport(address)) as client:
        rng = np.random.default_rng(0)
        for i in range(60):
            sizes = rng.choice([0, 1, 255, 256, 5000, 16_384, 150_528, 921_600], size=rng.integers(1, 5))
            frames = [bytes([i]), *(rng.bytes(size) for size in sizes)]
            send(client, doorbells[0], frames)
            assert answered(client, doorbells[0]) == frames


def test_many_messages_under_way_come_back_in_order(start_echo, doorbells):
    address = start_echo(ServerTransport(ANY_PORT))
    with closing(ClientTransport(address)) as client:
        messages = [[b"%d" % i, bytes(i * 997)] for i in range(100)]
        received: list[list[bytes]] = []
        for num_sent, frames in enumerate(messages):
            for _ in turns():
                has_room = num_sent - len(received) < NEVER_LOST
                if has_room and client.send(frames):
                    break
                client.wait(TURN_NS, doorbells[0], to_send=has_room)
                while (message := client.receive()) is not None:
                    received.append([bytes(frame) for frame in message])
        while len(received) < len(messages):
            received.append(answered(client, doorbells[0]))
    assert received == messages


def test_who_has_messages_to_take_can_send_all_the_same(start_echo, doorbells):
    address = start_echo(ServerTransport(ANY_PORT))
    with closing(ClientTransport(address)) as client:
        send(client, doorbells[0], [b"first"])
        client.wait(None, doorbells[0], to_send=False)
        for size in (8_000_000, 1):
            send(client, doorbells[0], [bytes(size)])
        for frames in ([b"first"], [bytes(8_000_000)], [b"\0"]):
            assert answered(client, doorbells[0]) == frames


def test_what_has_been_read_but_not_been_taken_is_not_waited_for(start_echo, doorbells):
    address = start_echo(ServerTransport(ANY_PORT))
    with closing(ClientTransport(address)) as client:
        num_messages = HIGH_WATER_MARK
        for i in range(num_messages):
            send(client, doorbells[0], [b"%d" % i])
        received = [answered(client, doorbells[0])]
        while len(received) < num_messages:
            before_s = time.monotonic()
            client.wait(round(TIMEOUT_S * 1e9), doorbells[0], to_send=False)
            assert time.monotonic() - before_s < TIMEOUT_S / 2
            received.append([bytes(frame) for frame in client.receive()])
    assert received == [[b"%d" % i] for i in range(num_messages)]


def test_robots_find_a_server_by_name_and_again_after_it_came_back(doorbells):
    server = ServerTransport("tcp://localhost:*")
    address = f"tcp://localhost:{server.address.rpartition(':')[2]}"
    ours, theirs = doorbells
    with closing(ClientTransport(address)) as client:
        for text in (b"before", b"after"):
            for _ in turns():
                client.send([text])
                client.wait(TURN_NS, ours, to_send=True)
                server.wait(TURN_NS, theirs)
                if (arrival := server.receive()) is not None:
                    break
            assert bytes(arrival[1][0]) == text
            server.close()
            server = ServerTransport(address)
    server.close()


def test_a_robot_that_does_not_read_loses_its_answers_and_nobody_else_any(doorbells):
    ours, theirs = doorbells
    with (
        closing(ServerTransport(ANY_PORT)) as server,
        closing(ClientTransport(server.address)) as deaf,
        closing(ClientTransport(server.address)) as other,
    ):
        peers = []
        for client in (deaf, other):
            for _ in turns():
                if len(peers) == 1 + (client is other):
                    break
                client.wait(TURN_NS // 10, ours, to_send=True)
                server.wait(TURN_NS // 10, theirs)
                client.send([b"hello"])
                if (arrival := server.receive()) is not None and arrival[0] not in peers:
                    peers.append(arrival[0])
        answer = bytes(1_000_000)
        for i in range(20 * HIGH_WATER_MARK):
            server.send(peers[0], [b"%d" % i, answer])
        server.send(peers[1], [b"for you"])
        assert answered(other, ours) == [b"for you"]
        kept: list[int] = []
        for _ in turns():
            server.send(peers[0], [b"end"])  # lost as well as long as too much waits
            server.wait(TURN_NS // 10, theirs)
            deaf.wait(TURN_NS // 10, ours, to_send=False)
            if (message := deaf.receive()) is None:
                continue
            if bytes(message[0]) == b"end":
                break
            kept.append(int(bytes(message[0])))
            assert len(message[1]) == len(answer)
        assert kept == sorted(set(kept))
        # As many wait on either side of the network, and a few within it.
        assert HIGH_WATER_MARK <= len(kept) < 3 * HIGH_WATER_MARK


def wait_for_the_end(connection: socket.socket) -> None:
    with suppress(ConnectionResetError):
        while connection.recv(4096):
            pass


def test_a_peer_that_announces_too_much_is_hung_up_on(start_echo, doorbells):
    address = start_echo(ServerTransport(ANY_PORT))
    host, port = address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port))) as rude, closing(ClientTransport(address)) as client:
        rude.settimeout(20)
        rude.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16 + 32))
        rude.sendall(b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER")
        rude.sendall(b"\x02" + (2**40).to_bytes(8, "big"))
        wait_for_the_end(rude)
        send(client, doorbells[0], [b"still there?"])
        assert answered(client, doorbells[0]) == [b"still there?"]


def test_a_server_out_of_descriptors_goes_on_with_the_robots_it_has_and_takes_others_later(doorbells):
    ours, theirs = doorbells

    def turn(client: ClientTransport) -> list[bytes]:
        for _ in turns():
            client.send([b"hello"])
            client.wait(TURN_NS // 10, ours, to_send=False)
            server.wait(TURN_NS // 10, theirs)
            while (arrival := server.receive()) is not None:
                server.send(*arrival)
            if (answer := client.receive()) is not None:
                break
        return [bytes(frame) for frame in answer]

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with (
        closing(ServerTransport(ANY_PORT)) as server,
        closing(ClientTransport(server.address)) as early,
        closing(ClientTransport(server.address)) as late,
    ):
        assert turn(early) == [b"hello"]
        late.wait(0, ours, to_send=True)  # begins to connect
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))  # those that are open stay
        try:
            for _ in range(5):
                assert turn(early) == [b"hello"]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert turn(late) == [b"hello"]


def test_a_robot_says_what_it_found_in_place_of_a_policy_server(doorbells):
    with socket.create_server(("127.0.0.1", 0)) as web:
        port = web.getsockname()[1]
        with closing(ClientTransport(f"tcp://127.0.0.1:{port}")) as client:
            client.wait(TURN_NS, doorbells[0], to_send=True)
            visitor, _ = web.accept()
            with visitor:
                visitor.sendall(b"HTTP/1.1 400 Bad Request\r\n")
            for _ in turns():
                client.wait(TURN_NS, doorbells[0], to_send=False)
                if client.trouble() is not None:
                    break
            assert "no policy server" in client.trouble()


def test_a_bell_wakes_who_waits_while_there_is_no_server(doorbells):
    with closing(ClientTransport("tcp://127.0.0.1:9")) as client:
        doorbells[0].ring()
        client.wait(None, doorbells[0], to_send=True)
        assert client.receive() is None
        assert not client.send([b"nobody"])
