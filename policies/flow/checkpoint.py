"""A trained policy as a folder: `model.safetensors`, `config.json` and the model card `README.md`."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor, from_numpy

from policies.budget import Budget
from policies.files import (
    ENCODER,
    ESTIMATOR,
    read_json,
    read_tensors,
    refuse_oversized,
    texts,
    value_of,
    whole_number,
)
from policies.flow.features import FeatureConfig, Normaliser
from policies.flow.model import FlowTransformer, ModelConfig, num_parameters
from policies.flow.recipes import Prefix, Recipe, recipe_from_dict, recipe_to_dict
from policies.flow.support import MAX_STEPS, declared
from policies.shipped import find_checkpoint
from robot_runtime.core.policy_info import PolicyInfo, checked_execution_horizon
from robot_runtime.core.values.action import ActionSpec
from robot_runtime.core.values.schema import Schema
from robot_runtime.errors import CheckpointError, UnknownNameError

FORMAT = 2
BEFORE_RECIPES = Prefix(max_delay=12)
"""The recipe of checkpoints that do not declare one."""
WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """Everything that makes a trained policy run, and how it was trained."""

    info: PolicyInfo
    """Name, spec and capabilities; tasks in the order of the network's task embedding."""
    model: FlowTransformer
    model_config: ModelConfig
    feature_config: FeatureConfig
    features: Normaliser
    """Statistics (F,) of the state features."""
    rows: Normaliser
    """Statistics (H, D) of the relative rows."""
    num_steps: int
    """Default number of Euler steps."""
    training: Mapping[str, object]
    """Seed, steps and the like as plain values, for readers and the model card."""
    recipe: Recipe = BEFORE_RECIPES
    """The recipe it was trained with."""


def save(checkpoint: Checkpoint, folder: Path) -> None:
    """Write weights, configuration and a model card without results."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"model.{name}": value for name, value in checkpoint.model.state_dict().items()}
    for name in ("features", "rows"):
        normaliser: Normaliser = getattr(checkpoint, name)
        tensors[f"{name}.mean"] = from_numpy(normaliser.mean.copy())
        tensors[f"{name}.std"] = from_numpy(normaliser.std.copy())
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / WEIGHTS)
    config = {
        "format": FORMAT,
        "policy": checkpoint.info.to_dict(),
        "model": asdict(checkpoint.model_config),
        "features": asdict(checkpoint.feature_config),
        "num_steps": checkpoint.num_steps,
        "recipe": recipe_to_dict(checkpoint.recipe),
        "training": dict(checkpoint.training),
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    write_card(checkpoint, folder)


def load(name_or_path: str | Path) -> Checkpoint:
    """The checkpoint in a folder, or shipped under a name; CheckpointError if it is missing or invalid."""
    folder = find_checkpoint(name_or_path)
    config, tensors = _read_config(folder / CONFIG), read_tensors(folder / WEIGHTS)
    try:
        model_config = value_of(ModelConfig, config["model"])
        refuse_oversized(model_config)
        weights = {name[6:]: value for name, value in tensors.items() if name.startswith("model.")}
        with Budget(folder / WEIGHTS):
            model = FlowTransformer(model_config)
        model.load_state_dict(weights)
        recipe = recipe_from_dict(config["recipe"]) if "recipe" in config else BEFORE_RECIPES
        info = _info(config) if "policy" in config else _older_info(config, recipe)
        spec = info.action_spec
        sizes = model_config.action_dim, model_config.horizon, model_config.num_tasks
        if sizes != (spec.dim, spec.horizon, len(info.tasks)):
            raise ValueError("columns, rows or tasks differ between model and policy")
        return Checkpoint(
            info=info,
            model=model.eval().requires_grad_(False),
            model_config=model_config,
            feature_config=value_of(FeatureConfig, config["features"]),
            features=_normaliser(tensors, "features", (model_config.state_dim,)),
            rows=_normaliser(tensors, "rows", (spec.horizon, spec.dim)),
            num_steps=whole_number(config, "num_steps", 1, MAX_STEPS),
            training=value_of(dict, config["training"]),
            recipe=recipe,
        )
    except (KeyError, TypeError, ValueError, RuntimeError, UnknownNameError) as error:
        raise CheckpointError(f"{folder}: {CONFIG} and {WEIGHTS} do not fit together: {error}") from error


def _info(config: dict) -> PolicyInfo:
    """The policy info of a file; without `prefix_at_rest`, it is true for our own tasks, false for an env."""
    policy = config["policy"]
    can = {"prefix_at_rest": "env" not in config["training"], **policy["capabilities"]}
    return PolicyInfo.from_dict(policy | {"capabilities": can})


def _older_info(config: dict, recipe: Recipe) -> PolicyInfo:
    """The policy info of a file of format 1, whose capabilities follow from its recipe alone."""
    spec = ActionSpec.from_dict(config["action_spec"])
    rows = checked_execution_horizon(config.get("execution_horizon"), spec.horizon)
    return PolicyInfo(
        name=str(config["name"]),
        action_spec=spec,
        schema=Schema.from_dict(config["schema"]),
        tasks=texts(config, "tasks"),
        capabilities=declared(recipe, horizon=spec.horizon, prefix_at_rest=True, execution_horizon=rows),
    )


def _normaliser(tensors: Mapping[str, Tensor], name: str, shape: tuple[int, ...]) -> Normaliser:
    mean, std = (tensors[f"{name}.{part}"].double().numpy() for part in ("mean", "std"))
    if mean.shape != shape or std.shape != shape or not (std > 0.0).all():
        raise ValueError(f"{name}: means, and deviations above 0, have shape {shape}, got {mean.shape}")
    return Normaliser(mean=mean, std=std)


def _read_config(path: Path) -> dict:
    if not path.is_file():
        raise CheckpointError(f"{path.parent} is not a checkpoint: it has no {path.name}")
    config = read_json(path)
    found = config.get("format")
    if found not in (1, FORMAT):
        raise CheckpointError(f"{path}: expected checkpoint format 1 or {FORMAT}, found {found}")
    return config


def write_card(
    checkpoint: Checkpoint, folder: Path, results: Mapping[str, Mapping[str, object]] | None = None
) -> None:
    """Write the model card. results: one row of the table per key (a method, say), column name -> value."""
    spec, training = checkpoint.info.action_spec, checkpoint.training
    lines = [
        f"# {checkpoint.info.name}",
        "",
        f"A flow-matching action-chunk policy of {num_parameters(checkpoint.model):,} parameters for:",
        "",
        *(f"- {task}" for task in checkpoint.info.tasks),
        "",
        f"It sees {', '.join(_robot(checkpoint))} and {_scene(checkpoint, folder)}, and predicts "
        f"{spec.horizon} rows of {spec.dim} columns, {spec.dt_s * 1e3:g} ms apart.",
        *_asked(checkpoint),
        "",
        "## Training",
        "",
        "| | |",
        "|---|---|",
        *(f"| {key.replace('_', ' ')} | {value} |" for key, value in training.items()),
        "",
        "## Results",
        "",
        *_table(results or {}),
        "",
        f"{_origin(training)}; not for a real robot without evaluation there.",
        "",
    ]
    (folder / CARD).write_text("\n".join(lines))


def _asked(checkpoint: Checkpoint) -> list[str]:
    """The card's sentence on the execution horizon, if the policy declares one."""
    rows = checkpoint.info.capabilities.execution_horizon
    return [] if rows is None else ["", f"Under the default method it is best asked every {rows} rows."]


