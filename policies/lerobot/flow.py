"""Runs LeRobot's flow policies (SmolVLA, pi0, pi0.5) under our samplers: their networks, our steps.

    their preprocessor ─► their own predict_action_chunk, stopped where it would begin to integrate
                                        │
                          prefix encoded once ─► velocity(rows, flow times) as often as a sampler needs

LeRobot counts flow time from 1, noise, to 0, action, with velocity noise - action; ours runs in reverse. It
has one flow time per chunk. Committed rows and early first rows need one per row, which enters the same
layers row by row; with equal times the result is LeRobot's.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from lerobot.policies.pi_gemma import PiGemmaRMSNorm
from torch import Tensor

from policies.cuda_graphs import one_chunk
from policies.flow.sampler import num_final
from policies.flow.whole import Whole
from policies.lerobot.causal import CausalSuffix
from policies.lerobot.flow_times import TimeTable, embedded_times, pi05_condition
from policies.lerobot.fused import fuse
from policies.lerobot.once_a_chunk import OnceAChunk
from policies.lerobot.pi_step import seen_by_rows, step_on_prefix
from policies.lerobot.precision import in_one_format
from policies.lerobot.whole import WholeChunks
from robot_runtime.errors import CheckpointError

Denoise = Callable[[Tensor, Tensor], Tensor]
"""LeRobot's velocity (B, H, R) of rows (B, H, R) at its flow times (B,), or (B, H) after our changes."""
COMPILABLE = ("smolvla", "pi0", "pi05")
FLOWS = (*COMPILABLE, "xvla")
"""Types of LeRobot configurations that are flows; the last is run by `policies.lerobot.xvla`."""
MOST_SHAPES = 64
"""Variants that torch may compile: batch sizes times prompt lengths times with and without gradients."""
_ONE_AT_A_TIME = Lock()
"""Prevents that two server threads in one process replace a module's function at once."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """The encoding of B requests."""

    denoise: Denoise
    batch_size: int
    causal: CausalSuffix | None = None
    """Replaces `denoise` for one sample of each request, where rows attend only to earlier ones."""


class LeRobotFlow:
    """A LeRobot flow as a `policies.flow.network.FlowNetwork`."""

    renoises = False

    def __init__(
        self,
        policy: Any,
        after: Callable[[Tensor], Tensor],
        *,
        horizon: int,
        dim: int,
        is_compiled: bool = False,
        is_whole: bool = False,
    ) -> None:
        """
        policy: LeRobot's, of one of COMPILABLE; from here on its layers also take a flow time per row, and
            all have the format of those that compute rows (`in_one_format`).
        after: its postprocessor, from its rows to the robot's. horizon, dim: size of the robot's rows.
        is_compiled: whether to `compile_network` it. All rows are then computed in every call, because shapes
            have to be constant.
        is_whole: whether to run a chunk as one unit, from images to rows (`WholeChunks`). A GPU records
            compiled ones only, because LeRobot's own layers depend on the host.
        CheckpointError: the postprocessor does more than scale columns.
        """
        config = policy.config
        self._policy, self._after, self._dim = policy, after, dim
        self.horizon, self.row_dim = horizon, int(config.max_action_dim)
        self.looks_back_only = config.type == "smolvla" and not is_compiled
        self.num_steps = int(getattr(config, "num_inference_steps", None) or config.num_steps)
        self.device = torch.device(config.device)
        self.scale, self.offset = scaling(after, dim)
        """Factor and offset of each column (D,), from LeRobot's numbers to the robot's."""
        self._module, self._is_compiled = sys.modules[type(policy).__module__], is_compiled
        take_flow_times_by_row(policy.model, config.type)
        if config.type in ("pi0", "pi05"):
            _read_prefix(policy.model)
        self._rounds = in_one_format(policy) is not torch.float32
        _leave_out_absent_cameras(policy)
        self._table = compile_network(policy, is_whole=is_whole) if is_compiled else None
        self.whole: Whole | None = None
        if is_whole:
            self.whole = WholeChunks(self.encode, self._table, self.device)

    def chunk(self) -> AbstractContextManager[None]:
        rounds = self._rounds and self.device.type == "cuda"
        has_graphs = self._is_compiled and self.whole is None
        if not (rounds or self._is_compiled):
            return nullcontext()
        return one_chunk(is_compiled=has_graphs, rounds=rounds)

    def encode(self, seen: dict[str, Any]) -> Encoded:
        """The encoding of a preprocessed batch; its prefix passes through the network once."""
        batch_size = len(next(value for key, value in seen.items() if key.startswith("observation.")))
        unused = torch.zeros((batch_size, self.horizon, self.row_dim), device=self.device)
        if isinstance(step := self._policy.model.denoise_step, OnceAChunk):
            step.begin()
        with _instead_of_integrating(self._module) as found:
            self._policy.predict_action_chunk(seen, noise=unused)
        (denoise,) = found
        causal = CausalSuffix(self._policy.model, denoise) if self.looks_back_only else None
        return Encoded(denoise, batch_size, causal)

    def velocity(
        self, x: Tensor, t: Tensor, context: Encoded, is_prefix: Tensor | None, times: Tensor
    ) -> Tensor:
        """As `FlowNetwork.velocity`; samples of one request share its encoding and run one after another."""
        if context.causal is not None and len(x) == context.batch_size and not x.requires_grad:
            return -context.causal(x, 1.0 - t, num_final(times))
        time_input = 1.0 - t if self._table is None else self._table(times, t.device)
        shape = context.batch_size, -1
        rows, time_input = x.unflatten(0, shape), time_input.unflatten(0, shape)
        by_sample = [-context.denoise(rows[:, k], time_input[:, k]) for k in range(rows.shape[1])]
        return torch.stack(by_sample, dim=1).flatten(0, 1)

    def normalised(self, rows: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n R"]:
        out = np.zeros((len(rows), self.row_dim))
        out[:, : self._dim] = (rows - self.offset) / self.scale
        return out

    def restored(self, rows: Tensor) -> Float[np.ndarray, "*b H D"]:
        return self._after(rows[..., : self._dim]).double().numpy()


def compile_network(policy: Any, *, backend: str = "inductor", is_whole: bool = False) -> TimeTable | None:
    """Make torch compile the parts of every chunk: the embedding of images and words, the layers, one step.

    Each batch size and prompt length is compiled at its first call; on a GPU the kernels of each part are
    launched as one graph (static shapes), unless chunks are recorded as a whole. `fused.fuse` first merges
    products into fewer and larger ones. Returns the table that replaces flow times, if one does.

    backend: torch.compile's backend.
    """
    of_times = fuse(policy)
    # Beyond its limit torch would run new shapes uncompiled, many times slower, without a warning.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, MOST_SHAPES)
    model, options = policy.model, {}
    if backend == "inductor" and torch.device(policy.config.device).type == "cuda" and not is_whole:
        options = {"mode": "reduce-overhead"}
    compiled = partial(torch.compile, backend=backend, dynamic=False, **options)
    is_pi = hasattr(model, "paligemma_with_expert")
    both = model.paligemma_with_expert if is_pi else model.vlm_with_expert
    model.embed_prefix, both.forward = compiled(model.embed_prefix), compiled(both.forward)
    if isinstance(step := model.denoise_step, OnceAChunk):
        step.of_chunk, step.step = compiled(step.of_chunk), compiled(step.step)
    else:
        model.denoise_step = compiled(step)
    return None if of_times is None else TimeTable(of_times, stays=is_whole)


def _leave_out_absent_cameras(policy: Any) -> None:
    """Skip absent cameras, for which LeRobot encodes a black image that it then masks."""
    name = "prepare_images" if hasattr(policy, "prepare_images") else "_preprocess_images"
    prepare, names = getattr(policy, name), [*policy.config.image_features]

    def present(batch: dict[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
        images, masks = prepare(batch)
        num = sum(name in batch for name in names)
        return images[:num], masks[:num]

    setattr(policy, name, present)


def _read_prefix(model: Any) -> None:
    """Make a step of pi0 or pi0.5 read the prefix's cache without changing it."""
    of_chunk = partial(seen_by_rows, model.config.chunk_size)
    model.denoise_step = OnceAChunk(of_chunk, partial(step_on_prefix, model))
    model.paligemma_with_expert.gemma_expert.model.config._attn_implementation = "eager"


