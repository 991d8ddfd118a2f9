"""Where the time of a VLA goes: `stage_times` of LeRobot's flows under our samplers, and the `floor` beneath.

    what is seen ─► image encoder ─► prefill ─► step, step, ..., step ─► rows
                    └──────── once ────────┘    └── once per flow time

The image encoder's time is that of the prefix's embedding: pictures made ready and encoded, words looked up.

The floor of a stage is max(operations / peak, bytes / bandwidth), with 2 operations per weight and token,
every weight read once, and the cached keys and values once per robot (roofline). Peaks are the data sheet's
(dense bf16) where it is known, and what a large product and a large copy reach in this run where it is not.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from policies.flow.inference import Batch, ChunkSampler
from policies.lerobot.flow import LeRobotFlow
from policies.lerobot.random import random_batch
from robot_runtime.core.method.sampler_parts import ConstantSchedule, HorizonAwareSchedule

IMAGES, PREFILL, STEP = "image encoder", "prefill", "one expert step"
WHOLE, FIRST_ROW, LEROBOT = "whole chunk", "first row out", "LeRobot's predict_action_chunk"
STAGES = (IMAGES, PREFILL, STEP, WHOLE, FIRST_ROW, LEROBOT)
NUM_WARM = 3
"""Calls that do not count: torch compiles at the first, and records CUDA graphs at the next two."""
PEAKS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "H100": (989e12, 3.35e12),
        "H200": (989e12, 4.8e12),
        "A100": (312e12, 2.04e12),
        "RTX 4090": (165e12, 1.01e12),
    }
)
"""Part of a device's name -> (dense bf16 operations/s, bytes/s)."""


@dataclass(frozen=True, kw_only=True)
class Peak:
    """What a device can do at best."""

    operations_per_s: float
    bytes_per_s: float
    source: str


