"""Policies by name. Torch is imported only for a policy that needs it."""

from dataclasses import replace
from pathlib import Path

from policies.files import ENCODER, ESTIMATOR, OPENPI, fingerprint, metadata_file, read_json
from policies.scripted import FRANKA, HoldPolicy, SinePolicy
from policies.shipped import find_checkpoint, refuse_left_out, shipped_checkpoints
from robot_runtime.core.policy import Policy
from robot_runtime.core.values.schema import Schema
from robot_runtime.errors import CheckpointError, InvalidValueError, UnknownNameError

SCRIPTED = ("hold", "sine")
HUB = "hf://"
"""Prefix of a folder on the Hugging Face hub."""
DOWNLOADED = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.md")
"""Files to download from such a folder: nothing that could be code or a pickle."""


def local_folder(name: str) -> Path:
    """The local folder of hf://OWNER/NAME, downloaded if it is not yet here; any other name as a path.

    CheckpointError: the hub has no such folder or cannot be reached.
    """
    if not name.startswith(HUB):
        return Path(name)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name.removeprefix(HUB), allow_patterns=list(DOWNLOADED)))
    except (OSError, ValueError) as error:  # what the hub raises is one of these
        raise CheckpointError(f"{name} cannot be downloaded from the hub: {error}") from error


def check_device(device: str) -> None:
    """InvalidValueError: torch does not know the device, or the machine lacks it."""
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise InvalidValueError(f"device {device!r} cannot be used here: {reason}") from error


def is_lerobot(folder: Path) -> bool:
    """Whether the folder is a policy saved by LeRobot."""
    try:
        return {"type", "input_features"} <= read_json(folder / "config.json").keys()
    except CheckpointError:
        return False


def policy_names() -> tuple[str, ...]:
    """All names that `load_policy` accepts."""
    return (*SCRIPTED, *shipped_checkpoints())


def load_policy(
    name_or_path: str | Path,
    *,
    schema: Schema = FRANKA,
    device: str = "cpu",
    dtype: str | None = None,
    is_compiled: bool = False,
    is_whole: bool = False,
    max_row_error: float | None = None,
    hosts: tuple[str, ...] = (),
) -> Policy:
    """A scripted policy, a shipped checkpoint, or the content of a folder: a checkpoint, ours or LeRobot's,
    or the address of an openpi server. hf://OWNER/NAME is a folder on the hub, downloaded once.

    schema: the robot a scripted policy is for; a checkpoint has its own.
    device: torch device of a checkpoint ("cpu", "cuda").
    dtype: "float32" or "bfloat16" for the weights of LeRobot's SmolVLA, pi0, pi0.5 and X-VLA; None: as the
        checkpoint declares. The deviation of rows from float32 is measured and logged.
    is_compiled: whether torch compiles LeRobot's flows.
    is_whole: whether a compiled flow runs each chunk as one unit, which a GPU records as one graph.
    max_row_error: largest deviation of rows as a share of their size; beyond it a CheckpointError is raised.
    hosts: machines besides this one that a folder may send observations to.
    UnknownNameError lists the valid names; CheckpointError: the folder is missing something or damaged.
    InvalidValueError: the device does not exist, or an option does not apply to this policy.
    """
    name = str(name_or_path)
    if schema is not FRANKA and name not in SCRIPTED:
        raise InvalidValueError(f"{name} knows its robot: joints apply to {' and '.join(SCRIPTED)} only")
    if name == "hold":
        return HoldPolicy(schema)
    if name == "sine":
        return SinePolicy(schema)
    name = str(local_folder(name))
    if name not in shipped_checkpoints() and not Path(name).is_dir():
        refuse_left_out(name)
        raise UnknownNameError("policy or checkpoint folder", name, policy_names())
    if (Path(name) / OPENPI).is_file():
        from policies.openpi import OpenpiPolicy

        return OpenpiPolicy.load(Path(name), hosts=hosts)
    check_device(device)
    if metadata_file(Path(name)).is_file():
        from policies.lerobot.policy import load_lerobot

        served = load_lerobot(
            Path(name),
            device=device,
            dtype=dtype,
            is_compiled=is_compiled,
            is_whole=is_whole,
            max_row_error=max_row_error,
        )
        served.info = replace(served.info, weights=fingerprint(Path(name)))
        return served
    if dtype is not None or is_compiled or is_whole or max_row_error is not None:
        raise InvalidValueError(
            f"dtype, compile, one_graph and max_row_error apply to LeRobot's flow policies; {name} is not one"
        )
    if is_lerobot(Path(name)):
        raise CheckpointError(
            f"{name} is a LeRobot policy, which does not declare what its numbers mean; run "
            f"`robot-runtime describe {name}` if the dataset was recorded here and still exists; otherwise "
            "add --joints 7 --gripper --fps 30 for a robot with those, or --numbers --fps 10 for a simulator"
        )
    from policies.flow.checkpoint import load
    from policies.flow.policy import FlowPolicy
    from policies.vision.encoder import ImageEncoder
    from policies.vision.estimator import Estimator

    folder = find_checkpoint(name)
    estimator: Estimator | ImageEncoder | None = None
    if (folder / ESTIMATOR).is_file():
        estimator = Estimator.load(folder, device=device)
    elif (folder / ENCODER).is_file():
        estimator = ImageEncoder.load(folder, device=device)
    policy = FlowPolicy(load(folder), device=device, estimator=estimator)
    policy.info = replace(policy.info, weights=fingerprint(folder))
    return policy
