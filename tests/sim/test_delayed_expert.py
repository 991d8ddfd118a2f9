from itertools import count, islice

import numpy as np
import pytest

from sim.demonstrations.demonstrations import run_expert
from sim.episodes.delayed_expert import constant_delay, run_delayed_expert
from sim.scene.world import World
from sim.tasks import make_task

MS = 1_000_000


@pytest.mark.long
@pytest.mark.parametrize("name", ["track", "pick_place", "strike", "conveyor"])
def test_without_delay_it_is_the_expert(name, request):
    world = request.getfixturevalue(f"{name}_world")
    for seed in (10_000, 10_001):
        plain = run_expert(world, seed=seed)
        delayed = run_delayed_expert(world, seed=seed, delay=constant_delay(0))
        assert delayed.success == plain.success
        if plain.completion_s is not None:
            assert delayed.completion_s == pytest.approx(plain.completion_s, abs=0.15)


@pytest.mark.long
def test_two_arms_are_led_late_as_one_arm_is():
    world = World(make_task("handover"))
    assert run_expert(world, seed=10_000).success
    late: list[np.ndarray] = []
    score = run_delayed_expert(world, seed=10_000, delay=constant_delay(200 * MS), trace=late)
    assert score.success
    assert score.completion_s > 0.2
    np.testing.assert_allclose(late[2][:7], late[0][:7], atol=5e-3)  # stands until the first answer


@pytest.mark.long
def test_success_falls_with_the_delay(strike_world):
    """Where the expert itself succeeds: with which seeds, a processor's rounding decides now and then."""
    seeds = list(islice((s for s in count(10_000) if run_expert(strike_world, seed=s).success), 15))
    rates = []
    for delay_ms in (0, 400, 700):
        scores = [
            run_delayed_expert(strike_world, seed=seed, delay=constant_delay(delay_ms * MS)) for seed in seeds
        ]
        rates.append(sum(score.success for score in scores))
    assert rates[0] >= 14
    assert rates[0] > rates[1] > rates[2]


@pytest.mark.long
@pytest.mark.parametrize("delay_ms", [0, 130, 400])
def test_reactions_take_the_delay_and_at_most_one_row_more(track_world, delay_ms):
    score = run_delayed_expert(track_world, seed=10_000, delay=constant_delay(delay_ms * MS))
    assert len(score.reactions_s) > 1
    assert min(score.reactions_s) >= delay_ms / 1e3
    assert max(score.reactions_s) <= delay_ms / 1e3 + 0.051 + 0.01


def test_an_answer_that_is_late_is_overtaken_by_a_newer_one(track_world):
    def spike(t_ns: int) -> int:
        return 600 * MS if t_ns % (500 * MS) == 0 else 100 * MS

    score = run_delayed_expert(track_world, seed=10_000, delay=spike)
    assert max(score.reactions_s) < 0.17


def test_robot_stands_until_the_first_answer(conveyor_world):
    trace: list[np.ndarray] = []
    run_delayed_expert(conveyor_world, seed=10_000, delay=constant_delay(400 * MS), trace=trace)
    np.testing.assert_allclose(trace[8][:7], trace[0][:7], atol=2e-3)
    assert np.abs(trace[14][:7] - trace[0][:7]).max() > 0.02


def test_delay_longer_than_a_plan_leaves_the_robot_where_it_is(conveyor_world):
    trace: list[np.ndarray] = []
    score = run_delayed_expert(conveyor_world, seed=10_000, delay=constant_delay(1_600 * MS), trace=trace)
    assert not score.success
    np.testing.assert_allclose(trace[-1][:7], trace[0][:7], atol=2e-3)


def test_negative_delay_is_refused():
    with pytest.raises(ValueError, match="at least 0 ns"):
        constant_delay(-1)
