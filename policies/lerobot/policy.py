"""LeRobot's own policies behind the `Policy` protocol: `load_lerobot` serves a folder saved by LeRobot.

    Observation ─► observation.* ─► their preprocessor ─► predict_action_chunk ─► their postprocessor ─► rows
                                                          or, for a flow, our samplers

A small file beside theirs declares what those leave open (`policies.lerobot.metadata`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from policies.compiled import start_compilers
from policies.files import metadata_file
from policies.flow.transfers import pinned_batch
from policies.lerobot.flow_policy import UNTRAINED, LeRobotFlowPolicy, load_flow
from policies.lerobot.info import execution_horizon, info_with
from policies.lerobot.load import (
    lerobot_config,
    lerobot_policy,
    lerobot_steps,
    picture_keys,
    refuse_misfit,
    take_relative,
    warn_of_gaps,
)
from policies.lerobot.metadata import ACTION, STATE, Columns, PolicyMetadata
from robot_runtime.core.method.capabilities import Capabilities
from robot_runtime.core.method.sampler_parts import ConstantSchedule
from robot_runtime.core.policy import ChunkRequest, NewRows, infer_one
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import CheckpointError, InvalidValueError


def load_lerobot(
    folder: Path,
    *,
    device: str = "cpu",
    dtype: str | None = None,
    is_compiled: bool = False,
    is_whole: bool = False,
    max_row_error: float | None = None,
    metadata: PolicyMetadata | None = None,
) -> "LeRobotPolicy | LeRobotFlowPolicy":
    """The policy that LeRobot saved in a folder.

    device, dtype, is_compiled, is_whole, max_row_error: as in `load_policy`. metadata: replaces the folder's.
    CheckpointError: the folder holds no supported LeRobot policy (`policies.lerobot.files`) or no metadata,
        or its rows deviate too far from float32.
    InvalidValueError: the type has no choice of dtype, or cannot be compiled; one graph is requested without
        compiling; the device has no room for it.
    """
    metadata = metadata or PolicyMetadata.load(folder)
    config = lerobot_config(folder)
    _set_up(config, device, dtype, is_compiled=is_compiled, max_row_error=max_row_error)
    if is_whole and not is_compiled:
        raise InvalidValueError("one_graph applies to a compiled policy only; add compile")
    refuse_misfit(metadata, config, folder)
    metadata = replace(metadata, picture_keys=picture_keys(config, folder))
    warn_of_gaps(metadata.info, folder, names_scene=bool(metadata.info.schema.environment_state_names))
    if is_compiled:
        start_compilers(torch.device(device).type)
    from policies.lerobot.flow import COMPILABLE, FLOWS

    if config.type in COMPILABLE:
        return load_flow(
            config,
            folder,
            metadata,
            dtype,
            is_compiled=is_compiled,
            is_whole=is_whole,
            max_row_error=max_row_error,
        )
    before, after = lerobot_steps(config, folder)
    if config.type in FLOWS:
        return LeRobotFlowPolicy(lerobot_policy(config, folder), before, after, metadata)
    can = metadata.info.capabilities
    if set(can.samplers) - set(UNTRAINED) or can.max_inference_delay:
        raise CheckpointError(
            f"{metadata_file(folder)} declares capabilities of a flow; {config.type} is not one, and takes "
            "no committed rows"
        )
    return LeRobotPolicy(lerobot_policy(config, folder), before, after, metadata)


def _set_up(
    config: Any, device: str, dtype: str | None, *, is_compiled: bool, max_row_error: float | None
) -> None:
    from policies.lerobot.flow import COMPILABLE

    config.device = device
    if dtype is not None and config.type not in COMPILABLE:
        if not hasattr(config, "dtype"):
            raise InvalidValueError(f"this is {config.type}, whose dtype is its own")
        config.dtype = dtype
    if is_compiled and config.type not in COMPILABLE:
        raise InvalidValueError(f"this is {config.type}; {', '.join(COMPILABLE)} can be compiled")
    if max_row_error is not None and config.type not in COMPILABLE:
        raise InvalidValueError(f"this is {config.type}; the row error applies to {', '.join(COMPILABLE)}")


class LeRobotPolicy:
    """Answers with whole chunks, in one call of LeRobot's policy. Takes no committed rows."""

    def __init__(self, policy: Any, before: Any, after: Any, metadata: PolicyMetadata) -> None:
        """policy, before, after: LeRobot's."""
        self._policy, self._before, self._after = policy, before, after
        self._config: Any = policy.config
        self._metadata, self._device = metadata, torch.device(policy.config.device)
        draws_nothing = self._config.type == "act"
        takes_noise = getattr(self._config, "noise_scheduler_type", None) == "DDIM"
        self._columns = Columns(metadata, take_relative(before, after, metadata.info.action_spec.dim))
        self.info = info_with(
            metadata,
            Capabilities(
                execution_horizon=execution_horizon(self._config, metadata.info),
                temporal_ensemble=getattr(self._config, "temporal_ensemble_coeff", None),
            ),
        )
        self._answers_together = draws_nothing or (self._config.type == "diffusion" and takes_noise)
        self.num_evaluations = 0
        """Number of passes of a chunk through the network so far."""

    def infer(self, request: ChunkRequest) -> Iterator[Float[np.ndarray, "n D"]]:
        """As `Policy.infer`; all rows come at once."""
        return infer_one(self, request)

    def infer_batch(self, requests: Sequence[ChunkRequest]) -> Iterator[NewRows]:
        """As `BatchPolicy.infer_batch`; all rows come at once."""
        if any(not isinstance(r.sampler, ConstantSchedule) or r.inference_delay for r in requests):
            raise InvalidValueError(
                f"policy {self.info.name!r} has its own sampler and takes no committed rows"
            )
        observations = [request.observation for request in requests]
        origins = [self._columns.origin(o.state) for o in observations]
        theirs = self.predict(observations, [request.seed for request in requests])
        rows = theirs * self._columns.scale + self._columns.offset
        num_calls = self._num_calls()
        self.num_evaluations += num_calls * len(requests)
        answered = [row + origin for row, origin in zip(rows, origins, strict=True)]
        return iter([NewRows(num_calls=num_calls, rows=answered)])

    def predict(
        self, observations: Sequence[Observation], seeds: Sequence[int]
    ) -> Float[np.ndarray, "b H D"]:
        """LeRobot's rows in its units, independent of batching: each request draws its own noise."""
        size = len(observations) if self._answers_together else 1
        chunks = []
        for i in range(0, len(observations), size):
            frames = zip(*(o.frames(self.info.n_obs_steps) for o in observations[i : i + size]), strict=True)
            with torch.no_grad():
                batches = [
                    self._before(pinned_batch(self._metadata.seen(f, self._device), self._device))
                    for f in frames
                ]
                chunks.append(self._after(self._sampled(batches, seeds[i : i + size])).float().cpu().numpy())
        return np.concatenate(chunks).astype(float)

    def _sampled(self, batches: Sequence[dict[str, Any]], seeds: Sequence[int]) -> Tensor:
        """Chunks whose random numbers come from one generator per request, the initial noise first, as in
        LeRobot after `torch.manual_seed`. The Diffusion Policy always draws on the host."""
        if self._config.type != "diffusion":
            with torch.random.fork_rng():
                torch.manual_seed(seeds[0])
                return whole_chunk(self._policy, batches)
        shape = self._config.horizon, self._config.action_feature.shape[0]
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        noise = torch.stack([torch.randn(shape, generator=each) for each in generators])
        network = self._policy.diffusion
        # Its steps draw too with DDPM, where requests are answered one by one.
        sample = partial(network.conditional_sample, generator=generators[0])
        with patch.object(network, "conditional_sample", sample):
            return whole_chunk(self._policy, batches, noise=noise.to(self._config.device))

    def _num_calls(self) -> int:
        return int(getattr(self._config, "num_inference_steps", None) or 1)


