"""Checks a LeRobot folder before LeRobot reads it: `checked_config`.

    config.json                one of the types in `fields`, every field honoured, mapped or refused
    policy_preprocessor.json   only steps with registered names of the list below, with known options
    policy_postprocessor.json  the same
    *.safetensors              statistics and weights, finite; no other file of weights is ever read

LeRobot imports and calls the "class" of a step, and downloads what an option names. Both are refused: only
the tokenizers and processors of known models are allowed, or a folder inside this one.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from policies.files import MAX_SIZE, read_json, read_tensors
from policies.lerobot.fields import TYPES, refuse_unhonoured
from robot_runtime.dataset.recording import PICTURE, PICTURES
from robot_runtime.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, WEIGHTS = "config.json", "model.safetensors"
BEFORE, AFTER = "policy_preprocessor.json", "policy_postprocessor.json"
KNOWN_MODELS = frozenset(
    {
        "google/paligemma-3b-pt-224",
        "HuggingFaceTB/SmolVLM2-256M-Video-Instruct",
        "HuggingFaceTB/SmolVLM2-500M-Video-Instruct",
        "HuggingFaceTB/SmolVLM2-2.2B-Instruct",
        "facebook/bart-large",
        "microsoft/Florence-2-large",
        "microsoft/Florence-2-base",
        "openai/clip-vit-base-patch16",
        "openai/clip-vit-base-patch32",
        "openai/clip-vit-large-patch14",
    }
)
"""Hub models that LeRobot's own configurations name: for vocabularies and sizes, never for weights."""
MODEL_NAMES = ("vlm_model_name", "tokenizer_name", "vision_encoder_name", "text_encoder_name")
"""Configuration fields that name a hub model."""
_NORMALISES = frozenset({"eps", "features", "norm_map", "normalize_observation_keys"})
STEPS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "rename_observations_processor": frozenset({"rename_map"}),
        "to_batch_processor": frozenset(),
        "device_processor": frozenset({"device", "float_dtype"}),
        "normalizer_processor": _NORMALISES,
        "unnormalizer_processor": _NORMALISES,
        "tokenizer_processor": frozenset(
            {"tokenizer_name", "max_length", "task_key", "padding_side", "padding", "truncation"}
        ),
        "smolvla_new_line_processor": frozenset(),
        "pi0_new_line_processor": frozenset(),
        "pi05_prepare_state_tokenizer_processor_step": frozenset({"max_state_dim", "task_key"}),
        "relative_actions_processor": frozenset({"enabled", "exclude_joints", "action_names"}),
        "absolute_actions_processor": frozenset({"enabled"}),
        "xvla_image_scale": frozenset({"image_keys"}),
        "xvla_image_to_float": frozenset({"image_keys", "validate_range"}),
        "xvla_imagenet_normalize": frozenset({"image_keys"}),
        "xvla_add_domain_id": frozenset({"domain_id"}),
    }
)
"""Registered names of LeRobot's steps, and the options that each has."""
_ONLY: Mapping[str, tuple[object, ...]] = MappingProxyType(
    {
        "float_dtype": (None, "float32"),  # of a network's input; its weights have a type of their own
        "task_key": ("task",),
        "padding_side": ("left", "right"),
        "padding": ("longest", "max_length"),
    }
)
"""Step options that are supported with these values only."""
_STATISTICS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "MEAN_STD": ("mean", "std"),
        "MIN_MAX": ("min", "max"),
        "QUANTILES": ("q01", "q99"),
        "QUANTILE10": ("q10", "q90"),
    }
)
_NOT_READ = (".bin", ".pt", ".pth", ".pkl", ".ckpt", ".py")


def checked_config(folder: Path) -> dict[str, Any]:
    """Check all files that will be read from a folder; returns its config.json.

    CheckpointError: something is missing, damaged, out of bounds or unknown, or would run code by its name.
    """
    config = read_json(folder / CONFIG)
    kind = config.get("type")
    if kind not in TYPES:
        raise CheckpointError(
            f"{folder / CONFIG}: type is {kind!r}; supported LeRobot policies: {', '.join(TYPES)}"
        )
    refuse_unhonoured(kind, config, str(folder / CONFIG))
    _check_features(config, folder / CONFIG)
    for key in MODEL_NAMES:
        if key in config:
            _check_model(config[key], folder, f"{CONFIG}: {key}")
    modes = config["normalization_mapping"]
    for name, step in ((BEFORE, "normalizer_processor"), (AFTER, "unnormalizer_processor")):
        steps = _checked_steps(folder, name)
        kinds = ("ACTION",) if name == AFTER else ("STATE", "ENV")
        _check_normalised(config, modes, kinds, steps.get(step), folder / name)
    if not (folder / WEIGHTS).is_file():
        found = [path.name for path in sorted(folder.iterdir()) if path.suffix in _NOT_READ]
        also = f"; {', '.join(found)} is not read" if found else ""
        raise CheckpointError(f"{folder} has no {WEIGHTS}{also}")
    return config


