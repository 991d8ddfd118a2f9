"""Pedals, buttons, USB keyboards and gamepads of Linux: `InputSwitch`, `GamepadSwitch`, for arming and
hold-to-run.

They stop nothing by themselves: the run stops when one is released or lost, and that is no safety function;
an enabling switch of the robot is. A device that is unplugged is not reopened: a new run opens it again. A
wireless one that is out of reach is released or gone only when its receiver reports it, which may take
seconds.

No library: python-evdev has wheels for x86 only and opens no pipe, with which `bench faults` and the tests
imitate the kernel. An event is 24 bytes (`struct input_event`), the current state is one ioctl.
Reading needs permission: `sudo usermod -aG input $USER`, and a new login.
"""

import contextlib
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from robot_runtime.errors import DriverError, InvalidValueError

SYSTEM = Path("/sys/class/input")
"""Where the kernel lists the devices."""
DEVICES = Path("/dev/input")
EVENT = struct.Struct("@llHHi")
"""Seconds, microseconds, type, code, value."""
EV_SYN, EV_KEY, EV_REL, EV_ABS, SYN_DROPPED = 0, 1, 2, 3, 3
KEY_MAX = 0x2FF
_NUM_BYTES = KEY_MAX // 8 + 1
_EVIOCGKEY = 2 << 30 | _NUM_BYTES << 16 | ord("E") << 8 | 0x18
_BTN_MISC, _BTN_JOYSTICK, _BTN_SOUTH = 0x100, 0x120, 0x130
_MOST_READS = 64
_INPUT_MAJOR = 13
"""Major number of the kernel's input devices."""
_GAMEPAD = "SOUTH EAST C NORTH WEST Z TL TR TL2 TR2 SELECT START MODE THUMBL THUMBR"


def _row(first: int, names: str) -> dict[str, int]:
    return {f"KEY_{name}": first + i for i, name in enumerate(names.split())}


CODES = {
    **_row(1, "ESC 1 2 3 4 5 6 7 8 9 0"),
    **_row(14, "BACKSPACE TAB Q W E R T Y U I O P"),
    **_row(28, "ENTER LEFTCTRL A S D F G H J K L"),
    **_row(44, "Z X C V B N M"),
    **_row(56, "LEFTALT SPACE CAPSLOCK F1 F2 F3 F4 F5 F6 F7 F8 F9 F10"),
    **_row(87, "F11 F12"),
    **_row(103, "UP PAGEUP LEFT RIGHT END DOWN PAGEDOWN INSERT DELETE"),
    **{f"BTN_{i}": _BTN_MISC + i for i in range(10)},
    "BTN_LEFT": 0x110,
    "BTN_RIGHT": 0x111,
    "BTN_MIDDLE": 0x112,
    "BTN_TRIGGER": 0x120,
    **{f"BTN_{name}": _BTN_SOUTH + i for i, name in enumerate(_GAMEPAD.split())},
}
"""Names of keys and buttons, as `evtest` shows them; others are given by number."""


