"""The worker thread that runs the policy, one batch of jobs at a time.

    network thread                worker thread
    start(jobs) ── queue ───────► Policy.infer or infer_batch, step by step
    results()  ◄── deque, bell ── (job, ChunkPart | ErrorReply), ..., Done
    warm(piece)    the same ────► one call on nothing: Called
    stop()     ─── flag ────────► looked at between steps

Rows are passed on as they become final; the network never waits for the policy. A request starts when those
before it have ended, so the answers that it follows are complete. Images are decoded here, just before the
policy needs them: a request that never runs costs nothing. Failures are isolated: a request with non-finite
rows is dropped from its batch, and a batch that the policy refuses is inferred again one by one.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from threading import Thread

import numpy as np
from msgspec import Struct

from robot_runtime.clock import Clock
from robot_runtime.core.method.schedule import answer_rows
from robot_runtime.core.policy import ChunkRequest, Policy, answers_batches
from robot_runtime.core.values.action import NS_PER_S, ChunkPart
from robot_runtime.errors import PolicyError
from robot_runtime.jpeg import decode_jpeg
from robot_runtime.server.warming import (
    Called,
    Piece,
    Warming,
    call_on_nothing,
    checked_rows,
    infer_steps,
    warm_up,
)
from robot_runtime.wire.codec import with_images
from robot_runtime.wire.frames import ProtocolError
from robot_runtime.wire.messages import ErrorCode, ErrorReply
from robot_runtime.wire.request_queue import QueuedRequest

EVERY_NS = 10 * NS_PER_S
"""Each kind of trouble gets a line at once, and then one per this period, with a count."""
_MAX_KINDS = 64


class RateLimitedLog:
    """The log of one part of the server; owned and called by one thread."""

    def __init__(self, logger: logging.Logger, clock: Clock) -> None:
        self._logger, self._clock = logger, clock
        self._kinds: dict[str, tuple[int, int]] = {}  # kind -> (when it was logged, how often since)

    def say(
        self, kind: str, text: str, error: BaseException | None = None, *, level: int = logging.ERROR
    ) -> None:
        """Log a line, with the trace of an exception, unless that kind was logged just before."""
        now_ns = self._clock.now_ns()
        logged_ns, num_since = self._kinds.pop(kind, (None, 0))
        if logged_ns is not None and now_ns < logged_ns + EVERY_NS:
            self._kinds[kind] = logged_ns, num_since + 1
            return
        self._kinds[kind] = now_ns, 0
        if len(self._kinds) > _MAX_KINDS:
            del self._kinds[next(iter(self._kinds))]
        more = f" (and {num_since} times more since the last line)" if num_since else ""
        self._logger.log(level, "%s%s", text, more, exc_info=error)


logger = logging.getLogger(__name__)
CLOSE_S = 0.25
"""How long `close` waits for the policy to reach its next step."""
_WHATEVER = (Exception, SystemExit)
"""What user code may raise: `exit()` too would end the worker, and no request would be answered."""


class Done(Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """The batch has ended, and the worker is idle; jobs without all of their rows were cancelled."""

    jobs: tuple[QueuedRequest, ...]
    infer_ns: int
    """Duration [ns]."""
    was_stopped: bool


Answer = tuple[QueuedRequest, ChunkPart | ErrorReply]
"""Final rows of a job, or why there are none, in words that are fit for the client."""

Result = Answer | Done | Called


class Engine:
    """Runs one policy. The thread that calls `start` collects `results` and closes it."""

    def __init__(
        self,
        policy: Policy,
        *,
        clock: Clock,
        ring: Callable[[], None],
        max_batch: int = 1,
        open_ns: int | None = None,
    ) -> None:
        """
        ring: called from the worker thread whenever there are results.
        max_batch: maximum number of jobs at a time, for a policy that can answer several.
        open_ns: as for `warm_up`.
        """
        self.is_idle = True
        self._policy = policy
        self._max_batch = max_batch if answers_batches(policy) else 1
        self._clock, self._open_ns = clock, open_ns
        self._ring = ring
        self._complaints = RateLimitedLog(logger, clock)
        self._batches: SimpleQueue[tuple[QueuedRequest, ...] | Piece | None] = SimpleQueue()
        self._results: deque[Result] = deque()
        self._warm: SimpleQueue[Warming | Exception] = SimpleQueue()
        self._is_stopped = False
        self._running: tuple[QueuedRequest, ...] = ()
        self._thread = Thread(target=self._run, name="policy", daemon=True)

    def warm_up(self) -> Warming:
        """Start the thread and infer a few times on it, so that no robot pays for first calls.

        Returns what is warm and what is left, owned by the caller from here on. PolicyError if the result is
        invalid, and whatever the policy raises.
        """
        self.start_warming()
        warming = self._warm.get()
        if isinstance(warming, Exception):
            raise warming
        return warming

    def start_warming(self) -> None:
        """As `warm_up`, without waiting: `ring` is called when it is over, and `warmed` returns the
        result."""
        self._thread.start()

    def warmed(self) -> Warming | Exception | None:
        """The result of warming up, once; None before it is over."""
        return None if self._warm.empty() else self._warm.get()

    def start(self, jobs: Sequence[QueuedRequest]) -> None:
        """Run jobs that want the same sampler part; only when idle."""
        assert self.is_idle
        self.is_idle = self._is_stopped = False
        self._running = tuple(jobs)
        self._batches.put(self._running)

    def warm(self, piece: Piece) -> None:
        """Call the policy on zeros; only when idle."""
        assert self.is_idle
        self.is_idle = self._is_stopped = False
        self._batches.put(piece)

    @property
    def running(self) -> tuple[QueuedRequest, ...]:
        """The jobs that the worker runs."""
        return self._running

    def stop(self) -> None:
        """Cancel the running jobs at their next step."""
        self._is_stopped = True

    def results(self) -> list[Result]:
        """The worker's results since the last call, in order."""
        out = []
        while self._results:
            result = self._results.popleft()
            if isinstance(result, Done | Called):
                self.is_idle, self._running = True, ()
            out.append(result)
        return out

    def end(self) -> None:
        """Ask the thread to end between two steps; `close` waits for that."""
        self.stop()
        self._batches.put(None)

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """End the thread; one that stays in a policy call for longer is left to end with the process."""
        self.end()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            self._warm.put(self._warm_up())
        except _WHATEVER as error:
            self._warm.put(_as_exception(error))
            return
        finally:
            self._ring()
        while (order := self._batches.get()) is not None:
            if isinstance(order, Piece):
                self._post(call_on_nothing(self._policy, order, self._clock, is_stopped=self._ends))
                continue
            started_ns = self._clock.now_ns()
            self._infer(order, started_ns)
            took_ns = self._clock.now_ns() - started_ns
            self._post(Done(jobs=order, infer_ns=took_ns, was_stopped=self._is_stopped))

    def _warm_up(self) -> Warming:
        return warm_up(
            self._policy,
            self._clock,
            max_batch=self._max_batch,
            open_ns=self._open_ns,
            is_stopped=self._ends,
        )

    def _ends(self) -> bool:
        return self._is_stopped

    def _infer(self, jobs: tuple[QueuedRequest, ...], started_ns: int) -> None:
        sent = dict.fromkeys(jobs, 0)
        requests = {}
        for job in jobs:
            try:
                requests[job] = _opened(job)
            except ProtocolError as error:
                self._fail(sent, job, ErrorCode.BAD_REQUEST, str(error))
            except Exception as error:  # of the decoder's, or there is no memory for the picture
                self._give_up(sent, job, error)
        if requests:
            self._try(requests, sent, started_ns, size=len(jobs))

    def _try(
        self,
        requests: dict[QueuedRequest, ChunkRequest],
        sent: dict[QueuedRequest, int],
        started_ns: int,
        *,
        size: int,
    ) -> None:
        """Answer the requests together, or if that fails each by itself; `sent` loses those that are
        finished.

        size: planned size of the batch. If fewer are left, the last one is repeated to fill it: a size that
            is not warm may compile for seconds.
        """
        batch = [*requests.values()]
        if len(batch) > 1:
            batch += batch[-1:] * (size - len(batch))
        try:
            steps = infer_steps(self._policy, batch)
            self._hand_over(steps, tuple(requests), sent, started_ns, size=len(batch))
        except _WHATEVER as error:
            if len(requests) == 1:
                self._give_up(sent, next(iter(requests)), _as_exception(error))
                return
            for job, request in requests.items():
                if job in sent and not self._is_stopped:
                    self._try({job: request}, sent, started_ns, size=1)

    def _hand_over(
        self,
        steps: Iterator[list[np.ndarray]],
        jobs: tuple[QueuedRequest, ...],
        sent: dict[QueuedRequest, int],
        started_ns: int,
        *,
        size: int,
    ) -> None:
        """Post rows as they come, except those that were sent before; rows beyond the jobs' are dropped."""
        come = dict.fromkeys(jobs, 0)
        for step in steps:
            if len(step) != size:
                raise PolicyError(f"it gave rows for {len(step)} requests of {size}")
            has_posted = False
            for job, rows in zip(jobs, step, strict=False):
                if job not in sent or not len(rows):
                    continue
                try:
                    rows = checked_rows(self._policy, rows, come[job])
                except PolicyError as error:
                    self._give_up(sent, job, error)
                    continue
                come[job] += len(rows)
                has_posted |= self._post_new(
                    sent, job, rows[max(0, sent[job] - come[job] + len(rows)) :], started_ns
                )
            if not any(job in sent for job in jobs) or self._is_stopped:
                return  # `Done` rings for these rows as well
            if has_posted:
                self._ring()
        left = {job.request.request_id: come[job] for job in jobs if job in sent}
        raise PolicyError(f"it ended early; rows by request: {left}")

    def _post_new(
        self, sent: dict[QueuedRequest, int], job: QueuedRequest, rows: np.ndarray, started_ns: int
    ) -> bool:
        """Post the new rows of a job; whether there are any."""
        if not len(rows):
            return False
        request, first_row = job.request, sent[job]
        end = answer_rows(
            request.sampler,
            horizon=self._policy.info.action_spec.horizon,
            inference_delay=request.inference_delay,
        )
        sent[job] += len(rows)
        is_last = sent[job] >= end
        times = {"queue_ns": started_ns - job.received_ns, "infer_ns": self._clock.now_ns() - started_ns}
        part = request.part(rows, first_row=first_row, is_last=is_last, **times)
        self._results.append((job, part))
        if is_last:
            del sent[job]
        return True

    def _give_up(self, sent: dict[QueuedRequest, int], job: QueuedRequest, error: Exception) -> None:
        """Fail one request; the client's message reveals no more of the server than needed."""
        name = self._policy.info.name
        if isinstance(error, ValueError):
            self._fail(sent, job, ErrorCode.BAD_REQUEST, str(error))
        elif isinstance(error, PolicyError):
            self._complaints.say(str(type(error)), f"policy {name} failed: {error}")
            self._fail(sent, job, ErrorCode.INTERNAL, f"policy {name} failed: {error}")
        else:
            self._complaints.say(str(type(error)), f"policy {name} failed", error)
            self._fail(sent, job, ErrorCode.INTERNAL, f"policy {name} failed; the server's log says why")

    def _fail(
        self, sent: dict[QueuedRequest, int], job: QueuedRequest, code: ErrorCode, message: str
    ) -> None:
        del sent[job]
        self._post((job, ErrorReply.to(job.request, code, message)))

    def _post(self, result: Result) -> None:
        self._results.append(result)
        self._ring()


def _opened(job: QueuedRequest) -> ChunkRequest:
    """The request with decoded images; ProtocolError: one is not what the request declares."""
    return with_images(job.request, job.pictures, decode_jpeg) if job.pictures else job.request


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else PolicyError("it called exit()")
