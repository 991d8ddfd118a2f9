"""The last gate before a driver: commands inside the robot's limits, and a report of what had to give.

A clipped setpoint falls behind the plan; the limiter catches up at the speed from which it can still stop on
the plan, so it does not overshoot. The plan's own speed passes through untouched.

    speed allowed = plan's speed ± sqrt(2 a |lag|), then within ±v_max, then within ±a dt of the last speed
"""

from dataclasses import dataclass, replace

import numpy as np

from robot_runtime.core.action import (
    NS_PER_S,
    BasePoseCommand,
    BaseTwistCommand,
    Command,
    GripperCommand,
    JointCommand,
    PoseCommand,
)
from robot_runtime.core.shapes import Float
from robot_runtime.core.state import readonly
from robot_runtime.core.transforms import slerp, wrap_angle

_CATCH_UP = 0.7
"""Share of the acceleration that catching up plans with, so that stopping never needs all of it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Limits:
    """What the robot may be told."""

    q_min: Float[np.ndarray, " N"]
    """Joint positions (N,) [rad]."""
    q_max: Float[np.ndarray, " N"]
    dq_max: Float[np.ndarray, " N"]
    """Joint speeds (N,) [rad/s]."""
    ddq_max: Float[np.ndarray, " N"]
    """Joint accelerations (N,) [rad/s²]."""
    gripper_min: float = 0.0
    """Finger distance [m]."""
    gripper_max: float = 0.08
    hand_speed_max: float = 1.0
    """Hand translation [m/s]."""
    hand_rotation_max: float = 2.5
    """Hand rotation [rad/s]."""
    base_speed_max: Float[np.ndarray, "3"] | None = None
    """(vx, vy, wz) [m/s, m/s, rad/s]; None allows any."""
    base_acceleration_max: Float[np.ndarray, "3"] | None = None
    """[m/s², m/s², rad/s²]; None allows any."""

    def __post_init__(self) -> None:
        for name in ("q_min", "q_max", "dq_max", "ddq_max"):
            object.__setattr__(self, name, readonly(getattr(self, name)))
        if not (self.q_min < self.q_max).all() or not (self.dq_max > 0).all() or not (self.ddq_max > 0).all():
            raise ValueError("limits need q_min < q_max and positive dq_max and ddq_max")


@dataclass(frozen=True, kw_only=True)
class Clip:
    """What a command lost to the limits."""

    position: bool = False
    velocity: bool = False
    acceleration: bool = False
    gripper: bool = False
    base: bool = False

    def __bool__(self) -> bool:
        return self.position or self.velocity or self.acceleration or self.gripper or self.base


_NOTHING = Clip()


class Limiter:
    """Applies `Limits` tick by tick; remembers the last setpoint sent and how fast it was moving."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._sent: Command | None = None
        self._planned: Command | None = None
        self._dq: np.ndarray = np.zeros_like(limits.q_min)
        self._sent_ns = 0

    def reset(self, command: Command, now_ns: int) -> None:
        """Start at rest at a command."""
        self._sent = self._planned = command
        self._dq = np.zeros_like(self._limits.q_min)
        self._sent_ns = now_ns

    def limit(self, command: Command, now_ns: int) -> tuple[Command, Clip]:
        """The command to send, and what was clipped; call once a tick, with rising times."""
        previous, planned = self._sent, self._planned
        self._planned = command
        if previous is None or planned is None:
            self.reset(command, now_ns)
            return command, _NOTHING
        dt_s = (now_ns - self._sent_ns) / NS_PER_S
        if dt_s <= 0.0:
            return previous, _NOTHING
        out, clip = command, _NOTHING
        match command.arm, previous.arm, planned.arm:
            case JointCommand(q=q), JointCommand(q=q_sent), JointCommand(q=q_planned):
                q_new, clip = self._limit_joints(q, q_planned, q_sent, dt_s)
                if q_new is not q:
                    out = replace(out, arm=JointCommand(q=q_new))
            case PoseCommand() as pose, PoseCommand() as sent, _:
                arm, clip = self._limit_hand(pose, sent, dt_s)
                out = replace(out, arm=arm)
        if command.gripper is not None:
            width = min(max(command.gripper.width, self._limits.gripper_min), self._limits.gripper_max)
            if width != command.gripper.width:
                out, clip = replace(out, gripper=GripperCommand(width=width)), replace(clip, gripper=True)
        if command.base is not None:
            out, clip = self._limit_base(out, previous, dt_s, clip)
        self._sent, self._sent_ns = out, now_ns
        return out, clip

    def _limit_joints(
        self, q: np.ndarray, q_planned: np.ndarray, q_sent: np.ndarray, dt_s: float
    ) -> tuple[np.ndarray, Clip]:
        lim = self._limits
        wanted = np.minimum(np.maximum(q, lim.q_min), lim.q_max)
        lag = q_planned - q_sent
        v_plan = (q - q_planned) / dt_s
        catch_up = np.minimum(np.abs(lag) / dt_s, np.sqrt(2.0 * _CATCH_UP * lim.ddq_max * np.abs(lag)))
        v_free = v_plan + np.copysign(catch_up, lag)
        v_slow = np.minimum(np.maximum(v_free, -lim.dq_max), lim.dq_max)
        dv = lim.ddq_max * dt_s
        v = np.minimum(np.maximum(v_slow, self._dq - dv), self._dq + dv)
        q_new = np.minimum(np.maximum(q_sent + v * dt_s, lim.q_min), lim.q_max)
        self._dq = (q_new - q_sent) / dt_s
        if np.abs(q_new - q).max() < 1e-9:
            return q, _NOTHING
        clip = Clip(
            position=bool((wanted != q).any()),
            velocity=bool((v_slow != v_free).any()),
            acceleration=bool((np.abs(v - v_slow) > 1e-9).any()),
        )
        return q_new, clip

    def _limit_hand(self, pose: PoseCommand, sent: PoseCommand, dt_s: float) -> tuple[PoseCommand, Clip]:
        step = float(np.linalg.norm(pose.p_BE - sent.p_BE))
        angle = 2.0 * float(np.arccos(min(1.0, abs(float(pose.quat_BE @ sent.quat_BE)))))
        allowed = min(
            1.0,
            self._limits.hand_speed_max * dt_s / max(step, 1e-12),
            self._limits.hand_rotation_max * dt_s / max(angle, 1e-12),
        )
        if allowed >= 1.0:
            return pose, _NOTHING
        p = sent.p_BE + allowed * (pose.p_BE - sent.p_BE)
        return PoseCommand(p_BE=p, quat_BE=slerp(sent.quat_BE, pose.quat_BE, allowed)), Clip(velocity=True)

    def _limit_base(self, out: Command, previous: Command, dt_s: float, clip: Clip) -> tuple[Command, Clip]:
        v_max, a_max = self._limits.base_speed_max, self._limits.base_acceleration_max
        match out.base, previous.base:
            case BaseTwistCommand(V_WB_B=wanted), BaseTwistCommand(V_WB_B=sent):
                v = wanted if v_max is None else np.clip(wanted, -v_max, v_max)
                if a_max is not None:
                    v = np.clip(v, sent - a_max * dt_s, sent + a_max * dt_s)
                if (v != wanted).any():
                    return replace(out, base=BaseTwistCommand(V_WB_B=v)), replace(clip, base=True)
            case BasePoseCommand(x_WB=wanted), BasePoseCommand(x_WB=sent) if v_max is not None:
                step = wanted - sent
                step[2] = wrap_angle(step[2])
                clipped = np.clip(step, -v_max * dt_s, v_max * dt_s)
                if (clipped != step).any():
                    x_WB = sent + clipped
                    x_WB[2] = wrap_angle(x_WB[2])
                    return replace(out, base=BasePoseCommand(x_WB=x_WB)), replace(clip, base=True)
        return out, clip
