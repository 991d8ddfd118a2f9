"""When a process that serves collects garbage, and what of it."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import numpy as np
import pytest

from policies.commands.serve import _replace_all
from policies.scripted import HoldPolicy
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError
from robot_runtime.robot.client import PolicyClient
from robot_runtime.server import collector as of_collector
from robot_runtime.server.collector import OVERDUE, YOUNG, Collector
from robot_runtime.server.server import PolicyServer
from robot_runtime.server.warming import zero_observation


class Node:
    def __init__(self) -> None:
        self.itself = self


def wait_for_turn(client: PolicyClient, request_id: int, policy: HoldPolicy) -> None:
    """Ask, and take the answer to its end."""
    observation = zero_observation(policy.info.schema, "")
    request = ChunkRequest(
        observation=observation, request_id=request_id, epoch=client.new_epochs(), deadline_ns=10 * NS_PER_S
    )
    list(client.parts(request))


class Untidy(HoldPolicy):
    """Leaves as many cycles behind as make Python collect several times over in each answer."""

    def __init__(self) -> None:
        super().__init__()
        self.is_at_work, self.left = False, weakref.WeakSet[Node]()

    def infer(self, request: ChunkRequest) -> Iterator[np.ndarray]:
        self.is_at_work = True
        for _ in range(2 * YOUNG):
            self.left.add(Node())
        self.is_at_work = False
        yield from super().infer(request)


@contextmanager
def rounds_of(policy: Untidy) -> Iterator[list[bool]]:
    """For each round of the collector, whether the policy was at work."""
    rounds = list[bool]()

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            rounds.append(policy.is_at_work)

    gc.callbacks.append(note)
    try:
        yield rounds
    finally:
        gc.callbacks.remove(note)


def test_a_server_collects_between_batches_and_never_while_its_policy_is_at_work():
    policy, collector = Untidy(), Collector()
    with PolicyServer(policy, "tcp://127.0.0.1:*", collector=collector) as server, collector:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            with (
                rounds_of(policy) as rounds,
                PolicyClient(server.address, schema=policy.info.schema) as client,
            ):
                client.wait_until_ready(10.0)
                for request_id in range(5):
                    wait_for_turn(client, request_id, policy)
                wait_for_turn(client, 5, policy)
        finally:
            server.stop()
            thread.join()
    assert len(rounds) >= 4
    assert not any(rounds)
    assert len(policy.left) < 3 * 2 * YOUNG  # of all but the last answers they are gone


def test_what_was_there_before_robots_came_is_not_gone_through_again_and_new_cycles_are_freed():
    old = Node()
    with Collector() as collector:
        assert gc.get_freeze_count() > 1000
        assert not any(found is old for found in gc.get_objects())
        new = [Node() for _ in range(YOUNG)]
        gone = weakref.ref(new[0])
        del new
        collector.look(is_idle=True, num_settled=0)
        assert gone() is None
    assert any(found is old for found in gc.get_objects())
    assert gc.isenabled()


def test_what_is_warmed_up_later_is_left_alone_too_once_all_of_it_is_there():
    with Collector() as collector:
        compiled = Node()
        assert any(found is compiled for found in gc.get_objects())
        collector.look(is_idle=False, num_settled=1)
        assert any(found is compiled for found in gc.get_objects())
        collector.look(is_idle=True, num_settled=1)
        assert not any(found is compiled for found in gc.get_objects())


def test_a_policy_that_is_always_at_work_does_not_fill_the_memory():
    with Collector() as collector:
        left = [Node() for _ in range(YOUNG)]
        gone = weakref.ref(left[0])
        left.clear()
        collector.look(is_idle=False, num_settled=0)
        assert gone() is not None
        for _ in range(OVERDUE):
            left.append(Node())
        collector.look(is_idle=False, num_settled=0)
        assert gone() is None


def test_what_has_grown_old_before_it_was_dropped_is_freed_some_rounds_later(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(of_collector, "OLD_EVERY", 4)
    with Collector() as collector:
        robots = [Node()]
        gone = weakref.ref(robots[0])
        for _ in range(3):
            _made = [Node() for _ in range(YOUNG)]
            collector.look(is_idle=True, num_settled=0)
        robots.clear()
        gc.collect(1)
        assert gone() is not None
        _made = [Node() for _ in range(YOUNG)]
        collector.look(is_idle=True, num_settled=0)
        assert gone() is None


@pytest.mark.long
def test_loading_policies_anew_lets_what_they_replace_be_freed():
    old = Node()
    gone = weakref.ref(old)
    with Collector() as collector:
        del old
        gc.collect()
        assert gone() is not None
        server = Replaces()
        _replace_all(server, ["one"], [HoldPolicy])
        collector.look(is_idle=True, num_settled=1)
        assert gone() is None
        assert server.names == ["one"]


def test_what_could_not_be_loaded_anew_leaves_the_rest_alone(caplog: pytest.LogCaptureFixture):
    def fails():
        raise InvalidValueError("no such file")

    permanent = Node()
    gone = weakref.ref(permanent)
    with Collector():
        _replace_all(Replaces(), ["one"], [fails])
        del permanent
        gc.collect()
        assert gone() is not None  # still excluded
    assert "one stays: no such file" in caplog.text


class Replaces:
    """Of a server all that loading anew asks for."""

    def __init__(self) -> None:
        self.names = list[str]()

    def replace(self, name: str, policy: HoldPolicy) -> None:
        self.names.append(name)
