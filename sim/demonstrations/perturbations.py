"""Random segments of which a demonstrated episode consists, with their disturbances.

    follow    execute the first 1 to 12 rows of a fresh plan
    drift     the same for 2 to 8 rows, while an offset of the end effector grows by up to 4 cm
    hold      hold for 2 to 12 rows, as a robot that waits for its policy; some episodes begin so
    late      8 to 24 rows under latency: every s rows a plan is made that takes effect d rows later, given
              the rows that earlier plans have committed, and is executed with an error of up to 1 cm
    learner   12 to 48 rows under latency too, with a policy's plans instead of the expert's, undisturbed

Every 50 ms, in any segment, the observation is kept with the expert's clean plan from there: a disturbance
decides which states get a label, but is never part of one. With a policy's own segments that is dataset
aggregation (DAgger, Ross et al. 2011): the policy gets labels where its own errors lead.

Some plans are conditioned on committed rows: the segment's next rows, disturbed or holding, run whatever is
observed meanwhile. This is how a policy is queried while the robot moves.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32

from robot_runtime.core.values.state import Observation
from sim.demonstrations.rollout_robot import RobotRollout, execute_row
from sim.experts import Expert
from sim.experts.mobile import SQUEEZE
from sim.experts.motion import HORIZON
from sim.scene.task import Scorer
from sim.tasks.household import CUP_RADIUS

FOLLOW_ROWS, DRIFT_ROWS, HOLD_ROWS, LATE_ROWS = (1, 12), (2, 8), (2, 12), (8, 24)
DISTURB_SHARE, HOLD_SHARE, START_HOLD_SHARE = 0.2, 0.4, 0.3
"""Share of disturbed segments, of these that hold, and of episodes that begin with a hold."""
LATE_SHARE, LATE_ROWS_MAX, LATE_ERROR_MAX = 0.25, 8, 0.01
"""Share of segments under latency, largest period of their plans in rows, and largest error [m]."""
DRIFT_MAX = 0.04
"""Largest offset of the end effector at the end of a drift [m]."""
BASE_DRIFT_MAX, YAW_DRIFT_MAX = 0.08, 0.12
"""Largest offsets of a mobile base at the end of a drift [m, rad]."""
FREE_WIDTH, MISS_BELOW, MISS_SHARE = 0.07, 0.15, 0.12
"""A mobile robot's least width and largest height for a miss [m], and the share of such segments missing."""
MISS_ROWS, MISS_WIDTH, MISS_ASIDE, MISS_RISE = (4, 12), 2 * CUP_RADIUS - SQUEEZE, 0.03, (0.05, 0.15)
"""Duration of a miss, width of fingers that close on no cup, and the end effector's offset and rise [m]. At
other widths fingers hold something, and the label would be to open them."""
LEARNER_SHARE, LEARNER_ROWS = 0.6, (12, 48)
"""Share of the learner's segments, if there is a learner, and their length."""
COMMITTED_SHARE, COMMITTED_ROWS_MAX = 0.6, 12
"""Share of plans with committed rows (none where a segment starts to move), and their largest number."""
_LOW_HAND = 0.06
"""Height over the work surface of a low end effector [m]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Demonstration:
    """One state and the expert's plan from there."""

    observation: Observation
    """The observation as at run time."""
    rows: Float32[np.ndarray, "32 D"]
    """Row i is due at `t_obs + i * 50 ms`; columns as in `action_spec_of` the task."""
    num_committed: int
    """Number of committed rows, from an older plan."""
    led: Float[np.ndarray, " D"] | None = None
    """The executed row from here on, see `RobotRollout`; not kept by `collect`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PerturbationSegment:
    """How a segment of rows is executed."""

    num_rows: int
    is_hold: bool = False
    drift: Float[np.ndarray, " m"] | None = None
    """Offset at the end of the segment, for `RobotRollout.off_course`; None: none."""
    width: float | None = None
    """Commanded width in place of the plan's [m]; None: the plan's."""
    every_rows: int = 0
    """Rows from one plan to the next, s; 0: a segment without plans."""
    delay_rows: int = 0
    """Rows until a plan takes effect, d."""
    is_learners: bool = False
    """Whether the learner's plans are executed instead of the expert's."""


def draw_segment(
    rng: np.random.Generator, *, hand_z: float, width: float | None, is_first: bool
) -> PerturbationSegment:
    """Draw the next segment; a low end effector is never pushed down into the table.

    hand_z: height over the work surface [m]. width: of a mobile robot's gripper [m]; None: robot on a table.
    """
    if width is not None and width > FREE_WIDTH and hand_z < MISS_BELOW and rng.random() < MISS_SHARE:
        return _draw_miss(rng)
    if is_first and rng.random() < START_HOLD_SHARE:
        return PerturbationSegment(num_rows=_draw_rows(rng, HOLD_ROWS), is_hold=True)
    if rng.random() < LATE_SHARE:
        return PerturbationSegment(
            num_rows=_draw_rows(rng, LATE_ROWS),
            is_hold=is_first or rng.random() < HOLD_SHARE,
            every_rows=_draw_rows(rng, (1, LATE_ROWS_MAX)),
            delay_rows=_draw_committed(rng),
        )
    if rng.random() >= DISTURB_SHARE:
        return PerturbationSegment(num_rows=_draw_rows(rng, FOLLOW_ROWS))
    if rng.random() < HOLD_SHARE:
        return PerturbationSegment(num_rows=_draw_rows(rng, HOLD_ROWS), is_hold=True)
    drift = _random_vector(rng, DRIFT_MAX)
    if hand_z < _LOW_HAND:
        drift[2] = abs(drift[2])
    if width is not None:
        drift = np.concatenate([drift, _random_base(rng, BASE_DRIFT_MAX, YAW_DRIFT_MAX)])
    return PerturbationSegment(num_rows=_draw_rows(rng, DRIFT_ROWS), drift=drift)


def draw_learner_segment(rng: np.random.Generator) -> PerturbationSegment:
    """Draw a segment with the learner's plans."""
    return PerturbationSegment(
        num_rows=_draw_rows(rng, LEARNER_ROWS),
        every_rows=_draw_rows(rng, (1, LATE_ROWS_MAX)),
        delay_rows=_draw_committed(rng),
        is_learners=True,
    )


