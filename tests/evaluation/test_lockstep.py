"""A policy in another process, asked in lock-step: the simulator waits, and the results are the same."""

import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

import robot_runtime as rr
from robot_runtime import evaluate
from robot_runtime.errors import PolicyError, SchemaMismatchError, ServerUnavailableError
from robot_runtime.evaluation.remote_policy import RemotePolicy
from robot_runtime.server.server import PolicyServer
from tests.evaluation.points import Point, goal_policy, point_info
from tests.source_tree import ROOT

METHODS = ["synchronous", "time-aligned", "temporal-ensembling", "pipelined-time-aligned"]


@contextmanager
def served(policy):
    with PolicyServer(policy, "tcp://127.0.0.1:*") as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.stop()
        thread.join()


@pytest.fixture
def server():
    with served(goal_policy(pause_s=0.02)) as server:
        yield server


@pytest.mark.long
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
    other = replace(schema, environment_state_dim=9, environment_state_names=())
    with pytest.raises(SchemaMismatchError, match="environment state"):
        RemotePolicy(server.address, schema=other)


def test_where_nobody_serves_it_is_said():
    with pytest.raises(ServerUnavailableError):
        RemotePolicy("tcp://127.0.0.1:9", schema=point_info().schema, timeout_s=0.2)


def test_the_policy_of_the_page_is_served_and_its_server_named_by_host_and_port(tmp_path):
    names: dict = {}
    exec((ROOT / "examples" / "point_policy.py").read_text(), names)
    with served(names["policy"]) as server:
        there = server.address.removeprefix("tcp://")
        env = ["--env", str(ROOT / "examples" / "own_env.py") + ":Point", "--episodes", "3", "--workers", "1"]
        command = [sys.executable, "-m", "robot_runtime.cli", "eval", *env, "--policy", f"{there}/to_goal"]
        out = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, check=False
        )
    assert out.returncode == 0, out.stderr
    assert "100.0%" in out.stdout


SPEC = rr.ActionSpec(fields=(rr.Numbers(("x", "y")),), horizon=8, dt_ns=100_000_000)


@pytest.mark.parametrize("is_sliced", [True, False])
def test_a_policy_that_looks_at_state_it_did_not_declare_is_told_how(is_sliced):
    @rr.policy(rr.PolicyInfo(name="blind", action_spec=SPEC))
    def blind(observation):
        s = observation.environment_state
        return np.tile(s[2:4], (8, 1)) if is_sliced else np.full((8, 2), s[2])

    with (
        pytest.raises((PolicyError, IndexError)) as raised,
        PolicyServer(blind, "tcp://127.0.0.1:*") as server,
    ):
        server.serve_forever()
    said = "".join([str(raised.value), *getattr(raised.value, "__notes__", ())])
    assert "schema=Schema.of(action_spec, environment_state_dim=" in said
