"""The server and the network of a virtual run: `DelayedPolicy` holds requests until their answers are due.

Nothing sleeps and nothing is computed early. An answer is computed when the episode's clock reaches the first
moment at which any of it could arrive, so many episodes can run ahead and be answered in one batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robot_runtime.core.method.latency import LatencyEstimator
from robot_runtime.core.method.sampler_parts import HorizonAwareSchedule, SamplerPart
from robot_runtime.core.method.schedule import finish_steps
from robot_runtime.core.plan.overlap import OpenAnswers
from robot_runtime.core.policy import BatchPolicy, ChunkRequest, Policy, answers_batches, num_evaluations
from robot_runtime.core.values.action import ActionSpec, ChunkPart
from robot_runtime.core.values.shapes import Float
from robot_runtime.evaluation.traces import SLOT_NS, LatencyTrace
from robot_runtime.robot.probe import NUM_REQUESTS

SAMPLING_SHARE = 0.5
"""Share of a delay that the sampler takes; the rest is capture, encoding, network and the image encoder.

    capture                     first call                   last of N calls
       |------ (1 - share) ---------|------- share -------------|
                                      1    2    3   ...         N    rows final after call k arrive here
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """All rows inferred for one request, when each became final, and the cost."""

    blocks: tuple[Float[np.ndarray, "_ D"], ...]
    num_calls: tuple[int, ...]
    """For each block, the sequential network calls until it was final."""
    num_evaluations: float = 0.0
    """Passes of one chunk through the network; 0 for a policy without one."""

    @property
    def rows(self) -> Float[np.ndarray, "_ D"]:
        """All rows, from row 0."""
        return np.concatenate(self.blocks)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Waiting:
    """A request whose answer is not computed yet."""

    request: ChunkRequest
    captured_ns: int
    delay_ns: int


class DelayedPolicy:
    """Delivers answers with the latency of a trace; the episode's runner computes them when needed."""

    def __init__(
        self,
        trace: LatencyTrace,
        *,
        spec: ActionSpec,
        seed: int,
        sampling_share: float = SAMPLING_SHARE,
    ) -> None:
        """spec: of the policy's rows. seed: of the episode; selects its start in the trace."""
        if not 0.0 <= sampling_share <= 1.0:
            raise ValueError(f"the sampler's share of a delay lies in 0..1, got {sampling_share}")
        self._trace, self._share = trace, sampling_share
        self._horizon = spec.horizon
        self._offset_ns = trace.offset_ns(seed)
        self._open = OpenAnswers(spec)
        self._waiting: dict[int, _Waiting] = {}
        self._deadlines: dict[int, int] = {}
        self._arrivals: list[tuple[int, ChunkPart]] = []
        self.num_requests = 0
        self.num_evaluations = 0.0
        """Network calls for the answers that were needed; a request that is lost costs none."""
        self.num_failed = 0

    def probed(self, sampler: SamplerPart) -> LatencyEstimator:
        """The latency estimate of a robot that has asked a few times, one by one, before its start.

        A trace that starts with the episode has nothing before it: then there is no estimate.
        """
        latency, t_ns = LatencyEstimator(), self._offset_ns
        if self._trace.starts_with_episode:
            return latency
        first = 1.0
        if isinstance(sampler, HorizonAwareSchedule):
            first = finish_steps(sampler, horizon=self._horizon)[0] / sampler.num_steps
        for _ in range(NUM_REQUESTS):
            delay_ns = self._trace.delay_ns(t_ns)
            if delay_ns is not None:
                latency.add(round(delay_ns * (1.0 - self._share + self._share * first)))
            t_ns -= max(delay_ns or 0, SLOT_NS)
        return latency

    def submit(self, request: ChunkRequest, now_ns: int) -> None:
        """Take a request; its delay counts from `now_ns`, when the observation was captured."""
        self.num_requests += 1
        self._deadlines[request.request_id] = now_ns + request.deadline_ns
        delay_ns = self._trace.delay_ns(now_ns + self._offset_ns)
        if delay_ns is not None:
            self._waiting[request.request_id] = _Waiting(
                request=request, captured_ns=now_ns, delay_ns=delay_ns
            )

    def needed(self, now_ns: int) -> ChunkRequest | None:
        """A request of whose answer some rows may have arrived by now; None if all those are computed."""
        for waiting in self._waiting.values():
            if waiting.captured_ns + round(waiting.delay_ns * (1.0 - self._share)) <= now_ns:
                return self._open.shown(waiting.request)
        return None

    def answer(self, request_id: int, answer: Answer) -> None:
        """Schedule the delivery of an answer."""
        waiting, first_row = self._waiting.pop(request_id), 0
        request = waiting.request
        self._open.add(request, answer.rows)
        self.num_evaluations += answer.num_evaluations
        # A sampler that stops early has not taken all the calls that the delay is for.
        num_calls = max(answer.num_calls[-1], request.sampler.num_steps or 0)
        for i, (rows, calls) in enumerate(zip(answer.blocks, answer.num_calls, strict=True)):
            part = request.part(rows, first_row=first_row, is_last=i == len(answer.blocks) - 1)
            late_ns = round(waiting.delay_ns * (1.0 - self._share + self._share * calls / num_calls))
            self._arrivals.append((waiting.captured_ns + late_ns, part))
            first_row += len(rows)

    def receive(self, now_ns: int) -> list[ChunkPart]:
        """Parts that have arrived by now, in order."""
        due = [part for t_ns, part in self._arrivals if t_ns <= now_ns]
        self._arrivals = [arrival for arrival in self._arrivals if arrival[0] > now_ns]
        for part in due:
            if part.is_last:
                self._deadlines.pop(part.request_id, None)
        return due

    def expired(self, now_ns: int) -> list[int]:
        """Requests whose deadline passed before all of their answer came; the rest of it is discarded."""
        out = [request_id for request_id, t_ns in self._deadlines.items() if t_ns <= now_ns]
        for request_id in out:
            del self._deadlines[request_id]
            self._waiting.pop(request_id, None)
            self._arrivals = [a for a in self._arrivals if a[1].request_id != request_id]
        self.num_failed += len(out)
        return out


