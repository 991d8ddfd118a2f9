"""An input device without a device: a pipe that speaks the kernel's events, and made-up axes."""

import fcntl
import os
from pathlib import Path

from drivers.input_axes import ABSINFO
from drivers.input_device import CODES, EV_ABS, EV_KEY, EV_REL, EV_SYN, EVENT


class InputPipe:
    """Moved and pressed by a test."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "event7"
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDWR)

    def axis(self, code: int, value: int) -> None:
        self.send(EV_ABS, code, value)

    def relative(self, code: int, value: int) -> None:
        self.send(EV_REL, code, value)

    def press(self, button: str, on: int = 1) -> None:
        self.send(EV_KEY, CODES[button], on)

    def send(self, kind: int, code: int, value: int) -> None:
        os.write(self._fd, EVENT.pack(0, 0, kind, code, value) + EVENT.pack(0, 0, EV_SYN, 0, 0))

    def unplug(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def with_axes(monkeypatch, axes: dict[int, tuple[int, int, int, int]]) -> None:
    """The kernel says of axes (value, low, high, flat); of others that there are none."""

    def ioctl(fd, request, data=b""):
        code = (request & 0xFF) - 0x40
        if code not in axes:
            raise OSError(22, "Invalid argument")
        value, low, high, flat = axes[code]
        return ABSINFO.pack(value, low, high, 0, flat, 0)

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
