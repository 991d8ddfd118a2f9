"""LeRobot's flows behind the `Policy` protocol: `load_flow`, and `LeRobotFlowPolicy` with our samplers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from policies.flow.inference import ChunkSampler
from policies.flow.sampled import SampledPolicy
from policies.flow.transfers import pinned_batch
from policies.lerobot.info import execution_horizon, info_with, statistics_of
from policies.lerobot.load import lerobot_policy, lerobot_steps, take_relative
from policies.lerobot.metadata import Columns, PolicyMetadata
from policies.lerobot.prompts import Prompts, prompt_length, prompts_of
from robot_runtime.core.method.sampler_parts import (
    AveragedSamples,
    BestOfSamples,
    ConstantSchedule,
    RtcGuidance,
    SamplerPart,
)
from robot_runtime.core.values.action import ActionSpec
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.server.warming import zero_observation

if TYPE_CHECKING:
    from policies.lerobot.flow import LeRobotFlow
    from policies.lerobot.precision import RowCheck
    from policies.lerobot.xvla import XvlaFlow

_MOST_TASKS, _SPARE_WORDS = 32, 16
"""Tasks that determine the length of a compiled prompt, and spare tokens: pi0.5 writes the state into the
prompt, and undeclared tasks may be requested."""
UNTRAINED = (ConstantSchedule, AveragedSamples, BestOfSamples, RtcGuidance)
"""Sampler parts that work with any flow."""


def load_flow(
    config: Any,
    folder: Path,
    metadata: PolicyMetadata,
    dtype: str | None,
    *,
    is_compiled: bool,
    is_whole: bool,
    max_row_error: float | None,
) -> "LeRobotFlowPolicy":
    """A flow whose format can be chosen: it is read in float32, converted, and compared with float32.

    Where the device has no room for float32 it is read in the format itself, without a comparison.
    """
    from policies.lerobot import precision

    device = torch.device(config.device)
    served = precision.served_format(config, dtype, device)
    precision.refuse_too_large(folder, served, device)
    is_checked = served is not torch.float32 and precision.can_hold(
        precision.num_weights(folder), torch.float32, device
    )
    if hasattr(config, "dtype"):
        config.dtype = "float32" if is_checked else str(served).removeprefix("torch.")
    before, after = lerobot_steps(config, folder)
    policy, check = lerobot_policy(config, folder), None
    if is_checked:
        check = precision.RowCheck(policy, before, metadata)
    precision.set_format(policy, served)
    how = {"is_compiled": is_compiled, "is_whole": is_whole}
    loaded = LeRobotFlowPolicy(policy, before, after, metadata, **how)
    if check is not None:
        loaded.row_error = loaded.checked(check)
    elif served is torch.float32:
        loaded.row_error = 0.0
    precision.say_error(metadata.info.name, served, loaded.row_error, max_row_error)
    return loaded


class LeRobotFlowPolicy(SampledPolicy):
    """A LeRobot flow with our samplers; it takes committed rows and early first rows if trained for them."""

    row_error: float | None = None
    """Deviation of its rows from float32, as a share of their size; None if it was not measured."""

    def __init__(
        self,
        policy: Any,
        before: Any,
        after: Any,
        metadata: PolicyMetadata,
        *,
        is_compiled: bool = False,
        is_whole: bool = False,
    ) -> None:
        """policy, before, after: LeRobot's. is_compiled, is_whole: as in `LeRobotFlow`."""
        spec = metadata.info.action_spec
        self._columns = Columns(metadata, take_relative(before, after, spec.dim))
        scale, offset = (torch.from_numpy(x).float() for x in (self._columns.scale, self._columns.offset))
        how = {"is_compiled": is_compiled, "is_whole": is_whole}
        network = _network(policy, lambda rows: after(rows) * scale + offset, spec, **how)
        super().__init__(ChunkSampler(network))
        self._network = network
        self._before, self._metadata, self._device = before, metadata, network.device
        # X-VLA's encoder attends to padding too, so its prompts keep LeRobot's padding.
        self._prompts = None if policy.config.type == "xvla" else prompts_of(before)
        self._is_compiled = is_compiled
        if is_compiled and self._prompts is not None:
            self._prompts.choose(self._usual_prompt(self._prompts))
        can = metadata.info.capabilities
        trained = tuple(part for part in get_args(SamplerPart) if part in can.samplers)
        self.info = info_with(
            metadata,
            replace(
                can,
                samplers=UNTRAINED + tuple(part for part in trained if part not in UNTRAINED),
                execution_horizon=execution_horizon(policy.config, metadata.info),
                row_statistics=statistics_of(policy.config, network, self._columns),
            ),
        )

    def checked(self, check: "RowCheck") -> float:
        """Its row error, relative to its network's output in float32."""
        return check.error(self._network, self._seen)

    def _seen(self, observations: Sequence[Observation]) -> dict[str, Any]:
        seen = self._metadata.seen(observations, self._device)
        return dict(self._before(pinned_batch(seen, self._device)))

    @property
    def num_shapes(self) -> int:
        """As `core.policy.num_shapes`: the number of prompt lengths if it is compiled, else 0."""
        if not self._is_compiled:
            return 0
        return 1 if self._prompts is None else len(self._prompts.lengths)

    @contextmanager
    def in_shape(self, shape: int) -> Iterator[None]:
        """A context in which prompts have at least the length with this index."""
        if self._prompts is None:
            yield
            return
        with self._prompts.at_least(self._prompts.lengths[shape]):
            yield

    def _usual_prompt(self, prompts: Prompts) -> int:
        """Tokens of the longest prompt of its tasks, plus spare ones."""
        lengths = []
        for task in self._metadata.info.tasks[:_MOST_TASKS] or ("",):
            nothing = [zero_observation(self._metadata.info.schema, task)]
            lengths.append(prompt_length(self._before(self._metadata.seen(nothing))))
        return max(lengths) + _SPARE_WORDS

    def _origin(self, state: RobotState) -> Float[np.ndarray, " D"]:
        return self._columns.origin(state)


def _network(
    policy: Any, after: Callable[[Tensor], Tensor], spec: ActionSpec, **how: bool
) -> "LeRobotFlow | XvlaFlow":
    from policies.lerobot.flow import LeRobotFlow
    from policies.lerobot.xvla import XvlaFlow

    if policy.config.type == "xvla":
        return XvlaFlow(policy, after, horizon=spec.horizon, dim=spec.dim)
    return LeRobotFlow(policy, after, horizon=spec.horizon, dim=spec.dim, **how)
