"""`robot-runtime train`: trains a policy on demonstrations, collected in simulation or recorded."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from rich.progress import Progress

from policies.commands import train_env, train_images
from robot_runtime.cli.options import (
    AnyCount,
    AnyRows,
    Count,
    InputFolder,
    KeptFile,
    Maybe,
    Milliseconds,
    OutputFile,
    OutputFolder,
    Pixels,
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
"""Largest loss of a flow network after its training; an untrained one has about 2."""
SEEING_STEPS = 4000
"""Gradient steps from a state-based policy to a vision policy."""
MOBILE_STEPS = 8000
"""Gradient steps of a policy for a mobile robot, LeRobot's too: drawer and fetch need more than 4000."""


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a policy on demonstrations of the scripted experts, or on recorded datasets.

    Use it for a policy of another task, method or robot state than the shipped ones. The recipe decides which
    methods the policy can be run with. With --init a recipe continues from a trained policy in fewer steps;
    masked and residual require that, from a policy of recipe plain, and offset with --shared-observation does
    not support it.
    """

    task: Several[TaskName] = ()
    """Tasks to learn; they can share one network if their scene states have the same size. Not for --dataset
    of an env, whose task is learned."""
    output: OutputFolder
    """Folder of the checkpoint; its name becomes the policy's name."""
    network: Literal["flow", "act", "diffusion"] = "flow"
    """flow: our own network. act, diffusion: LeRobot's ACT or Diffusion Policy at a similar size; those have
    no recipes."""
    recipe: Maybe[RecipeName] = None
    """Inputs of the network in training, and so the methods that it can be run with. If not given,
    mixed-schedule on a table and prefix for a mobile robot, as rows that are final after one call blur the
    moment when its fingers close."""
    max_delay: Maybe[AnyRows] = None
    """Largest number of committed rows, or longest offset; the recipe's default if not given."""
    shared_observation: bool = False
    """For recipe offset: train all offsets of a sample in one sequence, with a network for that."""
    labels: Literal["base", "world", "relative"] = "base"
    """Frames of a mobile robot's actions. base: the end effector in the base, and the base relative to its
    pose. world: both in the world. relative: the end effector relative to its pose, as UMI's; from images."""
    no_joints: bool = False
    """Show the network only the end effector's pose, not the arm's joints: for demonstrations in which a
    person carried the gripper."""
    init: Maybe[str] = None
    """Policy to start from: a folder, or the name of a shipped one. With --dataset either a state-based
    policy, so that the task need not be learned from images, or a vision policy."""
    execution_horizon: Maybe[Rows] = None
    """Best number of rows to run before the next request, stored in the checkpoint; the method's own number
    if not given."""
    seed: Seed = 0
    """Seed of the demonstrations, the initial weights and all random draws in training."""
    episodes: Maybe[Count] = None
    """Demonstrated episodes per task; the task's own number if not given. With --dataset these are extra
    episodes without images, none if not given: their scene states get errors like those of recorded ones."""
    steps: Maybe[Steps] = None
    """Gradient steps; the training code's default if not given, as for the next three options."""
    batch_size: Maybe[Annotated[int, Within(1, 65_536)]] = None
    """Samples per step."""
    learning_rate: Maybe[Annotated[float, Within(0, 10, is_above=True)]] = None
    """Largest learning rate."""
    width: Maybe[Annotated[int, Within(32, 8192, multiple_of=32)]] = None
    """Width of a token in the network, or of the residual head's layers; a multiple of 32. Not with --init,
    which has its own."""
    workers: Processes = 2
    """Processes that collect demonstrations; the result does not depend on their number."""
    threads: Processes = 1
    """Training threads; another number rounds differently and gives slightly different weights."""
    device: str = "cpu"
    """With --dataset of an env: device of the training, cpu or cuda."""
    dataset: Several[InputFolder] = ()
    """LeRobot datasets made by `record`: with images for a vision policy, without for a state-based policy.
    Or recordings of an env by `record --env`, for a policy of its numbers."""
    only: Literal["all", "human", "policy"] = "all"
    """With --dataset made by `log export`: whose commands to learn from. human: those of an operator who took
    over; policy: the others; all: both. Pauses and handovers are always left out."""
    horizon: Maybe[Rows] = None
    """With --dataset of an env: rows of a chunk, each a step of the env; 16 if not given. From images: 32."""
    random_views: Maybe[AnyCount] = None
    """With --dataset: number of randomized views: images of new scenes with the robot at random poses, so
    that its pose does not reveal where objects are; if not given, 20,000 for a mobile robot and 0
    otherwise."""
    estimator_steps: Maybe[AnyCount] = None
    """With --dataset: gradient steps of the encoder, which estimates the scene from images. The encoder of a
    vision policy in --init is trained further for this many steps, and stays unchanged if not given."""
    encoder: Maybe[str] = None
    """With --dataset of images: train an image encoder together with the policy, which then needs no scene
    state. small: convolutions; resnet18; or a file with weights of torchvision's or timm's ResNet-18. Default
    for labels of captures: small."""
    image_side: Maybe[Pixels] = None
    """Longer side of the images that the encoder sees [pixels]; larger ones are reduced to it. 128 if not
    given."""
    mask: Several[str] = ()
    """CAMERA=TOP,LEFT,BOTTOM,RIGHT, as shares of the image: a rectangle that the encoder does not see, such
    as the gripper, which differs between a person's tool and the robot."""
    image_age_ms: Milliseconds = 0.0
    """Age of images on the robot, capture to observation, as `robot-runtime trace` prints it: the policy is
    shown images as old as that."""
    history: Annotated[int, Within(1, 8)] = 1
    """Number of observations with images that the policy sees, the newest included."""
    demonstrations: Maybe[KeptFile] = None
    """An .npz file to read the demonstrations from; it is written if it does not exist yet."""
    json: Maybe[OutputFile] = None
    """Write a report of the training to this file, as JSON."""

    def main(self) -> int:
        refuse_trained(self.output)
        if train_env.are_steps(self.dataset):
            return train_env.main(self)
        if train_images.is_from_images(self):
            return train_images.main(self)
        if not self.task:
            raise InvalidValueError(
                "--task selects what to learn; or --dataset names recordings of an env, or labels of "
                "captures with images"
            )
        of_images = (
            self.mask,
            self.image_side,
            self.image_age_ms,
            self.history > 1,
            self.labels == "relative",
        )
        if any(of_images):
            raise InvalidValueError(
                "--labels relative, --mask, --history, --image-side and --image-age-ms go with a --dataset "
                "of images and --encoder"
            )
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
        """Print what was trained, and write it to --json.

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
        """Raise RobotRuntimeError if the network has learned nothing."""
        if loss is None or (np.isfinite(loss) and (loss <= MOST_LOSS or self.network != "flow")):
            return
        raise RobotRuntimeError(
            f"the loss at the end is {loss:,.0f}, where a network that has learned nothing has about 2: do "
            f"not run the policy in {self.output}; look for numbers far off in the data (dataset check), or "
            "lower --learning-rate"
        )

    @property
    def is_mobile(self) -> bool:
        """Whether the first task is for a mobile robot; all tasks must be of the same kind."""
        return self.task[0] in provider("simulation").HOUSEHOLD_TASKS

    @property
    def _recipe_name(self) -> RecipeName:
        is_on_table = self.task[0] in provider("simulation").TABLE_TASKS
        return self.recipe or ("mixed-schedule" if is_on_table else "prefix")

    def _recipe(self) -> "Recipe":
        """Return the recipe with its options; InvalidValueError if they do not go together."""
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
        """Write the checkpoint; return the numbers of steps and of samples."""
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
        data = provider("simulation").training_data(self, demonstrations, init, progress)
        config = replace(start, features=data.features, **given)
        progress.update(bar, total=config.steps)
        train(
            data.demonstrations,
            config,
            schema=data.schema,
            action_spec=data.spec,
            folder=self.output,
            init=init if data.init is None else data.init,
            hand_pose=provider("simulation").hand_poses_of(self.task[0]),
            execution_horizon=self.execution_horizon,
            notes={"tasks": ", ".join(self.task), **self.datasets(), **data.notes},
            on_step=on_step,
        )
        return config.steps, len(data.demonstrations)

    def datasets(self) -> dict[str, object]:
        """Return the card's entries on the datasets."""
        names = ", ".join(folder.resolve().name for folder in self.dataset)
        return {"datasets": names} if names else {}

    def given(self, *names: str) -> dict[str, Any]:
        """Return those of these options that are given, and not left to the training code."""
        options = {name: getattr(self, name) for name in names}
        return {name: value for name, value in options.items() if value is not None}

    def _train_lerobot(
        self,
        network: Literal["act", "diffusion"],
        demonstrations: "Sequence[Demonstration]",
        progress: Progress,
    ) -> int:
        """Write LeRobot's files and our metadata; return the number of steps."""
        from policies.lerobot.train import LeRobotTrainConfig, train_lerobot

        given = self.given("steps", "batch_size", "learning_rate", "width")
        if self.is_mobile:
            given.setdefault("steps", MOBILE_STEPS)
        config = LeRobotTrainConfig(network=network, seed=self.seed, **given)
        data = provider("simulation").training_data(self, demonstrations, None, progress)
        bar = progress.add_task(f"train {network}", note="", total=config.steps)
        train_lerobot(
            data.demonstrations,
            config,
            schema=replace(data.schema, cameras={}),
            action_spec=data.spec,
            features=data.features,
            folder=self.output,
            on_step=report_steps(progress, bar),
        )
        return config.steps


def refuse_trained(output: Path) -> None:
    """Raise InvalidValueError if the folder holds a trained policy."""
    if (output / "config.json").is_file():
        raise InvalidValueError(
            f"--output {output} holds a trained policy: name another folder, or remove that one first"
        )


def _refuse_unknown_tasks(init: str, tasks: Sequence[TaskName]) -> None:
    """Raise InvalidValueError if the policy to start from has not learned the tasks."""
    from policies.flow.checkpoint import load

    make_task = provider("simulation").make_task
    known, wanted = load(init).info.tasks, tuple(make_task(task).instruction for task in tasks)
    if not set(wanted) <= set(known):
        raise InvalidValueError(
            f"--init {init} has learned {', '.join(map(repr, known))}, {' and '.join(tasks)} "
            f"wants {', '.join(map(repr, wanted))}: a policy goes on with its own tasks"
        )
