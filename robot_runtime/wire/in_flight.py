"""The client's requests: those in flight follow each other, the others wait for their turn.

              submit              credit              last row | dropped | failed | cancelled | expired
    request ---------> waiting ----------> in flight -------------------------------------------------> over
                          | one that does not follow it is submitted, cancelled, expired
                          +----------------------------------------------------------------------------> over

The oldest waiting request has credit if it follows all that are in flight and they are fewer than
MAX_IN_FLIGHT: one that names none (`ChunkRequest.in_flight`) runs alone, one that names all is sent at once.
So the sent observation is always the newest, and nothing is uploaded that will not be used. Requests of an
older epoch, from before a reset, are of no use: open ones are dropped at once. A request that ends without an
answer does not affect those that follow it. Each request ends in exactly one event. A policy that looks back
is not sent images that the previous request has sent; a server that has lost them reports that, and gets the
request again, whole, as all later ones of this session.
`_in_flight_if` is the only place that drops answers to requests that are over.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from msgspec import structs

from robot_runtime.core.plan.request_planner import MAX_IN_FLIGHT
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import ChunkPart
from robot_runtime.core.values.state import Observation
from robot_runtime.wire.arrays import SentImages
from robot_runtime.wire.events import Event, PartReceived, RequestFailed
from robot_runtime.wire.frames import ProtocolError
from robot_runtime.wire.messages import Cancel, Dropped, DropReason, Welcome
from robot_runtime.wire.reassembly import ChunkReassembler

Identity = tuple[int, int]
"""Request id and epoch."""


@dataclass(eq=False, slots=True)
class _Submission:
    request: ChunkRequest
    expires_ns: int

    @property
    def identity(self) -> Identity:
        return self.request.request_id, self.request.epoch


@dataclass(eq=False, slots=True)
class _InFlight(_Submission):
    sent_ns: int
    assembly: ChunkReassembler
    is_whole: bool
    """Whether it names no images that were sent with another request."""


class InFlightRequests:
    """Requests of one session; made anew for every `Welcome`."""

    def __init__(
        self,
        welcome: Welcome,
        *,
        send: Callable[..., None],
        emit: Callable[[Event], None],
        ignored: Counter[str],
    ) -> None:
        """send: receives a message and, with a request to a policy that looks back, the images that need not
        be sent."""
        self._welcome = welcome
        self._send = send
        self._emit = emit
        self._ignored = ignored
        self._in_flight: dict[Identity, _InFlight] = {}
        self._waiting: deque[_Submission] = deque()
        self._n_obs_steps = welcome.info.n_obs_steps
        self._sent_images: SentImages = {}
        self._is_kept = True  # whether the server keeps the sent images

    def submit(self, request: ChunkRequest, now_ns: int) -> None:
        """Send now, or wait for credit, replacing older requests that it does not follow."""
        if any(s.identity == (request.request_id, request.epoch) for s in self._open()):
            self._emit(_failed(request, "a request of the same id and epoch is still open"))
            return
        for sent in [s for s in self._in_flight.values() if s.request.epoch < request.epoch]:
            self._give_up(sent)
            self._drop(sent, DropReason.SUPERSEDED)
        for waiting in list(self._waiting):
            if not request.follows(waiting.request):
                self._waiting.remove(waiting)
                self._drop(waiting, DropReason.SUPERSEDED)
        self._waiting.append(_Submission(request, now_ns + request.deadline_ns))
        self._use(now_ns)

    def cancel(self, request_id: int, epoch: int, now_ns: int) -> None:
        """Cancel a request; nothing happens if it is over already."""
        for submission in [s for s in self._open() if s.identity == (request_id, epoch)]:
            self._give_up(submission)
            self._drop(submission, DropReason.CANCELLED)
        self._use(now_ns)

    def expire(self, now_ns: int) -> None:
        """Drop requests past their deadline."""
        for submission in [s for s in self._open() if now_ns >= s.expires_ns]:
            self._give_up(submission)
            self._drop(submission, DropReason.DEADLINE)  # as the server ends it, whichever clock was first
        self._use(now_ns)

    def next_timer_ns(self) -> list[int]:
        """Return when `expire` has to be called."""
        return [s.expires_ns for s in self._open()]

    def receive_rows(self, part: ChunkPart, now_ns: int) -> None:
        """Take rows of an answer: pass on what is next in order, or fail the request if they contradict
        it."""
        submission = self._in_flight_if(part.request_id, part.epoch)
        if submission is None:
            return
        try:
            ready = submission.assembly.add(part)
        except ProtocolError as error:
            self.fail(*submission.identity, f"the server's answer was dropped: {error}", now_ns)
            return
        if not ready:
            self._ignored["rows that came before or too early"] += 1
        for each in ready:
            self._emit(PartReceived(part=each, sent_ns=submission.sent_ns, arrived_ns=now_ns))
        if submission.assembly.is_complete:
            self._return(submission, now_ns)

    def drop(self, dropped: Dropped, now_ns: int) -> None:
        """End a request that the server will not answer."""
        submission = self._in_flight_if(dropped.request_id, dropped.epoch)
        if submission is not None:
            self._emit(dropped)
            self._return(submission, now_ns)

    def fail(self, request_id: int, epoch: int, reason: str, now_ns: int) -> None:
        """Fail a request that the server could not answer, or not validly."""
        submission = self._in_flight_if(request_id, epoch)
        if submission is not None:
            self._emit(_failed(submission.request, reason))
            self._return(submission, now_ns)

    def send_whole(self, request_id: int, epoch: int, now_ns: int) -> None:
        """Send a request again with its images, which the server has lost."""
        submission = self._in_flight_if(request_id, epoch)
        if submission is None:
            return
        if submission.is_whole:
            self._ignored["pictures lost of a whole request"] += 1
            return
        self._is_kept, self._sent_images, submission.is_whole = False, {}, True
        remaining_ns = max(submission.expires_ns - now_ns, 1)
        self._send(self._trimmed(submission.request, remaining_ns=remaining_ns), {})

    def fail_all(self, reason: str) -> None:
        """Fail all open requests: the server is gone."""
        for submission in self._open():
            self._emit(_failed(submission.request, reason))
        self._in_flight.clear()
        self._waiting.clear()

    def _open(self) -> list[_Submission]:
        return [*self._in_flight.values(), *self._waiting]

    def _in_flight_if(self, request_id: int, epoch: int) -> _InFlight | None:
        submission = self._in_flight.get((request_id, epoch))
        if submission is None:
            self._ignored["answer to a request that is over"] += 1
        return submission

    def _give_up(self, submission: _Submission) -> None:
        if isinstance(submission, _InFlight):
            del self._in_flight[submission.identity]
            self._send(Cancel(request_id=submission.request.request_id, epoch=submission.request.epoch))
        else:
            self._waiting.remove(submission)

    def _return(self, submission: _InFlight, now_ns: int) -> None:
        del self._in_flight[submission.identity]
        self._use(now_ns)

    def _use(self, now_ns: int) -> None:
        while self._waiting and self._has_credit(self._waiting[0].request):
            waiting = self._waiting.popleft()
            request = waiting.request
            assembly = ChunkReassembler(
                spec=self._welcome.info.action_spec, t_obs_ns=request.observation.t_obs_ns
            )
            sent = _InFlight(request, waiting.expires_ns, now_ns, assembly, is_whole=not self._sent_images)
            self._in_flight[sent.identity] = sent
            trimmed = self._trimmed(request, remaining_ns=max(waiting.expires_ns - now_ns, 1))
            if self._n_obs_steps == 1:
                self._send(trimmed)
                continue
            self._send(trimmed, self._sent_images)
            if self._is_kept:
                self._sent_images = _images_of(trimmed.observation)

    def _has_credit(self, request: ChunkRequest) -> bool:
        if len(self._in_flight) >= MAX_IN_FLIGHT:
            return False
        return all(request.follows(other.request) for other in self._in_flight.values())

    def _trimmed(self, request: ChunkRequest, *, remaining_ns: int) -> ChunkRequest:
        """Return the request without what the policy does not use, and with the remaining time."""
        observation = self._needed(request.observation)
        if observation.history:
            steps = observation.history[1 - self._n_obs_steps :] if self._n_obs_steps > 1 else ()
            observation = structs.replace(observation, history=tuple(map(self._needed, steps)))
        if observation is request.observation and remaining_ns == request.deadline_ns:
            return request
        return structs.replace(request, observation=observation, deadline_ns=remaining_ns)

    def _needed(self, observation: Observation) -> Observation:
        needed = self._welcome.info.schema
        if observation.images.keys() - needed.cameras.keys():
            images = {name: image for name, image in observation.images.items() if name in needed.cameras}
            observation = structs.replace(observation, images=images)
        if needed.environment_state_dim == 0 and len(observation.environment_state):
            observation = structs.replace(observation, environment_state=np.zeros(0))
        return observation

    def _drop(self, submission: _Submission, reason: DropReason) -> None:
        request_id, epoch = submission.identity
        self._emit(Dropped(request_id=request_id, epoch=epoch, reason=reason))


def _images_of(observation: Observation) -> SentImages:
    frames = (observation, *observation.history)  # in wire order: of one name and time the last counts
    return {(name, image.t_ns): image for frame in frames for name, image in frame.images.items()}


def _failed(request: ChunkRequest, reason: str) -> RequestFailed:
    return RequestFailed(request_id=request.request_id, epoch=request.epoch, reason=reason)
