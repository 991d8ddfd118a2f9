"""Axes and buttons of a Linux input device: `InputAxes`, for gamepads and 3D mice.

    raw    minimum ......... flat  middle  flat ......... maximum       range of an axis by EVIOCGABS
    value    -1    ······     0      0      0    ······     +1          as read here

An axis' calibration is one ioctl (`struct input_absinfo`: value, minimum, maximum, fuzz, flat, resolution).
A device that is unplugged is not reopened. Tested with pipes that imitate the kernel and a
fake ioctl; no device was available.
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
"""A relative axis without events for this long is at rest: the kernel omits zeros [ns]."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """Converts the raw values of an axis."""

    low: float
    high: float
    flat: float = 0.0
    """Range around the middle that counts as the middle."""

    def value(self, raw: float) -> float:
        """Return -1 to 1, 0 around the middle."""
        middle, half = (self.low + self.high) / 2.0, (self.high - self.low) / 2.0
        if half <= self.flat:
            return 0.0
        beyond = max(abs(raw - middle) - self.flat, 0.0) / (half - self.flat)
        return min(beyond, 1.0) * (1.0 if raw > middle else -1.0)

    def share(self, raw: float) -> float:
        """Return 0 at the low end, 1 at the high one, for a trigger."""
        return min(max((raw - self.low) / (self.high - self.low), 0.0), 1.0) if self.high > self.low else 0.0


class InputAxes(InputFile):
    """The current axes and buttons of a device; one thread owns it."""

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
        device: its file or the name it reports. axes: codes of the axes to read.
        relative_range: the largest value of a relative axis. deadzone: share of an axis' half range around
            its middle that counts as the middle, where the device declares less.
        DriverError: no such device, or no right to read it.
        """
        super().__init__(device)
        self._clock = clock
        self._raw: dict[int, float] = {}
        self._ranges = {code: self._range_of(code, deadzone) for code in axes}
        self._relative = Range(low=-relative_range, high=relative_range, flat=deadzone * relative_range)
        self._is_relative: set[int] = set()
        self._event_ns: dict[int, int] = {}
        self._pressed: set[int] = set()
        self._presses: list[int] = []

    def update(self) -> None:
        """Read the events so far; never waits. DriverError: the device is gone."""
        for kind, code, value in self.events():
            self._take(kind, code, value)

    def axis(self, code: int) -> float:
        """Return -1 to 1; 0 for an axis without events."""
        if code in self._is_relative:
            is_old = self._clock() - self._event_ns[code] > REST_NS
            return 0.0 if is_old else self._relative.value(self._raw[code])
        found = self._ranges.get(code)
        return 0.0 if found is None or code not in self._raw else found.value(self._raw[code])

    def trigger(self, code: int) -> float:
        """Return 0 to 1; 0 for a trigger without events."""
        found = self._ranges.get(code)
        return 0.0 if found is None or code not in self._raw else found.share(self._raw[code])

    def is_pressed(self, code: int) -> bool:
        """Whether the button is held."""
        return code in self._pressed

    def presses(self) -> list[int]:
        """Return the buttons pressed since the last call, in their order."""
        out, self._presses = self._presses, []
        return out

    def _take(self, kind: int, code: int, value: int) -> None:
        if (kind, code) == (EV_SYN, SYN_DROPPED):  # events were lost: assume nothing held, nothing deflected
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
            self._raw[code], self._event_ns[code] = value, self._clock()
            self._is_relative.add(code)

    def _range_of(self, code: int, deadzone: float) -> Range:
        """Ask the kernel for an axis' range; the default is that of a 3D mouse."""
        try:
            found = fcntl.ioctl(self._fd, _EVIOCGABS + code, bytes(ABSINFO.size))
        except OSError:
            return Range(low=-350.0, high=350.0, flat=deadzone * 350.0)
        raw, low, high, _, flat, _ = ABSINFO.unpack(found)
        if high <= low:
            return Range(low=-350.0, high=350.0, flat=deadzone * 350.0)
        self._raw[code] = raw
        return Range(low=low, high=high, flat=max(float(flat), deadzone * (high - low) / 2.0))
