"""Poses as devices stream them, a JSON object each, and what is to be said of them at once. Pure.

    {"t_ns": 123, "p": [x, y, z], "q_wxyz": [w, x, y, z]}
        and, if there are: "tracking": "ok", "w": [3] (rad/s), "a": [3] (m/s^2), "width_m": 0.05
    {"timestamp": 1.5, "transform": [16], "trackingState": "normal"}    or an ARFrame's, see sources/arkit

Times are of the device's own clock; by how much it is ahead is told from what arrived soonest, so a network
that is never quick makes poses late by its best time.
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
"""No odometry of a person's devices gets farther from where it began."""
SILENCE_NS = NS_PER_S // 4
"""Without a pose, tracking counts as lost."""
NO_PICTURE_NS = NS_PER_S
"""Without a picture, a camera counts as gone."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PoseSample:
    """One message."""

    t_ns: int
    """The device's clock."""
    X_WC: pin.SE3
    """Its camera in its world, ours: z up, optical axes."""
    tracking: int
    w: tuple[float, float, float] | None = None
    a: tuple[float, float, float] | None = None
    width_m: float | None = None


def sample_of(message: bytes, *, axes: str = OPTICAL, up: str = "z") -> PoseSample:
    """InvalidValueError: no JSON, or not one of the two forms."""
    try:
        said = json.loads(message)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"expected a pose as JSON, got {message[:60]!r}: {error}") from None
    if not isinstance(said, dict):
        raise InvalidValueError(f"expected an object of JSON, got {type(said).__name__}")
    if "transform" in said:
        t_ns, X, state = pose_of(said, "the stream", 1)
        q = pin.Quaternion(X[:3, :3]).normalized().coeffs()[[3, 0, 1, 2]]
        p, axes, up = X[:3, 3], OPENGL, "y"
    else:
        t_ns, p, q, state = _own(said)
    found = trajectory("the stream", np.array([t_ns]), p[None], q[None], axes=axes, up=up)
    if np.abs(found.p[0]).max() > FARTHEST_M:
        raise InvalidValueError(f"expected a place within {FARTHEST_M:.0f} m of the origin, got {p}")
    width = said.get("width_m")
    if width is not None and not (isinstance(width, int | float) and -0.01 < width < 0.5):
        raise InvalidValueError(f"expected a gripper's width of 0 to 0.5 m, got {width!r:.40}")
    return PoseSample(
        t_ns=t_ns,
        X_WC=found[0],
        tracking=state,
        w=_three(said, "w"),
        a=_three(said, "a"),
        width_m=None if width is None else float(width),
    )


