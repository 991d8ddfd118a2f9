"""Where checkpoints are found. No torch."""

from pathlib import Path

from robot_runtime.errors import CheckpointError

_SHIPPED = Path(__file__).parent / "checkpoints"
_WEIGHTS = "model.safetensors"


def shipped_checkpoints() -> tuple[str, ...]:
    """Names of the checkpoints that come with the package: all in a clone, a few in an installed wheel."""
    return tuple(name for name in _names() if (_SHIPPED / name / _WEIGHTS).is_file())


def checkpoint_for(task: str, recipe: str) -> str | None:
    """The shipped checkpoint of a task that was trained with this recipe, TASK-RECIPE, or the task's own;
    None if there is neither."""
    names = shipped_checkpoints()
    return next((name for name in (f"{task}-{recipe}", task) if name in names), None)


def refuse_left_out(name: str) -> None:
    """CheckpointError for a name whose weights are too big for the wheel: where they are."""
    if name in _names() and name not in shipped_checkpoints():
        raise CheckpointError(
            f"the weights of {name!r} are not in the installed package, which has those of "
            f"{', '.join(shipped_checkpoints())}; they are in the repository: in a clone {name!r} works "
            f"as it is, and elsewhere the clone's folder policies/checkpoints/{name} does in its place"
        )


def find_checkpoint(name_or_path: str | Path) -> Path:
    """The folder of a shipped checkpoint's name, or of a path.

    CheckpointError lists the shipped names if there is neither.
    """
    if str(name_or_path) in shipped_checkpoints():
        return _SHIPPED / str(name_or_path)
    folder = Path(name_or_path)
    if not folder.is_dir():
        refuse_left_out(str(name_or_path))
        names = ", ".join(shipped_checkpoints()) or "none"
        raise CheckpointError(f"no checkpoint folder {str(folder)!r}; checkpoints that are shipped: {names}")
    return folder


def _names() -> tuple[str, ...]:
    return tuple(sorted(config.parent.name for config in _SHIPPED.glob("*/config.json")))
