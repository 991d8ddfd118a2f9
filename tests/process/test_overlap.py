"""Several requests in flight between a real robot loop and a real server."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from continuing import STEP, ContinuingPolicy

from drivers.fr3 import FR3_LIMITS
from drivers.ideal import IdealArm, IdealGripper
from policies.scripted import FRANKA
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.method.request_parts import FixedExecutionHorizon, PreviousChunk
from robot_runtime.core.method.table import METHODS
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.safety import Mode
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.robot.client import PolicyClient
from robot_runtime.robot.config import RunConfig
from robot_runtime.robot.link import SERVER_BACK, SERVER_LOST
from robot_runtime.robot.probe import latency_for
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.runner import Runner
from robot_runtime.robot.telemetry import RunRecord
from robot_runtime.wire.events import Event, PartReceived, RequestFailed
from robot_runtime.wire.messages import Dropped
from tests.process.waiting import wait_until

pytestmark = [pytest.mark.usefixtures("patient_time"), pytest.mark.real_time]

METHOD = replace(
    METHODS["committed-prefix"], request=PreviousChunk(when=FixedExecutionHorizon(rows=1, max_in_flight=8))
)
DT_NS = ContinuingPolicy().info.action_spec.dt_ns


class NotedClient(PolicyClient):
    """Keeps what was asked and what came."""

    def __init__(self, *args, **kwargs) -> None:
        self.asked: list[ChunkRequest] = []
        self.came: list[Event] = []
        super().__init__(*args, **kwargs)

    def submit(self, request: ChunkRequest) -> None:
        self.asked.append(request)
        super().submit(request)

    def events(self) -> list[Event]:
        events = super().events()
        self.came += events
        return events

    def ends(self) -> list[tuple[int, int]]:
        """(request id, epoch) of every end, in order."""
        out = []
        for event in self.came:
            match event:
                case PartReceived(part=part) if part.is_last:
                    out.append((part.request_id, part.epoch))
                case Dropped() | RequestFailed():
                    out.append((event.request_id, event.epoch))
        return out


def setting(clock: MonotonicClock, duration_s: float) -> RunConfig:
    return RunConfig(
        Robot(arm=IdealArm(clock=clock), gripper=IdealGripper(), limits=FR3_LIMITS),
        duration_s=duration_s,
        clock=clock,
    )


def rest_state(clock: MonotonicClock) -> RobotState:
    return setting(clock, 1.0).robot.read()


def answered_in_time(client: NotedClient) -> set[int]:
    """Requests whose answers came before the first row that they had not committed was due."""
    due_ns = {r.request_id: r.observation.t_obs_ns + r.inference_delay * DT_NS for r in client.asked}
    answers = [event for event in client.came if isinstance(event, PartReceived)]
    return {e.part.request_id for e in answers if e.arrived_ns <= due_ns.get(e.part.request_id, 0)}


def errors_against_commands(client: NotedClient, record: RunRecord) -> tuple[np.ndarray, np.ndarray]:
    """How far the committed rows were from what the robot did, (n,) [rad]: as shown, and as asked.

    An answer repeats the committed rows that its policy was shown. Left out are those that were asked while
    another was under way that came later than its committed rows allow: then the robot does something else.
    """
    commands = record.commands()
    times, joint = commands[:, 0], commands[:, 1]
    rows = {e.part.request_id: e.part.rows for e in client.came if isinstance(e, PartReceived)}
    shown, asked, in_time = [], [], answered_in_time(client)
    for request in client.asked:
        d, plan = request.inference_delay, request.prev_action_chunk
        due = request.observation.t_obs_ns + np.arange(d) * DT_NS
        if not request.in_flight or request.request_id not in rows or due[-1] > times[-1]:
            continue
        if not in_time.issuperset(request.in_flight):
            continue
        assert plan is not None
        commanded = np.interp(due.astype(float), times, joint)
        shown.append(np.abs(rows[request.request_id][:d, 0] - commanded).max())
        asked.append(np.abs(plan[:d, 0] - commanded).max())
    return np.array(shown), np.array(asked)


@pytest.mark.long
def test_a_slow_server_answers_every_row_and_its_policy_is_shown_what_the_robot_will_do(start_server):
    clock = MonotonicClock()
    server = start_server(delay_ms=200, policy="continuing")
    with NotedClient(server.address, schema=FRANKA) as client:
        welcome = client.wait_until_ready(20.0)
        latency = latency_for(METHOD, client, welcome, Observation(state=rest_state(clock)), clock)
        config = replace(
            setting(clock, 60.0), control_hz=250.0
        )  # a robot that is late is not where it will be
        runner = Runner(config, client, welcome, method=METHOD, latency=latency)
        record = runner.run(should_stop=lambda: len(client.asked) > 250)
    assert max(len(request.in_flight) for request in client.asked) >= 2
    shown, asked = errors_against_commands(client, record)
    assert len(shown) > 60
    assert np.median(shown) < 0.3 * STEP  # measured: 0.01 to 0.11; 40 if an answer is left out
    assert np.median(asked) > STEP  # what the robot itself knew would have been wrong


def test_a_server_killed_with_several_requests_in_flight_fails_each_once_and_the_robot_resumes(start_server):
    clock = MonotonicClock()
    server = start_server(delay_ms=200, heartbeat_ms=25, policy="continuing")

    def interfere() -> None:
        wait_until(lambda: len(client.asked) > 20 and client.asked[-1].in_flight)
        server.kill()
        last_ns = client.asked[-1].observation.t_obs_ns
        start_server(server.address, policy="continuing")
        wait_until(lambda: (source := runner.record.ticks[-1].source) and source.t_obs_ns > last_ns)

    with NotedClient(server.address, schema=FRANKA) as client:
        welcome = client.wait_until_ready(20.0)
        latency = latency_for(METHOD, client, welcome, Observation(state=rest_state(clock)), clock)
        runner = Runner(setting(clock, 60.0), client, welcome, method=METHOD, latency=latency)
        with ThreadPoolExecutor(1) as beside:
            interference = beside.submit(interfere)
            record = runner.run(should_stop=interference.done)
        interference.result()
    lost_ns = next(t for t, text in record.log if text.startswith(SERVER_LOST))
    back_ns = next(t for t, text in record.log if text.startswith(SERVER_BACK))
    failed = [e for e in client.came if isinstance(e, RequestFailed)]
    assert len(failed) > 1
    assert len(set(client.ends())) == len(client.ends())
    asked = [(r.request_id, r.epoch) for r in client.asked if r.observation.t_obs_ns < lost_ns]
    assert set(asked) <= set(client.ends())
    runs = [tick.source for tick in record.ticks if tick.now_ns > back_ns and tick.mode is Mode.RUN]
    # A server that is back soon finds the plan from before the loss still running: its last rows come first.
    resumed = [source is not None and source.t_obs_ns > lost_ns for source in runs]
    assert any(resumed)
    assert resumed == sorted(resumed)
