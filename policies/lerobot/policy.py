"""LeRobot's own policies behind the `Policy` protocol: `load_lerobot` serves a folder LeRobot has saved.

    Observation ─► observation.* ─► their preprocessor ─► predict_action_chunk ─► their postprocessor ─► rows
                                                          or, for a flow, our samplers

What their files leave open is in a small one beside them (`policies.lerobot.metadata`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from policies.files import metadata_file
from policies.flow.inference import ChunkSampler
from policies.flow.sampled import SampledPolicy
from policies.flow.transfers import pinned_batch
from policies.lerobot.load import lerobot_config, lerobot_policy, lerobot_steps, refuse_misfit, take_relative
from policies.lerobot.metadata import ACTION, STATE, Columns, PolicyMetadata
from robot_runtime.core.method.capabilities import Capabilities
from robot_runtime.core.method.sampler_parts import (
    AveragedSamples,
    BestOfSamples,
    ConstantSchedule,
    RtcGuidance,
    SamplerPart,
)
from robot_runtime.core.policy import ChunkRequest, NewRows, infer_one
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import ActionSpec
from robot_runtime.core.values.row_statistics import RowStatistics
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import CheckpointError, InvalidValueError

if TYPE_CHECKING:
    from policies.lerobot.flow import LeRobotFlow
    from policies.lerobot.xvla import XvlaFlow

UNTRAINED = (ConstantSchedule, AveragedSamples, BestOfSamples, RtcGuidance)
"""Sampler parts that any flow takes."""


def load_lerobot(
    folder: Path,
    *,
    device: str = "cpu",
    dtype: str | None = None,
    is_compiled: bool = False,
    metadata: PolicyMetadata | None = None,
) -> "LeRobotPolicy | LeRobotFlowPolicy":
    """What LeRobot has saved in a folder.

    device, dtype, is_compiled: as in `load_policy`. metadata: instead of the one that is there.
    CheckpointError: it holds no policy of LeRobot's that is run here (`lerobot_files`), or no metadata.
    InvalidValueError: a type whose dtype cannot be chosen, or that is no flow and was to be compiled.
    """
    metadata = metadata or PolicyMetadata.load(folder)
    config = lerobot_config(folder)
    _set_up(config, device, dtype, is_compiled=is_compiled)
    refuse_misfit(metadata, config, folder)
    policy, (before, after) = lerobot_policy(config, folder), lerobot_steps(config, folder)
    from policies.lerobot.flow import FLOWS

    if config.type in FLOWS:
        return LeRobotFlowPolicy(policy, before, after, metadata, is_compiled=is_compiled)
    can = metadata.info.capabilities
    if set(can.samplers) - set(UNTRAINED) or can.max_inference_delay:
        raise CheckpointError(
            f"{metadata_file(folder)} says what a flow was trained for; {config.type} is none, and knows no "
            "committed rows"
        )
    return LeRobotPolicy(policy, before, after, metadata)


def _set_up(config: Any, device: str, dtype: str | None, *, is_compiled: bool) -> None:
    from policies.lerobot.flow import COMPILABLE

    config.device = device
    if dtype is not None:
        if not hasattr(config, "dtype"):
            raise InvalidValueError(f"this is {config.type}, whose dtype is its own")
        config.dtype = dtype
    if is_compiled and config.type not in COMPILABLE:
        raise InvalidValueError(f"this is {config.type}; {', '.join(COMPILABLE)} can be compiled")


class LeRobotPolicy:
    """Answers with whole chunks, in one call of theirs. Knows no committed rows."""

    def __init__(self, policy: Any, before: Any, after: Any, metadata: PolicyMetadata) -> None:
        """policy, before, after: LeRobot's."""
        self._policy, self._before, self._after = policy, before, after
        self._config: Any = policy.config
        self._metadata, self._device = metadata, torch.device(policy.config.device)
        draws_nothing = self._config.type == "act"
        takes_noise = getattr(self._config, "noise_scheduler_type", None) == "DDIM"
        self._columns = Columns(metadata, take_relative(before, after, metadata.info.action_spec.dim))
        self.info = _info(
            metadata,
            Capabilities(
                execution_horizon=_execution_horizon(self._config, metadata.info),
                temporal_ensemble=getattr(self._config, "temporal_ensemble_coeff", None),
            ),
        )
        self._answers_together = draws_nothing or (self._config.type == "diffusion" and takes_noise)
        self.num_evaluations = 0
        """Passes of one chunk through the network so far."""

    def infer(self, request: ChunkRequest) -> Iterator[Float[np.ndarray, "n D"]]:
        """As `Policy.infer`; all rows come at once."""
        return infer_one(self, request)

    def infer_batch(self, requests: Sequence[ChunkRequest]) -> Iterator[NewRows]:
        """As `BatchPolicy.infer_batch`; all rows come at once."""
        if any(not isinstance(r.sampler, ConstantSchedule) or r.inference_delay for r in requests):
            raise InvalidValueError(
                f"policy {self.info.name!r} samples by itself and knows no committed rows"
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
        """Their rows in their units. Batches do not matter: noise is drawn for each request by itself."""
        size = len(observations) if self._answers_together else 1
        chunks = []
        for i in range(0, len(observations), size):
            frames = zip(*(o.frames(self.info.n_obs_steps) for o in observations[i : i + size]), strict=True)
            with torch.no_grad():
                batches = [self._before(pinned_batch(self._metadata.seen(f), self._device)) for f in frames]
                chunks.append(self._after(self._sampled(batches, seeds[i : i + size])).float().cpu().numpy())
        return np.concatenate(chunks).astype(float)

    def _sampled(self, batches: Sequence[dict[str, Any]], seeds: Sequence[int]) -> Tensor:
        noise = {}
        if self._config.type == "diffusion":
            shape = self._config.horizon, self._config.action_feature.shape[0]
            drawn = [torch.randn(shape, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
            noise["noise"] = torch.stack(drawn).to(self._config.device)
        with torch.random.fork_rng():
            torch.manual_seed(seeds[0])
            return whole_chunk(self._policy, batches, **noise)

    def _num_calls(self) -> int:
        return int(getattr(self._config, "num_inference_steps", None) or 1)


def whole_chunk(policy: Any, frames: Sequence[dict[str, Any]], **noise: Tensor) -> Tensor:
    """A chunk (B, H, D) of any policy of LeRobot's, from as many frames as it looks at, oldest first.

    Those that keep earlier observations make their input of them in `select_action`, which is called for
    that with one frame after the other: what it has predicted from the last is the chunk.
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
        """One row, which is taken at once: the next frame asks again."""
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


class LeRobotFlowPolicy(SampledPolicy):
    """A flow of theirs under our samplers; committed rows and early first rows if it was trained for them."""

    def __init__(
        self,
        policy: Any,
        before: Any,
        after: Any,
        metadata: PolicyMetadata,
        *,
        is_compiled: bool = False,
    ) -> None:
        """policy, before, after: LeRobot's. is_compiled: as in `load_policy`."""
        spec = metadata.info.action_spec
        self._columns = Columns(metadata, take_relative(before, after, spec.dim))
        scale, offset = (torch.from_numpy(x).float() for x in (self._columns.scale, self._columns.offset))
        network = _network(policy, lambda rows: after(rows) * scale + offset, spec, is_compiled=is_compiled)
        super().__init__(ChunkSampler(network))
        self._before, self._metadata, self._device = before, metadata, network.device
        said = metadata.info.capabilities
        trained = tuple(part for part in get_args(SamplerPart) if part in said.samplers)
        self.info = _info(
            metadata,
            replace(
                said,
                samplers=UNTRAINED + tuple(part for part in trained if part not in UNTRAINED),
                execution_horizon=_execution_horizon(policy.config, metadata.info),
                row_statistics=_statistics(policy.config, network, self._columns),
            ),
        )

    def _seen(self, observations: Sequence[Observation]) -> dict[str, Any]:
        return dict(self._before(pinned_batch(self._metadata.seen(observations), self._device)))

    def _origin(self, state: RobotState) -> Float[np.ndarray, " D"]:
        return self._columns.origin(state)


def _info(metadata: PolicyMetadata, capabilities: Capabilities) -> PolicyInfo:
    return replace(metadata.info, capabilities=capabilities)


def _execution_horizon(config: Any, info: PolicyInfo) -> int | None:
    """As the file says, or after as many rows as LeRobot's own loop runs, if it does not run them all."""
    said, horizon = info.capabilities.execution_horizon, info.action_spec.horizon
    if said is not None or getattr(config, "temporal_ensemble_coeff", None) is not None:
        return said
    rows = int(getattr(config, "n_action_steps", horizon))
    return rows if rows < horizon else None


def _statistics(config: Any, network: "LeRobotFlow | XvlaFlow", columns: Columns) -> RowStatistics | None:
    """What its postprocessor knows; rows that it leaves as they are say nothing of what is usual.

    Columns that count from the state each in a way of their own have none that a robot could compare with.
    """
    if columns.is_mixed or config.normalization_mapping.get("ACTION", "IDENTITY") == "IDENTITY":
        return None
    mean, std = network.offset[None], np.abs(network.scale)[None]
    return RowStatistics(mean=mean, std=std, from_measured=columns.count_from_state)


def _network(
    policy: Any, after: Callable[[Tensor], Tensor], spec: ActionSpec, *, is_compiled: bool
) -> "LeRobotFlow | XvlaFlow":
    from policies.lerobot.flow import LeRobotFlow
    from policies.lerobot.xvla import XvlaFlow

    if policy.config.type == "xvla":
        return XvlaFlow(policy, after, horizon=spec.horizon, dim=spec.dim)
    return LeRobotFlow(policy, after, horizon=spec.horizon, dim=spec.dim, is_compiled=is_compiled)
