"""Makes LeRobot's own objects from a checked folder: configuration, network and steps."""

import importlib
import logging
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from torch import Tensor

from policies.budget import Budget
from policies.files import metadata_file, read_json, read_tensors, refuse_unfinite
from policies.lerobot.fields import FIELDS, refuse_unhonoured
from policies.lerobot.files import (
    BEFORE,
    CONFIG,
    MODEL_NAMES,
    WEIGHTS,
    camera_names,
    checked_config,
    local_model,
)
from policies.lerobot.metadata import STATE, PolicyMetadata
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.dataset.recording import PICTURE, PICTURES, camera_of
from robot_runtime.errors import CheckpointError, RobotRuntimeError
from robot_runtime.server.warming import zero_observation

logger = logging.getLogger(__name__)
_OWN_LOADER = ("pi0", "pi05")
"""Types whose own loader continues with random weights if it fails."""


def lerobot_config(folder: Path) -> Any:
    """LeRobot's configuration of a folder, every field of which is honoured.

    CheckpointError: the folder holds no supported policy, or one that would run code.
    """
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies import factory  # registers the types  # noqa: F401

    values = checked_config(folder)
    kind = str(values.pop("type"))
    for name in MODEL_NAMES:
        if name in values:
            values[name] = local_model(values[name], folder)
    with checkpoint_errors(f"{folder / CONFIG} is no configuration of {kind}"):
        import draccus

        config = draccus.decode(PreTrainedConfig.get_choice_class(kind), values)
        refuse_unhonoured(
            kind, {f.name: getattr(config, f.name) for f in fields(config)}, str(folder / CONFIG)
        )
        config.validate_features()
    _take_over(config)
    return config


def _take_over(config: Any) -> None:
    """Switch off what is done here instead (`policies.lerobot.fields`)."""
    for name, value in (
        ("gradient_checkpointing", False),
        ("compile_model", False),
        ("pretrained_backbone_weights", None),
        ("load_vlm_weights", False),
        ("rtc_config", None),
    ):
        if hasattr(config, name):
            setattr(config, name, value)


def lerobot_policy(config: Any, folder: Path) -> Any:
    """The network with exactly the folder's weights; CheckpointError if any is missing or unexpected."""
    from lerobot.policies.factory import get_policy_class

    with checkpoint_errors(f"{folder} holds no {config.type}"):
        kind = get_policy_class(config.type)
        with Budget(folder / WEIGHTS), _sizes_alone(config.type):
            if config.type in _OWN_LOADER:
                policy = kind(config)
                _load_all(policy, read_tensors(folder / WEIGHTS), folder / WEIGHTS)
            else:
                policy = kind.from_pretrained(folder, config=config, strict=True)
    refuse_unfinite(policy.state_dict(), str(folder / WEIGHTS))
    return policy.to(config.device).eval()


@contextmanager
def _sizes_alone(kind: str) -> Iterator[None]:
    """A context in which LeRobot's multi-task DiT builds its CLIPs by size only: all weights are the
    checkpoint's own."""
    if kind != "multi_task_dit":
        yield
        return
    module = importlib.import_module("lerobot.policies.multi_task_dit.modeling_multi_task_dit")
    with ExitStack() as patched:
        for name in ("CLIPVisionModel", "CLIPTextModel"):
            model = getattr(module, name)

            def empty(called: str, model: Any = model) -> Any:
                return model(model.config_class.from_pretrained(called))

            patched.enter_context(patch.object(module, name, SimpleNamespace(from_pretrained=empty)))
        yield


def lerobot_steps(config: Any, folder: Path) -> tuple[Any, Any]:
    """The pre- and postprocessor, to the configuration's device and back to the CPU."""
    from lerobot.policies.factory import make_pre_post_processors

    overrides: dict[str, Any] = {"device_processor": {"device": config.device}}
    if (words := _words(folder)) is not None:
        overrides["tokenizer_processor"] = {"tokenizer_name": local_model(words, folder)}
    with checkpoint_errors(f"{folder} holds no steps of {config.type}"):
        before, after = make_pre_post_processors(
            config,
            pretrained_path=str(folder),
            preprocessor_overrides=overrides,
            postprocessor_overrides={"device_processor": {"device": "cpu"}},
        )
    return before, after


def take_relative(before: Any, after: Any, dim: int) -> tuple[bool, ...]:
    """The mask of action columns that are relative to the state; LeRobot's steps for it are disabled.

    CheckpointError: one step makes actions relative and none makes them absolute again, or reversed.
    """
    counted = [step for step in before.steps if hasattr(step, "get_cached_state")]
    added = [step for step in after.steps if hasattr(step, "relative_step")]
    if sum(step.enabled for step in counted) != sum(step.enabled for step in added):
        raise CheckpointError("its actions become relative to the state and not absolute again, or reversed")
    is_relative = [False] * dim
    for step in counted:
        if step.enabled:
            is_relative = step._build_mask(dim)
            step.enabled = False
    for step in added:
        step.enabled = False
    return tuple(map(bool, is_relative))


def chunk_rows(config: Any) -> int:
    """Number of rows that a policy predicts at once."""
    if config.type == "tdmpc":
        if config.n_action_repeats > 1:
            return int(config.n_action_repeats)
        return int(config.horizon) if config.use_mpc else 1
    return int(getattr(config, FIELDS[config.type].chunk))


