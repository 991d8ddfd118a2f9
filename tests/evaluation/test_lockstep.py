"""A policy in another process, asked in lock-step: the simulator waits, and the results are the same."""

import threading
from dataclasses import replace

import pytest

from robot_runtime import evaluate
from robot_runtime.errors import SchemaMismatchError, ServerUnavailableError
from robot_runtime.evaluation.remote_policy import RemotePolicy
from robot_runtime.server.server import PolicyServer
from tests.evaluation.points import Point, goal_policy, point_info

METHODS = ["synchronous", "time-aligned", "temporal-ensembling", "pipelined-time-aligned"]


@pytest.fixture
def server():
    with PolicyServer(goal_policy(pause_s=0.02), "tcp://127.0.0.1:*") as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.stop()
        thread.join()


@pytest.mark.parametrize("method", METHODS)
def test_results_over_the_wire_are_those_of_one_process(server, method):
    here = evaluate(goal_policy(), Point(), method=method, trace="spikes", seeds=range(2))
    with RemotePolicy(f"{server.address}/numbers", schema=point_info().schema) as policy:
        there = evaluate(policy, Point(), method=method, trace="spikes", seeds=range(2))
    assert [e.digest for e in there.episodes] == [e.digest for e in here.episodes]
    assert there.summary() == here.summary()


def test_latency_is_simulated_time_and_not_what_the_wall_clock_says(server):
    with RemotePolicy(server.address, schema=point_info().schema) as policy:
        done = evaluate(policy, Point(), method="synchronous", trace=0.0, seeds=[1])
    assert done.summary()["latency_p50_s"] == 0.0


def test_an_env_of_another_shape_is_refused_at_the_door(server):
    schema = point_info().schema
    other = replace(schema, environment_state_dim=9)
    with pytest.raises(SchemaMismatchError, match="environment state"):
        RemotePolicy(server.address, schema=other)


def test_where_nobody_serves_it_is_said():
    with pytest.raises(ServerUnavailableError):
        RemotePolicy("tcp://127.0.0.1:9", schema=point_info().schema, timeout_s=0.2)
