import logging
import time
from collections.abc import Mapping
from itertools import count
from threading import Event
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from policies.scripted import HoldPolicy
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.method.sampler_parts import ConstantSchedule, HorizonAwareSchedule, SamplerPart
from robot_runtime.core.method.schedule import answer_rows
from robot_runtime.core.policy import ChunkRequest, NewRows, Policy, policy
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import ChunkPart
from robot_runtime.errors import PolicyError
from robot_runtime.server.engine import EVERY_NS, Answer, Done, Engine, RateLimitedLog
from robot_runtime.server.warming import warm_up, zero_observation
from robot_runtime.wire.arrays import Picture
from robot_runtime.wire.messages import ErrorCode, ErrorReply
from robot_runtime.wire.request_queue import QueuedRequest

HORIZON = 32
EARLY = HorizonAwareSchedule(early_stop_rows=8)
NUM_EARLY = answer_rows(EARLY, horizon=HORIZON)


class StopsEarly(HoldPolicy):
    """Ends where its sampler does; two rows at a time."""

    def infer(self, request):
        end = answer_rows(request.sampler, horizon=HORIZON, inference_delay=request.inference_delay)
        rows = np.concatenate(list(super().infer(request)))
        return (rows[start : min(start + 2, end)] for start in range(0, end, 2))


class StopsTooEarly(StopsEarly):
    """Forgets its last block, once it is asked in earnest or at once."""

    def __init__(self, *, when_asked: bool = False, **arguments) -> None:
        super().__init__(**arguments)
        self._task = "early" if when_asked else ""

    def infer(self, request):
        *blocks, last = super().infer(request)
        return iter(blocks if request.observation.task == self._task else [*blocks, last])


def answer(policy: Policy, sampler: SamplerPart) -> list[ChunkPart | ErrorReply]:
    """What a real engine, worker thread included, makes of one request, until it is done."""
    *results, done = run(policy, [ask(policy, sampler)])
    assert isinstance(done, Done)
    return [message for _, message in results]


def ask(policy: Policy, sampler: SamplerPart, request_id: int = 1, task: str = "") -> QueuedRequest:
    request = ChunkRequest(
        request_id=request_id,
        epoch=0,
        observation=zero_observation(policy.info.schema, task),
        prev_action_chunk=None,
        inference_delay=0,
        sampler=sampler,
        seed=0,
        deadline_ns=10**9,
    )
    return QueuedRequest(peer=b"robot", request=request, received_ns=0, expires_ns=10**9)


def run(policy: Policy, jobs: list[QueuedRequest], *, max_batch: int = 4) -> list[Answer | Done]:
    rung, results = Event(), []
    engine = Engine(policy, clock=MonotonicClock(), ring=rung.set, max_batch=max_batch)
    try:
        engine.warm_up()
        engine.start(jobs)
        while not engine.is_idle:
            assert rung.wait(10.0)
            rung.clear()
            results += engine.results()
    finally:
        engine.close()
    return results


def failures(results: list[Answer]) -> list[tuple[QueuedRequest, ErrorReply]]:
    return [(job, error) for job, error in results if isinstance(error, ErrorReply)]


def test_the_last_rows_and_the_end_of_their_batch_ring_once() -> None:
    policy, rings = HoldPolicy(horizon=HORIZON), []
    engine = Engine(policy, clock=MonotonicClock(), ring=lambda: rings.append(engine.results()))
    engine.warm_up()
    engine.start([ask(policy, ConstantSchedule())])
    engine.close()  # lets the worker end what it has
    warmed_up, ((_, block), done) = rings
    assert not warmed_up
    assert isinstance(block, ChunkPart)
    assert isinstance(done, Done)


def test_an_answer_that_stops_early_is_complete_with_its_last_block() -> None:
    blocks = answer(StopsEarly(horizon=HORIZON), EARLY)
    assert all(isinstance(block, ChunkPart) for block in blocks)
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
    policy = StopsTooEarly(horizon=HORIZON, when_asked=True)
    *blocks, (_, failure), _ = run(policy, [ask(policy, sampler, task="early")])
    assert not any(block.is_last for _, block in blocks)
    assert isinstance(failure, ErrorReply)
    assert len(blocks) == (num_rows - 1) // 2


class Together(HoldPolicy):
    """Answers a batch two rows at a time, each request with its place in the batch; refuses the task "no"."""

    num_evaluations = 0

    def infer_batch(self, requests):
        if any(request.observation.task == "no" for request in requests):
            raise ValueError("no")
        ends = [
            answer_rows(request.sampler, horizon=HORIZON, inference_delay=request.inference_delay)
            for request in requests
        ]
        rows = np.zeros((2, self.info.action_spec.dim))
        return (
            NewRows(num_calls=first, rows=[rows + i for i in range(len(requests))])
            for first in range(0, max(ends), 2)
        )


