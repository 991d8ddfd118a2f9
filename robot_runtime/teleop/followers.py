"""Parts of a robot that follow a lead: one `Follower` for each kind of command.

    arm in joints (also resolved from end-effector poses)    JointLead; PoseLead, TwistLead by its kinematics
    arm in joint velocities                                  the same, sent as velocities
    arm in end-effector poses that its driver resolves       PoseLead, TwistLead
    gripper by width                                         GripperLead
    base by twists, or poses                                 BaseLead

A follower makes one command a tick, on a trajectory that continues the previous commands and keeps the
limits (`setpoints`): motion that the limits hold back is not caught up.
"""

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import pinocchio as pin

from robot_runtime.core.plan.limits import BaseLimits, GripperLimits, JointLimits, MotionLimits
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
    inverse_planar,
    quaternion_from_rotation,
    wrap_angle,
)
from robot_runtime.errors import InvalidValueError
from robot_runtime.teleop.clutch import HandClutch, JointClutch, OpeningClutch
from robot_runtime.teleop.config import TeleopConfig
from robot_runtime.teleop.hand_kinematics import HandJacobian, pose_error, posture_velocity, shortened
from robot_runtime.teleop.setpoints import FAR, Axes, Trail, axes_of, difference, vector_toward

_HELD_WITHIN = 0.04, 0.25
"""Longest distance over which a velocity-driven end effector is pulled back to its held pose [m], [rad]."""
BASE_AHEAD = np.array([0.1, 0.1, 0.2])
"""How far the setpoint of a base that is commanded by poses may be ahead of the measured pose (x, y, yaw)
[m, m, rad]; well below the lag that `StateWatch` reports as a base that does not follow."""
_CAPACITY = 0.9
"""Share of the joints' accelerations and jerks for the end effector; the rest is for the posture."""
_OTHER = 0.2
"""Least share of the joints, by speed, that the slower of translation and rotation gets."""

_SAME, _STANDS, _LEAST_LOAD = 1e-9, 1e-7, 1e-9
"""Steps that differ by less are the same [rad]; an end effector that moves less in a tick is at rest [m],
[rad]; loads are never 0."""


class Follower(Protocol):
    """Makes the commands of one part; the control thread owns it."""

    def engage(
        self, lead: PartLead, commanded: Command, state: RobotState, before: Sequence[Command] = ()
    ) -> None:
        """Close the clutch, once a moving part has come to rest.

        before: the commands of the ticks before `commanded`, newest last; (): the part is at rest.
        InvalidValueError: this part cannot follow such a lead, or not from here.
        """
        ...

    def follow(self, lead: PartLead, commanded: Command, state: RobotState, dt_s: float) -> PartCommand:
        """Make the command of this tick, dt_s after the last one, which was `commanded`; call `engage` first,
        and again for a lead of another kind."""
        ...