def _draw_miss(rng: np.random.Generator) -> PerturbationSegment:
    """Draw a miss: fingers close beside the thing and rise without it, so that they have to open again."""
    aside = _random_vector(rng, MISS_ASIDE)
    drift = np.array([*aside[:2], rng.uniform(*MISS_RISE), 0.0, 0.0, 0.0])
    return PerturbationSegment(num_rows=_draw_rows(rng, MISS_ROWS), drift=drift, width=MISS_WIDTH)


def _draw_committed(rng: np.random.Generator) -> int:
    """Draw a number of committed rows, from 1 to the most, half of the draws in the first quarter.

    Few rows reveal little of the robot's velocity, so they are harder to continue.
    """
    return 1 + int(COMMITTED_ROWS_MAX * rng.random() ** 2)


def _draw_rows(rng: np.random.Generator, bounds: tuple[int, int]) -> int:
    return int(rng.integers(bounds[0], bounds[1] + 1))


def run_segment(
    robot: RobotRollout,
    expert: Expert,
    scorer: Scorer,
    segment: PerturbationSegment,
    rng: np.random.Generator,
    learner: Expert | None = None,
) -> list[Demonstration]:
    """Execute the current plan by a segment; returns an observation and the expert's plan for every row.

    learner: plans in its segments, from its own observations.
    """
    observation, exact = robot.observe()
    plan, out = expert.plan(exact), []
    commanded = _commanded_rows(robot, robot.to_world(plan, observation), segment)
    for i in range(segment.num_rows):
        if segment.is_learners and scorer.is_done:
            break
        if i > 0:
            observation, exact = robot.observe()
        is_planned, d = segment.every_rows > 0 and i % segment.every_rows == 0, 0
        if is_planned:
            d = segment.delay_rows
        elif (i > 0 or segment.is_hold) and rng.random() < COMMITTED_SHARE:
            d = _draw_committed(rng)
        committed = robot.from_world(commanded[i : i + d], observation) if d else None
        if i > 0 or d > 0:
            plan = expert.plan(exact, committed)
        out.append(
            Demonstration(
                observation=observation, rows=plan.astype(np.float32), num_committed=d, led=commanded[i]
            )
        )
        if is_planned:
            if segment.is_learners:
                assert learner is not None
                executed = robot.to_world(learner.plan(observation, committed), observation)
            else:
                executed = _with_error(robot, robot.to_world(plan, observation), d, rng)
            commanded[i + d :] = _extended(executed)[d : len(commanded) - i]
        execute_row(robot, scorer, commanded[i], commanded[i + 1])
    return out


def _with_error(
    robot: RobotRollout, rows: Float[np.ndarray, "n D"], first: int, rng: np.random.Generator
) -> Float[np.ndarray, "n D"]:
    """Executed rows with a small error after the row `first`."""
    error = _random_vector(rng, LATE_ERROR_MAX)
    if robot.world.has_base:
        error = np.concatenate([error, _random_base(rng, LATE_ERROR_MAX, LATE_ERROR_MAX)])
    return robot.off_course(rows, error, num_rows=4, first=first)


def _commanded_rows(
    robot: RobotRollout, plan: Float[np.ndarray, "32 D"], segment: PerturbationSegment
) -> Float[np.ndarray, "n D"]:
    """The segment's disturbed version of a plan, extended beyond the segment."""
    if segment.is_hold:
        return _extended(plan[:1])
    if segment.drift is None:
        return _extended(plan)
    rows = robot.off_course(plan, segment.drift, num_rows=segment.num_rows)
    if segment.width is not None:
        rows[:, -1] = segment.width
    return _extended(rows)


def _extended(rows: Float[np.ndarray, "m D"]) -> Float[np.ndarray, "n D"]:
    """The rows, with the last one repeated beyond the longest segment."""
    return np.concatenate([rows, np.tile(rows[-1], (2 * HORIZON - len(rows), 1))])


def _random_vector(rng: np.random.Generator, longest: float) -> Float[np.ndarray, "3"]:
    direction = rng.standard_normal(3)
    return direction * (rng.uniform(0.0, longest) / np.linalg.norm(direction))


def _random_base(rng: np.random.Generator, longest: float, turn: float) -> Float[np.ndarray, "3"]:
    """A random offset of a base (x, y, yaw)."""
    angle, length = rng.uniform(0.0, 2 * np.pi), rng.uniform(0.0, longest)
    return np.array([length * np.cos(angle), length * np.sin(angle), rng.uniform(-turn, turn)])
