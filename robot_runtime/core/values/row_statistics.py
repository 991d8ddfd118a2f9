"""What a policy has been shown as rows: `RowStatistics`, which tell that a plan is foreign to it.

    rows of the plan  --- minus what they count from --->  relative rows  --- (x - mean) / std --->  how far

An arm that lags behind its plan, or a plan that somebody else has made, may lie where no demonstration was: a
policy that is told to continue it extrapolates, whatever it was trained for.
"""

from dataclasses import dataclass

import numpy as np

from robot_runtime.core.values.action import (
    ActionSpec,
    BasePose,
    EndEffectorPose,
    JointPosition,
    Reference,
    WorldEndEffectorPose,
)
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import RobotState, readonly
from robot_runtime.core.values.transforms import pose_from_planar
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True, eq=False)
class RowStatistics:
    """Mean and deviation of the rows that a policy was trained on, as its normaliser has them."""

    mean: Float[np.ndarray, "h D"]
    """h = H, or 1 if all rows have the same."""
    std: Float[np.ndarray, "h D"]
    """Above 0."""
    from_measured: bool
    """Whether they are of rows less `row_origin`, and not of rows as they are."""

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
        """How many standard deviations each number lies from its mean, without sign.

        rows: the first n of a chunk, as the policy writes them. state: that the chunk is asked with.
        """
        n = len(rows) if len(self.mean) > 1 else 1
        origin = row_origin(spec, state) if self.from_measured else 0.0
        return np.abs(rows - origin - self.mean[:n]) / self.std[:n]


def row_origin(spec: ActionSpec, state: RobotState) -> Float[np.ndarray, " D"]:
    """What the columns of our own policies' rows count from: the measured joints, base or hand under absolute
    columns, zero elsewhere and under a hand's rotation.
    """
    origin = np.zeros(spec.dim)
    for f, columns in spec.columns():
        match f:
            case JointPosition(reference=Reference.ABSOLUTE):
                origin[columns] = state.q
            case EndEffectorPose(reference=Reference.ABSOLUTE):
                if state.X_BE is None:
                    raise ValueError("the policy needs the hand pose X_BE, the state has none")
                origin[columns.start : columns.start + 3] = state.X_BE.translation
            case BasePose(reference=Reference.ABSOLUTE):
                origin[columns] = world_base(state)
            case WorldEndEffectorPose():
                origin[columns.start : columns.start + 3] = p_WE(state)
    return origin


def world_base(state: RobotState) -> Float[np.ndarray, "3"]:
    """`x_WB`; ValueError: it is not known."""
    if state.x_WB is None:
        raise ValueError("the policy needs the base's pose x_WB, the state has none")
    return state.x_WB


def p_WE(state: RobotState) -> Float[np.ndarray, "3"]:
    """Where the hand is in the world [m]; ValueError: it is not known."""
    if state.X_BE is None:
        raise ValueError("the policy needs the hand pose X_BE, the state has none")
    return pose_from_planar(world_base(state)).act(state.X_BE.translation)
