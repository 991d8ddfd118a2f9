"""Number formats of LeRobot's flows, and the resulting error of rows: `served_format`, `RowCheck`.

    part                                            float32    bfloat16
    image encoder, projector, text, expert          float32    bfloat16
    norms: their arithmetic and weights             float32    float32
    norms: effect of flow times (pi0.5)             float32    bfloat16
    rows to tokens and back, flow times, state      float32    float32, on a GPU by products in TF32
    the integration                                 float32    float32

LeRobot keeps pi's image encoder and the norms' products in float32 for training. Here they have the format of
the other layers, as openpi serves them: `in_one_format`.
"""

import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from lerobot.policies.pi_gemma import PiGemmaRMSNorm
from msgspec import structs

from policies.flow.inference import Batch, ChunkSampler
from policies.flow.network import FlowNetwork
from policies.lerobot.files import WEIGHTS
from policies.lerobot.metadata import PolicyMetadata
from robot_runtime.core.method.sampler_parts import ConstantSchedule
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.state import Image, Observation
from robot_runtime.errors import CheckpointError, InvalidValueError
from robot_runtime.server.warming import zero_observation

logger = logging.getLogger(__name__)
SEEDS = (0, 1, 2)
"""Seeds of the images and the noise for comparing rows."""
_SPARE = 1.1
"""Memory of a network as a factor of that of its weights."""


def served_format(config: Any, dtype: str | None, device: torch.device) -> torch.dtype:
    """The format of the weights: the requested one, or that of the checkpoint's configuration.

    InvalidValueError: bfloat16 on a GPU without instructions for it.
    """
    wanted = dtype or getattr(config, "dtype", "float32")
    if wanted != "bfloat16":
        return torch.float32
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        name = torch.cuda.get_device_name(device)
        raise InvalidValueError(f"{name} does not compute in bfloat16; use `--dtype float32`")
    return torch.bfloat16


def num_weights(folder: Path) -> int:
    """Number of weights in a folder, from the file's header alone; 0 if it cannot be read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / WEIGHTS, "pt") as file:
            return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    except (OSError, SafetensorError):
        return 0


def free_bytes(device: torch.device) -> int | None:
    """Free memory of a GPU; None for other devices."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None


