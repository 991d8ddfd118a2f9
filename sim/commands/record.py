"""`robot-runtime record`: records demonstrations as a LeRobot v3 dataset, or the steps of an env."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from robot_runtime.cli.options import (
    SHIPPED,
    AnyFolder,
    Count,
    FramesPerSecond,
    InputFile,
    Maybe,
    OutputFolder,
    Pixels,
    Processes,
    Seed,
    Share,
    Task,
    need,
)
from robot_runtime.cli.progress import counted
from robot_runtime.errors import InvalidValueError, UnknownNameError
from robot_runtime.log import DEFAULT_FOLDER

_POLICY = (
    "Name of a shipped policy, or folder of a trained one, that drives more than half of the time; the "
    f"recorded actions remain those of the expert (dataset aggregation, DAgger). {SHIPPED}"
)


@dataclass(frozen=True, kw_only=True)
class Record:
    """Record a scripted expert's demonstrations in simulation as a LeRobot v3 dataset.

    The dataset has images, for training a vision policy with `train --dataset` or with LeRobot. The expert is
    disturbed, so that the dataset shows how to recover; failed episodes are left out. With --policy all
    episodes are kept: they show the states that this policy reaches, and what the expert would do there. With
    --env your own expert is recorded in your own simulator, as numbers. `robot-runtime teleop` records a
    person. Finished episodes survive any end of the command; --resume continues after them.
    """

    task: Task = "fetch"
    env: Maybe[str] = None
    """Your own simulator in place of a task, named as for eval. The recording is a small folder without
    images for train --dataset."""
    env_file: Maybe[InputFile] = None
    """JSON or TOML file with what a Gymnasium environment does not declare, as for eval."""
    expert: Maybe[str] = None
    """With --env: the expert, path/to/file.py:function or package.module:function. It gets the env and
    returns a function from each step to an action."""
    noise: Share = 0.0
    """With --env: standard deviation of intermittent disturbances, as a share of half the action's range; the
    recording contains the expert's actions, and how it recovered."""
    workers: Processes = 2
    """With --env: number of processes that share the episodes."""
    output: OutputFolder = Path("outputs/dataset")
    """Folder of the dataset; without --resume it must not exist yet."""
    resume: bool = False
    """Continue that dataset after its last episode, as if the command had not been interrupted; another task,
    policy or seed is refused."""
    episodes: Count = 10
    """Number of episodes to try, including existing ones with --resume."""
    seed: Seed = 0
    """Seed of the scenes and disturbances."""
    policy: Annotated[str | None, arg(help=_POLICY, help_behavior_hint="(optional)")] = None
    takeover: bool = False
    """With --policy: a scripted person with a reaction time takes over where that policy fails, unattended,
    in simulated time."""
    log: AnyFolder = DEFAULT_FOLDER
    """With --takeover: folder for the runs' logs, from which the dataset is made."""
    fps: FramesPerSecond = 20
    """With --takeover: frames per second of the dataset."""
    cameras: Maybe[tuple[str, ...]] = None
    """Cameras to record; the robot's own if not given: wrist, and chest on the mobile robot."""
    size: tuple[Pixels, Pixels] = (96, 96)
    """Height and width of the images [pixels]."""

    def main(self) -> int:
        if self.takeover:
            return self._record_takeovers()
        if (self.env is None) != (self.expert is None):
            raise InvalidValueError("--env and --expert go together: where, and who acts there")
        if self.env is not None and self.expert is not None:
            return self._record_env(self.env, self.expert)
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

    def _record_takeovers(self) -> int:
        """Record takeovers by a scripted person, where the policy fails."""
        from robot_runtime.commands.teleop import episodes_in
        from sim.commands.record_scripted import record_scripted

        if self.env is not None or self.expert is not None:
            raise InvalidValueError("--takeover records our tasks, not --env")
        need("lerobot")
        already = episodes_in(self.output, self.episodes, resume=self.resume)
        return record_scripted(
            task=self.task,
            policy=self.policy,
            output=self.output,
            log=self.log,
            fps=self.fps,
            episodes=range(self.seed + already, self.seed + self.episodes),
        )

    def _record_env(self, env: str, expert: str) -> int:
        """Record the user's expert in the user's env."""
        from robot_runtime.results import keep
        from sim.commands.record_env import EnvRecording, record_env

        if self.output.exists():
            raise InvalidValueError(f"--output: {self.output} exists")
        if self.resume or self.policy is not None or self.cameras is not None:
            raise InvalidValueError("--resume, --policy and --cameras go with our own tasks, not with --env")
        recording = EnvRecording(
            env=env,
            env_file=self.env_file,
            expert=expert,
            noise=self.noise,
            seeds=range(self.seed, self.seed + self.episodes),
        )
        with counted() as progress:
            bar = progress.add_task(f"record {env}", total=self.episodes)
            steps = record_env(recording, lambda _: progress.advance(bar), workers=self.workers)
        keep(self.output, steps.save)
        print(
            f"{self.output}: {steps.num_episodes} of {self.episodes} episodes of {steps.name} succeeded "
            f"and are kept, {len(steps.state)} steps"
        )
        return 0
