"""The keys of a terminal as a teleoperator: `KeyboardTeleoperator`.

A terminal reports strokes but no releases, so a stroke moves for a short time (`stroke_s`); a key that
is held repeats after half a second, and then keeps moving.

    stroke                stroke stroke stroke stroke ...      the terminal repeats 30 times a second
    ├───────┤             ├───────┤
    0      0.15 s         0.5 s: moves without a gap

The first stroke takes over the parts that it moves; the space bar releases all.
"""

import time
from collections.abc import Callable

import numpy as np

from drivers.teleop_hand import GRIPPER_SPEED, OneHand, check_speeds, frame_named, lead_of
from robot_runtime.core.orders import Arm, BeginEpisode, EndEpisode, Keep, Order, Outcome, Reset, Stop
from robot_runtime.core.teleop import Lead, LeadableParts
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError
from robot_runtime.robot.terminal_key import Terminal

_HAND = {
    b"w": (0, 1.0), b"s": (0, -1.0), b"a": (1, 1.0), b"d": (1, -1.0), b"q": (2, 1.0), b"e": (2, -1.0),
    b"u": (3, -1.0), b"o": (3, 1.0), b"i": (4, 1.0), b"k": (4, -1.0), b"j": (5, 1.0), b"l": (5, -1.0),
}  # fmt: skip
"""Key -> axis (x, y, z, about x, y, z) and its sign."""
_BASE = {
    b"\x1b[A": (0, 1.0), b"\x1b[B": (0, -1.0), b",": (1, 1.0), b".": (1, -1.0),
    b"\x1b[D": (2, 1.0), b"\x1b[C": (2, -1.0),
}  # fmt: skip
_GRIPPER = {b"c": -1.0, b"v": 1.0}
_ORDERS: dict[bytes, tuple[Order, ...]] = {
    b"\r": (Arm(),),
    b"\n": (Arm(),),
    b"0": (Stop(),),
    b"R": (Reset(),),
    b"n": (BeginEpisode(),),
    b"y": (EndEpisode(Outcome.SUCCESS),),
    b"f": (EndEpisode(Outcome.FAILURE),),
    b"x": (EndEpisode(Outcome.OPERATOR_ABORT, keep=False),),
    b"t": (Keep(),),
}
HELP = """w s a d q e   hand forward, back, left, right, up, down      arrows , .   base
u o i k j l   hand rolls, pitches, turns                   c v   close, open the gripper
Tab next arm   + - faster, slower   space let go   Enter arm   0 stop   R reset
n begin an episode   y it succeeded   f it failed   x discard it   t keep the log"""


class KeyboardTeleoperator:
    """Drives one end effector at a time, its gripper, and the base from the terminal of the command."""

    name = "keyboard"
    help = HELP
    reads_terminal = True
    buttons = ("press Enter", "press R")

    def __init__(
        self,
        *,
        speed: float = 0.1,
        turn: float = 0.5,
        base_speed: float = 0.3,
        base_turn: float = 0.6,
        stroke_s: float = 0.15,
        frame: str = "base",
        arm: str | None = None,
        descriptor: int | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """
        speed, turn: of the end effector [m/s], [rad/s]. base_speed, base_turn: of the base.
        stroke_s: how long a stroke moves [s].
        frame: the keys move the end effector along the axes of the base, "base", or its own, "hand".
        arm: the first to drive. descriptor: of the terminal; None: standard input.
        """
        check_speeds(self.name, speed=speed, turn=turn, base_speed=base_speed, base_turn=base_turn)
        if not 0.02 <= stroke_s <= 1.0:
            raise InvalidValueError(f"keyboard: stroke_s is from 0.02 to 1 s, got {stroke_s!r:.60}")
        self._hand_speeds = np.array([speed] * 3 + [turn] * 3)
        self._base_speeds = np.array([base_speed, base_speed, base_turn])
        self._frame, self._hand = frame_named(self.name, frame), OneHand(self.name, arm)
        self._stroke_ns, self._clock, self._factor = round(stroke_s * NS_PER_S), clock, 1.0
        self._terminal = Terminal("a key of the keyboard teleoperator", descriptor=descriptor)
        self._until: dict[bytes, int] = {}
        self._has: set[str] = set()
        self._rest = b""

    def open(self, parts: LeadableParts) -> None:
        """Choose the parts. InvalidValueError: the robot has nothing for it to drive. DriverError: no
        terminal."""
        self._hand.choose(parts)
        self._has.clear()
        self._until.clear()
        self._terminal.open()

    def read(self) -> Lead:
        """Return the motion of the strokes that still count. DriverError: the terminal is gone."""
        now_ns, orders = self._clock(), list[Order]()
        for key in self._strokes():
            self._take(key, now_ns, orders)
        moving = [key for key, until_ns in self._until.items() if now_ns < until_ns]
        twist, drive, grip = np.zeros(6), np.zeros(3), 0.0
        for key in moving:
            if key in _HAND:
                twist[_HAND[key][0]] += _HAND[key][1]
            elif key in _BASE:
                drive[_BASE[key][0]] += _BASE[key][1]
            else:
                grip += _GRIPPER[key]
        twist *= self._factor * self._hand_speeds
        arms = {part: np.zeros(6) for part in self._has if part in self._hand.parts.hands}
        if self._hand.arm in arms:
            arms[self._hand.arm] = twist
        grippers = {part: 0.0 for part in self._has if part in self._hand.parts.grippers}
        if self._hand.gripper in grippers:
            grippers[self._hand.gripper] = grip * GRIPPER_SPEED
        bases = {
            part: self._factor * self._base_speeds * drive
            for part in self._has
            if part in self._hand.parts.bases
        }
        return lead_of(
            now_ns,
            twists={part: (each[:3], each[3:]) for part, each in arms.items()},
            frame=self._frame,
            grippers=grippers,
            bases=bases,
            engaged=dict.fromkeys(self._has, True),
            orders=tuple(orders),
        )

    def close(self) -> None:
        """Restore the terminal."""
        self._terminal.close()

    def _take(self, key: bytes, now_ns: int, orders: list[Order]) -> None:
        part = None
        for keys, theirs in (
            (_HAND, self._hand.arm),
            (_BASE, self._hand.base),
            (_GRIPPER, self._hand.gripper),
        ):
            part = theirs if key in keys else part
        if part is not None:
            self._has.add(part)
            self._until[key] = now_ns + self._stroke_ns
        elif key in _ORDERS:
            orders.extend(_ORDERS[key])
        elif key == b" ":
            self._has.clear()
            self._until.clear()
        elif key == b"\t":
            self._until.clear()
            self._hand.next_arm()
        elif key in (b"+", b"=", b"-"):
            self._factor = min(max(self._factor * (0.8 if key == b"-" else 1.25), 0.1), 4.0)

    def _strokes(self) -> list[bytes]:
        """Return the keys, an arrow as its three bytes; an incomplete one waits for the rest."""
        text, self._rest, out = self._rest + self._terminal.read(), b"", []
        while text:
            if text in (b"\x1b", b"\x1b["):
                self._rest = text
                break
            size = 3 if text.startswith(b"\x1b[") else 1
            out.append(text[:size])
            text = text[size:]
        return out
