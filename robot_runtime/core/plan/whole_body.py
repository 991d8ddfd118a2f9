"""Whole-body control: `WholeBody` keeps the end effector where the plan has it, whatever the base does.

A row holds the pose of the base and that of the end effector relative to it. Together they are a pose in the
world, which is the target: the arm is resolved against the base as measured, so that it compensates lag, slip
and overshoot of the base.

    X_WE = X_WB(planned) * X_BE(planned)          planned pose in the world
    X_BE = X_WB(measured)^-1 * X_WE               pose of the arm that reaches it

One step of differential inverse kinematics a tick, from the joints commanded last:

    minimise |J dq - twist|^2 + damping |dq - dq_0|^2   with  dq_min <= dq <= dq_max

where dq_0 pulls towards a posture and away from singular ones, in the null space of the end effector's
motion.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import pinocchio as pin

from robot_runtime.core.plan.limits import Limits
from robot_runtime.core.values.action import NS_PER_S, ActionSpec, EndEffectorPose, WorldEndEffectorPose
from robot_runtime.core.values.command import BasePoseCommand, Command, JointCommand, PoseCommand
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import ARM, BASE, RobotState, readonly
from robot_runtime.core.values.transforms import (
    compose_planar,
    integrate_twist,
    inverse_planar,
    pose_from_planar,
)
from robot_runtime.errors import InvalidValueError

_REGULAR = 1e-9
"""Keeps J J^T invertible at a singular posture; smaller than any damping."""
_EYE = np.eye(6)


@runtime_checkable
class ArmKinematics(Protocol):
    """An arm's forward kinematics and Jacobian; N joints, E relative to the mobile base B."""

    def forward(self, q: Float[np.ndarray, " N"]) -> pin.SE3:
        """`X_BE` at joint positions q [rad]."""
        ...

    def jacobian(self, q: Float[np.ndarray, " N"]) -> Float[np.ndarray, "6 N"]:
        """Twist of E (linear, angular), expressed in B at E, per joint velocity."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class WholeBodyGains:
    """Gains of the arm's null-space motion, damping and speed limits."""

    posture: Float[np.ndarray, " N"]
    """Preferred joint positions [rad]."""
    posture_rate: float = 1.0
    """Gain towards them: share of the distance per second [1/s]."""
    manipulability_rate: float = 0.5
    """Gain away from singular postures, along the gradient of log w [rad^2/s]."""
    free_speed_max: float = 0.5
    """Limit of both together, the norm over all joints [rad/s]."""
    posture_period_ns: int = 9_000_000
    """How often these terms and the damping are updated; joints turn by a few hundredths of a radian
    meanwhile. A loop of 100 Hz updates them in every tick [ns]."""
    singular_below: float = 0.06
    """Smallest singular value of J (in metres and radians) below which steps are damped."""
    max_damping: float = 0.04
    """Damping at a singular posture."""
    arm_lag_s: float = 0.03
    """How far the arm lags its setpoint [s]: the base is extrapolated by as much."""
    hand_speed_max: float = 1.5
    """Speed limit of the end effector relative to the base [m/s]; a farther target is approached at it."""
    hand_rotation_max: float = 3.0
    """[rad/s]"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "posture", readonly(self.posture))


@dataclass(frozen=True, kw_only=True)
class HandError:
    """Distance of the end effector, at the commanded joints, from its planned pose."""

    position: float
    """[m]"""
    rotation: float
    """[rad]"""

    @property
    def is_reached(self) -> bool:
        """Whether the error is small enough: 2 cm and 0.2 rad."""
        return self.position < 0.02 and self.rotation < 0.2


@dataclass(kw_only=True, eq=False)
class WholeBody:
    """Turns end-effector commands into joint commands, tick by tick; remembers the joints commanded last.

    A target out of reach is approached as near as the limits allow; `error` is the distance that remains.
    """

    kinematics: ArmKinematics
    limits: Limits
    gains: WholeBodyGains
    part: str = ARM
    """The arm that it moves."""
    base: str = BASE
    """The part that carries the arm."""
    error: HandError = field(default_factory=lambda: HandError(position=0.0, rotation=0.0))
    """Error after the last `resolve`."""
    _q: Float[np.ndarray, " N"] = field(default_factory=lambda: np.zeros(0))
    _X_BE: pin.SE3 = field(default_factory=pin.SE3.Identity)  # with the joints _q
    _t_ns: int = 0
    _dq_0: Float[np.ndarray, " N"] = field(default_factory=lambda: np.zeros(0))
    _damping: float = 0.0
    _updated_ns: int | None = None

    def reset(self, q: Float[np.ndarray, " N"], now_ns: int) -> None:
        """Start at rest with these joints [rad]."""
        self._q, self._t_ns = np.array(q, dtype=float), now_ns
        self._X_BE = self.kinematics.forward(self._q)
        self._updated_ns = None
        self.error = HandError(position=0.0, rotation=0.0)

    def resolve(
        self, command: Command, state: RobotState, now_ns: int, *, doing: Command | None = None
    ) -> Command:
        """The command with its end-effector pose resolved into joints; one without such a pose is unchanged.

        Call it once a tick, with rising times. A state that is not finite leaves the joints where they are.
        doing: the plan for now, if the arm has latency and the command is for later: the base is assumed to
            move as planned until then. None: the command is for now.
        ValueError: the state lacks the pose of a base that the command moves.
        """
        pose = command.parts.get(self.part)
        if not isinstance(pose, PoseCommand):
            return command
        if not state.is_finite:
            return command.with_parts({self.part: JointCommand(q=readonly(self._q))})
        dt_s = (now_ns - self._t_ns) / NS_PER_S
        target = self.hand_target(command, state, now_ns, doing)
        if dt_s > 0.0:
            self._q = self._q + dt_s * self._joint_velocity(target, dt_s, now_ns)
            self._X_BE = self.kinematics.forward(self._q)
            self._t_ns = now_ns
        rest = _pose_error(self._X_BE, target)
        self.error = HandError(position=_norm(rest[:3]), rotation=_norm(rest[3:]))
        return command.with_parts({self.part: JointCommand(q=readonly(self._q))})

    def hand_target(
        self, command: Command, state: RobotState, now_ns: int, doing: Command | None = None
    ) -> pin.SE3:
        """Target `X_BE` relative to the base's pose when the arm has followed; doing: as in `resolve`."""
        pose = command.parts[self.part]
        assert isinstance(pose, PoseCommand)
        X_BE = pose.X_BE
        match command.parts.get(self.base):
            case BasePoseCommand(x_WB=planned):
                carrier = state.base(self.base)
                if carrier.x_WB is None:
                    raise ValueError("a plan that moves the base needs its measured pose x_WB in the state")
                measured = carrier.x_WB
                now = None if doing is None else doing.parts.get(self.base)
                if isinstance(now, BasePoseCommand):
                    measured = compose_planar(measured, compose_planar(inverse_planar(now.x_WB), planned))
                if carrier.V_WB_B is not None:
                    ahead_s = self.gains.arm_lag_s + (now_ns - state.t_ns) / NS_PER_S
                    measured = integrate_twist(measured, carrier.V_WB_B, ahead_s)
                return pose_from_planar(measured).actInv(pose_from_planar(planned)) * X_BE
            case _:
                return X_BE

    def _joint_velocity(self, target: pin.SE3, dt_s: float, now_ns: int) -> Float[np.ndarray, " N"]:
        q, lim, gains = self._q, self.limits.arm(self.part), self.gains
        J = self.kinematics.jacobian(q)
        twist = _pose_error(self._X_BE, target) / dt_s
        twist[:3] = _shortened(twist[:3], gains.hand_speed_max)
        twist[3:] = _shortened(twist[3:], gains.hand_rotation_max)
        if self._updated_ns is None or now_ns - self._updated_ns >= gains.posture_period_ns:
            self._update_posture(J, now_ns)
        lower = np.maximum(-lim.dq_max, (lim.q_min - q) / dt_s)
        upper = np.minimum(lim.dq_max, (lim.q_max - q) / dt_s)
        return bounded_velocity(
            J, twist, self._dq_0, np.minimum(lower, 0.0), np.maximum(upper, 0.0), self._damping
        )

    def _update_posture(self, J: Float[np.ndarray, "6 N"], now_ns: int) -> None:
        """Update the null-space velocity and the damping.

        Damping is 0 away from singular postures and rises near one (Chiaverini et al. 1994).
        """
        gains, self._updated_ns = self.gains, now_ns
        dq_0 = gains.posture_rate * (gains.posture - self._q)
        dq_0 += gains.manipulability_rate * log_manipulability_gradient(J)
        self._dq_0 = _shortened(dq_0, gains.free_speed_max)
        smallest = float(np.linalg.svd(J, compute_uv=False)[-1])
        near = max(0.0, 1.0 - (smallest / gains.singular_below) ** 2)
        self._damping = near * gains.max_damping**2


