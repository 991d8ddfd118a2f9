"""Poses that devices stream, one JSON object each, and warnings about them during recording. Pure.

    {"t_ns": 123, "p": [x, y, z], "q_wxyz": [w, x, y, z]}
        and optionally: "tracking": "ok", "w": [3] (rad/s), "a": [3] (m/s^2), "width_m": 0.05
    {"timestamp": 1.5, "transform": [16], "trackingState": "normal"}    or an ARFrame's, see sources/arkit

Times are of the device's own clock; its offset is estimated from the message that arrived soonest, so poses
are late by the network's lowest latency.
"""

import json
import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import pinocchio as pin

from calibration.capture.sources.arkit import pose_of
from calibration.capture.sources.axes import LATEST_NS, OPENGL, OPTICAL, trajectory
from calibration.capture.values import TRACKING
from calibration.trajectory import LIMITED, LOST
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError

FARTHEST_M = 10_000.0
"""Farthest valid position from the origin of odometry."""
SILENCE_NS = NS_PER_S // 4
"""Time without a pose after which tracking counts as lost."""
NO_PICTURE_NS = NS_PER_S
"""Time without an image after which a camera counts as gone."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PoseSample:
    """Contents of one message."""

    t_ns: int
    """Time on the device's clock."""
    X_WC: pin.SE3
    """Its camera in its world, in our convention: z up, optical axes."""
    tracking: int
    w: tuple[float, float, float] | None = None
    a: tuple[float, float, float] | None = None
    width_m: float | None = None


def sample_of(message: bytes, *, axes: str = OPTICAL, up: str = "z") -> PoseSample:
    """Parse a message. InvalidValueError: no JSON, or not one of the two forms."""
    try:
        fields = json.loads(message)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"expected a pose as JSON, got {message[:60]!r}: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidValueError(f"expected a JSON object, got {type(fields).__name__}")
    if "transform" in fields:
        t_ns, X, state = pose_of(fields, "the stream", 1)
        q = pin.Quaternion(X[:3, :3]).normalized().coeffs()[[3, 0, 1, 2]]
        p, axes, up = X[:3, 3], OPENGL, "y"
    else:
        t_ns, p, q, state = _own(fields)
    found = trajectory("the stream", np.array([t_ns]), p[None], q[None], axes=axes, up=up)
    if np.abs(found.p[0]).max() > FARTHEST_M:
        raise InvalidValueError(f"expected a position within {FARTHEST_M:.0f} m of the origin, got {p}")
    width = fields.get("width_m")
    if width is not None and not (isinstance(width, int | float) and -0.01 < width < 0.5):
        raise InvalidValueError(f"expected a gripper's width of 0 to 0.5 m, got {width!r:.40}")
    return PoseSample(
        t_ns=t_ns,
        X_WC=found[0],
        tracking=state,
        w=_three(fields, "w"),
        a=_three(fields, "a"),
        width_m=None if width is None else float(width),
    )


