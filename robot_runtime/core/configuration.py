"""What an executor is made with: `Configuration`. A log holds it, so that replay makes the same executor."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from robot_runtime.core.arming import ArmingRules
from robot_runtime.core.method.latency import LatencyEstimator, LatencyKnown
from robot_runtime.core.method.table import Method
from robot_runtime.core.plan.correction import ResidualHead
from robot_runtime.core.plan.limits import Limits
from robot_runtime.core.plan.predict import HandPose
from robot_runtime.core.plan.whole_body import WholeBody
from robot_runtime.core.state_watch import StateLimits
from robot_runtime.core.values.action import NS_PER_S, ActionSpec
from robot_runtime.core.values.row_statistics import RowStatistics
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Configuration:
    """What an `Executor` is made with."""

    action_spec: ActionSpec
    method: Method
    limits: Limits
    """Limits of every part that the policy commands; no command exceeds them."""
    control_period_ns: int
    """`tick` is called once per period [ns]; a command goes as far as the limits allow in one, however long
    ago the last one was."""
    seed: int = 0
    """Seed of the policy's noise; request k has a seed made from it and k."""
    state_limits: StateLimits = field(default_factory=StateLimits)
    """What makes the robot hold or stop because of what it measures."""
    request_deadline_ns: int = 5 * NS_PER_S
    """An answer that takes longer is given up [ns]."""
    max_inference_delay: int | None = None
    """Most rows of delay the policy was trained for; a longer latency is treated as that many rows and
    counted (`counts.delays_clamped`). None: the method needs no such training."""
    prefix_at_rest: bool = False
    """Whether the policy was trained with prefixes of a stationary robot; if not, requests carry none as long
    as the robot is stationary."""
    hand_pose: HandPose | Foreign | Mapping[str, HandPose | Foreign] | None = None
    """Forward kinematics of "arm", or by part, for methods that roll a plan of joints forward."""
    correction_head: ResidualHead | Foreign | None = None
    """For methods that correct rows on the robot; others leave it alone."""
    whole_body: WholeBody | Mapping[str, WholeBody | Foreign] | None = None
    """Resolves end-effector poses into joints against the measured base, by arm; for an arm without one the
    driver does. Arms that the policy moves otherwise need none."""
    latency: LatencyKnown = field(default_factory=lambda: LatencyEstimator().known)
    """What is known of the inference delay before the first request."""
    row_statistics: RowStatistics | None = None
    """Statistics of the rows the policy was trained on, to recognize a prefix that is foreign to it."""
    part_latency_ns: Mapping[str, int] = field(default_factory=dict)
    """From command to motion, by part: its rows are sent that much earlier [ns]."""
    arming: ArmingRules | None = None
    """Conditions for arming; None: the robot is always armed."""
