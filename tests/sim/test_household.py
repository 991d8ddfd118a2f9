"""The household tasks: rooms, experts, and what counts as done."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.method.table import METHODS
from robot_runtime.core.values.action import Command
from robot_runtime.core.values.transforms import pose_from_planar
from sim.demonstrations.perturbations import PerturbationSegment, run_segment
from sim.demonstrations.rollout_robot import robot_rollout
from sim.episodes.evaluate import run_episode
from sim.experts import make_expert
from sim.experts.mobile import MOBILE_SPEC, Deck, Thing, advance, see
from sim.experts.policy import ExpertPolicy
from sim.scene.world import World
from sim.tasks import HOUSEHOLD_TASKS, make_task
from sim.tasks.clear import BIN_P, CUPS
from sim.tasks.drawer import DRAWER_FLOOR, HANDLE_X
from sim.tasks.household import CUP_HALF_HEIGHT, TABLE_Z
from sim.tasks.wipe import CELL, SPONGE_HALF

MS = 1_000_000
RESTING = {
    "clear": {"cup_0", "cup_1", "cup_2", "counter_top"},
    "drawer": {"cup", "table_top"},
    "fetch": {"cup", "table_a_top"},
    "wipe": set(),
}
"""All that touches while the robot stands."""


@pytest.fixture(scope="module", params=sorted(HOUSEHOLD_TASKS))
def rooms(request) -> World:
    return World(make_task(request.param))


@pytest.fixture(scope="module")
def kitchen() -> World:
    return World(make_task("clear"))


@pytest.fixture(scope="module")
def counter() -> World:
    return World(make_task("wipe"))


@pytest.fixture(scope="module")
def cabinet() -> World:
    return World(make_task("drawer"))


def test_every_episode_has_its_own_rooms_and_starts_at_rest(rooms):
    layouts = []
    for seed in range(5):
        rooms.reset(seed)
        before = rooms.snapshot()
        layouts.append(before[rooms.model.nq :])
        rooms.advance_to(200 * MS)
        np.testing.assert_allclose(rooms.snapshot()[: rooms.model.nq], before[: rooms.model.nq], atol=2e-3)
        touching = {rooms.model.geom(i).name for i in rooms.data.contact.geom[: rooms.data.ncon].ravel()}
        assert touching == RESTING[rooms.task.name]
    assert len({tuple(np.round(layout, 3)) for layout in layouts}) == 5
    rooms.reset(0)
    assert (rooms.snapshot()[rooms.model.nq :] == layouts[0]).all()


def test_a_plan_goes_on_from_what_is_committed(rooms):
    rooms.reset(1)
    expert, observation = make_expert(rooms.task.name, seed=0), rooms.observe(exact=True)
    plan = expert.plan(observation)
    assert plan.shape == (32, MOBILE_SPEC.dim)
    again = expert.plan(observation, plan[:6])
    np.testing.assert_array_equal(again[:6], plan[:6])
    np.testing.assert_allclose(again[6:, :6], plan[6:, :6], atol=0.02)
    led = plan[:6] + np.linspace(0.0, 0.1, 6)[:, None] * np.eye(13)[0]
    assert np.abs(np.diff(expert.plan(observation, led)[:, 0])).max() < 0.08


@pytest.mark.long
def test_the_expert_does_it_under_latency_with_odometry_that_drifts(rooms):
    name = rooms.task.name
    episode = run_episode(
        ExpertPolicy(name),
        task_name=name,
        method=METHODS["committed-prefix"],
        seed=10_000,
        delay_ns=300 * MS,
        control_period_ns=10 * MS,
    )
    score = episode.result.score
    assert score.success
    assert score.metrics["stage"] == rooms.task.num_stages
    assert score.completion_s < 25.0


def test_a_tracker_errs_more_with_distance_anew_at_every_look_and_the_same_in_every_run(rooms):
    rooms.reset(2)
    exact = rooms.observe(exact=True).environment_state
    np.testing.assert_array_equal(exact, rooms.task.environment_state(rooms))
    looks = [rooms.observe().environment_state for _ in range(2)]
    np.testing.assert_array_equal(*looks)
    errors = []
    for t in range(2 * MS, 402 * MS, 2 * MS):
        rooms.advance_to(t)
        errors.append(rooms.observe().environment_state - rooms.observe(exact=True).environment_state)
    observation_noise = rooms.task.observation_noise
    distance = float(np.hypot(*exact[:2]))
    expected = observation_noise.point_std + observation_noise.distance_share * distance
    np.testing.assert_allclose(np.std(errors, axis=0)[:3], expected, rtol=0.25)
    np.testing.assert_allclose(np.std(errors, axis=0)[-1], observation_noise.other_std, rtol=0.25)
    assert np.abs(np.mean(errors, axis=0)).max() < 0.3 * expected


def test_demonstrations_show_what_was_measured_and_what_the_expert_meant_by_the_truth(rooms):
    """A label is the plan from the exact scene; what is committed is what the robot is really led through."""
    rooms.reset(6)
    robot, expert = robot_rollout(rooms), make_expert(rooms.task.name, seed=6)
    scorer = rooms.task.make_scorer(rooms)
    observation, exact = robot.observe()
    segment = PerturbationSegment(num_rows=10, every_rows=2, delay_rows=4)
    samples = run_segment(robot, expert, scorer, segment, np.random.default_rng(0))
    np.testing.assert_array_equal(samples[0].observation.environment_state, observation.environment_state)
    first = robot.from_world(robot.to_world(expert.plan(exact), observation)[:4], observation)
    np.testing.assert_allclose(samples[0].rows, expert.plan(exact, first), atol=1e-5)
    led = [robot.to_world(sample.rows.astype(float), sample.observation) for sample in samples]
    for i in range(4, 10, 2):
        np.testing.assert_allclose(led[i][:2, :6], led[i - 2][2:4, :6], atol=0.02)
    assert samples[-1].observation.state.x_WB is not None


def test_a_robot_that_stands_still_gets_nowhere(rooms):
    rooms.reset(3)
    scorer = rooms.task.make_scorer(rooms)
    for t in range(0, 2000 * MS, 20 * MS):
        rooms.advance_to(t)
        scorer.on_tick(t, rooms, Command(), None)
    score = scorer.score()
    assert not scorer.is_done
    assert not score.success
    assert score.completion_s is None
    assert score.metrics == {"stage": 0.0, "backward_m": 0.0, "led_backward_m": 0.0}


def test_a_cup_in_the_bin_counts_and_one_on_the_rim_or_in_the_fingers_does_not(kitchen):
    kitchen.reset(0)
    task, X_WB = kitchen.task, pose_from_planar(kitchen.x_WB)

    def put_at(cup: str, offset: tuple[float, float, float]) -> None:
        kitchen.data.joint(cup).qpos[:3] = X_WB.act(np.add(BIN_P, offset))

    assert task.num_in_bin(kitchen) == 0
    put_at(CUPS[1], (0.05, 0.0, 0.06))
    assert task.num_in_bin(kitchen) == 1
    put_at(CUPS[0], (0.0, 0.05, 0.17))
    assert task.num_in_bin(kitchen) == 1
    put_at(CUPS[2], (0.2, 0.0, 0.06))
    assert task.num_in_bin(kitchen) == 1
    kitchen.data.qpos[10:12] = 0.03
    kitchen.data.site("end_effector").xpos[:] = kitchen.data.joint(CUPS[1]).qpos[:3]
    assert task.num_in_bin(kitchen) == 0


def test_cups_are_told_nearest_first_and_those_in_the_bin_last_whatever_they_are_called(kitchen):
    kitchen.reset(0)
    X_WB = pose_from_planar(kitchen.x_WB)
    near, far, binned = np.array([0.6, 0.1, 0.8]), np.array([0.9, -0.2, 0.8]), np.add(BIN_P, [0.0, 0.0, 0.06])
    for order in permutations((near, far, binned)):
        for cup, p_B in zip(CUPS, order, strict=True):
            kitchen.data.joint(cup).qpos[:3] = X_WB.act(p_B)
        told = kitchen.task.environment_state(kitchen)[:9].reshape(3, 3)
        np.testing.assert_allclose(told, [near, far, binned], atol=1e-9)


def test_the_sponge_wipes_what_it_touches_and_nothing_from_above(counter):
    counter.reset(2)
    task, sponge = counter.task, counter.data.geom("sponge")
    before = counter.observe(exact=True).environment_state[:3]
    counter.advance_to(100 * MS)
    assert task.stage(counter, 0) == 0
    corner = task._corner + 0.3 * task._along + 0.08 * task._across
    for height, wiped in ((0.02, 0), (0.002, 1)):
        sponge.xpos[:] = *corner, TABLE_Z + height + SPONGE_HALF[2]
        sponge.xmat[:] = np.eye(3).ravel()
        task.apply_event(counter)
        area = task._wiped.sum() * CELL**2
        assert area == pytest.approx(wiped * 4 * SPONGE_HALF[0] * SPONGE_HALF[1], rel=0.25)
    assert task.frontier == 0.0
    np.testing.assert_allclose(counter.observe(exact=True).environment_state[:3], before, atol=1e-3)
    task._wiped[: len(task._wiped) // 2] = True
    assert task.frontier == pytest.approx(task._length / 2, abs=CELL)
    assert not task.is_done(counter)
    task._wiped[:] = True
    assert task.is_done(counter)


@given(st.integers(0, 74), st.integers(0, 7), st.integers(0, 5))
def test_what_is_left_to_wipe_is_shown_where_it_is_and_nothing_else(column, row, seed):
    counter = World(make_task("wipe"))
    counter.reset(seed)
    task = counter.task
    task._wiped[:] = True
    column = min(column, len(task._wiped) - 1)
    task._wiped[column, row] = False
    task.update(counter)
    cell = task._corner + CELL * ((column + 0.5) * task._along + (row + 0.5) * task._across)
    shown = [p for p in counter.data.mocap_pos if p[2] == TABLE_Z]
    assert len(shown) >= 1
    for p in shown:  # marks are 4 cm by 8
        assert (np.abs(cell - p[:2]) <= np.array([0.02, 0.04]) + 1e-9).all()
    task._wiped[:] = True
    task.update(counter)
    assert not [p for p in counter.data.mocap_pos if p[2] == TABLE_Z]


def test_a_drawer_is_done_with_the_cup_inside_and_closed(cabinet):
    cabinet.reset(4)
    task = cabinet.task
    assert not task.is_done(cabinet)  # closed, but empty
    inside = np.array([*(task._cabinet + 0.05 * task._out), DRAWER_FLOOR + CUP_HALF_HEIGHT])
    cabinet.data.joint("cup").qpos[:3] = inside
    assert task.is_done(cabinet)
    cabinet.data.joint("drawer").qpos[0] = 0.1
    assert task.is_in_drawer(cabinet)
    assert not task.is_done(cabinet)
    cabinet.data.joint("drawer").qpos[0] = 0.25  # pulled out from under it
    assert not task.is_in_drawer(cabinet)


def test_a_pulled_handle_brings_the_drawer_along(cabinet):
    """50 N for a second: out to its stop, and the handle is where the task says."""
    cabinet.reset(4)
    for t in range(0, 1000 * MS, 20 * MS):
        cabinet.data.body("drawer").xfrc_applied[:3] = [*(50.0 * cabinet.task._out), 0.0]
        cabinet.advance_to(t)
    assert cabinet.task.opening(cabinet) == pytest.approx(0.28, abs=0.01)
    expected = cabinet.task._cabinet + (HANDLE_X + cabinet.task.opening(cabinet)) * cabinet.task._out
    np.testing.assert_allclose(cabinet.data.geom("handle").xpos[:2], expected, atol=2e-3)


def test_imagined_things_go_with_the_hand_along_their_way_and_with_the_base(cabinet):
    """Base and hand move: what lies in the bin goes with the base, what nobody holds stays."""
    cabinet.reset(0)
    observation = cabinet.observe()
    free = Thing(p=np.array([0.5, 0.1, 0.8]))
    handle = Thing(p=np.array([0.5, 0.1, 0.8]), way=np.array([1.0, 0.0]))
    deck = Deck(lower=np.array([-0.1, -0.6, 0.4]), upper=np.array([0.3, -0.3, 0.7]))
    loose, in_bin = Thing(p=np.array([2.0, 0.0, 0.8])), Thing(p=np.array([0.1, -0.4, 0.5]))
    for held, moved in ((free, [0.01, 0.02, 0.01]), (handle, [0.01, 0.0, 0.0])):
        scene = see(observation, held, loose, in_bin, deck=deck)
        scene = replace(scene, p=np.array([0.5, 0.1, 0.82]), width=0.06)
        after = advance(scene, v=np.array([0.2, 0.2, 0.0]), v_hand=np.array([0.0, 0.2, 0.2]), width=0.03)
        np.testing.assert_allclose(after.things[0].p - held.p, moved, atol=1e-9)
        np.testing.assert_array_equal(after.things[1].p, loose.p)
        np.testing.assert_allclose(after.things[2].p - in_bin.p, [0.01, 0.01, 0.0], atol=1e-9)
        assert after.width == 0.06
