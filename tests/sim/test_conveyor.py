import numpy as np
import pytest

from robot_runtime.core.values.action import Command
from sim.scene.kinematics import solve_down
from sim.scene.model import DT_NS
from sim.scene.task import EpisodeScore
from sim.tasks.conveyor import (
    BELT_HALF_LENGTH,
    BELT_X,
    CUBE_ON_BELT_Z,
    HAND_YAW,
    LIFT,
    MIN_SEGMENT_S,
    REACH_MAX,
    REACH_MIN,
    SPEED_MAX,
    SPEED_MIN,
    draw_run,
)
from sim.tasks.cube import CUBE_SIZE

MS = 1_000_000


def place(world, *, p_cube, p_hand, width) -> None:
    """Cube and hand where they are put, with the fingers across the belt and closing on `width`."""
    world.place_robot(solve_down(np.array([p_hand]), np.array([HAND_YAW]))[0], max(width, CUBE_SIZE))
    world.set_gripper_target(width)
    cube = world.data.joint("cube")
    cube.qpos[:], cube.qvel[:] = [*p_cube, 1.0, 0.0, 0.0, 0.0], 0.0


def verdict(world, *, until_ms=1_000) -> EpisodeScore:
    scorer = world.task.make_scorer(world)
    for t_ns in range(0, until_ms * MS, DT_NS):
        world.advance_to(t_ns)
        scorer.on_tick(t_ns, world, Command(), None)
    return scorer.score()


HIGH = np.array([BELT_X, 0.0, CUBE_ON_BELT_Z + LIFT + 0.01])


def test_cube_held_high_for_half_a_second_is_a_success(conveyor_world):
    conveyor_world.reset(0)
    place(conveyor_world, p_cube=HIGH, p_hand=HIGH, width=0.02)
    score = verdict(conveyor_world)
    assert score.success
    assert score.completion_s == pytest.approx(0.5, abs=0.1)


def test_cube_held_too_low_or_too_shortly_is_none(conveyor_world):
    low = HIGH - [0.0, 0.0, 0.04]
    conveyor_world.reset(0)
    place(conveyor_world, p_cube=low, p_hand=low, width=0.02)
    assert not verdict(conveyor_world).success
    conveyor_world.reset(0)
    place(conveyor_world, p_cube=HIGH, p_hand=HIGH, width=0.02)
    assert not verdict(conveyor_world, until_ms=450).success


def test_cube_thrown_up_without_a_hand_is_none(conveyor_world):
    conveyor_world.reset(0)
    place(conveyor_world, p_cube=HIGH, p_hand=HIGH + np.array([0.0, 0.2, 0.1]), width=0.08)
    conveyor_world.data.joint("cube").qvel[2] = 3.0  # above the line for 0.6 s
    assert not verdict(conveyor_world).success


def test_cube_that_has_fallen_off_the_belt_ends_the_episode(conveyor_world):
    conveyor_world.reset(0)
    beside = np.array([BELT_X - 0.15, 0.0, CUBE_SIZE / 2])
    place(conveyor_world, p_cube=beside, p_hand=HIGH, width=0.08)
    score = verdict(conveyor_world, until_ms=100)
    assert score.metrics["was_lost"]
    assert not score.success


def test_cube_rides_with_the_belt_through_every_change(conveyor_world):
    for seed in range(5):
        conveyor_world.reset(seed)
        task = conveyor_world.task
        for t_ns in range(0, 6_000 * MS, 50 * MS):
            conveyor_world.advance_to(t_ns)
            p_BO = task.environment_state(conveyor_world)[:3]
            assert abs(p_BO[1] - task.runs.at(t_ns).position(t_ns)) < 0.01  # slips a little at a change
            assert abs(p_BO[2] - CUBE_ON_BELT_Z) < 0.002
            assert REACH_MIN - 0.01 < p_BO[1] < REACH_MAX + 0.01


def test_belt_keeps_its_velocity_when_a_hand_leans_on_the_cube(conveyor_world):
    conveyor_world.reset(1)
    place(conveyor_world, p_cube=[BELT_X, 0.0, CUBE_ON_BELT_Z], p_hand=HIGH, width=0.0)
    conveyor_world.set_joint_target(solve_down(np.array([HIGH - [0, 0, 0.11]]), np.array([HAND_YAW]))[0])
    conveyor_world.advance_to(500 * MS)
    v = conveyor_world.task.environment_state(conveyor_world)[3]
    assert abs(conveyor_world.data.joint("belt").qvel[0] - v) < 1e-3


def test_marks_stay_on_the_belt(conveyor_world):
    conveyor_world.reset(2)
    conveyor_world.advance_to(4_000 * MS)
    assert np.abs(conveyor_world.data.mocap_pos[:, 1]).max() <= BELT_HALF_LENGTH


def test_same_past_has_different_futures():
    runs = [draw_run(0, 0.0, np.random.default_rng(seed)) for seed in range(1000)]
    v = np.array([run.v for run in runs])
    assert abs((v > 0).mean() - 0.5) < 0.06
    assert (np.abs(v) >= SPEED_MIN).all()
    assert (np.abs(v) <= SPEED_MAX).all()


def test_a_change_does_not_depend_on_the_run_before_it():
    pairs = []
    for seed in range(2000):
        rng = np.random.default_rng(seed)
        first = draw_run(0, 0.0, rng)
        second = draw_run(first.end_ns, 0.0, rng)  # from the middle, where the ends of reach weigh nothing
        pairs.append((first.v, first.end_ns, second.v, second.end_ns - second.t_ns))
    correlation = np.corrcoef(np.array(pairs).T)
    assert np.abs(correlation[:2, 2:]).max() < 0.08


def test_time_to_the_next_change_does_not_depend_on_the_time_since_the_last():
    runs = [draw_run(0, 0.0, np.random.default_rng(seed)) for seed in range(3000)]
    extra = np.array([run.end_ns / 1e9 - MIN_SEGMENT_S for run in runs])
    remaining = [np.median(extra[extra > w] - w) for w in (0.0, 0.2, 0.4)]
    assert max(remaining) < 1.25 * min(remaining)
