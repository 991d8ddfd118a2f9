"""A2C2's correction head on the robot (arXiv 2509.23224): what the newest observation adds to a planned row.

    t_obs             now = t_obs + k dt     + lead dt
    chunk seen from   newest observation     row k + lead:  base row + correction

A small network of three layers, in numpy: tens of microseconds, no torch. It is asked once per row, when row
k is due, about the row that comes `lead` rows later. Asking more often would add the correction up: it is
already counted from where the arm is.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from robot_runtime.core.action import ActionSpec, JointPosition, Reference
from robot_runtime.core.shapes import Float
from robot_runtime.core.state import Observation, readonly
from robot_runtime.errors import InvalidValueError

_ARRAYS = ("w1", "b1", "w2", "b2", "w3", "b3", "in_mean", "in_std", "out_std")
MAX_SIGMA = 5.0


def correction_inputs(
    observation: Observation, chunk: Float[np.ndarray, "H D"], k: float, *, spec: ActionSpec, lead: int
) -> Float[np.ndarray, " I"]:
    """The head's inputs, I numbers, joint columns counted from the measured joints.

        q, gripper width, dq, scene | row k + lead | row k minus it, last row minus it | sin, cos of pi k/H

    k: rows from the chunk's observation to this one; may lie between rows, which are then interpolated.
    """
    state, horizon = observation.state, len(chunk)
    i = np.arange(horizon)
    origin = np.zeros(spec.dim)
    for f, columns in spec.columns():
        if isinstance(f, JointPosition) and f.reference is Reference.ABSOLUTE:
            origin[columns] = state.q
    base, here = (np.array([np.interp(at, i, column) for column in chunk.T]) for at in (k + lead, k))
    width = [] if state.gripper_width is None else [state.gripper_width]
    angle = np.pi * k / horizon
    return np.concatenate(
        [
            state.q,
            width,
            state.dq,
            observation.environment_state,
            base - origin,
            here - base,
            chunk[-1] - base,
            [np.sin(angle), np.cos(angle)],
        ]
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class CorrectionHead:
    """Weights (in, out) of the layers, and what normalises their ends."""

    action_spec: ActionSpec
    lead: int
    """Rows from the newest observation to the row that is corrected."""
    max_age: int
    """Oldest chunk it was trained on [rows]."""
    arrays: Mapping[str, np.ndarray]
    """w1 b1 w2 b2 w3 b3 of the layers; in_mean, in_std (I,) and out_std (D,) [rad, m]."""

    def __post_init__(self) -> None:
        missing = [name for name in _ARRAYS if name not in self.arrays]
        if missing:
            raise InvalidValueError(f"a correction head needs {', '.join(_ARRAYS)}; missing: {missing}")
        arrays = {name: readonly(self.arrays[name]) for name in _ARRAYS}
        object.__setattr__(self, "arrays", arrays)
        if arrays["w3"].shape[1] != self.action_spec.dim:
            raise InvalidValueError(
                f"a correction has {self.action_spec.dim} columns, the head gives {arrays['w3'].shape[1]}"
            )

    def correction(
        self, observation: Observation, chunk: Float[np.ndarray, "H D"], k: float
    ) -> Float[np.ndarray, " D"]:
        """What to add to row k + lead of the chunk, k rows after its observation; zero beyond max_age.

        InvalidValueError: observation or chunk have another size than in training, or are not finite.
        """
        if not 0.0 <= k <= self.max_age or k + self.lead > len(chunk) - 1:
            return np.zeros(self.action_spec.dim)
        x = correction_inputs(observation, chunk, k, spec=self.action_spec, lead=self.lead)
        if x.shape != self.arrays["in_mean"].shape or not np.isfinite(x).all():
            raise InvalidValueError(
                f"the correction head needs {self.arrays['in_mean'].size} finite inputs, got {x.size}"
            )
        return self.forward(x)

    def forward(self, x: Float[np.ndarray, "*n I"]) -> Float[np.ndarray, "*n D"]:
        """Corrections of inputs as `correction_inputs` makes them."""
        a = self.arrays
        h = np.clip((x - a["in_mean"]) / a["in_std"], -MAX_SIGMA, MAX_SIGMA)
        for w, b in (("w1", "b1"), ("w2", "b2")):
            h = h @ a[w] + a[b]
            h = h / (1.0 + np.exp(-h))  # SiLU
        return (h @ a["w3"] + a["b3"]) * a["out_std"]
