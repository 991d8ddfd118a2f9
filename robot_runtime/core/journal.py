"""The inputs of an `Executor`, in order, as frozen values: `Entry`. Fed to another one, with the same
`Configuration`, they give the same commands to the last bit.

    Executor(..., journal=entries.append)      every call that changes it, and its result

The receiver keeps references to values that no longer change; nothing is copied or encoded in the control
thread.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from robot_runtime.core.authority import Authority, HandoverPhase
from robot_runtime.core.configuration import Configuration
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
"""Receives an entry; called by the control thread, so it returns at once."""