class JointFollower:
    """Follower of an arm that is commanded by joint positions or velocities."""

    def __init__(
        self,
        part: str,
        limits: JointLimits,
        config: TeleopConfig,
        *,
        kinematics: ArmKinematics | None,
        sends_velocity: bool = False,
    ) -> None:
        """kinematics: of its end effector; None: only a leader arm can drive it."""
        self._part, self._limits, self._config = part, limits, config
        self._kinematics, self._sends_velocity = kinematics, sends_velocity
        joints = limits.joints
        self._driven = MotionLimits(
            speed=config.joint_share * joints.speed, acceleration=joints.acceleration, jerk=joints.jerk
        )
        self._posture = np.zeros(0)
        self._sent: Float[np.ndarray, " N"] | None = None
        self._is_closing = False
        self._trail: Trail | None = None
        self._hand: _Hand | None = None
        self._joints: JointClutch | None = None

    @property
    def has_hand(self) -> bool:
        """Whether its end effector can be driven."""
        return self._kinematics is not None

    def engage(
        self, lead: PartLead, commanded: Command, state: RobotState, before: Sequence[Command] = ()
    ) -> None:
        between = None if self._sends_velocity else difference
        self._trail = Trail(self._axes, [self._numbers(each, state) for each in before], between)
        self._posture, self._sent = self._at(commanded, state), None
        self._is_closing = True
        self._close(lead, self._posture)

    def follow(self, lead: PartLead, commanded: Command, state: RobotState, dt_s: float) -> PartCommand:
        if self._trail is None:
            raise _misfit(self._part, "an arm that is not engaged", lead)
        axes, q = self._trail.at(self._numbers(commanded, state), dt_s), self._at(commanded, state)
        if self._is_closing and not isinstance(lead, TwistLead):
            self._is_closing = not axes.is_at_rest
            self._close(lead, q)
        steps = axes.brake() if self._is_closing else self._steps(lead, axes, q, dt_s)
        if self._sends_velocity:
            return JointVelocityCommand(dq=steps / dt_s)
        low, high = np.minimum(q, self._limits.q_min), np.maximum(q, self._limits.q_max)
        return JointCommand(q=np.clip(q + steps, low, high))

    def _close(self, lead: PartLead, q: Float[np.ndarray, " N"]) -> None:
        self._hand = self._joints = None
        match lead:
            case JointLead(q=q_leader):
                self._joints = JointClutch(q, q_leader)
            case PoseLead() | TwistLead():
                if self._kinematics is None:
                    raise InvalidValueError(no_kinematics(self._part))
                self._hand = _Hand(lead, self._kinematics.forward(q), self._config)
                self._is_closing = self._is_closing and isinstance(lead, PoseLead)
            case _:
                raise _misfit(self._part, "an arm", lead)

    def _axes(self, dt_s: float) -> Axes:
        return axes_of(self._limits, dt_s, share=self._config.joint_share)

    def _at(self, commanded: Command, state: RobotState) -> Float[np.ndarray, " N"]:
        """Return the joints that it continues from."""
        sent = commanded.parts.get(self._part)
        return sent.q if isinstance(sent, JointCommand) else state.arm(self._part).q

    def _numbers(self, commanded: Command, state: RobotState) -> Float[np.ndarray, " N"]:
        """Return the last command: positions, or velocities."""
        if not self._sends_velocity:
            return self._at(commanded, state)
        sent = commanded.parts.get(self._part)
        return sent.dq if isinstance(sent, JointVelocityCommand) else np.zeros(self._limits.q_min.size)

    def _steps(
        self, lead: PartLead, axes: Axes, q: Float[np.ndarray, " N"], dt_s: float
    ) -> Float[np.ndarray, " N"]:
        config = self._config
        if isinstance(lead, JointLead) and self._joints is not None:
            goal = self._joints.target(lead.q, config.align_rad_s * dt_s)
            return axes.toward(q, goal - q, share=config.share(dt_s))
        if not isinstance(lead, PoseLead | TwistLead) or self._hand is None or self._kinematics is None:
            raise _misfit(self._part, "an arm engaged otherwise", lead)
        J = HandJacobian(self._kinematics, q)
        if self._sent is None or np.abs(axes.s - self._sent).max() > _SAME:
            self._hand.moves(J.twist(axes.s), J.twist(axes.b))
        twist = self._hand.step(lead, self._kinematics.forward(q), self._driven, J.joints, dt_s) / dt_s
        free = posture_velocity(q, self._posture, float(np.linalg.norm(twist)))
        lower, upper = axes.span(q)
        dq = J.joints(twist, free=free, lower=lower / dt_s, upper=upper / dt_s)
        self._sent = np.clip(dq * dt_s, lower, upper)
        self._hand.went(J.twist(self._sent))
        return self._sent