def test_a_batch_is_answered_step_by_step_and_each_robot_gets_its_own_rows():
    policy = Together(horizon=HORIZON)
    jobs = [ask(policy, ConstantSchedule(), i) for i in range(3)]
    *blocks, done = run(policy, jobs)
    assert [job for job, _ in blocks] == jobs * (HORIZON // 2)
    for i, job in enumerate(jobs):
        own = [block for whose, block in blocks if whose is job]
        assert [block.first_row for block in own] == list(range(0, HORIZON, 2))
        assert [block.is_last for block in own] == [False] * (len(own) - 1) + [True]
        assert all((block.rows == i).all() for block in own)
    assert done.jobs == tuple(jobs)
    assert not done.was_stopped


def test_a_request_that_does_not_fit_spoils_no_other_of_its_batch():
    policy = Together(horizon=HORIZON)
    good, bad, other = (ask(policy, EARLY, i, task) for i, task in enumerate(("", "no", "")))
    *results, done = run(policy, [good, bad, other])
    ends = {job: end for job, end in results if isinstance(end, ErrorReply) or end.is_last}
    assert set(ends) == {good, bad, other}
    assert (ends[bad].code, ends[bad].message) == (ErrorCode.BAD_REQUEST, "no")
    assert isinstance(ends[good], ChunkPart)
    assert isinstance(ends[other], ChunkPart)
    assert done.jobs == (good, bad, other)


class Poisoned(Together):
    """What it gives for the tasks of that name; the others of a batch get what is right."""

    def infer_batch(self, requests):
        for step, new in enumerate(super().infer_batch(requests)):
            for i, request in enumerate(requests):
                match request.observation.task:
                    case "nan":
                        new.rows[i] = np.full((2, self.info.action_spec.dim), np.nan)
                    case "wide":
                        new.rows[i] = np.zeros((2, 1))
                    case "raises":
                        raise RuntimeError("secret")
                    case "raises later" if step == 3:
                        raise RuntimeError("secret")
                    case "exits":
                        raise SystemExit("secret")
                    case "ends":
                        return
                    case "too few":
                        new.rows.pop()
            yield new


BAD_TASKS = ("nan", "wide", "raises", "raises later", "exits", "ends", "too few", "no")


@pytest.mark.parametrize("task", BAD_TASKS)
def test_whatever_is_wrong_with_a_request_it_fails_alone(task: str):
    jobs = [ask(Poisoned(horizon=HORIZON), EARLY, i, t) for i, t in enumerate(("", task, ""))]
    *results, done = run(Poisoned(horizon=HORIZON), jobs)
    ((whose, failure),) = failures(results)
    assert whose is jobs[1]
    assert "secret" not in failure.message
    for job in (jobs[0], jobs[2]):
        blocks = [block for whose, block in results if whose is job]
        ends = [block.first_row + len(block.rows) for block in blocks]
        assert [block.first_row for block in blocks] == [0, *ends[:-1]]  # every row once, and in order
        assert ends[-1] >= NUM_EARLY
        assert [block.is_last for block in blocks] == [False] * (len(blocks) - 1) + [True]
    assert done.jobs == tuple(jobs)


def jpeg(data: bytes) -> Picture:
    return Picture(name="wrist", t_ns=7, encoding="jpeg", shape=(4, 6, 3), buffer=data)


def test_a_picture_that_is_none_fails_alone_too():
    policy = Together(horizon=HORIZON)
    good, bad = ask(policy, EARLY, 0), ask(policy, EARLY, 1)
    bad = structs.replace(bad, pictures=(jpeg(b"no JPEG"),))
    *results, _ = run(policy, [good, bad])
    ((whose, failure),) = failures(results)
    assert (whose, failure.code) == (bad, ErrorCode.BAD_REQUEST)
    assert "image 'wrist' is not a JPEG of shape (4, 6, 3): it does not begin as a JPEG" in failure.message
    assert any(job is good and part.is_last for job, part in results if isinstance(part, ChunkPart))


class Counts(Together):
    """Remembers how many it was asked for together."""

    def __init__(self, **arguments) -> None:
        super().__init__(**arguments)
        self.sizes: list[int] = []

    def infer_batch(self, requests):
        self.sizes.append(len(requests))
        return super().infer_batch(requests)


def test_a_batch_keeps_its_size_without_a_picture_that_is_none_for_a_smaller_one_may_not_be_warm():
    policy = Counts(horizon=HORIZON)
    jobs = [ask(policy, EARLY, i) for i in range(4)]
    jobs[1] = structs.replace(jobs[1], pictures=(jpeg(b"no JPEG"),))
    *results, done = run(policy, jobs)
    assert policy.sizes[-1] == 4
    assert [job for job, _ in failures(results)] == [jobs[1]]
    left = [jobs[0], jobs[2], jobs[3]]
    for i, job in enumerate(left):
        own = [part for whose, part in results if whose is job]
        assert all((part.rows == i).all() for part in own)
        assert sum(len(part.rows) for part in own) >= NUM_EARLY
    assert {job for job, _ in results} == set(jobs)
    assert done.jobs == tuple(jobs)


def test_whatever_opening_a_picture_ends_in_fails_alone_too():
    policy = Together(horizon=HORIZON)
    good, bad = ask(policy, EARLY, 0), ask(policy, EARLY, 1)
    no_buffer: Any = None  # nothing that a decoder expects, as when there is no memory
    bad = structs.replace(bad, pictures=(jpeg(no_buffer),))
    *results, _ = run(policy, [bad, good])
    assert [job for job, _ in failures(results)] == [bad]
    assert any(job is good and part.is_last for job, part in results if isinstance(part, ChunkPart))


class FillsOneArray(HoldPolicy):
    """Gives all its rows in the same memory, four at a time."""

    def infer(self, request):
        rows = np.empty((4, self.info.action_spec.dim), np.float32)
        for first in range(0, HORIZON, 4):
            rows[:] = first
            yield rows


def test_rows_that_wait_to_be_sent_are_those_that_the_policy_gave_whatever_it_writes_there_next():
    blocks = answer(FillsOneArray(horizon=HORIZON), ConstantSchedule())
    assert [block.rows.max() for block in blocks] == list(range(0, HORIZON, 4))


class Exits(HoldPolicy):
    def infer(self, request):
        raise SystemExit("no GPU")


def test_a_policy_that_calls_exit_while_it_warms_up_is_refused_and_nobody_waits_for_ever():
    engine = Engine(Exits(horizon=HORIZON), clock=MonotonicClock(), ring=lambda: None)
    with pytest.raises(PolicyError, match="it called exit"):
        engine.warm_up()


def test_a_policy_that_fails_every_answer_takes_a_line_of_the_log_and_not_one_for_each(
    caplog: pytest.LogCaptureFixture,
):
    policy = Poisoned(horizon=HORIZON)
    for _ in range(3):
        run(policy, [ask(policy, EARLY, i, "raises") for i in range(20)], max_batch=20)
    assert len(caplog.records) == 3  # one for each engine
    said: list[str] = []
    clock, logger = SettableClock(), logging.getLogger("of this test")
    logger.addHandler(Said(said))
    complaints = RateLimitedLog(logger, clock)
    for clock.t_ns in range(0, 2 * EVERY_NS + 1, EVERY_NS // 100):
        complaints.say("kind", "it failed")
    assert said == ["it failed"] + ["it failed (and 99 times more since the last line)"] * 2


class SettableClock:
    t_ns = 0

    def now_ns(self) -> int:
        return self.t_ns


class Said(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]


def test_a_policy_that_gives_no_numbers_is_refused_while_it_warms_up():
    class Nan(HoldPolicy):
        def infer(self, request):
            return (rows * np.nan for rows in super().infer(request))

    for poor, words in (
        (Nan(horizon=HORIZON), "policy 'hold' cannot be served: it gave nan at row 0, arm.joint_1"),
        (StopsTooEarly(horizon=HORIZON), "policy 'hold' cannot be served: it ended after 30 rows of 32"),
    ):
        engine = Engine(poor, clock=MonotonicClock(), ring=lambda: None)
        with pytest.raises(PolicyError, match=words):
            engine.warm_up()
        engine.close()


def test_a_policy_that_looks_at_a_camera_or_sensor_that_it_does_not_declare_is_told_how_to():
    spec = HoldPolicy(horizon=HORIZON).info.action_spec
    for look, words in (
        (
            lambda seen: seen.images["front"],
            r"no camera 'front' is shown, only none; .*cameras=\{'front': \(",
        ),
        (lambda seen: seen.state.measured["wrench"], r"no sensor 'wrench' is shown, .*measured=\{'wrench': "),
    ):
        looks = policy(PolicyInfo(name="looks", action_spec=spec))(look)
        engine = Engine(looks, clock=MonotonicClock(), ring=lambda: None)
        with pytest.raises(PolicyError, match=f"policy 'looks' cannot be served: {words}"):
            engine.warm_up()
        engine.close()


class Endless(Together):
    """Comes by a thousand times a second, with no rows; a real network's steps."""

    def infer_batch(self, requests):
        if requests[0].observation.task != "endless":
            return super().infer_batch(requests)
        nothing = [np.zeros((0, self.info.action_spec.dim))] * len(requests)
        return (NewRows(num_calls=time.sleep(0.001) or 0, rows=nothing) for _ in count())


def test_work_without_rows_is_given_up_when_nobody_wants_it_any_more():
    policy, rung = Endless(horizon=HORIZON), Event()
    engine = Engine(policy, clock=MonotonicClock(), ring=rung.set, max_batch=2)
    engine.warm_up()
    engine.start([ask(policy, EARLY, 1, "endless")])
    engine.stop()
    while not (results := engine.results()):  # warming up rings as well, and not before `warm_up` returns
        assert rung.wait(2.0)
        rung.clear()
    (done,) = results
    assert isinstance(done, Done)
    assert done.was_stopped
    engine.close()


def test_warming_up_times_batches_of_every_size():
    def times(policy: Policy, max_batch: int) -> Mapping[int, int]:
        return warm_up(policy, MonotonicClock(), max_batch=max_batch).times.by_size

    assert sorted(times(Together(horizon=HORIZON), 6)) == [1, 2, 4, 6]
    engine = Engine(HoldPolicy(horizon=HORIZON), clock=MonotonicClock(), ring=lambda: None, max_batch=6)
    assert sorted(engine.warm_up().times.by_size) == [1]  # answers one at a time
    engine.close()
