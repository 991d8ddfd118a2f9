"""The next setpoint towards a leader: inside the limits, and never past the leader.

    leader   ──╱‾‾‾‾‾‾‾    its newest pose is the goal, and the goal counts as stationary
    part     ──_╱‾‾‾‾‾‾    the longest step from which the part can still brake to rest at the goal

A goal that moves is approached anew from the part's motion, so a part behind a steady leader moves as
steadily. It is never nearer than its own braking distance: that is what "never past" costs. Steps use the
braking law of the limiter (`core/plan/axis.py`), so the limiter behind a follower holds nothing back.
"""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from robot_runtime.core.plan.axis import Axis
from robot_runtime.core.plan.limits import BaseLimits, GripperLimits, JointLimits, MotionLimits, SpeedCurve
from robot_runtime.core.values.shapes import Float
from robot_runtime.errors import InvalidValueError

_WITHIN = 1.0 - 1e-6
"""Share of the limits that is used, so that rounding does not reach the limiter."""
_EASE = 0.75, 0.85, 0.95, 1.05, 1.2, 1.4
"""Shares of the acceleration and jerk of an end effector. The approach plans with the first; where the
joints lose capacity on the way, it brakes with the first that suffices."""
FAR = 1e3
"""Distance of the goal of a velocity [m] or [rad]; no goal is farther."""

Between = Callable[[np.ndarray, np.ndarray], np.ndarray]


