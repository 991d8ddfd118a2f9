"""`robot-runtime record`: demonstrations of a scripted expert as a LeRobot v3 dataset."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from robot_runtime.cli.options import SHIPPED, Count, Maybe, OutputFolder, Pixels, Seed, Task, need
from robot_runtime.cli.progress import counted
from robot_runtime.errors import InvalidValueError, UnknownNameError

_POLICY = (
    "Name of a shipped policy, or folder of a trained one, that drives more than half of the time; the "
    f"recorded actions stay the expert's (dataset aggregation, DAgger). {SHIPPED}"
)


@dataclass(frozen=True, kw_only=True)
class Record:
    """Record demonstrations of a scripted expert in simulation, with pictures, as a LeRobot v3 dataset.

    For training a vision policy, with `train --dataset` or with LeRobot. The expert is disturbed, so that
    the dataset shows how to recover; episodes that fail are left out. With --policy all episodes are kept:
    they show where that policy leads itself, and what the expert would do there. Finished episodes outlive
    whatever ends the command; --resume goes on after them.
    """

    task: Task = "fetch"
    output: OutputFolder = Path("outputs/dataset")
    """Folder of the dataset; it must not exist yet without --resume."""
    resume: bool = False
    """Go on in that dataset after its last episode, as if the same command had not been interrupted; with
    another task, policy or seed it is refused."""
    episodes: Count = 10
    """Number of episodes to try; with --resume those that are there count too."""
    seed: Seed = 0
    """Decides scenes and disturbances."""
    policy: Annotated[str | None, arg(help=_POLICY, help_behavior_hint="(optional)")] = None
    cameras: Maybe[tuple[str, ...]] = None
    """Cameras to record; the robot's own if not given: wrist, and chest on the mobile robot."""
    size: tuple[Pixels, Pixels] = (96, 96)
    """Height and width of the pictures [pixels]."""

    def main(self) -> int:
        need("lerobot")
        if not self.resume and self.output.exists():
            raise InvalidValueError(f"--output: {self.output} exists (--resume goes on in one)")
        from policies.load import load_policy
        from sim.demonstrations.learner import Learner
        from sim.demonstrations.recording import record_expert
        from sim.tasks import make_task

        task = make_task(self.task)
        has = task.schema.cameras
        cameras = tuple(name for name in has if name != "overview") if self.cameras is None else self.cameras
        for name in cameras:
            if name not in has:
                raise UnknownNameError("camera", name, has)
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