def _own(fields: dict[str, Any]) -> tuple[int, np.ndarray, np.ndarray, int]:
    t_ns, state = fields.get("t_ns"), fields.get("tracking", "ok")
    if not isinstance(t_ns, int) or isinstance(t_ns, bool) or abs(t_ns) > LATEST_NS:
        raise InvalidValueError(f"expected t_ns, whole nanoseconds, got {t_ns!r:.40}")
    if not isinstance(state, str) or state not in TRACKING:
        raise InvalidValueError(f"expected tracking of {', '.join(TRACKING)}, got {state!r:.40}")
    if lacking := [name for name in ("p", "q_wxyz") if name not in fields]:
        raise InvalidValueError(f"expected p of 3 and q_wxyz of 4 numbers, got no {' and no '.join(lacking)}")
    try:
        p, q = np.asarray(fields["p"], dtype=float), np.asarray(fields["q_wxyz"], dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise InvalidValueError(
            f"expected p of 3 and q_wxyz of 4 numbers, got {fields['p']!r:.40} and {fields['q_wxyz']!r:.40}"
        ) from None
    if p.shape != (3,) or q.shape != (4,):
        raise InvalidValueError(f"expected p of 3 and q_wxyz of 4 numbers, got {p.shape} and {q.shape}")
    return t_ns, p, q, TRACKING[state]


def _three(fields: dict[str, Any], name: str) -> tuple[float, float, float] | None:
    if fields.get(name) is None:
        return None
    try:
        x, y, z = map(float, fields[name])
    except (TypeError, ValueError, OverflowError):
        raise InvalidValueError(f"expected {name} of 3 numbers, got {fields[name]!r:.60}") from None
    if not math.isfinite(x + y + z):
        raise InvalidValueError(f"expected {name} of 3 finite numbers, got {x}, {y}, {z}")
    return x, y, z


class Offset:
    """Offset of a device's clock behind this machine's: from its fastest message so far, then fixed."""

    def __init__(self, *, for_ns: int = 2 * NS_PER_S) -> None:
        """for_ns: time to collect messages before recording starts."""
        self._for_ns = for_ns
        self._first_ns: int | None = None
        self._least_ns: int | None = None

    def hear(self, t_ns: int, arrived_ns: int) -> None:
        """Register a message with that stamp."""
        self._first_ns = arrived_ns if self._first_ns is None else self._first_ns
        if self._least_ns is None or (not self.is_known(arrived_ns) and arrived_ns - t_ns < self._least_ns):
            self._least_ns = arrived_ns - t_ns

    @property
    def is_new(self) -> bool:
        """Whether no message has arrived yet."""
        return self._first_ns is None

    def is_known(self, now_ns: int) -> bool:
        """Whether messages were collected for long enough."""
        return self._first_ns is not None and now_ns - self._first_ns >= self._for_ns

    def here(self, t_ns: int) -> int:
        """Convert a device time to this machine's clock."""
        assert self._least_ns is not None
        return t_ns + self._least_ns


class Silence:
    """Detects that nothing has arrived for too long.

    A caller that polls late has not waited: at most half of `patience_ns` counts since the last poll.
    """

    def __init__(self, patience_ns: int) -> None:
        self._patience_ns = patience_ns
        self._waited_ns, self._looked_ns = 0, 0
        self._has_come = False

    def look(self, now_ns: int, *, has_come: bool) -> bool:
        """Whether nothing has arrived for too long, after something once did."""
        since_ns = min(now_ns - self._looked_ns, self._patience_ns // 2)
        self._has_come = self._has_come or has_come
        self._waited_ns = 0 if has_come else self._waited_ns + since_ns
        self._looked_ns = now_ns
        return self._has_come and self._waited_ns > self._patience_ns


class TrackingWatch:
    """Reports when a device's tracking is lost or limited, when no poses arrive, and when it is back."""

    def __init__(self, name: str) -> None:
        self._name, self._reported, self._silence = name, "", Silence(SILENCE_NS)

    def look(self, sample: PoseSample | None, now_ns: int) -> str | None:
        """sample: the newest; None: none since the last call. Returns a line to report, if any."""
        is_silent = self._silence.look(now_ns, has_come=sample is not None)
        if sample is not None:
            state = {LOST: "TRACKING LOST", LIMITED: "tracking limited"}.get(sample.tracking, "")
        elif is_silent:
            state = "NO POSES"
        else:
            return None
        if state == self._reported:
            return None
        self._reported = state
        return f"{self._name}: {state or 'tracking is back'}"

    @property
    def is_bad(self) -> bool:
        """Whether a demonstration made now would be lost."""
        return self._reported in ("TRACKING LOST", "NO POSES")


class PictureWatch:
    """Reports when a camera stops sending images, and when it sends them again."""

    def __init__(self, name: str) -> None:
        self._name, self._silence = name, Silence(NO_PICTURE_NS)
        self.is_bad = False

    def look(self, num_pictures: int, now_ns: int) -> str | None:
        """num_pictures: since the last call. Returns a line to report, if any."""
        is_silent = self._silence.look(now_ns, has_come=num_pictures > 0)
        if is_silent == self.is_bad:
            return None
        self.is_bad = is_silent
        return f"{self._name}: {'NO IMAGES' if is_silent else 'images are back'}"


class DoubleClose:
    """The gesture that begins a demonstration and ends it: the gripper closed twice within a second."""

    def __init__(self, *, closed_m: float = 0.01, open_m: float = 0.03, within_ns: int = NS_PER_S) -> None:
        self._closed_m, self._open_m, self._within_ns = closed_m, open_m, within_ns
        self._is_closed = False
        self._closings: deque[int] = deque(maxlen=2)

    def look(self, t_ns: int, width_m: float) -> bool:
        """Whether the gesture was just completed; a held object keeps the gripper open: no gesture."""
        if self._is_closed:
            self._is_closed = width_m < self._open_m
            return False
        if width_m > self._closed_m:
            return False
        self._is_closed = True
        self._closings.append(t_ns)
        if len(self._closings) < 2 or t_ns - self._closings[0] > self._within_ns:
            return False
        self._closings.clear()
        return True