def _own(said: dict[str, Any]) -> tuple[int, np.ndarray, np.ndarray, int]:
    t_ns, state = said.get("t_ns"), said.get("tracking", "ok")
    if not isinstance(t_ns, int) or isinstance(t_ns, bool) or abs(t_ns) > LATEST_NS:
        raise InvalidValueError(f"expected t_ns, whole nanoseconds, got {t_ns!r:.40}")
    if not isinstance(state, str) or state not in TRACKING:
        raise InvalidValueError(f"expected tracking of {', '.join(TRACKING)}, got {state!r:.40}")
    if lacking := [name for name in ("p", "q_wxyz") if name not in said]:
        raise InvalidValueError(f"expected p of 3 and q_wxyz of 4 numbers, got no {' and no '.join(lacking)}")
    try:
        p, q = np.asarray(said["p"], dtype=float), np.asarray(said["q_wxyz"], dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise InvalidValueError(
            f"expected p of 3 and q_wxyz of 4 numbers, got {said['p']!r:.40} and {said['q_wxyz']!r:.40}"
        ) from None
    if p.shape != (3,) or q.shape != (4,):
        raise InvalidValueError(f"expected p of 3 and q_wxyz of 4 numbers, got {p.shape} and {q.shape}")
    return t_ns, p, q, TRACKING[state]


def _three(said: dict[str, Any], name: str) -> tuple[float, float, float] | None:
    if said.get(name) is None:
        return None
    try:
        x, y, z = map(float, said[name])
    except (TypeError, ValueError, OverflowError):
        raise InvalidValueError(f"expected {name} of 3 numbers, got {said[name]!r:.60}") from None
    if not math.isfinite(x + y + z):
        raise InvalidValueError(f"expected {name} of 3 finite numbers, got {x}, {y}, {z}")
    return x, y, z


class Offset:
    """How far a device's clock is behind this machine's: by its quickest message so far, then fixed."""

    def __init__(self, *, for_ns: int = 2 * NS_PER_S) -> None:
        """for_ns: how long to listen before anything is recorded."""
        self._for_ns = for_ns
        self._first_ns: int | None = None
        self._least_ns: int | None = None

    def hear(self, t_ns: int, arrived_ns: int) -> None:
        """A message of that stamp has come."""
        self._first_ns = arrived_ns if self._first_ns is None else self._first_ns
        if self._least_ns is None or (not self.is_known(arrived_ns) and arrived_ns - t_ns < self._least_ns):
            self._least_ns = arrived_ns - t_ns

    @property
    def is_new(self) -> bool:
        """Whether no message has come."""
        return self._first_ns is None

    def is_known(self, now_ns: int) -> bool:
        """Whether it was listened to for long enough."""
        return self._first_ns is not None and now_ns - self._first_ns >= self._for_ns

    def here(self, t_ns: int) -> int:
        """That time on this machine's clock."""
        assert self._least_ns is not None
        return t_ns + self._least_ns


class Silence:
    """For how long nothing has come, as far as somebody has looked.

    Who looks late himself has not waited: at most half of `patience_ns` counts since the last look.
    """

    def __init__(self, patience_ns: int) -> None:
        self._patience_ns = patience_ns
        self._waited_ns, self._looked_ns = 0, 0
        self._has_come = False

    def look(self, now_ns: int, *, has_come: bool) -> bool:
        """Whether nothing has come for too long, after something once did."""
        since_ns = min(now_ns - self._looked_ns, self._patience_ns // 2)
        self._has_come = self._has_come or has_come
        self._waited_ns = 0 if has_come else self._waited_ns + since_ns
        self._looked_ns = now_ns
        return self._has_come and self._waited_ns > self._patience_ns


class TrackingWatch:
    """Says at once when a device's tracking is lost or limited, when nothing comes, and when it is back."""

    def __init__(self, name: str) -> None:
        self._name, self._said, self._silence = name, "", Silence(SILENCE_NS)

    def look(self, sample: PoseSample | None, now_ns: int) -> str | None:
        """sample: the newest; None: none since the last look. Returns a line to be said, if there is one."""
        is_silent = self._silence.look(now_ns, has_come=sample is not None)
        if sample is not None:
            state = {LOST: "TRACKING LOST", LIMITED: "tracking limited"}.get(sample.tracking, "")
        elif is_silent:
            state = "NO POSES"
        else:
            return None
        if state == self._said:
            return None
        self._said = state
        return f"{self._name}: {state or 'tracking is back'}"

    @property
    def is_bad(self) -> bool:
        """Whether what is demonstrated now would be lost."""
        return self._said in ("TRACKING LOST", "NO POSES")


class PictureWatch:
    """Says when a camera gives no pictures any more, and when it does again."""

    def __init__(self, name: str) -> None:
        self._name, self._silence = name, Silence(NO_PICTURE_NS)
        self.is_bad = False

    def look(self, num_pictures: int, now_ns: int) -> str | None:
        """num_pictures: since the last look. Returns a line to be said, if there is one."""
        is_silent = self._silence.look(now_ns, has_come=num_pictures > 0)
        if is_silent == self.is_bad:
            return None
        self.is_bad = is_silent
        return f"{self._name}: {'NO PICTURES' if is_silent else 'pictures are back'}"


class DoubleClose:
    """The gesture that begins a demonstration and ends it: the gripper closed twice within a second."""

    def __init__(self, *, closed_m: float = 0.01, open_m: float = 0.03, within_ns: int = NS_PER_S) -> None:
        self._closed_m, self._open_m, self._within_ns = closed_m, open_m, within_ns
        self._is_closed = False
        self._closings: deque[int] = deque(maxlen=2)

    def look(self, t_ns: int, width_m: float) -> bool:
        """Whether the gesture was just finished. A thing in the gripper keeps it from closing: no gesture."""
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
