"""What is wrong with LeRobot 0.6.1's engine, one test each: when upstream repairs it, the test says so.

They pin the version we compare with: a failure here is good news, and a reason to compare again.
"""

import math

import pytest
import torch

from scripts.lab.baselines.lerobot_import import lerobot_problem

if lerobot_problem() is not None:
    pytest.skip(str(lerobot_problem()), allow_module_level=True)

from lerobot.policies.rtc import ActionQueue, LatencyTracker, RTCConfig, RTCProcessor

from scripts.lab.baselines.lerobot_import import rtc_engine_module


def test_one_spike_sets_the_delay_for_the_rest_of_the_episode():
    tracker = LatencyTracker(maxlen=5)
    tracker.add(5.0)
    for _ in range(50):
        tracker.add(0.1)
    assert len(tracker) == 5
    assert tracker.p95() == pytest.approx(0.1)
    assert tracker.max() == 5.0  # what the engine asks: the window is ignored


def test_a_short_left_over_is_filled_up_with_zeros_that_guide():
    fill = rtc_engine_module()._normalize_prev_actions_length
    padded = fill(torch.ones(3, 2), 10)
    assert padded.shape == (10, 2)
    assert (padded[:3] == 1).all()
    assert (padded[3:] == 0).all()
    weights = RTCProcessor(RTCConfig()).get_prefix_weights(2, 10, 32)
    assert (weights[3:10] > 0).all()


def test_nothing_left_over_is_a_prefix_of_zeros_and_not_none():
    padded = rtc_engine_module()._normalize_prev_actions_length(torch.zeros(0, 2), 10)
    assert padded.shape == (10, 2)


def test_a_seam_beyond_the_constant_execution_horizon_is_not_guided():
    config = RTCConfig()
    assert config.execution_horizon == 10
    weights = RTCProcessor(config).get_prefix_weights(12, config.execution_horizon, 50)
    assert weights[9] == 1.0
    assert weights[12] == 0.0  # the first row that runs


def test_a_cold_start_begins_in_the_middle_of_the_first_chunk():
    queue = ActionQueue(RTCConfig())
    rows = torch.arange(50.0)[:, None]
    queue.merge(rows, rows, 21, 0)
    first = queue.get()
    assert first is not None
    assert first.item() == 21.0  # nothing ran meanwhile: row 0 was due


def test_the_queue_is_cut_by_the_clock_and_not_by_what_was_sent():
    queue = ActionQueue(RTCConfig())
    rows = torch.arange(50.0)[:, None]
    queue.merge(rows, rows, 0, 0)
    for _ in range(3):
        queue.get()
    queue.merge(rows, rows, 5, 0)  # three rows went out, the clock says five
    first = queue.get()
    assert first is not None
    assert first.item() == 5.0


def test_the_jacobian_is_the_identity():
    matrix = torch.tensor([[0.5, -1.0], [2.0, 0.3]])
    processor, time = RTCProcessor(RTCConfig(max_guidance_weight=1.0)), 0.5
    x, left_over = torch.randn(1, 4, 2, generator=torch.Generator().manual_seed(0)), torch.ones(1, 4, 2)
    v = x @ matrix
    guided = processor.denoise_step(x, left_over, 4, time, lambda rows: rows @ matrix, execution_horizon=4)
    error = left_over - (x - time * v)
    torch.testing.assert_close(guided, v - error)  # weight 1
    exact = error @ (torch.eye(2) - time * matrix).T
    assert not math.isclose(float((exact - error).abs().max()), 0.0, abs_tol=0.1)
