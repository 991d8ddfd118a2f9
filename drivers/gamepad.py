"""A gamepad as a teleoperator: `GamepadTeleoperator`. Releasing a shoulder button releases the robot.

right shoulder held   the end effector: left stick forward and sideways, right stick up and turn; cross rolls
                      and pitches
left shoulder held    the base: left stick forward and sideways, right stick turns
both held             the left stick drives and turns the base, the right one moves the end effector in
                      the plane
triggers              left opens, right closes the gripper (while the right shoulder is held)
"""

import time
from collections.abc import Callable

import numpy as np

from drivers.input_axes import InputAxes
from drivers.input_device import CODES, first_gamepad
from drivers.teleop_hand import GRIPPER_SPEED, OneHand, check_speeds, frame_named, lead_of
from robot_runtime.core.orders import Arm, BeginEpisode, EndEpisode, Order, Outcome, Reset, Stop
from robot_runtime.core.teleop import Lead, LeadableParts

ABS_X, ABS_Y, ABS_Z, ABS_RX, ABS_RY, ABS_RZ, ABS_HAT0X, ABS_HAT0Y = 0, 1, 2, 3, 4, 5, 16, 17
_AXES = (ABS_X, ABS_Y, ABS_Z, ABS_RX, ABS_RY, ABS_RZ, ABS_HAT0X, ABS_HAT0Y)
_HAND, _BASE = CODES["BTN_TR"], CODES["BTN_TL"]
_ORDERS: dict[int, tuple[Order, ...]] = {
    CODES["BTN_START"]: (Arm(),),
    CODES["BTN_SELECT"]: (Stop(),),
    CODES["BTN_MODE"]: (Reset(),),
    CODES["BTN_SOUTH"]: (BeginEpisode(),),
    CODES["BTN_NORTH"]: (EndEpisode(Outcome.SUCCESS),),
    CODES["BTN_WEST"]: (EndEpisode(Outcome.FAILURE),),
    CODES["BTN_EAST"]: (EndEpisode(Outcome.OPERATOR_ABORT, keep=False),),
}
HELP = """hold the right shoulder: left stick moves the hand, right one lifts and turns, cross tilts
hold the left shoulder: the sticks drive the base      triggers: open (left), close (right) the gripper
start arm   select stop   mode reset   press the right stick: next arm
south begin an episode   north it succeeded   west it failed   east discard it"""


class GamepadTeleoperator:
    """Sticks and buttons by the kernel's names for them (xpad, hid-playstation, hid-nintendo)."""

    name = "gamepad"
    help = HELP
    buttons = ("press start", "press mode")

    def __init__(
        self,
        device: str | None = None,
        *,
        speed: float = 0.25,
        turn: float = 1.0,
        base_speed: float = 0.5,
        base_turn: float = 1.0,
        deadzone: float = 0.08,
        frame: str = "base",
        arm: str | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """
        device: its file or name; None: the first gamepad.
        speed, turn: of the end effector at full deflection of a stick [m/s], [rad/s]. base_speed, base_turn:
            of the base.
        deadzone: share of a stick's range that counts as its middle.
        frame: "base" or "hand": the axes along which the end effector moves. arm: the first to drive.
        DriverError: there is no such gamepad, or no right to read it.
        """
        check_speeds(self.name, speed=speed, turn=turn, base_speed=base_speed, base_turn=base_turn)
        self._speed, self._turn, self._base = speed, turn, np.array([base_speed, base_speed, base_turn])
        self._frame, self._hand, self._clock = frame_named(self.name, frame), OneHand(self.name, arm), clock
        path = str(first_gamepad()) if device is None else device
        self._axes = InputAxes(path, axes=_AXES, deadzone=deadzone, clock=clock)

    def open(self, parts: LeadableParts) -> None:
        """Choose the parts. InvalidValueError: the robot has nothing for it to drive."""
        self._hand.choose(parts)

    def read(self) -> Lead:
        """Read sticks and buttons. DriverError: the gamepad is gone."""
        self._axes.update()
        orders = list[Order]()
        for button in self._axes.presses():
            orders.extend(_ORDERS.get(button, ()))
            if button == CODES["BTN_THUMBR"]:
                self._hand.next_arm()
        leads_hand, leads_base = self._axes.is_pressed(_HAND), self._axes.is_pressed(_BASE)
        twist, drive = self._numbers(leads_base and leads_hand)
        grip = self._axes.trigger(ABS_Z) - self._axes.trigger(ABS_RZ)
        arm, gripper, base = self._hand.arm, self._hand.gripper, self._hand.base
        held = {arm: leads_hand, gripper: leads_hand, base: leads_base}
        return lead_of(
            self._clock(),
            twists={} if arm is None else {arm: (self._speed * twist[:3], self._turn * twist[3:])},
            frame=self._frame,
            grippers={} if gripper is None else {gripper: GRIPPER_SPEED * grip},
            bases={} if base is None else {base: self._base * drive},
            engaged={part: is_held for part, is_held in held.items() if part is not None},
            orders=tuple(orders),
        )

    def close(self) -> None:
        """Close the device."""
        self._axes.close()

    def _numbers(self, are_both: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return end effector (x, y, z, about x, y, z) and base (vx, vy, wz), -1 to 1; ahead, left, up
        positive."""
        ahead, left = -self._stick(ABS_Y), -self._stick(ABS_X)
        up, turn = -self._stick(ABS_RY), -self._stick(ABS_RX)
        roll, pitch = self._axes.axis(ABS_HAT0X), -self._axes.axis(ABS_HAT0Y)
        if are_both:
            return np.array([up, turn, 0.0, roll, pitch, 0.0]), np.array([ahead, 0.0, left])
        return np.array([ahead, left, up, roll, pitch, turn]), np.array([ahead, left, turn])

    def _stick(self, code: int) -> float:
        """Read a stick, with finer control around the middle."""
        value = self._axes.axis(code)
        return value * abs(value)
