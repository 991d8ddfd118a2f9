"""Whether a driver keeps the driver contract: `broken_promises`, for tests of your own driver.

    made ─► stop, stop ─► write ─► read ─► NaN ─► two threads ─► cut off ─► close, close ─► used after close

It commands a part only to hold: an arm its measured joints, a gripper its measured width, a base zero
velocity. With `refuses_nan` or `received` it writes NaN, too: run that only with no one beside the robot.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event, Thread
from typing import Any

import numpy as np

from robot_runtime.core.robot import ArmState, BaseState, GripperState
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import (
    BaseTwistCommand,
    GripperCommand,
    JointCommand,
    PartCommand,
)
from robot_runtime.errors import DriverError
from robot_runtime.robot.robot import part_fault

_REFUSED = (DriverError, ValueError)
_TOGETHER_S = 0.3
"""How long two threads use the driver, and how long the part has to hold its position [s]."""
_QUICK_S = 0.005
"""A read that always takes longer than this waits for its device [s]."""
_STAYS: dict[type, float] = {JointCommand: 0.1, GripperCommand: 0.02}
"""How far a part may move that is commanded to hold [rad], [m]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Tried:
    """A driver and what its tests need; everything but the driver is optional."""

    driver: Any
    """An `Arm`, a `Gripper`, a `MobileBase`, a `Camera` or a `Switch`, newly made."""
    first: PartCommand | None = None
    """The command sent before the first read, close to where the part is; None: not tried."""
    received: Callable[[], Sequence[float]] | None = None
    """The numbers that have reached the device so far."""
    refuses_nan: bool = False
    """Whether the driver has to refuse NaN: it should, and every shipped driver does. The runtime itself
    sends none. NaN is tried with `received`, too."""
    cut_off: Callable[[], None] | None = None
    """Cuts the device off: its process, its cable."""
    notices_s: float = 0.5
    """How soon after that `read` has to raise, or return a state whose timestamp falls behind [s]."""
    close: Callable[[], None] | None = None
    """Closes it; None: its own `close`, if it has one."""
    patience_s: float = 5.0
    """After this long a call counts as hanging [s]."""

    @property
    def kind(self) -> str:
        """Arm, gripper or base, by its members and the state it returns."""
        if hasattr(self.driver, "num_joints"):
            return "arm"
        return "base" if isinstance(self.driver.read(), BaseState) else "gripper"


def broken_promises(tried: Any) -> list[str]:
    """Return a sentence for each broken promise; empty: none. The driver cannot be used afterwards.

    tried: a `Tried`, or a driver alone.

    `stop` may be called at any time, twice; `write` accepts a command before the first read; `read` returns
    states of the right shape, stamped now; no NaN reaches the device (`refuses_nan`); one thread reads while
    another writes; a lost device is noticed in time, and no call hangs; after `close`, which may be called
    twice, `read` and `write` raise DriverError and `stop` does nothing. Cameras and switches are checked for
    the promises that apply to them.
    """
    if not isinstance(tried, Tried):
        tried = Tried(driver=tried)
    if not hasattr(tried.driver, "write"):
        return [
            *_of("read", lambda: _sees(tried.driver)),
            *_of("a device that is gone", lambda: _gone(tried)),
            *_of("closed", lambda: _closed(tried)),
        ]
    return [
        *_of("stop before anything, twice", lambda: _stopped_twice(tried.driver)),
        *_of("write before read", lambda: _written_first(tried)),
        *_of("read and write", lambda: _reads_and_writes(tried)),
        *_of("NaN", lambda: _no_nan(tried)),
        *_of("two threads", lambda: _two_threads(tried.driver, tried.patience_s)),
        *_of("stop, twice", lambda: _stopped_twice(tried.driver)),
        *_of("a device that is gone", lambda: _gone(tried)),
        *_of("closed", lambda: _closed(tried)),
    ]


def command_at(state: object) -> PartCommand:
    """Return the command that holds a part where it is measured; zero velocity for a base."""
    match state:
        case ArmState(q=q):
            return JointCommand(q=np.array(q))
        case BaseState():
            return BaseTwistCommand(V_WB_B=np.zeros(3))
        case GripperState(width=width):
            return GripperCommand(width=float(width))
    return GripperCommand(width=float(state))  # type: ignore[arg-type]


def _of(what: str, check: Callable[[], Iterator[str]]) -> Iterator[str]:
    """Prefix the sentences of a check, and add the error that it raised unexpectedly."""
    try:
        yield from (f"{what}: {sentence}" for sentence in check())
    except Exception as error:
        yield f"{what}: it raised {type(error).__name__}: {error}"


def _stopped_twice(driver: Any) -> Iterator[str]:
    driver.stop()
    driver.stop()
    yield from ()


