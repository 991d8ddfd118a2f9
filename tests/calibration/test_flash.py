"""The delay of a camera that sees a screen, from pictures of simulated ones whose delay is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.flash import Change, delay_of
from robot_runtime.errors import InvalidValueError
from tests.examples import examples

SECOND = 1_000_000_000


def screen(seed: int, num: int, *, start_ns: int = 5 * SECOND) -> list[Change]:
    """White and black by turns, each for 0.15 to 0.5 s."""
    holds = np.random.default_rng(seed).uniform(0.15, 0.5, num)
    times = start_ns + np.round(np.cumsum(holds) * SECOND).astype(int)
    return [Change(t_ns=int(t), is_on=k % 2 == 0) for k, t in enumerate(times)]


def seen(changes, *, delay_s, period_s, exposure_s, noise=0.0, seed=0) -> tuple[list[int], list[float]]:
    """Stamps, and the share of each exposure in which the screen was white, from 40 to 200, with noise."""
    rng = np.random.default_rng(seed)
    begin, end = changes[0].t_ns / SECOND - 1.0, changes[-1].t_ns / SECOND + 1.0
    stamps = np.arange(begin + rng.uniform(0, period_s), end, period_s)
    inside = np.linspace(-0.5, 0.5, 41) * exposure_s
    at = np.array([change.t_ns / SECOND for change in changes]) + delay_s
    is_on = np.searchsorted(at, stamps[:, None] + inside, side="right") % 2 == 1
    values = 40 + 160 * is_on.mean(1) + noise * rng.standard_normal(len(stamps))
    return [round(t * SECOND) for t in stamps], values.tolist()


@given(
    st.integers(0, 2**32 - 1),
    st.floats(-0.05, 0.8),
    st.sampled_from([15.0, 30.0, 60.0]),
    st.floats(0.05, 1.0),
    st.floats(0.0, 10.0),
)
@examples(30)
def test_it_is_found_to_a_fraction_of_a_picture_s_period(seed, delay_s, hz, open_share, noise):
    changes, period_s = screen(seed, 60), 1.0 / hz
    stamps, values = seen(
        changes, delay_s=delay_s, period_s=period_s, exposure_s=open_share * period_s, noise=noise, seed=seed
    )
    found = delay_of(changes, stamps, values)
    assert found.median_s == pytest.approx(delay_s, abs=0.3 * period_s)
    assert found.spread_s <= period_s
    assert found.num_changes >= 50


def test_a_screen_that_is_told_twice_what_it_shows_has_changed_once():
    changes = screen(1, 30)
    twice = [c for change in changes for c in (change, Change(t_ns=change.t_ns + 1000, is_on=change.is_on))]
    stamps, values = seen(changes, delay_s=0.1, period_s=1 / 30, exposure_s=0.01)
    assert delay_of(twice, stamps, values) == delay_of(changes, stamps, values)


@given(st.integers(0, 2**32 - 1))
@examples(20)
def test_a_camera_that_looks_elsewhere_has_no_delay(seed):
    changes = screen(seed, 40)
    stamps, values = seen(changes, delay_s=0.1, period_s=1 / 30, exposure_s=0.01)
    with pytest.raises(InvalidValueError, match="does not change"):
        delay_of(changes, stamps, [7.0] * len(values))
    with pytest.raises(InvalidValueError, match="does not follow"):
        delay_of(changes, stamps, np.random.default_rng(seed).uniform(0, 255, len(values)).tolist())


def test_a_screen_that_changes_in_step_is_refused():
    changes = [Change(t_ns=k * SECOND // 5, is_on=k % 2 == 0) for k in range(60)]
    stamps, values = seen(changes, delay_s=0.1, period_s=1 / 30, exposure_s=0.01)
    with pytest.raises(InvalidValueError, match="too regularly"):
        delay_of(changes, stamps, values)


def test_too_few_or_wrong_numbers_are_said():
    changes = screen(0, 20)
    stamps, values = seen(changes, delay_s=0.1, period_s=1 / 30, exposure_s=0.01)
    with pytest.raises(InvalidValueError, match="9 changes of the screen are too few"):
        delay_of(changes[:9], stamps, values)
    with pytest.raises(InvalidValueError, match="at least 20 images"):
        delay_of(changes, stamps[:5], values[:5])
    with pytest.raises(InvalidValueError, match="at least 20 images"):
        delay_of(changes, stamps, values[1:])
    with pytest.raises(InvalidValueError, match="finite"):
        delay_of(changes, stamps, [float("nan"), *values[1:]])
    with pytest.raises(InvalidValueError, match="rise"):
        delay_of(changes, stamps[::-1], values)
    with pytest.raises(InvalidValueError, match="order of time"):
        delay_of(changes[::-1], stamps, values)
    with pytest.raises(InvalidValueError, match="images lie from 1 s after"):
        delay_of(changes, stamps[:60], values[:60])