def bodies_for(
    spec: ActionSpec, whole_body: WholeBody | Mapping[str, WholeBody] | None
) -> dict[str, WholeBody]:
    """The bodies that resolve the end-effector poses of a spec, by arm; a single one is that of its part.

    InvalidValueError: a body moves another arm than it is given for, or has that arm on another base than the
    policy.
    """
    given = {whole_body.part: whole_body} if isinstance(whole_body, WholeBody) else whole_body or {}
    for name, body in given.items():
        if body.part != name:
            raise InvalidValueError(
                f"whole_body[{name!r}] moves the part {body.part!r}: WholeBody(part={name!r}) is needed"
            )
    out: dict[str, WholeBody] = {}
    for f in spec.fields:
        if not isinstance(f, EndEffectorPose | WorldEndEffectorPose) or f.part not in given:
            continue
        if isinstance(f, WorldEndEffectorPose) and f.base != given[f.part].base:
            raise InvalidValueError(
                f"the policy has {f.part!r} on the base {f.base!r}, the robot on {given[f.part].base!r}: "
                f"WholeBody(part={f.part!r}, base=...)"
            )
        out[f.part] = given[f.part]
    return out


def bounded_velocity(
    J: Float[np.ndarray, "6 N"],
    twist: Float[np.ndarray, "6"],
    dq_0: Float[np.ndarray, " N"],
    lower: Float[np.ndarray, " N"],
    upper: Float[np.ndarray, " N"],
    damping: float,
) -> Float[np.ndarray, " N"]:
    """Joint velocities within bounds that produce the twist, and are otherwise near dq_0.

    Joints that would go beyond a bound are held at it, the worst first, and the others solved again
    (saturation in the null space, Flacco et al. 2015, without its scaling: what the free joints cannot
    produce remains as error).
    """
    dq, free = _least_squares(J, twist, dq_0, damping), np.ones(len(dq_0), dtype=bool)
    for _ in range(len(dq_0) - 1):
        beyond = np.maximum(lower - dq, dq - upper)  # 0 for joints that are held
        worst = int(beyond.argmax())
        if beyond[worst] <= 1e-12:
            break
        dq[worst] = lower[worst] if dq[worst] < lower[worst] else upper[worst]
        free[worst] = False
        dq[free] = _least_squares(J[:, free], twist - J[:, ~free] @ dq[~free], dq_0[free], damping)
    return np.minimum(np.maximum(dq, lower), upper)


