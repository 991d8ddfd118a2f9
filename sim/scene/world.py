"""One simulated scene that is stepped lazily: nothing moves until `advance_to` is called."""

import math
import threading
from collections.abc import Mapping
from types import MappingProxyType

import mujoco
import numpy as np
from jaxtyping import Float

from robot_runtime.core.plan.predict import HandPose
from robot_runtime.core.values.state import (
    BASE,
    ArmState,
    BaseState,
    GripperState,
    Observation,
    PartState,
    RobotState,
)
from robot_runtime.core.values.transforms import turn_planar
from sim.scene.arms import ArmInScene, mounts_of
from sim.scene.kinematics import Q_HOME, Kinematics
from sim.scene.mobile_base import BRAKE, BRAKE_NS, MOTOR_LAG_S, NUM_BASE_JOINTS, STANDS_BELOW
from sim.scene.model import DT_NS, MAX_WIDTH, build_model
from sim.scene.task import Task


class World:
    """FR3s, table and the task's objects, at a time of the owner's clock.

        t_start_ns      t_start + DT_NS     ...        t_ns <= requested < t_ns + DT_NS
        |---- step 1 ----|---- step 2 ----|----...------|
    A setpoint given at `t_ns` acts from the next step on. How often `advance_to` is called changes nothing.
    One thread steps and writes; others may take a `snapshot` at any time.
    """

    def __init__(self, task: Task, *, seed: int = 0, t_start_ns: int = 0) -> None:
        self.task = task
        self.model = build_model(task)
        self.data = mujoco.MjData(self.model)
        self.has_base = task.schema.has_base
        self.arms: Mapping[str, ArmInScene] = MappingProxyType(
            {mount.arm: ArmInScene(self.model, self.data, mount) for mount in mounts_of(task.schema)}
        )
        """Arms by name: `arm`, or several."""
        self._lock = threading.Lock()
        self._next_impose_ns: int | None = None
        self._base_stops_ns: int | None = None
        self.reset(seed, t_start_ns=t_start_ns)

    def reset(self, seed: int, *, t_start_ns: int = 0) -> None:
        """Start the episode of a seed, at a time of the owner's clock."""
        with self._lock:
            self.seed, self.t_start_ns, self._num_steps = seed, t_start_ns, 0
            self._base_stops_ns = None
            mujoco.mj_resetData(self.model, self.data)
            for arm in self.arms.values():
                arm.place(np.array(Q_HOME), MAX_WIDTH)
            self.task.reset(self, np.random.default_rng(seed))
            self._next_impose_ns = self.task.apply_event(self)
            self.task.update(self)
            mujoco.mj_forward(self.model, self.data)

    @property
    def t_ns(self) -> int:
        """Time up to which physics has been computed [ns]."""
        return self.t_start_ns + self._num_steps * DT_NS

    def advance_to(self, t_ns: int) -> None:
        """Step physics up to the last whole step at or before `t_ns`; a past time changes nothing."""
        num_left = (t_ns - self.t_start_ns) // DT_NS - self._num_steps
        if num_left <= 0:
            return
        with self._lock:
            while num_left > 0:
                until = min(self._steps_to(self._next_impose_ns), self._steps_to(self._base_stops_ns))
                num_steps = int(min(num_left, until))
                mujoco.mj_step(self.model, self.data, nstep=num_steps)
                self._num_steps += num_steps
                num_left -= num_steps
                if self._steps_to(self._next_impose_ns) == 0:
                    self._next_impose_ns = self.task.apply_event(self)
                if self._steps_to(self._base_stops_ns) == 0:
                    self.brake_base()
            self.task.update(self)

    def _steps_to(self, t_ns: int | None) -> float:
        """Number of steps until an event, 0 if it is due; infinite for None."""
        return math.inf if t_ns is None else max(0, -((self.t_ns - t_ns) // DT_NS))

    @property
    def arm(self) -> ArmInScene:
        """The arm of a robot with one arm; ValueError if there are several."""
        if len(self.arms) > 1:
            raise ValueError(f"expected one arm, got {', '.join(self.arms)}; use world.arms[name]")
        return next(iter(self.arms.values()))

    @property
    def hand_poses(self) -> dict[str, HandPose]:
        """Forward kinematics of each arm."""
        return {name: arm.kinematics.forward for name, arm in self.arms.items()}

    @property
    def lowest_hand(self) -> float:
        """Height of the lowest hand over B [m]."""
        return min(float(arm.kinematics.forward(arm.q).translation[2]) for arm in self.arms.values())

    @property
    def kinematics(self) -> Kinematics:
        """Kinematics of the one arm."""
        return self.arm.kinematics

    @property
    def q(self) -> Float[np.ndarray, "7"]:
        """Joint positions of the one arm (7,) [rad], a copy."""
        return self.arm.q

    @property
    def dq(self) -> Float[np.ndarray, "7"]:
        """Joint velocities of the one arm (7,) [rad/s], a copy."""
        return self.arm.dq

    @property
    def gripper_width(self) -> float:
        """Distance between the fingers of the one arm [m]."""
        return self.arm.gripper_width

    def set_joint_target(self, q: Float[np.ndarray, "7"]) -> Float[np.ndarray, "7"]:
        """`ArmInScene.set_joint_target` of the one arm."""
        return self.arm.set_joint_target(q)

    def set_gripper_target(self, width: float) -> float:
        """`ArmInScene.set_gripper_target` of the one arm."""
        return self.arm.set_gripper_target(width)

    def place_robot(self, q: Float[np.ndarray, "7"], width: float) -> None:
        """Place the one arm and its fingers, at zero velocity; for `Task.reset` only."""
        self.arm.place(q, width)

    @property
    def x_WB(self) -> Float[np.ndarray, "3"]:
        """True pose of the mobile base (x, y, yaw) [m, m, rad], a copy; only for robots with a base."""
        return self.data.qpos[:NUM_BASE_JOINTS].copy()

    @property
    def V_WB_B(self) -> Float[np.ndarray, "3"]:
        """True twist of the mobile base in B (vx, vy, wz) [m/s, m/s, rad/s]."""
        return turn_planar(self.data.qvel[:NUM_BASE_JOINTS], -self.data.qpos[2])

    def set_base_twist(self, V_WB_B: Float[np.ndarray, "3"], *, until_ns: int | None) -> None:
        """Set the wheels' velocity setpoint until a time at which they brake by themselves [ns].

        The wheels turn with the base and lag in its axes, the motors' filters in the world's: the setpoint is
        turned to where the base will point when they have followed.
        """
        yaw = self.data.qpos[2] + MOTOR_LAG_S * self.data.qvel[2]
        self.data.ctrl[-NUM_BASE_JOINTS:] = turn_planar(V_WB_B, yaw)
        self._base_stops_ns = until_ns

    def brake_base(self) -> None:
        """Stop the wheels faster than by following a setpoint of 0 with their lag.

        setpoint      v ──────┐     ┌────── 0       -b v for lag ln(1 + 1/b), then 0
        followed      v ──────╲     │               v (1 + b) e^(-t / lag) - b v, which is 0 by then
                               ╲____│______
                   -b v       └─────┘
        """
        followed = self.data.act[-NUM_BASE_JOINTS:]
        if np.abs(followed).max() < STANDS_BELOW:
            self.data.ctrl[-NUM_BASE_JOINTS:], self._base_stops_ns = 0.0, None
        else:
            self.data.ctrl[-NUM_BASE_JOINTS:] = -BRAKE * followed
            self._base_stops_ns = self.t_ns + BRAKE_NS

    def place_base(self, x_WB: Float[np.ndarray, "3"]) -> None:
        """Place the mobile base, at zero velocity; for `Task.reset` only."""
        self.data.qpos[:NUM_BASE_JOINTS] = x_WB
        self.data.qvel[:NUM_BASE_JOINTS] = 0.0
        self.set_base_twist(np.zeros(3), until_ns=None)

    def snapshot(self) -> Float[np.ndarray, " P"]:
        """Everything visible in an image: qpos, then mocap poses (a copy, safe in any thread)."""
        with self._lock:
            mocap = np.hstack([self.data.mocap_pos, self.data.mocap_quat])
            return np.concatenate([self.data.qpos, mocap.ravel()])

    def observe(self, state: RobotState | None = None, *, exact: bool = False) -> Observation:
        """Observe the task's scene state and instruction at `t_ns`, with the robot's state.

        state: measured by drivers, with the base by odometry. None: the truth.
        exact: without the errors of the task's tracker.
        """
        seen, observation_noise = self.task.environment_state(self), self.task.observation_noise
        if observation_noise is not None and not exact:
            seen = observation_noise.measure(seen, np.random.default_rng([self.seed, 0x7AC, self._num_steps]))
        return Observation(
            state=self._true_state() if state is None else state,
            environment_state=seen,
            task=self.task.instruction,
        )

    def _true_state(self) -> RobotState:
        parts: dict[str, PartState] = {}
        for arm in self.arms.values():
            q = arm.q
            parts[arm.mount.arm] = ArmState(q=q, dq=arm.dq, X_BE=arm.kinematics.forward(q))
            parts[arm.mount.gripper] = GripperState(width=arm.gripper_width)
        if self.has_base:
            parts[BASE] = BaseState(x_WB=self.x_WB, V_WB_B=self.V_WB_B)
        return RobotState(t_ns=self.t_ns, parts=parts)


def show_snapshot(model: mujoco.MjModel, data: mujoco.MjData, snapshot: Float[np.ndarray, " P"]) -> None:
    """Copy a `World.snapshot` into another `MjData` of the same model, ready to render."""
    data.qpos[:] = snapshot[: model.nq]
    mocap = snapshot[model.nq :].reshape(-1, 7)
    data.mocap_pos[:], data.mocap_quat[:] = mocap[:, :3], mocap[:, 3:]
    mujoco.mj_forward(model, data)
