"""Chooses which requests run next, together, and how long to wait for one more: `Batcher`, without I/O.

One policy, one batch at a time, at most one request of a robot in it.

    waiting, most urgent first   a b c d e       a c d want one sampler part, b e another
    run now                      a c d           b e are next

The batch size is the one that serves most requests in time, and minimises their mean wait, by what batches of
each size have taken. While others wait that can be served in time, a request that cannot is shed.

Robots that ask as soon as they are answered never meet in a batch by themselves: while one is served the
others wait, and the other way round. So an idle policy waits a moment for a robot that is about to ask again,
judged by the time between its last two requests:

    a  ....|== a ==|       |== a c ==|           c asks just after its answer; a, which came while c was
    c  == c ==|    |c.. w  |== a c ==|           served, waits for it, at most WAIT_SHARE of a's own time

A request for many samples or steps may take as long as a dozen others. While lighter requests come in, heavy
ones pause after each for REST times its duration: they get a fifth of the time, and light ones the rest. A
request that could not be answered that way while its rows are useful is refused.

A short deadline gives no robot more than its share: a robot owes the time that its requests took and pays it
off with an equal share of the time that passes. While it owes more than HEAVY requests, others go first.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from msgspec import Struct

from robot_runtime.core.method.sampler_parts import (
    ConstantSchedule,
    RtcGuidance,
    SamplerPart,
    contrasts,
    num_samples,
)
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.wire.request_queue import QueuedRequest

WAIT_SHARE = 0.1
"""Maximum wait for others, as a share of the time that one request takes alone."""
HEAVY, REST = 4, 4
"""A heavy request takes more than this many ordinary ones; and how many times its duration it pauses."""
_LIGHT_NS = NS_PER_S
"""For this long after its last batch a robot still counts as asking for light requests."""
_NEWEST_IN_MEAN, _NEWEST_IN_DEVIATION, _DEVIATIONS = 1 / 8, 1 / 4, 4
"""Weights of the newest batch, and deviations beyond the mean that are rarely exceeded, as in RFC 6298."""
_ALONE_NS = 10 * NS_PER_S
_MAX_SAMPLERS = 64
_MAX_RHYTHMS = 256
_SILENT_NS = 10 * NS_PER_S
"""A robot that has not asked for this long has no rhythm any more: most have left."""


class _Pace(Struct, frozen=True, gc=False):
    """Durations of batches of one sampler part, relative to what was measured for their sizes."""

    mean: float
    deviation: float = 0.0
    """Mean absolute deviation from it."""


class BatchTimes:
    """Durations of batches: measured for some sizes, corrected for each sampler part by its own.

    Mean and deviation are smoothed as TCP smooths round trips (RFC 6298).
    """

    def __init__(
        self,
        by_size: Mapping[int, int],
        by_kind: Mapping[type[SamplerPart], int] = MappingProxyType({}),
        num_steps: int | None = None,
        sizes: Mapping[type[SamplerPart], Sequence[int]] | None = None,
    ) -> None:
        """Durations from warming up [ns].

        by_size: of batches of the usual sampler part; includes 1, and the largest is the maximum batch.
        by_kind: of one request, by sampler part with its own options.
        num_steps: of a part that names none; None: the policy does not count its passes.
        sizes: batch sizes that may be made, by sampler part, and 1 of any other part; None: all up to the
            largest of `by_size`.
        """
        self._paces: dict[SamplerPart, _Pace] = {}
        self.learn(by_size, by_kind, num_steps, sizes=sizes)

    def learn(
        self,
        by_size: Mapping[int, int],
        by_kind: Mapping[type[SamplerPart], int],
        num_steps: int | None,
        *,
        sizes: Mapping[type[SamplerPart], Sequence[int]] | None,
    ) -> None:
        """Take over new measurements; what batches have taken since stays."""
        self.by_size = by_size
        self._by_kind, self._num_steps, self._sizes = by_kind, num_steps, sizes
        known = sorted(by_size)
        every = np.interp(range(known[-1] + 1), known, [by_size[size] for size in known])
        self._times: list[float] = every.tolist()  # looked up for every request: interpolated once

    def unusual_ns(self, part: SamplerPart) -> int | None:
        """Maximum duration of one request; None unless that is more than the part's own options take.

        Steps follow each other. Samples go through the network together: fewer than were measured save what
        each of them adds, but more cost in proportion, since a full device gains nothing from batching.
        """
        usual = type(part)()
        steps = 1.0
        if self._num_steps is not None:
            steps = (part.num_steps or self._num_steps) / (usual.num_steps or self._num_steps)
        drawn, measured = _num_drawn(part), _num_drawn(usual)
        if steps <= 1.0 and drawn <= measured:
            return None
        own_ns = self._own_ns(type(part))
        if drawn > measured:
            return round(steps * own_ns * drawn / measured)
        single_ns = min(own_ns, self._by_kind.get(ConstantSchedule, 0))
        sample_ns = (own_ns - single_ns) / max(1, measured - 1)
        return round(steps * (own_ns - (measured - drawn) * sample_ns))

    def is_heavy(self, part: SamplerPart) -> bool:
        """Whether a part takes as long as many ordinary requests."""
        return (self.unusual_ns(part) or self._own_ns(type(part))) > HEAVY * self.by_size[1]

    def most_ns(self, size: int) -> int:
        """Maximum duration of a batch of this size if it is not heavy [ns]."""
        return round(HEAVY * self._measured_ns(size))

    def _own_ns(self, kind: type[SamplerPart]) -> int:
        """Duration of a part with its own options: measured, or an upper bound."""
        return self._by_kind.get(kind, work(kind) * self.by_size[1])

    @property
    def max_size(self) -> int:
        """The largest batch."""
        return len(self._times) - 1

    def fitting(self, size: int, sampler: SamplerPart) -> int:
        """The largest batch of a sampler part that may be made of this many requests."""
        if self._sizes is None:
            return min(size, self.max_size)
        return max((s for s in self._sizes.get(type(sampler), ()) if s <= size), default=1)

    def expected_ns(self, size: int, sampler: SamplerPart) -> int:
        """Expected duration of a batch of `size` [ns]."""
        return round(self._measured_ns(size) * self._pace(sampler).mean)

    def longest_ns(self, size: int, sampler: SamplerPart) -> int:
        """Duration that a batch of `size` rarely exceeds [ns]."""
        pace = self._pace(sampler)
        return round(self._measured_ns(size) * (pace.mean + _DEVIATIONS * pace.deviation))

    def note(self, size: int, sampler: SamplerPart, took_ns: int) -> None:
        """Note a batch that has ended."""
        ratio = took_ns / max(1.0, self._measured_ns(size))
        before = self._paces.pop(sampler, _Pace(ratio))
        off = ratio - before.mean
        self._paces[sampler] = _Pace(
            before.mean + _NEWEST_IN_MEAN * off,
            before.deviation + _NEWEST_IN_DEVIATION * (abs(off) - before.deviation),
        )
        if len(self._paces) > _MAX_SAMPLERS:
            del self._paces[next(iter(self._paces))]

    def _pace(self, sampler: SamplerPart) -> _Pace:
        known = self._paces.get(sampler)
        if known is not None:
            return known
        expected_ns = self.unusual_ns(sampler)
        return _AS_MEASURED if expected_ns is None else _Pace(expected_ns / max(1.0, self._measured_ns(1)))

    def _measured_ns(self, size: int) -> float:
        return self._times[min(size, self.max_size)]


def work(kind: type[SamplerPart]) -> int:
    """Upper bound on how many ordinary requests a sampler part with its own options amounts to."""
    part = kind()
    return num_samples(part) * (3 if isinstance(part, RtcGuidance) else 1)


def _num_drawn(part: SamplerPart) -> int:
    return num_samples(part) * (2 if contrasts(part) else 1)


_AS_MEASURED = _Pace(1.0)


class _Rhythm(Struct, frozen=True, gc=False):
    """When a robot asked last, and the interval before that."""

    last_ns: int
    interval_ns: int | None = None


class Batcher:
    """Chooses batches for one policy; owned and called by one thread."""

    def __init__(self, times: BatchTimes) -> None:
        self.times = times
        self._idle_ns = 0
        self._light_until_ns = self._rest_until_ns = 0
        self._alone_until_ns: dict[bytes, int] = {}
        self._owed_ns: dict[bytes, int] = {}
        self._paid_ns = 0
        self._rhythms: dict[bytes, _Rhythm] = {}

    def asked(self, peer: bytes, now_ns: int) -> None:
        """Note a robot's request."""
        before = self._rhythms.pop(peer, None)
        self._rhythms[peer] = _Rhythm(now_ns, None if before is None else now_ns - before.last_ns)
        longest_ago = next(iter(self._rhythms))
        while len(self._rhythms) > _MAX_RHYTHMS or now_ns - self._rhythms[longest_ago].last_ns > _SILENT_NS:
            del self._rhythms[longest_ago]
            longest_ago = next(iter(self._rhythms))

    def ended(
        self, batch: Sequence[QueuedRequest], took_ns: int, now_ns: int, *, was_stopped: bool = False
    ) -> None:
        """Note that a batch has ended, or was cancelled; the policy is idle."""
        sampler = batch[0].request.sampler
        self._idle_ns = now_ns
        if self.times.is_heavy(sampler):
            self._rest_until_ns = now_ns + REST * took_ns
        else:
            self._light_until_ns = now_ns + _LIGHT_NS
        if not was_stopped or took_ns > self.times.expected_ns(len(batch), sampler):
            self.times.note(len(batch), sampler, took_ns)
        self._charge(batch, took_ns, now_ns)

    def _charge(self, batch: Sequence[QueuedRequest], took_ns: int, now_ns: int) -> None:
        """Charge its robots for its duration, in equal parts; each pays with its share of the time since."""
        share_ns = (now_ns - self._paid_ns) // max(1, len(self._rhythms))
        self._owed_ns = {peer: ns - share_ns for peer, ns in self._owed_ns.items() if ns > share_ns}
        self._paid_ns = now_ns
        for job in batch:
            owed_ns = self._owed_ns.get(job.peer, 0) + took_ns // len(batch)
            self._owed_ns[job.peer] = min(owed_ns, 2 * self.times.most_ns(1))  # no robot waits for ever

    def unusual_ns(self, peer: bytes, part: SamplerPart) -> int | None:
        """Duration of a robot's request, including the pauses it makes for others; None if it is ordinary
        work for the policy."""
        took_ns = self.times.unusual_ns(part)
        if took_ns is None or not self.times.is_heavy(part) or self._rhythms.keys() <= {peer}:
            return took_ns
        return (1 + REST) * took_ns

    def failed(self, peer: bytes, now_ns: int) -> None:
        """Note a robot's failed request: for a while it is served alone, so that it cannot fail others."""
        self._alone_until_ns.pop(peer, None)
        self._alone_until_ns[peer] = now_ns + _ALONE_NS
        if len(self._alone_until_ns) > _MAX_RHYTHMS:
            del self._alone_until_ns[next(iter(self._alone_until_ns))]

    def too_late(self, waiting: Sequence[QueuedRequest], now_ns: int) -> tuple[QueuedRequest, ...]:
        """Requests to shed, so that others are in time. If there are no others, all may as well be tried.

        waiting: one request of each robot.
        """
        late = tuple(job for job in waiting if now_ns > self._latest_start_ns([job], 1))
        return late if len(late) < len(waiting) else ()

    def choose(
        self, waiting: Sequence[QueuedRequest], now_ns: int
    ) -> tuple[tuple[QueuedRequest, ...], int | None]:
        """Requests for an idle policy to run now, together; if none, when to choose again.

        None for the time: when something happens. waiting: one request of each robot, most urgent first.
        """
        if len(waiting) == len(self._rhythms) == 1:  # a robot alone: none to wait for, nothing to weigh
            return tuple(waiting), None
        resting = self._resting(waiting, now_ns)
        if len(resting) == len(waiting):
            return (), self._rest_until_ns if resting else None
        waiting = [job for job in waiting if job not in resting]
        much_ns = self.times.most_ns(1)
        waiting.sort(key=lambda job: self._owed_ns.get(job.peer, 0) > much_ns)
        first = waiting[0]
        if self._is_alone(first, now_ns):
            return (first,), None
        sampler = first.request.sampler
        alike = [job for job in waiting if job.request.sampler == sampler and not self._is_alone(job, now_ns)]
        until_ns = self._wait_until_ns(alike, now_ns)
        if until_ns is not None:
            return (), until_ns
        return best_batch(alike, now_ns, self.times), None

    def _latest_start_ns(self, jobs: Sequence[QueuedRequest], size: int) -> int:
        """Latest start of a batch of `size` with all of the jobs in time."""
        took_ns = self.times.longest_ns(size, jobs[0].request.sampler)
        return min(job.expires_ns for job in jobs) - took_ns

    def _is_alone(self, job: QueuedRequest, now_ns: int) -> bool:
        return now_ns < self._alone_until_ns.get(job.peer, now_ns)

    def _resting(self, waiting: Sequence[QueuedRequest], now_ns: int) -> list[QueuedRequest]:
        """Requests that pause for others, which wait or have only just been answered."""
        if now_ns >= self._rest_until_ns:
            return []
        is_heavy = [self.times.is_heavy(job.request.sampler) for job in waiting]
        if all(is_heavy) and now_ns >= self._light_until_ns:
            return []
        return [job for job, heavy in zip(waiting, is_heavy, strict=True) if heavy]

    def _wait_until_ns(self, alike: Sequence[QueuedRequest], now_ns: int) -> int | None:
        """Until when to wait for one more robot; None if that is not worth it."""
        if self.times.fitting(len(alike) + 1, alike[0].request.sampler) <= len(alike):
            return None
        patience_ns = round(WAIT_SHARE * self.times.expected_ns(1, alike[0].request.sampler))
        since_ns = max(self._idle_ns, min(job.received_ns for job in alike))
        until_ns = min(since_ns + patience_ns, self._latest_start_ns(alike, len(alike) + 1))
        peers = {job.peer for job in alike}
        expected = (
            rhythm.last_ns + rhythm.interval_ns
            for peer, rhythm in self._rhythms.items()
            if peer not in peers and rhythm.interval_ns is not None
        )
        if now_ns < until_ns and any(since_ns - patience_ns <= t_ns <= until_ns for t_ns in expected):
            return until_ns
        return None


