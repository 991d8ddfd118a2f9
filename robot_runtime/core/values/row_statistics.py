"""Statistics of a policy's training rows: `RowStatistics`, which show that a plan is foreign to it.

    rows of the plan  --- minus their reference --->  relative rows  --- (x - mean) / std --->  deviations

If an arm lags its plan, or something else made the plan, its rows may lie where no demonstration was: a
policy that has to continue them extrapolates, whatever it was trained for.
"""

from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from robot_runtime.core.values.action import (
    ActionSpec,
    BasePose,
    EndEffectorPose,
    JointPosition,
    Numbers,
    Reference,
    WorldEndEffectorPose,
)
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import ARM, BASE, RobotState, readonly
from robot_runtime.core.values.transforms import pose_from_planar
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True, eq=False)
class RowStatistics:
    """Mean and standard deviation of a policy's training rows, as its normalizer has them."""

    mean: Float[np.ndarray, "h D"]
    """h = H, or 1 if all rows have the same."""
    std: Float[np.ndarray, "h D"]
    """Above 0."""
    from_measured: bool
    """Whether they are those of rows minus `row_origin`, and not of the rows themselves."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", readonly(self.mean))
        object.__setattr__(self, "std", readonly(self.std))
        if self.mean.ndim != 2 or self.mean.shape != self.std.shape or not len(self.mean):
            raise InvalidValueError(
                f"statistics of rows are two arrays (H, D), got {self.mean.shape} and {self.std.shape}"
            )
        if not np.isfinite(self.mean).all() or not (np.isfinite(self.std) & (self.std > 0.0)).all():
            raise InvalidValueError("statistics of rows need finite means and finite deviations above 0")

    def deviations(
        self, rows: Float[np.ndarray, "n D"], spec: ActionSpec, state: RobotState
    ) -> Float[np.ndarray, "n D"]:
        """The absolute distance of each number from its mean, in standard deviations.

        rows: the first n of a chunk, as the policy writes them. state: the one in the chunk's request.
        """
        n = len(rows) if len(self.mean) > 1 else 1
        origin = row_origin(spec, state) if self.from_measured else 0.0
        return np.abs(rows - origin - self.mean[:n]) / self.std[:n]


def row_origin(spec: ActionSpec, state: RobotState) -> Float[np.ndarray, " D"]:
    """The reference of the columns of our own policies' rows: the measured joints, base or end effector for
    absolute columns or names of plain numbers; zero elsewhere and for an end effector's rotation.
    """
    origin = np.zeros(spec.dim)
    for f, columns in spec.columns():
        match f:
            case JointPosition(reference=Reference.ABSOLUTE):
                origin[columns] = state.arm(f.part).q
            case EndEffectorPose(reference=Reference.ABSOLUTE):
                origin[columns.start : columns.start + 3] = measured_hand(state, f.part).translation
            case BasePose(reference=Reference.ABSOLUTE):
                origin[columns] = world_base(state, f.part)
            case Numbers() if f.part in state.measured:
                origin[columns] = state.measured[f.part]
            case WorldEndEffectorPose():
                origin[columns.start : columns.start + 3] = p_WE(state, f.part, f.base)
    return origin


def measured_hand(state: RobotState, part: str = ARM) -> pin.SE3:
    """`X_BE`; ValueError: it is unknown."""
    X_BE = state.hand(part)
    if X_BE is None:
        raise ValueError(f"the policy needs the hand pose X_BE{_of(part, ARM)}, the state has none")
    return X_BE


def world_base(state: RobotState, part: str = BASE) -> Float[np.ndarray, "3"]:
    """`x_WB`; ValueError: it is unknown."""
    x_WB = state.base(part).x_WB
    if x_WB is None:
        raise ValueError(f"the policy needs the base's pose x_WB{_of(part, BASE)}, the state has none")
    return x_WB


def p_WE(state: RobotState, part: str = ARM, base: str = BASE) -> Float[np.ndarray, "3"]:
    """Position of the end effector in the world [m]; ValueError: it is unknown."""
    X_BE = measured_hand(state, part)
    return pose_from_planar(world_base(state, base)).act(X_BE.translation)


def _of(part: str, default: str) -> str:
    return "" if part == default else f" of {part!r}"
