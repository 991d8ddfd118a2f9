"""Capabilities of a checkpoint: sampler parts, prefix lengths and valid options."""

from policies.flow.recipes import (
    LambdaMask,
    Masked,
    MixedSchedule,
    Offset,
    Plain,
    Prefix,
    Recipe,
    Residual,
    recipe_name,
)
from robot_runtime.core.method.capabilities import Capabilities
from robot_runtime.core.method.request_parts import LastTarget, RollForward, TrackingLag
from robot_runtime.core.method.sampler_parts import (
    AveragedSamples,
    BestOfSamples,
    ClampedPrefix,
    ConstantSchedule,
    HorizonAwareSchedule,
    LambdaMaskedPrefix,
    PrefixPreservedStart,
    RtcGuidance,
    SamplerPart,
)
from robot_runtime.errors import InvalidValueError

UNTRAINED = (ConstantSchedule, RtcGuidance, BestOfSamples, AveragedSamples)
"""Sampler parts that work with any flow."""
MAX_STEPS = MAX_SAMPLES = 256
"""A request with more is taken for a mistake; it would block other requests."""


def supported_samplers(recipe: Recipe) -> tuple[type[SamplerPart], ...]:
    """The sampler parts that a recipe trains for."""
    match recipe:
        case Prefix():
            return (*UNTRAINED, ClampedPrefix)
        case MixedSchedule():  # one time for all open rows is trained as often as horizon-aware ones
            return (*UNTRAINED, ClampedPrefix, HorizonAwareSchedule)
        case Masked():
            return (*UNTRAINED, PrefixPreservedStart)
        case LambdaMask():
            return (*UNTRAINED, LambdaMaskedPrefix)
        case Plain() | Offset() | Residual():
            return UNTRAINED


def trained_roll_forward(recipe: Recipe) -> RollForward | None:
    """The predictor that reproduces a recipe's training states at run time; None for measured states.

    Without a lag the recipe's joints equal the row that is due, as with `LastTarget`.
    """
    match recipe:
        case Offset(tracking_lag_s=lag_s):
            return TrackingLag(time_constant_s=lag_s) if lag_s > 0.0 else LastTarget()
    return None


def declared(
    recipe: Recipe, *, horizon: int, prefix_at_rest: bool, execution_horizon: int | None = None
) -> Capabilities:
    """The capabilities of a policy trained with a recipe.

    prefix_at_rest: whether its demonstrations include plans that begin with some stationary rows.
    execution_horizon: as its author recommends.
    """
    return Capabilities(
        samplers=supported_samplers(recipe),
        max_inference_delay=min(recipe.max_delay, horizon - 1),
        prefix_at_rest=prefix_at_rest,
        recipe=recipe_name(recipe),
        roll_forward=trained_roll_forward(recipe),
        execution_horizon=execution_horizon,
    )


def check_options(part: SamplerPart) -> None:
    """InvalidValueError: an option is out of range."""
    if part.num_steps is not None and not 1 <= part.num_steps <= MAX_STEPS:
        raise InvalidValueError(
            f"a sampler takes at least 1 step and at most {MAX_STEPS}, got {part.num_steps}"
        )
    match part:
        case RtcGuidance(max_guidance_weight=beta):
            _require(beta >= 0.0, "max_guidance_weight must not be negative", beta)
        case HorizonAwareSchedule(alpha=alpha, u0=u0, early_stop_rows=rows):
            _require(alpha > 0.0, "alpha must be positive", alpha)
            _require(u0 is None or 0.0 <= u0 < 1.0, "u0 must lie in [0, 1)", u0)
            _require(rows is None or rows >= 1, "early_stop_rows must be at least 1", rows)
        case BestOfSamples(num_samples=n, rho=rho, num_contrast=k):
            _require(1 <= n <= MAX_SAMPLES, f"num_samples must lie in 1..{MAX_SAMPLES}", n)
            _require(rho is None or 0.0 < rho <= 1.0, "rho must lie in (0, 1]", rho)
            _require(0 <= k <= n, f"num_contrast must lie in 0..{n}, the samples drawn", k)
        case AveragedSamples(num_samples=n):
            _require(1 <= n <= MAX_SAMPLES, f"num_samples must lie in 1..{MAX_SAMPLES}", n)


def _require(holds: bool, rule: str, value: object) -> None:
    if not holds:
        raise InvalidValueError(f"{rule}, got {value}")
