"""The figures of a run, from its log."""

import numpy as np
import pytest

from robot_runtime.core.action import Command, JointCommand
from robot_runtime.core.executor import Tick
from robot_runtime.core.limits import Clip
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.timeline import Phase
from robot_runtime.telemetry import RunRecord

TICK = 2_000_000


def record_of(q: np.ndarray, t_ns: np.ndarray) -> RunRecord:
    record = RunRecord()
    for now_ns, joints in zip(t_ns.tolist(), q, strict=True):
        tick = Tick(
            now_ns=now_ns,
            command=Command(arm=JointCommand(q=joints)),
            mode=Mode.RUN,
            cause=Cause.FRESH_CHUNK,
            phase=Phase.PLAN,
            source=None,
            row=None,
            clip=Clip(),
        )
        record.on_tick(tick, None)
    return record


@pytest.mark.parametrize("every", [1, 3])
def test_the_jerk_of_a_cubic_is_its_third_derivative(every):
    t_ns = np.arange(0, 200, every) * TICK
    t_s = t_ns * 1e-9
    q = np.column_stack([2.0 * t_s**3, -5.0 * t_s**3 + t_s**2])
    summary = record_of(q, t_ns).summary()
    assert summary["jerk_mean"] == pytest.approx(30.0, rel=1e-3)  # 6 * 5 of the second joint
    assert summary["jerk_max"] == pytest.approx(30.0, rel=1e-2)


def test_a_run_of_three_ticks_has_no_jerk():
    assert record_of(np.zeros((3, 2)), np.arange(3) * TICK).summary()["jerk_max"] == 0.0
