import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import zmq
from toy import SPEC, toy_request, toy_schema

from robot_runtime.cli.progress import under_way
from robot_runtime.errors import InvalidValueError, SchemaMismatchError, ServerUnavailableError
from robot_runtime.robot.client import PolicyClient
from robot_runtime.transport.server import ServerTransport
from robot_runtime.wire.events import Event, PartReceived, RequestFailed, ServerLost
from robot_runtime.wire.messages import Dropped, DropReason, Welcome

TIMEOUT_S = 20.0
"""Far more than anything here takes: these tests check what happens, not how fast."""


def wait_for(client: PolicyClient, kind: type) -> tuple[Event, list[Event]]:
    """The first event of that kind, and those before it; events after it are dropped."""
    before: list[Event] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        client.wait_for_events(0.05)
        for event in client.events():
            if isinstance(event, kind):
                return event, before
            before.append(event)
    raise AssertionError(f"no {kind.__name__}, only {before}")


def ask(client: PolicyClient, request_id: int, **request) -> np.ndarray:
    """The rows of one answer."""
    client.submit(toy_request(request_id, **request))
    rows: list[np.ndarray] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        client.wait_for_events(0.05)
        for event in client.events():
            if isinstance(event, PartReceived):
                assert event.part.request_id == request_id
                rows.append(event.part.rows)
                if event.part.is_last:
                    return np.concatenate(rows)
            else:
                assert isinstance(event, Welcome), event
    raise AssertionError("no answer")


def test_a_chunk_streams_in_blocks(start_server):
    with PolicyClient(start_server().address, schema=toy_schema()) as client:
        assert client.wait_until_ready(TIMEOUT_S).info.name == "toy"
        rows = ask(client, 1, q=0.25)
        assert rows.shape == (SPEC.horizon, SPEC.dim)
        assert set(rows[:, 0]) == {0.25}
        np.testing.assert_array_equal(rows[:, 2], np.arange(SPEC.horizon))


def test_a_killed_server_is_noticed_and_the_next_one_is_found(start_server, capsys):
    server = start_server(delay_ms=60_000, heartbeat_ms=25)
    with PolicyClient(server.address, schema=toy_schema()) as client:
        client.wait_until_ready(TIMEOUT_S)
        client.submit(toy_request(1, deadline_ns=60 * 10**9))
        time.sleep(0.1)
        client.events()
        killed_s = time.monotonic()
        server.process.send_signal(signal.SIGKILL)
        _, before = wait_for(client, ServerLost)
        noticed_s = time.monotonic() - killed_s
        assert [(type(e), e.reason) for e in before] == [(RequestFailed, "server lost")]
        assert client.welcome is None
        server.kill()
        start_server(server.address)
        back_s = time.monotonic()
        wait_for(client, Welcome)
        ready_s = time.monotonic() - back_s
        assert set(ask(client, 2, q=0.5)[:, 0]) == {0.5}
    with capsys.disabled():
        figures = f"noticed after {noticed_s * 1e3:.0f} ms, ready again after {ready_s * 1e3:.0f} ms"
        sys.stdout.write(f"\nkill -9 {figures}\n")
    assert noticed_s < 1.0
    assert ready_s < 5.0


def test_a_stopping_server_ends_cleanly_and_its_robot_notices(start_server):
    server = start_server()
    with PolicyClient(server.address, schema=toy_schema()) as client:
        client.wait_until_ready(TIMEOUT_S)
        server.process.send_signal(signal.SIGTERM)
        wait_for(client, ServerLost)
        output = server.output()
    assert server.process.returncode == 0
    lines = ["loading toy ...", "loading toy: ", "warming up toy ...", "warming up toy: "]
    found = [output.find(line) for line in [*lines, f"ready: {server.address} policy toy"]]
    assert found == sorted(found)
    assert found[0] >= 0


def test_work_that_takes_long_says_how_long_it_has_taken_so_far(capsys):
    with under_way("loading large", period_s=0.01):
        time.sleep(0.1)
    first, *so_far, last = capsys.readouterr().out.splitlines()
    assert first == "loading large ..."
    assert so_far
    assert set(so_far) == {"loading large: 0 s so far"}
    assert re.fullmatch(r"loading large: 0\.\d s", last)


