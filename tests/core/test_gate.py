"""The command limiter under all kinds of limits and periods: it exceeds none, and reaches its targets."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruckig import InputParameter, OutputParameter, Result, Ruckig

from drivers.fr3 import FR3_LIMITS
from robot_runtime.core.plan.axis_limiter import AxisLimiter
from robot_runtime.core.plan.limits import MotionLimits, SpeedCurve
from tests.examples import examples

PERIODS_S = (0.001, 0.002, 0.004, 0.01, 0.02)


@dataclass(frozen=True)
class Ends:
    """One axis: its limits, its range and the control period."""

    limits: MotionLimits
    low: float
    high: float
    period_s: float

    def limiter(self) -> AxisLimiter:
        low, high = np.array([self.low]), np.array([self.high])
        return AxisLimiter(self.limits, period_s=self.period_s, low=low, high=high)

    @property
    def patience(self) -> int:
        """Periods that are more than enough to get anywhere."""
        v, a, j = (float(x[0]) for x in (self.limits.speed, self.limits.acceleration, self.limits.jerk))
        return int((4.0 * (self.high - self.low) / v + 8.0 * v / a + 16.0 * a / j) / self.period_s) + 200


@st.composite
def axes(draw):
    speed, acceleration = 10.0 ** draw(st.floats(-1.3, 0.7)), 10.0 ** draw(st.floats(0.0, 2.3))
    jerk = acceleration * 10.0 ** draw(st.floats(0.5, 2.7))
    low, width = draw(st.floats(-3.0, 0.0)), 10.0 ** draw(st.floats(-1.2, 0.7))
    limits = MotionLimits(
        speed=np.array([speed]), acceleration=np.array([acceleration]), jerk=np.array([jerk])
    )
    return Ends(limits, low, low + width, draw(st.sampled_from(PERIODS_S)))


def lead(limiter: AxisLimiter, start: list[float], targets) -> np.ndarray:
    """Setpoints from rest at the start, which counts thrice; a target of None brakes."""
    path, before = [start] * 3, start
    for target in targets:
        here = path[-1]
        if target is None:
            path.append(limiter.placed(here, limiter.brake(here)))
            before = path[-1]
            continue
        gap, lag, speed = (
            [b - a for a, b in zip(first, then, strict=True)]
            for first, then in ((here, target), (here, before), (before, target))
        )
        steps, short = limiter.step(here, gap, lag, [d / limiter._dt for d in speed])
        path.append(target if short is None else limiter.placed(here, steps))
        before = target if all(map(math.isfinite, target)) else path[-1]
    return np.array(path)


def assert_within(path: np.ndarray, limits: MotionLimits, period_s: float, low, high) -> None:
    assert np.isfinite(path).all()
    assert ((path >= low) & (path <= high)).all()
    for most in (limits.speed, limits.acceleration, limits.jerk):
        path = np.diff(path, axis=0) / period_s
        assert (np.abs(path) <= most * (1.0 + 1e-9)).all()


places = st.one_of(
    st.floats(-0.3, 1.3), st.sampled_from([0.0, 1.0, math.nan, math.inf, -1.7e308, 1.7e308, 1e9, -1e-9])
)
asked = st.lists(
    st.tuples(st.one_of(st.none(), places), st.floats(-1.5, 1.5), st.integers(1, 120)),
    min_size=1,
    max_size=8,
)


def spread(axis: Ends, pieces) -> list[list[float] | None]:
    """Targets of every period: a share of the range, then on from there at a share of the speed."""
    out: list[list[float] | None] = []
    step = float(axis.limits.speed[0]) * axis.period_s
    for place, speed, count in pieces:
        for k in range(count):
            start = 0.0 if place is None else axis.low + place * (axis.high - axis.low)
            out.append(None if place is None else [start + speed * step * k])
    return out


@examples(40)
@given(axes(), st.floats(0.0, 1.0), asked)
def test_nothing_that_is_asked_for_passes_a_limit(axis, start, pieces):
    limiter, here = axis.limiter(), [axis.low + start * (axis.high - axis.low)]
    path = lead(limiter, here, [*spread(axis, pieces), *[None] * axis.patience])
    assert_within(path, axis.limits, axis.period_s, axis.low, axis.high)
    assert limiter.is_at_rest
    assert path[-1] == path[-2] == path[-3]


@examples(40)
@given(axes(), asked, st.one_of(st.sampled_from([0.0, 1.0, -0.5, 1.5, 1.0 + 1e-9]), st.floats(0.0, 1.0)))
def test_a_target_that_stays_is_reached_or_the_limit_before_it_and_kept(axis, pieces, place):
    limiter = axis.limiter()
    first = spread(axis, pieces)
    target = {0.0: axis.low, 1.0: axis.high}.get(place, axis.low + place * (axis.high - axis.low))
    path = lead(limiter, [0.5 * (axis.low + axis.high)], [*first, *[[target]] * axis.patience])
    assert limiter.is_at_rest
    assert abs(path[-1, 0] - min(max(target, axis.low), axis.high)) <= 1e-9
    assert_within(path, axis.limits, axis.period_s, axis.low, axis.high)


def test_an_axis_beyond_its_range_comes_back_within_its_speed_acceleration_and_jerk():
    """Little jerk for the acceleration: braking on the way back in takes long, and may reverse."""
    limits = MotionLimits(speed=np.array([0.4]), acceleration=np.array([1.5]), jerk=np.array([9.0]))
    axis = Ends(limits, -1.0, 1.0, 0.002)
    for side in (-1.0, 1.0):
        for brakes in range(30, 64):
            targets = [*[[-0.07 * side]] * 26, *[None] * brakes, *[[0.84 * side]] * 7, *[None] * 60]
            assert_comes_back(lead(axis.limiter(), [1.28 * side], targets), axis)


@examples(25)
@given(axes(), st.floats(-6.0, 0.0), st.booleans(), asked, st.floats(0.05, 0.95))
def test_an_axis_that_starts_beyond_its_range_is_led_in_whatever_is_asked_for(
    axis, beyond, is_above, pieces, place
):
    here = axis.high + 10.0**beyond if is_above else axis.low - 10.0**beyond
    limiter, target = axis.limiter(), axis.low + place * (axis.high - axis.low)
    path = lead(limiter, [here], [*spread(axis, pieces), *[[target]] * axis.patience])
    assert_comes_back(path, axis)
    assert limiter.is_at_rest
    assert abs(path[-1, 0] - target) <= 1e-9


def assert_comes_back(path: np.ndarray, axis: Ends) -> None:
    """Within speed, acceleration and jerk, and never farther beyond the range than before."""
    beyond = np.maximum(np.maximum(path - axis.high, axis.low - path), 0.0)
    assert (np.diff(beyond, axis=0) <= 0.0).all()
    assert_within(path, axis.limits, axis.period_s, -math.inf, math.inf)


def planned(axis: Ends, stops: list[float], shares: list[float], share: float) -> list[list[float]]:
    """Samples of a path that rests at each stop, within a share of all limits."""
    given_, out, otg = InputParameter(1), OutputParameter(1), Ruckig(1, axis.period_s)
    given_.max_acceleration = (share * axis.limits.acceleration).tolist()
    given_.max_jerk = (share * axis.limits.jerk).tolist()
    given_.current_position = [stops[0]]
    samples = []
    for stop, speed in zip(stops[1:], shares, strict=False):
        given_.max_velocity = (speed * share * axis.limits.speed).tolist()
        given_.target_position, result = [stop], Result.Working
        while result is Result.Working:
            result = otg.update(given_, out)
            samples.append([min(max(out.new_position[0], axis.low), axis.high)])
            out.pass_to_input(given_)
        given_.current_position, given_.current_velocity, given_.current_acceleration = [stop], [0.0], [0.0]
        samples.append([stop])
    return samples


@given(
    axes(),
    st.lists(st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.0, 1.0)), min_size=2, max_size=4),
    st.lists(st.floats(0.2, 1.0), min_size=4, max_size=4),
)
@examples(60)
def test_what_keeps_to_the_limits_passes_to_the_last_bit(axis, stops, shares):
    ends = {0.0: axis.low, 1.0: axis.high}
    stops = [ends.get(stop, axis.low + stop * (axis.high - axis.low)) for stop in stops]
    samples = planned(axis, stops, shares, 0.99)
    path = lead(axis.limiter(), [stops[0]], samples)
    np.testing.assert_array_equal(path[3:], samples)


@pytest.mark.parametrize("period_s", PERIODS_S)
def test_a_robot_arm_keeps_to_its_speeds_by_position_and_reaches_the_ends_they_leave(period_s):
    rng = np.random.default_rng(3)
    curve, low, high = FR3_LIMITS.dq_curve, FR3_LIMITS.q_min, FR3_LIMITS.q_max
    assert isinstance(curve, SpeedCurve)
    limiter = AxisLimiter(FR3_LIMITS.joints, period_s=period_s, low=low, high=high, curve=curve)
    count = int(0.4 / period_s)
    targets = [rng.choice([low, high, 0.5 * (low + high)], axis=0) for _ in range(8)]
    spread_out = [
        (target + rng.uniform(-0.5, 0.5)).tolist()
        for target in targets
        for _ in range(rng.integers(1, count))
    ]
    path = lead(limiter, (0.5 * (low + high)).tolist(), [*spread_out, *[high.tolist()] * int(8.0 / period_s)])
    assert_within(path, FR3_LIMITS.joints, period_s, low, high)
    v = np.diff(path, axis=0) / period_s
    for at in (path[:-1], path[1:]):
        up = np.maximum(np.sqrt(np.maximum(curve.gain * (curve.high - at), 0.0)) - curve.offset, 0.0)
        down = np.maximum(np.sqrt(np.maximum(curve.gain * (at - curve.low), 0.0)) - curve.offset, 0.0)
        assert (v <= up * (1.0 + 1e-9)).all()
        assert (-v <= down * (1.0 + 1e-9)).all()
    ends = np.minimum(high, curve.high - curve.offset**2 / curve.gain)
    np.testing.assert_allclose(path[-1], ends, atol=1e-6)
    assert limiter.is_at_rest


@given(axes(), st.floats(-1.0, 1.0), st.floats(-1.0, 1.0))
def test_from_states_that_have_no_way_for_ruckig_it_brakes(axis, v, a):
    """At |v| = A² / 2J with |a| = A, among others, it has none."""
    limiter = axis.limiter()
    limits, dt = axis.limits, axis.period_s
    most, change = float(limits.acceleration[0]) * dt**2, float(limits.jerk[0]) * dt**3
    part = limiter._axes[0]
    part.s, part.b = 0.5 * most * most / change, -most
    if part.s > part.speed:
        part.s, part.b = v * part.speed, a * part.acceleration
    here = [0.5 * (axis.low + axis.high)]
    for _ in range(axis.patience):
        here = [here[0] + limiter.brake(here)[0]]
    assert limiter.is_at_rest


@pytest.mark.parametrize("share", [1e-300, 1e-30, 1e-9, 1e9, 1e30, 1e300])
@pytest.mark.parametrize("other", [1e-300, 1.0, 1e300])
def test_extreme_limits_never_raise(share, other):
    limits = MotionLimits(
        speed=np.array([1.0, other]), acceleration=np.array([share, other]), jerk=np.array([other, share])
    )
    for low, high in ((None, None), (np.full(2, -1.0), np.full(2, 1.0))):
        limiter = AxisLimiter(limits, period_s=0.002, low=low, high=high)
        path = lead(limiter, [0.0, 0.0], [[0.3, -2.0]] * 30 + [None] * 30 + [[1e308, -1e308]] * 30)
        assert np.isfinite(path).all()


@pytest.mark.parametrize("far", [1e3, 1e4, 1e6])
def test_far_from_the_origin_the_rounding_of_setpoints_does_not_pass_a_limit(far):
    limits = MotionLimits(speed=np.array([0.8]), acceleration=np.array([1.0]), jerk=np.array([20.0]))
    limiter = AxisLimiter(limits, period_s=0.002)
    path = lead(limiter, [far], [[far + 1.0]] * 2000 + [None] * 500 + [[far]] * 2000)
    assert_within(path, limits, 0.002, -math.inf, math.inf)
    assert limiter.is_at_rest
    assert path[-1] == far
