import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.method.sampler_parts import ConstantSchedule, HorizonAwareSchedule
from robot_runtime.core.method.schedule import answer_rows, finish_steps, flow_times

PUBLISHED = HorizonAwareSchedule(alpha=0.6, num_steps=10)
SCHEDULES = st.builds(
    HorizonAwareSchedule,
    alpha=st.floats(0.2, 2.0),
    u0=st.none() | st.floats(0.0, 0.95),
    num_steps=st.integers(1, 20),
)


@pytest.mark.parametrize(
    ("num_rows", "num_calls"), [(1, 1), (2, 2), (3, 3), (4, 3), (8, 4), (10, 5), (25, 8), (30, 8), (47, 10)]
)
def test_the_published_calls_finish_the_first_rows(num_rows: int, num_calls: int) -> None:
    steps = finish_steps(PUBLISHED, horizon=50, inference_delay=3)
    assert steps[3 + num_rows - 1] == num_calls


@pytest.mark.parametrize(
    ("part", "horizon", "inference_delay", "steps"),
    [
        (PUBLISHED, 50, 0, [1, 2, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 5, 6, 6, 6]),
        (PUBLISHED, 50, 3, [1, 2, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6]),
        (PUBLISHED, 50, 8, [1, 2, 3, 3, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 6]),
        (HorizonAwareSchedule(alpha=0.7), 30, 2, [1, 2, 3, 3, 4, 4, 5, 5, 5, 6, 6, 6, 7, 7, 7, 7]),
        (PUBLISHED, 10, 0, [1, 4, 5, 6, 7, 8, 9, 9, 10, 10]),
        (HorizonAwareSchedule(num_steps=5), 8, 1, [1, 3, 4, 4, 5, 5, 5]),
    ],
)
def test_every_row_is_finished_after_the_published_call(
    part: HorizonAwareSchedule, horizon: int, inference_delay: int, steps: list[int]
) -> None:
    ours = finish_steps(part, horizon=horizon, inference_delay=inference_delay)
    assert ours[inference_delay:][: len(steps)].tolist() == steps
    assert ours[:inference_delay].tolist() == [0] * inference_delay


@given(part=SCHEDULES, horizon=st.integers(1, 60), share=st.floats(0.0, 1.0))
def test_times_follow_the_published_formula_with_time_turned_round(
    part: HorizonAwareSchedule, horizon: int, share: float
) -> None:
    """tau_i(rho) = clip((rho - u_i) / (1 - u_i), 0, 1), u_i = (1 - q_i^alpha) u0; 0 on the prefix."""
    d = int(share * (horizon - 1))
    ours = flow_times(part, horizon=horizon, inference_delay=d)
    u0 = (part.num_steps - 1) / part.num_steps if part.u0 is None else part.u0
    for step in range(part.num_steps + 1):
        rho = 1.0 - step / part.num_steps
        for i in range(horizon):
            u = (1.0 - (max(i - d, 0) / max(horizon - 1 - d, 1)) ** part.alpha) * u0
            tau = 0.0 if i < d else min(max((rho - u) / (1.0 - u), 0.0), 1.0)
            assert ours[step, i] == pytest.approx(1.0 - tau, abs=1e-7)


@given(part=SCHEDULES, horizon=st.integers(2, 60), share=st.floats(0.0, 1.0))
def test_rows_finish_in_order_and_exactly_when_they_are_said_to(
    part: HorizonAwareSchedule, horizon: int, share: float
) -> None:
    d = int(share * (horizon - 1))
    steps = finish_steps(part, horizon=horizon, inference_delay=d)
    times = flow_times(part, horizon=horizon, inference_delay=d)
    assert (np.diff(steps) >= 0).all()
    assert (np.diff(times, axis=0) >= 0.0).all()
    assert np.array_equal((times < 1.0).sum(axis=0), steps)


def test_an_early_stop_ends_with_the_step_that_finished_the_rows_asked_for() -> None:
    def num_rows(asked_for: int, d: int = 3) -> int:
        part = HorizonAwareSchedule(early_stop_rows=asked_for)
        return answer_rows(part, horizon=50, inference_delay=d)

    assert num_rows(1) == 3 + 1
    assert num_rows(3) == 3 + 4  # the third call finishes two rows
    assert num_rows(8) == 3 + 8
    assert num_rows(47) == num_rows(1000) == 50
    assert answer_rows(PUBLISHED, horizon=50) == 50
    assert answer_rows(ConstantSchedule(), horizon=50, inference_delay=3) == 50
