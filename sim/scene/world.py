"""One simulated scene that is stepped lazily: nothing moves until somebody asks what time it is there."""

import math
import threading

import mujoco
import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.core.values.transforms import turn_planar
from sim.scene.kinematics import NUM_JOINTS, Q_HOME, Kinematics
from sim.scene.mobile_base import BRAKE, BRAKE_NS, MOTOR_LAG_S, NUM_BASE_JOINTS, P_BA, STANDS_BELOW
from sim.scene.model import DT_NS, MAX_WIDTH, build_model
from sim.scene.task import Task


class World:
    """FR3, table and the task's objects, at a time of the owner's clock.

        t_start_ns      t_start + DT_NS     ...        t_ns <= asked time < t_ns + DT_NS
        |---- step 1 ----|---- step 2 ----|----...------|
    A setpoint given at `t_ns` acts from the next step on. How often `advance_to` is called changes nothing.
    One thread steps and writes; others may take a `snapshot` at any time.
    """

    def __init__(self, task: Task, *, seed: int = 0, t_start_ns: int = 0) -> None:
        self.task = task
        self.model = build_model(task)
        self.data = mujoco.MjData(self.model)
        self.has_base = task.schema.has_base
        self.kinematics = Kinematics(p_BA=P_BA) if self.has_base else Kinematics()
        first = NUM_BASE_JOINTS if self.has_base else 0
        self._arm, self._fingers = slice(first, first + NUM_JOINTS), first + NUM_JOINTS
        self._lock = threading.Lock()
        self._next_impose_ns: int | None = None
        self._base_stops_ns: int | None = None
        self.reset(seed, t_start_ns=t_start_ns)

    def reset(self, seed: int, *, t_start_ns: int = 0) -> None:
        """Start the episode that belongs to the seed, at a time of the owner's clock."""
        with self._lock:
            self.seed, self.t_start_ns, self._num_steps = seed, t_start_ns, 0
            self._base_stops_ns = None
            mujoco.mj_resetData(self.model, self.data)
            self.place_robot(np.array(Q_HOME), MAX_WIDTH)
            self.task.reset(self, np.random.default_rng(seed))
            self._next_impose_ns = self.task.apply_event(self)
            self.task.update(self)
            mujoco.mj_forward(self.model, self.data)

    @property
    def t_ns(self) -> int:
        """Time up to which physics has been computed [ns]."""
        return self.t_start_ns + self._num_steps * DT_NS

    def advance_to(self, t_ns: int) -> None:
        """Step physics up to the last whole step at or before `t_ns`; the past is left as it is."""
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
        """Steps until something changes the physics, 0 if it is due; None: never."""
        return math.inf if t_ns is None else max(0, -((self.t_ns - t_ns) // DT_NS))

    @property
    def q(self) -> Float[np.ndarray, "7"]:
        """Arm joint positions (7,) [rad], a copy."""
        return self.data.qpos[self._arm].copy()

    @property
    def dq(self) -> Float[np.ndarray, "7"]:
        """Arm joint velocities (7,) [rad/s], a copy."""
        return self.data.qvel[self._arm].copy()

    @property
    def gripper_width(self) -> float:
        """Distance between the fingers [m]."""
        return float(self.data.qpos[self._fingers] + self.data.qpos[self._fingers + 1])

    def set_joint_target(self, q: Float[np.ndarray, "7"]) -> Float[np.ndarray, "7"]:
        """Setpoint of the joint servos from now on, clipped to the joint limits; returns what was set."""
        limits = self.model.actuator_ctrlrange[:NUM_JOINTS]
        self.data.ctrl[:NUM_JOINTS] = np.clip(q, limits[:, 0], limits[:, 1])
        return self.data.ctrl[:NUM_JOINTS].copy()

    def set_gripper_target(self, width: float) -> float:
        """Setpoint of the fingers from now on, clipped to what they can do [m]; returns what was set."""
        self.data.ctrl[NUM_JOINTS] = min(max(width, 0.0), MAX_WIDTH)
        return float(self.data.ctrl[NUM_JOINTS])

    def place_robot(self, q: Float[np.ndarray, "7"], width: float) -> None:
        """Put arm and fingers somewhere at rest, setpoints included; for `Task.reset` only."""
        self.data.qpos[self._arm] = q
        self.data.qpos[self._fingers : self._fingers + 2] = width / 2
        self.data.qvel[: self._fingers + 2] = 0.0
        self.set_joint_target(q)
        self.set_gripper_target(width)

    @property
    def x_WB(self) -> Float[np.ndarray, "3"]:
        """True pose of the mobile base (x, y, yaw) [m, m, rad], a copy; only for a robot that has one."""
        return self.data.qpos[:NUM_BASE_JOINTS].copy()

    @property
    def V_WB_B(self) -> Float[np.ndarray, "3"]:
        """True twist of the mobile base in B (vx, vy, wz) [m/s, m/s, rad/s]."""
        return turn_planar(self.data.qvel[:NUM_BASE_JOINTS], -self.data.qpos[2])

    def set_base_twist(self, V_WB_B: Float[np.ndarray, "3"], *, until_ns: int | None) -> None:
        """Velocity setpoint of the wheels from now until a time, when they brake by themselves [ns].

        The wheels turn with the base and lag in its axes, the motors' filters in the world's: the setpoint is
        turned to where the base will point when they have followed.
        """
        yaw = self.data.qpos[2] + MOTOR_LAG_S * self.data.qvel[2]
        self.data.ctrl[NUM_JOINTS + 1 :] = turn_planar(V_WB_B, yaw)
        self._base_stops_ns = until_ns

    def brake_base(self) -> None:
        """Bring the wheels to a stand sooner than by following a setpoint of 0 with their lag.

        setpoint      v ──────┐     ┌────── 0       -b v for lag ln(1 + 1/b), then 0
        followed      v ──────╲     │               v (1 + b) e^(-t / lag) - b v, which is 0 by then
                               ╲____│______
                   -b v       └─────┘
        """
        followed = self.data.act[-NUM_BASE_JOINTS:]
        if np.abs(followed).max() < STANDS_BELOW:
            self.data.ctrl[NUM_JOINTS + 1 :], self._base_stops_ns = 0.0, None
        else:
            self.data.ctrl[NUM_JOINTS + 1 :] = -BRAKE * followed
            self._base_stops_ns = self.t_ns + BRAKE_NS

    def place_base(self, x_WB: Float[np.ndarray, "3"]) -> None:
        """Put the mobile base somewhere at rest; for `Task.reset` only."""
        self.data.qpos[:NUM_BASE_JOINTS] = x_WB
        self.data.qvel[:NUM_BASE_JOINTS] = 0.0
        self.set_base_twist(np.zeros(3), until_ns=None)

    def snapshot(self) -> Float[np.ndarray, " P"]:
        """Everything that shows in a picture: qpos, then mocap poses (a copy, safe in any thread)."""
        with self._lock:
            mocap = np.hstack([self.data.mocap_pos, self.data.mocap_quat])
            return np.concatenate([self.data.qpos, mocap.ravel()])

    def observe(self, state: RobotState | None = None, *, exact: bool = False) -> Observation:
        """The task's own quantities and words at `t_ns`, with the robot as it measured itself.

        state: what its drivers read; a base is then where odometry has it. None: the truth.
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
        q = self.q
        return RobotState(
            t_ns=self.t_ns,
            q=q,
            dq=self.dq,
            X_BE=self.kinematics.forward(q),
            gripper_width=self.gripper_width,
            x_WB=self.x_WB if self.has_base else None,
            V_WB_B=self.V_WB_B if self.has_base else None,
        )


def show_snapshot(model: mujoco.MjModel, data: mujoco.MjData, snapshot: Float[np.ndarray, " P"]) -> None:
    """Put a `World.snapshot` into another `MjData` of the same model, ready to draw."""
    data.qpos[:] = snapshot[: model.nq]
    mocap = snapshot[model.nq :].reshape(-1, 7)
    data.mocap_pos[:], data.mocap_quat[:] = mocap[:, :3], mocap[:, 3:]
    mujoco.mj_forward(model, data)
