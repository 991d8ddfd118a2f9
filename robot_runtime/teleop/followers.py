"""Parts of a robot that follow a lead: one `Follower` for what each part is commanded in.

    arm told joints (also those resolved from hand poses)   JointLead; PoseLead, TwistLead by its kinematics
    arm told joint velocities                               the same, sent as velocities
    arm told hand poses that its driver resolves            PoseLead, TwistLead
    gripper told a width                                    GripperLead
    base told twists, or poses                              BaseLead

A follower is engaged where the part is commanded to be, and asked for one command each tick. What it wants
never runs far ahead of what was commanded: nothing is caught up after the limits held it back.
"""

from typing import Protocol

import numpy as np
import pinocchio as pin

from robot_runtime.core.plan.limits import BaseLimits, GripperLimits, JointLimits
from robot_runtime.core.plan.whole_body import ArmKinematics
from robot_runtime.core.teleop import (
    BaseLead,
    Frame,
    GripperLead,
    JointLead,
    PartLead,
    PoseLead,
    TwistLead,
)
from robot_runtime.core.values.command import (
    BasePoseCommand,
    BaseTwistCommand,
    Command,
    GripperCommand,
    JointCommand,
    JointVelocityCommand,
    PartCommand,
    PoseCommand,
)
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import RobotState
from robot_runtime.core.values.transforms import (
    compose_planar,
    integrate_twist,
    inverse_planar,
    quaternion_from_rotation,
)
from robot_runtime.errors import InvalidValueError
from robot_runtime.teleop.clutch import HandClutch, JointClutch, OpeningClutch
from robot_runtime.teleop.config import TeleopConfig
from robot_runtime.teleop.hand_kinematics import hand_velocity, pose_error, shortened

JOINTS_AHEAD = 0.08
"""How far what is wanted may be ahead of what was commanded, each joint [rad]."""
HAND_AHEAD, HAND_TURNED = 0.04, 0.25
"""The same of a hand that is led by velocities [m], [rad]."""
BASE_AHEAD = np.array([0.1, 0.1, 0.2])
"""The same of a base that is told poses (x, y, yaw) [m, m, rad]; well below what `StateWatch` takes for a
base that does not follow."""
_RAMP_S = 0.08
"""Time constant with which a velocity lead comes into effect [s]: keys jump, a hand should not."""


class Follower(Protocol):
    """One part; the control thread owns it."""

    def engage(self, lead: PartLead, commanded: Command, state: RobotState) -> None:
        """The clutch closes. InvalidValueError: this part cannot follow such a lead, or not from here."""
        ...

    def follow(self, lead: PartLead, commanded: Command, state: RobotState, dt_s: float) -> PartCommand:
        """What the part is to be told this tick, dt_s after the last one; `engage` first, and again for a
        lead of another kind."""
        ...


