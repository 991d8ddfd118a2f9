"""A Franka arm: `FrankaArm`. `drivers.franka` describes what stops it."""

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin

from drivers.child import Child
from drivers.fer import FER_LIMITS
from drivers.fr3 import FR3_LIMITS
from drivers.franka.address import check_somebody_answers
from drivers.franka.messages import HOST_PORT, ArmConfig, ArmOrder, ArmReport, limits_to_plain
from robot_runtime.core.plan.limits import JointLimits
from robot_runtime.core.plan.limits_within import beyond
from robot_runtime.core.robot import ArmState
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import ArmCommand, JointCommand, PoseCommand
from robot_runtime.core.values.fields import EndEffectorPose, JointPosition, WorldEndEffectorPose
from robot_runtime.core.values.transforms import pose_from_quaternion, quaternion_from_rotation
from robot_runtime.errors import DriverError, InvalidValueError
from robot_runtime.robot.lease import check_free

HOME = (0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785)
"""Home position [rad]."""
_NUM_JOINTS = 7
_SHEETS = {"fr3": FR3_LIMITS, "fer": FER_LIMITS}


@dataclass(frozen=True, kw_only=True)
class Payload:
    """A load on the arm, in addition to the end effector that Desk knows."""

    mass: float
    """[kg]"""
    center: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Centre of mass in the flange [m]."""
    inertia: tuple[float, ...] = (1e-4, 0.0, 0.0, 0.0, 1e-4, 0.0, 0.0, 0.0, 1e-4)
    """3 x 3 about the centre of mass, by columns [kg m²]."""


class FrankaArm:
    """An FR3 or FER over FCI, in its own process; joint positions and end-effector poses, by impedance
    control."""

    takes = (JointPosition, EndEffectorPose, WorldEndEffectorPose)
    """The commands it takes, see `Robot(actions=...)`; `JointVelocity` only if it is integrated."""

    def __init__(
        self,
        host: str,
        *,
        model: str = "fr3",
        stiffness: Sequence[float] = (600.0, 600.0, 600.0, 600.0, 250.0, 150.0, 50.0),
        damping: Sequence[float] | None = None,
        translational_stiffness: float = 800.0,
        rotational_stiffness: float = 50.0,
        limits: JointLimits | None = None,
        torque_thresholds: Sequence[float] = (20.0,) * 7,
        force_thresholds: Sequence[float] = (30.0,) * 6,
        payload: Payload | Mapping[str, Any] | None = None,
        X_BA: pin.SE3 | Sequence[float] | None = None,
        period_s: float = 0.004,
        silence_s: float = 0.1,
        state_timeout_s: float = 0.08,
        needs_real_time: bool = True,
        log_folder: str | Path | None = None,
    ) -> None:
        """Connect, which takes a second or two; move nothing.

        host: address of the control box's network port.
        model: fr3, or fer, the Panda: selects the data sheet.
        stiffness, damping: of the joints (7,) [Nm/rad, Nms/rad]; no damping: critical.
        translational_stiffness, rotational_stiffness: of the end effector, for pose commands [N/m, Nm/rad].
        limits: limits of the setpoints; by default, and at most, those of the model's data sheet.
        torque_thresholds, force_thresholds: beyond them the robot stops itself [Nm], [N and Nm].
        payload: the load in addition to the end effector; or the fields of `Payload` as a table.
        X_BA: the arm's mount A in the mobile base, or in a frame that several arms share; by default
            identity. Or its numbers (x, y, z, qw, qx, qy, qz).
        period_s: of setpoints to the robot [s]. silence_s: the arm is braked after this long without a
            command [s].
        state_timeout_s: a state older than this is a fault [s].
        needs_real_time: refuse a kernel without PREEMPT_RT.
        log_folder: where the last second before a fault is written; by default the folder for temporary
            files.

        RobotBusyError: another program on this machine drives it.
        InvalidValueError: an invalid number. DriverError: no answer, or it cannot be set
            up; the message states why.
        """
        limits = _checked(limits, model)
        self.limits = limits
        self._X_BA = _mount(X_BA)
        self._timeout_ns, self._order = round(state_timeout_s * NS_PER_S), ArmOrder()
        self.address = f"the Franka arm at {host}"
        what = f"a Franka arm at {host}"
        config = ArmConfig(
            host=host,
            stiffness=_numbers("stiffness", stiffness, _NUM_JOINTS),
            damping=None if damping is None else _numbers("damping", damping, _NUM_JOINTS),
            translational_stiffness=translational_stiffness,
            rotational_stiffness=rotational_stiffness,
            torque_thresholds=_numbers("torque_thresholds", torque_thresholds, _NUM_JOINTS),
            force_thresholds=_numbers("force_thresholds", force_thresholds, 6),
            load=None if payload is None else _load(payload),
            limits=limits_to_plain(limits),
            period_s=period_s,
            silence_s=silence_s,
            state_timeout_s=state_timeout_s,
            needs_real_time=needs_real_time,
            log_folder=str(log_folder or tempfile.gettempdir()),
        )
        check_free(self.address)
        check_somebody_answers(host, HOST_PORT, what)
        self._child = Child("drivers.franka.arm_process", config, ArmOrder, ArmReport, what=what)

    @property
    def num_joints(self) -> int:
        return _NUM_JOINTS

    @property
    def fault(self) -> str:
        """Why it takes no commands until `recover`; empty: it takes them."""
        return self._fault_of(self._child.report())

    @property
    def robot_time_ns(self) -> int:
        """The robot's own clock at its newest state [ns]."""
        return self._child.report().robot_time_ns

    @property
    def success_rate(self) -> float:
        """Recent share of commands that reached the robot in time; below 0.9 something is wrong."""
        return self._child.report().success_rate

    @property
    def setpoint(self) -> list[float]:
        """The last target of its impedance: joints [rad], or position and quaternion of the end effector [m,
        wxyz];
        empty: it is not under control."""
        return self._child.report().sent

    @property
    def pid(self) -> int:
        """Id of the process that communicates with the robot."""
        return self._child.pid

    def read(self) -> ArmState:
        """Read the state. DriverError: the arm has stopped for a fault, or is silent."""
        report = self._healthy()
        return ArmState(
            t_ns=report.t_ns,
            q=np.array(report.q),
            dq=np.array(report.dq),
            X_BE=self._X_BA * _pose(report.pose),
        )

    def write(self, command: ArmCommand) -> ArmCommand:
        """Send a command, clipped to the arm's range; the driver controls the speed of the motion.

        DriverError: as in `read`, or an invalid command for this arm; nothing moves then.
        """
        recoveries, number = self._order.recoveries, self._order.number + 1
        match command:
            case JointCommand(q=q):
                if np.shape(q) != (_NUM_JOINTS,) or not np.isfinite(q).all():
                    raise DriverError(f"{self._child.what}: expected 7 finite positions, got {np.asarray(q)}")
                q = np.clip(q, self.limits.q_min, self.limits.q_max)
                order = ArmOrder(number=number, recoveries=recoveries, q=q.tolist())
                command = JointCommand(q=q)
            case PoseCommand(p_BE=p, quat_BE=quat):
                if not (np.isfinite(p).all() and np.isfinite(quat).all()):
                    raise DriverError(f"{self._child.what}: expected a finite pose, got {p} and {quat}")
                X_AE = self._X_BA.inverse() * command.X_BE
                pose = X_AE.translation.tolist(), quaternion_from_rotation(X_AE.rotation).tolist()
                order = ArmOrder(number=number, recoveries=recoveries, pose=pose)
            case _:
                raise DriverError(
                    f"{self._child.what}: expected joint positions or a pose, got {type(command).__name__}"
                )
        self._healthy()
        self._put(order)
        return command

    def stop(self) -> None:
        """Bring the arm to rest at once, by damping alone, and end control; the next `write` starts it
        again."""
        self._put(ArmOrder(number=self._order.number, recoveries=self._order.recoveries))

    def recover(self, timeout_s: float = 10.0) -> None:
        """Clear the robot's errors, once the operator has checked their cause. Waits for it.

        The next command starts from where the arm is measured. DriverError: it does not recover.
        """
        count = self._order.recoveries + 1
        self._put(ArmOrder(number=self._order.number, recoveries=count))
        deadline_s = time.monotonic() + timeout_s
        while self._child.report().recoveries < count:
            if time.monotonic() > deadline_s:
                raise DriverError(f"{self._child.what} did not recover within {timeout_s:g} s: {self.fault}")
            time.sleep(0.005)
        self._healthy()

    def go_home(self, q: Sequence[float] = HOME, *, speed: float = 0.3, timeout_s: float = 60.0) -> None:
        """Move straight in joint space, and wait for the end of the motion; for use before a run.

        speed: of the joint with the longest distance [rad/s]. DriverError: it does not get there.
        """
        aim = np.array(_numbers("q", q, _NUM_JOINTS))
        start, began_ns = self.read().q, self.robot_time_ns
        duration_s = float(np.abs(aim - start).max()) / speed
        deadline_s = time.monotonic() + timeout_s
        while np.abs(self.read().q - aim).max() > 0.02:
            if time.monotonic() > deadline_s:
                raise DriverError(f"{self._child.what} is not at {aim.tolist()} within {timeout_s:g} s")
            share = min((self.robot_time_ns - began_ns) / NS_PER_S / max(duration_s, 1e-3), 1.0)
            self.write(JointCommand(q=start + share * (aim - start)))
            time.sleep(0.005)

    def close(self) -> None:
        """Stop the arm and end its process; may be called twice."""
        self._child.close()

    def _fault_of(self, report: ArmReport) -> str:
        age_ns = time.monotonic_ns() - report.t_ns
        if report.fault or age_ns <= self._timeout_ns:
            return report.fault
        return f"no state for {age_ns / NS_PER_S:.2f} s: {self._child.trouble}"

    def _healthy(self) -> ArmReport:
        report = self._child.report()
        if fault := self._fault_of(report):
            raise DriverError(f"{self._child.what}: {fault}")
        return report

    def _put(self, order: ArmOrder) -> None:
        self._order = order
        self._child.orders.put(order)