def answer_all(policy: Policy, requests: Sequence[ChunkRequest]) -> list[Answer]:
    """The answers to requests of different robots with one sampler part, in one batch if the policy can.

    A policy that cannot has no network calls: its rows come when a network's would.
    """
    if answers_batches(policy):
        return answers(policy, requests)
    return [_as_sampled(tuple(map(np.array, policy.infer(request))), request) for request in requests]


def answers(policy: BatchPolicy, requests: Sequence[ChunkRequest]) -> list[Answer]:
    """The result of `infer_batch` for each request; the cost is shared."""
    before = num_evaluations(policy)
    blocks: list[list[np.ndarray]] = [[] for _ in requests]
    calls: list[list[int]] = [[] for _ in requests]
    for new in policy.infer_batch(requests) if requests else ():
        for i, rows in enumerate(new.rows):
            if len(rows):
                blocks[i].append(np.array(rows))  # it may fill the same array again
                calls[i].append(new.num_calls)
    cost = (num_evaluations(policy) - before) / max(1, len(requests))
    return [
        Answer(blocks=tuple(b), num_calls=tuple(c), num_evaluations=cost)
        for b, c in zip(blocks, calls, strict=True)
    ]


def _as_sampled(blocks: tuple[Float[np.ndarray, "n D"], ...], request: ChunkRequest) -> Answer:
    """The blocks in which the request's sampler finishes rows, each with its network calls."""
    sampler, d = request.sampler, request.inference_delay
    if not isinstance(sampler, HorizonAwareSchedule):
        return Answer(blocks=blocks, num_calls=(sampler.num_steps or 1,) * len(blocks))
    rows = np.concatenate(blocks)
    calls = np.maximum(finish_steps(sampler, horizon=len(rows), inference_delay=d), 1)
    starts = np.flatnonzero(np.diff(calls, prepend=0))
    return Answer(blocks=tuple(np.split(rows, starts[1:])), num_calls=tuple(calls[starts].tolist()))