def best_batch(waiting: Sequence[QueuedRequest], now_ns: int, times: BatchTimes) -> tuple[QueuedRequest, ...]:
    """The first batch of the plan with most requests in time, and among those with the least wait.

    A plan runs all waiting requests b at a time, most urgent first, leaving out those that such a batch would
    be too late for. Under overload that favours large batches of requests that can wait over small ones of
    the most urgent: a policy that only ever serves the most urgent never catches up.

    waiting: most urgent first, with the same sampler part.
    """
    sampler, most = waiting[0].request.sampler, len(waiting)
    sizes = sorted({times.fitting(min(size, most), sampler) for size in batch_sizes(most)}, reverse=True)
    plans = [_planned(waiting, now_ns, times, size) for size in sizes]
    return max(plans, key=lambda plan: (plan.num_in_time, -plan.waited_ns)).first


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """The result of running requests in batches of one size."""

    first: tuple[QueuedRequest, ...]
    num_in_time: int
    waited_ns: int
    """Sum over requests of when their batch ends."""


def _planned(waiting: Sequence[QueuedRequest], now_ns: int, times: BatchTimes, size: int) -> _Plan:
    sampler, left, first, start_ns = waiting[0].request.sampler, list(waiting), None, now_ns
    num_in_time = waited_ns = 0
    while left:
        size = times.fitting(min(size, len(left)), sampler)
        ends_ns = start_ns + times.longest_ns(size, sampler)
        in_time = [job for job in left if job.expires_ns >= ends_ns]
        if len(in_time) < size and size > 1:
            size = times.fitting(max(1, len(in_time)), sampler)  # a smaller batch is faster
            continue
        batch = (in_time or left)[:size]
        num_in_time += len(batch) if in_time else 0
        start_ns += times.expected_ns(len(batch), sampler)
        waited_ns += len(batch) * (start_ns - now_ns)
        first = first or tuple(batch)
        left = [job for job in left if job not in batch]
    assert first is not None
    return _Plan(first=first, num_in_time=num_in_time, waited_ns=waited_ns)


def batch_sizes(max_size: int) -> list[int]:
    """The sizes that are measured: 1, 2, 4, ... and the largest."""
    doubled = itertools.takewhile(lambda size: size < max_size, (2**i for i in itertools.count()))
    return [*doubled, max_size]