def _numbers(name: str, values: Sequence[float], size: int) -> list[float]:
    array = np.asarray(values, dtype=float)
    if array.shape != (size,) or not np.isfinite(array).all():
        raise InvalidValueError(f"{name} takes {size} finite numbers, got {values!r:.200}")
    return array.tolist()


def _checked(limits: JointLimits | None, model: str) -> JointLimits:
    if model not in _SHEETS:
        raise InvalidValueError(f"model is one of {', '.join(_SHEETS)}, got {model!r}")
    sheet, whose = _SHEETS[model].arm(), f"an {model.upper()}"
    if limits is None:
        return sheet
    if len(limits.q_min) != _NUM_JOINTS:
        raise InvalidValueError(f"{whose} has {_NUM_JOINTS} joints, the limits are for {len(limits.q_min)}")
    if wrong := list(beyond(limits, sheet, whose=whose)):
        raise InvalidValueError(f"{whose} cannot keep these limits: {'; '.join(wrong)}")
    return limits if limits.dq_curve is not None else replace(limits, dq_curve=sheet.dq_curve)


def _mount(X_BA: pin.SE3 | Sequence[float] | None) -> pin.SE3:
    if X_BA is None or isinstance(X_BA, pin.SE3):
        return X_BA or pin.SE3.Identity()
    numbers = np.array(_numbers("X_BA", X_BA, 7))
    if not 0.99 < np.linalg.norm(numbers[3:]) < 1.01:
        raise InvalidValueError(
            f"X_BA ends in a unit quaternion (qw, qx, qy, qz), got {numbers[3:].tolist()}"
        )
    return pose_from_quaternion(numbers[:3], numbers[3:])


def _load(payload: Payload | Mapping[str, Any]) -> tuple[float, list[float], list[float]]:
    if not isinstance(payload, Payload):
        try:
            payload = Payload(**payload)
        except TypeError as error:
            raise InvalidValueError(f"payload takes mass, center and inertia: {error}") from None
    return payload.mass, _numbers("center", payload.center, 3), _numbers("inertia", payload.inertia, 9)


def _pose(numbers: list[float]) -> pin.SE3:
    matrix = np.array(numbers).reshape(4, 4)
    return pin.SE3(matrix[:3, :3], matrix[:3, 3])
