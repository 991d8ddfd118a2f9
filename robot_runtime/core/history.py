"""Past observations for policies that look back: `ObservationHistory` keeps the frames of a run.

    frames kept    0  .  .  .  1  .  .  .  2  .  .  .  3  .  .  .  4      every `spacing_ns / PER_SPACING`
    asked at 4, n_obs_steps = 3            2           3           4      shown: those nearest to the times
                                           |<-- spacing_ns -->|           that lie one spacing apart

Frames are kept more often than they are shown, so that a request at any time finds one that is at most an
eighth of a spacing off; a request that comes whole spacings after the last one finds exact matches, unless
there are so many requests in a spacing that not every frame can be kept.
"""

from collections import deque

from msgspec import structs

from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.state import Observation

PER_SPACING = 4
"""Frames kept in the time from one that is shown to the next."""


class ObservationHistory:
    """The newest frames of one run, at most `2 * PER_SPACING * n_obs_steps`; one thread owns it.

    At the start of a run, and after a time without frames, the oldest frame replaces those before it
    (`Observation.frames`), as in LeRobot's own queues.
    """

    def __init__(self, *, n_obs_steps: int, spacing_ns: int) -> None:
        """n_obs_steps: frames that are shown, the newest among them. spacing_ns: from one to the next."""
        self._num_shown, self._spacing_ns = n_obs_steps, spacing_ns
        self._frames: deque[Observation] = deque()
        self._due_ns: int | None = None

    @classmethod
    def of(cls, info: PolicyInfo) -> "ObservationHistory | None":
        """The history that a policy needs; None if it looks at the newest observation alone."""
        if info.n_obs_steps == 1:
            return None
        return cls(n_obs_steps=info.n_obs_steps, spacing_ns=info.obs_spacing_ns)

    def is_due(self, t_obs_ns: int) -> bool:
        """Whether a frame of the current measurement should be kept."""
        is_back = bool(self._frames) and t_obs_ns < self._frames[-1].t_obs_ns
        return is_back or self._due_ns is None or t_obs_ns >= self._due_ns

    def note(self, seen: Observation) -> None:
        """Keep a frame. A clock that goes back clears the history; a frame that is known changes nothing."""
        t_ns, step_ns = seen.t_obs_ns, max(1, self._spacing_ns // PER_SPACING)
        if self._frames and t_ns == self._frames[-1].t_obs_ns:
            return
        if self._frames and t_ns < self._frames[-1].t_obs_ns:
            self.forget()
        self._frames.append(seen)
        self._make_room(t_ns)
        # Count from when it was due: counted from the tick, frames would drift off the spacing's times.
        before_ns = self._due_ns
        is_on_time = before_ns is not None and before_ns <= t_ns < before_ns + step_ns
        self._due_ns = (before_ns if is_on_time and before_ns is not None else t_ns) + step_ns

    def _make_room(self, t_ns: int) -> None:
        """Drop frames too old to be shown, then the one that leaves the smallest gap."""
        frames, longest_ns = self._frames, self._num_shown * self._spacing_ns
        enough_ns = longest_ns - self._spacing_ns + self._spacing_ns // PER_SPACING
        while frames[0].t_obs_ns < t_ns - longest_ns or (
            len(frames) > 1 and frames[1].t_obs_ns <= t_ns - enough_ns
        ):
            frames.popleft()
        if len(frames) > 2 * PER_SPACING * self._num_shown:
            times = [frame.t_obs_ns for frame in frames]
            gaps = [after - before for before, after in zip(times, times[2:], strict=False)]
            del frames[1 + gaps.index(min(gaps))]

    def asked(self, seen: Observation) -> Observation:
        """The observation of a request with the frames before it. The next frames count from its time."""
        self.note(seen)
        self._due_ns = seen.t_obs_ns + self._spacing_ns // PER_SPACING
        times = [seen.t_obs_ns - k * self._spacing_ns for k in range(self._num_shown - 1, 0, -1)]
        shown = [min(self._frames, key=lambda frame: abs(frame.t_obs_ns - t_ns)) for t_ns in times]
        while shown and shown[0] is [*shown, seen][1]:  # the reader repeats the oldest
            del shown[0]
        return structs.replace(seen, history=tuple(shown)) if shown else seen

    def forget(self) -> None:
        """Drop all frames."""
        self._frames.clear()
        self._due_ns = None
