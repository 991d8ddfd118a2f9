import math
from itertools import pairwise

import numpy as np
import pytest

from robot_runtime.core.values.action import Command
from sim.demonstrations.rollout_robot import execute_row, robot_rollout
from sim.experts import make_expert
from sim.experts.strike import passing
from sim.scene.kinematics import solve_down
from sim.scene.model import DT_NS
from sim.scene.task import EpisodeScore
from sim.tasks.strike import (
    BALL_RADIUS,
    HIT_MAX,
    HIT_MIN,
    HIT_X,
    NET_HALF_WIDTH,
    NET_HEIGHT,
    NET_X,
    P_EP,
    WIDTH,
    StrikeScorer,
    draw_serve,
)

MS = 1_000_000


def place_hand(world, p_blade) -> None:
    world.place_robot(solve_down(np.array([p_blade]) + np.array([0.0, 0.0, P_EP[2]]), np.zeros(1))[0], WIDTH)


def verdict(world, *, p_ball, v_ball, until_ms=1_500) -> EpisodeScore:
    """Score of a ball that flies as given, with the hand at rest far from it unless it was put elsewhere."""
    bounce_ns = world.task.serve.bounce_ns
    world.advance_to(bounce_ns + DT_NS)
    ball = world.data.joint("ball")
    ball.qpos[:3], ball.qvel[:3] = p_ball, v_ball
    scorer = world.task.make_scorer(world)
    for t_ns in range(world.t_ns, world.t_ns + until_ms * MS, DT_NS):
        world.advance_to(t_ns)
        scorer.on_tick(t_ns, world, Command(), None)
        if scorer.is_done:
            break
    return scorer.score()


@pytest.fixture
def world(strike_world):
    strike_world.reset(0)
    place_hand(strike_world, [0.40, 0.0, 0.20])
    return strike_world


def test_ball_that_rebounds_from_the_paddle_over_the_net_is_a_success(world):
    score = verdict(world, p_ball=[0.6, 0.0, 0.2], v_ball=[-2.5, 0.0, 0.2])
    assert score.success
    assert score.metrics["was_struck"]
    assert score.completion_s is not None


def test_ball_that_passes_the_net_without_having_met_the_paddle_is_none(world):
    score = verdict(world, p_ball=[0.6, 0.0, 0.2], v_ball=[2.0, 0.0, 0.2])
    assert not score.success
    assert not score.metrics["was_struck"]


def test_ball_that_falls_short_of_the_net_is_none(world):
    assert not verdict(world, p_ball=[0.6, 0.0, 0.2], v_ball=[-0.5, 0.0, 0.2]).success


def test_ball_that_rebounds_past_the_side_of_the_net_is_none(world):
    place_hand(world, [0.40, 0.3, 0.20])
    score = verdict(world, p_ball=[0.45, 0.27, 0.2], v_ball=[-1.2, 1.0, 0.3])
    assert score.metrics["was_struck"]
    assert not score.success


def test_ball_that_bounces_on_the_table_again_before_it_meets_the_paddle_is_lost(world):
    scorer_score = verdict(world, p_ball=[0.6, 0.0, 0.05], v_ball=[-1.0, 0.0, -0.6])
    assert not scorer_score.success


def test_served_ball_reaches_the_table_and_then_the_hit_window(strike_world):
    for seed in range(6):
        strike_world.reset(seed)
        place_hand(strike_world, [0.25, 0.0, 0.45])  # out of the way
        serve = strike_world.task.serve
        strike_world.advance_to(serve.bounce_ns - DT_NS)
        before = strike_world.observe().environment_state
        np.testing.assert_allclose(before[3:5], serve.v_before[:2], atol=1e-9)
        strike_world.advance_to(serve.bounce_ns)
        after = strike_world.observe().environment_state
        np.testing.assert_allclose(after[:3], serve.p_BO, atol=1e-9)
        np.testing.assert_array_equal(after[3:], serve.v_after)
        flight_s = (HIT_X - after[0]) / after[3]
        strike_world.advance_to(serve.bounce_ns + round(flight_s * 1e9))
        there = strike_world.observe().environment_state
        assert abs(there[0] - HIT_X) < 0.01
        assert (there[1:3] > HIT_MIN - 0.01).all()
        assert (there[1:3] < HIT_MAX + 0.01).all()


