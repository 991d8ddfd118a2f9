"""The batcher alone; time is an integer."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.scripted import FRANKA
from robot_runtime.core.method.sampler_parts import (
    AveragedSamples,
    BestOfSamples,
    ClampedPrefix,
    ConstantSchedule,
    RtcGuidance,
    SamplerPart,
)
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.server import batcher
from robot_runtime.server.batcher import (
    WAIT_SHARE,
    Batcher,
    BatchTimes,
    batch_sizes,
    best_batch,
)
from robot_runtime.server.warming import zero_observation
from robot_runtime.wire.request_queue import QueuedRequest

MS = 1_000_000
PLAIN = ConstantSchedule()
OBSERVATION = zero_observation(FRANKA, "")


def job(peer: int, *, received: int = 0, deadline: int = 1000, sampler: SamplerPart = PLAIN) -> QueuedRequest:
    """Times in ms."""
    request = ChunkRequest(
        request_id=1,
        epoch=0,
        observation=OBSERVATION,
        prev_action_chunk=None,
        inference_delay=0,
        sampler=sampler,
        seed=0,
        deadline_ns=deadline * MS,
    )
    return QueuedRequest(
        peer=bytes([peer]), request=request, received_ns=received * MS, expires_ns=(received + deadline) * MS
    )


def times(**by_size: int) -> BatchTimes:
    """times(b1=100, b2=120): ms by size."""
    return BatchTimes({int(name[1:]): ms * MS for name, ms in by_size.items()})


def test_more_samples_and_steps_take_as_much_longer_as_the_ones_that_were_measured():
    kinds = {ConstantSchedule: 20 * MS, AveragedSamples: 320 * MS, BestOfSamples: 335 * MS}
    on_cpu = BatchTimes(by_size={1: 20 * MS}, by_kind=kinds, num_steps=10)
    for part, ms in (
        (ConstantSchedule(), None),
        (AveragedSamples(), None),
        (AveragedSamples(num_samples=4, num_steps=10), None),
        (ClampedPrefix(num_steps=256), 512),  # never measured: 25.6 times an ordinary request
        (ConstantSchedule(num_steps=100), 200),
        (AveragedSamples(num_samples=31, num_steps=20), 2 * 620),
        (AveragedSamples(num_samples=256, num_steps=256), 131_072),
        (BestOfSamples(num_contrast=1), 670),
        (AveragedSamples(num_samples=1, num_steps=20), 2 * 20),
    ):
        assert on_cpu.unusual_ns(part) == (None if ms is None else ms * MS)
    on_gpu = BatchTimes(by_size={1: MS}, by_kind={ConstantSchedule: MS, AveragedSamples: MS}, num_steps=10)
    # 16 samples cost as much as one there; so many may not.
    assert on_gpu.unusual_ns(AveragedSamples(num_samples=256)) == 16 * MS
    assert on_gpu.unusual_ns(AveragedSamples(num_samples=2, num_steps=20)) == 2 * MS
    assert BatchTimes(by_size={1: MS}, by_kind=kinds).unusual_ns(ConstantSchedule(num_steps=256)) is None


def test_work_that_was_never_measured_is_bounded_by_its_samples_and_steps():
    known = BatchTimes(by_size={1: 20 * MS}, by_kind={ConstantSchedule: 10 * MS}, num_steps=5)
    assert known.unusual_ns(AveragedSamples(num_samples=256, num_steps=64)) == 256 * 64 * 20 * MS // 5
    assert known.unusual_ns(RtcGuidance(num_steps=10)) == 2 * 3 * 20 * MS
    assert known.is_heavy(AveragedSamples())
    assert not known.is_heavy(RtcGuidance())


@given(
    part=st.builds(
        AveragedSamples, num_samples=st.integers(1, 256), num_steps=st.none() | st.integers(1, 256)
    ),
    more=st.integers(0, 100),
    measured=st.booleans(),
)
def test_more_samples_are_never_expected_to_take_less(part: AveragedSamples, more: int, measured: bool):
    by_kind = {ConstantSchedule: 3 * MS} | ({AveragedSamples: 5 * MS} if measured else {})
    known = BatchTimes(by_size={1: 3 * MS}, by_kind=by_kind, num_steps=5)
    larger = replace(part, num_samples=part.num_samples + more)
    assert (known.unusual_ns(larger) or 0) >= (known.unusual_ns(part) or 0)


def test_beside_others_a_robot_may_ask_for_what_fits_with_the_rests_that_it_makes_for_them():
    known = BatchTimes(by_size={1: 20 * MS}, by_kind={ConstantSchedule: 20 * MS}, num_steps=5)
    much, little = ConstantSchedule(num_steps=50), ConstantSchedule(num_steps=10)
    batcher = Batcher(known)
    batcher.asked(b"a", 0)
    assert batcher.unusual_ns(b"a", much) == 200 * MS
    batcher.asked(b"b", 0)
    assert batcher.unusual_ns(b"a", much) == 1000 * MS
    assert batcher.unusual_ns(b"a", little) == 40 * MS
    assert batcher.unusual_ns(b"a", PLAIN) is None


def test_a_robot_that_asks_without_a_pause_and_in_a_hurry_takes_no_more_than_its_share():
    """The other one asks five times a second, with a second to spare."""
    known, now, answered, waiting = times(b1=20), 0, 0, {}
    batcher = Batcher(known)
    while now < 20_000:
        if 1 not in waiting:
            waiting[1] = job(1, received=now, deadline=60, sampler=ClampedPrefix())
            batcher.asked(bytes([1]), now * MS)
        if 2 not in waiting and now >= 200 * answered:
            waiting[2] = job(2, received=now)
            batcher.asked(bytes([2]), now * MS)
        urgent = sorted(waiting.values(), key=lambda j: j.expires_ns)
        batch, _ = batcher.choose(urgent, now * MS)
        now += 20
        for j in batch:
            answered += j.peer == bytes([2])
            if j.peer == bytes([2]):
                assert now * MS - j.received_ns <= 200 * MS  # while the other comes to owe that much
            del waiting[j.peer[0]]
        batcher.ended(batch, 20 * MS, now * MS)
    assert answered >= 95


def test_a_sampler_part_that_has_never_run_is_expected_to_take_what_its_work_says():
    known = BatchTimes(by_size={1: MS}, by_kind={ConstantSchedule: MS}, num_steps=10)
    assert known.expected_ns(1, ConstantSchedule(num_steps=50)) == 5 * MS
    known.note(1, ConstantSchedule(num_steps=50), 3 * MS)
    assert known.expected_ns(1, ConstantSchedule(num_steps=50)) == 3 * MS


def test_who_asks_for_little_keeps_four_fifths_of_the_time_and_nobody_rests_without_need():
    light, heavy = PLAIN, AveragedSamples()
    by_kind = {ConstantSchedule: 20 * MS, AveragedSamples: 300 * MS}
    for robots, shares in (({1: light, 2: heavy}, (0.7, 0.3)), ({1: heavy, 2: heavy}, (0.4, 0.6))):
        times = BatchTimes(by_size={1: 20 * MS}, by_kind=by_kind, num_steps=10)
        batcher, now_ns, used_ns = Batcher(times), 0, dict.fromkeys(robots, 0)
        while now_ns < 60_000 * MS:  # both ask as soon as they are answered
            for peer in robots:
                batcher.asked(bytes([peer]), now_ns)
            waiting = [job(peer, received=now_ns // MS, sampler=part) for peer, part in robots.items()]
            waiting.sort(key=lambda j: used_ns[j.peer[0]])
            batch, look_again_ns = batcher.choose(waiting, now_ns)
            if not batch:
                now_ns = look_again_ns
                continue
            (peer,) = batch[0].peer
            took_ns = by_kind[type(robots[peer])]
            now_ns += took_ns
            used_ns[peer] += took_ns
            batcher.ended(batch[:1], took_ns, now_ns)
        assert shares[0] <= used_ns[1] / now_ns <= 0.85
        assert sum(used_ns.values()) > 0.98 * now_ns


def test_a_robot_whose_request_failed_is_served_alone_for_a_while():
    batcher = Batcher(times(b1=10, b4=11))
    waiting = [job(1), job(2), job(3)]
    batcher.failed(waiting[1].peer, 0)
    assert batcher.choose(waiting, 0)[0] == (waiting[0], waiting[2])
    assert batcher.choose(waiting[1:], 0)[0] == (waiting[1],)
    waiting = [job(peer, received=11_000) for peer in (1, 2, 3)]
    assert batcher.choose(waiting, 11_000 * MS)[0] == tuple(waiting)


def test_sizes_double_up_to_the_largest():
    assert batch_sizes(1) == [1]
    assert batch_sizes(6) == [1, 2, 4, 6]
    assert batch_sizes(8) == [1, 2, 4, 8]


@given(n=st.integers(1, 12), alone=st.integers(1, 100), more=st.integers(0, 150), most=st.integers(1, 12))
def test_without_hurry_the_size_makes_the_mean_wait_shortest(n: int, alone: int, more: int, most: int):
    known = BatchTimes({1: alone, most: alone + more * (most - 1)} if most > 1 else {1: alone})

    def mean_wait(size: int) -> float:
        waits, now = [], 0
        for start in range(0, n, size):
            batch = min(size, n - start)
            now += known.expected_ns(batch, PLAIN)
            waits += [now] * batch
        return float(np.mean(waits))

    best = len(best_batch([job(peer) for peer in range(n)], 0, known))
    assert mean_wait(best) <= min(mean_wait(min(size, n)) for size in batch_sizes(most)) + 1e-9


def test_in_the_squeeze_a_large_batch_goes_before_a_few_that_are_about_to_be_too_late():
    urgent, patient = (
        [job(peer, deadline=30) for peer in range(2)],
        [job(peer, deadline=85) for peer in range(2, 18)],
    )
    known = times(b1=20, b2=22, b16=80)
    assert best_batch([*urgent, *patient], 0, known) == tuple(patient)
    assert best_batch([*urgent, *patient[:2]], 0, known) == tuple(urgent)  # time for both


def test_robots_that_wait_are_answered_together_where_it_pays_and_alone_where_it_does_not():
    waiting = [job(peer) for peer in range(4)]
    assert Batcher(times(b1=10, b4=15)).choose(waiting, 0) == (tuple(waiting), None)
    assert Batcher(times(b1=10, b4=60)).choose(waiting, 0) == ((waiting[0],), None)


def test_a_batch_has_one_sampler_part_that_of_the_most_urgent():
    waiting = [job(0), job(1, sampler=ClampedPrefix()), job(2)]
    assert Batcher(times(b1=10, b4=11)).choose(waiting, 0)[0] == (waiting[0], waiting[2])


def test_a_batch_is_smaller_where_a_larger_one_would_be_too_late():
    waiting = [job(0, deadline=125), job(1), job(2), job(3)]
    assert len(Batcher(times(b1=100, b2=120, b4=160)).choose(waiting, 0)[0]) == 2


def test_a_request_that_would_be_too_late_is_shed_if_others_wait_and_tried_if_not():
    batcher = Batcher(times(b1=100, b2=120))
    late, other = job(0, deadline=90), job(1)
    assert batcher.too_late([late, other], 0) == (late,)
    assert batcher.too_late([late], 0) == ()
    assert batcher.choose([late], 0) == ((late,), None)


def test_what_batches_have_taken_corrects_what_was_measured():
    known = times(b1=100, b2=120)
    for _ in range(50):
        known.note(2, PLAIN, 60 * MS)
    assert abs(known.expected_ns(1, PLAIN) - 50 * MS) < MS
    assert known.expected_ns(1, ClampedPrefix()) == 100 * MS


def test_a_robot_alone_never_waits():
    batcher = Batcher(times(b1=100, b2=100))
    for t in range(0, 3000, 250):
        batcher.asked(b"\0", t * MS)
        assert batcher.choose([job(0, received=t)], t * MS)[0]


class Loop:
    """Robots that each ask again `pause` after they were answered, on a policy that takes what it takes."""

    def __init__(self, batcher: Batcher, starts: list[int], *, pause: int = 1) -> None:
        self.batcher, self.pause = batcher, pause
        self.asking = dict(enumerate(starts))
        self.waiting: dict[int, QueuedRequest] = {}
        self.response_ms: dict[int, list[int]] = {peer: [] for peer in self.asking}

    def run(self, until: int) -> "Loop":
        running, ends, started = (), 0, 0
        for now in range(until):
            if running and now >= ends:
                self.batcher.ended(running, (now - started) * MS, now * MS)
                for j in running:
                    self.response_ms[j.peer[0]].append(now - j.received_ns // MS)
                    self.asking[j.peer[0]] = now + self.pause
                running = ()
            for peer in [p for p, t in self.asking.items() if t <= now]:
                del self.asking[peer]
                self.waiting[peer] = job(peer, received=now)
                self.batcher.asked(bytes([peer]), now * MS)
            if not running and self.waiting:
                urgent = sorted(self.waiting.values(), key=lambda j: j.expires_ns)
                late = self.batcher.too_late(urgent, now * MS)
                urgent = [j for j in urgent if j not in late]
                running, look_again_ns = self.batcher.choose(urgent, now * MS)
                assert running or look_again_ns > now * MS
                for j in running:
                    del self.waiting[j.peer[0]]
                started = now
                ends = now + self.batcher.times.expected_ns(max(1, len(running)), PLAIN) // MS
        return self


def test_a_robot_is_alone_again_when_the_others_have_been_silent_for_long(monkeypatch):
    """Nothing is weighed for it then: it pays for no robot that was there once."""
    weighed = []
    monkeypatch.setattr(batcher, "best_batch", lambda jobs, *_: weighed.append(len(jobs)) or tuple(jobs))
    policy = Batcher(times(b1=100, b8=120))
    for peer in range(2, 6):
        policy.asked(bytes([peer]), 0)
    for now, num_weighed in ((1000, 1), (9000, 2), (10_001, 2), (10_100, 2)):
        policy.asked(bytes([1]), now * MS)
        waiting = [job(1, received=now)]
        assert policy.choose(waiting, now * MS) == (tuple(waiting), None)
        assert len(weighed) == num_weighed


def test_two_robots_that_ask_as_soon_as_they_are_answered_come_to_meet_in_one_batch():
    loop = Loop(Batcher(times(b1=100, b2=100)), [0, 37]).run(3000)
    for response_ms in loop.response_ms.values():
        assert np.median(response_ms) <= 100 + WAIT_SHARE * 100


@pytest.mark.long
@given(
    starts=st.lists(st.integers(0, 300), min_size=2, max_size=12),
    alone=st.integers(5, 60),
    b8=st.integers(5, 200),
)
def test_no_robot_starves_and_no_answer_waits_longer_than_two_rounds(starts: list[int], alone: int, b8: int):
    known = times(b1=alone, b8=max(alone, b8))
    loop = Loop(Batcher(known), starts).run(6000)
    largest = known.expected_ns(8, PLAIN) // MS
    bound = 2 * (len(starts) * max(alone, largest) + largest)
    longest = max(itertools.chain.from_iterable(loop.response_ms.values()))
    assert all(loop.response_ms.values())
    assert longest <= bound
    counts = [len(answered) for answered in loop.response_ms.values()]
    assert max(counts) <= 2 * min(counts) + 4
