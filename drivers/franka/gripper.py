"""The Franka gripper: `FrankaGripper`. `drivers.franka` describes what stops it."""

import math
import time

from drivers.child import Child
from drivers.franka.address import check_somebody_answers
from drivers.franka.messages import GRIPPER_PORT, GripperConfig, GripperOrder, GripperReport
from robot_runtime.core.robot import GripperState
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import GripperCommand
from robot_runtime.errors import DriverError, InvalidValueError
from robot_runtime.robot.lease import check_free


class FrankaGripper:
    """The gripper at an arm's address, in its own process, as its moves block the caller."""

    def __init__(
        self, host: str, *, speed: float = 0.1, force: float = 30.0, state_timeout_s: float = 1.0
    ) -> None:
        """Connect; move nothing. The gripper must have been homed in Desk.

        speed: of the distance between the fingers [m/s]. force: with which it closes [N].
        state_timeout_s: a state older than this is a fault [s]; the gripper reports less often than the arm,
            and not at all while a move begins.

        RobotBusyError: another program on this machine drives it.
        InvalidValueError: an invalid number. DriverError: no answer there.
        """
        if not (0.0 < speed <= 0.2 and 0.0 < force <= 70.0):
            raise InvalidValueError(
                f"expected a gripper speed up to 0.2 m/s and a force up to 70 N, got {speed} and {force}"
            )
        if not 0.0 < state_timeout_s <= 60.0:
            raise InvalidValueError(f"state_timeout_s is above 0 and up to 60, got {state_timeout_s}")
        self._timeout_ns = round(state_timeout_s * NS_PER_S)
        self.address = f"the Franka hand at {host}"
        what = f"a Franka hand at {host}"
        check_free(self.address)
        check_somebody_answers(host, GRIPPER_PORT, what)
        config = GripperConfig(host=host, speed=speed, force=force)
        self._child = Child("drivers.franka.gripper_process", config, GripperOrder, GripperReport, what=what)

    @property
    def max_width(self) -> float:
        """The opening found when it was homed [m]."""
        return self._child.report().max_width

    @property
    def pid(self) -> int:
        """Id of the process that communicates with the gripper."""
        return self._child.pid

    def read(self) -> GripperState:
        """Read the state. DriverError: the gripper is silent."""
        report = self._healthy()
        return GripperState(width=report.width, t_ns=report.t_ns)

    def _healthy(self) -> GripperReport:
        report = self._child.report()
        age_ns = time.monotonic_ns() - report.t_ns
        if report.fault or age_ns > self._timeout_ns:
            why = report.fault or f"no state for {age_ns / NS_PER_S:.2f} s: {self._child.trouble}"
            raise DriverError(f"{self._child.what}: {why}")
        return report

    def write(self, command: GripperCommand) -> GripperCommand:
        """Send a width; never waits. The gripper moves when it is free, at once if the direction reverses."""
        if not math.isfinite(command.width):
            raise DriverError(f"{self._child.what}: expected a finite width, got {command.width}")
        self._healthy()
        self._child.orders.put(GripperOrder(width=command.width))
        return command

    def stop(self) -> None:
        """End a move in progress; the grip is kept."""
        self._child.orders.put(GripperOrder())

    def close(self) -> None:
        """End its process; may be called twice."""
        self._child.close()
