"""The bound of reaction times is what events at random give."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.lab.scores import Reaction

DURATIONS = st.floats(1e-3, 10.0)


@given(ttfa=DURATIONS, interval=DURATIONS, n=st.integers(1, 30), seed=st.integers(0, 1000))
def test_equal_answers_bound_the_reactions_to_events_at_random(
    ttfa: float, interval: float, n: int, seed: int
) -> None:
    """A robot that observes every interval, and events anywhere: no formula but the sequence of events."""
    bound = Reaction.bound([(interval, ttfa)] * n)
    events = np.random.default_rng(seed).uniform(0.0, 1000 * interval, size=4000)
    reactions = np.ceil(events / interval) * interval + ttfa - events
    assert reactions.min() >= bound.best_s * (1 - 1e-9) - 1e-9
    assert reactions.max() <= bound.worst_s * (1 + 1e-9)
    assert reactions.mean() == pytest.approx(bound.mean_s, abs=0.03 * interval)
    assert np.quantile(reactions, 0.95) == pytest.approx(bound.p95_s, abs=0.06 * interval)


def test_an_event_falls_into_a_long_interval_more_often() -> None:
    bound = Reaction.bound([(0.1, 0.0), (0.3, 0.0)])
    assert bound.mean_s == pytest.approx((0.1 * 0.05 + 0.3 * 0.15) / 0.4)