def test_ctrl_c_ends_the_server_with_130(start_server):
    server = start_server()
    server.process.send_signal(signal.SIGINT)
    assert "Traceback" not in server.output()
    assert server.process.returncode == 130


@pytest.mark.real_time
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_server_ends_within_two_seconds_whatever_is_being_computed_and_queued(
    start_server, number: signal.Signals, code: int
):
    server = start_server()
    with PolicyClient(server.address, schema=toy_schema()) as client:
        client.wait_until_ready(TIMEOUT_S)
        for i in range(1, 20):
            client.submit(toy_request(i, task="stuck", in_flight=tuple(range(1, i)), deadline_ns=60 * 10**9))
        time.sleep(0.2)
        began_s = time.monotonic()
        server.process.send_signal(number)
        assert server.process.wait(10.0) == code
        assert time.monotonic() - began_s < 2.0


def test_two_robots_get_only_their_own_chunks(start_server):
    address = start_server().address
    with (
        PolicyClient(address, schema=toy_schema(), robot="a") as a,
        PolicyClient(address, schema=toy_schema(), robot="b") as b,
    ):
        a.wait_until_ready(TIMEOUT_S)
        b.wait_until_ready(TIMEOUT_S)
        answers: dict[PolicyClient, set] = {a: set(), b: set()}
        for i in range(100):
            for client, q in ((a, 1.0), (b, 2.0)):
                client.submit(toy_request(i, q=q))
            for client, seen in answers.items():
                received, _ = wait_for(client, PartReceived)
                seen.add(received.part.rows[0, 0])
        assert answers == {a: {1.0}, b: {2.0}}


def test_garbage_from_one_peer_disturbs_nobody_else(start_server):
    address = start_server().address
    rng = np.random.default_rng(0)
    with PolicyClient(address, schema=toy_schema()) as client, zmq.Context() as context:
        client.wait_until_ready(TIMEOUT_S)
        with context.socket(zmq.DEALER) as vandal:
            vandal.set(zmq.LINGER, 0)
            vandal.connect(address)
            for i in range(300):
                vandal.send_multipart([rng.bytes(rng.integers(0, 200)) for _ in range(rng.integers(1, 5))])
                if i % 50 == 0:
                    assert set(ask(client, i, q=0.5)[:, 0]) == {0.5}
            vandal.send_multipart([b""] * 100)
        assert set(ask(client, 1000, q=0.5)[:, 0]) == {0.5}
        assert not any(isinstance(event, ServerLost) for event in client.events())


def test_a_failing_policy_tells_the_robot_but_not_its_secrets(start_server):
    server = start_server()
    with PolicyClient(server.address, schema=toy_schema()) as client:
        client.wait_until_ready(TIMEOUT_S)
        client.submit(toy_request(1, task="crash"))
        failed, _ = wait_for(client, RequestFailed)
        assert failed.reason == "internal: policy toy failed; the server's log says why"
        client.submit(toy_request(2, prev_action_chunk=np.zeros((9, 3))))
        failed, _ = wait_for(client, RequestFailed)
        assert failed.reason.startswith("bad_request: prev_action_chunk has shape (9, 3)")
        ask(client, 3)
    server.process.send_signal(signal.SIGTERM)
    assert "secret/path" in server.output()


def test_delay_holds_back_the_answer_but_not_the_heartbeats(start_server):
    with PolicyClient(start_server(delay_ms=400).address, schema=toy_schema()) as client:
        client.wait_until_ready(TIMEOUT_S)
        client.submit(toy_request(1))
        received, before = wait_for(client, PartReceived)
        assert received.arrived_ns - received.sent_ns >= 400_000_000
        assert received.part.infer_ns < 400_000_000  # the network is late, not the policy
        assert not any(isinstance(event, ServerLost) for event in before)


