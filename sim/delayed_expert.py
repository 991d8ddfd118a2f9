"""The physical limit under latency: the scripted expert, told everything the robot knows, late.

At every row the expert gets the newest observation whose answer can be there, and what has been commanded
since as a commitment; the row of its plan that is due next is executed.

    t_obs                                    now      next row of the plan
      |------------- delay(t_obs) -----------|          |
      ●────────●────────●────────●────────●──┼──────────○          ● committed   ○ the expert's choice

It plans at every row whatever the delay, so it is as if any number of requests were under way at once, and no
policy samples its answer. What it cannot do, the information does not allow to this expert.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from robot_runtime.core.action import Command, GripperCommand, JointCommand
from robot_runtime.core.state import Observation
from sim.demonstrations import TICK_NS, TICKS_PER_ROW
from sim.experts import Expert, make_expert
from sim.experts.motion import HORIZON
from sim.task import EpisodeScore
from sim.world import World

DelayTrace = Callable[[int], int]
"""From the capture of an observation to the arrival of its answer [ns], by time within the episode [ns]."""


def constant_delay(delay_ns: int) -> DelayTrace:
    """The same delay always; ValueError if it is negative."""
    if delay_ns < 0:
        raise ValueError(f"a delay is not negative, got {delay_ns} ns")
    return lambda t_ns: delay_ns


def run_delayed_expert(
    world: World, *, seed: int, delay: DelayTrace, trace: list[np.ndarray] | None = None
) -> EpisodeScore:
    """Score of one episode; the robot stands until the first answer is there.

    trace: gets a snapshot of the world every row, for drawing.
    """
    world.reset(seed)
    expert, scorer = make_expert(world.task.name, seed=seed), world.task.make_scorer(world)
    seen: list[tuple[int, Observation]] = []
    row = np.array([*world.q, world.gripper_width])
    commanded: list[Float[np.ndarray, " 8"]] = []
    path: Float[np.ndarray, "5 8"] = np.tile(row, (TICKS_PER_ROW, 1))
    t_obs_ns: int | None = None
    while world.t_ns < world.task.episode_s * 1e9 and not scorer.is_done:
        i = len(commanded) % TICKS_PER_ROW
        seen.append((world.t_ns + delay(world.t_ns), world.observe()))
        if i == 0:
            if trace is not None:
                trace.append(world.snapshot())
            arrived = [o for t_ns, o in seen if t_ns <= world.t_ns]
            if arrived:
                seen = [entry for entry in seen if entry[1].t_obs_ns >= arrived[-1].t_obs_ns]
                t_obs_ns = arrived[-1].t_obs_ns
                num_ticks_ago = (world.t_ns - t_obs_ns) // TICK_NS
                path = _next_commands(expert, arrived[-1], commanded, num_ticks_ago)
        command = path[i]
        commanded.append(command)
        q, width = command[:7], float(command[7])
        world.set_joint_target(q)
        world.set_gripper_target(width)
        tick = Command(arm=JointCommand(q=q), gripper=GripperCommand(width=width))
        scorer.on_tick(world.t_ns, world, tick, t_obs_ns)
        world.advance_to(world.t_ns + TICK_NS)
    return scorer.score()


def _next_commands(
    expert: Expert,
    observation: Observation,
    commanded: list[Float[np.ndarray, " 8"]],
    num_ticks_ago: int,
) -> Float[np.ndarray, "5 8"]:
    """Commands of the ticks from now until the next planning, by a plan from that observation.

    commanded: what was sent at every tick of the episode. Rows that were due before now are committed; the
    way leads from the last command straight to the first row after them, and on to the next.
    """
    d = -(-num_ticks_ago // TICKS_PER_ROW)
    now = len(commanded)
    if d + 1 >= HORIZON:
        return np.tile(commanded[-1], (TICKS_PER_ROW, 1))
    seen = now - num_ticks_ago
    committed = np.array(commanded[seen::TICKS_PER_ROW]) if d else None
    plan = expert.plan(observation, committed)
    due = seen + TICKS_PER_ROW * d
    knots = [(due, plan[d]), (due + TICKS_PER_ROW, plan[d + 1])]
    if commanded:
        knots.insert(0, (now - 1, commanded[-1]))
    ticks, rows = np.array([t for t, _ in knots]), np.array([row for _, row in knots])
    out = np.array([[np.interp(now + i, ticks, column) for column in rows.T] for i in range(TICKS_PER_ROW)])
    out[:, 7] = [rows[np.searchsorted(ticks, now + i, side="right") - 1, 7] for i in range(TICKS_PER_ROW)]
    return out
