"""A client that runs rows at another rate than they are meant for is found out; one that waits is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.server.gateways.lerobot import RowRate


def told(
    fps: float, *, every: int = 10, wait_s: float = 0.0, chunk: int = 50, meant: float = 30.0
) -> list[float]:
    """What is said of one that shows itself every so many steps, and waits for each chunk."""
    rate = RowRate(1.0 / meant)
    seen = [rate.take(1e9 + step / fps + step // chunk * wait_s, step) for step in range(0, 1000, every)]
    return [found for found in seen if found is not None]


@given(
    fps=st.floats(26.0, 34.0),
    every=st.integers(1, 25),
    wait_s=st.floats(0.0, 2.0),
    chunk=st.sampled_from([50, 100]),
)
def test_waiting_for_rows_is_no_other_rate(fps: float, every: int, wait_s: float, chunk: int):
    assert told(fps, every=every, wait_s=wait_s, chunk=chunk) == []


@pytest.mark.parametrize("fps", [15.0, 50.0, 60.0])
@pytest.mark.parametrize("wait_s", [0.0, 0.5])
def test_another_rate_is_told_once(fps: float, wait_s: float):
    assert told(fps, wait_s=wait_s) == [pytest.approx(fps, rel=1e-3)]


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.integers(0, 2**30)), max_size=40))
def test_whatever_a_client_counts_it_is_told_of_once_at_most(seen):
    rate = RowRate(0.05)
    assert sum(rate.take(*one) is not None for one in seen) <= 1