class PoseFollower:
    """Follower of an arm that is commanded by end-effector poses, which its driver resolves."""

    def __init__(self, part: str, limits: JointLimits | None, config: TeleopConfig) -> None:
        self._part, self._config = part, config
        self._limits = None if limits is None else _of_pose(limits)
        self._trail: Trail | None = None
        self._hand: _Hand | None = None
        self._is_closing = False

    def engage(
        self, lead: PartLead, commanded: Command, state: RobotState, before: Sequence[Command] = ()
    ) -> None:
        if not isinstance(lead, PoseLead | TwistLead):
            raise _misfit(self._part, "an arm that is commanded by poses of its end effector", lead)
        if self._limits is None:
            raise InvalidValueError(
                f"{self._part} cannot be driven: its limits declare no hand_translation and hand_rotation"
            )
        between = lambda a, b: pose_error(pin.SE3(a), pin.SE3(b))  # noqa: E731
        self._trail = Trail(self._axes, [self._at(each, state).homogeneous for each in before], between)
        self._hand = _Hand(lead, self._at(commanded, state), self._config)
        self._is_closing = isinstance(lead, PoseLead)

    def follow(self, lead: PartLead, commanded: Command, state: RobotState, dt_s: float) -> PartCommand:
        if not isinstance(lead, PoseLead | TwistLead) or self._hand is None or self._trail is None:
            raise _misfit(self._part, "an arm that is commanded by poses of its end effector", lead)
        X_BE = self._at(commanded, state)
        axes = self._trail.at(X_BE.homogeneous, dt_s)
        if self._is_closing:
            self._is_closing = not axes.is_at_rest
            self._hand = _Hand(lead, X_BE, self._config)
        if self._is_closing:
            step = axes.brake()
        else:
            assert self._limits is not None
            self._hand.moves(axes.s, axes.b)
            step = self._hand.step(lead, X_BE, self._limits, np.array, dt_s)
            step = np.clip(step, *axes.span(np.zeros(6)))
        R_BE = pin.exp3(step[3:]) @ X_BE.rotation
        return PoseCommand(p_BE=X_BE.translation + step[:3], quat_BE=quaternion_from_rotation(R_BE))

    def _axes(self, dt_s: float) -> Axes:
        assert self._limits is not None
        return Axes(self._limits, dt_s)

    def _at(self, commanded: Command, state: RobotState) -> pin.SE3:
        sent = commanded.parts.get(self._part)
        X_BE = sent.X_BE if isinstance(sent, PoseCommand) else state.hand(self._part)
        if X_BE is None:
            raise InvalidValueError(
                f"{self._part} cannot be driven: the pose of its end effector is not known"
            )
        return X_BE


class GripperFollower:
    """Follower of a gripper that is commanded by its width."""

    def __init__(self, part: str, limits: GripperLimits) -> None:
        self._part, self._limits, self._range = part, limits, limits.high - limits.low
        self._trail: Trail | None = None
        self._clutch: OpeningClutch | None = None
        self._is_closing = False

    def engage(
        self, lead: PartLead, commanded: Command, state: RobotState, before: Sequence[Command] = ()
    ) -> None:
        if not isinstance(lead, GripperLead):
            raise _misfit(self._part, "a gripper", lead)
        widths = [np.array([self._width(each, state)]) for each in before]
        self._trail = Trail(self._axes, widths, difference)
        self._clutch, self._is_closing = None, True

    def follow(self, lead: PartLead, commanded: Command, state: RobotState, dt_s: float) -> PartCommand:
        if not isinstance(lead, GripperLead) or self._trail is None:
            raise _misfit(self._part, "a gripper", lead)
        width = self._width(commanded, state)
        if self._limits.motion is None:
            return GripperCommand(width=self._goal(lead, width, dt_s))
        at = np.array([width])
        axes = self._trail.at(at, dt_s)
        if self._is_closing and lead.speed is None and not axes.is_at_rest:
            return GripperCommand(width=width + float(axes.brake()[0]))
        self._is_closing = False
        if lead.speed is None:
            steps = axes.toward(at, np.array([self._goal(lead, width, dt_s) - width]))
        else:
            steps = axes.steered(np.array([self._goal(lead, width, dt_s) - width]))
        return GripperCommand(width=min(max(width + float(steps[0]), self._limits.low), self._limits.high))

    def _goal(self, lead: GripperLead, width: float, dt_s: float) -> float:
        low, high = self._limits.low, self._limits.high
        if lead.opening is None:
            self._clutch = None
            assert lead.speed is not None
            return min(max(width + lead.speed * self._range * dt_s, low), high) if lead.speed else width
        if self._clutch is None:
            opening = (width - low) / self._range if self._range > 0.0 else 0.0
            self._clutch = OpeningClutch(opening, lead.opening)
        return low + self._range * self._clutch.target(lead.opening)

    def _width(self, commanded: Command, state: RobotState) -> float:
        sent = commanded.parts.get(self._part)
        return sent.width if isinstance(sent, GripperCommand) else state.gripper(self._part).width

    def _axes(self, dt_s: float) -> Axes:
        return axes_of(self._limits, dt_s)