def peak_of(device: torch.device, dtype: torch.dtype) -> Peak:
    """Known from the device's name, else measured."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "this CPU"
    for known, (operations, bandwidth) in PEAKS.items():
        if known in name:
            return Peak(operations_per_s=operations, bytes_per_s=bandwidth, source=f"data sheet, {known}")
    n = 2048
    a, big = torch.rand((n, n), dtype=dtype, device=device), torch.empty(2**26, device=device)
    product = min(_timed(lambda: a @ a, device, 5))
    copy = min(_timed(big.clone, device, 5))
    return Peak(
        operations_per_s=2 * n**3 / product, bytes_per_s=2 * big.nbytes / copy, source=f"measured on {name}"
    )


def stage_times(policy: Any, network: LeRobotFlow, batch_size: int, *, n: int) -> dict[str, list[float]]:
    """Seconds of each stage, n times; LeRobot's own whole chunk is `lerobots_times`.

    policy, network: the same one; what is measured may be compiled.
    """
    device, seen = network.device, random_batch(policy, batch_size)
    sampler, batch = ChunkSampler(network), _batch(seen, batch_size, network.row_dim)
    first_rows = HorizonAwareSchedule()

    x = torch.randn((batch_size, network.horizon, network.row_dim), device=device)
    times = torch.full((batch_size, network.horizon), 0.5, dtype=torch.float64)
    t = times.float().to(device)
    embed_prefix = policy.model.embed_prefix

    def by_stage() -> list[float]:
        """Of one chunk, as it runs: nobody waits for the device between its stages."""
        marks = _Marks(device)

        def embedded(*given: Any, **named: Any) -> Any:
            out = embed_prefix(*given, **named)
            marks.set()
            return out

        _wait(device)
        with torch.no_grad(), network.chunk(), patch.object(policy.model, "embed_prefix", embedded):
            marks.set()
            context = network.encode(seen)
            marks.set()
            for _ in range(network.num_steps):
                network.velocity(x, t, context, None, times)
            marks.set()
        images, prefill, steps = marks.between()
        return [images, prefill, steps / network.num_steps]

    def first_row() -> float:  # those after it may still be under way
        _wait(device)
        started_s = time.perf_counter()
        next(sampler.run(batch, first_rows))
        return time.perf_counter() - started_s

    images, prefill, step = zip(*[by_stage() for _ in range(n + NUM_WARM)][NUM_WARM:], strict=True)
    return {
        IMAGES: [*images],
        PREFILL: [*prefill],
        STEP: [*step],
        WHOLE: _timed(lambda: _exhaust(sampler.run(batch, ConstantSchedule())), device, n),
        FIRST_ROW: [first_row() for _ in range(n + NUM_WARM)][NUM_WARM:],
    }


def lerobots_times(policy: Any, batch_size: int, *, n: int) -> list[float]:
    """Seconds of `predict_action_chunk`, n times."""
    seen = random_batch(policy, batch_size)
    with torch.no_grad():
        return _timed(lambda: policy.predict_action_chunk(seen).cpu(), torch.device(policy.config.device), n)


def floor(policy: Any, batch_size: int, peak: Peak) -> dict[str, float]:
    """Seconds below which no stage can be."""
    config = policy.config
    vision, language, expert = _parts(policy)
    pictures = len(config.image_features)
    with torch.no_grad():
        embedded = _embed_images(policy, random_batch(policy, 1))
    per_picture = embedded.shape[1]
    patches = per_picture * _patches_per_token(policy)
    prefix = pictures * per_picture + config.tokenizer_max_length

    def at_best(module: list[nn.Module], tokens: int, more_bytes: int = 0) -> float:
        weights = sum(p.numel() for part in module for p in part.parameters())
        size = next(module[0].parameters()).element_size()
        operations = 2 * weights * tokens * batch_size
        return max(operations / peak.operations_per_s, (weights * size + more_bytes) / peak.bytes_per_s)

    text = _text_config(policy)
    cache = 2 * len(language) * text.num_key_value_heads * text.head_dim * prefix  # numbers, of one robot
    size = next(language[0].parameters()).element_size()
    images = at_best(vision, pictures * patches)
    prefill = at_best(language[:-1], prefix)  # the last layer gives keys and values alone
    step = at_best(expert, config.chunk_size, cache * size * batch_size)
    whole = images + prefill + network_steps(policy) * step
    return {
        IMAGES: images, PREFILL: prefill, STEP: step, WHOLE: whole,
        FIRST_ROW: images + prefill + step, LEROBOT: whole,
    }  # fmt: skip


def network_steps(policy: Any) -> int:
    """Flow times of a chunk."""
    return int(getattr(policy.config, "num_inference_steps", None) or policy.config.num_steps)


def _parts(policy: Any) -> tuple[list[nn.Module], list[nn.Module], list[nn.Module]]:
    """Image encoder; layers that make the prefix; what runs in every step."""
    model = policy.model
    heads = [m for name, m in model.named_children() if name.startswith(("action_", "time_"))]
    if hasattr(model, "vlm_with_expert"):
        both = model.vlm_with_expert
        vlm = both.get_vlm_model()
        return [vlm.vision_model, vlm.connector], list(vlm.text_model.layers), [both.lm_expert, *heads]
    both = model.paligemma_with_expert
    vlm = both.paligemma.model
    vision = [vlm.vision_tower, vlm.multi_modal_projector]
    return vision, list(vlm.language_model.layers), [*both.gemma_expert.model.layers, *heads]


def _text_config(policy: Any) -> Any:
    model = policy.model
    if hasattr(model, "vlm_with_expert"):
        return model.vlm_with_expert.config.text_config
    return model.paligemma_with_expert.paligemma.config.text_config


def _patches_per_token(policy: Any) -> int:
    model = policy.model
    return model.vlm_with_expert.config.scale_factor**2 if hasattr(model, "vlm_with_expert") else 1


def _embed_images(policy: Any, seen: dict[str, Tensor]) -> Tensor:
    """All pictures, one after the other as LeRobot has it; the last one's tokens (B, n, width)."""
    model, out = policy.model, None
    both = model.vlm_with_expert if hasattr(model, "vlm_with_expert") else model.paligemma_with_expert
    pictures = (
        policy.prepare_images(seen) if hasattr(policy, "prepare_images") else policy._preprocess_images(seen)
    )
    with torch.no_grad():
        for picture in pictures[0]:
            out = both.embed_image(picture)
    assert out is not None
    return out


def _batch(seen: dict[str, Tensor], size: int, row_dim: int) -> Batch:
    return Batch(seen=seen, planned=[np.zeros((0, row_dim))] * size, delays=[0] * size, seeds=[*range(size)])


def _exhaust(steps: Iterator[Any]) -> None:
    for _ in steps:
        pass


class _Marks:
    """Instants of the device: when it has come to what was launched last."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._set: list[Any] = []

    def set(self) -> None:
        if self._device.type != "cuda":
            self._set.append(time.perf_counter())
            return
        self._set.append(torch.cuda.Event(enable_timing=True))
        self._set[-1].record()

    def between(self) -> list[float]:
        """Seconds from each to the next."""
        _wait(self._device)
        if self._device.type != "cuda":
            return [b - a for a, b in pairwise(self._set)]
        return [1e-3 * a.elapsed_time(b) for a, b in pairwise(self._set)]


def _timed(work: Callable[[], Any], device: torch.device, n: int) -> list[float]:
    """Seconds of each of n calls, after the first that do not count; the device has finished at both ends."""
    times = []
    for i in range(n + NUM_WARM):
        _wait(device)
        started_s = time.perf_counter()
        work()
        _wait(device)
        if i >= NUM_WARM:
            times.append(time.perf_counter() - started_s)
    return times


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
