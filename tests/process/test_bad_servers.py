"""Servers that talk nonsense: one sentence for the robot, and its network thread goes on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from threading import Thread

import msgspec
import pytest
from toy import ToyPolicy, toy_request, toy_schema

from robot_runtime.errors import RobotRuntimeError
from robot_runtime.mailbox import Doorbell
from robot_runtime.robot.client import PolicyClient
from robot_runtime.transport.server import ServerTransport
from robot_runtime.wire.codec import decode, encode
from robot_runtime.wire.events import RequestFailed
from robot_runtime.wire.messages import Hello, Packet, Welcome

WELCOME = Welcome(info=ToyPolicy.info, heartbeat_ns=25_000_000)
FIELD = {"kind": "joint_position", "dim": 2, "reference": "absolute"}
TWIST = {"kind": "base_twist", "dim": 3}
ARM = {"kind": "arm", "num_joints": 3, "has_hand": True}
Answer = Callable[[Packet], list[bytes]]


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """The address of a server that answers everything so."""
    transport, bell, over = ServerTransport("tcp://127.0.0.1:*"), Doorbell(), []

    def serve() -> None:
        while not over:
            transport.wait(None, bell)
            while (arrival := transport.receive()) is not None:
                peer, frames = arrival
                transport.send(peer, answer(decode(frames)))

    thread = Thread(target=serve)
    thread.start()
    try:
        yield transport.address
    finally:
        over.append(True)
        bell.ring()
        thread.join()
        transport.close()
        bell.close()


def welcome_with(changes: dict) -> Answer:
    def answer(packet: Packet) -> list[bytes]:
        header = msgspec.msgpack.decode(encode(Packet(packet.client_id, packet.session, WELCOME))[0])
        header[3] |= changes | {"info": header[3]["info"] | changes.get("info", {})}
        return [msgspec.msgpack.encode(header)]

    return answer


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"heartbeat_ns": 1}, "heartbeat_ns"),
        ({"heartbeat_ns": 2**63 - 1}, "heartbeat_ns"),
        (
            {"info": {"action_spec": {"fields": [FIELD], "horizon": 2**40, "dt_ns": 1}}},
            r"horizon in 1\.\.4096",
        ),
        (
            {"info": {"action_spec": {"fields": [FIELD | {"dim": -7}], "horizon": 6, "dt_ns": 9}}},
            "1 to 128 joints",
        ),
        (
            {"info": {"action_spec": {"fields": [TWIST], "horizon": 6, "dt_ns": 9}}},
            "base: the robot takes nothing, the policy gives base twists",
        ),
        ({"info": {"schema": toy_schema().to_dict() | {"parts": {"arm": ARM}}}}, "the policy needs 3"),
        ({"info": {"schema": toy_schema().to_dict() | {"cameras": {"nope": [4, 4]}}}}, "camera 'nope'"),
        ({"info": {"tasks": 7, "name": ["\n"]}}, "makes no sense"),
    ],
)
def test_a_welcome_that_makes_no_sense_is_one_sentence(changes: dict, words: str):
    with (
        answering(welcome_with(changes)) as address,
        PolicyClient(address, schema=toy_schema()) as client,
        pytest.raises(RobotRuntimeError, match=words) as raised,
    ):
        client.wait_until_ready(20.0)
    assert "\n" not in str(raised.value)


def test_whatever_a_server_says_after_its_welcome_its_robot_hears_of_its_requests():
    nonsense = [b"", b"\xff" * 1000, msgspec.msgpack.encode([8, "x", 1, {"type": "ChunkPart"}])]
    num_said = 0

    def answer(packet: Packet) -> list[bytes]:
        nonlocal num_said
        num_said += 1
        if isinstance(packet.message, Hello):
            return welcome_with({})(packet)
        return [nonsense[num_said % 3]] * (1 + num_said % 30)

    with answering(answer) as address, PolicyClient(address, schema=toy_schema()) as client:
        client.wait_until_ready(20.0)
        for request_id in range(5):
            client.submit(toy_request(request_id))
            client.cancel(request_id=request_id - 1, epoch=0)
            client.wait_for_events(0.2)
        client.submit(toy_request(9, task="\udc80", deadline_ns=20 * 10**9))  # cannot be packed
        events = []
        while not any(isinstance(e, RequestFailed) and e.request_id == 9 for e in events):
            assert client.wait_for_events(20.0)
            events += client.events()
    assert isinstance(events[0], Welcome)


def test_epochs_are_never_given_out_twice():
    with PolicyClient("tcp://127.0.0.1:9", schema=toy_schema()) as client:
        taken = [client.new_epochs() for _ in range(3)]
    assert all(b - a == 2**32 for a, b in pairwise(taken))
