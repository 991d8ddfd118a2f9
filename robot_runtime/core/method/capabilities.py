"""Capabilities of a policy, and whether a method needs others: checked before anything moves."""

from dataclasses import dataclass, field, replace

from robot_runtime.core.method.request_parts import LastTarget, RolledForwardState, RollForward
from robot_runtime.core.method.sampler_parts import (
    ClampedPrefix,
    ConstantSchedule,
    HorizonAwareSchedule,
    LambdaMaskedPrefix,
    PrefixPreservedStart,
    SamplerPart,
)
from robot_runtime.core.method.splice_parts import NoCorrection, PerRowCorrection
from robot_runtime.core.method.table import METHODS, Method
from robot_runtime.core.values.row_statistics import RowStatistics
from robot_runtime.errors import InvalidValueError

TRAINED_BY_LENGTH = (ClampedPrefix, PrefixPreservedStart, LambdaMaskedPrefix, HorizonAwareSchedule)
"""Sampler parts that rely on training with prefixes as long as that of the request."""

WITH_HEAD = "residual"
"""The recipe that trains a correction head beside the policy."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """The samplers, delays and other method features that a policy declares."""

    samplers: tuple[type[SamplerPart], ...] = (ConstantSchedule,)
    """Sampler parts that it was trained for, or that need no training."""
    max_inference_delay: int = 0
    """Longest inference delay it was trained for [rows]; 0 for none."""
    prefix_at_rest: bool = False
    """Whether it was trained with prefixes of a robot at rest. If not, a stationary robot asks without a
    prefix: with one, the policy would remain stationary."""
    recipe: str = ""
    """Name of its training recipe; empty for a policy that was not trained."""
    roll_forward: RollForward | None = None
    """How the states of its training were rolled forward; None: it was trained on measured ones."""
    execution_horizon: int | None = None
    """Best execution horizon under its default method [rows]; None: the method's own."""
    temporal_ensemble: float | None = None
    """m of the average over its chunks (`TemporalEnsembling`) that it was made for; None: none."""
    row_statistics: RowStatistics | None = field(default=None, compare=False)
    """Statistics of its training rows, if known; no two trainings have the same."""

    def misfit(self, method: Method) -> str | None:
        """Why the policy cannot be run by the method; None if it can."""
        if not isinstance(method.sampler, self.samplers):
            return f"it does not take the sampler {type(method.sampler).__name__}"
        if isinstance(method.request, RolledForwardState) and self.roll_forward is None:
            return "it was not trained on states rolled forward"
        return None

    def methods(self) -> tuple[str, ...]:
        """Names of the methods that can run it; those that need a correction head only if it has one."""
        return tuple(
            name
            for name, method in METHODS.items()
            if self.misfit(method) is None
            and (isinstance(method.correction, NoCorrection) or self.recipe == WITH_HEAD)
        )

    def trained_delay(self, method: Method) -> int | None:
        """Most rows of delay that training covers; None if the method needs no such training."""
        if isinstance(method.sampler, TRAINED_BY_LENGTH) or isinstance(method.request, RolledForwardState):
            return self.max_inference_delay or None
        return None


def training_recipe(method: Method) -> str:
    """The recipe of `robot-runtime train` for a policy of this method."""
    match method:
        case Method(correction=PerRowCorrection()):
            return WITH_HEAD
        case Method(sampler=ClampedPrefix()):
            return "prefix"
        case Method(sampler=PrefixPreservedStart()):
            return "masked"
        case Method(sampler=LambdaMaskedPrefix()):
            return "lambda-mask"
        case Method(sampler=HorizonAwareSchedule()):
            return "mixed-schedule"
        case Method(request=RolledForwardState()):
            return "offset"
    return "plain"


def resolve_method(method: Method, capabilities: Capabilities, *, policy: str) -> Method:
    """The method completed by what the policy decides: how states are rolled forward.

    policy: its name, for the message.
    InvalidValueError: the policy was not made for the method; lists the methods that it supports.
    """
    if (reason := capabilities.misfit(method)) is not None:
        recipe = f", recipe {capabilities.recipe}," if capabilities.recipe else ""
        raise InvalidValueError(
            f"policy {policy!r}{recipe} cannot be run by this method: {reason}. The method needs a policy "
            f"of recipe {(needed := training_recipe(method))}: a shipped one, TASK-{needed}, or one trained "
            f"with `robot-runtime train --recipe {needed}`. This policy supports the methods "
            f"{', '.join(capabilities.methods()) or 'none'} (samplers "
            f"{', '.join(part.__name__ for part in capabilities.samplers) or 'none'})"
        )
    match method.request:
        case RolledForwardState(model=None):
            model = capabilities.roll_forward or LastTarget()
            return replace(method, request=replace(method.request, model=model))
    return method
