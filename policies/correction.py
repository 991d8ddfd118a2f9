"""A correction head as a file beside a checkpoint. No torch: the robot reads it.

safetensors is imported only where a head is read or written: most methods need none.
"""

import json
from pathlib import Path

from policies.shipped import find_checkpoint
from robot_runtime.core.method.splice_parts import NoCorrection
from robot_runtime.core.method.table import Method
from robot_runtime.core.plan.correction import CorrectionHead
from robot_runtime.core.values.action import ActionSpec
from robot_runtime.errors import CheckpointError

CORRECTION = "correction.safetensors"


def save_correction(head: CorrectionHead, folder: Path) -> None:
    """Write the head beside the checkpoint in the folder."""
    from safetensors.numpy import save_file

    about = {"action_spec": head.action_spec.to_dict(), "lead": head.lead, "max_age": head.max_age}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(dict(head.arrays), folder / CORRECTION, metadata={"correction": json.dumps(about)})


def load_correction(name_or_path: str | Path) -> CorrectionHead:
    """The head beside a checkpoint; CheckpointError if it is missing or damaged."""
    from safetensors import SafetensorError, safe_open

    path = find_checkpoint(name_or_path) / CORRECTION
    if not path.is_file():
        raise CheckpointError(f"{path.parent} has no {CORRECTION}: it was not trained with recipe residual")
    try:
        with safe_open(path, framework="numpy") as file:
            about = json.loads(file.metadata()["correction"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return CorrectionHead(
            action_spec=ActionSpec.from_dict(about["action_spec"]),
            lead=int(about["lead"]),
            max_age=int(about["max_age"]),
            arrays=arrays,
        )
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: expected a correction head, {error}") from error


def head_for(method: Method, name_or_path: str | Path | None, *, task: str) -> CorrectionHead | None:
    """The head beside a checkpoint if the method needs one, else None.

    CheckpointError: it is missing; the message has the command that trains one.
    """
    if isinstance(method.correction, NoCorrection):
        return None
    if name_or_path is None:
        raise CheckpointError(
            f"the method needs a correction head, and no checkpoint has been named; {_make(task)}"
        )
    if not find_checkpoint(name_or_path).joinpath(CORRECTION).is_file():
        raise CheckpointError(
            f"the method needs a correction head, and policy {str(name_or_path)!r} has none; {_make(task)}"
        )
    return load_correction(name_or_path)


def _make(task: str) -> str:
    train = f"robot-runtime train --task {task}"
    return (
        f"to train a plain policy and one with a head: {train} --recipe plain --output plain_policy && "
        f"{train} --recipe residual --init plain_policy --output my_policy"
    )
