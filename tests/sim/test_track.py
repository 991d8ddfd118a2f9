import numpy as np
import pytest

from robot_runtime.core.values.action import Command
from sim.demonstrations.demonstrations import run_expert
from sim.tasks.track import MIN_SEGMENT_S, REGION_MAX, REGION_MIN, draw_segment

MS = 1_000_000


def test_target_stays_in_its_region(track_world):
    for seed in range(10):
        track_world.reset(seed)
        points = np.array(
            [track_world.task.segments.at(t * 20 * MS).position(t * 20 * MS) for t in range(500)]
        )
        assert (points > REGION_MIN - 1e-9).all()
        assert (points < REGION_MAX + 1e-9).all()


def test_same_past_has_different_futures():
    p_BT = (REGION_MIN + REGION_MAX) / 2
    segments = [draw_segment(0, p_BT, np.random.default_rng(seed)) for seed in range(400)]
    directions = np.array([s.v_BT / np.linalg.norm(s.v_BT) for s in segments])
    assert np.abs(directions.mean(axis=0)).max() < 0.15


def test_time_to_the_next_change_does_not_depend_on_the_time_since_the_last():
    corner = REGION_MIN + 0.02
    segments = [draw_segment(0, corner, np.random.default_rng(seed)) for seed in range(3000)]
    extra = [segment.end_ns / 1e9 - MIN_SEGMENT_S for segment in segments]
    waited = np.array(extra)
    remaining = [np.median(waited[waited > w] - w) for w in (0.0, 0.3, 0.6)]
    assert max(remaining) < 1.25 * min(remaining)  # a memoryless wait has the same median throughout


def test_target_is_the_same_however_it_is_asked_for(track_world):
    track_world.reset(5)
    task = track_world.task
    late_first = [task.segments.at(t).position(t) for t in (9_000 * MS, 3_000 * MS)]
    track_world.reset(5)
    early_first = [task.segments.at(t).position(t) for t in (3_000 * MS, 9_000 * MS)]
    np.testing.assert_array_equal(late_first, early_first[::-1])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.long
def test_expert_without_delay_succeeds(track_world, seed):
    score = run_expert(track_world, seed=900 + seed)
    assert score.success
    assert score.metrics["share_on_target"] > 0.9


def test_hand_that_stays_where_it_is_fails(track_world):
    track_world.reset(1)
    scorer = track_world.task.make_scorer(track_world)
    for t_ns in range(0, 10_000 * MS, 20 * MS):
        track_world.advance_to(t_ns)
        scorer.on_tick(t_ns, track_world, Command(), None)
    assert not scorer.score().success


def test_an_episode_cut_short_before_errors_count_is_no_success(track_world):
    track_world.reset(1)
    score = track_world.task.make_scorer(track_world).score()
    assert not score.success
    assert score.metrics["error_p95_m"] == np.inf
