"""Latency traces: seeded, the same for everybody, and told by the time of capture."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.values.action import NS_PER_MS
from robot_runtime.errors import InvalidValueError, UnknownNameError
from robot_runtime.evaluation.traces import (
    LOST,
    SLOT_NS,
    LatencyTrace,
    cold_start,
    constant,
    find_trace,
    lognormal,
    loss_bursts,
    spikes,
    standard_traces,
)


@pytest.mark.parametrize("make", [lognormal, spikes, loss_bursts])
def test_the_seed_decides_a_trace(make):
    assert make(seed=1).fingerprint == make(seed=1).fingerprint
    assert make(seed=1).fingerprint != make(seed=2).fingerprint


@pytest.mark.parametrize("name", sorted(standard_traces()))
def test_a_trace_comes_back_from_its_file_as_it_was(name, tmp_path):
    trace = standard_traces()[name]
    trace.save(tmp_path / "trace.json")
    again = LatencyTrace.load(tmp_path / "trace.json")
    assert again.fingerprint == trace.fingerprint
    assert (again.name, again.starts_with_episode) == (trace.name, trace.starts_with_episode)
    assert find_trace(str(tmp_path / "trace.json")).fingerprint == trace.fingerprint


@given(t_ns=st.integers(0, 60_000 * NS_PER_MS), seed=st.integers(0, 10**9))
def test_the_delay_depends_on_the_time_of_capture_alone(t_ns, seed):
    trace = spikes()
    offset_ns = trace.offset_ns(seed)
    assert offset_ns % SLOT_NS == 0
    slot_start_ns = t_ns - t_ns % SLOT_NS
    assert trace.delay_ns(offset_ns + t_ns) == trace.delay_ns(offset_ns + slot_start_ns)
    assert trace.delay_ns(offset_ns + t_ns) in (100 * NS_PER_MS, 600 * NS_PER_MS)


def test_a_trace_starts_anew_when_it_ends():
    trace = LatencyTrace(name="two", delays_ns=np.array([1, 2]))
    assert [trace.delay_ns(i * SLOT_NS) for i in range(4)] == [1, 2, 1, 2]


def test_episodes_begin_at_different_places_of_a_trace():
    assert len({lognormal().offset_ns(seed) for seed in range(50)}) > 40


def test_spikes_have_the_share_they_say():
    share = (spikes().delays_ns == 600 * NS_PER_MS).mean()
    assert share == pytest.approx(0.05, abs=0.015)  # 2400 slots: three standard deviations


def test_lognormal_delays_have_the_median_they_say():
    assert np.median(lognormal(median_ms=200.0).delays_ns) == pytest.approx(200 * NS_PER_MS, rel=0.03)


def test_bursts_of_loss_are_as_long_and_as_rare_as_they_say():
    lost = np.concatenate([[False], loss_bursts(every_s=4.0, longest_s=0.5).delays_ns == LOST, [False]])
    starts, ends = np.flatnonzero(~lost[:-1] & lost[1:]), np.flatnonzero(lost[:-1] & ~lost[1:])
    lengths = ends - starts
    assert lengths.min() >= 1
    assert lengths.max() <= 10
    assert 15 < len(lengths) < 50  # of 120 s / (4 s + 0.275 s) = 28


def test_a_cold_server_answers_nothing_before_it_is_warm():
    trace = cold_start(base_ms=100.0, ready_s=1.5)
    assert trace.offset_ns(seed=7) == 0
    for t_ns in range(0, 3_000 * NS_PER_MS, SLOT_NS):
        assert t_ns + trace.delay_ns(t_ns) >= 1_500 * NS_PER_MS
    assert trace.delay_ns(100_000 * NS_PER_MS) == 100 * NS_PER_MS


def test_the_deadline_is_twice_the_99th_percentile_and_at_least_a_second():
    assert constant(0.0).deadline_ns == 1_000 * NS_PER_MS
    assert spikes().deadline_ns == 1_200 * NS_PER_MS
    assert loss_bursts().deadline_ns == 1_000 * NS_PER_MS


def test_a_trace_is_found_by_its_name_or_its_number():
    assert find_trace("spikes").fingerprint == spikes().fingerprint
    assert find_trace("250ms").fingerprint == constant(250.0).fingerprint
    with pytest.raises(UnknownNameError, match="'jitter'; valid: <number>ms, cold-start, lognormal"):
        find_trace("jitter")


def test_what_is_no_trace_is_refused(tmp_path):
    with pytest.raises(InvalidValueError, match="at least one answered slot"):
        LatencyTrace(name="dead", delays_ns=np.array([LOST, LOST]))
    with pytest.raises(InvalidValueError, match="delays >= 0"):
        constant(-1.0)
    (tmp_path / "x.json").write_text('{"format": 9}')
    with pytest.raises(InvalidValueError, match="expected trace format 1, found 9"):
        find_trace(str(tmp_path / "x.json"))
