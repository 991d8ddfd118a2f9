"""Switches as the control thread sees them: `WatchedSwitch` has the last reading, and reports if it is old.

one that is a file (`fileno`)   read by the control thread at every tick: nothing runs between switch and STOP
any other                       read ─► Seen by a thread of its own, every millisecond: one that hangs blocks
                                no other thread, and is lost after `SILENT_NS`
"""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np

from robot_runtime.core.robot import Switch
from robot_runtime.core.values.action import NS_PER_MS
from robot_runtime.errors import DriverError, InvalidValueError

SILENT_NS = 100 * NS_PER_MS
"""A switch that has not been read for this long is lost."""
_PERIOD_S = 0.001
_JOIN_S = 0.5


class Seen(NamedTuple):
    """The last reading of a switch, by the machine's monotonic clock."""

    t_ns: int
    is_pressed: bool
    num_presses: int
    """Since the watch began; a switch that was pressed then has to be released first."""
    num_releases: int


class WatchedSwitch:
    """A context manager; the switch is read inside it, and closed at its end."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch
        self._seen = Seen(0, True, 0, 0)
        self._error: Exception | None = None
        self._is_over = False
        self._thread: threading.Thread | None = None
        if not hasattr(switch, "fileno"):
            self._thread = threading.Thread(target=self._watch, name=f"switch {self.name}", daemon=True)

    @property
    def name(self) -> str:
        """The switch's name, for the operator."""
        return name_of(self._switch)

    @property
    def thread_id(self) -> int | None:
        """Native id of the reading thread once it has begun; None without one."""
        return None if self._thread is None else self._thread.native_id

    @property
    def seen(self) -> Seen:
        """The last reading."""
        return self._seen

    def look(self) -> Seen:
        """Return the current or the last reading; never waits."""
        if self._thread is None and self._error is None:
            try:
                self._read()
            except Exception as error:
                self._error = error
        return self._seen

    def why_lost(self) -> str:
        """Return why the last reading is no longer valid; empty: it is valid."""
        if self._error is not None:
            return f"{type(self._error).__name__}: {self._error}"
        silent_ns = time.monotonic_ns() - self._seen.t_ns
        return f"not read for {silent_ns / NS_PER_MS:.0f} ms" if silent_ns > SILENT_NS else ""

    def __enter__(self) -> Self:
        """Open the switch; raises what its `open` raises."""
        open_switch(self._switch)
        self._seen = self._seen._replace(t_ns=time.monotonic_ns())
        self.look()  # a switch that is pressed already counts as no press
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        if self._thread is not None:
            self._thread.join(_JOIN_S)
        self._switch.close()

    def _watch(self) -> None:
        try:
            while not self._is_over:
                self._read()
                time.sleep(_PERIOD_S)
        except Exception as error:
            self._error = error

    def _read(self) -> None:
        is_pressed, before = self._switch.read(), self._seen
        if not isinstance(is_pressed, bool | np.bool_):
            raise DriverError(
                f"expected True or False from read() of {self.name}, got {type(is_pressed).__name__}"
            )
        self._seen = Seen(
            t_ns=time.monotonic_ns(),
            is_pressed=bool(is_pressed),
            num_presses=before.num_presses + (is_pressed and not before.is_pressed),
            num_releases=before.num_releases + (before.is_pressed and not is_pressed),
        )


def check_hold_to_run(switch: Switch | None) -> None:
    """InvalidValueError: it does not report its release, or is no switch."""
    check_switch("hold_to_run", switch)
    if switch is not None and not getattr(switch, "tells_release", True):
        raise InvalidValueError(
            f"{getattr(switch, 'name', switch)} cannot be hold_to_run: it does not report its release "
            "(a terminal's key repeats; the first repeat comes after half a second); take an InputSwitch"
        )


def check_switch(what: str, switch: object) -> None:
    """InvalidValueError: it is no switch."""
    is_one = all(callable(getattr(switch, name, None)) for name in ("read", "close"))
    others = ("write", "num_joints", "num_values", "size")
    if switch is not None and not (is_one and not any(hasattr(switch, name) for name in others)):
        raise InvalidValueError(
            f"{what} is a switch, with read() -> bool and close(), got {type(switch).__name__}"
        )


def name_of(switch: Switch) -> str:
    """Return the switch's name, for the operator."""
    return str(getattr(switch, "name", "") or f"the {type(switch).__name__}")


def open_switch(switch: Switch) -> None:
    """Open it before it is read, if it has `open`; may be called twice."""
    if callable(begin := getattr(switch, "open", None)):
        begin()


def is_held(hold_to_run: Switch | None) -> bool:
    """Whether it is pressed; true without a switch."""
    return hold_to_run is None or hold_to_run.read()


def await_operator(
    arm: Switch | None,
    hold_to_run: Switch | None,
    what: str,
    *,
    say: Callable[[str], None],
    should_stop: Callable[[], bool],
) -> None:
    """Wait for the operator before a move without a policy: press the one switch and hold the other.

    InvalidValueError: one of them is no switch, or does not report its release.
    """
    check_switch("arm", arm)
    check_hold_to_run(hold_to_run)
    switches = [each for each in (arm, hold_to_run) if each is not None]
    for switch in switches:
        open_switch(switch)

    def is_wanted() -> bool:
        is_armed = arm is None or arm.read()  # read it even if the other is released, to drop earlier strokes
        return is_held(hold_to_run) and is_armed

    was_wanted = is_wanted()  # what was pressed before has to be released first
    if switches:
        hold = [] if hold_to_run is None else [f"hold {name_of(hold_to_run)}"]
        press = [] if arm is None else [f"press {name_of(arm)}"]
        say(f"{what}: {' and '.join([*hold, *press])}")
    while switches and not should_stop():
        wants = is_wanted()
        if wants and not was_wanted:
            return
        was_wanted = wants
        time.sleep(_PERIOD_S)
