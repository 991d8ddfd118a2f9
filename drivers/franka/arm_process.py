"""The process that communicates with a Franka arm: states out at 1 kHz, setpoints in through `SetpointLead`.

    idle ── first order ──► tracking ── order to stop, end, life line cut ──► stopping ──► idle
      ▲                        │ control ended, reflex, robot silent
      └───── recover ─────── fault

Time here is the robot's own: a step is due by its clock, and a command's age is counted by it. Only
silence of the robot itself is measured by this machine's clock.
"""

import logging
import signal
import sys
import time
from collections import deque
from typing import Any

import msgspec
import numpy as np

from drivers.child import SLOT, LifeLine, Newest
from drivers.franka.faults import explained, write_log
from drivers.franka.lead import SetpointLead
from drivers.franka.messages import ArmConfig, ArmOrder, ArmReport, limits_from_plain
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import JointCommand, PoseCommand
from robot_runtime.core.values.transforms import quaternion_from_rotation
from robot_runtime.robot.scheduling import real_time_thread

logger = logging.getLogger(__name__)

_LOOK_S = 0.0005
"""Interval between reads of the state [s]."""
_AT_REST = 0.05
"""Joints slower than this are at rest [rad/s]."""
_STOP_S = 5.0
"""How long to wait for the arm to come to rest [s]."""
_RECOVERS_S = 2.0
"""How long a state without errors may take after a recovery [s]."""
_LOGGED = 1000
"""States kept for the log of a fault: a second."""