def test_nothing_before_the_bounce_tells_what_comes_after():
    serves = [draw_serve(np.random.default_rng(seed)) for seed in range(4000)]
    before = np.array([[serve.bounce_ns, *serve.p_BO[:2], *serve.v_before] for serve in serves])
    flight_s = np.array([(HIT_X - serve.p_BO[0]) / serve.v_after[0] for serve in serves])
    y = np.array([s.p_BO[1] + s.v_after[1] * t for s, t in zip(serves, flight_s, strict=True)])
    z = np.array(
        [s.p_BO[2] + s.v_after[2] * t - 0.4905 * t * t for s, t in zip(serves, flight_s, strict=True)]
    )
    for outcome in (flight_s, y, z):
        for known in before.T:
            assert abs(np.corrcoef(known, outcome)[0, 1]) < 0.06  # 3.8 deviations of chance
    assert y.std() > 0.9 * (HIT_MAX - HIT_MIN)[0] / math.sqrt(12)


def test_touched_ball_is_not_given_a_bounce(strike_world):
    strike_world.reset(3)
    strike_world.data.joint("ball").qvel[:3] += [0.0, 0.3, 0.0]
    strike_world.advance_to(strike_world.task.serve.bounce_ns + 2 * DT_NS)
    v = strike_world.observe().environment_state[3:]
    assert np.abs(v - strike_world.task.serve.v_after).max() > 0.1


@pytest.mark.long
def test_plan_from_before_the_bounce_mostly_misses(strike_world):
    scores = []
    for seed in range(700, 720):
        strike_world.reset(seed)
        rows = 1 + strike_world.task.serve.bounce_ns // (50 * MS)
        scores.append(run_expert_once(strike_world, seed=seed, rows=rows))
    assert sum(score.success for score in scores) <= 8


def run_expert_once(world, *, seed, rows) -> EpisodeScore:
    """Score of an expert whose plans of the first `rows` rows are the last it makes."""
    world.reset(seed)
    expert, scorer = make_expert("strike", seed=seed), world.task.make_scorer(world)
    robot = robot_rollout(world)
    for _ in range(rows - 1):
        plan = expert.plan(world.observe())
        execute_row(robot, scorer, plan[0], plan[1])
    plan = expert.plan(world.observe())
    assert world.t_ns <= world.task.serve.bounce_ns
    for row, next_row in pairwise(plan):
        execute_row(robot, scorer, row, next_row)
    return scorer.score()


def test_expert_knows_where_a_bounced_ball_will_pass():
    tau, target = passing(np.array([HIT_X + 0.4, 0.0, 0.1]), np.array([-0.5, 0.2, 0.5]))
    assert tau == pytest.approx(0.8)
    np.testing.assert_allclose(target, [0.16, 0.1 + 0.5 * 0.8 - 0.4905 * 0.64])


def test_expert_waits_in_the_middle_for_a_ball_that_has_yet_to_bounce():
    tau, target = passing(np.array([1.1, 0.1, 0.2]), np.array([-0.5, 0.1, -0.3]))
    np.testing.assert_allclose(target, (HIT_MIN + HIT_MAX) / 2)
    assert tau > 0.7


def test_scorer_asks_for_the_whole_ball_above_the_net_and_its_middle_within_it(strike_world):
    strike_world.reset(0)
    for y, z, is_over in (
        (0.0, NET_HEIGHT + BALL_RADIUS + 0.001, True),
        (0.0, NET_HEIGHT + BALL_RADIUS - 0.001, False),
        (NET_HALF_WIDTH + 0.001, 0.3, False),
    ):
        scorer = StrikeScorer(strike_world.task, strike_world)
        scorer.struck_ns = 1
        scorer.note_crossing(2, np.array([NET_X - 0.01, y, z]), np.array([NET_X + 0.01, y, z]))
        assert scorer.score().success == is_over
