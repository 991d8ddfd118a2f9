"""Nothing that a server, the network or a callback does ends the control loop in mid-motion."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import Queue
from threading import Event

import numpy as np
import pytest
from toy import serving

from drivers.fr3 import FR3_LIMITS
from drivers.ideal import IdealArm, IdealGripper
from policies.scripted import FRANKA, SinePolicy
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.method.capabilities import Capabilities
from robot_runtime.core.method.table import method_named
from robot_runtime.core.plan.timeline import Phase
from robot_runtime.core.safety import Mode
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.state import Observation
from robot_runtime.robot.client import PolicyClient
from robot_runtime.robot.config import RunConfig
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.runner import Runner

pytestmark = pytest.mark.usefixtures("patient_time")

LONG_S = 60.0
"""Far longer than any of these runs may take: they end by themselves."""


def served(policy, **options):
    """With heartbeats that a busy machine keeps as well."""
    return serving(policy, heartbeat_ns=NS_PER_S, **options)


class NarrowSinePolicy(SinePolicy):
    """As the other, but it takes one sampler only."""

    def __init__(self) -> None:
        super().__init__()
        self.info = replace(self.info, capabilities=Capabilities())


class OtherSinePolicy(SinePolicy):
    """Chunks of the same numbers, made for something else."""

    name = "another sine"


class OtherTaskSinePolicy(SinePolicy):
    """As it was called, but for another task."""

    def __init__(self) -> None:
        super().__init__()
        self.info = replace(self.info, tasks=("wipe",))


def runner_for(client, **overrides):
    clock = MonotonicClock()
    fields = {
        "robot": Robot(arm=IdealArm(clock=clock), gripper=IdealGripper(), limits=FR3_LIMITS),
        "duration_s": LONG_S,
        "clock": clock,
        "control_hz": 100.0,
        "keep_ticks": None,
    }
    config, method = RunConfig(**(fields | overrides)), method_named("time-aligned")
    return Runner(config, client, client.wait_until_ready(10.0), method=method)


def speeds(record):
    q = np.array([tick.command.arm.q for tick in record.ticks])
    t_s = np.array([tick.now_ns for tick in record.ticks]) / NS_PER_S
    return np.abs(np.diff(q, axis=0)).max(axis=1) / np.diff(t_s)


def assert_rests_at_the_end(record):
    assert record.num_splices > 0
    assert speeds(record).max() > 0.01
    assert record.ticks[-1].mode is Mode.STOP
    assert record.ticks[-1].phase is Phase.REST
    assert speeds(record)[-1] < 0.02


@pytest.mark.parametrize(
    ("other", "what"),
    [(NarrowSinePolicy, "capabilities"), (OtherSinePolicy, "name"), (OtherTaskSinePolicy, "tasks")],
)
def test_a_server_that_comes_back_with_another_policy_ends_the_run_once_the_robot_stands(other, what):
    moving, over = Event(), Event()
    addresses = Queue()

    def serve_one_after_the_other():
        with served(SinePolicy()) as server:
            addresses.put(server.address)
            moving.wait(LONG_S)
        with served(other(), address=server.address):
            over.wait(LONG_S)

    beside = ThreadPoolExecutor(1)
    servers = beside.submit(serve_one_after_the_other)
    with PolicyClient(addresses.get(timeout=LONG_S), schema=FRANKA) as client:
        runner = runner_for(client)
        record = runner.run(on_tick=lambda tick: moving.set() if runner.record.num_ticks == 100 else None)
    over.set()
    servers.result()
    assert "came back with policy" in record.fault
    assert f"its {what} is" in record.fault
    assert_rests_at_the_end(record)


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        ("observe", ZeroDivisionError),
        ("on_tick", ZeroDivisionError),
        ("should_stop", ZeroDivisionError),
        ("on_tick", SystemExit),
        ("on_tick", KeyboardInterrupt),
    ],
)
def test_an_error_of_a_callback_goes_out_once_the_robot_stands(where, kind):
    calls = 0

    def fails_later(answer):
        nonlocal calls
        calls += 1
        if runner.record.num_ticks > 100:
            raise kind("mine")
        return answer

    with served(SinePolicy()) as server, PolicyClient(server.address, schema=FRANKA) as client:
        callbacks = {
            "observe": lambda state: fails_later(Observation(state=state)),
            "on_tick": lambda tick: fails_later(None),
            "should_stop": lambda: fails_later(False),
        }
        ours = {where: callbacks[where]}
        runner = runner_for(client, **(ours if where == "observe" else {}))
        with pytest.raises(kind, match="mine"):
            runner.run(**({} if where == "observe" else ours))
    assert_rests_at_the_end(runner.record)
    assert calls > 0
    assert any(f"comes to rest: {kind.__name__}: mine" in text for _, text in runner.record.log)


def test_a_robot_that_never_moved_says_why():
    class SilentPolicy(SinePolicy):
        def infer(self, request):
            if request.observation.state.t_ns > 0:  # not the warm-up
                time.sleep(2.0)
            return super().infer(request)

    with served(SilentPolicy()) as server, PolicyClient(server.address, schema=FRANKA) as client:
        record = runner_for(client, duration_s=0.5).run()
    assert record.fault.startswith("the robot did not move: the run ended ")
    assert "after the robot had first asked, before the answer came" in record.fault
    assert record.summary()["stalled_s"] > 0.3
