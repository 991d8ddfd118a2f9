"""What goes wrong with rigs and with people who use them: each a value that a session takes.

A fault changes what the devices say, or what is written about them; the truth beside it stays the truth.
"""

from dataclasses import dataclass

ROLES = ("chest", "hand")


@dataclass(frozen=True, kw_only=True)
class FrontalAnchor:
    """The board is looked at straight on: its tilt can hardly be told."""


@dataclass(frozen=True, kw_only=True)
class SwappedSquares:
    """The board is described with rows for columns."""


@dataclass(frozen=True, kw_only=True)
class LegacyPattern:
    """The board was made by a program that begins with the other colour."""


@dataclass(frozen=True, kw_only=True)
class PrintScale:
    """The board was printed smaller, or larger, and nobody measured it."""

    scale: float = 0.98


@dataclass(frozen=True, kw_only=True)
class PixelShift:
    """Intrinsics count pixels from corners, the detector from centres."""

    px: float = 0.5
    role: str = "chest"


@dataclass(frozen=True, kw_only=True)
class ClockShift:
    """Pictures are stamped later than poses, by as much [ms]."""

    ms: float = 30.0
    role: str = "hand"


@dataclass(frozen=True, kw_only=True)
class CameraTurned:
    """A camera is turned against the sensor whose poses it is said to have [degrees, about its x]."""

    degrees: float = 2.0
    role: str = "hand"


@dataclass(frozen=True, kw_only=True)
class VioJump:
    """The odometry relocalises in the middle of the first demonstration [m]."""

    metres: float = 0.05
    role: str = "hand"


@dataclass(frozen=True, kw_only=True)
class DroppedFrames:
    """A share of a video's pictures is gone, some in one piece."""

    share: float = 0.08
    role: str = "chest"


@dataclass(frozen=True, kw_only=True)
class QuaternionOrder:
    """Quaternions are written xyzw where wxyz is meant."""

    role: str = "hand"


@dataclass(frozen=True, kw_only=True)
class Swapped:
    """The chest's device is called hand, and the hand's chest (or left right)."""


@dataclass(frozen=True, kw_only=True)
class BoardMoved:
    """Somebody moves the board after the chest has seen it and before the hand does [m]."""

    metres: float = 0.05


@dataclass(frozen=True, kw_only=True)
class ClockJump:
    """A device sets its clock in the middle of the first demonstration [ms]."""

    ms: float = 200.0
    role: str = "hand"


@dataclass(frozen=True, kw_only=True)
class EmptyBattery:
    """A device stops in the middle of the last demonstration, in the middle of a row."""

    role: str = "hand"


@dataclass(frozen=True, kw_only=True)
class LostTracking:
    """The odometry is lost for a while in the middle of the first demonstration [s]."""

    seconds: float = 1.0
    role: str = "hand"


Fault = (
    FrontalAnchor
    | SwappedSquares
    | LegacyPattern
    | PrintScale
    | PixelShift
    | ClockShift
    | CameraTurned
    | VioJump
    | DroppedFrames
    | QuaternionOrder
    | Swapped
    | BoardMoved
    | ClockJump
    | EmptyBattery
    | LostTracking
)

ALL: tuple[Fault, ...] = (
    FrontalAnchor(),
    SwappedSquares(),
    LegacyPattern(),
    PrintScale(),
    PixelShift(),
    ClockShift(),
    CameraTurned(),
    VioJump(),
    DroppedFrames(),
    QuaternionOrder(),
    Swapped(),
    BoardMoved(),
    ClockJump(),
    ClockJump(ms=-200.0),
    EmptyBattery(),
    LostTracking(),
)
"""Each as it is tried by scripts/bench/capture.py."""


def find[F](faults: tuple[Fault, ...], kind: type[F], *, role: str | None = None) -> F | None:
    """The fault of a kind that a session has, if any; role: only if it is that device's."""
    for fault in faults:
        if isinstance(fault, kind) and (role is None or getattr(fault, "role", role) == role):
            return fault
    return None
