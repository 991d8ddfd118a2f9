"""A SpaceMouse of 3Dconnexion as a teleoperator: `SpaceMouseTeleoperator`.

It is read as a hidraw device, with the same reports on every kernel, or as an input device (`eventN`):

    report 1   x y z            six bytes, three little-endian int16, -350 to 350; twelve with rx ry rz
    report 2   rx ry rz         where report 1 has six
    report 3   buttons          one bit each

    cap     x right, y towards the person, z down              robot    x = -y   y = -x   z = -z

Reports are those that libspnav and pyspacemouse read; the latter, like hid, needs the system's libhidapi.
Tested with pipes; no device was available. Reading needs permission: a udev rule for vendor 256f
(docs/teleoperation.md).
"""

import struct
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from drivers.input_axes import InputAxes, Range
from drivers.input_device import DeviceFile
from drivers.teleop_hand import GRIPPER_SPEED, OneHand, check_speeds, frame_named, lead_of
from robot_runtime.core.teleop import Lead, LeadableParts
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import DriverError, InvalidValueError

SYSTEM = Path("/sys/class/hidraw")
"""Where the kernel lists hidraw devices."""
DEVICES = Path("/dev")
FULL = 350.0
"""The value of an axis at its end."""
_OWN, _LOGITECH = "0000256F", "0000046D"
_OF_LOGITECH = tuple(f"0000C6{i:02X}" for i in (0x03, 0x05, 0x06, 0x23, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2B))
"""Vendor 3Dconnexion, and its products that Logitech sold."""
_TO_ROBOT = np.array([[0.0, -1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, -1.0]])
_BTN_LEFT, _BTN_RIGHT = 0x100, 0x101
HELP = """push, lift and turn the cap: the hand goes with it, for as long as it is deflected
left button: close the gripper, or open it      right button: let go      both: next arm"""


class SpaceMouseTeleoperator:
    """Drives an end effector while its cap is deflected and a moment longer."""

    name = "spacemouse"
    help = HELP

    def __init__(
        self,
        device: str | None = None,
        *,
        speed: float = 0.2,
        turn: float = 0.8,
        deadzone: float = 0.06,
        rest_s: float = 0.5,
        frame: str = "base",
        arm: str | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """
        device: /dev/hidrawN or /dev/input/eventN, or an input device's name; None: the first of 3Dconnexion.
        speed, turn: of the end effector at full deflection of the cap [m/s], [rad/s].
        deadzone: share of the cap's range that counts as rest. rest_s: time at rest before the robot is
            released [s].
        frame: "base" or "hand": the axes along which the end effector moves. arm: the first to drive.
        DriverError: there is no such device, or no right to read it.
        """
        check_speeds(self.name, speed=speed, turn=turn)
        if not 0.0 <= rest_s <= 600.0:
            raise InvalidValueError(f"spacemouse: rest_s is from 0 to 600 s, got {rest_s!r:.60}")
        self._speed, self._turn, self._rest_ns = speed, turn, round(rest_s * NS_PER_S)
        self._frame, self._hand, self._clock = frame_named(self.name, frame), OneHand(self.name, arm), clock
        path = str(_first()) if device is None else device
        is_raw = Path(path).name.startswith("hidraw")
        self._cap: _HidCap | _InputCap = (
            _HidCap(path, deadzone) if is_raw else _InputCap(path, deadzone, clock)
        )
        self._moved_ns: int | None = None
        self._before: set[int] = set()
        self._is_closing = False
        self._grip_until_ns = 0

    def open(self, parts: LeadableParts) -> None:
        """Choose the parts. InvalidValueError: the robot has nothing for it to drive."""
        self._hand.choose(parts)

    def read(self) -> Lead:
        """Read the cap. DriverError: the device is gone."""
        axes, buttons = self._cap.read()
        now_ns = self._clock()
        new, self._before = buttons - self._before, buttons
        if new and {0, 1} <= buttons:
            self._hand.next_arm()
            self._moved_ns = None
        elif 1 in new:
            self._moved_ns = None
        elif 0 in new:
            self._is_closing, self._moved_ns = not self._is_closing, now_ns
            self._grip_until_ns = now_ns + NS_PER_S
        if np.abs(axes).max() > 0.0:
            self._moved_ns = now_ns
        leads = self._moved_ns is not None and now_ns - self._moved_ns <= self._rest_ns
        leads_gripper = leads or now_ns < self._grip_until_ns
        sense = (-1.0 if self._is_closing else 1.0) * (now_ns < self._grip_until_ns)
        arm, gripper = self._hand.arm, self._hand.gripper
        v, w = _TO_ROBOT @ axes[:3], _TO_ROBOT @ axes[3:]
        held = {arm: leads, gripper: leads_gripper}
        return lead_of(
            now_ns,
            twists={} if arm is None else {arm: (self._speed * v, self._turn * w)},
            frame=self._frame,
            grippers={} if gripper is None else {gripper: GRIPPER_SPEED * sense},
            bases={},
            engaged={part: is_held for part, is_held in held.items() if part is not None},
        )

    def close(self) -> None:
        """Close the device."""
        self._cap.close()


class _HidCap:
    """Reads the reports of a hidraw device."""

    def __init__(self, path: str, deadzone: float) -> None:
        self._range = Range(low=-FULL, high=FULL, flat=deadzone * FULL)
        self._axes, self._buttons = [0.0] * 6, set[int]()
        self._file = DeviceFile(
            Path(path),
            name=path,
            is_no="hidraw device",
            right="a udev rule gives the right to (docs/teleoperation.md)",
        )

    def read(self) -> tuple[np.ndarray, set[int]]:
        """Return axes (6,) -1 to 1 (x, y, z, about them), and the numbers of the held buttons."""
        for report in self._file.chunks(64):
            self._take(report)
        return np.array([self._range.value(raw) for raw in self._axes]), set(self._buttons)

    def close(self) -> None:
        self._file.close()

    def _take(self, report: bytes) -> None:
        kind, body = report[0], report[1:]
        if kind == 1 and len(body) >= 12:
            self._axes = [float(raw) for raw in struct.unpack_from("<6h", body)]
        elif kind in (1, 2) and len(body) >= 6:
            self._axes[3 * (kind - 1) : 3 * kind] = struct.unpack_from("<3h", body)
        elif kind == 3 and body:
            bits = int.from_bytes(body[:4], "little")
            self._buttons = {i for i in range(32) if bits >> i & 1}


class _InputCap:
    """Reads the same from the kernel's input events."""

    def __init__(self, device: str, deadzone: float, clock: Callable[[], int]) -> None:
        self._axes = InputAxes(
            device, axes=tuple(range(6)), relative_range=FULL, deadzone=deadzone, clock=clock
        )

    def read(self) -> tuple[np.ndarray, set[int]]:
        self._axes.update()
        values = np.array([self._axes.axis(code) for code in range(6)])
        return values, {i for i, code in enumerate((_BTN_LEFT, _BTN_RIGHT)) if self._axes.is_pressed(code)}

    def close(self) -> None:
        self._axes.close()


def _first() -> Path:
    for path in sorted(SYSTEM.glob("hidraw*")):
        try:
            lines = (path / "device/uevent").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            _, _, hid_id = line.partition("HID_ID=")
            _, vendor, product = (*hid_id.split(":"), "", "", "")[:3]
            if vendor == _OWN or (vendor == _LOGITECH and product in _OF_LOGITECH):
                return DEVICES / path.name
    raise DriverError(f"no SpaceMouse is there: no device in {SYSTEM} is one of 3Dconnexion's (vendor 256f)")