def take_flow_times_by_row(model: Any, kind: str) -> None:
    """Make a model's `embed_suffix` accept flow times (B, H); with (B,) it is unchanged."""
    suffixes: dict[str, Callable] = {"smolvla": _smolvla_suffix, "pi0": _pi0_suffix, "pi05": _pi05_suffix}
    model.embed_suffix = partial(suffixes[kind], model, model.embed_suffix)
    if kind == "pi05":
        for layer in model.paligemma_with_expert.gemma_expert.modules():
            if isinstance(layer, PiGemmaRMSNorm) and layer.dense is not None:
                layer.__class__ = RowwiseNorm


class RowwiseNorm(PiGemmaRMSNorm):
    """LeRobot's norm, with a condition (B, H, C) per row as well as one (B, C) per chunk."""

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        if cond is not None:
            cond = cond.to(self.dense.weight.dtype)
        if cond is None or cond.ndim < 3:
            return super().forward(x, cond)
        scale, shift, gate = self.dense(cond).chunk(3, dim=-1)
        normed = self._norm(x) * (1 + scale.float()) + shift.float()
        return normed.to(x.dtype), gate.to(x.dtype)


def _smolvla_suffix(model: Any, whole: Callable, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if t.ndim == 1:
        return whole(x, t)
    _, pad_masks, att_masks = whole(x, t[:, 0])
    width = model.vlm_with_expert.expert_hidden_size
    return _rows_with_times(model, x, t, width), pad_masks, att_masks[:, : x.shape[1]]


def _pi0_suffix(
    model: Any, whole: Callable, state: Tensor, x: Tensor, t: Tensor
) -> tuple[Tensor, Tensor, Tensor, None]:
    if t.ndim == 1:
        return whole(state, x, t)
    embedded, pad_masks, att_masks, condition = whole(state, x, t[:, 0])
    rows = _rows_with_times(model, x, t, model.action_in_proj.out_features)
    return torch.cat([embedded[:, : -x.shape[1]], rows], dim=1), pad_masks, att_masks, condition


def _pi05_suffix(model: Any, whole: Callable, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if t.ndim == 1:
        return whole(x, t)
    embedded, pad_masks, att_masks, _ = whole(x, t[:, 0])
    return embedded, pad_masks, att_masks, pi05_condition(model, t)


def _rows_with_times(model: Any, x: Tensor, t: Tensor, width: int) -> Tensor:
    rows = model.action_in_proj(x)
    both = torch.cat([rows, embedded_times(model.config, t, width).to(rows.dtype)], dim=2)
    out: Tensor = model.action_time_mlp_out(F.silu(model.action_time_mlp_in(both)))
    return out


@contextmanager
def _instead_of_integrating(module: ModuleType) -> Iterator[list[Denoise]]:
    """A context in which LeRobot's sampling stops before it integrates; it yields the functions that it
    would have integrated."""
    found: list[Denoise] = []

    def find(denoise: Denoise, noise: Tensor, num_steps: int, **_: Any) -> Tensor:
        found.append(denoise)
        return noise

    with _ONE_AT_A_TIME:
        integrate = module.euler_integrate
        module.euler_integrate = find  # type: ignore[attr-defined]
        try:
            yield found
        finally:
            module.euler_integrate = integrate  # type: ignore[attr-defined]


def scaling(after: Callable[[Tensor], Tensor], dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Factor and offset (D,) of each column, determined by probing.

    A column that was constant in training has a constant output; its factor is 1.
    """
    probes = (torch.full((1, 1, dim), value) for value in (0.0, 1.0, 2.0))
    at_0, at_1, at_2 = (after(rows).cpu().numpy()[0, 0].astype(float) for rows in probes)
    if not np.allclose(at_2 - at_1, at_1 - at_0, rtol=1e-3, atol=1e-6):
        raise CheckpointError("the policy's postprocessor does more than scale columns")
    return np.where(at_1 == at_0, 1.0, at_1 - at_0), at_0
