"""Several policies, policies replaced, servers that end in order, and what a server says of itself."""

import os
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread, active_count
from weakref import WeakSet

import numpy as np
import pytest
import zmq
from toy import ANY_PORT, SPEC, ToyPolicy, serving, toy_request, toy_schema

from policies.commands.serve import Serve, serve
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError, ServerUnavailableError, UnknownNameError
from robot_runtime.robot.client import PolicyClient
from robot_runtime.server import service
from robot_runtime.server.bounded_http import MAX_CONNECTIONS
from robot_runtime.server.metrics_http import MetricsServer
from robot_runtime.server.server import PolicyServer
from robot_runtime.server.server_metrics import ServerMetrics
from robot_runtime.wire.codec import encode
from robot_runtime.wire.events import PartReceived, ServerLost
from robot_runtime.wire.messages import Dropped, DropReason, Hello, Packet
from tests.process.waiting import wait_until


class NamedPolicy(ToyPolicy):
    """Rows whose first column is its own number, given when `gate` opens."""

    def __init__(self, name: str, number: float, gate: Event | None = None) -> None:
        self.info = replace(self.info, name=name)
        self._number, self._gate = number, gate

    def infer(self, request):
        if self._gate is not None and request.observation.task == "test":  # not while it warms up
            self._gate.wait(10.0)
        rows = np.full((SPEC.horizon, SPEC.dim), self._number)
        yield rows[:2]
        yield rows[2:]


@contextmanager
def robot_of(server: PolicyServer, policy: str = "", **options) -> Iterator[PolicyClient]:
    with PolicyClient(server.address, schema=toy_schema(), policy=policy, **options) as client:
        client.wait_until_ready(5.0)
        client.events()
        yield client


def events_of(client: PolicyClient, request_id: int) -> list:
    """What happens until the request is over."""
    events: list = []
    while True:
        assert client.wait_for_events(5.0)
        for event in client.events():
            events.append(event)
            match event:
                case PartReceived(part=part) if part.is_last and part.request_id == request_id:
                    return events
                case Dropped(request_id=over) if over == request_id:
                    return events
                case ServerLost():
                    return events


def number_of(client: PolicyClient, request_id: int) -> float:
    """Whose rows answer a request."""
    client.submit(toy_request(request_id))
    return events_of(client, request_id)[-1].part.rows[0, 0]


def test_robots_are_answered_by_the_policy_that_they_name():
    with (
        serving(NamedPolicy("one", 1.0), NamedPolicy("two", 2.0)) as server,
        robot_of(server, "one") as first,
        robot_of(server, "two") as second,
    ):
        for request_id in range(5):
            assert number_of(first, request_id) == 1.0
            assert number_of(second, request_id) == 2.0


@pytest.mark.parametrize(("name", "words"), [("three", "no policy 'three'"), ("", "name yours")])
def test_a_robot_that_names_no_policy_of_the_servers_is_told_which_there_are(name: str, words: str):
    with (
        serving(NamedPolicy("one", 1.0), NamedPolicy("two", 2.0)) as server,
        PolicyClient(server.address, schema=toy_schema(), policy=name) as client,
        pytest.raises(
            ServerUnavailableError, match=f"{words}; it has one, two: ask for one as {server.address}/NAME"
        ),
    ):
        client.wait_until_ready(5.0)


def test_policies_of_one_name_and_no_policies_are_refused():
    for policies in ([], [NamedPolicy("one", 1.0), NamedPolicy("one", 2.0)]):
        with pytest.raises(InvalidValueError, match="policies of different names"):
            PolicyServer(policies, ANY_PORT)


def test_a_policy_is_replaced_without_a_lost_request():
    gate, metrics = Event(), dict[str, ServerMetrics]()
    with serving(NamedPolicy("one", 1.0, gate), metrics=metrics) as server, robot_of(server) as client:
        client.submit(toy_request(1))
        wait_until(lambda: metrics["one"].batch_size.sum == 1)
        server.replace("one", NamedPolicy("one, newer", 2.0))
        gate.set()
        assert events_of(client, 1)[-1].part.rows[0, 0] == 1.0  # what had begun is finished by the old one
        answers = [number_of(client, request_id) for request_id in range(2, 400)]
    assert answers == sorted(answers)
    assert answers[-1] == 2.0


