"""The brake of one axis: what its closed forms say is what it does, and it always ends at rest."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.plan.braking import Brake

shares = st.one_of(st.floats(-1.0, 1.0), st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]))


@st.composite
def states(draw):
    """A brake, and a speed and an acceleration within what it may be."""
    change = 10.0 ** draw(st.floats(-9.0, 0.0))
    brake = Brake(change * 10.0 ** draw(st.floats(-0.3, 2.0)), change)
    speed = brake.ramp * 10.0 ** draw(st.floats(-3.0, 0.7))
    return brake, speed * draw(shares), brake.most * draw(shares)


def braked(brake: Brake, s: float, b: float) -> tuple[list[float], list[float]]:
    """Speeds and accelerations until rest, from a state of motion."""
    speeds, accelerations = [s], [b]
    while s or b:
        b = brake.next(s, b)
        s += b
        speeds.append(s)
        accelerations.append(b)
        assert len(speeds) < 10_000
    return speeds, accelerations


@given(states())
def test_it_ends_at_exactly_nothing_and_keeps_acceleration_and_jerk(state):
    brake, s, b = state
    speeds, accelerations = braked(brake, s, b)
    assert (speeds[-1], accelerations[-1]) == (0.0, 0.0)
    for before, after in pairwise(accelerations):
        assert abs(after) <= brake.most * (1.0 + 1e-12)
        assert abs(after - before) <= brake.change * (1.0 + 1e-12)


@given(states())
def test_the_reach_is_as_far_as_it_gets(state):
    brake, s, b = state
    gone, reach = 0.0, 0.0
    for speed in braked(brake, s, b)[0][1:]:
        gone += speed
        reach = max(reach, gone)
    assert brake.reach(s, b) == pytest.approx(reach, rel=1e-9, abs=1e-12 * (abs(s) + brake.most))


@given(states())
def test_the_peak_is_the_highest_speed(state):
    brake, s, b = state
    highest = max(braked(brake, s, b)[0])
    if highest > 1e-12 * abs(s):
        assert brake.peak(s, b) == pytest.approx(highest, rel=1e-9)


@given(states(), st.lists(st.floats(-1.0, 1.0), min_size=400, max_size=400))
def test_no_other_way_to_a_stand_is_slower_in_any_period(state, draws):
    brake, s, b = state
    other_s, other_b = s, b
    speeds = braked(brake, s, b)[0]
    if min(speeds) < 0.0:
        return  # turns round
    for speed, draw in zip(speeds[1:], draws, strict=False):
        least = brake.next(other_s, other_b)
        other_b = max(min(other_b + draw * brake.change, brake.most), least)
        other_s += other_b
        assert other_s >= speed - 1e-12 * brake.most


@pytest.mark.parametrize("s", [1e-300, 5e-324, 1e300, 0.0, -1e-200])
@pytest.mark.parametrize(("most", "change"), [(1e-300, 1e-300), (1e300, 1e-300), (1.0, 1e300), (0.0, 0.0)])
def test_absurd_numbers_do_not_raise(s, most, change):
    brake = Brake(most, change)
    for b in (0.0, brake.most, -brake.most):
        assert abs(brake.next(s, b) - b) <= brake.change
        assert math.isfinite(brake.peak(s, b))