def _least_squares(
    J: Float[np.ndarray, "6 n"], twist: Float[np.ndarray, "6"], dq_0: Float[np.ndarray, " n"], damping: float
) -> Float[np.ndarray, " n"]:
    """dq_0 + J^T (J J^T + damping I)^-1 (twist - J dq_0)."""
    return dq_0 + J.T @ np.linalg.solve(_gram(J, damping), twist - J @ dq_0)


def _gram(J: Float[np.ndarray, "6 n"], damping: float = 0.0) -> Float[np.ndarray, "6 6"]:
    return J @ J.T + (damping + _REGULAR) * _EYE


def log_manipulability_gradient(J: Float[np.ndarray, "6 N"]) -> Float[np.ndarray, " N"]:
    """Gradient of log w, w = sqrt(det(J J^T)) (Yoshikawa 1985), by joint position [1/rad].

    d log w / d q_j = tr(dJ/dq_j J^+). For revolute joints dJ/dq_j follows from J itself: column i, linear
    part v_i and angular part o_i, changes by (o_j x v_i, o_j x o_i) for j <= i, by (o_i x v_j, 0) for j > i.
    With (a_i, b_i) row i of J^+ that is

        o_j . sum_{i >= j} (v_i x a_i + o_i x b_i)  +  v_j . sum_{i < j} (a_i x o_i)

    Computed in plain floats, joint by joint: numpy takes three times as long for so few.
    """
    columns = list(zip(J.T.tolist(), np.linalg.solve(_gram(J), J).T.tolist(), strict=True))
    out = np.zeros(len(columns))
    x = y = z = 0.0  # sum over i >= j
    for j in reversed(range(len(columns))):
        (vx, vy, vz, ox, oy, oz), (ax, ay, az, bx, by, bz) = columns[j]
        x += vy * az - vz * ay + oy * bz - oz * by
        y += vz * ax - vx * az + oz * bx - ox * bz
        z += vx * ay - vy * ax + ox * by - oy * bx
        out[j] = ox * x + oy * y + oz * z
    x = y = z = 0.0  # sum over i < j
    for j, ((vx, vy, vz, ox, oy, oz), (ax, ay, az, _, _, _)) in enumerate(columns):
        out[j] += vx * x + vy * y + vz * z
        x += ay * oz - az * oy
        y += az * ox - ax * oz
        z += ax * oy - ay * ox
    return out


def _norm(v: Float[np.ndarray, " n"]) -> float:
    return math.sqrt(float(v @ v))


def _shortened(v: Float[np.ndarray, " n"], longest: float) -> Float[np.ndarray, " n"]:
    """The vector, shortened to a length."""
    norm = _norm(v)
    return v if norm <= longest else v * (longest / norm)


def _pose_error(X_BE: pin.SE3, target: pin.SE3) -> Float[np.ndarray, "6"]:
    """The error from a pose to the target, expressed in B: translation [m] and rotation vector [rad]."""
    out, R_BE = np.empty(6), X_BE.rotation
    out[:3] = target.translation - X_BE.translation
    out[3:] = R_BE @ pin.log3(R_BE.T @ target.rotation)
    return out