def test_a_policy_that_robots_could_not_go_on_with_does_not_take_over(caplog: pytest.LogCaptureFixture):
    class Wider(NamedPolicy):
        info = replace(ToyPolicy.info, action_spec=replace(SPEC, horizon=SPEC.horizon + 1))

    class Broken(NamedPolicy):
        def infer(self, request):
            raise RuntimeError("broken")

    with serving(NamedPolicy("one", 1.0)) as server, robot_of(server) as client:
        for unfit in (Wider("wider", 2.0), Broken("broken", 2.0)):
            server.replace("one", unfit)
            assert {number_of(client, request_id) for request_id in range(20)} == {1.0}
    assert "'wider' cannot take over from 'one': its action_spec is" in caplog.text


class NoPolicy:
    info = "a policy"


def test_a_policy_that_never_returns_is_replaced_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(service, "STUCK_NS", NS_PER_S // 5)
    gate, metrics = Event(), dict[str, ServerMetrics]()
    with (
        serving(NamedPolicy("one", 1.0, gate), NamedPolicy("two", 2.0), metrics=metrics) as server,
        robot_of(server, "one") as first,
        robot_of(server, "two") as second,
    ):
        first.submit(toy_request(1, deadline_ns=60 * NS_PER_S))
        wait_until(lambda: metrics["one"].batch_size.sum == 1)
        server.replace("one", NamedPolicy("one", 3.0))
        assert number_of(second, 1) == 2.0
        events: list = []
        wait_until(lambda: events.extend(first.events()) or bool(events))
        assert "policy one did not return, and another takes over" in events[0].reason
        assert number_of(first, 2) == 3.0
        gate.set()
    assert "one has not returned" in caplog.text


def test_what_is_no_policy_takes_over_from_nobody_and_ends_no_server(caplog: pytest.LogCaptureFixture):
    with serving(NamedPolicy("one", 1.0)) as server, robot_of(server) as client:
        with pytest.raises(UnknownNameError, match="'two'; valid: one"):
            server.replace("two", NamedPolicy("two", 2.0))
        server.replace("one", NoPolicy())
        assert {number_of(client, request_id) for request_id in range(20)} == {1.0}
    assert (
        "one stays: NoPolicy is no policy: its `info` is str; expected a PolicyInfo; it has no `infer"
        in caplog.text
    )


class Loads:
    """Loads policies for `serve`, and knows how many are loaded at a time and how many are still there."""

    def __init__(self) -> None:
        self.living = WeakSet[NamedPolicy]()
        self.num_loaded = self.num_loading = self.most_loading = 0

    def __call__(self) -> NamedPolicy:
        self.num_loading += 1
        self.most_loading = max(self.most_loading, self.num_loading)
        time.sleep(0.1)
        policy = NamedPolicy("one", 1.0)
        self.living.add(policy)
        self.num_loaded, self.num_loading = self.num_loaded + 1, self.num_loading - 1
        return policy


def test_policies_loaded_anew_are_loaded_one_at_a_time_and_leave_no_older_ones_behind(tmp_path: Path):
    loads, living, ready = Loads(), [], tmp_path / "ready.json"

    def load_anew() -> None:
        wait_until(ready.exists)
        for _ in range(20):
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.005)
        wait_until(lambda: loads.num_loaded >= 3 and len(loads.living) == 1)
        living.append(len(loads.living))
        os.kill(os.getpid(), signal.SIGTERM)

    thread = Thread(target=load_anew)
    thread.start()
    assert serve([loads], Serve(policy=("one",), address=ANY_PORT, json=ready)) == 0
    thread.join()
    assert (loads.most_loading, living) == (1, [1])
    assert loads.num_loaded < 10  # orders that come while one is carried out are one


def test_an_order_to_load_anew_that_comes_while_the_server_loads_is_obeyed_once_it_is_ready(tmp_path: Path):
    loaded, ready = [], tmp_path / "ready.json"

    def load() -> NamedPolicy:
        if not loaded:
            os.kill(os.getpid(), signal.SIGHUP)
        loaded.append(ready.exists())
        return NamedPolicy("one", 1.0)

    def end_once_loaded_anew() -> None:
        try:
            wait_until(lambda: len(loaded) == 2)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    thread = Thread(target=end_once_loaded_anew)
    thread.start()
    try:
        assert serve([load], Serve(policy=("one",), address=ANY_PORT, json=ready)) == 0
    finally:
        thread.join()
        signal.signal(signal.SIGHUP, before)
    assert len(loaded) == 2


