"""The mobile robot's base: holonomic, with a mast for the chest camera, and its odometry.

    B  on the floor, at the centre of the base, x forwards          W  the world
    A  the arm mount, `P_BA` from B

The base has three joints (x, y, yaw) in the world and a velocity servo for each, whose setpoint the motors
follow with a lag. Odometry is the wheels' measurement: true motion with errors of scale, slip and noise.
"""

import math
from dataclasses import dataclass

import mujoco
import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.transforms import (
    compose_planar,
    inverse_planar,
    turn_planar,
    wrap_angle,
)

P_BA = (0.12, 0.0, 0.36)
"""Arm mount in B [m]."""
NUM_BASE_JOINTS = 3
BASE_HALF = (0.28, 0.24, 0.14)
"""Half the size of the chassis [m]."""
MOTOR_LAG_S = 0.08
"""Time constant with which the wheels follow their setpoint [s]."""
BRAKE = 0.25
"""Reverse setpoint of a braking base, as a share of its speed."""
BRAKE_NS = round(MOTOR_LAG_S * math.log(1.0 + 1.0 / BRAKE) * 1e9)
"""Duration of that, for any speed [ns]."""
STANDS_BELOW = 0.01
"""Speed below which a base does not brake actively [m/s, rad/s]."""
CHEST_P = (-0.05, 0.24, 1.35)
"""Position of the chest camera in B [m]."""
CHEST_LOOKS_AT = (0.75, -0.05, 0.55)
_SERVO_GAIN, _SERVO_TORQUE_GAIN = 4000.0, 800.0
_MAX_FORCE, _MAX_TORQUE = 600.0, 200.0
_CHASSIS_MASS, _MAST_MASS = 55.0, 4.0
POSE_GAIN = 3.0
"""Proportional gain on the error of a pose setpoint [1/s]."""


SPEED_MAX = np.array([0.8, 0.8, 1.6])
"""Largest twist of the setpoint in the base's own axes (vx, vy, wz) [m/s, m/s, rad/s]."""
ACCELERATION_MAX = np.array([1.0, 1.0, 2.5])
"""Largest acceleration of the same [m/s², m/s², rad/s²]."""
SETPOINT_SPEED = np.array([5.0, 5.0, 10.0])
"""Largest speed of a pose setpoint [m/s, m/s, rad/s]."""
SETPOINT_ACCELERATION = np.array([100.0, 100.0, 250.0])
"""Largest acceleration of a pose setpoint [m/s², m/s², rad/s²]."""
SETPOINT_JERK = np.array([1e5, 1e5, 2.5e5])
"""Largest jerk of a pose setpoint [m/s³, m/s³, rad/s³]."""


def add_mobile_base(spec: mujoco.MjSpec, *, contact: tuple[int, int]) -> None:
    """Mount the FR3 of a spec on a mobile base.

    contact: type and affinity bits of geoms that collide with the scene.
    """
    mount = spec.body("base")
    mount.pos = P_BA
    axis = [-P_BA[0], -P_BA[1], 0.0]
    for name, kind, direction in (
        ("base_x", mujoco.mjtJoint.mjJNT_SLIDE, [1.0, 0.0, 0.0]),
        ("base_y", mujoco.mjtJoint.mjJNT_SLIDE, [0.0, 1.0, 0.0]),
        ("base_yaw", mujoco.mjtJoint.mjJNT_HINGE, [0.0, 0.0, 1.0]),
    ):
        mount.add_joint(name=name, type=kind, axis=direction, pos=axis)
    bits = {"contype": contact[0], "conaffinity": contact[1]}
    half = np.array(BASE_HALF)
    mount.add_geom(
        name="chassis",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=half,
        pos=np.array([0.0, 0.0, half[2] + 0.04]) - P_BA,
        mass=_CHASSIS_MASS,
        rgba=[0.20, 0.22, 0.25, 1.0],
        **bits,
    )
    mount.add_geom(
        name="pedestal",
        type=mujoco.mjtGeom.mjGEOM_CYLINDER,
        size=[0.09, (P_BA[2] - 2 * half[2] - 0.04) / 2, 0.0],
        pos=[0.0, 0.0, -(P_BA[2] - 2 * half[2] - 0.04) / 2],
        mass=2.0,
        rgba=[0.32, 0.34, 0.38, 1.0],
        **bits,
    )
    _add_mast(mount, bits)
    for name, gain, most in (
        ("base_x", _SERVO_GAIN, _MAX_FORCE),
        ("base_y", _SERVO_GAIN, _MAX_FORCE),
        ("base_yaw", _SERVO_TORQUE_GAIN, _MAX_TORQUE),
    ):
        motor = spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        motor.set_to_velocity(kv=gain)
        motor.dyntype, motor.dynprm[0] = mujoco.mjtDyn.mjDYN_FILTEREXACT, MOTOR_LAG_S
        motor.forcelimited, motor.forcerange = True, [-most, most]