def cameras_of(config: Any, folder: Path) -> dict[str, tuple[int, int]]:
    """Height and width of each of a policy's images, by the name that the robot's camera has to have.

    CheckpointError: an image's name has no camera, or that of another image.
    """
    return {camera_of(key): size for key, size in _pictures_of(config, folder).items()}


def picture_keys(config: Any, folder: Path) -> dict[str, str]:
    """The key of each camera's images as input of the policy's steps; errors as in `cameras_of`."""
    return {camera_of(key): key for key in _pictures_of(config, folder)}


def _pictures_of(config: Any, folder: Path) -> dict[str, tuple[int, int]]:
    renamed = {new: old for old, new in camera_names(folder).items()}
    empty = {f"{PICTURES}.empty_camera_{i}" for i in range(getattr(config, "empty_cameras", 0))}
    out: dict[str, tuple[int, int]] = {}
    for key, feature in config.image_features.items():
        if key in empty:  # the policy fills it itself
            continue
        name = renamed.get(key, key)
        if not name.startswith("observation.") or len(feature.shape) != 3:
            raise CheckpointError(
                f"expected images {PICTURE} or {PICTURES}.NAME of shape (3, h, w), got {name!r}, "
                f"{feature.shape}"
            )
        if camera_of(name) in map(camera_of, out):
            raise CheckpointError(f"two of its images would be of one camera, {camera_of(name)!r}: {name!r}")
        out[name] = (feature.shape[1], feature.shape[2])
    return out


def refuse_misfit(metadata: PolicyMetadata, config: Any, folder: Path) -> None:
    """CheckpointError: rows, state or cameras differ between the metadata and the policy."""
    schema, spec = metadata.info.schema, metadata.info.action_spec
    scene = config.env_state_feature
    pairs: list[tuple[str, object, object]] = [
        ("cameras", dict(schema.cameras), cameras_of(config, folder)),
        ("rows of a chunk", spec.horizon, chunk_rows(config)),
        ("observations as input", metadata.info.n_obs_steps, config.n_obs_steps),
        ("columns of a row", spec.dim, size_of(config.action_feature)),
        ("numbers of the scene", metadata.scene_dim, size_of(scene)),
    ]
    pairs.append(("numbers of the state", _state_size(metadata, folder), size_of(config.robot_state_feature)))
    for what, declared, found in pairs:
        if declared != found:
            path = metadata_file(folder)
            raise CheckpointError(f"{path} declares {what}: {declared}; the policy has {found}")


def _state_size(metadata: PolicyMetadata, folder: Path) -> int:
    """Size of the state vector for a robot of the schema; CheckpointError: no such robot has its numbers."""
    blind = replace(metadata, info=replace(metadata.info, schema=replace(metadata.info.schema, cameras={})))
    try:
        seen = blind.seen([zero_observation(blind.info.schema, "")])
    except ValueError as error:
        raise CheckpointError(f"{metadata_file(folder)}: {error}") from error
    return int(seen[STATE].shape[1])


def size_of(feature: Any) -> int:
    """Number of elements of a feature; 0 for None."""
    return 0 if feature is None else math.prod(feature.shape)


def warn_of_gaps(info: PolicyInfo, folder: Path, *, names_scene: bool) -> None:
    """Log inputs of a policy that neither it nor its folder names.

    names_scene: whether its scene quantities have names.
    """
    if not info.tasks and _words(folder) is not None:
        logger.warning(
            "policy %s takes a task text and declares none: a robot that sends none gets an empty prompt; "
            "start each with --task TEXT, or list the texts under \"tasks\" in %s",
            info.name, metadata_file(folder),
        )  # fmt: skip
    if (num := info.schema.environment_state_dim) and not names_scene:
        logger.warning(
            "policy %s takes the %d numbers of observation.environment_state by position, because its folder "
            "does not name them; send them in the order of the dataset that it was trained on",
            info.name, num,
        )  # fmt: skip


def _words(folder: Path) -> str | None:
    for step in read_json(folder / BEFORE)["steps"]:
        if step["registry_name"] == "tokenizer_processor":
            name: str | None = step.get("config", {}).get("tokenizer_name")
            return name
    return None


def _load_all(policy: Any, tensors: dict[str, Tensor], weights: Path) -> None:
    """Load all weights by LeRobot's or openpi's names; tied weights may be present once."""
    renamed = policy._fix_pytorch_state_dict_keys(tensors, policy.config)
    state = {name if name.startswith("model.") else f"model.{name}": x for name, x in renamed.items()}
    missing, unexpected = policy.load_state_dict(state, strict=False)
    own = policy.state_dict(keep_vars=True)
    loaded = {own[name].data_ptr() for name in state if name in own}
    if lost := [name for name in missing if own[name].data_ptr() not in loaded] + list(unexpected):
        raise CheckpointError(f"{weights} does not fit: {len(lost)} weights, {', '.join(lost[:3])}, ...")


@contextmanager
def checkpoint_errors(what: str) -> Iterator[None]:
    """A context that turns any error of LeRobot's code into a CheckpointError; our own errors pass."""
    try:
        yield
    except RobotRuntimeError:
        raise
    except (Exception, SystemExit) as error:  # many libraries, each with its own errors
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        lines = str(cause).strip().splitlines() or [type(cause).__name__]
        raise CheckpointError(f"{what}: {lines[0][:500]}") from error
