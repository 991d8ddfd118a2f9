"""Where checkpoints are found. No torch."""

from pathlib import Path

from robot_runtime.errors import CheckpointError

_SHIPPED = Path(__file__).parent / "checkpoints"


def shipped_checkpoints() -> tuple[str, ...]:
    """Names of the checkpoints that come with the package."""
    return tuple(sorted(config.parent.name for config in _SHIPPED.glob("*/config.json")))


def find_checkpoint(name_or_path: str | Path) -> Path:
    """The folder of a shipped checkpoint's name, or of a path.

    CheckpointError lists the shipped names if there is neither.
    """
    if str(name_or_path) in shipped_checkpoints():
        return _SHIPPED / str(name_or_path)
    folder = Path(name_or_path)
    if not folder.is_dir():
        names = ", ".join(shipped_checkpoints()) or "none"
        raise CheckpointError(f"no checkpoint folder {str(folder)!r}; checkpoints that are shipped: {names}")
    return folder