def _written_first(tried: Tried) -> Iterator[str]:
    if tried.first is not None:
        yield from _sent_well(tried.first, tried.driver.write(tried.first))


def _sent_well(commanded: PartCommand, sent: object) -> Iterator[str]:
    if sent is not None and type(sent) is not type(commanded):
        kinds = type(sent).__name__, type(commanded).__name__
        yield "write() returned {}, expected what was sent, {}, or None".format(*kinds)


def _reads_and_writes(tried: Tried) -> Iterator[str]:
    driver, kind = tried.driver, tried.kind
    first = driver.read()
    if (fault := part_fault(kind, first, driver)) is not None:
        yield fault
        return
    here = command_at(first)
    yield from _sent_well(here, driver.write(here))
    took_s, second = _quickest(driver.read)
    if took_s > _QUICK_S:
        yield f"read() took {1e3 * took_s:.0f} ms or more; it gives the newest state and waits for none"
    for name, value in _arrays(second):
        if not np.isfinite(value).all():
            yield f"read() gave {name} = {value}"
    stamps = [_stamp(state) for state in (first, second)]
    if None not in stamps:
        if abs(stamps[1] - time.monotonic_ns()) > NS_PER_S:
            yield "its stamps are no times of time.monotonic_ns()"
        if stamps[1] < stamps[0]:
            yield "its stamps go back"
    yield from _stays(driver, here)


def _quickest(read: Callable[[], Any], times: int = 5) -> tuple[float, Any]:
    """Return the shortest time of a call [s] and its last value: a busy machine delays single calls."""
    took_s, value = np.inf, None
    for _ in range(times):
        start_s, value = time.monotonic(), read()
        took_s = min(took_s, time.monotonic() - start_s)
    return took_s, value


def _stays(driver: Any, here: PartCommand) -> Iterator[str]:
    """Check that a part commanded to its measured position holds it: read() and write() agree."""
    if isinstance(here, BaseTwistCommand):
        return
    deadline_s = time.monotonic() + _TOGETHER_S
    ((_, at),) = _arrays(here)[:1]
    while time.monotonic() < deadline_s:
        now = command_at(driver.read())
        off = np.atleast_1d(np.abs(_arrays(now)[0][1] - at))
        if (worst := int(off.argmax())) is not None and off[worst] > _STAYS[type(here)]:
            what = f"joint {worst + 1}" if isinstance(here, JointCommand) else "it"
            yield (
                f"commanded to stay where it is measured, {what} went {off[worst]:.2g} away: read() and "
                "write() need the same joints in the same order, with the same units and signs"
            )
            return
        time.sleep(0.01)


def _sees(driver: Any) -> Iterator[str]:
    """Check the reads of a camera or a switch."""
    is_camera, last_ns = hasattr(driver, "size"), 0
    if not is_camera and hasattr(driver, "open"):
        driver.open()
    for _ in range(3):
        value = driver.read()
        if not is_camera and not isinstance(value, bool):
            yield f"read() returned {type(value).__name__}, expected whether it is pressed"
        elif is_camera:
            shape, kind = value.pixels.shape, value.pixels.dtype
            if shape != (*driver.size, 3) or kind != np.uint8:
                yield f"read() gave {shape} of {kind}, expected {(*driver.size, 3)} of uint8, by its size"
            if not last_ns < value.t_ns <= time.monotonic_ns():
                yield "its stamps do not rise, or lie in the future"
            last_ns = value.t_ns


def _no_nan(tried: Tried) -> Iterator[str]:
    if tried.received is None and not tried.refuses_nan:
        return
    driver = tried.driver
    here = command_at(driver.read())
    for number in (np.nan, np.inf):
        try:
            sent = driver.write(_all(here, number))
        except _REFUSED:
            continue
        if sent is None or not _is_finite(sent):
            yield f"write() took {number}: it raises DriverError, or returns what is sent instead"
    driver.write(here)
    if tried.received is not None and not np.isfinite(list(tried.received())).all():
        yield "a number that is not finite reached the device"


def _two_threads(driver: Any, patience_s: float) -> Iterator[str]:
    """Read in one thread and write in another; a state must belong to one time."""
    here, over, wrong = command_at(driver.read()), Event(), list[str]()

    def read() -> None:
        last: Any = None
        try:
            while not over.is_set():
                state = driver.read()
                if not all(np.isfinite(value).all() for _, value in _arrays(state)):
                    wrong.append("a state with numbers that are not finite")
                if last is not None and _stamp(state) is not None:
                    if _stamp(state) < _stamp(last):
                        wrong.append("stamps that go back")
                    if _stamp(state) == _stamp(last) and not _same(state, last):
                        wrong.append("two states of the same time: one of them is torn")
                last = state
        except Exception as error:
            wrong.append(f"read() raised {type(error).__name__}: {error}")

    reader = Thread(target=read, daemon=True)
    reader.start()
    deadline_s = time.monotonic() + _TOGETHER_S
    try:
        while time.monotonic() < deadline_s and not wrong:
            driver.write(here)
            time.sleep(0.001)
    finally:
        over.set()
        reader.join(patience_s)
    if reader.is_alive():
        wrong.append("read() hangs")
    yield from wrong[:1]


