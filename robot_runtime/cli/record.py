"""`robot-runtime record`: demonstrations of a scripted expert as a LeRobot v3 dataset."""

from dataclasses import dataclass, replace
from pathlib import Path

from robot_runtime.cli.progress import counted


@dataclass(frozen=True, kw_only=True)
class Record:
    """Record demonstrations of a scripted expert, with pictures, as a LeRobot v3 dataset.

    Episodes are disturbed, as those that `train` collects; those that fail are left out. With --policy all
    are kept: they show where a policy leads itself, and what the expert would do there, to `train` on too.
    Finished episodes outlive whatever ends the command; --resume goes on after them.
    """

    task: str = "fetch"
    """What is demonstrated."""
    output: Path = Path("outputs/dataset")
    """Folder of the dataset; must not exist without --resume."""
    resume: bool = False
    """Go on in that dataset after its last episode, as if the same command had not been interrupted."""
    episodes: int = 10
    """How many to try."""
    seed: int = 0
    """Draws scenes and disturbances."""
    policy: str | None = None
    """Checkpoint, or a shipped one's name, that drives more than half of the time; the labels stay the
    expert's (dataset aggregation, DAgger)."""
    cameras: tuple[str, ...] | None = None
    """Which to record: those of the robot if not given (chest and wrist, where there is a chest)."""
    size: tuple[int, int] = (96, 96)
    """Height and width of the pictures [pixels]."""

    def main(self) -> int:
        from policies.loading import load_policy
        from robot_runtime.errors import InvalidValueError, UnknownNameError
        from sim.learner import Learner
        from sim.recording import record_expert
        from sim.tasks import make_task

        task = make_task(self.task)
        has = task.schema.cameras
        cameras = tuple(name for name in has if name != "overview") if self.cameras is None else self.cameras
        for name in cameras:
            if name not in has:
                raise UnknownNameError("camera", name, has)
        if self.episodes < 1:
            raise InvalidValueError(f"need episodes >= 1, got {self.episodes}")
        learner = None
        if self.policy is not None:
            robot = replace(task.schema, cameras=dict.fromkeys(cameras, self.size))
            learner = Learner(load_policy(self.policy), robot=robot, seed=self.seed)
        with counted() as progress:
            bar = progress.add_task(f"record {self.task}", total=self.episodes)
            kept = record_expert(
                self.task,
                self.output,
                num_episodes=self.episodes,
                seed=self.seed,
                cameras=cameras,
                size=self.size,
                learner=learner,
                source="" if self.policy is None else f"by {self.policy}",
                resume=self.resume,
                say=progress.console.print,
                progress=lambda done, kept: progress.update(bar, completed=done),
            )
        through = f"cameras {', '.join(cameras)}" if cameras else "no cameras"
        print(f"{self.output}: {kept} of {self.episodes} episodes of {self.task}, {through}")
        return 0