def camera_names(folder: Path) -> dict[str, str]:
    """The dataset's names of renamed cameras, mapped to the policy's names."""
    renamed: dict[str, str] = {}
    for entry in read_json(folder / BEFORE)["steps"]:
        if entry["registry_name"] == "rename_observations_processor":
            renamed |= entry.get("config", {}).get("rename_map", {})
    return renamed


def _checked_steps(folder: Path, name: str) -> "dict[str, Step]":
    """The checked steps of a processor file, by registered name."""
    path, out = folder / name, {}
    if not path.is_file():
        raise CheckpointError(
            f"{folder} has no {name}: LeRobot before 0.4 kept it in the weights; create it with `python -m "
            f"lerobot.processor.migrate_policy_normalization --pretrained-path {folder}`"
        )
    steps = read_json(path).get("steps")
    if not isinstance(steps, list):
        raise CheckpointError(f"{path} has no list of steps")
    for entry in steps:
        if not isinstance(entry, dict) or not entry.keys() <= {"registry_name", "config", "state_file"}:
            raise CheckpointError(
                f"{path}: expected a step with registry_name, config and state_file, got {entry!r:.200}"
            )
        registered, options = entry.get("registry_name"), entry.get("config", {})
        if not isinstance(registered, str) or registered not in STEPS:
            raise CheckpointError(f"{path}: there is no step {registered!r}; known: {', '.join(STEPS)}")
        if not isinstance(options, dict) or not options.keys() <= STEPS[registered]:
            raise CheckpointError(
                f"{path}: {registered} takes {', '.join(sorted(STEPS[registered])) or 'no options'}, "
                f"got {options!r:.200}"
            )
        if registered in out:
            raise CheckpointError(f"{path}: there are two steps {registered}")
        _check_options(options, folder, f"{path}: {registered}")
        out[registered] = Step(options, _state_of(entry, folder, path))
    return out


class Step:
    """Holds one step's options and statistics."""

    def __init__(self, options: dict[str, Any], tensors: "dict[str, Tensor]") -> None:
        self.options, self.tensors = options, tensors


def _state_of(entry: dict[str, Any], folder: Path, path: Path) -> "dict[str, Tensor]":
    file = entry.get("state_file")
    if file is None:
        return {}
    if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
        raise CheckpointError(f"{path}: expected a state_file NAME.safetensors in this folder, got {file!r}")
    return read_tensors(folder / file)


def _check_options(options: dict[str, Any], folder: Path, where: str) -> None:
    for key, value in options.items():
        match key:
            case "tokenizer_name":
                _check_model(value, folder, f"{where}: {key}")
            case "rename_map":
                _check_renaming(value, where)
            case "features":
                _check_shapes(value, f"{where}: {key}")
            case "norm_map":
                _check_modes(value, where)
            case "eps" if not _is_number(value) or not 0.0 < value < 0.1:
                raise CheckpointError(f"{where}: eps lies above 0 and below 0.1, got {value!r}")
            case "max_length" | "max_state_dim" | "domain_id":
                if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_SIZE:
                    raise CheckpointError(f"{where}: {key} lies in 0..{MAX_SIZE}, got {value!r}")
            case "normalize_observation_keys" if value is not None and not isinstance(value, list):
                raise CheckpointError(f"{where}: {key} is a list of names, got {value!r:.200}")
            case "float_dtype" | "task_key" | "padding_side" | "padding" if value not in _ONLY[key]:
                valid = " or ".join(map(str, _ONLY[key]))
                raise CheckpointError(f"{where}: {key} = {value!r:.200} cannot be run, only {valid}")
            case "enabled" | "truncation" | "validate_range" if not isinstance(value, bool):
                raise CheckpointError(f"{where}: {key} is true or false, got {value!r}")