def test_deadline_and_cancel_end_requests(start_server):
    with PolicyClient(start_server(delay_ms=60_000).address, schema=toy_schema()) as client:
        client.wait_until_ready(TIMEOUT_S)
        client.submit(toy_request(1, deadline_ns=50_000_000))
        expired, _ = wait_for(client, Dropped)
        assert expired == Dropped(request_id=1, epoch=0, reason=DropReason.DEADLINE)
        client.submit(toy_request(2, deadline_ns=60 * 10**9))
        client.cancel(request_id=2, epoch=0)
        dropped, _ = wait_for(client, Dropped)
        assert dropped == Dropped(request_id=2, epoch=0, reason=DropReason.CANCELLED)


@pytest.mark.parametrize("in_flight", [(), (1, 2)], ids=["each alone", "side by side"])
def test_requests_made_faster_than_they_are_sent_end_once_each(start_server, in_flight):
    with PolicyClient(start_server().address, schema=toy_schema()) as client:
        client.wait_until_ready(TIMEOUT_S)
        client.events()
        for i in (1, 2, 3):
            client.submit(toy_request(i, in_flight=tuple(j for j in in_flight if j < i)))
        ended: dict[int, type] = {}
        while 3 not in ended:
            assert client.wait_for_events(TIMEOUT_S)
            for event in client.events():
                if isinstance(event, Dropped):
                    assert event.reason is DropReason.SUPERSEDED
                    ended[event.request_id] = Dropped
                elif event.part.is_last:
                    assert event.part.request_id not in ended
                    ended[event.part.request_id] = PartReceived
    assert sorted(ended) == [1, 2, 3]
    if in_flight:
        assert set(ended.values()) == {PartReceived}


def test_jpeg_images_arrive_close_to_the_originals(start_server):
    y, x = np.mgrid[0:48, 0:64]
    pixels = np.stack([4 * x, 5 * y, 2 * (x + y)], axis=2).astype(np.uint8)
    with PolicyClient(start_server().address, schema=toy_schema(), jpeg_quality=90) as client:
        client.wait_until_ready(TIMEOUT_S)
        assert ask(client, 1, pixels=pixels)[0, 1] == pytest.approx(pixels.mean(), abs=1.0)


def test_a_robot_that_does_not_fit_is_told_why(start_server):
    address = start_server().address
    with (
        PolicyClient(address, schema=toy_schema((96, 128)), robot="big eye") as client,
        pytest.raises(SchemaMismatchError, match=r"big eye.*toy.*wrist"),
    ):
        client.wait_until_ready(TIMEOUT_S)


def test_no_server_is_an_error_that_says_what_to_do():
    with (
        PolicyClient("tcp://127.0.0.1:9", schema=toy_schema()) as client,
        pytest.raises(ServerUnavailableError, match=r"tcp://127\.0\.0\.1:9 .*robot-runtime serve"),
    ):
        client.wait_until_ready(0.2)


@pytest.mark.parametrize("timeout_s", [float("nan"), float("inf"), -1.0])
def test_a_time_to_wait_that_is_none_is_refused(timeout_s: float):
    with (
        PolicyClient("tcp://127.0.0.1:9", schema=toy_schema()) as client,
        pytest.raises(InvalidValueError, match="takes a number of seconds from 0"),
    ):
        client.wait_until_ready(timeout_s)


def test_an_oversized_observation_fails_and_the_next_one_works(start_server):
    with PolicyClient(start_server().address, schema=toy_schema()) as client:
        client.wait_until_ready(TIMEOUT_S)
        client.submit(toy_request(1, pixels=np.zeros((4000, 4000, 3), np.uint8)))
        failed, _ = wait_for(client, RequestFailed)
        assert "could not be sent" in failed.reason
        ask(client, 2)


def test_a_port_in_use_is_named_with_what_to_do(start_server):
    address = start_server().address
    with pytest.raises(InvalidValueError, match=f"{address} is in use.*choose another"):
        ServerTransport(address)
    with pytest.raises(InvalidValueError, match="nonsense"):
        PolicyClient("nonsense", schema=toy_schema())


def test_serving_needs_no_torch():
    code = "import sys, policies.commands.serve, robot_runtime.robot.client; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
