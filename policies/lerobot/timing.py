"""Profiles a VLA: `stage_times` of LeRobot's flows with our samplers, and their lower bound, the `floor`.

    observation ─► image encoder ─► prefill ─► step, step, ..., step ─► rows to the host
                   └──────── once ────────┘    └── once per flow time

Parts are timed in the running chunk, by events on a GPU, so they add up to the whole.

The image encoder's time covers the prefix's embedding: images prepared and encoded, words looked up.

The floor of a stage is max(operations / peak, bytes / bandwidth), with 2 operations per weight and token,
every weight read once, and the cached keys and values once per robot (roofline). Peaks are from the data
sheet (dense bf16) if the device is known, else measured by a large product and a large copy in this run.
"""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from policies.lerobot.prompts import BUCKET
from policies.lerobot.random import random_batch
from robot_runtime.core.method.sampler_parts import ConstantSchedule, HorizonAwareSchedule

IMAGES, PREFILL, STEP, ROWS = "image encoder", "prefill", "one expert step", "rows to the host"
PARTS = (IMAGES, PREFILL, STEP, ROWS)
"""Parts of a chunk, which has as many steps as flow times."""
WHOLE, FIRST_ROW, LEROBOT = "whole chunk", "first row out", "LeRobot's predict_action_chunk"
STAGES = (*PARTS, WHOLE, FIRST_ROW, LEROBOT)
NUM_WARM = 3
"""Warm-up calls: torch compiles in the first, and records CUDA graphs in the next two."""
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
    """Peak performance of a device."""

    operations_per_s: float
    bytes_per_s: float
    source: str


def peak_of(device: torch.device, dtype: torch.dtype) -> Peak:
    """The peak of a device, known from its name or measured."""
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


def stage_times(
    policy: Any, network: LeRobotFlow, batch_size: int, *, n: int, num_words: int = 20
) -> dict[str, list[float]]:
    """Seconds of each stage, n times; LeRobot's own whole chunk is timed by `lerobots_times`.

    All but the first row's are from the same n chunks, so parts and whole can be compared. A network that
    runs chunks as a whole has no parts that could be timed.

    policy, network: the same one; it may be compiled.
    """
    device, sampler = network.device, ChunkSampler(network)
    batch = _batch(served_batch(policy, batch_size, num_words), batch_size, network.row_dim)
    first_rows = HorizonAwareSchedule()

    def first_row() -> float:  # later rows may still be in progress
        _wait(device)
        started_s = time.perf_counter()
        next(sampler.run(batch, first_rows))
        return time.perf_counter() - started_s

    first_rows_s = [first_row() for _ in range(n + NUM_WARM)][NUM_WARM:]
    if network.whole is not None:
        whole = _timed(lambda: _exhaust(sampler.run(batch, ConstantSchedule())), device, n)
        return {WHOLE: whole, FIRST_ROW: first_rows_s}
    chunks = [watched_chunk(policy, network, sampler, batch) for _ in range(n + NUM_WARM)][NUM_WARM:]
    return {
        **{stage: [chunk[stage] for chunk in chunks] for stage in (*PARTS, WHOLE)},
        FIRST_ROW: first_rows_s,
    }


def seconds_to_warm(policy: Any, network: LeRobotFlow, batch_size: int, *, num_words: int = 20) -> float:
    """Seconds of the first chunks of a kind, in which torch compiles and records graphs."""
    batch = _batch(served_batch(policy, batch_size, num_words), batch_size, network.row_dim)
    started_s = time.perf_counter()
    for _ in range(NUM_WARM):
        _exhaust(ChunkSampler(network).run(batch, ConstantSchedule()))
    _wait(network.device)
    return time.perf_counter() - started_s


def watched_chunk(policy: Any, network: LeRobotFlow, sampler: ChunkSampler, batch: Batch) -> dict[str, float]:
    """Seconds of the parts of one chunk as it is sampled, and of the whole by the host's clock.

    Each part ends when the device has finished its last kernel: host work and waits of the device count for
    the part in which they happen, so all parts add up to the whole.
    """
    device, marks = network.device, _Marks(network.device)

    def marked(function: Callable) -> Callable:
        def run(*given: Any, **named: Any) -> Any:
            out = function(*given, **named)
            marks.set()
            return out

        return run

    _wait(device)
    with (
        patch.object(policy.model, "embed_prefix", marked(policy.model.embed_prefix)),
        patch.object(network, "encode", marked(network.encode)),
        patch.object(network, "velocity", marked(network.velocity)),
    ):
        started_s = time.perf_counter()
        marks.set()
        for _ in sampler.run(batch, ConstantSchedule()):
            pass
        marks.set()
        _wait(device)
        whole = time.perf_counter() - started_s
    images, prefill, *steps, rows = marks.between()
    return {IMAGES: images, PREFILL: prefill, STEP: sum(steps) / len(steps), ROWS: rows, WHOLE: whole}


def parts_over_whole(times: Mapping[str, Sequence[float]], num_steps: int) -> float:
    """Sum of a chunk's parts as a share of the whole, median of all chunks: 1.0 if none is missing."""
    counts = {stage: num_steps if stage == STEP else 1 for stage in PARTS}
    sums = np.sum([counts[stage] * np.asarray(times[stage]) for stage in PARTS], axis=0)
    return float(np.median(sums / np.asarray(times[WHOLE])))


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """The kernels that a GPU ran for one chunk."""

    num: int
    seconds: float
    """Total of all kernels; for the rest of the chunk the GPU waited."""


