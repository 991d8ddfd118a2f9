"""Faults of rigs and of the people who use them: each is a value that a session takes.

A fault changes what the devices report, or what is declared about them; the ground truth is unaffected.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class FrontalAnchor:
    """The board is viewed straight on, so that its tilt is poorly observable."""


@dataclass(frozen=True, kw_only=True)
class SwappedSquares:
    """The board is declared with rows and columns swapped."""


@dataclass(frozen=True, kw_only=True)
class LegacyPattern:
    """The board was made by a program that begins with the other colour (legacy pattern)."""


@dataclass(frozen=True, kw_only=True)
class PrintScale:
    """The board was printed at another scale and not measured."""

    scale: float = 0.98


@dataclass(frozen=True, kw_only=True)
class PixelShift:
    """Intrinsics count pixels from their corners, the detector from their centres."""

    px: float = 0.5
    role: str = "chest"


@dataclass(frozen=True, kw_only=True)
class ClockShift:
    """Images are stamped later than poses by this much [ms]."""

    ms: float = 30.0
    role: str = "hand"


@dataclass(frozen=True, kw_only=True)
class CameraTurned:
    """A camera is rotated against the sensor that its declared poses belong to [degrees, about its x]."""

    degrees: float = 2.0
    role: str = "hand"


@dataclass(frozen=True, kw_only=True)
class VioJump:
    """The odometry relocalises in the middle of the first demonstration [m]."""

    metres: float = 0.05
    role: str = "hand"


@dataclass(frozen=True, kw_only=True)
class DroppedFrames:
    """A share of a video's frames is missing, some of them in one gap."""

    share: float = 0.08
    role: str = "chest"


@dataclass(frozen=True, kw_only=True)
class QuaternionOrder:
    """Quaternions are written as xyzw where wxyz is expected."""

    role: str = "hand"


@dataclass(frozen=True, kw_only=True)
class Swapped:
    """The names of the two devices are swapped (chest and hand)."""


@dataclass(frozen=True, kw_only=True)
class BoardMoved:
    """The board is moved after the chest camera has seen it and before the wrist camera does [m]."""

    metres: float = 0.05


@dataclass(frozen=True, kw_only=True)
class ClockJump:
    """A device sets its clock in the middle of the first demonstration [ms]."""

    ms: float = 200.0
    role: str = "hand"


@dataclass(frozen=True, kw_only=True)
class EmptyBattery:
    """A device stops in the middle of the last demonstration, with an incomplete row."""

    role: str = "hand"


@dataclass(frozen=True, kw_only=True)
class LostTracking:
    """Odometry loses tracking in the middle of the first demonstration [s]."""

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
"""The faults that scripts/bench/capture.py tries."""


def find[F](faults: tuple[Fault, ...], kind: type[F], *, role: str | None = None) -> F | None:
    """The first fault of a kind, or None; role: only one of that device."""
    for fault in faults:
        if isinstance(fault, kind) and (role is None or getattr(fault, "role", role) == role):
            return fault
    return None
