import numpy as np
import pytest

from sim.demonstrations.demonstrations import run_expert
from sim.scene.clock import SimClock
from sim.scene.model import DT_NS

MS = 1_000_000


def test_virtual_clock_moves_only_forward_and_only_by_sleeping():
    clock = SimClock(5)
    clock.sleep_until_ns(20)
    clock.sleep_until_ns(10)
    assert clock.now_ns() == 20


def test_same_seed_twice_gives_bit_identical_motion(pick_place_world):
    traces: list[list[np.ndarray]] = [[], []]
    for trace in traces:
        run_expert(pick_place_world, seed=11, rows_per_plan=8, trace=trace)
    assert len(traces[0]) == len(traces[1])
    assert all(np.array_equal(a, b) for a, b in zip(*traces, strict=True))


@pytest.mark.parametrize(
    ("task", "seed", "end_ms", "turn"),
    [("track", 3, 2_000, 0.2), ("conveyor", 4, 4_000, 0.0), ("strike", 4, 1_400, 0.0)],
)
def test_how_often_the_world_is_advanced_changes_nothing(task, seed, end_ms, turn, request):
    world, results = request.getfixturevalue(f"{task}_world"), []
    for step_ns in (DT_NS, 7 * MS, end_ms * MS):
        world.reset(seed)
        world.set_joint_target(world.q + turn)
        for t_ns in range(step_ns, end_ms * MS, step_ns):
            world.advance_to(t_ns)
        world.advance_to(end_ms * MS)
        scene = world.observe().environment_state
        results.append(np.concatenate([world.snapshot(), world.data.qvel, scene]))
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


def test_world_is_never_ahead_of_the_asked_time_nor_a_step_behind(track_world):
    track_world.reset(0, t_start_ns=123)
    for t_ns in (123, 5 * MS, 5 * MS + 7, 40 * MS):
        track_world.advance_to(t_ns)
        assert track_world.t_ns <= t_ns < track_world.t_ns + DT_NS
    track_world.advance_to(0)
    assert track_world.t_ns + DT_NS > 40 * MS


def test_joint_servos_follow_half_a_radian_per_second_with_thirty_milliseconds_of_lag(track_world):
    for joint in range(7):
        track_world.reset(0)
        start, measured = track_world.q, []
        t_s = np.arange(1000) * DT_NS / 1e9
        setpoint = np.where(t_s < np.pi / 2, 0.25 * (1.0 - np.cos(2.0 * t_s)), 0.5)
        sign = 1.0 if joint not in (3,) else -1.0
        for i, offset in enumerate(setpoint):
            track_world.set_joint_target(start + sign * offset * np.eye(7)[joint])
            track_world.advance_to((i + 1) * DT_NS)
            measured.append(sign * (track_world.q - start)[joint])
        lag = 15  # steps, 30 ms
        assert np.abs(np.array(measured)[lag:] - setpoint[:-lag]).max() < 0.005
        assert max(measured) < 0.5 + 1e-3


def test_fingers_reach_the_commanded_width(track_world):
    track_world.reset(0)
    track_world.set_gripper_target(0.06)
    track_world.advance_to(1_000 * MS)
    assert abs(track_world.gripper_width - 0.06) < 1e-3


def test_observation_matches_the_schema_of_the_task(track_world, pick_place_world):
    for world in (track_world, pick_place_world):
        world.reset(0)
        observation = world.observe()
        assert observation.environment_state.shape == (world.task.schema.environment_state_dim,)
        assert observation.state.q.shape == (world.task.schema.num_joints,)
        assert observation.task == world.task.instruction
