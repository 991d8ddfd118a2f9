"""Axes and buttons of a Linux input device: `InputAxes`, what gamepads and 3D mice are read through.

    raw    minimum ......... flat  middle  flat ......... maximum       what EVIOCGABS says of an axis
    value    -1    ······     0      0      0    ······     +1          what is read here

An axis' calibration is one ioctl (`struct input_absinfo`: value, minimum, maximum, fuzz, flat, resolution).
A device that is unplugged is gone for good. Tried with pipes that speak as the kernel does and a made-up
ioctl; no device was at hand.
"""

import fcntl
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from drivers.input_device import EV_ABS, EV_KEY, EV_REL, EV_SYN, SYN_DROPPED, InputFile

ABSINFO = struct.Struct("@6i")
_EVIOCGABS = 2 << 30 | ABSINFO.size << 16 | ord("E") << 8 | 0x40
REST_NS = 80_000_000
"""A relative axis that has said nothing for so long is at rest: the kernel leaves zeros out [ns]."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """How an axis' numbers are to be read."""

    low: float
    high: float
    flat: float = 0.0
    """Around the middle, what is taken for it."""

    def value(self, raw: float) -> float:
        """-1 to 1, 0 around the middle."""
        middle, half = (self.low + self.high) / 2.0, (self.high - self.low) / 2.0
        if half <= self.flat:
            return 0.0
        beyond = max(abs(raw - middle) - self.flat, 0.0) / (half - self.flat)
        return min(beyond, 1.0) * (1.0 if raw > middle else -1.0)

    def share(self, raw: float) -> float:
        """0 at the low end, 1 at the high one: of a trigger."""
        return min(max((raw - self.low) / (self.high - self.low), 0.0), 1.0) if self.high > self.low else 0.0


class InputAxes(InputFile):
    """What a device's axes and buttons are now; one thread owns it."""

    def __init__(
        self,
        device: str,
        *,
        axes: tuple[int, ...],
        relative_range: float = 350.0,
        deadzone: float = 0.05,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """
        device: its file or the name it gives itself. axes: codes of those that are looked at.
        relative_range: the largest number of a relative axis. deadzone: share of an axis' half range around
            its middle that counts as the middle, where the device names less.
        DriverError: no such device, or it may not be read.
        """
        super().__init__(device)
        self._clock = clock
        self._raw: dict[int, float] = {}
        self._ranges = {code: self._asked(code, deadzone) for code in axes}
        self._relative = Range(low=-relative_range, high=relative_range, flat=deadzone * relative_range)
        self._is_relative: set[int] = set()
        self._told_ns: dict[int, int] = {}
        self._pressed: set[int] = set()
        self._presses: list[int] = []

    def update(self) -> None:
        """Take what has happened; never waits. DriverError: it is gone."""
        for kind, code, value in self.events():
            self._take(kind, code, value)

    def axis(self, code: int) -> float:
        """-1 to 1; 0 for one that has said nothing."""
        if code in self._is_relative:
            is_old = self._clock() - self._told_ns[code] > REST_NS
            return 0.0 if is_old else self._relative.value(self._raw[code])
        found = self._ranges.get(code)
        return 0.0 if found is None or code not in self._raw else found.value(self._raw[code])

    def trigger(self, code: int) -> float:
        """0 to 1; 0 for one that has said nothing."""
        found = self._ranges.get(code)
        return 0.0 if found is None or code not in self._raw else found.share(self._raw[code])

    def is_pressed(self, code: int) -> bool:
        """Whether the button is held."""
        return code in self._pressed

    def presses(self) -> list[int]:
        """Buttons that were pressed since this was asked last, in their order."""
        out, self._presses = self._presses, []
        return out

    def _take(self, kind: int, code: int, value: int) -> None:
        if (kind, code) == (EV_SYN, SYN_DROPPED):  # some were lost: nothing is held, nothing is deflected
            self._pressed.clear()
            self._raw.clear()
            self._is_relative.clear()
        elif kind == EV_KEY and value != 2:
            (self._pressed.add if value else self._pressed.discard)(code)
            if value:
                self._presses.append(code)
        elif kind == EV_ABS:
            self._raw[code] = value
            self._ranges.setdefault(code, self._relative)
        elif kind == EV_REL:
            self._raw[code], self._told_ns[code] = value, self._clock()
            self._is_relative.add(code)

    def _asked(self, code: int, deadzone: float) -> Range:
        """Of an axis, by the kernel; a device that says nothing has the numbers of a 3D mouse."""
        try:
            found = fcntl.ioctl(self._fd, _EVIOCGABS + code, bytes(ABSINFO.size))
        except OSError:
            return Range(low=-350.0, high=350.0, flat=deadzone * 350.0)
        raw, low, high, _, flat, _ = ABSINFO.unpack(found)
        if high <= low:
            return Range(low=-350.0, high=350.0, flat=deadzone * 350.0)
        self._raw[code] = raw
        return Range(low=low, high=high, flat=max(float(flat), deadzone * (high - low) / 2.0))
