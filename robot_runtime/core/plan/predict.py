"""Predicts the state of the robot after the rows that it is committed to: `StatePredictor`.

measured                                  predicted
   |---- rows of the plan, still to run ----|
state.t_ns                                 t_ns
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pinocchio as pin

from robot_runtime.core.method.request_parts import IntegratedDeltas, LastTarget, RollForward, TrackingLag
from robot_runtime.core.plan.timeline import ChunkTimeline
from robot_runtime.core.values.action import NS_PER_S, ActionSpec
from robot_runtime.core.values.command import (
    BasePoseCommand,
    BaseTwistCommand,
    Command,
    GripperCommand,
    JointCommand,
    JointVelocityCommand,
    NumbersCommand,
    PoseCommand,
)
from robot_runtime.core.values.fields import BaseTwist
from robot_runtime.core.values.shapes import Float, Int
from robot_runtime.core.values.state import (
    ARM,
    ArmState,
    BaseState,
    GripperState,
    PartState,
    RobotState,
)
from robot_runtime.core.values.transforms import compose_planar, integrate_twist, inverse_planar, wrap_angle
from robot_runtime.errors import InvalidValueError

HandPose = Callable[[np.ndarray], pin.SE3]
"""Forward kinematics, joints (N,) [rad] to X_BE."""


@dataclass(frozen=True, kw_only=True)
class StatePredictor:
    """Rolls a measured state forward through the plan (VLASH, arXiv 2512.01031, section 3).

    The model describes how arm and base follow position setpoints. Twists and velocities are integrated from
    the measured state, each held until the next step, whatever the model. Joints of a plan of end-effector
    poses stay as measured.
    """

    model: RollForward = field(default_factory=LastTarget)
    hand_pose: HandPose | Mapping[str, HandPose] | None = None
    """Forward kinematics of "arm", or by part; without it a joint plan leaves the end effector unknown."""
    step_ns: int = 10_000_000
    """Step of an integration along the plan [ns]."""

    def predict(self, state: RobotState, timeline: ChunkTimeline, t_ns: int) -> RobotState:
        """The state expected at `t_ns`, not before the measured one; ValueError if it lies in the past."""
        if t_ns < state.t_ns:
            raise ValueError(f"cannot predict {t_ns}: it lies before the measured state at {state.t_ns}")
        match self.model:
            case LastTarget():
                out = _at_target(state, _planned(timeline, t_ns))
            case IntegratedDeltas():
                out = _moved(state, _planned(timeline, state.t_ns), _planned(timeline, t_ns))
            case TrackingLag(time_constant_s=tau):
                out = self._lagging(state, timeline, t_ns, tau)
        parts: dict[str, PartState] = {}
        for name, commanded in _planned(timeline, t_ns).parts.items():
            match commanded:
                case JointCommand():
                    arm = out.arm(name)
                    dq = arm.dq
                    if not isinstance(self.model, TrackingLag):
                        dq = _joint_velocity(timeline, t_ns, name, state.arm(name).dq)
                    parts[name] = ArmState(q=arm.q, dq=dq, X_BE=self._hand_at(name, arm.q))
                case JointVelocityCommand(dq=dq):
                    q = self._turn(state, timeline, t_ns, name)
                    parts[name] = ArmState(q=q, dq=dq, X_BE=self._hand_at(name, q))
                case BaseTwistCommand(V_WB_B=twist):
                    x_WB = self._drive(state, timeline, t_ns, name)
                    parts[name] = BaseState(x_WB=x_WB, V_WB_B=twist)
                case NumbersCommand(values=values) if name in state.measured:
                    out = replace(out, measured={**out.measured, name: values})
        return out.with_parts(parts, t_ns=t_ns)

    def knows_hand(self, part: str) -> bool:
        """Whether the arm's forward kinematics are known."""
        return hand_pose_of(self.hand_pose, part) is not None

    def _hand_at(self, part: str, q: Float[np.ndarray, " N"]) -> pin.SE3 | None:
        hand_pose = hand_pose_of(self.hand_pose, part)
        return None if hand_pose is None else hand_pose(q)

    def _lagging(
        self, state: RobotState, timeline: ChunkTimeline, t_ns: int, time_constant_s: float
    ) -> RobotState:
        """Integrate the lag from row to row along straight lines, as training recipes do."""
        times = self._times(timeline, state.t_ns, t_ns)
        setpoint = _planned(timeline, state.t_ns)
        out = state
        for before_ns, now_ns in pairwise(times):
            duration_s = (now_ns - before_ns) / NS_PER_S
            before, setpoint = setpoint, _planned(timeline, now_ns)
            out = _follow(out, before, setpoint, duration_s=duration_s, time_constant_s=time_constant_s)
        return out.with_parts(_widths(setpoint))

    def _times(self, timeline: ChunkTimeline, start_ns: int, end_ns: int) -> list[int]:
        coasting = range(max(start_ns, timeline.end_ns), end_ns, self.step_ns)
        return sorted({start_ns, *timeline.due_times(start_ns, end_ns), *coasting, end_ns})

    def _drive(self, state: RobotState, timeline: ChunkTimeline, t_ns: int, part: str) -> np.ndarray:
        x_WB, now_ns = _base(state, part), state.t_ns
        while now_ns < t_ns:
            step_ns = min(self.step_ns, t_ns - now_ns)
            commanded = timeline.command_at(now_ns + step_ns // 2).parts[part]
            assert isinstance(commanded, BaseTwistCommand)
            x_WB = integrate_twist(x_WB, commanded.V_WB_B, step_ns * 1e-9)
            now_ns += step_ns
        return x_WB

    def _turn(self, state: RobotState, timeline: ChunkTimeline, t_ns: int, part: str) -> np.ndarray:
        """The positions to which commanded joint velocities lead [rad]."""
        q, now_ns = state.arm(part).q, state.t_ns
        while now_ns < t_ns:
            step_ns = min(self.step_ns, t_ns - now_ns)
            commanded = timeline.command_at(now_ns + step_ns // 2).parts[part]
            assert isinstance(commanded, JointVelocityCommand)
            q = q + commanded.dq * (step_ns * 1e-9)
            now_ns += step_ns
        return q


def check_odometry(spec: ActionSpec, state: RobotState) -> None:
    """InvalidValueError: the state lacks the odometry from which twists of a base are rolled forward."""
    for f in spec.fields:
        if isinstance(f, BaseTwist) and state.base(f.part).x_WB is None:
            raise InvalidValueError(
                f"rolling the twists of {f.part!r} forward needs its odometry: expected x_WB in the state, "
                "got None; measure it, or take a method that does not roll the state forward"
            )


def hand_pose_of(hand_pose: "HandPose | Mapping[str, HandPose] | None", part: str) -> HandPose | None:
    """Forward kinematics of one arm; a single function is that of "arm"."""
    if isinstance(hand_pose, Mapping):
        return hand_pose.get(part)
    return hand_pose if part == ARM else None


def fit_time_constant(
    t_ns: Int[np.ndarray, " T"],
    setpoints: Float[np.ndarray, "T N"],
    measured: Float[np.ndarray, "T N"],
    *,
    window_s: float = 0.1,
) -> float:
    """The tau [s] of `TrackingLag` that fits a log best, by least squares.

    setpoints: commanded at `t_ns`, held until the next entry. measured: the same joints then.
    window_s: the lag is fitted to the arm's motion in windows of this length, so that noise between
        neighbouring samples does not count.

    Integrates dx/dt = (r - x) / tau over each window: moved = (1 / tau) * integral(r - x).
    ValueError: the log is too short, or the arm never moves away from or towards its setpoint.
    """
    if setpoints.shape != measured.shape or len(t_ns) != len(setpoints) or len(t_ns) < 3:
        raise ValueError(
            f"need T >= 3 times and two (T, N) logs, got {len(t_ns)} times and logs of shapes "
            f"{setpoints.shape} and {measured.shape}"
        )
    dt_s = np.diff(t_ns)[:, None] / NS_PER_S
    error = setpoints[:-1] - 0.5 * (measured[:-1] + measured[1:])
    integral = np.vstack([np.zeros_like(measured[:1]), np.cumsum(error * dt_s, axis=0)])
    lag = min(max(1, round(window_s / float(np.median(dt_s)))), len(t_ns) - 1)
    moved, pushed = measured[lag:] - measured[:-lag], integral[lag:] - integral[:-lag]
    rate, scale = float((moved * pushed).sum()), float((pushed * pushed).sum())
    if not rate > 0.0:
        raise ValueError("the log shows no motion towards the setpoints: no lag can be fitted")
    return scale / rate


def _at_target(state: RobotState, target: Command) -> RobotState:
    parts: dict[str, PartState] = _widths(target)
    for name, commanded in target.parts.items():
        match commanded:
            case JointCommand(q=q):
                parts[name] = _with(state, name, q=q)
            case PoseCommand() as pose:
                parts[name] = _with(state, name, X_BE=pose.X_BE)
            case BasePoseCommand(x_WB=x_WB):
                parts[name] = BaseState(x_WB=x_WB, V_WB_B=state.base(name).V_WB_B)
    return state.with_parts(parts)


def _moved(state: RobotState, start: Command, end: Command) -> RobotState:
    """The state after the motion from one setpoint to another; a measured offset from the first is kept."""
    parts: dict[str, PartState] = {}
    for name, commanded in end.parts.items():
        match start.parts.get(name), commanded:
            case JointCommand(q=q_start), JointCommand(q=q_end):
                parts[name] = _with(state, name, q=state.arm(name).q + (q_end - q_start))
            case PoseCommand() as a, PoseCommand() as b:
                X_BE = _hand(state, name) * a.X_BE.inverse() * b.X_BE
                parts[name] = _with(state, name, X_BE=X_BE)
            case BasePoseCommand(x_WB=x_start), BasePoseCommand(x_WB=x_end):
                delta = compose_planar(inverse_planar(x_start), x_end)
                x_WB = compose_planar(_base(state, name), delta)
                parts[name] = BaseState(x_WB=x_WB, V_WB_B=state.base(name).V_WB_B)
            case before, GripperCommand(width=width) if before != commanded:
                # Fingers that hold an object stay at its width; only a new target moves them.
                parts[name] = GripperState(width=width)
    return state.with_parts(parts)


def _widths(target: Command) -> dict[str, PartState]:
    """Every gripper at its commanded width."""
    commanded = target.parts.items()
    return {
        name: GripperState(width=each.width) for name, each in commanded if isinstance(each, GripperCommand)
    }


def _with(
    state: RobotState, part: str, *, q: np.ndarray | None = None, dq: np.ndarray | None = None,
    X_BE: pin.SE3 | None = None,
) -> ArmState:  # fmt: skip
    """The measured arm with these quantities replaced."""
    arm = state.arm(part)
    return ArmState(
        q=arm.q if q is None else q,
        dq=arm.dq if dq is None else dq,
        X_BE=arm.X_BE if X_BE is None else X_BE,
    )


def _follow(
    state: RobotState, r_0: Command, r_1: Command, *, duration_s: float, time_constant_s: float
) -> RobotState:
    """The state after following, with a lag, a setpoint that goes straight from `r_0` to `r_1`."""
    decay, lag_s = math.exp(-duration_s / time_constant_s), time_constant_s

    def error_after(error: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        return (error + velocity * lag_s) * decay - velocity * lag_s

    parts: dict[str, PartState] = {}
    for name, commanded in r_1.parts.items():
        match r_0.parts.get(name), commanded:
            case JointCommand(q=q_0), JointCommand(q=q_1):
                error = error_after(state.arm(name).q - q_0, (q_1 - q_0) / duration_s)
                parts[name] = _with(state, name, q=q_1 + error, dq=-error / lag_s)
            case PoseCommand() as a, PoseCommand() as b:
                X_BE = _hand(state, name)
                p = b.p_BE + error_after(X_BE.translation - a.p_BE, (b.p_BE - a.p_BE) / duration_s)
                R_0, R_1 = a.X_BE.rotation, b.X_BE.rotation
                turn = error_after(pin.log3(R_0.T @ X_BE.rotation), pin.log3(R_0.T @ R_1) / duration_s)
                parts[name] = _with(state, name, X_BE=pin.SE3(R_1 @ pin.exp3(turn), p))
            case BasePoseCommand(x_WB=x_0), BasePoseCommand(x_WB=x_1):
                x_WB = x_1 + error_after(
                    _planar_difference(_base(state, name), x_0), _planar_difference(x_1, x_0) / duration_s
                )
                x_WB[2] = wrap_angle(x_WB[2])
                parts[name] = BaseState(x_WB=x_WB, V_WB_B=state.base(name).V_WB_B)
    return state.with_parts(parts)


def _planar_difference(x_a: np.ndarray, x_b: np.ndarray) -> np.ndarray:
    return np.array([x_a[0] - x_b[0], x_a[1] - x_b[1], wrap_angle(x_a[2] - x_b[2])])


def _joint_velocity(timeline: ChunkTimeline, t_ns: int, part: str, otherwise: np.ndarray) -> np.ndarray:
    """Velocity of the plan from the row before up to `t_ns` [rad/s]."""
    before_ns = max(timeline.due_times(t_ns - NS_PER_S, t_ns), default=t_ns - NS_PER_S)
    match _planned(timeline, before_ns).parts.get(part), _planned(timeline, t_ns).parts.get(part):
        case JointCommand(q=q_0), JointCommand(q=q_1):
            return (q_1 - q_0) * (NS_PER_S / (t_ns - before_ns))
    return otherwise


def _planned(timeline: ChunkTimeline, t_ns: int) -> Command:
    """The plan's target for a time."""
    return timeline.waypoints_at([t_ns]).row(0)


def _hand(state: RobotState, part: str) -> pin.SE3:
    X_BE = state.hand(part)
    if X_BE is None:
        raise ValueError("rolling an end-effector pose forward needs X_BE in the robot state")
    return X_BE


def _base(state: RobotState, part: str) -> np.ndarray:
    x_WB = state.base(part).x_WB
    if x_WB is None:
        raise ValueError("rolling a base forward needs x_WB in the robot state")
    return x_WB