class JointFollower:
    """An arm that is told its joints, or their velocities."""

    def __init__(
        self,
        part: str,
        limits: JointLimits,
        config: TeleopConfig,
        *,
        kinematics: ArmKinematics | None,
        sends_velocity: bool = False,
    ) -> None:
        """kinematics: of its hand; None: it can only be led by a leader arm."""
        self._part, self._limits, self._config = part, limits, config
        self._kinematics, self._sends_velocity = kinematics, sends_velocity
        self._q = self._posture = np.zeros(0)
        self._hand: _Hand | None = None
        self._joints: JointClutch | None = None

    @property
    def has_hand(self) -> bool:
        """Whether its hand can be led."""
        return self._kinematics is not None

    def engage(self, lead: PartLead, commanded: Command, state: RobotState) -> None:
        self._q = self._posture = self._here(commanded, state)
        self._hand = self._joints = None
        match lead:
            case JointLead(q=q_leader):
                self._joints = JointClutch(self._q, q_leader)
            case PoseLead() | TwistLead():
                if self._kinematics is None:
                    raise InvalidValueError(no_kinematics(self._part))
                self._hand = _Hand(lead, self._kinematics.forward(self._q), self._config)
            case _:
                raise _misfit(self._part, "an arm", lead)

    def follow(self, lead: PartLead, commanded: Command, state: RobotState, dt_s: float) -> PartCommand:
        dq = self._velocity(lead, dt_s)
        wanted = np.clip(self._q + dt_s * dq, self._limits.q_min, self._limits.q_max)
        here = self._here(commanded, state)
        self._q = here + np.clip(wanted - here, -JOINTS_AHEAD, JOINTS_AHEAD)
        if self._sends_velocity:
            self._q = here
            return JointVelocityCommand(dq=dq)
        return JointCommand(q=self._q)

    def _here(self, commanded: Command, state: RobotState) -> Float[np.ndarray, " N"]:
        told = commanded.parts.get(self._part)
        q = told.q if isinstance(told, JointCommand) else state.arm(self._part).q
        return np.clip(q, self._limits.q_min, self._limits.q_max)

    def _velocity(self, lead: PartLead, dt_s: float) -> Float[np.ndarray, " N"]:
        config = self._config
        if isinstance(lead, JointLead) and self._joints is not None:
            target = self._joints.target(lead.q, config.align_rad_s * dt_s)
            fastest = config.joint_share * self._limits.dq_max
            return np.clip(_rate(config, dt_s) * (target - self._q), -fastest, fastest)
        if not isinstance(lead, PoseLead | TwistLead) or self._hand is None or self._kinematics is None:
            raise _misfit(self._part, "an arm engaged otherwise", lead)
        twist = self._hand.twist(lead, self._kinematics.forward(self._q), dt_s)
        return hand_velocity(
            self._kinematics,
            self._limits,
            self._q,
            twist,
            posture=self._posture,
            share=config.joint_share,
            dt_s=dt_s,
        )


class PoseFollower:
    """An arm that is told hand poses, which its driver resolves."""

    def __init__(self, part: str, config: TeleopConfig) -> None:
        self._part, self._config = part, config
        self._X_BE = pin.SE3.Identity()
        self._hand: _Hand | None = None

    def engage(self, lead: PartLead, commanded: Command, state: RobotState) -> None:
        if not isinstance(lead, PoseLead | TwistLead):
            raise _misfit(self._part, "an arm that is told hand poses", lead)
        told = commanded.parts.get(self._part)
        X_BE = told.X_BE if isinstance(told, PoseCommand) else state.hand(self._part)
        if X_BE is None:
            raise InvalidValueError(f"{self._part} cannot be led: its hand's pose is not known")
        self._X_BE, self._hand = X_BE.copy(), _Hand(lead, X_BE, self._config)

    def follow(self, lead: PartLead, commanded: Command, state: RobotState, dt_s: float) -> PartCommand:
        if not isinstance(lead, PoseLead | TwistLead) or self._hand is None:
            raise _misfit(self._part, "an arm that is told hand poses", lead)
        twist = self._hand.twist(lead, self._X_BE, dt_s) * dt_s
        p_BE = self._X_BE.translation + twist[:3]
        R_BE = pin.exp3(twist[3:]) @ self._X_BE.rotation
        told = commanded.parts.get(self._part)
        if isinstance(told, PoseCommand):
            ahead = pose_error(told.X_BE, pin.SE3(R_BE, p_BE))
            p_BE = told.p_BE + shortened(ahead[:3], HAND_AHEAD)
            R_BE = pin.exp3(shortened(ahead[3:], HAND_TURNED)) @ told.X_BE.rotation
        self._X_BE = pin.SE3(R_BE, p_BE)
        return PoseCommand(p_BE=np.array(p_BE), quat_BE=quaternion_from_rotation(R_BE))