class TwistFollower:
    """Follower of a base that is commanded by twists."""

    def __init__(self, part: str, limits: BaseLimits) -> None:
        self._part, self._limits = part, limits
        self._trail: Trail | None = None

    def engage(
        self, lead: PartLead, commanded: Command, state: RobotState, before: Sequence[Command] = ()
    ) -> None:
        if not isinstance(lead, BaseLead):
            raise _misfit(self._part, "a base", lead)
        self._trail = Trail(self._axes, [self._twist(each) for each in before], None)

    def follow(self, lead: PartLead, commanded: Command, state: RobotState, dt_s: float) -> PartCommand:
        if not isinstance(lead, BaseLead) or self._trail is None:
            raise _misfit(self._part, "a base", lead)
        axes = self._trail.at(self._twist(commanded), dt_s)
        return BaseTwistCommand(V_WB_B=axes.steered(lead.V_WB_B * dt_s) / dt_s)

    def _axes(self, dt_s: float) -> Axes:
        return axes_of(self._limits, dt_s)

    def _twist(self, commanded: Command) -> Float[np.ndarray, "3"]:
        sent = commanded.parts.get(self._part)
        return sent.V_WB_B if isinstance(sent, BaseTwistCommand) else np.zeros(3)


class BasePoseFollower:
    """Follower of a base that is commanded by poses: it integrates the twist, up to `BASE_AHEAD`."""

    def __init__(self, part: str, limits: BaseLimits) -> None:
        self._part, self._limits = part, limits
        self._trail: Trail | None = None

    def engage(
        self, lead: PartLead, commanded: Command, state: RobotState, before: Sequence[Command] = ()
    ) -> None:
        if not isinstance(lead, BaseLead):
            raise _misfit(self._part, "a base", lead)
        self._at(commanded, state)
        self._trail = Trail(self._axes, [self._at(each, state) for each in before], _base_steps)

    def follow(self, lead: PartLead, commanded: Command, state: RobotState, dt_s: float) -> PartCommand:
        if not isinstance(lead, BaseLead) or self._trail is None:
            raise _misfit(self._part, "a base", lead)
        x_WB = self._at(commanded, state)
        axes = self._trail.at(x_WB, dt_s)
        asked, measured = lead.V_WB_B, state.base(self._part).x_WB
        if measured is not None and np.isfinite(measured).all():
            ahead = compose_planar(inverse_planar(measured), x_WB)
            asked = np.where(ahead * np.sign(asked) > BASE_AHEAD, 0.0, asked)
        along, across, turn = axes.steered(asked * dt_s)
        x, y, yaw = x_WB
        c, s = np.cos(yaw), np.sin(yaw)
        return BasePoseCommand(
            x_WB=np.array([x + c * along - s * across, y + s * along + c * across, wrap_angle(yaw + turn)])
        )

    def _axes(self, dt_s: float) -> Axes:
        return axes_of(self._limits, dt_s)

    def _at(self, commanded: Command, state: RobotState) -> Float[np.ndarray, "3"]:
        sent = commanded.parts.get(self._part)
        x_WB = sent.x_WB if isinstance(sent, BasePoseCommand) else state.base(self._part).x_WB
        if x_WB is None:
            raise InvalidValueError(f"{self._part} cannot be driven: its pose is not measured")
        return x_WB


