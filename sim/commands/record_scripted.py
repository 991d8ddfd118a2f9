"""`robot-runtime record --takeover`: records a scripted person taking over a policy, in simulated time."""

from pathlib import Path

from robot_runtime.cli.progress import counted
from robot_runtime.errors import InvalidValueError
from robot_runtime.log.config import LogConfig

EXPERT = "expert"
TASK = "fetch"


def record_scripted(
    *, task: str, policy: str | None, output: Path, log: Path, fps: int, episodes: range
) -> int:
    """Run episodes under the virtual clock; each becomes a log and an episode of the dataset, also if it
    fails.

    policy: a shipped one or a folder; None: the expert, made short-sighted. episodes: their seeds.
    InvalidValueError: there is no scripted person for the task.
    """
    if task != TASK:
        raise InvalidValueError(f"--takeover knows how to correct {TASK}, not {task}: --task {TASK}")
    from policies.load import load_policy
    from robot_runtime.dataset.from_log import from_log
    from robot_runtime.log.reader import RunLog
    from sim.takeover.episode import bad_policy, run_takeover

    driver = bad_policy() if policy is None else load_policy(policy)
    num_done = num_taken = num_frames = 0
    with counted() as progress:
        bar = progress.add_task(f"record {task}", total=len(episodes))
        for seed in episodes:
            run = run_takeover(driver, seed, log=LogConfig(folder=log))
            num_done, num_taken = num_done + run.success, num_taken + run.num_takeovers
            for path in run.episode.record.log_files:
                done = from_log(RunLog.open(path), output, fps=fps, cameras=(), operator=EXPERT)
                num_frames += sum(each.num_frames for each in done)
            progress.advance(bar)
    print(
        f"{output}: {len(episodes)} episodes of {task}, {num_done} succeeded, {num_taken} takeovers, "
        f"{num_frames} frames; logs: {log}"
    )
    return 0
