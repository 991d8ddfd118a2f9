"""The trials of a run, as people mark them: `Episodes`.

    run      |------------------------------------------------------------|
    marks         begin      success            begin         failure
    trials          |-----------|                 |--------------|

A run without marks is one trial; an end without a begin closes the trial that began at the last end.
"""

from robot_runtime.core.orders import EndEpisode, EpisodeMark, Outcome
from robot_runtime.robot.telemetry import RunRecord


class Episodes:
    """Writes `RunRecord.episodes`."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self.begun_ns: int | None = None
        """When the open trial began [ns]; None: no trial is open."""
        self._ended_ns: int | None = None

    def begin(self, now_ns: int) -> None:
        """Begin a trial; one that is still open ends with an unknown outcome."""
        if self.begun_ns is not None:
            self.end(EndEpisode(Outcome.UNKNOWN), now_ns)
        self.begun_ns = now_ns

    def end(self, order: EndEpisode, now_ns: int) -> None:
        """End the trial."""
        start_ns = self.begun_ns
        if start_ns is None:
            start_ns = self._record.start_ns if self._ended_ns is None else self._ended_ns
        if start_ns is None or start_ns >= now_ns:
            raise ValueError("no tick has run that an episode could end at")
        self._record.episodes.append(
            EpisodeMark(start_ns=start_ns, end_ns=now_ns, outcome=order.outcome, keep=order.keep)
        )
        self.begun_ns, self._ended_ns = None, now_ns
