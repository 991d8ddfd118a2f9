"""What a policy that looks back is shown, whenever it is asked."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from robot_runtime.core.history import PER_SPACING, ObservationHistory
from robot_runtime.core.values.state import Observation
from tests.core.support import observation_at
from tests.examples import examples

SPACING = 100


def history_of(n_obs_steps: int = 3) -> ObservationHistory:
    return ObservationHistory(n_obs_steps=n_obs_steps, spacing_ns=SPACING)


def watch(history: ObservationHistory, times: range) -> None:
    """Note what is due at each of the ticks."""
    for t_ns in times:
        if history.is_due(t_ns):
            history.note(observation_at(t_ns))


def shown(history: ObservationHistory, t_ns: int, n_obs_steps: int = 3) -> list[int]:
    asked = history.asked(observation_at(t_ns))
    return [frame.t_obs_ns for frame in asked.frames(n_obs_steps)]


def test_a_policy_is_shown_frames_one_spacing_apart():
    history = history_of()
    watch(history, range(0, 1000, 5))
    assert shown(history, 1000) == [800, 900, 1000]


def test_a_history_longer_than_the_run_so_far_begins_with_its_oldest_frame_again():
    history = history_of(5)
    assert shown(history, 0, 5) == [0, 0, 0, 0, 0]
    watch(history, range(5, 200, 5))
    assert shown(history, 200, 5) == [0, 0, 0, 100, 200]


def test_what_is_repeated_is_not_carried():
    history = history_of(5)
    assert history.asked(observation_at(0)).history == ()
    watch(history, range(5, 200, 5))
    assert [frame.t_obs_ns for frame in history.asked(observation_at(200)).history] == [0, 100]


def test_after_a_time_of_which_nothing_was_seen_the_run_begins_anew():
    history = history_of()
    watch(history, range(0, 1000, 5))
    assert shown(history, 9000) == [9000, 9000, 9000]


def test_a_short_gap_shows_what_is_nearest():
    history = history_of()
    watch(history, range(0, 1001, 5))
    assert shown(history, 1150) == [950, 1000, 1150]  # 1050 was not seen


def test_a_clock_that_goes_back_begins_anew():
    history = history_of()
    watch(history, range(0, 1000, 5))
    assert shown(history, 500) == [500, 500, 500]


def test_requests_whole_spacings_apart_find_their_frames_exactly_wherever_they_begin():
    history = history_of(4)
    watch(history, range(313))
    shown(history, 313, 4)
    for k in range(1, 20):
        watch(history, range(313 + (k - 1) * SPACING + 1, 313 + k * SPACING))
        first = 313 + k * SPACING
        assert shown(history, first, 4)[-2:] == [first - SPACING, first]


@given(
    period=st.integers(1, 25),
    start=st.integers(0, 1000),
    waits=st.lists(st.integers(1, 400), min_size=1, max_size=20),
    n_obs_steps=st.integers(2, 6),
)
@examples(150)
def test_a_frame_is_at_most_an_eighth_of_a_spacing_and_a_tick_off(period, start, waits, n_obs_steps):
    history, t_ns = history_of(n_obs_steps), start
    for wait in waits:
        end_ns = t_ns + wait * period
        watch(history, range(t_ns, end_ns, period))
        t_ns = end_ns
        times = shown(history, t_ns, n_obs_steps)
        for k, frame_ns in enumerate(reversed(times)):
            due_ns = max(t_ns - k * SPACING, start)
            assert abs(frame_ns - due_ns) <= SPACING / PER_SPACING / 2 + period
        assert times == sorted(times)
        assert len(history._frames) <= 2 * PER_SPACING * n_obs_steps


def test_memory_is_bounded_whoever_asks_how_often():
    history = history_of(2)
    for t_ns in range(3_000):
        history.asked(observation_at(t_ns))
    assert len(history._frames) <= 2 * PER_SPACING * 2


def test_after_a_clock_went_back_frames_are_due_by_its_new_time():
    history = history_of()
    watch(history, range(1000, 2000, 5))
    assert history.is_due(100)
    watch(history, range(100, 400, 5))
    assert shown(history, 400) == [200, 300, 400]


def test_a_state_rolled_forward_keeps_what_was_measured_before():
    history = history_of(2)
    watch(history, range(0, 500, 5))
    asked = history.asked(observation_at(500))
    rolled = structs.replace(asked, state=observation_at(580, (1.0, 1.0)).state)
    assert [frame.t_obs_ns for frame in rolled.frames(2)] == [400, 580]


@pytest.mark.parametrize("num_seen", [0, 1, 3])
def test_whoever_shows_less_is_read_as_if_its_oldest_had_stood_before(num_seen: int):
    earlier = tuple(observation_at(t_ns) for t_ns in range(num_seen))
    now = structs.replace(observation_at(10), history=earlier)
    times = [frame.t_obs_ns for frame in now.frames(3)]
    assert times == {0: [10, 10, 10], 1: [0, 0, 10], 3: [1, 2, 10]}[num_seen]
    assert now.frames(1) == (now,)
    assert isinstance(now, Observation)
    assert np.shape(now.frames(3)) == (3,)


@examples(15)
@given(st.integers(2, 16), st.integers(20, 300))
def test_however_often_it_is_asked_frames_lie_a_spacing_apart(n_obs_steps, every_ms):
    history = ObservationHistory(n_obs_steps=n_obs_steps, spacing_ns=1000)
    for t_ms in range(0, 20_000, every_ms):
        seen = history.asked(observation_at(t_ms))
    off = [abs(seen.t_obs_ns - old.t_obs_ns - 1000 * k) for k, old in enumerate(reversed(seen.history), 1)]
    assert len(off) == n_obs_steps - 1
    assert max(off) <= max(125, every_ms / 2)