def _gone(tried: Tried) -> Iterator[str]:
    if tried.cut_off is None:
        return
    driver = tried.driver
    is_part = hasattr(driver, "write")
    here = command_at(driver.read()) if is_part else None
    tried.cut_off()
    cut_ns, is_noticed = time.monotonic_ns(), False
    deadline_s = time.monotonic() + tried.notices_s + tried.patience_s
    while not is_noticed and time.monotonic() < deadline_s:
        outcome = _within(tried, driver.read)
        stamp = _stamp(outcome.value)
        if outcome.hangs:
            yield "read() hangs"
            return
        is_old = stamp is not None and time.monotonic_ns() - stamp > tried.notices_s * NS_PER_S
        is_noticed = isinstance(outcome.error, DriverError) or is_old
        if outcome.error is not None and not is_noticed:
            yield f"read() raised {type(outcome.error).__name__} ({outcome.error}), expected DriverError"
            return
        time.sleep(0.002)
    took_s = (time.monotonic_ns() - cut_ns) / NS_PER_S
    if not is_noticed or took_s > tried.notices_s + 0.1:
        yield f"read() noticed it after {took_s:.2f} s, if at all; expected {tried.notices_s:g} s"
    if is_part and _within(tried, lambda: driver.write(here)).hangs:
        yield "write() hangs"
    if is_part and _within(tried, driver.stop).hangs:
        yield "stop() hangs"


def _closed(tried: Tried) -> Iterator[str]:
    driver = tried.driver
    close = getattr(driver, "close", None) if tried.close is None else tried.close
    if close is None:
        return
    here = None
    if is_part := hasattr(driver, "write"):
        with suppress(*_REFUSED):  # it is cut off
            here = command_at(driver.read())
    twice = [("close()", close), ("close(), the second time,", close)]
    for name, call in [*twice, *([("stop()", driver.stop)] if is_part else [])]:
        outcome = _within(tried, call)
        if outcome.hangs or outcome.error is not None:
            yield f"{name} {_in_words(outcome)}"
    calls: list[tuple[str, Callable[[], Any]]] = [("read()", driver.read)]
    if here is not None:
        calls.append(("write()", lambda: driver.write(here)))
    for name, call in calls:
        outcome = _within(tried, call)
        if outcome.hangs or not isinstance(outcome.error, DriverError):
            yield f"{name} after it {_in_words(outcome)}, expected DriverError"


@dataclass(kw_only=True, eq=False)
class _Outcome:
    value: Any = None
    error: Exception | None = None
    hangs: bool = False


def _within(tried: Tried, call: Callable[[], Any]) -> _Outcome:
    """Run a call that may hang; return its outcome."""
    out = _Outcome(hangs=True)

    def run() -> None:
        try:
            out.value = call()
        except Exception as error:
            out.error = error
        out.hangs = False

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(tried.patience_s)
    return replace(out)


def _in_words(outcome: _Outcome) -> str:
    if outcome.hangs:
        return "hangs"
    error = outcome.error
    return "raised nothing" if error is None else f"raised {type(error).__name__}: {error}"


def _arrays(value: object) -> list[tuple[str, np.ndarray]]:
    """Return the numbers of a state or a command, by name."""
    names = ("q", "dq", "x_WB", "V_WB_B", "width", "p_BE", "quat_BE", "values")
    found = [(name, getattr(value, name)) for name in names if getattr(value, name, None) is not None]
    return [(name, np.asarray(each, dtype=float)) for name, each in found or [("width", value)]]


def _stamp(state: object) -> Any:
    return getattr(state, "t_ns", None)


def _same(a: object, b: object) -> bool:
    return all(np.array_equal(x, y) for (_, x), (_, y) in zip(_arrays(a), _arrays(b), strict=True))


def _is_finite(command: object) -> bool:
    return all(np.isfinite(value).all() for _, value in _arrays(command))


def _all(command: PartCommand, number: float) -> PartCommand:
    """Return the command with all its numbers replaced."""
    match command:
        case JointCommand(q=q):
            return JointCommand(q=np.full(len(q), number))
        case BaseTwistCommand():
            return BaseTwistCommand(V_WB_B=np.full(3, number))
    return GripperCommand(width=number)