def _check_renaming(value: Any, where: str) -> None:
    """CheckpointError: two are renamed to one, or anything but images, which a description has to declare."""
    if not isinstance(value, dict) or not all(
        isinstance(key, str) and key.startswith(PICTURE) for each in value.items() for key in each
    ):
        raise CheckpointError(
            f"{where}: only images, {PICTURE} and {PICTURES}.NAME, can be renamed, got {value!r:.200}"
        )
    if len(set(value.values())) < len(value):
        raise CheckpointError(f"{where}: two images are renamed to one, {value!r:.200}")


def _check_modes(value: Any, where: str) -> None:
    valid = ("IDENTITY", *_STATISTICS)
    if not isinstance(value, dict) or any(mode not in valid for mode in map(str, value.values())):
        raise CheckpointError(
            f"{where}: each normalisation mode is one of {', '.join(valid)}, got {value!r:.200}"
        )


def _check_features(config: dict[str, Any], path: Path) -> None:
    for key in ("input_features", "output_features"):
        _check_shapes(config.get(key), f"{path}: {key}")
    _check_modes(config.get("normalization_mapping"), str(path))
    if "action" not in config["output_features"]:
        raise CheckpointError(
            f"{path}: expected an action to be predicted, got {list(config['output_features'])}"
        )


def _check_shapes(value: Any, where: str) -> None:
    if not isinstance(value, dict) or not value or len(value) > 64:
        raise CheckpointError(f"{where} are 1 to 64 named features, got {value!r:.200}")
    for name, feature in value.items():
        shape = feature.get("shape") if isinstance(feature, dict) else None
        if (
            not isinstance(shape, list)
            or not 1 <= len(shape) <= 3
            or not all(isinstance(n, int) and not isinstance(n, bool) and 1 <= n <= 8192 for n in shape)
        ):
            raise CheckpointError(
                f"{where}: {name} has a shape of 1 to 3 numbers from 1 to 8192, got {feature!r:.200}"
            )


def _check_normalised(
    config: dict[str, Any], modes: dict[str, str], kinds: tuple[str, ...], step: Step | None, path: Path
) -> None:
    """CheckpointError: a feature normalised in training is not here, or its statistics are not usable."""
    features = config["input_features"] | config["output_features"]
    for name, feature in features.items():
        kind = str(feature.get("type"))
        mode = modes.get(kind, "IDENTITY")
        if kind not in kinds or mode == "IDENTITY":
            continue
        keys = None if step is None else step.options.get("normalize_observation_keys")
        does = step is not None and name in step.options.get("features", {})
        does = does and (keys is None or kind == "ACTION" or name in keys)
        if step is None or not does or step.options.get("norm_map", {}).get(kind) != mode:
            raise CheckpointError(f"{path} does not normalise {name} by {mode}, as {CONFIG} declares")
        low, high = (step.tensors.get(f"{name}.{which}") for which in _STATISTICS[mode])
        if low is None or high is None:
            raise CheckpointError(f"{path} has no statistics of {name} for {mode}")
        if list(low.shape) != feature["shape"] or list(high.shape) != feature["shape"]:
            raise CheckpointError(
                f"{path}: statistics of {name} have shapes {list(low.shape)} and {list(high.shape)}, "
                f"it has {feature['shape']}"
            )
        if bool((high < (0.0 if mode == "MEAN_STD" else low)).any()):
            raise CheckpointError(f"{path}: statistics of {name} have a negative range")


def local_model(value: str, folder: Path) -> str:
    """The name of a model as LeRobot needs it; a folder inside the checkpoint may be named relative to it."""
    return value if value in KNOWN_MODELS else str((folder / value).resolve())


def _check_model(value: Any, folder: Path, where: str) -> None:
    """CheckpointError: it is neither a known model nor a folder in this one without code and pickles."""
    if isinstance(value, str) and value in KNOWN_MODELS:
        return
    inside = isinstance(value, str) and (folder / value).resolve().is_relative_to(folder.resolve())
    if not inside or not (folder / value).is_dir():
        raise CheckpointError(
            f"{where}: expected a folder inside the checkpoint or one of {', '.join(sorted(KNOWN_MODELS))}, "
            f"got {value!r}"
        )
    for path in sorted((folder / value).rglob("*")):
        if path.suffix in _NOT_READ:
            raise CheckpointError(f"{where}: {path} is code or pickled weights, which are never read")
        if path.suffix == ".json" and b"auto_map" in path.read_bytes():
            raise CheckpointError(f"{where}: {path} requires code of its own (auto_map)")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