class DeviceFile:
    """A device file that is read without waiting; one thread owns it. A pipe counts as a device."""

    def __init__(self, path: Path, *, name: str, is_no: str, right: str, major: int | None = None) -> None:
        """
        name: for errors. is_no: the kind of device, for errors. right: how a user gets permission to read it.
        major: the kernel's major number of such devices; None: any.
        DriverError: it is another kind of file, or cannot be read.
        """
        self.name = name
        try:
            found = path.stat()
            is_device = stat.S_ISCHR(found.st_mode) and major in (None, os.major(found.st_rdev))
            if not is_device and not stat.S_ISFIFO(found.st_mode):
                raise DriverError(f"{path} is no {is_no}")
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            hint = f": {right}" if error.errno == errno.EACCES else ""
            raise DriverError(f"{path} cannot be read: {os.strerror(error.errno or 0)}{hint}") from error

    def fileno(self) -> int:
        """Return the descriptor, which is readable when there is input."""
        return self._fd

    def chunks(self, size: int) -> Iterator[bytes]:
        """Yield the input so far, up to `size` bytes at a time. DriverError: the device is gone."""
        for _ in range(_MOST_READS):  # an endless input must not block the caller
            try:
                chunk = os.read(self._fd, size)
            except BlockingIOError:
                return
            except OSError as error:
                reason = os.strerror(error.errno or errno.EIO)
                raise DriverError(f"{self.name} is gone: {reason}") from error
            if not chunk:
                raise DriverError(f"{self.name} is gone")
            yield chunk

    def close(self) -> None:
        """Close the device; may be called twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class InputFile(DeviceFile):
    """The events of a Linux input device."""

    def __init__(self, device: str) -> None:
        """device: its file or the name it reports. DriverError: no such device, or no right to read it."""
        self.path = path_of(device)
        super().__init__(
            self.path,
            name=device,
            is_no="input device: /dev/input/by-id/...-event-kbd is one",
            right="sudo usermod -aG input $USER, and log in again",
            major=_INPUT_MAJOR,
        )

    def events(self) -> Iterator[tuple[int, int, int]]:
        """Yield (type, code, value) of the events so far; never waits. DriverError: the device is gone."""
        for chunk in self.chunks(64 * EVENT.size):
            for _, _, kind, code, value in EVENT.iter_unpack(chunk[: len(chunk) // EVENT.size * EVENT.size]):
                yield kind, code, value


class InputSwitch(InputFile):
    """One key or button of a Linux input device."""

    def __init__(self, device: str, code: str | int = "KEY_B") -> None:
        """
        device: its file, best in /dev/input/by-id, which is stable; or the name it reports.
        code: of the key, one of `CODES` or the number that `evtest` shows.
        InvalidValueError: no such code. DriverError: no such device, or no right to read it; the message
            lists those that there are.
        """
        self._code = _code(code)
        super().__init__(device)
        self.name = f"{code} of {device}"
        self._is_pressed = False
        keys = _keys_of(self.path)
        if keys and self._code not in keys:
            self.close()
            raise DriverError(f"{self.path} has no {code}; it has {_some(keys)}")
        with contextlib.suppress(OSError):  # a pipe has no state
            self._is_pressed = self._state()

    def read(self) -> bool:
        """Whether it is pressed; a release since the last read is reported once. DriverError: gone."""
        was_released = False
        for kind, code, value in self.events():
            if (kind, code) == (EV_SYN, SYN_DROPPED):  # events were lost
                self._is_pressed, was_released = self._state_or_released(), True
            elif (kind, code) == (EV_KEY, self._code):
                self._is_pressed = value != 0
                was_released = was_released or value == 0
        return self._is_pressed and not was_released

    def _state(self) -> bool:
        bits = fcntl.ioctl(self._fd, _EVIOCGKEY, bytes(_NUM_BYTES))
        return bool(bits[self._code // 8] >> self._code % 8 & 1)

    def _state_or_released(self) -> bool:
        try:
            return self._state()
        except OSError:
            return False


class GamepadSwitch(InputSwitch):
    """One button of a gamepad or joystick, by its number there or by its name."""

    def __init__(self, button: str | int = "BTN_TR", *, device: str | None = None) -> None:
        """
        button: BTN_TR is the right shoulder; a number counts as `jstest` does.
        device: file or name, if there are several gamepads.
        InvalidValueError: no such button. DriverError: no gamepad.
        """
        path = path_of(device) if device is not None else first_gamepad()
        code: str | int = button
        if isinstance(button, int):
            buttons = _buttons(_keys_of(path))
            if not 0 <= button < len(buttons):
                raise InvalidValueError(f"{path} has buttons 0 to {len(buttons) - 1}, got {button}")
            code = buttons[button]
        super().__init__(str(path), code)
        self.name = f"{f'button {button}' if isinstance(button, int) else button} of the gamepad"


def _code(code: str | int) -> int:
    number = CODES.get(code.upper()) if isinstance(code, str) else code
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= KEY_MAX:
        raise InvalidValueError(
            f"no key {code!r}: a number from 1 to {KEY_MAX}, or a name such as KEY_B, KEY_SPACE, BTN_TR"
        )
    return number


def path_of(device: str) -> Path:
    """Return a device's file, by its path or its name."""
    if "/" in device:
        return Path(device)
    names = {path.parent.parent.name: path.read_text().strip() for path in SYSTEM.glob("event*/device/name")}
    for event, name in sorted(names.items()):
        if name == device:
            return DEVICES / event
    have = ", ".join(f"{name!r} ({DEVICES / event})" for event, name in sorted(names.items()))
    raise DriverError(f"there is no input device {device!r}; there are: {have or 'none'}")


def first_gamepad() -> Path:
    for path in sorted(SYSTEM.glob("event*")):
        if _BTN_SOUTH in _keys_of(DEVICES / path.name):
            return DEVICES / path.name
    raise DriverError(f"no gamepad is there: no device in {SYSTEM} has BTN_SOUTH; a joystick needs device=")


def _keys_of(path: Path) -> list[int]:
    """Return the codes of its keys and buttons; none if the kernel does not report them."""
    try:
        words = (SYSTEM / path.resolve().name / "device/capabilities/key").read_text().split()
    except OSError:
        return []
    bits = sum(int(word, 16) << 64 * i for i, word in enumerate(reversed(words)))
    return [code for code in range(KEY_MAX + 1) if bits >> code & 1]


def _buttons(keys: list[int]) -> list[int]:
    """Sort buttons in the order of the kernel's joystick driver."""
    joystick = [key for key in keys if key >= _BTN_JOYSTICK]
    return joystick + [key for key in keys if _BTN_MISC <= key < _BTN_JOYSTICK]


def _some(keys: list[int]) -> str:
    names = {code: name for name, code in CODES.items()}
    shown = ", ".join(names.get(key, str(key)) for key in keys[:20])
    return f"{shown}, ..." if len(keys) > 20 else shown
