"""The policies of the comparison: which recipe a method needs, where it lies, and how to make it.

    prefix-<seed> ---+--> plain-<seed> ---+--> masked-<seed>
    from scratch     |                    +--> residual-<seed>
                     +--> offset-<seed>, lambda-mask-<seed>, mixed-schedule-<seed>

The prefix policy is trained from scratch; the others go on from it with the steps of `fine_tuning`, as the
default's does. The shipped ones are those of mixed-schedule-0.
"""

import shlex
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import sim
from policies.correction import CORRECTION
from policies.shipped import find_checkpoint, shipped_checkpoints
from robot_runtime.core.method.capabilities import training_recipe
from robot_runtime.core.method.table import Method
from sim.episodes.evaluation import Contestant, DelayedExpert, PeerEngine
from sim.tasks import TASKS

_FOLDER = Path(sim.__file__).parent
PLAIN, PREFIX, SHIPPED = "plain", "prefix", "mixed-schedule"
_START = {PLAIN: PREFIX, "offset": PREFIX, "lambda-mask": PREFIX, SHIPPED: PREFIX}
"""What a recipe goes on from; those not named go on from the plain policy."""
_OF_HOUSEHOLDS = ("handling", "mobile")
"""Modules of experts that no table task's needs."""
_STAND_INS = {PLAIN: (PREFIX, SHIPPED), PREFIX: (SHIPPED,)}
"""Recipes that cover all that another recipe shows, the nearest first."""


@dataclass(frozen=True, kw_only=True)
class TrainedPolicy:
    """A checkpoint, and how it came to be."""

    recipe: str
    training_seed: int
    name_or_path: str
    """As `load_policy` takes it."""
    fingerprint: str
    """Of its files' contents."""


@dataclass(frozen=True, kw_only=True)
class MissingPolicy:
    """Checkpoint that must be trained first."""

    task: str
    recipe: str
    training_seed: int
    folder: Path

    @property
    def start(self) -> "TrainedPolicy | MissingPolicy | None":
        """The policy it goes on from; None for one that is trained from scratch."""
        if self.recipe == PREFIX:
            return None
        recipe = _START.get(self.recipe, PLAIN)
        return find_policy(self.folder.parent.parent, self.task, recipe, self.training_seed)

    @property
    def can_train(self) -> bool:
        """Whether the policy that it goes on from is there, or it goes on from none."""
        return not isinstance(self.start, MissingPolicy)

    @property
    def to_train(self) -> "tuple[MissingPolicy, ...]":
        """Itself, after those it needs that are missing too."""
        start = self.start
        return (*start.to_train, self) if isinstance(start, MissingPolicy) else (self,)

    @property
    def command(self) -> tuple[str, ...]:
        """The command that makes it; all policies of a task learn from the same demonstrations."""
        match self.start:
            case None:
                init: tuple[str, ...] = ()
            case TrainedPolicy(name_or_path=name):
                init = ("--init", name)
            case MissingPolicy(folder=folder):
                init = ("--init", str(folder))
        demonstrations = self.folder.parent / "demonstrations.npz"
        return (
            *("robot-runtime", "train", "--task", self.task, "--recipe", self.recipe, *init),
            *("--seed", str(self.training_seed), "--demonstrations", str(demonstrations)),
            *("--output", str(self.folder)),
        )

    def __str__(self) -> str:
        return shlex.join(self.command)


def recipe_needed(contestant: Contestant) -> str | None:
    """The training recipe its policy should have been made with; None if it has no policy."""
    match contestant:
        case DelayedExpert():
            return None
        case PeerEngine():
            return PLAIN
        case Method() as method:
            return training_recipe(method)


def find_policy(
    checkpoints: Path, task: str, recipe: str, training_seed: int, *, stand_in: bool = False
) -> TrainedPolicy | MissingPolicy:
    """The checkpoint in `<checkpoints>/<task>/<recipe>-<seed>`, or the shipped one of the task.

    stand_in: where there is no plain one, take one that has seen the empty prefix too; where there is none
        for prefixes, one that has seen them beside other things.
    """
    for name in (recipe, *(_STAND_INS.get(recipe, ()) if stand_in else ())):
        folder = checkpoints / task / f"{name}-{training_seed}"
        if folder.is_dir():
            return trained_policy(name, training_seed, str(folder), folder)
        if name == SHIPPED and training_seed == 0 and task in shipped_checkpoints():
            return trained_policy(name, training_seed, task, find_checkpoint(task))
    return MissingPolicy(
        task=task,
        recipe=recipe,
        training_seed=training_seed,
        folder=checkpoints / task / f"{recipe}-{training_seed}",
    )


def trained_policy(recipe: str, training_seed: int, name_or_path: str, folder: Path) -> TrainedPolicy:
    """The checkpoint in a folder, known by what its files hold."""
    digest = sha256()
    for file in ("config.json", "model.safetensors", CORRECTION):
        if (folder / file).is_file():
            digest.update((folder / file).read_bytes())
    return TrainedPolicy(
        recipe=recipe,
        training_seed=training_seed,
        name_or_path=name_or_path,
        fingerprint=digest.hexdigest()[:16],
    )


def expert(task: str) -> TrainedPolicy:
    """A table task's scripted expert, in place of a policy; what it comes to follows from its code."""
    digest, of_others = sha256(), {*TASKS, *_OF_HOUSEHOLDS} - {task}
    shared = [file for file in sorted((_FOLDER / "experts").glob("*.py")) if file.stem not in of_others]
    for file in (*shared, _FOLDER / "episodes" / "delayed_expert.py"):
        digest.update(file.read_bytes())
    return TrainedPolicy(
        recipe="expert", training_seed=0, name_or_path="expert", fingerprint=digest.hexdigest()[:16]
    )
