"""The inputs of an `Executor`, in order, as frozen values: `Entry`. Fed to another one, with the same
`Configuration`, they give the same commands to the last bit.

    Executor(..., journal=entries.append)      every call that changes it, and its result

The receiver keeps references to values that no longer change; nothing is copied or encoded in the control
thread.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from robot_runtime.core.arming import ArmingRules
from robot_runtime.core.authority import Authority, HandoverPhase
from robot_runtime.core.method.latency import LatencyEstimator
from robot_runtime.core.method.table import Method
from robot_runtime.core.plan.answers import PartOutcome, Splice
from robot_runtime.core.plan.correction import ResidualHead
from robot_runtime.core.plan.limits import Limits
from robot_runtime.core.plan.predict import HandPose
from robot_runtime.core.plan.whole_body import WholeBody
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.safety import Cause
from robot_runtime.core.state_watch import StateLimits
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import ActionSpec, ChunkPart
from robot_runtime.core.values.command import PartCommand
from robot_runtime.core.values.row_statistics import RowStatistics
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True)
class Foreign:
    """Placeholder for what a log cannot hold: an object or a function of the user's."""

    text: str
    """A description of it."""


def known(value: Any) -> Any:
    """The value, or mapping of values, itself. InvalidValueError: one is `Foreign`."""
    match value:
        case Foreign(text=text):
            raise InvalidValueError(f"a log could not hold {text}")
        case Mapping():
            return {name: known(each) for name, each in value.items()}
    return value


@dataclass(frozen=True, kw_only=True)
class LatencyKnown:
    """The memory of a `LatencyEstimator` that an executor started with."""

    window: int
    skips_first: bool
    is_cold: bool
    """Whether the next latency is the first, and left out."""
    samples_ns: tuple[int, ...]

    @classmethod
    def of(cls, estimator: LatencyEstimator) -> "LatencyKnown":
        """The estimator's memory as it is now."""
        window, skips_first, is_cold, samples = estimator.memory
        return cls(window=window, skips_first=skips_first, is_cold=is_cold, samples_ns=samples)

    def estimator(self) -> LatencyEstimator:
        """A new estimator with this memory."""
        out = LatencyEstimator(window=self.window, skips_first=self.skips_first)
        if not self.is_cold:
            out.warm()
        for each in self.samples_ns:
            out.add(each)
        return out


@dataclass(frozen=True, kw_only=True, eq=False)
class Configuration:
    """The arguments that an executor was made with, by their names."""

    action_spec: ActionSpec
    method: Method
    limits: Limits
    """Limits of every part that the policy commands; no command exceeds them."""
    control_period_ns: int
    """`tick` is called once per period [ns]; a command goes as far as the limits allow in one, however long
    ago the last one was."""
    seed: int
    """Seed of the policy's noise; request k has a seed made from it and k."""
    state_limits: StateLimits
    """What makes the robot hold or stop because of what it measures."""
    request_deadline_ns: int
    """An answer that takes longer is given up [ns]."""
    max_inference_delay: int | None
    """Most rows of delay the policy was trained for; a longer latency is treated as that many rows and
    counted (`counts.delays_clamped`). None: the method needs no such training."""
    prefix_at_rest: bool
    """Whether the policy was trained with prefixes of a stationary robot; if not, requests carry none as long
    as the robot is stationary."""
    hand_pose: HandPose | Foreign | Mapping[str, HandPose | Foreign] | None
    """Forward kinematics of "arm", or by part, for methods that roll a plan of joints forward."""
    correction_head: ResidualHead | Foreign | None
    """For methods that correct rows on the robot; others leave it alone."""
    whole_body: Mapping[str, WholeBody | Foreign]
    """Resolves end-effector poses into joints against the measured base, by arm; for an arm without one the
    driver does. Arms that the policy moves otherwise need none."""
    latency: LatencyKnown
    """What is known of the inference delay before the first request."""
    row_statistics: RowStatistics | None
    """Statistics of the rows the policy was trained on, to recognize a prefix that is foreign to it."""
    part_latency_ns: Mapping[str, int]
    """From command to motion, by part: its rows are sent that much earlier [ns]."""
    arming: ArmingRules | None
    """Conditions for arming; None: the robot is always armed."""


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