def _robot(checkpoint: Checkpoint) -> list[str]:
    """The robot quantities that the policy sees, in words."""
    shown, schema = checkpoint.feature_config, checkpoint.info.schema
    named = {
        "joints": shown.use_joints and bool(schema.arms),
        "the end-effector pose": shown.use_hand_pose and bool(schema.arms),
        "gripper": bool(schema.grippers),
        "the base's speed": bool(schema.bases),
        **{name.replace("_", " "): True for name in schema.measured},
    }
    return [name for name, is_seen in named.items() if is_seen] or ["nothing of the robot"]


def _origin(training: Mapping[str, object]) -> str:
    """The origin of the demonstrations, in words."""
    if datasets := training.get("datasets"):
        return f"Trained on {datasets}"
    return "Trained on simulated demonstrations only"


def _scene(checkpoint: Checkpoint, folder: Path) -> str:
    """The scene inputs of the policy, in words."""
    num_numbers = checkpoint.info.schema.environment_state_dim
    if (folder / ENCODER).is_file():
        encoder = json.loads((folder / ENCODER).read_text())
        sizes = ", ".join(f"{width} x {height}" for height, width in encoder["sizes"])
        return f"images of {' and '.join(encoder['cameras'])} ({sizes} pixels)"
    if not (folder / ESTIMATOR).is_file():
        names = ", ".join(checkpoint.info.schema.environment_state_names)
        return f"{num_numbers} numbers of scene state{names and f' ({names})'}, no images"
    estimator = json.loads((folder / ESTIMATOR).read_text())
    height, width = estimator["size"]
    return (
        f"images of {' and '.join(estimator['cameras'])} ({width} x {height} pixels), which an estimator "
        f"reduces to {num_numbers} numbers on the scene, half of them confidences"
    )


def _table(results: Mapping[str, Mapping[str, object]]) -> list[str]:
    if not results:
        return ["Not evaluated yet."]
    columns = list(dict.fromkeys(column for row in results.values() for column in row))
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, row in results.items():
        lines.append(f"| {name} | " + " | ".join(str(row.get(column, "")) for column in columns) + " |")
    return lines
