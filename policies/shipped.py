"""Finds checkpoints by name or path. No torch."""

from pathlib import Path

from robot_runtime.errors import CheckpointError

_SHIPPED = Path(__file__).parent / "checkpoints"
_WEIGHTS = "model.safetensors"


def shipped_checkpoints() -> tuple[str, ...]:
    """Names of the checkpoints that come with the package: all in a clone, a few in an installed wheel."""
    return tuple(name for name in _names() if (_SHIPPED / name / _WEIGHTS).is_file())


def checkpoint_for(task: str, recipe: str) -> str | None:
    """The shipped checkpoint of a task: TASK-RECIPE if it was trained with this recipe, else TASK; None if
    neither exists."""
    names = shipped_checkpoints()
    return next((name for name in (f"{task}-{recipe}", task) if name in names), None)


def refuse_left_out(name: str) -> None:
    """Raises a CheckpointError for a name whose weights are not in the wheel, with where to find them."""
    if name in _names() and name not in shipped_checkpoints():
        raise CheckpointError(
            f"the weights of {name!r} are not in the installed package, which has those of "
            f"{', '.join(shipped_checkpoints())}; they are in the repository: in a clone {name!r} works "
            f"as it is; elsewhere, use the clone's folder policies/checkpoints/{name}"
        )


def find_checkpoint(name_or_path: str | Path) -> Path:
    """The folder of a shipped checkpoint, or of a path; CheckpointError lists the shipped names."""
    if str(name_or_path) in shipped_checkpoints():
        return _SHIPPED / str(name_or_path)
    folder = Path(name_or_path)
    if not folder.is_dir():
        refuse_left_out(str(name_or_path))
        names = ", ".join(shipped_checkpoints()) or "none"
        raise CheckpointError(f"no checkpoint folder {str(folder)!r}; shipped checkpoints: {names}")
    return folder


def _names() -> tuple[str, ...]:
    return tuple(sorted(config.parent.name for config in _SHIPPED.glob("*/config.json")))