def test_a_robot_that_is_gone_leaves_its_place_at_once_though_nobody_else_says_anything():
    metrics = dict[str, ServerMetrics]()
    hello = encode(Packet("gone", 1, Hello(robot="gone", schema=toy_schema())))
    with serving(NamedPolicy("one", 1.0), metrics=metrics) as server, zmq.Context() as context:
        with context.socket(zmq.DEALER) as robot:
            robot.connect(server.address)
            robot.send_multipart(hello)
            wait_until(lambda: metrics["one"].clients == 1)
            robot.linger = 0
        wait_until(lambda: metrics["one"].clients == 0)


def test_a_server_that_drains_answers_what_it_has_and_takes_no_more():
    gate, metrics = Event(), dict[str, ServerMetrics]()
    with PolicyServer(NamedPolicy("one", 1.0, gate), ANY_PORT, metrics=metrics) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        with robot_of(server) as early, robot_of(server) as late:
            early.submit(toy_request(1))
            wait_until(lambda: metrics["one"].batch_size.sum == 1)
            server.drain()
            wait_until(lambda: not metrics["one"].is_ready)
            late.submit(toy_request(2))
            (dropped,) = events_of(late, 2)
            assert dropped.reason is DropReason.CLOSING
            gate.set()
            assert events_of(early, 1)[-1].part.is_last
            thread.join(5.0)
            assert not thread.is_alive()
            wait_until(lambda: early.welcome is None)  # it has said goodbye


def get(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5.0) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_server_whose_policies_are_still_being_loaded_is_not_ready():
    with MetricsServer("127.0.0.1:0", {}) as metrics:
        assert get(metrics.address, "/readyz") == (503, "not ready\n")


def test_a_server_tells_of_itself_over_http():
    metrics: dict[str, ServerMetrics] = {"one": ServerMetrics()}
    with MetricsServer("127.0.0.1:0", metrics) as http:
        assert get(http.address, "/healthz") == (200, "alive\n")
        assert get(http.address, "/readyz") == (503, "not ready\n")
        assert get(http.address, "/")[0] == 404
        with serving(NamedPolicy("one", 1.0), metrics=metrics) as server, robot_of(server) as client:
            assert get(http.address, "/readyz") == (200, "ready\n")
            for request_id in range(3):
                number_of(client, request_id)
            status, text = get(http.address, "/metrics")
        assert get(http.address, "/readyz")[0] == 503
    assert status == 200
    lines = text.splitlines()
    for line in (
        'robot_runtime_clients{policy="one"} 1.0',
        'robot_runtime_requests_total{outcome="answered",policy="one"} 3.0',
        f'robot_runtime_rows_sent_total{{policy="one"}} {3 * SPEC.horizon:.1f}',
        'robot_runtime_batch_size_bucket{le="1",policy="one"} 3.0',
        'robot_runtime_queue_seconds_count{policy="one"} 3.0',
        'robot_runtime_first_rows_seconds_count{policy="one"} 3.0',
    ):
        assert line in lines
    received = next(line for line in lines if line.startswith("robot_runtime_received_bytes_total"))
    assert float(received.split()[1]) > 3 * toy_request(0).observation.images["wrist"].pixels.nbytes


def test_connections_that_ask_nothing_take_no_more_of_a_server_than_a_few_threads():
    with MetricsServer("127.0.0.1:0", {}) as metrics, ExitStack() as stack:
        host, _, port = metrics.address.rpartition(":")
        before = active_count()
        for _ in range(3 * MAX_CONNECTIONS):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=20.0))
        assert get(metrics.address, "/healthz") == (200, "alive\n")
        wait_until(lambda: active_count() - before <= MAX_CONNECTIONS)


@pytest.mark.parametrize("address", ["9090", "127.0.0.1:http", "127.0.0.1:99999", "nowhere.invalid:9090"])
def test_an_address_that_http_cannot_be_answered_at_says_so(address: str):
    with pytest.raises(InvalidValueError, match="expected HOST:PORT"):
        MetricsServer(address, {})