class GripperFollower:
    """A gripper that is told its width."""

    def __init__(self, part: str, limits: GripperLimits) -> None:
        self._part, self._low, self._range = part, limits.low, limits.high - limits.low
        self._opening = 0.0
        self._clutch: OpeningClutch | None = None

    def engage(self, lead: PartLead, commanded: Command, state: RobotState) -> None:
        if not isinstance(lead, GripperLead):
            raise _misfit(self._part, "a gripper", lead)
        told = commanded.parts.get(self._part)
        width = told.width if isinstance(told, GripperCommand) else state.gripper(self._part).width
        self._opening = (width - self._low) / self._range if self._range > 0.0 else 0.0
        self._clutch = None if lead.opening is None else OpeningClutch(self._opening, lead.opening)

    def follow(self, lead: PartLead, commanded: Command, state: RobotState, dt_s: float) -> PartCommand:
        if not isinstance(lead, GripperLead):
            raise _misfit(self._part, "a gripper", lead)
        if lead.opening is None:
            self._clutch = None
            assert lead.speed is not None
            if lead.speed != 0.0:  # one that is not led keeps what it was told, to the bit
                self._opening = min(max(self._opening + lead.speed * dt_s, 0.0), 1.0)
        else:
            if self._clutch is None:
                self._clutch = OpeningClutch(self._opening, lead.opening)
            self._opening = self._clutch.target(lead.opening)
        return GripperCommand(width=self._low + self._range * self._opening)


class TwistFollower:
    """A base that is told twists."""

    def __init__(self, part: str, limits: BaseLimits) -> None:
        self._part, self._speed = part, limits.motion.speed
        self._twist = np.zeros(3)

    def engage(self, lead: PartLead, commanded: Command, state: RobotState) -> None:
        if not isinstance(lead, BaseLead):
            raise _misfit(self._part, "a base", lead)
        told = commanded.parts.get(self._part)
        self._twist = np.array(told.V_WB_B) if isinstance(told, BaseTwistCommand) else np.zeros(3)

    def follow(self, lead: PartLead, commanded: Command, state: RobotState, dt_s: float) -> PartCommand:
        if not isinstance(lead, BaseLead):
            raise _misfit(self._part, "a base", lead)
        self._twist = _ramped(self._twist, np.clip(lead.V_WB_B, -self._speed, self._speed), dt_s)
        return BaseTwistCommand(V_WB_B=self._twist)


class BasePoseFollower:
    """A base that is told poses: the twist is integrated, up to `BASE_AHEAD` of the measured pose."""

    def __init__(self, part: str, limits: BaseLimits) -> None:
        self._part, self._speed = part, limits.motion.speed
        self._twist, self._x_WB = np.zeros(3), np.zeros(3)

    def engage(self, lead: PartLead, commanded: Command, state: RobotState) -> None:
        if not isinstance(lead, BaseLead):
            raise _misfit(self._part, "a base", lead)
        self._twist, self._x_WB = np.zeros(3), np.array(self._here(commanded, state))

    def follow(self, lead: PartLead, commanded: Command, state: RobotState, dt_s: float) -> PartCommand:
        if not isinstance(lead, BaseLead):
            raise _misfit(self._part, "a base", lead)
        self._twist = _ramped(self._twist, np.clip(lead.V_WB_B, -self._speed, self._speed), dt_s)
        here, x_WB = self._here(commanded, state), self._x_WB
        if np.abs(compose_planar(inverse_planar(here), x_WB)).max() > 2.0 * BASE_AHEAD.max():
            x_WB = here  # odometry calls it something else now
        x_WB = integrate_twist(x_WB, self._twist, dt_s)
        measured = state.base(self._part).x_WB
        if measured is not None and np.isfinite(measured).all() and np.abs(self._twist).max() > 0.0:
            ahead = compose_planar(inverse_planar(measured), x_WB)
            x_WB = compose_planar(measured, np.clip(ahead, -BASE_AHEAD, BASE_AHEAD))
        self._x_WB = x_WB
        return BasePoseCommand(x_WB=x_WB)

    def _here(self, commanded: Command, state: RobotState) -> Float[np.ndarray, "3"]:
        told = commanded.parts.get(self._part)
        x_WB = told.x_WB if isinstance(told, BasePoseCommand) else state.base(self._part).x_WB
        if x_WB is None:
            raise InvalidValueError(f"{self._part} cannot be led: its pose is not measured")
        return x_WB


