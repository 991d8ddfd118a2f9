"""A server that is open before all of its policy is warm: what it answers, holds and says meanwhile."""

import threading
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from threading import Event, Timer
from time import sleep

import numpy as np
import pytest
from toy import SPEC, ToyPolicy, serving, toy_request, toy_schema

from robot_runtime.clock import MonotonicClock
from robot_runtime.core.method.capabilities import Capabilities
from robot_runtime.core.method.sampler_parts import ClampedPrefix, ConstantSchedule, RtcGuidance
from robot_runtime.core.policy import NewRows, infer_one
from robot_runtime.errors import PolicyError, ServerUnavailableError
from robot_runtime.robot.client import PolicyClient
from robot_runtime.robot.probe import NUM_REQUESTS, measure_latency
from robot_runtime.server import service
from robot_runtime.server.server_metrics import ServerMetrics
from robot_runtime.wire.messages import Readiness
from tests.process.waiting import wait_until

TIMEOUT_S = 10.0


class Compiled(ToyPolicy):
    """Compiles for every sampler part and size of batch, which takes as long as `compiler` is closed."""

    info = replace(
        ToyPolicy.info, capabilities=Capabilities(samplers=(ConstantSchedule, ClampedPrefix, RtcGuidance))
    )
    num_shapes = 1

    def __init__(self) -> None:
        self.compiler, self.compiled, self.asked = Event(), set(), list[tuple[type, int]]()

    def in_shape(self, shape: int):
        return nullcontext()

    def infer(self, request):
        return infer_one(self, request)

    def infer_batch(self, requests):
        what = type(requests[0].sampler), len(requests)
        is_asked = requests[0].observation.task == "test"
        if what not in self.compiled:
            assert not is_asked, f"{what} is compiled while a robot waits for its rows"
            if what != (ClampedPrefix, 1):
                assert self.compiler.wait(TIMEOUT_S)
            sleep(0.06)  # longer than a robot is to wait for what others may ask
            self.compiled.add(what)
        if is_asked:
            self.asked.append(what)
        rows = np.full((SPEC.horizon, SPEC.dim), float(what[1]))
        yield NewRows(num_calls=1, rows=[rows] * what[1])


@contextmanager
def robot(server, name="robot"):
    with PolicyClient(server.address, schema=toy_schema(), robot=name) as client:
        client.wait_until_ready(TIMEOUT_S)
        yield client


def answered(client: PolicyClient, request_id: int, sampler, **request) -> np.ndarray:
    epoch = client.new_epochs()
    parts = client.parts(toy_request(request_id, sampler=sampler, epoch=epoch, **request))
    return np.concatenate([event.part.rows for event in parts])


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause of a tenth of a second is a long one."""
    for name in ("QUIET_NS", "IDLE_NS"):
        monkeypatch.setattr(service, name, 100_000_000)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause is long."""
    for name in ("QUIET_NS", "IDLE_NS"):
        monkeypatch.setattr(service, name, 60_000_000_000)


def test_a_robot_is_answered_by_its_usual_method_while_the_rest_has_not_been_compiled(soon):
    policy, metrics, said = Compiled(), dict[str, ServerMetrics](), list[str]()
    with serving(policy, metrics=metrics, open_ns=0, say=said.append) as server, robot(server) as client:
        assert policy.compiled == {(ClampedPrefix, 1)}
        assert metrics["toy"].is_ready
        assert (metrics["toy"].warm, metrics["toy"].max_batch) == (("ClampedPrefix",), 1)
        assert metrics["toy"].pieces_to_warm == 7
        assert (answered(client, 1, ClampedPrefix()) == 1.0).all()
        assert client.readiness is not None
        policy.compiler.set()
        wait_until(lambda: not metrics["toy"].pieces_to_warm)
        wait_until(lambda: client.readiness is None)
        assert (metrics["toy"].warm, metrics["toy"].max_batch) == (
            ("ClampedPrefix", "ConstantSchedule", "RtcGuidance"),
            32,
        )
    assert said[0] == "toy: ConstantSchedule is warm; 6 left to warm up"
    assert said[-1] == "toy: ClampedPrefix for 32 robots at a time is warm; nothing left to warm up"
    assert len(said) == 7


def test_a_request_for_a_method_that_is_not_warm_is_held_and_that_method_is_warmed_up_at_once(late):
    policy = Compiled()
    policy.compiler.set()
    with serving(policy, open_ns=0) as server, robot(server) as client:
        assert client.readiness is not None
        assert client.readiness.samplers == ("ClampedPrefix",)
        assert (answered(client, 1, RtcGuidance()) == 1.0).all()
        assert policy.asked == [(RtcGuidance, 1)]
        assert client.readiness == Readiness(
            samplers=("ClampedPrefix", "RtcGuidance"), max_batch=1, pieces_left=6
        )
        assert policy.compiled == {(ClampedPrefix, 1), (RtcGuidance, 1)}  # the rest can wait