class _Hand:
    """Computes an end effector's step in B, translation and rotation, towards the leader or its velocity."""

    def __init__(self, lead: PoseLead | TwistLead, X_BE: pin.SE3, config: TeleopConfig) -> None:
        self._config = config
        self._s: np.ndarray = np.zeros(6)
        self._b: np.ndarray = np.zeros(6)
        self._R_BL = pin.utils.rotate("z", config.yaw)
        self._clutch: HandClutch | None = None
        self._held: list[pin.SE3 | None] = [None, None]
        if isinstance(lead, PoseLead):
            self._clutch = HandClutch(
                X_BE=X_BE.copy(),
                X_LH=lead.X_LH.copy(),
                R_BL=self._R_BL,
                translation_scale=config.translation_scale,
                rotation_scale=config.rotation_scale,
            )

    def moves(self, s: Float[np.ndarray, "6"], b: Float[np.ndarray, "6"]) -> None:
        """Set the motion of the last tick, and its change, per tick."""
        self._s, self._b = s, b

    def went(self, s: Float[np.ndarray, "6"]) -> None:
        """Note the motion of this tick."""
        self._s, self._b = s, s - self._s

    def step(
        self,
        lead: PoseLead | TwistLead,
        X_BE: pin.SE3,
        limits: MotionLimits,
        axes_of: Callable[[np.ndarray], np.ndarray],
        dt_s: float,
    ) -> Float[np.ndarray, "6"]:
        """limits: of the joints or axes that move it; axes_of: a twist -> their speeds."""
        fastest = (self._config.hand_speed_max, self._config.hand_rotation_max)
        if isinstance(lead, PoseLead):
            return self._to_pose(self._gap(lead, X_BE), np.repeat(fastest, 3), limits, axes_of, dt_s)
        gaps = self._asked(lead, X_BE)
        along = np.zeros((2, 6))
        for i, (gap, _) in enumerate(gaps):
            along[i, 3 * i : 3 * i + 3] = _direction(gap, self._s[3 * i : 3 * i + 3])
        loads = [np.abs(axes_of(twist)) + _LEAST_LOAD for twist in along]
        going = [math.hypot(*self._s[3 * i : 3 * i + 3].tolist()) / dt_s / fastest[i] for i in (0, 1)]
        least = _OTHER * max(*going, _LEAST_LOAD)
        parts = [most * max(each, least) for most, each in zip(fastest, going, strict=True)]
        load = parts[0] * loads[0] + parts[1] * loads[1]
        acceleration = _CAPACITY * float((limits.acceleration / load).min())
        jerk = _CAPACITY * float((limits.jerk / load).min())
        out = np.empty(6)
        for i, (gap, asked) in enumerate(gaps):
            each = slice(3 * i, 3 * i + 3)
            speed = min(asked, fastest[i], float((limits.speed / loads[i]).min()))
            out[each] = vector_toward(
                gap,
                self._s[each],
                self._b[each],
                limits=(speed, parts[i] * acceleration, parts[i] * jerk),
                share=self._config.share(dt_s),
                dt_s=dt_s,
            )
        return out

    def _to_pose(
        self,
        gap: Float[np.ndarray, "6"],
        fastest: Float[np.ndarray, "6"],
        limits: MotionLimits,
        axes_of: Callable[[np.ndarray], np.ndarray],
        dt_s: float,
    ) -> Float[np.ndarray, "6"]:
        """Move translation and rotation on one straight path, in shares of their highest speeds: they end
        together, and the capacity of the joints along the path is known, however it is divided between
        them."""
        to_go, s, b = gap / fastest, self._s / fastest, self._b / fastest
        load = np.abs(axes_of(_direction(to_go, s) * fastest)) + _LEAST_LOAD
        speed, acceleration, jerk = (
            float((most / load).min()) for most in (limits.speed, limits.acceleration, limits.jerk)
        )
        ways = min(speed, 1.0), _CAPACITY * acceleration, _CAPACITY * jerk
        return vector_toward(to_go, s, b, limits=ways, share=self._config.share(dt_s), dt_s=dt_s) * fastest

    def _gap(self, lead: PoseLead, X_BE: pin.SE3) -> Float[np.ndarray, "6"]:
        """Return the gap from here to the leader's pose."""
        if self._clutch is None:
            raise InvalidValueError(
                "an end effector that was driven by velocities has to be engaged again for poses"
            )
        gap = np.clip(pose_error(X_BE, self._clutch.target(lead.X_LH)), -FAR, FAR)
        if not np.isfinite(gap).all():
            raise InvalidValueError(f"expected a leader's pose near its last, got {lead.X_LH.translation}")
        return gap

    def _asked(self, lead: TwistLead, X_BE: pin.SE3) -> list[tuple[Float[np.ndarray, "3"], float]]:
        """Return, for translation and rotation, the gap to the goal and the requested speed."""
        config = self._config
        R = self._R_BL if lead.frame is Frame.BASE else X_BE.rotation
        asked = (config.translation_scale * (R @ lead.v), config.rotation_scale * (R @ lead.w))
        return [self._gap_at(i, each, X_BE) for i, each in enumerate(asked)]

    def _gap_at(
        self, i: int, asked: Float[np.ndarray, "3"], X_BE: pin.SE3
    ) -> tuple[Float[np.ndarray, "3"], float]:
        """Return gap and speed of translation (0) or rotation (1); one with zero velocity holds."""
        speed, each = float(np.linalg.norm(asked)), slice(3 * i, 3 * i + 3)
        if speed > 0.0:
            self._held[i] = None
            return asked * (FAR / speed), speed
        if self._held[i] is None and np.linalg.norm(self._s[each]) <= _STANDS:
            self._held[i] = X_BE.copy()
        held = self._held[i]
        if held is None:
            return np.zeros(3), np.inf
        return shortened(pose_error(X_BE, held)[each], _HELD_WITHIN[i]), np.inf


