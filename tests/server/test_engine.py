from threading import Event

import numpy as np
import pytest

from policies.policy import Policy
from policies.scripted import HoldPolicy
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.request import ChunkRequest
from robot_runtime.core.sampler_parts import ConstantSchedule, HorizonAwareSchedule, SamplerPart
from robot_runtime.core.schedule import answer_rows
from robot_runtime.server.engine import Block, Engine, Failure, Result, zero_observation
from robot_runtime.wire.jobs import Job

HORIZON = 32
EARLY = HorizonAwareSchedule(early_stop_rows=8)
NUM_EARLY = answer_rows(EARLY, horizon=HORIZON)


class StopsEarly(HoldPolicy):
    """Ends where its sampler does; two rows at a time."""

    def infer(self, observation, *, sampler, **arguments):
        end = answer_rows(sampler, horizon=HORIZON, inference_delay=arguments["inference_delay"])
        rows = np.concatenate(list(super().infer(observation, sampler=sampler, **arguments)))
        return (rows[start : min(start + 2, end)] for start in range(0, end, 2))


class StopsTooEarly(StopsEarly):
    """Forgets its last block."""

    def infer(self, observation, **arguments):
        *blocks, _ = super().infer(observation, **arguments)
        return iter(blocks)


def answer(policy: Policy, sampler: SamplerPart) -> list[Result]:
    """What a real engine, worker thread included, makes of one request."""
    rung, results = Event(), []
    engine = Engine(policy, clock=MonotonicClock(), ring=rung.set)
    request = ChunkRequest(
        request_id=1,
        epoch=0,
        observation=zero_observation(policy.schema, ""),
        prev_action_chunk=None,
        inference_delay=0,
        sampler=sampler,
        seed=0,
        deadline_ns=10**9,
    )
    try:
        engine.warm_up()
        engine.start(Job(peer=b"robot", request=request, received_ns=0, expires_ns=10**9))
        while not engine.is_idle:
            assert rung.wait(10.0)
            rung.clear()
            results += engine.results()
    finally:
        engine.close()
    return results


def test_an_answer_that_stops_early_is_complete_with_its_last_block() -> None:
    blocks = answer(StopsEarly(horizon=HORIZON), EARLY)
    assert all(isinstance(block, Block) for block in blocks)
    assert [block.is_last for block in blocks] == [False] * (len(blocks) - 1) + [True]
    assert blocks[-1].first_row + len(blocks[-1].rows) == NUM_EARLY < HORIZON


def test_an_answer_that_does_not_stop_early_goes_to_the_horizon() -> None:
    blocks = answer(StopsEarly(horizon=HORIZON), ConstantSchedule())
    assert blocks[-1].is_last
    assert blocks[-1].first_row + len(blocks[-1].rows) == HORIZON


def test_a_policy_that_has_more_rows_than_asked_for_may_send_them_in_its_last_block() -> None:
    (block,) = answer(HoldPolicy(horizon=HORIZON), EARLY)
    assert block.is_last
    assert len(block.rows) == HORIZON


@pytest.mark.parametrize(("sampler", "num_rows"), [(EARLY, NUM_EARLY), (ConstantSchedule(), HORIZON)])
def test_an_answer_that_ends_before_its_last_row_is_a_failure(sampler: SamplerPart, num_rows: int) -> None:
    *blocks, failure = answer(StopsTooEarly(horizon=HORIZON), sampler)
    assert not any(block.is_last for block in blocks)
    assert isinstance(failure, Failure)
    assert len(blocks) == (num_rows - 1) // 2