def kernels_of_chunk(
    policy: Any, network: LeRobotFlow, batch_size: int, *, num_words: int = 20
) -> Kernels | None:
    """Kernels by torch's profiler, after `stage_times` has compiled them; None on other devices."""
    if network.device.type != "cuda":
        return None
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    sampler = ChunkSampler(network)
    batch = _batch(served_batch(policy, batch_size, num_words), batch_size, network.row_dim)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        _exhaust(sampler.run(batch, ConstantSchedule()))
        _wait(network.device)
    on_device = [event for event in seen.events() or () if event.device_type is DeviceType.CUDA]
    return Kernels(num=len(on_device), seconds=1e-6 * sum(event.device_time_total for event in on_device))


def served_batch(policy: Any, size: int, num_words: int) -> dict[str, Tensor]:
    """`random_batch` with the prompt length of a compiling server (`policies.lerobot.prompts`)."""
    return random_batch(policy, size, num_words=num_words, length=prompt_length(policy, num_words))


def prompt_length(policy: Any, num_words: int) -> int:
    """Number of tokens, with padding, in the network's input for a prompt of `num_words`."""
    return min(-(-num_words // BUCKET) * BUCKET, int(policy.config.tokenizer_max_length))


def device_facts(device: torch.device) -> dict[str, str]:
    """Conditions of a measurement beside the code: the device, its driver, its clocks and its power limit."""
    if device.type != "cuda":
        return {"name": "CPU", "threads": str(torch.get_num_threads())}
    facts = {"name": torch.cuda.get_device_name(device), "cuda": str(torch.version.cuda)}
    asked = ("driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.limit", "temperature.gpu")
    if (command := shutil.which("nvidia-smi")) is not None:
        line = [
            command,
            f"--query-gpu={','.join(asked)}",
            "--format=csv,noheader",
            f"--id={device.index or 0}",
        ]
        output = subprocess.run(line, capture_output=True, text=True, check=False).stdout
        facts |= dict(zip(asked, output.strip().split(", "), strict=False))
    return facts


def lerobots_times(policy: Any, batch_size: int, *, n: int, num_words: int = 20) -> list[float]:
    """Seconds of `predict_action_chunk`, n times, with LeRobot's own padding of prompts."""
    seen = random_batch(policy, batch_size, num_words=num_words)
    with torch.no_grad():
        return _timed(lambda: policy.predict_action_chunk(seen).cpu(), torch.device(policy.config.device), n)


def floor(policy: Any, batch_size: int, peak: Peak, *, num_words: int = 20) -> dict[str, float]:
    """Lower bound of each stage's time [s]."""
    config = policy.config
    vision, language, expert = _parts(policy)
    num_images = len(config.image_features)
    with torch.no_grad():
        embedded = _embed_images(policy, random_batch(policy, 1))
    per_image = embedded.shape[1]
    patches = per_image * _patches_per_token(policy)
    prefix = num_images * per_image + prompt_length(policy, num_words)

    def at_best(module: list[nn.Module], tokens: int, more_bytes: int = 0) -> float:
        weights = sum(p.numel() for part in module for p in part.parameters())
        size = next(module[0].parameters()).element_size()
        operations = 2 * weights * tokens * batch_size
        return max(operations / peak.operations_per_s, (weights * size + more_bytes) / peak.bytes_per_s)

    text = _text_config(policy)
    cache = 2 * len(language) * text.num_key_value_heads * text.head_dim * prefix  # numbers, of one robot
    size = next(language[0].parameters()).element_size()
    images = at_best(vision, num_images * patches)
    prefill = at_best(language[:-1], prefix)  # the last layer only gives keys and values
    step = at_best(expert, config.chunk_size, cache * size * batch_size)
    rows = 4 * config.chunk_size * config.max_action_dim * batch_size / peak.bytes_per_s
    whole = images + prefill + network_steps(policy) * step + rows
    return {
        IMAGES: images, PREFILL: prefill, STEP: step, ROWS: rows, WHOLE: whole,
        FIRST_ROW: images + prefill + step, LEROBOT: whole,
    }  # fmt: skip


def network_steps(policy: Any) -> int:
    """Number of flow times of a chunk."""
    return int(getattr(policy.config, "num_inference_steps", None) or policy.config.num_steps)


def _parts(policy: Any) -> tuple[list[nn.Module], list[nn.Module], list[nn.Module]]:
    """The image encoder, the layers of the prefix, and the modules that run in every step."""
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
    """Embed all images, one after the other as LeRobot does; returns the last one's tokens (B, n, width)."""
    model, out = policy.model, None
    both = model.vlm_with_expert if hasattr(model, "vlm_with_expert") else model.paligemma_with_expert
    images = (
        policy.prepare_images(seen) if hasattr(policy, "prepare_images") else policy._preprocess_images(seen)
    )
    with torch.no_grad():
        for image in images[0]:
            out = both.embed_image(image)
    assert out is not None
    return out


def _batch(seen: dict[str, Tensor], size: int, row_dim: int) -> Batch:
    return Batch(seen=seen, planned=[np.zeros((0, row_dim))] * size, delays=[0] * size, seeds=[*range(size)])


def _exhaust(steps: Iterator[Any]) -> None:
    for _ in steps:
        pass


class _Marks:
    """Time stamps of the device, each when it has finished all work launched so far."""

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
        """Seconds from each time stamp to the next."""
        _wait(self._device)
        if self._device.type != "cuda":
            return [b - a for a, b in pairwise(self._set)]
        return [1e-3 * a.elapsed_time(b) for a, b in pairwise(self._set)]


def _timed(work: Callable[[], Any], device: torch.device, n: int) -> list[float]:
    """Seconds of each of n calls after the warm-up; the device is idle before and after each."""
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
