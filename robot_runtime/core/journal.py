"""What goes into an `Executor`, in order, as frozen values: `Entry`. Fed to another one, with the same
`Configuration`, they give the same commands to the last bit.

    Executor(..., journal=entries.append)      every call that changes it, and what came of it

Whoever is given the entries keeps references to values that nobody changes any more; nothing is copied or
encoded in the control thread.
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
    """What a log cannot hold, in its place: an object or a function of the user's."""

    text: str
    """What it was, for people."""


def known(value: Any) -> Any:
    """A value, or a mapping of them. InvalidValueError: it is `Foreign`."""
    match value:
        case Foreign(text=text):
            raise InvalidValueError(f"a log could not hold {text}")
        case Mapping():
            return {name: known(each) for name, each in value.items()}
    return value


@dataclass(frozen=True, kw_only=True)
class LatencyKnown:
    """A `LatencyEstimator` as an executor was given it."""

    window: int
    skips_first: bool
    is_cold: bool
    """The next latency is the first, and left out."""
    samples_ns: tuple[int, ...]

    @classmethod
    def of(cls, estimator: LatencyEstimator) -> "LatencyKnown":
        """As it is now."""
        window, skips_first, is_cold, samples = estimator.memory
        return cls(window=window, skips_first=skips_first, is_cold=is_cold, samples_ns=samples)

    def estimator(self) -> LatencyEstimator:
        """Another one that knows the same."""
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
    """Of every part that the policy commands; nothing passes them, whatever is asked for."""
    control_period_ns: int
    """`tick` is called once in each [ns]; a command goes as far as the limits allow in one, however long ago
    the last one was."""
    seed: int
    """Of the noise the policy draws; request k is asked with a seed made from it and k."""
    state_limits: StateLimits
    """What makes the robot hold or stop because of what it measures."""
    request_deadline_ns: int
    """An answer that takes longer is given up [ns]."""
    max_inference_delay: int | None
    """Most rows of delay the policy was trained for; a longer latency is treated as that many rows and
    counted (`counts.delays_clamped`). None: the method needs no such training."""
    prefix_at_rest: bool
    """Whether the policy was shown prefixes of a robot that stands; if not, it is asked without one as long
    as the robot stands."""
    hand_pose: HandPose | Foreign | Mapping[str, HandPose | Foreign] | None
    """Forward kinematics of "arm", or by part, for methods that roll a plan of joints forward."""
    correction_head: ResidualHead | Foreign | None
    """For methods that correct rows on the robot; others leave it alone."""
    whole_body: Mapping[str, WholeBody | Foreign]
    """Resolves hand poses into joints against the measured base, by arm; what is missing is the driver's.
    Arms that the policy moves otherwise do without."""
    latency: LatencyKnown
    """What is known of the inference delay before the first request."""
    row_statistics: RowStatistics | None
    """Of the rows the policy was trained on: they tell a prefix that is foreign to it."""
    part_latency_ns: Mapping[str, int]
    """From command to motion, by part: its rows are sent that much earlier [ns]."""
    arming: ArmingRules | None
    """What has to be there before `arm` lets rows run; None: it is armed, always."""


class Began(Struct, frozen=True, gc=False):
    """An executor was made."""

    configuration: Configuration


class EpochSet(Struct, frozen=True, gc=False):
    """Requests are counted in this epoch from here on."""

    epoch: int


class WasReset(Struct, frozen=True, gc=False):
    """`reset`: it stands where the robot is, or has refused to."""

    state: RobotState
    now_ns: int


class Looked(Struct, frozen=True, gc=False):
    """`wants_request`, and what it said."""

    now_ns: int
    wants_request: bool


class Asked(Struct, frozen=True, gc=False):
    """`make_request`: what was seen, and the request that was made of it."""

    observation: Observation
    request: ChunkRequest


class AskedSoon(Struct, frozen=True, gc=False):
    """`ask_soon`: something else is asked for from here on."""


class PartCame(Struct, frozen=True, gc=False):
    """`on_part`: rows of an answer, and what became of them."""

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
    """`arm`: it was asked to let rows run."""

    now_ns: int


class Stopped(Struct, frozen=True, gc=False):
    """`stop`."""

    cause: Cause


class TookOver(Struct, frozen=True, gc=False):
    """`take_over`: a person has these parts, or was refused."""

    parts: tuple[str, ...]
    now_ns: int
    by: Authority


class Led(Struct, frozen=True, gc=False):
    """`lead`: what she wants of her parts in the next tick."""

    wishes: Mapping[str, PartCommand]
    now_ns: int


class PhaseSaid(Struct, frozen=True, gc=False):
    """`say_phase`: what she says that she does."""

    parts: tuple[str, ...]
    phase: HandoverPhase


class HandedBack(Struct, frozen=True, gc=False):
    """`hand_back`: these parts are to be the policy's again."""

    parts: tuple[str, ...]
    now_ns: int


class Ticked(Struct, frozen=True, gc=False):
    """`tick`: what was measured, and what came of it all."""

    state: RobotState
    now_ns: int
    """As the clock said; `tick.now_ns` if it went on."""
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
"""Takes an entry; called by the control thread, so it returns at once."""
