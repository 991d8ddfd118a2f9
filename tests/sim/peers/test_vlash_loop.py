"""Our row for VLASH's fixed overlap sends what VLASH's own loop sends, at the same instants."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

from drivers.fr3 import FR3_LIMITS
from robot_runtime.core.configuration import Configuration
from robot_runtime.core.executor import Executor
from robot_runtime.core.method.table import METHODS
from robot_runtime.core.plan.limits import MotionLimits
from robot_runtime.core.values.action import ActionSpec, ChunkPart, GripperWidth, JointPosition
from robot_runtime.core.values.state import Observation, RobotState
from sim.scene.kinematics import Q_HOME
from tests.sim.peers.vlash_loop import vlash_loop

MS = 1_000_000
PERIOD_NS, TICK_NS = 50 * MS, 2 * MS
HORIZON = 16


def measure(t_ns: int) -> tuple[np.ndarray, np.ndarray]:
    """What robot and scene are at a time: never where the plan says, so that using it would show."""
    q = np.array(Q_HOME) + 0.002 * np.sin(t_ns / 1e9)
    return np.append(q, 0.04), np.array([t_ns / 1e9])


class RecordingPolicy:
    """Slow waves that start at the state shown and depend on the scene; keeps what it was shown."""

    def __init__(self) -> None:
        self.shown: list[np.ndarray] = []

    def rows(self, state: np.ndarray, scene: np.ndarray) -> np.ndarray:
        self.shown.append(np.concatenate([state, scene]))
        steps = np.arange(1, HORIZON + 1)[:, None]
        rows = state + 0.001 * steps * np.sin(scene[0] + np.arange(8))
        rows[:, -1] = 0.02 + 0.001 * steps[:, 0]
        return rows


OPEN = replace(
    FR3_LIMITS,
    dq_max=np.full(7, 1e6),
    ddq_max=np.full(7, 1e9),
    dddq_max=np.full(7, 1e12),
    dq_curve=None,
    gripper=MotionLimits(speed=np.array([1e3]), acceleration=np.array([1e6]), jerk=np.array([1e9])),
    unusual=True,
)


def vlash_method(*, num_run: int, overlap: int):
    method = METHODS["vlash-fixed-overlap"]
    when = replace(method.request.when, overlap_rows=overlap, execution_horizon=num_run)
    return replace(method, request=replace(method.request, when=when, inference_delay=overlap))


def run_ours(policy, *, num_run, overlap, latency_ns, end_ns) -> dict[int, np.ndarray]:
    """Time to joints and gripper that our executor commands, every 2 ms."""
    spec = ActionSpec(fields=(JointPosition(7), GripperWidth()), horizon=HORIZON, dt_ns=PERIOD_NS)
    executor = Executor(
        Configuration(
            action_spec=spec,
            method=vlash_method(num_run=num_run, overlap=overlap),
            limits=OPEN,
            control_period_ns=TICK_NS,
            hand_pose=lambda q: pin.SE3.Identity(),
        )
    )
    arrivals, sent = [], {}

    def state_at(t_ns: int) -> RobotState:
        q, _ = measure(t_ns)
        return RobotState(
            t_ns=t_ns, q=q[:-1], dq=np.zeros(7), X_BE=pin.SE3.Identity(), gripper_width=float(q[-1])
        )

    executor.reset(state_at(0), 0)
    for now_ns in range(0, end_ns, TICK_NS):
        for part in [part for t_ns, part in arrivals if t_ns == now_ns]:
            executor.on_part(part, now_ns)
        if executor.wants_request(now_ns):
            observation = Observation(state=state_at(now_ns), environment_state=measure(now_ns)[1], task="go")
            request = executor.make_request(observation)
            shown = request.observation.state
            rows = policy.rows(np.append(shown.q, shown.gripper_width), request.observation.environment_state)
            part = ChunkPart(
                request_id=request.request_id, epoch=request.epoch, t_obs_ns=request.observation.t_obs_ns,
                first_row=0, rows=rows, is_last=True,
            )  # fmt: skip
            arrivals.append((now_ns + latency_ns(request.request_id), part))
        command = executor.tick(state_at(now_ns), now_ns).command
        sent[now_ns] = np.append(command.arm.q, command.gripper.width)
    return sent


def late_third(k: int) -> int:
    return (380 if k == 3 else 100) * MS


@pytest.mark.long
@pytest.mark.parametrize(
    ("num_run", "overlap", "latency_ns"),
    [
        (8, 4, lambda k: 30 * MS),  # in good time: the chunk waits for its start
        (8, 4, lambda k: 200 * MS),  # just in time
        (12, 4, lambda k: 100 * MS),
        (8, 4, late_third),  # one is late: the loop stalls, then runs the chunk from its row 0
        (8, 8, lambda k: 150 * MS),  # n = o: looks again as soon as it has switched
        (HORIZON, HORIZON, lambda k: 150 * MS),
    ],
)
def test_our_row_sends_what_vlashs_loop_sends_at_the_same_instants(num_run, overlap, latency_ns):
    theirs_policy, ours_policy, end_ns = RecordingPolicy(), RecordingPolicy(), 4000 * MS
    theirs = vlash_loop(
        theirs_policy.rows,
        measure=measure,
        num_run=num_run,
        overlap=overlap,
        period_ns=PERIOD_NS,
        latency_ns=latency_ns,
        end_ns=end_ns,
    )
    ours = run_ours(ours_policy, num_run=num_run, overlap=overlap, latency_ns=latency_ns, end_ns=end_ns)
    assert len(theirs) > 4 * num_run
    np.testing.assert_allclose(np.array(ours_policy.shown), np.array(theirs_policy.shown), atol=1e-9)
    for action in theirs:
        is_last = action.index == num_run - 1  # comes to rest there, unless the next chunk is there by then
        np.testing.assert_allclose(
            ours[action.t_ns],
            action.action,
            atol=1e-3 if is_last else 1e-9,
            err_msg=f"chunk {action.chunk} row {action.index}",
        )


def test_the_loop_shows_the_last_target_and_not_the_measurement():
    policy = RecordingPolicy()
    sent = vlash_loop(
        policy.rows, measure=measure, num_run=8, overlap=4, period_ns=PERIOD_NS,
        latency_ns=lambda k: 0, end_ns=1000 * MS,
    )  # fmt: skip
    last = next(action.action for action in sent if (action.chunk, action.index) == (0, 7))
    np.testing.assert_array_equal(policy.shown[1][:8], last)
    assert policy.shown[1][8] == pytest.approx(0.2)  # captured at row n - o
