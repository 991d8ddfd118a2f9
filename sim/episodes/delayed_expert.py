"""The physical limit under latency: the scripted expert with delayed observations.

At every row the expert gets the newest observation whose answer can have arrived, and the commands since
then as committed rows; the next due row of its plan is executed.

    t_obs                                    now      next row of the plan
      |------------- delay(t_obs) -----------|          |
      ●────────●────────●────────●────────●──┼──────────○          ● committed   ○ the expert's choice

It plans at every row whatever the delay, as if any number of requests were in flight, and no policy samples
its answer. Its commands pass the robot's limits, as any method's do: a plan that has changed asks for a jump,
and no joint makes one. Its failures are due to the delay and the robot, not to a method.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.action import ActionSpec, BasePose, GripperWidth
from robot_runtime.core.values.state import Observation
from sim.demonstrations.rollout_robot import TICK_NS, TICKS_PER_ROW, RobotRollout, robot_rollout
from sim.experts import Expert, action_spec_of, make_expert
from sim.experts.motion import HORIZON
from sim.scene.task import EpisodeScore
from sim.scene.world import World

DelayTrace = Callable[[int], int]
"""Delay from capture of an observation to arrival of its answer [ns], by time within the episode [ns]."""


def constant_delay(delay_ns: int) -> DelayTrace:
    """A constant delay; ValueError if it is negative."""
    if delay_ns < 0:
        raise ValueError(f"expected a delay of at least 0 ns, got {delay_ns}")
    return lambda t_ns: delay_ns


def run_delayed_expert(
    world: World,
    *,
    seed: int,
    delay: DelayTrace,
    trace: list[np.ndarray] | None = None,
) -> EpisodeScore:
    """Run and score one episode; the robot holds until the first answer arrives.

    trace: gets a snapshot of the world every row, for drawing.
    """
    world.reset(seed)
    expert, scorer = make_expert(world.task.name, seed=seed), world.task.make_scorer(world)
    robot, spec = robot_rollout(world), action_spec_of(world.task.name)
    seen: list[tuple[int, Observation]] = []
    commanded: list[Float[np.ndarray, " D"]] = []
    path = np.tile(robot.at_rest(), (TICKS_PER_ROW, 1))
    t_obs_ns: int | None = None
    while world.t_ns < world.task.episode_s * 1e9 and not scorer.is_done:
        now = len(commanded)
        if trace is not None and now % TICKS_PER_ROW == 0:
            trace.append(world.snapshot())
        seen.append((world.t_ns + delay(world.t_ns), robot.observe()[0]))
        arrived = [observation for t_ns, observation in seen if t_ns <= world.t_ns]
        if now % TICKS_PER_ROW == 0 and arrived:
            t_obs_ns = arrived[-1].t_obs_ns
            seen = [entry for entry in seen if entry[1].t_obs_ns >= t_obs_ns]
            num_ticks_ago = (world.t_ns - t_obs_ns) // TICK_NS
            path = _next_row(expert, robot, spec, arrived[-1], commanded, num_ticks_ago)
        commanded.append(robot.send(scorer, path[now % TICKS_PER_ROW], t_obs_ns))
    return scorer.score()


def _next_row(
    expert: Expert,
    robot: RobotRollout,
    spec: ActionSpec,
    observation: Observation,
    commanded: list[Float[np.ndarray, " D"]],
    num_ticks_ago: int,
) -> Float[np.ndarray, "n D"]:
    """Commands for the ticks of a row, n = `TICKS_PER_ROW`, by a plan from the observation.

    commanded: numbers sent at every tick of the episode, as for `RobotRollout`. Rows that were due before now
    are committed; the path leads from the last command straight to the first row after them, and on from row
    to row. Past the last row the robot holds.
    """
    d = -(-num_ticks_ago // TICKS_PER_ROW)
    now = len(commanded)
    seen = now - num_ticks_ago
    if d >= HORIZON:
        return np.tile(commanded[-1], (TICKS_PER_ROW, 1))
    committed = robot.from_world(np.array(commanded[seen::TICKS_PER_ROW]), observation) if d else None
    plan = robot.to_world(expert.plan(observation, committed), observation)
    ticks, rows = seen + TICKS_PER_ROW * np.arange(d, HORIZON), plan[d:]
    if commanded:
        ticks, rows = np.insert(ticks, 0, now - 1), np.insert(rows, 0, commanded[-1], axis=0)
    due = now + np.arange(TICKS_PER_ROW)
    for field, columns in spec.columns():
        if isinstance(field, BasePose):
            rows[:, columns.stop - 1] = np.unwrap(rows[:, columns.stop - 1])
    out = np.array([np.interp(due, ticks, column) for column in rows.T]).T
    for field, columns in spec.columns():
        if isinstance(field, GripperWidth):
            out[:, columns] = rows[np.searchsorted(ticks, due, side="right") - 1, columns]
    return out
