"""Runs LeRobot's X-VLA with our samplers; its network and its steps are unchanged.

It predicts the action and restarts each step from the initial noise (`FlowNetwork.renoises`):

    x(t') = (1 - t') noise + t' a(x(t), t)      our flow time: 0 noise, 1 action

The flow time is already a part of every row's token, so each row may have its own.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from lerobot.policies.xvla.soft_transformer import timestep_embedding
from torch import Tensor, nn

from policies.lerobot.flow import scaling

_SURE = 0.999
"""Share of a closed or open gripper, whose logit the network predicts."""


@dataclass(frozen=True, eq=False)
class Seen:
    """The encoding of B requests, tensors with B first."""

    encoded: dict[str, Tensor]
    """Output of the vision-language model."""
    domain_id: Tensor
    proprio: Tensor


class XvlaFlow:
    """X-VLA as a `policies.flow.network.FlowNetwork`."""

    looks_back_only, renoises, whole = False, True, None

    def __init__(self, policy: Any, after: Callable[[Tensor], Tensor], *, horizon: int, dim: int) -> None:
        """
        policy: LeRobot's. after: its postprocessor, from its rows to the robot's. horizon, dim: size of the
            robot's rows.
        CheckpointError: the postprocessor does more than scale columns.
        """
        self._policy, self._after, self._dim = policy, after, dim
        self._model = policy.model
        self.horizon, self.row_dim = horizon, int(self._model.dim_action)
        self.num_steps = int(policy.config.num_denoising_steps)
        self.device = torch.device(policy.config.device)
        self.scale, self.offset = scaling(after, dim)
        """As in `LeRobotFlow`."""
        self._dtype = torch.bfloat16 if policy.config.dtype == "bfloat16" else torch.float32
        self._times = torch.zeros(0)
        self._model.transformer.action_encoder.register_forward_pre_hook(self._with_times_by_row)

    def chunk(self) -> AbstractContextManager[None]:
        return nullcontext()

    def encode(self, seen: dict[str, Any]) -> Seen:
        """The encoding of a preprocessed batch; its prefix passes through the network once."""
        inputs = self._policy._build_model_inputs(seen)
        encoded = self._model.forward_vlm(
            inputs["input_ids"], inputs["image_input"].to(self._dtype), inputs["image_mask"]
        )
        return Seen(encoded, inputs["domain_id"], inputs["proprio"].to(self._dtype))

    def velocity(
        self, x: Tensor, t: Tensor, context: Seen, is_prefix: Tensor | None, times: Tensor
    ) -> Tensor:
        """As `FlowNetwork.velocity`: (a - x) / (1 - t), and 0 at t = 1."""
        n = len(x) // len(context.proprio)
        domain_id, proprio = (y.repeat_interleave(n, 0) for y in (context.domain_id, context.proprio))
        encoded = {name: y.repeat_interleave(n, 0) for name, y in context.encoded.items()}
        shown, noisy = self._model.action_space.preprocess(proprio, x.to(self._dtype))
        self._times = (1.0 - t).to(self._dtype)  # LeRobot counts from 1, noise, to 0
        predicted = self._model.transformer(
            domain_id=domain_id, action_with_noise=noisy, proprio=shown, t=self._times[:, 0], **encoded
        )
        left = (1.0 - t)[..., None]
        return torch.where(left > 0.0, (predicted.to(x.dtype) - x) / left, 0.0)

    def normalised(self, rows: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n R"]:
        out = np.zeros((len(rows), self.row_dim))
        out[:, : self._dim] = (rows - self.offset) / self.scale
        for column in self._grippers:
            share = np.clip(out[:, column], 1.0 - _SURE, _SURE)
            out[:, column] = np.log(share / (1.0 - share))
        return out

    def restored(self, rows: Tensor) -> Float[np.ndarray, "*b H D"]:
        theirs = self._model.action_space.postprocess(rows.clone())
        return self._after(theirs[..., : self._dim]).double().numpy()

    @property
    def _grippers(self) -> tuple[int, ...]:
        """Columns that it predicts as logits: those whose output for 0 is one half."""
        zero = self._model.action_space.postprocess(torch.zeros((1, 1, self.row_dim)))[0, 0]
        return tuple(torch.nonzero(zero[: self._dim]).flatten().tolist())

    def _with_times_by_row(self, encoder: nn.Module, given: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Replace the common flow time at the end of each row's token by the row's own."""
        tokens, domain_id = given
        size, shape = self._model.transformer.dim_time, self._times.shape
        times = timestep_embedding(self._times.flatten(), size).unflatten(0, shape)
        return torch.cat([tokens[..., :-size], times.to(tokens.dtype)], dim=-1), domain_id