class ArmLoop:
    """The loop of the process; `franky` is the library, imported by the caller."""

    def __init__(self, franky: Any, config: ArmConfig, descriptor: int) -> None:
        """Connect and set up the robot; raises franky's errors."""
        self._franky, self._config = franky, config
        self._orders = Newest(ArmOrder, descriptor)
        self._reports: Newest[ArmReport] = Newest(ArmReport, descriptor, 2 * SLOT)
        self._robot = franky.Robot(
            config.host,
            realtime_config=franky.RealtimeConfig.Enforce
            if config.needs_real_time
            else franky.RealtimeConfig.Ignore,
        )
        self._is_set_up = False
        if self._robot.state.robot_mode not in self._stopped_modes:  # these modes take no settings
            self._set_up()
        self._lead = SetpointLead(
            limits_from_plain(config.limits), period_s=config.period_s, silence_s=config.silence_s
        )
        self._period_ns = round(config.period_s * NS_PER_S)
        self._tracker: Any = None
        self._kind: type | None = None
        self._is_stopping, self._fault, self._recoveries = False, "", 0
        self._sent: list[float] = []
        self._number, self._due_ns = 0, 0
        self._state: Any = None
        self._robot_ns, self._seen_ns = -1, time.monotonic_ns()
        self._log: deque[ArmReport] = deque(maxlen=_LOGGED)

    def run(self, life: LifeLine) -> None:
        """Run until the life line is cut."""
        while not life.is_cut():
            self.look()
            time.sleep(_LOOK_S)

    def look(self) -> None:
        """Read the state and the orders once."""
        try:
            is_new = self._see()
            newest = self._orders.get()
            order = newest[1] if newest is not None else ArmOrder()
            if order.recoveries > self._recoveries:
                self._recover(order)
            elif not self._fault:
                self._check()
                self._execute(order)
            if is_new or self._fault:
                self._report_state()
        except Exception as error:  # of franky or the network: the arm is stopped in any case
            self._fail(f"{type(error).__name__}: {error}")
            self._report_state()

    def end(self) -> None:
        """Bring the arm to rest; waits for it."""
        try:
            if self._tracker is not None and self._robot.is_in_control:
                self._robot.move(self._franky.TorqueStopMotion(), asynchronous=True)
                self._robot.join_motion(timeout=_STOP_S)
        except (self._franky.Exception, RuntimeError) as error:
            logger.warning("%s: stopping: %s", self._config.host, error)

    @property
    def _stopped_modes(self) -> tuple[Any, Any]:
        return self._franky.RobotMode.Reflex, self._franky.RobotMode.UserStopped

    def _set_up(self) -> None:
        config = self._config
        self._robot.set_collision_behavior(config.torque_thresholds, config.force_thresholds)
        if config.load is not None:
            self._robot.set_load(*config.load)
        self._is_set_up = True

    # ---- states ----------------------------------------------------------------------------------------

    def _see(self) -> bool:
        """Read the state; return whether it is new."""
        state = self._robot.state
        robot_ns = state.time.to_msec() * 1_000_000
        if robot_ns == self._robot_ns:
            return False
        self._state, self._robot_ns, self._seen_ns = state, robot_ns, time.monotonic_ns()
        return True

    def _report_state(self) -> None:
        state = self._state
        if state is None:
            return
        report = ArmReport(
            t_ns=self._seen_ns,
            robot_time_ns=self._robot_ns,
            q=state.q.tolist(),
            dq=state.dq.tolist(),
            pose=np.asarray(state.O_T_EE.matrix).ravel().tolist(),
            tau_ext=np.asarray(state.tau_ext_hat_filtered).tolist(),
            mode=state.robot_mode.name,
            success_rate=state.control_command_success_rate,
            sent=self._sent,
            fault=self._fault,
            recoveries=self._recoveries,
        )
        self._log.append(report)
        self._reports.put(report)

    def _check(self) -> None:
        """Latch a fault of the robot."""
        mode, (reflex, user_stopped) = self._state.robot_mode, self._stopped_modes
        silent_s = (time.monotonic_ns() - self._seen_ns) / NS_PER_S
        if mode == reflex:
            self._fail(f"it stopped itself (reflex): {self._errors()}")
        elif mode == user_stopped:
            self._fail("it is stopped by its enabling switch or emergency stop")
        elif silent_s > self._config.state_timeout_s:
            self._fail(f"no state for {silent_s:.2f} s")
        elif self._tracker is not None and not self._robot.is_in_control:
            is_stopping, self._is_stopping, self._tracker = self._is_stopping, False, None
            self._sent = []
            self._robot.join_motion()
            if not is_stopping:
                self._fail(f"control ended: {self._errors()}")

    def _errors(self) -> str:
        state = self._state
        found = {
            name
            for errors in (state.current_errors, state.last_motion_errors)
            for name in dir(errors)
            if getattr(errors, name) is True
        }
        return ", ".join(sorted(found)) or "it names no error"

    def _fail(self, why: str) -> None:
        """Stop, and take no more commands until the operator recovers it."""
        if self._fault:
            return
        self._fault = f"{why}; call recover() once that is fixed"
        try:
            self._stop()
        except (self._franky.Exception, RuntimeError) as error:  # as when the robot no longer answers
            logger.warning("%s: stopping: %s", self._config.host, error)
        if self._log:
            self._fault += f" (the last second: {write_log(self._config, self._log)})"
        logger.error("a Franka arm at %s: %s", self._config.host, self._fault)

    # ---- orders ----------------------------------------------------------------------------------------

    def _execute(self, order: ArmOrder) -> None:
        if self._fault:
            return
        command = _command(order)
        if command is None or self._is_stopping:
            self._stop()
            return
        if order.number == self._number and self._tracker is None:
            return  # executed, and stopped since
        if self._kind is not type(command) or self._tracker is None:
            self._start(command)
        if order.number != self._number:
            count, self._number = order.number - self._number, order.number
            self._lead.tell(command, self._robot_ns, count)
        self._step()

    def _step(self) -> None:
        """Send the next setpoint, if one is due; missed ones are skipped."""
        if self._robot_ns < self._due_ns:
            return
        self._due_ns += self._period_ns
        if self._due_ns <= self._robot_ns:
            self._due_ns = self._robot_ns + self._period_ns
        setpoint = self._lead.step(self._robot_ns)
        match setpoint.command:
            case JointCommand(q=q):
                self._tracker.set_target(q, dq=setpoint.speed)
                self._sent = q.tolist()
            case PoseCommand(p_BE=p, quat_BE=quat):
                pose = self._franky.Affine(p, np.roll(quat, -1))  # franky's are xyzw
                twist = self._franky.Twist(setpoint.speed[:3], setpoint.speed[3:])
                self._tracker.set_target(pose, twist=twist)
                self._sent = [*p.tolist(), *quat.tolist()]

    def _start(self, command: JointCommand | PoseCommand) -> None:
        """Take control, where the arm is."""
        config, franky = self._config, self._franky
        if isinstance(command, JointCommand):
            self._tracker = franky.JointImpedanceTracker(
                self._robot, stiffness=config.stiffness, damping=config.damping
            )
            self._lead.stand_at(JointCommand(q=np.array(self._state.q)))
        else:
            self._tracker = franky.CartesianImpedanceTracker(
                self._robot,
                translational_stiffness=config.translational_stiffness,
                rotational_stiffness=config.rotational_stiffness,
            )
            X_AE = np.asarray(self._state.O_T_EE.matrix)
            quat = quaternion_from_rotation(X_AE[:3, :3])
            self._lead.stand_at(PoseCommand(p_BE=X_AE[:3, 3].copy(), quat_BE=quat))
        self._kind, self._due_ns = type(command), self._robot_ns

    def _stop(self) -> None:
        """Stop by damping alone, until the arm is at rest."""
        if self._tracker is None or self._is_stopping or not self._robot.is_in_control:
            return
        self._robot.move(self._franky.TorqueStopMotion(), asynchronous=True)
        self._is_stopping = True

    def _recover(self, order: ArmOrder) -> None:
        """Clear errors; earlier orders count as executed."""
        self._recoveries, self._number = order.recoveries, order.number
        try:
            self._robot.join_motion(timeout=_STOP_S)
        except self._franky.Exception as error:  # the error that ended the motion is known by now
            logger.info("%s: %s", self._config.host, error)
        self._tracker, self._is_stopping, self._sent = None, False, []
        self._see()
        fastest = float(np.abs(self._state.dq).max())
        if fastest > _AT_REST:
            self._fault = f"it still moves, at {fastest:.2f} rad/s; call recover() when it is at rest"
            return
        self._robot.recover_from_errors()  # its result is of the newest state, which may be older
        self._fault = "" if self._has_recovered() else f"it does not recover: {self._errors()}"
        if not (self._fault or self._is_set_up):
            self._set_up()

    def _has_recovered(self) -> bool:
        """Wait for a state without errors: states in transit still report the old ones."""
        deadline_s = time.monotonic() + _RECOVERS_S
        while time.monotonic() < deadline_s:
            self._see()
            if self._state.robot_mode not in self._stopped_modes and not self._robot.has_errors:
                return True
            time.sleep(_LOOK_S)
        return False


def _command(order: ArmOrder) -> JointCommand | PoseCommand | None:
    if order.q is not None:
        return JointCommand(q=np.array(order.q))
    if order.pose is not None:
        return PoseCommand(p_BE=np.array(order.pose[0]), quat_BE=np.array(order.pose[1]))
    return None


def main(text: str, descriptor: str) -> None:
    """config: an `ArmConfig` as JSON; descriptor: of the memory shared with the parent."""
    life = LifeLine()
    signal.signal(signal.SIGTERM, lambda *_: life.cut())
    config = msgspec.json.decode(text, type=ArmConfig)
    import franky

    try:
        loop = ArmLoop(franky, config, int(descriptor))
    except (franky.Exception, ValueError) as error:
        sys.stdout.write(explained(error, config, franky))
        sys.exit(1)
    try:
        with real_time_thread(priority=40):
            loop.run(life)
    finally:
        loop.end()