def test_a_robot_that_runs_is_not_stopped_for_a_method_that_another_one_asks_for(late, caplog):
    policy = Compiled()
    policy.compiler.set()
    with serving(policy, open_ns=0) as server, robot(server, "runs") as runs, robot(server, "new") as new:
        answered(runs, 1, ClampedPrefix())
        with pytest.raises(ServerUnavailableError, match="dropped, deadline"):
            answered(new, 1, RtcGuidance(), deadline_ns=200_000_000)
        assert policy.compiled == {(ClampedPrefix, 1)}
        answered(runs, 2, ClampedPrefix())
    (said,) = caplog.records
    assert said.getMessage() == "toy: RtcGuidance is asked for and is not warm: its requests wait"
    assert said.levelname == "WARNING"


def test_a_robot_that_has_just_come_or_got_its_method_is_not_kept_waiting_for_what_others_may_ask(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(service, "QUIET_NS", 60_000_000_000)
    monkeypatch.setattr(service, "IDLE_NS", 500_000_000)
    policy, metrics = Compiled(), dict[str, ServerMetrics]()
    with serving(policy, open_ns=0, metrics=metrics) as server:
        sleep(0.6)  # it has been open for longer than whoever is there may be idle
        with robot(server) as client:
            sleep(0.05)
            Timer(0.6, policy.compiler.set).start()  # and so long that takes
            for request_id in range(3):
                answered(client, request_id, RtcGuidance(), deadline_ns=5_000_000_000)
                sleep(0.05)
            assert policy.compiled == {(ClampedPrefix, 1), (RtcGuidance, 1)}
            wait_until(lambda: not metrics["toy"].pieces_to_warm)


def test_a_robot_that_measures_its_server_waits_until_its_method_is_warm(late):
    policy, said = Compiled(), list[str]()
    with serving(policy, open_ns=0) as server, robot(server) as client:
        assert client.readiness is not None
        Timer(0.2, policy.compiler.set).start()
        seen = toy_request(1).observation
        measure_latency(
            client, client.welcome, seen, sampler=RtcGuidance(), clock=MonotonicClock(), say=said.append
        )
    assert policy.asked == [(RtcGuidance, 1)] * (1 + NUM_REQUESTS)  # what had to wait is not measured
    assert said[-1] == "the server has yet to warm up RtcGuidance: waiting for it, up to 600 s"


def test_batches_are_of_sizes_that_are_warm(soon):
    policy, metrics = Compiled(), dict[str, ServerMetrics]()
    policy.compiler.set()
    with serving(policy, metrics=metrics, open_ns=0, max_batch=4) as server:
        robots = [threading.Thread(target=ask_often, args=(server, policy, i)) for i in range(5)]
        for each in robots:
            each.start()
        for each in robots:
            each.join(TIMEOUT_S)
        wait_until(lambda: not metrics["toy"].pieces_to_warm)
    assert len(policy.asked) >= 5
    assert {size for _, size in policy.asked} <= {1, 2, 4}


def ask_often(server, policy: Compiled, number: int) -> None:
    with robot(server, f"robot {number}") as client:
        for request_id in range(20):
            answered(client, request_id, ClampedPrefix())


def test_a_server_that_is_told_to_opens_when_all_is_warm():
    policy, metrics = Compiled(), dict[str, ServerMetrics]()
    policy.compiler.set()
    with serving(policy, metrics=metrics, open_ns=None, max_batch=4):
        assert policy.compiled >= {(RtcGuidance, 1), (ConstantSchedule, 1), (ClampedPrefix, 4)}
        assert metrics["toy"].pieces_to_warm == 0


def test_a_server_that_could_open_does_not_begin_what_will_take_longer_than_it_is_to_wait():
    class Slow(Compiled):
        def infer_batch(self, requests):
            if not self.compiled:
                sleep(0.5)  # so long the first call of anything else may take too
            yield from super().infer_batch(requests)

    policy = Slow()
    with serving(policy, open_ns=400_000_000):
        assert policy.compiled == {(ClampedPrefix, 1)}


def test_a_policy_that_fails_with_its_usual_method_opens_no_server():
    class Nan(Compiled):
        def infer_batch(self, requests):
            return (
                replace(new, rows=[r * np.nan for r in new.rows]) for new in super().infer_batch(requests)
            )

    with (
        pytest.raises(PolicyError, match="policy 'toy' cannot be served: it gave nan"),
        serving(Nan(), open_ns=0),
    ):
        pass
