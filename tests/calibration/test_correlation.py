"""The lag between two signals, and whether it can be trusted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.correlation import along, lag_between
from calibration.latency import latency_of
from robot_runtime.errors import InvalidValueError
from tests.examples import examples


def wander(t_s: np.ndarray, seed: int, columns: int = 1) -> np.ndarray:
    """A smooth signal without a period, the same function of time for the same seed."""
    rng = np.random.default_rng(seed)
    hz, phase = rng.uniform(0.3, 3.0, (2, 12, columns)) * np.array([1.0, 2.0])[:, None, None]
    return np.sin(2 * np.pi * hz * t_s[:, None, None] + phase).sum(axis=1)


@given(st.integers(0, 1000), st.floats(-0.8, 0.8), st.sampled_from([30.0, 60.0, 200.0]), st.integers(1, 3))
@examples(20)
def test_a_lag_is_found_between_the_samples_despite_drift_offset_and_noise(seed, lag_s, rate_hz, columns):
    rng = np.random.default_rng(seed)
    a_s = np.arange(0.0, 8.0, 0.005)
    b_s = np.arange(0.0, 8.0, 1.0 / rate_hz) + rng.uniform(0.0, 0.004)
    b = 2.0 * wander(b_s - lag_s, seed, columns) + 3.0 + 0.2 * b_s[:, None]
    found = lag_between(
        a_s,
        wander(a_s, seed, columns),
        b_s,
        b + rng.normal(0.0, 0.1, b.shape),
        earliest_s=-1.0,
        latest_s=1.0,
        step_s=0.01,
    )
    assert abs(found.lag_s - lag_s) < 0.003
    assert abs(found.gain - 2.0) < 0.1
    assert found.peak_ratio > 1.1
    assert not found.is_at_end


@given(st.integers(0, 1000), st.integers(-15, 370))
@examples(20)
def test_a_stretch_is_found_where_it_was_cut_out_though_half_of_it_lies_outside(seed, begin):
    long = wander(np.arange(-1.0, 5.0, 0.01), seed)[:, 0]
    stretch = 3.0 * long[100 + begin : 130 + begin] + 2.0
    found = along(stretch, long[100:500])
    assert int(np.argmax(found)) == begin + 15
    assert found.max() == pytest.approx(1.0)


def test_a_motion_that_repeats_itself_fits_at_several_delays_and_is_told_so():
    t_s = np.arange(0.0, 4.0, 0.002)
    found = latency_of(t_s, np.sin(2 * np.pi * 4.0 * t_s), t_s, np.sin(2 * np.pi * 4.0 * (t_s - 0.1)))
    assert "several delays" in found.problem


def test_what_moves_before_its_command_is_a_fault_of_the_clocks():
    t_s = np.arange(0.0, 4.0, 0.002)
    assert "clocks differ" in latency_of(t_s, wander(t_s, 1), t_s, wander(t_s + 0.05, 1)).problem
    with pytest.raises(InvalidValueError, match="at the end"):
        latency_of(t_s, wander(t_s, 1), t_s, wander(t_s - 0.7, 1))


def test_what_does_not_follow_or_overlap_has_no_delay():
    t_s = np.arange(0.0, 4.0, 0.01)
    noise = np.random.default_rng(0).normal(size=(len(t_s), 1))
    assert "does not follow" in latency_of(t_s, wander(t_s, 1), t_s, noise).problem
    with pytest.raises(InvalidValueError, match="nothing in common"):
        latency_of(t_s, wander(t_s, 1), t_s + 10.0, wander(t_s, 1))
    with pytest.raises(InvalidValueError, match="nothing moved"):
        latency_of(t_s, wander(t_s, 1), t_s, np.ones((len(t_s), 1)))
    with pytest.raises(InvalidValueError, match="times have to rise"):
        latency_of(t_s, wander(t_s, 1), t_s[::-1], wander(t_s, 1))
