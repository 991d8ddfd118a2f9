"""Request parts of a method: what to ask the policy, and when. `request_planner.py` implements them."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Synchronous:
    """Run the chunk to its execution horizon, stop, observe, ask and wait: how chunks usually run."""

    execution_horizon: int | None = None
    """Rows to run before asking again, s; None means the whole chunk."""


@dataclass(frozen=True, kw_only=True)
class FixedExecutionHorizon:
    """Ask a fixed number of rows after the last observation."""

    rows: int = 4
    """Rows from one observation to the next, s; more if the answer takes longer."""
    rows_from_measured: int | None = None
    """s of a request with fewer than two committed rows; None makes no difference. So few do not show the
    commanded speed, so the answer continues from the measured speed, which lags, and every answer loses that
    lag anew. Without latency the `drawer` policy under `pipelined-rtc` takes 16.9 s asked every 2 rows and
    15.2 s every 4 (medians of eight episodes)."""
    max_in_flight: int = 1
    """Open requests at a time. With more than one, s may be smaller than the rows an answer takes; each
    request names those it follows, and the server shows the policy the rows that they will have changed
    (`core.plan.overlap`)."""


@dataclass(frozen=True)
class Continuous:
    """Ask when the last answer has come and one row has passed since its observation."""


@dataclass(frozen=True, kw_only=True)
class BeforePlanEnds:
    """Ask at the latest time at which the answer still comes before the plan ends.

    row     0   1   ...          ask          answer   H-1
            |---|----- run -------|--- latency --|-margin-|
    """

    margin_rows: int = 2
    """Rows of the plan that should remain when the answer comes."""
    overlap_rows: int | None = None
    """Ask when row n - o is due, o fixed, instead of by the measured latency: VLASH's fixed overlap."""
    execution_horizon: int | None = None
    """Rows of a chunk that are run, n; None means the whole chunk."""


When = FixedExecutionHorizon | Continuous | BeforePlanEnds


@dataclass(frozen=True, kw_only=True)
class PlainObservation:
    """Ask with the newest observation while the robot follows its plan."""

    when: When = FixedExecutionHorizon()


@dataclass(frozen=True, kw_only=True)
class PreviousChunk:
    """As `PlainObservation`, and show the policy the plan from the observation on.

    row        0   1  ...  d-1  |  d  ...  n-1  |  n  ...  H-1
    at t_obs   committed prefix |  still open   |  nothing planned yet

    The committed rows will have run before the answer can. The sampler decides how to use the open ones: some
    ignore them, some are drawn to them (real-time chunking, arXiv 2506.07339).
    """

    when: When = FixedExecutionHorizon()
    inference_delay: int | None = None
    """Committed rows, d; None takes the measured latency, rounded up to rows.

    A moving robot commits at least two of them to a policy that was trained for so many: they show the
    commanded speed. Where answers come sooner this costs up to two rows of reaction, and the `wipe` policy
    without latency takes 15.6 s with it and 20.6 s without."""


@dataclass(frozen=True)
class LastTarget:
    """The robot will be at the plan's last absolute target by then, as in VLASH's code."""


@dataclass(frozen=True)
class IntegratedDeltas:
    """The plan's motion until then is added to the measured state, as in VLASH's paper.

    s(t+d) = s(t) + a(t) + ... + a(t+d-1): the robot's present distance from its setpoint is kept.
    """


@dataclass(frozen=True)
class TrackingLag:
    """The arm follows its setpoint r with a first-order lag, dx/dt = (r - x) / tau, from the measured state.

    The gripper is at its commanded width, as in the recipe Offset. Fit tau to the robot with
    `predict.fit_time_constant`.
    """

    time_constant_s: float
    """tau [s]: how far the arm lags a steadily moving setpoint."""


RollForward = LastTarget | IntegratedDeltas | TrackingLag


@dataclass(frozen=True, kw_only=True)
class RolledForwardState:
    """Show the policy the state in which its answer will start, instead of the measured one.

    capture                start of execution
       |---- d rows of plan ----|
     state measured       state rolled forward: the answer's row 0 is due here

    VLASH, arXiv 2512.01031. Images stay as they were captured. Nothing is rolled forward while no latency is
    known or the robot is stationary.
    """

    when: When = FixedExecutionHorizon()
    inference_delay: int | None = None
    """Rows to roll forward, d; None takes the measured latency, rounded up to rows."""
    model: RollForward | None = None
    """None takes the one that the policy was trained with (`resolve_method`), or the last target."""


RequestPart = Synchronous | PlainObservation | PreviousChunk | RolledForwardState