class _Hand:
    """A hand's target, by the clutch or by integrated velocity, and the twist towards it."""

    def __init__(self, lead: PoseLead | TwistLead, X_BE: pin.SE3, config: TeleopConfig) -> None:
        self._config, self._target, self._twist = config, X_BE.copy(), np.zeros(6)
        self._R_BL = pin.utils.rotate("z", config.yaw)
        self._clutch: HandClutch | None = None
        if isinstance(lead, PoseLead):
            self._clutch = HandClutch(
                X_BE=X_BE.copy(),
                X_LH=lead.X_LH.copy(),
                R_BL=self._R_BL,
                translation_scale=config.translation_scale,
                rotation_scale=config.rotation_scale,
            )

    def twist(self, lead: PoseLead | TwistLead, X_BE: pin.SE3, dt_s: float) -> Float[np.ndarray, "6"]:
        """(linear, angular) expressed in B [m/s, rad/s]; X_BE: where the hand is wanted so far."""
        config = self._config
        if isinstance(lead, PoseLead):
            if self._clutch is None:
                raise InvalidValueError("a hand that was led by velocities has to be engaged anew for poses")
            self._target, wanted = self._clutch.target(lead.X_LH), np.zeros(6)
        else:
            wanted = self._integrated(lead, X_BE, dt_s)
        twist = wanted + _rate(config, dt_s) * pose_error(X_BE, self._target)
        return np.concatenate(
            [
                shortened(twist[:3], config.hand_speed_max),
                shortened(twist[3:], config.hand_rotation_max),
            ]
        )

    def _integrated(self, lead: TwistLead, X_BE: pin.SE3, dt_s: float) -> Float[np.ndarray, "6"]:
        config = self._config
        R = self._R_BL if lead.frame is Frame.BASE else X_BE.rotation
        asked = np.concatenate(
            [
                shortened(config.translation_scale * (R @ lead.v), config.hand_speed_max),
                shortened(config.rotation_scale * (R @ lead.w), config.hand_rotation_max),
            ]
        )
        self._twist = _ramped(self._twist, asked, dt_s)
        moved = pin.SE3(
            pin.exp3(dt_s * self._twist[3:]) @ self._target.rotation,
            self._target.translation + dt_s * self._twist[:3],
        )
        ahead = pose_error(X_BE, moved)
        self._target = pin.SE3(
            pin.exp3(shortened(ahead[3:], HAND_TURNED)) @ X_BE.rotation,
            X_BE.translation + shortened(ahead[:3], HAND_AHEAD),
        )
        return self._twist


def no_kinematics(part: str) -> str:
    """Why a hand cannot be led, and what would help."""
    return (
        f"the hand of {part} cannot be led: the robot has no kinematics of it. A leader arm can lead its "
        f"joints; for a hand give Robot(hand_pose=...) or Robot(whole_body=...), in robot.toml "
        f"[parts.{part}.kinematics]"
    )


def _ramped(
    before: Float[np.ndarray, " n"], asked: Float[np.ndarray, " n"], dt_s: float
) -> Float[np.ndarray, " n"]:
    """A velocity on its way to the one that is asked for; exactly there in the end."""
    out = before + (asked - before) * min(dt_s / _RAMP_S, 1.0)
    return np.where(np.abs(asked - out) < 1e-6, asked, out)


def _rate(config: TeleopConfig, dt_s: float) -> float:
    """What is missing is made up for at that rate, at most at once [1/s]."""
    return min(config.follow_rate, 1.0 / dt_s)


def _misfit(part: str, what: str, lead: PartLead) -> InvalidValueError:
    return InvalidValueError(f"{part} is {what}, which a {type(lead).__name__} does not lead")