def no_kinematics(part: str) -> str:
    """Describe why an end effector cannot be driven, and the remedy."""
    return (
        f"the end effector of {part} cannot be driven: the robot has no kinematics of it. A leader arm can "
        "drive its joints; for its end effector give Robot(hand_pose=...) or Robot(whole_body=...), in "
        f"robot.toml [parts.{part}.kinematics]"
    )


def _misfit(part: str, what: str, lead: PartLead) -> InvalidValueError:
    return InvalidValueError(f"{part} is {what}, which a {type(lead).__name__} does not drive")


def _of_pose(limits: JointLimits) -> MotionLimits | None:
    """Join the limits of translation and rotation; None: one of them is not declared."""
    both = limits.hand_translation, limits.hand_rotation
    if both[0] is None or both[1] is None:
        return None
    names = ("speed", "acceleration", "jerk")
    return MotionLimits(**{name: np.concatenate([getattr(each, name) for each in both]) for name in names})


def _base_steps(a: Float[np.ndarray, "3"], b: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"]:
    """Return the step between two poses along the axes of the first, as the limiter counts it."""
    c, s = np.cos(a[2]), np.sin(a[2])
    x, y = b[:2] - a[:2]
    return np.array([c * x + s * y, c * y - s * x, wrap_angle(b[2] - a[2])])


def _direction(gap: Float[np.ndarray, " n"], s: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return the direction of the gap, or of the motion where there is no gap."""
    for v in (gap, s):
        if (length := math.hypot(*v.tolist())) > 0.0:
            return v / length
    return np.zeros(gap.size)
