"""Settings of LeRobot's RTC engine: what its user can set, and what a careful user would set."""

from dataclasses import dataclass, replace
from enum import Enum

from robot_runtime.errors import InvalidValueError

THEIR_HORIZON = 50
"""Rows of a chunk that LeRobot's default queue threshold is made for (pi0, pi0.5, SmolVLA)."""
ASK_EVERY_ROWS = 4
"""Rows from one observation to the next in our own methods."""
NARROW_ROWS = 5
"""Rows beyond the delay that `Variant.BEST_NARROW` guides."""


class AttentionSchedule(Enum):
    """How guidance falls off over the overlap; values as LeRobot's `RTCAttentionSchedule`."""

    ZEROS = "ZEROS"
    ONES = "ONES"
    LINEAR = "LINEAR"
    EXP = "EXP"


@dataclass(frozen=True, kw_only=True)
class LeRobotSettings:
    """What a user of `lerobot-rollout --inference.type=rtc` can set; defaults are theirs."""

    rtc: bool = True
    """False appends each chunk behind the queue, unguided."""
    execution_horizon: int = 10
    """Rows of the old chunk that guide the new one (LeRobot's name; the paper's H - s)."""
    schedule: AttentionSchedule = AttentionSchedule.LINEAR
    max_guidance_weight: float = 10.0
    queue_threshold: int = 30
    """Asks when no more rows than this are left."""
    interpolation_multiplier: int = 1
    """Targets per row (`ActionInterpolator`), which then lag by one row."""

    def __post_init__(self) -> None:
        if self.execution_horizon < 1 or self.queue_threshold < 0 or self.interpolation_multiplier < 1:
            raise InvalidValueError(f"these settings cannot work: {self}")


class Variant(Enum):
    """Ways to set LeRobot up."""

    DEFAULTS = "defaults"
    """As they come; the threshold of 30 rows of 50 scaled to the same share of our chunk."""
    AS_GIVEN = "as-given"
    """As they come, the threshold 30 as well."""
    BEST_WIDE = "best-wide"
    """Set with care, without touching their code: asks as often as our methods, guided over the whole overlap
    (the paper's end = H - s), no harder than the policy's steps allow."""
    BEST_NARROW = "best-narrow"
    """The same, guided over a few rows beyond the delay only: less bound to the old plan, rougher seams."""
    INTERPOLATED = "interpolated"
    """The wide one, and their interpolator between rows, fivefold."""
    REPLACE = "replace"
    """As the defaults, guidance too weak to matter: newest chunk, cut by the delay."""
    APPEND = "append"
    """RTC off: chunks one after the other."""


def settings_of(
    variant: Variant, *, horizon: int, num_steps: int, expected_delay_rows: int
) -> LeRobotSettings:
    """Return the settings of a variant for chunks of `horizon` rows and a delay that was measured before.

    num_steps: Euler steps of the policy. The paper's beta equals its steps (5); a larger weight overshoots,
        because a step of 1 / num_steps times it moves a row beyond what it is drawn to.

    The best ask every s = max(4, d) rows, so H - s rows of the old chunk are left to be guided by; if d
    leaves fewer than d of them, no setting guides the whole seam. Neither is best everywhere: at 400 ms
    wide guidance places the cube more often, narrow guidance follows the target more closely. On 8 seeds
    the exponential fall-off succeeded no more often than the linear one on either task.
    """
    scaled = LeRobotSettings(queue_threshold=30 * horizon // THEIR_HORIZON)
    s = min(max(ASK_EVERY_ROWS, expected_delay_rows), horizon - 1)
    wide = LeRobotSettings(
        execution_horizon=horizon - s, queue_threshold=horizon - s, max_guidance_weight=float(num_steps)
    )
    match variant:
        case Variant.DEFAULTS:
            return scaled
        case Variant.AS_GIVEN:
            return LeRobotSettings()
        case Variant.BEST_WIDE:
            return wide
        case Variant.BEST_NARROW:
            narrow = min(expected_delay_rows + NARROW_ROWS, horizon - s)
            return replace(wide, execution_horizon=narrow)
        case Variant.INTERPOLATED:
            return replace(wide, interpolation_multiplier=5)
        case Variant.REPLACE:
            return replace(scaled, max_guidance_weight=1e-9)
        case Variant.APPEND:
            return replace(scaled, rtc=False)