def difference(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return the steps between two commands of independent axes."""
    return b - a


class Axes:
    """The n axes of a part: their limits, and their motion from command to command."""

    def __init__(
        self,
        limits: MotionLimits,
        dt_s: float,
        *,
        low: Float[np.ndarray, " n"] | None = None,
        high: Float[np.ndarray, " n"] | None = None,
        curve: SpeedCurve | None = None,
        share: float = 1.0,
    ) -> None:
        """share: of the speed that is used. The rest: as in `AxisLimiter`."""
        n = len(limits.speed)
        self._axes = [
            Axis(
                float(_WITHIN * share * limits.speed[i]),
                float(_WITHIN * limits.acceleration[i]),
                float(_WITHIN * limits.jerk[i]),
                period_s=dt_s,
                low=-math.inf if low is None else float(low[i]),
                high=math.inf if high is None else float(high[i]),
            )
            for i in range(n)
        ]
        if curve is not None:
            numbers = zip(curve.low, curve.high, curve.gain, curve.offset, strict=True)
            for axis, each in zip(self._axes, numbers, strict=True):
                axis.follow_curve(*map(float, each))
        self._longest = (limits.speed * dt_s * (1.0 + 1e-3)).tolist()
        self.s: np.ndarray = np.zeros(n)
        """Step of each axis in the last tick."""
        self.b: np.ndarray = np.zeros(n)
        """Change of that step."""

    def went(self, steps: Float[np.ndarray, " n"]) -> None:
        """Note the commanded steps of one tick.

        After a discontinuity (a reset, a jump of odometry) the last steps are kept.
        """
        numbers = steps.tolist()
        if not all(abs(step) <= most for step, most in zip(numbers, self._longest, strict=True)):
            numbers = self.s.tolist()
        for axis, step in zip(self._axes, numbers, strict=True):
            axis.go(step)
        self.s, self.b = np.array(numbers), np.array([axis.b for axis in self._axes])

    @property
    def is_at_rest(self) -> bool:
        return all(abs(axis.s) <= axis.snap and abs(axis.b) <= axis.snap for axis in self._axes)

    def brake(self) -> Float[np.ndarray, " n"]:
        """Return steps that brake as fast as the limits allow."""
        return np.array([axis.s + axis.brake.next(axis.s, axis.b) for axis in self._axes])

    def toward(
        self, at: Float[np.ndarray, " n"], gap: Float[np.ndarray, " n"], *, share: float = 1.0
    ) -> Float[np.ndarray, " n"]:
        """Return steps over a gap, each axis alone; share: largest share of the gap in one step."""
        return np.array(
            [
                _toward(axis, p, min(max(to_go, axis.end_low - p), axis.end_high - p), share)
                for axis, p, to_go in zip(self._axes, at.tolist(), gap.tolist(), strict=True)
            ]
        )

    def steered(self, steps: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return steps that approach those, as fast as the limits allow and never beyond."""
        return np.array(
            [
                axis.s + axis.brake.next(axis.s - min(max(step, -axis.speed), axis.speed), axis.b)
                for axis, step in zip(self._axes, steps.tolist(), strict=True)
            ]
        )

    def span(self, at: Float[np.ndarray, " n"]) -> tuple[np.ndarray, np.ndarray]:
        """Return the smallest and the largest next step of each axis."""
        spans = [axis.span(p) for axis, p in zip(self._axes, at.tolist(), strict=True)]
        return np.array([low for low, _ in spans]), np.array([high for _, high in spans])


def axes_of(limits: JointLimits | GripperLimits | BaseLimits, dt_s: float, *, share: float = 1.0) -> Axes:
    """Make the axes of a part from its limits; share: of the joints' speed that is used.

    InvalidValueError: a gripper's limits declare no motion.
    """
    match limits:
        case JointLimits():
            low, high = limits.q_min, limits.q_max
            return Axes(limits.joints, dt_s, low=low, high=high, curve=limits.dq_curve, share=share)
        case GripperLimits(motion=MotionLimits() as motion):
            return Axes(motion, dt_s, low=np.array([limits.low]), high=np.array([limits.high]))
        case BaseLimits(motion=motion):
            return Axes(motion, dt_s)
    raise InvalidValueError("expected limits of motion for a gripper that is driven, got none")


class Trail:
    """Turns the commands of a part, tick by tick, into steps of its axes."""

    def __init__(
        self, make: Callable[[float], Axes], before: list[np.ndarray], between: Between | None
    ) -> None:
        """
        make: axes for a control period [s].
        before: the commands of the previous ticks, newest last.
        between: (from one command, to the next) -> steps, as `difference` returns them; None: the part is
            commanded by velocities.
        """
        self._make, self._path, self._between = make, before, between
        self._axes: Axes | None = None

    def at(self, command: np.ndarray, dt_s: float) -> Axes:
        """Return the axes after the newest command; call it once a tick."""
        if self._axes is None:
            self._axes = self._make(dt_s)
        path, self._path = [*self._path, command], [command]
        if self._between is None:
            path = path if len(path) > 2 else path[-1:]
            for velocity in path:
                self._axes.went(velocity * dt_s)
        else:
            for a, b in pairwise(path):
                self._axes.went(self._between(a, b))
        return self._axes


def vector_toward(
    gap: Float[np.ndarray, " n"],
    s: Float[np.ndarray, " n"],
    b: Float[np.ndarray, " n"],
    *,
    limits: tuple[float, float, float],
    share: float,
    dt_s: float,
) -> Float[np.ndarray, " n"]:
    """Return a vector's step straight over a gap; velocity in other directions is braked.

    s, b: its last step, and the change of that. limits: of its length: speed, acceleration, jerk; per second.
    share: largest share of the gap in the step.
    """
    speed, acceleration, jerk = limits
    distance = math.hypot(*gap.tolist())
    n = gap / distance if distance > 0.0 else _unit(s)
    brake = Axis(speed, acceleration, jerk, period_s=dt_s).brake
    out, sideways = np.zeros(gap.size), 0.0
    for side in _sides(n, s, b):
        lost, by = float(s @ side), float(b @ side)
        out += (lost + brake.next(lost, by)) * side
        sideways = math.hypot(sideways, max(brake.peak(lost, by), brake.peak(-lost, -by)))
    straight = math.sqrt(max(speed**2 - (sideways / dt_s) ** 2, 0.0))
    along, change, most = float(s @ n), float(b @ n), math.inf
    for ease in _EASE:
        axis = Axis(straight, ease * acceleration, ease * jerk, period_s=dt_s)
        axis.s, axis.b = along, change
        if change >= -axis.brake.most and axis.brake.reach(along, change) <= distance:
            break
        most = min(along + axis.brake.next(along, change), most)
    return out + min(_toward(axis, 0.0, distance, share), most) * n


def _toward(axis: Axis, at: float, gap: float, share: float) -> float:
    if abs(gap) <= axis.snap and axis.may_step(at, gap):
        return gap
    return axis.toward(at, gap, share=share)


def _unit(v: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return its direction; an arbitrary one for the zero vector."""
    length = math.hypot(*v.tolist())
    return v / length if length > 0.0 else np.eye(1, v.size)[0]


def _sides(n: Float[np.ndarray, " n"], *vectors: Float[np.ndarray, " n"]) -> list[np.ndarray]:
    """Return orthonormal directions across n that span the vectors' components across n."""
    basis = [n]
    for v in vectors:
        across = v
        for _ in range(2):  # the second pass removes rounding errors
            for each in basis:
                across = across - (across @ each) * each
        if math.hypot(*across.tolist()) > 1e-9 * math.hypot(*v.tolist()):
            basis.append(_unit(across))
    return basis[1:]
