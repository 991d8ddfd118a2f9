"""Checks that the frames of a recording match their times: `Pace`."""

from collections.abc import Iterable

from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import InvalidValueError

MAX_PICTURE_AGE_NS = NS_PER_S // 2
"""An image older than its frame by more than this does not show what the frame's action was for."""


class Pace:
    """Checks that frames come at the times that LeRobot will stamp them with: frame k at start + k / fps.

    |--1/fps--|
    0         1         2                   frame k may be half a period off, and 0.5 % of the time so far
         0..4.4:  half a period to one and a half from one frame to the next
    """

    def __init__(self, fps: int, cameras: Iterable[str]) -> None:
        """cameras: names of the recorded ones."""
        self._fps, self._period_ns = fps, NS_PER_S / fps
        self._cameras = tuple(cameras)
        self._first_ns, self._count = 0, 0
        self._last: Observation | None = None

    def check(self, observation: Observation) -> None:
        """InvalidValueError: it is out of step with the earlier frames, or its images are."""
        t_ns, last = observation.t_obs_ns, self._last
        for camera in self._cameras:
            image = observation.images[camera]
            age_ns = t_ns - image.t_ns
            if not -self._period_ns <= age_ns <= MAX_PICTURE_AGE_NS:
                raise InvalidValueError(
                    f"the picture of camera {camera!r} was taken {age_ns / 1e9:.3f} s before the frame it is "
                    f"recorded with; at most {MAX_PICTURE_AGE_NS / 1e9:g} s before, or one period after, "
                    "is allowed"
                )
            if last is not None and image.t_ns < last.images[camera].t_ns:
                raise InvalidValueError(f"the stamps of camera {camera!r} go back from frame to frame")
        if last is None:
            return
        gap = (t_ns - last.t_obs_ns) / self._period_ns
        off = abs((t_ns - self._first_ns) / self._period_ns - self._count)
        if not 0.5 < gap < 1.5 or off > 0.5 + 0.005 * self._count:
            raise InvalidValueError(
                f"frames are recorded at {self._fps} a second; frame {self._count} comes {gap:.2f} periods "
                f"after the one before it and {off:.2f} from where it belongs"
            )

    def took(self, observation: Observation) -> None:
        """Note it as the next frame."""
        if self._last is None:
            self._first_ns = observation.t_obs_ns
        self._last, self._count = observation, self._count + 1
