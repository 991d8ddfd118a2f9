"""`robot-runtime replay --on sim`: the simulated robot follows a recorded episode."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from robot_runtime.commands.replay_on import LINGER_S, METHOD, far_words, off_by
from robot_runtime.errors import InvalidValueError

if TYPE_CHECKING:
    from robot_runtime.log.reader import RunLog


def on_simulation(log: "RunLog", episode: int, *, video: Path | None) -> str:
    """Replay an episode in the log's task and scene, under a virtual clock; returns a line on the result.

    InvalidValueError: the log is of no simulated task.
    """
    from robot_runtime.core.method.table import method_named
    from robot_runtime.evaluation.loop import play, play_together
    from robot_runtime.evaluation.traces import constant
    from robot_runtime.log.played import PlayedPolicy, RecordedWay
    from sim.episodes.report import SNAPSHOT_PERIOD_NS, write_side_by_side
    from sim.episodes.task_env import TaskEnv

    task = task_of(log)
    recorded = RecordedWay.of(log, episode)
    env = TaskEnv(
        task,
        control_period_ns=log.info.control_period_ns,
        episode_s=recorded.duration_s + LINGER_S,
        snapshot_period_ns=None if video is None else SNAPSHOT_PERIOD_NS,
    )
    policy = PlayedPolicy(recorded)
    seed = log.info.seed
    asked = play(policy, env, method=method_named(METHOD), seed=seed, trace=constant(0))
    (played,) = play_together(policy, [asked])
    if video is not None:
        write_side_by_side(video, task, {"recorded": replace(played, snapshots=env.snapshots)})
    ended = "success" if played.result.score.success else "no success"
    sent = {tick.now_ns / 1e9: tick.command.parts for tick in played.record.ticks}
    off = max((off_by(recorded, t_s, parts) for t_s, parts in sent.items()), default=0.0)
    return f"{task}, seed {seed}: {ended} after {played.result.summary['duration_s']:.2f} s; {far_words(off)}"


def task_of(log: "RunLog") -> str:
    """The name of the simulated task whose instruction the log has."""
    from sim.tasks import TASKS, make_task

    for name in TASKS:
        if make_task(name).instruction == log.info.task:
            return name
    raise InvalidValueError(
        f"{log.path} is of {log.info.task!r}, which is none of the simulated tasks ({', '.join(TASKS)}); "
        "--on robot.toml moves a robot"
    )
