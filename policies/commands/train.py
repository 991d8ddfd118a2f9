"""`robot-runtime train`: collect demonstrations in simulation and train a flow policy on them."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from rich.progress import Progress

from policies.commands import train_env
from robot_runtime.cli.options import (
    AnyCount,
    AnyRows,
    Count,
    InputFolder,
    KeptFile,
    Maybe,
    OutputFile,
    OutputFolder,
    Processes,
    Rows,
    Seed,
    Several,
    Steps,
    TaskName,
    Within,
    need,
)
from robot_runtime.cli.progress import counted, report_steps
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.processes import torch_threads
from robot_runtime.providers import provider
from robot_runtime.results import keep_text, result_json

if TYPE_CHECKING:
    from policies.flow.dataset import Demonstration
    from policies.flow.recipes import Recipe

RecipeName = Literal["plain", "prefix", "offset", "masked", "lambda-mask", "mixed-schedule", "residual"]
MOST_LOSS = 100.0
"""Of a flow network after its training; one that has learned nothing has about 2."""
SEEING_STEPS = 4000
"""Gradient steps from a state-based policy to a vision policy."""
MOBILE_STEPS = 8000
"""Gradient steps of a policy for a mobile robot, LeRobot's too: drawer and fetch are learned better than in
4000."""


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a policy on demonstrations of the scripted experts, or on recorded datasets.

    For whoever wants a policy of another task, method or robot state than the shipped ones. A recipe decides
    which methods the policy can be run with. With --init a recipe goes on from a trained policy in fewer
    steps; masked and residual need that, from a policy of recipe plain, and offset with --shared-observation
    cannot.
    """

    task: Several[TaskName] = ()
    """What to learn; tasks can share one network if their scene states have the same size. Not with --dataset
    of an env, which is what is learned."""
    output: OutputFolder
    """Folder of the checkpoint; its last part becomes the policy's name."""
    network: Literal["flow", "act", "diffusion"] = "flow"
    """flow: ours. act, diffusion: LeRobot's ACT or Diffusion Policy at a like size; those have no recipes."""
    recipe: Maybe[RecipeName] = None
    """What the network is shown, and so which methods it can be run with. If not given, mixed-schedule on a
    table and prefix for a mobile robot: rows that are final after one call blur when its fingers close."""
    max_delay: Maybe[AnyRows] = None
    """Most committed rows, or longest offset; as the recipe has it if not given."""
    shared_observation: bool = False
    """For recipe offset: all offsets of a sample in one sequence, with a network for that."""
    labels: Literal["base", "world"] = "base"
    """What actions of a mobile robot refer to. base: the hand in the base, and the base from where it stands.
    world: both in the world."""
    no_joints: bool = False
    """The network sees the hand alone, and not the arm's joints: for demonstrations of people
    who carried the gripper themselves."""
    init: Maybe[str] = None
    """Policy to start from: a folder, or the name of a shipped one. With --dataset either a
    state-based one, so that the task need not be learned from pictures, or a vision policy."""
    execution_horizon: Maybe[Rows] = None
    """Rows after which the policy is best asked again, kept in the checkpoint; as the method has it if not
    given."""
    seed: Seed = 0
    """Decides demonstrations, initial weights and everything that is drawn in training."""
    episodes: Maybe[Count] = None
    """Demonstrated episodes per task; the task's own number if not given. With --dataset these are added
    without pictures, none if not given: their scene states get errors like those of recorded ones."""
    steps: Maybe[Steps] = None
    """Gradient steps; as the training code has it if not given, and so are the next three."""
    batch_size: Maybe[Annotated[int, Within(1, 65_536)]] = None
    """Samples per step."""
    learning_rate: Maybe[Annotated[float, Within(0, 10, is_above=True)]] = None
    """Largest learning rate."""
    width: Maybe[Annotated[int, Within(32, 8192, multiple_of=32)]] = None
    """Width of a token in the network, a multiple of 32, or of the residual head's layers; not with --init,
    which has its own."""
    workers: Processes = 2
    """Processes that share the collecting of demonstrations; those do not depend on their number."""
    threads: Processes = 1
    """Threads that train; another number rounds differently and gives slightly different weights."""
    device: str = "cpu"
    """With --dataset of an env: where the training runs, cpu or cuda."""
    dataset: Several[InputFolder] = ()
    """LeRobot datasets made by `record`: those with pictures make a vision policy, those without a
    state-based one. Or recordings of an env by `record --env`: they make a policy of its numbers."""
    only: Literal["all", "human", "policy"] = "all"
    """With --dataset made of runs by `log export`: whose commands to learn from. human: those of a person who
    took over, policy: the others, all: both. Pauses and handovers are left out in any case."""
    horizon: Maybe[Rows] = None
    """With --dataset of an env: rows of a chunk, each a step of the env; 16 if not given."""
    random_views: Maybe[AnyCount] = None
    """With --dataset: number of randomized views: pictures of new scenes with the robot anywhere, so that
    its place says nothing of where things are; 20,000 for a mobile robot and 0 otherwise if not given."""
    estimator_steps: Maybe[AnyCount] = None
    """With --dataset: gradient steps of the encoder, which estimates the scene from pictures. That of a
    vision policy to start from is trained on for so long, and stays as it is if not given."""
    demonstrations: Maybe[KeptFile] = None
    """An .npz file to take the demonstrations from, or to keep them in if it is not there yet."""
    json: Maybe[OutputFile] = None
    """Write what was done to this file, as JSON."""

    def main(self) -> int:
        refuse_trained(self.output)
        if train_env.are_steps(self.dataset):
            return train_env.main(self)
        if not self.task:
            raise InvalidValueError("--task says what to learn; or --dataset names recordings of an env")
        if self.horizon is not None:
            raise InvalidValueError("--horizon goes with --dataset of an env: our own tasks have theirs")
        if self.device != "cpu":
            raise InvalidValueError("--device goes with --dataset of an env: our own tasks learn on the CPU")
        if self.only != "all" and not self.dataset:
            raise InvalidValueError("--only goes with --dataset: it says whose commands there count")
        if self.network != "flow" or self.dataset:
            need("lerobot")
        if self.network == "diffusion":
            need("diffusers")
        recipe = self._recipe()
        t_start = time.perf_counter()
        with torch_threads(self.threads), counted(with_notes=True) as progress:
            demonstrations = provider("simulation").demonstrations(self, progress)
            collect_s = time.perf_counter() - t_start
            cpu_start_s = time.process_time()
            if self.network == "flow":
                num_steps, num_samples = self._train(recipe, demonstrations, progress)
            else:
                num_steps = self._train_lerobot(self.network, demonstrations, progress)
                num_samples = len(demonstrations)
        train_s = time.perf_counter() - t_start - collect_s
        cpu_s = time.process_time() - cpu_start_s
        what = f"recipe {self._recipe_name}" if self.network == "flow" else self.network
        self.report(
            what,
            num_steps=num_steps,
            num_samples=num_samples,
            times={"collect_s": collect_s, "train_s": train_s, "train_cpu_s": cpu_s},
        )
        return 0

    def report(self, what: str, *, num_steps: int, num_samples: int, times: Mapping[str, float]) -> None:
        """Say what was trained, and write it to a file if one is named.

        RobotRuntimeError: its loss is far off.
        """
        print(
            f"{self.output}: {what}, {num_steps} steps on {num_samples} samples in "
            f"{times['train_s']:.0f} s ({times['train_cpu_s']:.0f} s of CPU)"
        )
        training = json.loads((self.output / "config.json").read_text()).get("training", {})
        if self.json is not None:
            keep_text(
                self.json,
                result_json({"checkpoint": str(self.output), **times, **training}, seeds=[self.seed]),
            )
        self._refuse_loss(training.get("final_loss"))

    def _refuse_loss(self, loss: float | None) -> None:
        """RobotRuntimeError: the network has learned nothing."""
        if loss is None or (np.isfinite(loss) and (loss <= MOST_LOSS or self.network != "flow")):
            return
        raise RobotRuntimeError(
            f"the loss at the end is {loss:,.0f}, where a network that has learned nothing has about 2: do "
            f"not run the policy in {self.output}; look for numbers far off in the data (dataset check), or "
            "lower --learning-rate"
        )

    @property
    def is_mobile(self) -> bool:
        """Whether the first task is one of a mobile robot; the others have to be like it."""
        return self.task[0] in provider("simulation").HOUSEHOLD_TASKS

    @property
    def _recipe_name(self) -> RecipeName:
        is_on_table = self.task[0] in provider("simulation").TABLE_TASKS
        return self.recipe or ("mixed-schedule" if is_on_table else "prefix")

    def _recipe(self) -> "Recipe":
        """The recipe with its options; InvalidValueError if they do not go together."""
        from policies.flow.recipes import NEEDS_INIT, make_recipe, refuse_beyond_chunk
        from robot_runtime.core.policy_info import checked_execution_horizon

        tasks = provider("simulation")
        horizon, servo_lag_s = tasks.recipe_facts(self.task[0])
        options: dict[str, object] = {} if self.max_delay is None else {"max_delay": self.max_delay}
        if self.shared_observation:
            options["shared_observation"] = True
        if self._recipe_name == "offset":
            options["tracking_lag_s"] = servo_lag_s
        if self._recipe_name == "residual" and self.width is not None:
            options["width"] = self.width
        recipe = make_recipe(self._recipe_name, **options)
        if self.dataset and (self.network, self.labels) != ("flow", "base"):
            raise InvalidValueError("--dataset goes with --network flow and --labels base")
        checked_execution_horizon(self.execution_horizon, horizon)
        if self.max_delay is not None:
            refuse_beyond_chunk(recipe, horizon)
        if self.network != "flow" and self.execution_horizon is not None:
            raise InvalidValueError("--execution-horizon goes with --network flow")
        if self.network != "flow" and self.init is not None:
            raise InvalidValueError(f"--init goes with --network flow, {self.network} starts anew")
        if not self.dataset and (self.estimator_steps is not None or self.random_views is not None):
            raise InvalidValueError(
                "--estimator-steps and --random-views go with --dataset: only pictures need an estimator"
            )
        if self.random_views and not self.is_mobile:
            raise InvalidValueError("--random-views are of mobile robots")
        if self.labels == "world" and not tasks.make_task(self.task[0]).schema.has_base:
            raise InvalidValueError(f"--labels world is for mobile robots, {self.task[0]} has none")
        if isinstance(recipe, NEEDS_INIT) and self.init is None:
            raise InvalidValueError(
                f"recipe {self._recipe_name} adds to a trained policy: name one with --init"
            )
        if self.init is not None:
            _refuse_unknown_tasks(self.init, self.task)
        return recipe

    def _train(
        self, recipe: "Recipe", demonstrations: "Sequence[Demonstration]", progress: Progress
    ) -> tuple[int, int]:
        """Write the checkpoint; returns the numbers of steps and of samples."""
        from policies.flow.checkpoint import load
        from policies.flow.recipes import Residual
        from policies.flow.residual import ResidualConfig, train_residual
        from policies.flow.train import TrainConfig, fine_tuning, train

        init = None if self.init is None else load(self.init)
        given = self.given("steps", "batch_size", "learning_rate")
        bar = progress.add_task(f"train {self._recipe_name}", note="")
        on_step = report_steps(progress, bar)
        if isinstance(recipe, Residual):
            assert init is not None, "checked with the recipe"
            head = replace(ResidualConfig(recipe=recipe, seed=self.seed), **given)
            progress.update(bar, total=head.steps)
            train_residual(demonstrations, head, init=init, folder=self.output, on_step=on_step)
            return head.steps, len(demonstrations)
        if self.width is not None:
            given["width"] = self.width
        if self.is_mobile and init is None:
            given.setdefault("steps", MOBILE_STEPS)
        if self.dataset and init is not None:
            given.setdefault("steps", SEEING_STEPS)
        start = (
            TrainConfig(recipe=recipe, seed=self.seed)
            if init is None
            else fine_tuning(recipe, seed=self.seed)
        )
        told = provider("simulation").training_data(self, demonstrations, init, progress)
        config = replace(start, features=told.features, **given)
        progress.update(bar, total=config.steps)
        train(
            told.demonstrations,
            config,
            schema=told.schema,
            action_spec=told.spec,
            folder=self.output,
            init=init if told.init is None else told.init,
            hand_pose=provider("simulation").hand_poses_of(self.task[0]),
            execution_horizon=self.execution_horizon,
            notes={"tasks": ", ".join(self.task), **self.datasets(), **told.notes},
            on_step=on_step,
        )
        return config.steps, len(told.demonstrations)

    def datasets(self) -> dict[str, object]:
        """What the card says of them."""
        names = ", ".join(folder.resolve().name for folder in self.dataset)
        return {"datasets": names} if names else {}

    def given(self, *names: str) -> dict[str, Any]:
        """Those of these options that are not left to the training code."""
        options = {name: getattr(self, name) for name in names}
        return {name: value for name, value in options.items() if value is not None}

    def _train_lerobot(
        self,
        network: Literal["act", "diffusion"],
        demonstrations: "Sequence[Demonstration]",
        progress: Progress,
    ) -> int:
        """Write LeRobot's files and our metadata; returns the number of steps."""
        from policies.lerobot.train import LeRobotTrainConfig, train_lerobot

        given = self.given("steps", "batch_size", "learning_rate", "width")
        if self.is_mobile:
            given.setdefault("steps", MOBILE_STEPS)
        config = LeRobotTrainConfig(network=network, seed=self.seed, **given)
        told = provider("simulation").training_data(self, demonstrations, None, progress)
        bar = progress.add_task(f"train {network}", note="", total=config.steps)
        train_lerobot(
            told.demonstrations,
            config,
            schema=replace(told.schema, cameras={}),
            action_spec=told.spec,
            features=told.features,
            folder=self.output,
            on_step=report_steps(progress, bar),
        )
        return config.steps


def refuse_trained(output: Path) -> None:
    """InvalidValueError: a policy is there, that took as long to train."""
    if (output / "config.json").is_file():
        raise InvalidValueError(
            f"--output {output} holds a trained policy: name another folder, or remove that one first"
        )


def _refuse_unknown_tasks(init: str, tasks: Sequence[TaskName]) -> None:
    """InvalidValueError: the policy to start from has not learned them."""
    from policies.flow.checkpoint import load

    make_task = provider("simulation").make_task
    known, wanted = load(init).info.tasks, tuple(make_task(task).instruction for task in tasks)
    if not set(wanted) <= set(known):
        raise InvalidValueError(
            f"--init {init} has learned {', '.join(map(repr, known))}, {' and '.join(tasks)} "
            f"wants {', '.join(map(repr, wanted))}: a policy goes on with its own tasks"
        )
