"""A pedal without a device: a pipe that speaks the kernel's input events."""

import os
from pathlib import Path

from drivers.input_device import CODES, EV_KEY, EV_SYN, EVENT, InputSwitch


class Pedal:
    """Pressed and let go by a test; `switch` is the driver that reads it."""

    def __init__(self, folder: Path, code: str = "KEY_B") -> None:
        self.path, self._code = folder / f"pedal-{code}", code
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDWR)

    def switch(self) -> InputSwitch:
        return InputSwitch(str(self.path), self._code)

    def press(self) -> None:
        self.send(EV_KEY, CODES[self._code], 1)

    def let_go(self) -> None:
        self.send(EV_KEY, CODES[self._code], 0)

    def send(self, kind: int, code: int, value: int) -> None:
        os.write(self._fd, EVENT.pack(0, 0, kind, code, value) + EVENT.pack(0, 0, EV_SYN, 0, 0))

    def unplug(self) -> None:
        """As if it were pulled out; may be done twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