def _add_mast(mount: mujoco.MjsBody, bits: dict[str, int]) -> None:
    foot, top = np.array([CHEST_P[0] - 0.08, CHEST_P[1] - 0.06, 2 * BASE_HALF[2] + 0.04]), CHEST_P[2]
    height = top - foot[2]
    mount.add_geom(
        name="mast",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=[0.02, 0.03, height / 2],
        pos=foot + np.array([0.0, 0.0, height / 2]) - P_BA,
        mass=_MAST_MASS,
        rgba=[0.45, 0.48, 0.52, 1.0],
        **bits,
    )


@dataclass(frozen=True, kw_only=True)
class OdometryErrors:
    """Errors of wheel odometry, drawn from a seed."""

    scale: float = 0.02
    """Standard deviation of the relative error of distances, drawn separately for x and y."""
    yaw_scale: float = 0.01
    """Standard deviation of the relative error of rotations."""
    slip: float = 0.0
    """Largest share of wheel motion lost to slip; drawn anew every `slip_every_m`."""
    slip_every_m: float = 0.5
    noise: float = 0.002
    """Random walk: standard deviation after a metre, and after a radian [m, rad]."""


class Odometry:
    """Integrates the base's motion as reported by its wheels.

        x_odo(t + dt) = x_odo(t) * (1 + scale) / (1 - slip) (x(t)^-1 * x(t + dt)) + noise

    The world frame of all that the robot knows is the odometry frame.
    """

    def __init__(
        self,
        errors: OdometryErrors,
        *,
        seed: int,
        x_WB: Float[np.ndarray, "3"],
        start: Float[np.ndarray, "3"] | None = None,
    ) -> None:
        """x_WB: the current true pose. start: the currently reported pose; None: the truth."""
        self._errors = errors
        self._rng = np.random.default_rng([seed, 0x0D0])
        scales = np.array([errors.scale, errors.scale, errors.yaw_scale])
        self._scale = 1.0 + scales * self._rng.standard_normal(3)
        self._true = np.array(x_WB)
        self.x_WB = np.array(x_WB if start is None else start)
        """Pose by odometry (x, y, yaw) [m, m, rad]."""
        self._slip, self._left_m = 0.0, 0.0

    def update(self, x_WB: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"]:
        """Add the motion up to the true pose `x_WB`; returns the pose by odometry."""
        step = compose_planar(inverse_planar(self._true), x_WB)
        length = float(np.hypot(step[0], step[1]))
        reported = self._scale * step
        reported[:2] /= 1.0 - self._slipping(length)
        spread = self._errors.noise * np.sqrt([length, length, abs(step[2])])
        reported += spread * self._rng.standard_normal(3)
        self._true = np.array(x_WB)
        self.x_WB = compose_planar(self.x_WB, reported)
        return self.x_WB

    def twist(self, V_WB_B: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"]:
        """The true twist as the wheels report it."""
        out = self._scale * V_WB_B
        out[:2] /= 1.0 - self._slip
        return out

    def _slipping(self, length: float) -> float:
        self._left_m -= length
        if self._left_m <= 0.0:
            self._left_m = self._errors.slip_every_m
            self._slip = float(self._rng.uniform(0.0, self._errors.slip))
        return self._slip


def twist_towards(
    target: Float[np.ndarray, "3"],
    measured: Float[np.ndarray, "3"],
    feed_forward_W: Float[np.ndarray, "3"],
    *,
    gain: float,
) -> Float[np.ndarray, "3"]:
    """Body twist that follows a pose setpoint: its own velocity plus `gain` [1/s] times the error.

    feed_forward_W: velocity of the setpoint in the world.
    """
    error = np.array(target) - measured
    error[2] = wrap_angle(error[2])
    v = np.asarray(feed_forward_W) + gain * error
    return turn_planar(v, -measured[2])