def can_hold(num: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether a device has room for a network with this number of weights."""
    free = free_bytes(device)
    return free is None or _bytes(num, dtype) <= free


def refuse_too_large(folder: Path, dtype: torch.dtype, device: torch.device) -> None:
    """InvalidValueError: the device has no room for the weights; reads only the file's header."""
    num, free = num_weights(folder), free_bytes(device)
    if can_hold(num, dtype, device) or free is None:
        return
    need = f"{num / 1e9:.2f} G weights of {folder} in {_name(dtype)} take {_bytes(num, dtype) / 1e9:.1f} GB"
    fits = dtype is torch.float32 and can_hold(num, torch.bfloat16, device)
    otherwise = f"; `--dtype bfloat16` takes {_bytes(num, torch.bfloat16) / 1e9:.1f} GB" if fits else ""
    raise InvalidValueError(f"{need}, {device} has {free / 1e9:.1f} GB free{otherwise}")


def set_format(policy: Any, dtype: torch.dtype) -> None:
    """Convert a SmolVLA, pi0 or pi0.5 from float32 to this format in place, as LeRobot does."""
    if dtype is torch.float32:
        return
    model = policy.model
    if hasattr(model, "vlm_with_expert"):
        model.vlm_with_expert.to(dtype)
        return
    model.paligemma_with_expert.to_bfloat16_for_selected_params(_name(dtype))
    policy.config.dtype = _name(dtype)


def layer_format(policy: Any) -> torch.dtype:
    """The format of the layers that compute rows."""
    model = policy.model
    if hasattr(model, "vlm_with_expert"):
        dtype: torch.dtype = model.vlm_with_expert.lm_expert.layers[0].mlp.down_proj.weight.dtype
    else:
        dtype = model.paligemma_with_expert.gemma_expert.model.layers[0].mlp.down_proj.weight.dtype
    return dtype


def in_one_format(policy: Any) -> torch.dtype:
    """Convert pi's image encoder and the norms' products to the format of its layers; returns it.

    The norms take a condition of any format from then on (`flow.RowwiseNorm`).
    """
    dtype, model = layer_format(policy), policy.model
    if dtype is torch.float32 or not hasattr(model, "paligemma_with_expert"):
        return dtype
    both = model.paligemma_with_expert
    for part in (both.paligemma.model.vision_tower, both.paligemma.model.multi_modal_projector):
        part.to(dtype)
    for norm in both.gemma_expert.modules():
        if isinstance(norm, PiGemmaRMSNorm) and norm.dense is not None:
            norm.dense.to(dtype)
    return dtype


class RowCheck:
    """Compares served rows with those of LeRobot's own call in float32."""

    def __init__(self, policy: Any, before: Any, metadata: PolicyMetadata) -> None:
        """policy, before: LeRobot's, in float32 and not yet changed."""
        config = policy.config
        shape = int(config.chunk_size), int(config.max_action_dim)
        self._observations = noise_observations(metadata.info)
        self._exact = []
        for seed, observation in zip(SEEDS, self._observations, strict=True):
            # Drawn as in `ChunkSampler`.
            noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed))[None]
            with torch.no_grad():
                batch = before(metadata.seen([observation]))
                self._exact.append(policy.predict_action_chunk(batch, noise=noise.to(config.device)))

    def error(self, network: FlowNetwork, seen: Callable[[Sequence[Observation]], dict[str, Any]]) -> float:
        """The largest |served - exact| / |exact| of normalised rows with the constant schedule.

        seen: converts observations to the network's input.
        """
        sampler, errors = ChunkSampler(network), []
        for seed, observation, exact in zip(SEEDS, self._observations, self._exact, strict=True):
            nothing = np.zeros((0, exact.shape[-1]))
            batch = Batch(seen=seen([observation]), planned=[nothing], delays=[0], seeds=[seed])
            served = [progress.rows for progress in sampler.run(batch, ConstantSchedule())][-1]
            assert served is not None, "the last step of a chunk comes with its rows"
            errors.append(row_error(network.normalised(served[0]), exact[0].double().cpu().numpy()))
        return max(errors)


def row_error(served: Float[np.ndarray, "H R"], exact: Float[np.ndarray, "H D"]) -> float:
    """Deviation of rows from float32, as a share of their size; columns beyond D are padding."""
    deviation = np.linalg.norm(served[:, : exact.shape[1]] - exact)
    return float(deviation / np.linalg.norm(exact))


def noise_observations(info: PolicyInfo) -> list[Observation]:
    """Observations of a robot at zero, with images of noise, one for each of `SEEDS`."""
    out = []
    nothing = zero_observation(info.schema, next(iter(info.tasks), ""))
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        images = {
            name: Image(t_ns=0, pixels=rng.integers(0, 256, image.pixels.shape, np.uint8))
            for name, image in nothing.images.items()
        }
        out.append(structs.replace(nothing, images=images))
    return out


def say_error(name: str, dtype: torch.dtype, error: float | None, most: float | None) -> None:
    """Log a row error, None if it could not be measured; CheckpointError: it exceeds `most`."""
    if dtype is torch.float32:
        return
    if error is None:
        report = f"{name} in {_name(dtype)}: no room for float32, so its row error is not measured"
        if most is not None:
            raise CheckpointError(f"{report}, and --max-row-error is {most:g}")
        logger.warning("%s", report)
        return
    report = f"{name} in {_name(dtype)}: rows differ from float32 by {error:.2g} of their size"
    if most is not None and not error <= most:
        raise CheckpointError(f"{report}, --max-row-error is {most:g}; use `--dtype float32`")
    logger.info("%s (the largest of %d chunks for images of noise)", report, len(SEEDS))


def _bytes(num: int, dtype: torch.dtype) -> float:
    return _SPARE * num * dtype.itemsize


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
