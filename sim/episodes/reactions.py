"""Reaction times: from an unpredictable change of the scene to the first command that responds to it."""

from collections.abc import Callable


class Reactions:
    """Measures the time from each change of the scene to the first command based on an observation of it.

        change        capture         answer arrives
           |-------------|------------------|------>  t
           |<------------- reaction ------->|

    The observation has to be captured at or after the change. A change without such a command before the end
    has no reaction time.
    """

    def __init__(self, change_times_ns: Callable[[int], list[int]], *, t_start_ns: int) -> None:
        """change_times_ns: times of changes up to and including a time, both relative to `t_start_ns`."""
        self._change_times_ns, self._t_start_ns = change_times_ns, t_start_ns
        self._t_ns = 0
        self.answered: list[tuple[int, float]] = []
        """(time of the change within the episode [ns], reaction time [s]) of every answered change."""

    def on_tick(self, t_ns: int, t_obs_ns: int | None) -> None:
        """Process one control tick; arguments as in `Scorer.on_tick`."""
        self._t_ns = t_ns - self._t_start_ns
        if t_obs_ns is None:
            return
        for change_ns in self._change_times_ns(self._t_ns)[len(self.answered) :]:
            if t_obs_ns - self._t_start_ns >= change_ns:
                self.answered.append((change_ns, (self._t_ns - change_ns) / 1e9))

    @property
    def times_s(self) -> tuple[float, ...]:
        """Reaction time of every answered change, in order [s]."""
        return tuple(time_s for _, time_s in self.answered)

    def metrics(self) -> dict[str, float]:
        """Number of changes and of unanswered ones; mean and largest reaction time, if any [s]."""
        num_changes = len(self._change_times_ns(self._t_ns))
        out = {"num_changes": float(num_changes), "num_unanswered": float(num_changes - len(self.answered))}
        if self.answered:
            out["reaction_mean_s"] = sum(self.times_s) / len(self.answered)
            out["reaction_max_s"] = max(self.times_s)
        return out
