"""Age of the observation behind a command: `ObservationAge`."""

from robot_runtime.core.plan.answers import Splice
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.safety import Mode
from robot_runtime.core.tick import Tick


class ObservationAge:
    """Finds when the observation behind a command was captured.

    The first d rows of an answer to a request with committed rows repeat the earlier plan: they are based on
    what the older answers knew. Only on the way to row d does the robot act on the new observation.

        rows of answer 1    0 . . . d-1 | d  d+1  d+2 ...
        rows of answer 2              0 . . . . . . d-1 | d ...     came before answer 1's row d was reached
        known                  older    |  observation 1   | observation 2

    Corrections of single rows on the robot do not count, or a head that adds nothing would react at once.
    """

    def __init__(self, dt_ns: int) -> None:
        self._dt_ns = dt_ns
        self._inference_delays: dict[int, int] = {}
        self._coming: list[tuple[int, int]] = []  # (from when on, capture time), both rising
        self._last: Splice | None = None
        self._t_obs_ns: int | None = None

    def asked(self, request: ChunkRequest) -> None:
        """Note a request."""
        self._inference_delays[request.request_id] = request.inference_delay

    def t_obs_ns(self, tick: Tick, splice: Splice | None) -> int | None:
        """Capture time of the newest observation that this tick's command is based on [ns]; None at first."""
        if splice is not None and splice is not self._last:
            self._last = splice
            row = max(self._inference_delays[splice.source.request_id], splice.seam.first_row or 0)
            from_ns = max(splice.t_ns, splice.t0_ns + (row - 1) * self._dt_ns)
            self._coming = [known for known in self._coming if known[0] < from_ns]
            self._coming.append((from_ns, splice.source.t_obs_ns))
        while tick.mode is Mode.RUN and self._coming and self._coming[0][0] <= tick.now_ns:
            self._t_obs_ns = self._coming.pop(0)[1]
        return None if tick.source is None else self._t_obs_ns