def whole_chunk(policy: Any, frames: Sequence[dict[str, Any]], **noise: Tensor) -> Tensor:
    """A chunk (B, H, D) of any LeRobot policy, from as many frames as it takes, oldest first.

    Policies that keep earlier observations build their input in `select_action`, which is therefore called
    with one frame after the other; its prediction from the last one is the chunk.
    """
    policy.reset()
    *earlier, batch = frames
    if not set(getattr(policy, "_queues", {})) - {ACTION}:
        out: Tensor = policy.predict_action_chunk(batch, **noise)
        return out
    predict, chunks = policy.predict_action_chunk, []

    def keep(*given: Any, **named: Any) -> Tensor:
        chunks.append(predict(*given, **named))
        return chunks[-1]

    def keep_looking(seen: dict[str, Any], **named: Any) -> Tensor:
        """One row, consumed at once, so that the next frame triggers another prediction."""
        return torch.zeros((len(seen[STATE]), 1, policy.config.action_feature.shape[0]))

    try:
        policy.predict_action_chunk = keep_looking
        for seen in earlier:
            policy.select_action(seen)
        policy.predict_action_chunk = keep
        policy.select_action(batch, **noise)
    finally:
        del policy.predict_action_chunk
    if policy.config.type != "tdmpc":
        return chunks[0]
    repeats, rows = policy.config.n_action_repeats, chunks[0].transpose(0, 1)
    return rows if repeats == 1 else rows[:, :1].expand(-1, repeats, -1)
