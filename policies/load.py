"""Policies by name. Torch is imported only for a policy that needs it."""

from dataclasses import replace
from pathlib import Path

from policies.files import ESTIMATOR, OPENPI, fingerprint, metadata_file, read_json
from policies.scripted import FRANKA, HoldPolicy, SinePolicy
from policies.shipped import find_checkpoint, refuse_left_out, shipped_checkpoints
from robot_runtime.core.policy import Policy
from robot_runtime.core.values.schema import Schema
from robot_runtime.errors import CheckpointError, InvalidValueError, UnknownNameError

SCRIPTED = ("hold", "sine")
HUB = "hf://"
"""How the name of a folder on the hub begins."""
DOWNLOADED = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.md")
"""What is fetched of such a folder: nothing that could be code or a pickle."""


def local_folder(name: str) -> Path:
    """Where the files of hf://OWNER/NAME are, downloaded if they were not; anything else as it is.

    CheckpointError: there is no such thing on the hub, or no way to it.
    """
    if not name.startswith(HUB):
        return Path(name)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name.removeprefix(HUB), allow_patterns=list(DOWNLOADED)))
    except (OSError, ValueError) as error:  # what the hub raises is one of these
        raise CheckpointError(f"{name} cannot be had from the hub: {error}") from error


def check_device(device: str) -> None:
    """InvalidValueError: torch knows no such device, or has none here."""
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise InvalidValueError(f"device {device!r} cannot be used here: {reason}") from error


def is_lerobot(folder: Path) -> bool:
    """Whether LeRobot has saved a policy there."""
    try:
        return {"type", "input_features"} <= read_json(folder / "config.json").keys()
    except CheckpointError:
        return False


def policy_names() -> tuple[str, ...]:
    """Everything `load_policy` knows by name."""
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
    """A scripted policy, a shipped checkpoint, or what a folder holds: a checkpoint, ours or LeRobot's, or
    the address of an openpi server. hf://OWNER/NAME is a folder on the hub, downloaded once.

    schema: the robot a scripted policy is for; a checkpoint has its own.
    device: where a checkpoint computes, in torch's words ("cpu", "cuda").
    dtype: of the weights of LeRobot's SmolVLA, pi0, pi0.5 and X-VLA, "float32" or "bfloat16"; None: as the
        checkpoint says. How far rows then are from those in float32 is measured, and in the log.
    is_compiled: whether torch is to compile LeRobot's flows.
    is_whole: whether a compiled one runs each chunk as one, which a GPU records as one graph.
    max_row_error: how far they may be, as a share of their size; further is a CheckpointError.
    hosts: machines that a folder may have asked besides this one.
    UnknownNameError lists the valid names; CheckpointError says what is wrong with a folder.
    InvalidValueError: a device that is not there, or an option that is not for this policy.
    """
    name = str(name_or_path)
    if schema is not FRANKA and name not in SCRIPTED:
        raise InvalidValueError(f"{name} knows its robot: joints are told to {' and '.join(SCRIPTED)} only")
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
            f"dtype, compile, one_graph and max_row_error are for LeRobot's flow policies; {name} is none"
        )
    if is_lerobot(Path(name)):
        raise CheckpointError(
            f"{name} is a policy of LeRobot's, which does not say what its numbers mean: "
            f"`robot-runtime describe {name}` does, if the dataset was recorded here and is still there; "
            "if not, with --joints 7 --gripper --fps 30, for a robot with those, or with --numbers --fps 10, "
            "for a simulator"
        )
    from policies.flow.checkpoint import load
    from policies.flow.policy import FlowPolicy
    from policies.vision.estimator import Estimator

    folder = find_checkpoint(name)
    estimator = Estimator.load(folder, device=device) if (folder / ESTIMATOR).is_file() else None
    policy = FlowPolicy(load(folder), device=device, estimator=estimator)
    policy.info = replace(policy.info, weights=fingerprint(folder))
    return policy
