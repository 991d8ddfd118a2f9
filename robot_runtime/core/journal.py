"""Records an executor: `RecordedExecutor` passes each call that changes it, and its result, to a journal.

    caller ─► RecordedExecutor ─► Executor
                    │
                    └─ Entry ─► journal (the run's log)

The entries are the inputs of an `Executor`, in order, as frozen values. Fed to another one, with the same
`Configuration`, they give the same commands to the last bit.
"""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from msgspec import Struct

from robot_runtime.core.authority import Authority, HandoverPhase
from robot_runtime.core.configuration import Configuration
from robot_runtime.core.executor import Executor
from robot_runtime.core.plan.answers import PartOutcome, Splice
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.safety import Cause
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import ChunkPart
from robot_runtime.core.values.command import PartCommand
from robot_runtime.core.values.state import Observation, RobotState


class Began(Struct, frozen=True, gc=False):
    """An executor was made."""

    configuration: Configuration


class EpochSet(Struct, frozen=True, gc=False):
    """Requests belong to this epoch from here on."""

    epoch: int


class WasReset(Struct, frozen=True, gc=False):
    """`reset`: the robot holds where it is, or the call was refused."""

    state: RobotState
    now_ns: int


class Looked(Struct, frozen=True, gc=False):
    """`wants_request`, and its result."""

    now_ns: int
    wants_request: bool


class Asked(Struct, frozen=True, gc=False):
    """`make_request`: the observation, and the request made from it."""

    observation: Observation
    request: ChunkRequest


class AskedSoon(Struct, frozen=True, gc=False):
    """`ask_soon`: the next request is due as soon as the method allows."""


class PartCame(Struct, frozen=True, gc=False):
    """`on_part`: rows of an answer, and the outcome."""

    part: ChunkPart
    now_ns: int
    outcome: PartOutcome
    splice: Splice | None = None
    """Where the answer entered the plan, if these rows began it."""


class RequestLost(Struct, frozen=True, gc=False):
    """`on_request_failed`."""

    request_id: int


class ServerLost(Struct, frozen=True, gc=False):
    """`on_server_lost`."""


class Corrected(Struct, frozen=True, gc=False):
    """`correct`."""

    observation: Observation
    now_ns: int


class Armed(Struct, frozen=True, gc=False):
    """`arm`: the operator asked to let rows run."""

    now_ns: int


class Stopped(Struct, frozen=True, gc=False):
    """`stop`."""

    cause: Cause


class TookOver(Struct, frozen=True, gc=False):
    """`take_over`: the operator has these parts, or was refused."""

    parts: tuple[str, ...]
    now_ns: int
    by: Authority


class Led(Struct, frozen=True, gc=False):
    """`lead`: the operator's targets for the next tick."""

    wishes: Mapping[str, PartCommand]
    now_ns: int


class PhaseSaid(Struct, frozen=True, gc=False):
    """`say_phase`: the phase that the operator declares."""

    parts: tuple[str, ...]
    phase: HandoverPhase


class HandedBack(Struct, frozen=True, gc=False):
    """`hand_back`: the operator gives these parts back to the policy."""

    parts: tuple[str, ...]
    now_ns: int


class Ticked(Struct, frozen=True, gc=False):
    """`tick`: the measured state, and the result."""

    state: RobotState
    now_ns: int
    """The clock's reading; `tick.now_ns` if it advanced."""
    tick: Tick


Entry = (
    Began
    | EpochSet
    | WasReset
    | Looked
    | Asked
    | AskedSoon
    | PartCame
    | RequestLost
    | ServerLost
    | Corrected
    | Armed
    | Stopped
    | TookOver
    | Led
    | PhaseSaid
    | HandedBack
    | Ticked
)
Journal = Callable[[Entry], object]
"""Receives an entry; called by the control thread, so it returns at once. The values in an entry no longer
change: it can keep references to them, and the control thread copies and encodes nothing."""


class RecordedExecutor(Executor):
    """An executor whose calls go to a journal.

    A call that the executor may refuse is recorded before it is made, one with a result after it. The
    executor itself uses none of these methods, so each entry is a call from outside.
    """

    def __init__(self, configuration: Configuration, journal: Journal) -> None:
        """InvalidValueError: as of `Executor`; then nothing is recorded."""
        super().__init__(configuration)
        self._journal = journal
        journal(Began(self.configuration))

    def set_epoch(self, epoch: int) -> None:
        self._journal(EpochSet(epoch))
        super().set_epoch(epoch)

    def reset(self, state: RobotState, now_ns: int) -> None:
        self._journal(WasReset(state, now_ns))
        super().reset(state, now_ns)

    def arm(self, now_ns: int) -> None:
        if not self.is_armed:
            self._journal(Armed(now_ns))
        super().arm(now_ns)

    def wants_request(self, now_ns: int) -> bool:
        wants = super().wants_request(now_ns)
        self._journal(Looked(now_ns, wants))
        return wants

    def make_request(self, observation: Observation) -> ChunkRequest:
        request = super().make_request(observation)
        self._journal(Asked(observation, request))
        return request

    def ask_soon(self) -> None:
        self._journal(AskedSoon())
        super().ask_soon()

    def on_part(self, part: ChunkPart, now_ns: int) -> PartOutcome:
        before = self.last_splice
        outcome = super().on_part(part, now_ns)
        after = self.last_splice
        self._journal(PartCame(part, now_ns, outcome, after if after is not before else None))
        return outcome

    def on_request_failed(self, request_id: int) -> None:
        self._journal(RequestLost(request_id))
        super().on_request_failed(request_id)

    def on_server_lost(self) -> None:
        self._journal(ServerLost())
        super().on_server_lost()

    def correct(self, observation: Observation, now_ns: int) -> None:
        self._journal(Corrected(observation, now_ns))
        super().correct(observation, now_ns)

    def stop(self, cause: Cause = Cause.STOP_REQUESTED) -> None:
        self._journal(Stopped(cause))
        super().stop(cause)

    def take_over(
        self, parts: Collection[str], now_ns: int, *, by: Authority = Authority.HUMAN
    ) -> tuple[str, ...]:
        named = self.named(parts)
        self._journal(TookOver(named, now_ns, by))
        return super().take_over(named, now_ns, by=by)

    def lead(self, wishes: Mapping[str, PartCommand], now_ns: int) -> None:
        self._journal(Led(MappingProxyType(dict(wishes)), now_ns))
        super().lead(wishes, now_ns)

    def say_phase(self, parts: Collection[str], phase: HandoverPhase) -> None:
        named = self.named(parts) if parts else self.taken_over
        self._journal(PhaseSaid(named, phase))
        super().say_phase(named, phase)

    def hand_back(self, parts: Collection[str], now_ns: int) -> tuple[str, ...]:
        named = self.named(parts)
        self._journal(HandedBack(named, now_ns))
        return super().hand_back(named, now_ns)

    def tick(self, state: RobotState, now_ns: int) -> Tick:
        tick = super().tick(state, now_ns)
        self._journal(Ticked(state, now_ns, tick))
        return tick


def make_executor(configuration: Configuration, journal: Journal | None) -> Executor:
    """Make an executor, recorded if there is a journal. InvalidValueError: as of `Executor`."""
    return Executor(configuration) if journal is None else RecordedExecutor(configuration, journal)
