"""One target per period, and the record of it."""

import numpy as np

from robot_runtime.core.safety import Mode
from robot_runtime.core.values.action import Command, GripperCommand, JointCommand
from scripts.lab.baselines.held_target import Cycle, PoppedRow, ZeroOrderHold
from sim.scene.kinematics import Q_HOME

MS = 1_000_000
HOME = np.array(Q_HOME)
START = Command(arm=JointCommand(q=HOME), gripper=GripperCommand(width=0.04))


def cycle(offset: float, *, request: int, row: int, t_obs_ms: int = 0) -> Cycle:
    popped = PoppedRow(request_id=request, row=row, t_obs_ns=t_obs_ms * MS, jump=0.25)
    return Cycle(target=np.array([*(HOME + offset), 0.08]), popped=popped)


def test_the_arm_goes_to_the_target_and_stays_there_when_nothing_is_sent():
    arm = ZeroOrderHold(START, 50 * MS)
    arm.on_cycle(cycle(0.02, request=0, row=0), 0)
    for now_ns in range(0, 500 * MS, 2 * MS):
        tick = arm.tick(now_ns)
    np.testing.assert_allclose(tick.command.arm.q, HOME + 0.02, atol=1e-9)
    assert tick.mode is Mode.RUN
    arm.on_cycle(Cycle(target=None, popped=None), 500 * MS)
    tick = arm.tick(500 * MS)
    np.testing.assert_allclose(tick.command.arm.q, HOME + 0.02, atol=1e-9)
    assert tick.mode is Mode.HOLD
    assert arm.counts.starved_ticks == 1


def test_a_jump_of_the_target_is_a_ramp_within_the_limits():
    arm = ZeroOrderHold(START, 50 * MS)
    arm.tick(0)
    arm.on_cycle(cycle(0.3, request=0, row=0), 0)
    tick = arm.tick(2 * MS)
    assert 0 < np.abs(tick.command.arm.q - HOME).max() < 0.01
    assert tick.clip


def test_a_splice_is_the_first_row_of_another_chunk():
    arm = ZeroOrderHold(START, 50 * MS)
    arm.on_cycle(cycle(0.0, request=0, row=3, t_obs_ms=0), 150 * MS)
    first = arm.last_splice
    arm.on_cycle(cycle(0.0, request=0, row=4, t_obs_ms=0), 200 * MS)
    assert arm.last_splice is first
    arm.on_cycle(cycle(0.0, request=1, row=2, t_obs_ms=150), 250 * MS)
    splice = arm.last_splice
    assert splice.latency_ns == 100 * MS
    assert splice.t0_ns == 150 * MS
    assert (splice.seam.first_row, splice.seam.jump) == (2, 0.25)
    assert arm.counts.skipped_rows == 3 + 2


def test_rows_meant_for_before_a_chunk_came_are_not_fresh():
    arm = ZeroOrderHold(START, 50 * MS)
    arm.on_cycle(cycle(0.0, request=0, row=0), 0)
    assert arm.last_splice.first_fresh_row == 0
    arm.on_cycle(cycle(0.0, request=1, row=0, t_obs_ms=0), 390 * MS)
    assert arm.last_splice.first_fresh_row == 8  # meant for 400 ms
