"""Our flow policy behind LeRobot's interfaces: `PeerPolicy` and its two processor pipelines.

What runs between them is theirs: the Euler loop (`euler_integrate`), the guidance (`RTCProcessor`), the
re-anchoring of what is left over (`reanchor_relative_rtc_prefix`), relative and absolute actions.

    flow time   ours    t   = 0 noise ──────► 1 action    v = action - noise
                theirs  1-t = 1 noise ──────► 0 action    v = noise - action

    theirs  observation.state ─► relative ─► normalise ─► predict_action_chunk ─► restore ─► absolute ─► queue
            (float32)            (anchor)    (features)                           (rows)     (+ joints)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from lerobot.configs import RTCAttentionSchedule
from lerobot.lerobot_types import TransitionKey
from lerobot.policies.common.flow_matching import euler_integrate
from lerobot.policies.rtc import RTCConfig, RTCProcessor
from lerobot.processor import (
    AbsoluteActionsProcessorStep,
    NormalizerProcessorStep,
    PolicyProcessorPipeline,
    RelativeActionsProcessorStep,
)
from lerobot.processor.converters import policy_action_to_transition, transition_to_policy_action
from lerobot.processor.pipeline import ProcessorStep
from torch import Tensor

from policies.flow.checkpoint import Checkpoint
from policies.flow.features import state_features
from robot_runtime.core.values.action import ActionSpec, GripperWidth, JointPosition, Reference
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import InvalidValueError
from scripts.lab.baselines.virtual_time import LockstepTime

STATE = "observation.state"
NUM_TAGS = 2
"""Columns behind a processed row's own, carried through their queue: number of the request and of the row."""


class RequestLostError(Exception):
    """A request whose answer never came; LeRobot's engine catches it, waits and asks again."""


@dataclass(kw_only=True, eq=False)
class PeerRequest:
    """One call of the policy."""

    t_ns: int
    """When the engine asked [ns]."""
    t_obs_ns: int
    """Capture time of the observation it asked with, the newest it had been shown [ns]."""
    inference_delay: int
    """Rows the engine expected to run meanwhile."""
    rows: np.ndarray | None = None
    """The answer (H, D), absolute; None until it has come."""


@dataclass(kw_only=True, eq=False)
class PeerPolicy:
    """The parts of a policy that `RTCInferenceEngine` needs; takes the given time."""

    checkpoint: Checkpoint
    rtc_config: RTCConfig
    time: LockstepTime
    delay_ns: Callable[[int], int | None]
    """Time of capture within the episode to the delay from then to the answer [ns]; None if there is none."""
    lost_after_ns: int
    """How long a request without an answer is waited for [ns]."""
    seed: int
    config: object = None
    """LeRobot's own policy configuration; the engine only looks whether it names action features."""
    shown_ns: int = 0
    """Capture time of the newest observation that was published; kept by the control loop [ns]."""
    requests: list[PeerRequest] = field(default_factory=list)
    num_evaluations: int = 0
    """Network calls."""
    num_failed: int = 0
    """Requests that were lost."""

    @property
    def num_requests(self) -> int:
        return len(self.requests)

    def supports_rtc(self) -> bool:
        return True

    def reset(self) -> None:
        """Nothing is held from call to call."""

    @torch.no_grad()
    def predict_action_chunk(
        self,
        batch: dict,
        *,
        inference_delay: int | None = None,
        prev_chunk_left_over: Tensor | None = None,
        execution_horizon: int | None = None,
    ) -> Tensor:
        """Normalised rows (1, H, D) in float32; as `PI0Pytorch.sample_actions` calls the integrator.

        batch: `observation.state` (1, F), normalised, and the task's text.
        prev_chunk_left_over: (n, D) normalised, row 0 due with the new chunk's row 0.
        """
        k, now_ns = self.num_requests, self.time.now_ns
        self.requests.append(
            PeerRequest(t_ns=now_ns, t_obs_ns=self.shown_ns, inference_delay=inference_delay or 0)
        )
        delay_ns = self.delay_ns(self.shown_ns)
        if delay_ns is None:
            self.num_failed += 1
            self.time.sleep_ns(self.lost_after_ns)
            raise RequestLostError(f"request {k} was lost")
        checkpoint, spec = self.checkpoint, self.checkpoint.info.action_spec
        # The executor's own seeds, so that both draw the same noise for their k-th request.
        seed = (self.seed * 1_000_003 + k) % 2**31
        noise = torch.randn(1, spec.horizon, spec.dim, generator=torch.Generator().manual_seed(seed))
        task = torch.tensor([checkpoint.info.tasks.index(batch["task"][0])])
        context = checkpoint.model.encode(batch[STATE], task)
        rows = euler_integrate(
            self._denoiser(context),
            noise,
            checkpoint.num_steps,
            rtc_processor=RTCProcessor(self.rtc_config),
            rtc_enabled=self.rtc_config.enabled,
            inference_delay=inference_delay,
            prev_chunk_left_over=prev_chunk_left_over,
            execution_horizon=execution_horizon,
        )
        self.time.sleep_ns(max(0, self.requests[k].t_obs_ns + delay_ns - now_ns))
        return rows

    def _denoiser(self, context: Tensor) -> object:
        """Their `denoise_fn`: velocity (1, H, D) of rows at their time (1,), 1 = noise."""

        def velocity(rows: Tensor, time: Tensor) -> Tensor:
            self.num_evaluations += 1
            t = (1.0 - time)[:, None].expand(rows.shape[:2])
            return -self.checkpoint.model.velocity(rows, t, context)

        return velocity


class RowNormaliser(NormalizerProcessorStep):
    """Our statistics where the engine expects LeRobot's.

    Features as we scale and clip them; rows per row and column, so the left-over's first row is scaled as the
    row 0 it is about to become.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(features={}, norm_map={})
        self._checkpoint = checkpoint

    def __call__(self, transition: dict) -> dict:
        """Normalise the state (1, F) and an action (n, D + tags) of at most H rows."""
        out, spec = transition.copy(), self._checkpoint.info.action_spec
        observation, action = out.get(TransitionKey.OBSERVATION), out.get(TransitionKey.ACTION)
        if observation is not None:
            features = self._checkpoint.features.features(observation[STATE].double().numpy())
            out[TransitionKey.OBSERVATION] = {**observation, STATE: _float32(features)}
        if action is not None:
            rows = action[: spec.horizon, : spec.dim].double().numpy()
            out[TransitionKey.ACTION] = _float32(self._checkpoint.rows.normalise(rows))
        return out


class RestoreRows(ProcessorStep):
    """Inverse of `RowNormaliser` for a chunk (1, H, D)."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint

    def __call__(self, transition: dict) -> dict:
        rows = self._checkpoint.rows.restore(transition[TransitionKey.ACTION][0].double().numpy())
        return {**transition, TransitionKey.ACTION: _float32(rows)[None]}

    def transform_features(self, features: dict) -> dict:
        return features


class TagRows(ProcessorStep):
    """Writes behind each row which request and row it is, and keeps the chunk for the record."""

    def __init__(self, policy: PeerPolicy) -> None:
        self._policy = policy

    def __call__(self, transition: dict) -> dict:
        """(1, H, D) to (1, H, D + tags)."""
        rows = transition[TransitionKey.ACTION][0].double().numpy()
        self._policy.requests[-1].rows = rows
        request = np.full(len(rows), self._policy.num_requests - 1)
        tagged = np.column_stack([rows, request, np.arange(len(rows))])
        return {**transition, TransitionKey.ACTION: _float32(tagged)[None]}

    def transform_features(self, features: dict) -> dict:
        return features


def make_processors(policy: PeerPolicy) -> tuple[PolicyProcessorPipeline, PolicyProcessorPipeline]:
    """(before, after) the policy, built of LeRobot's steps but for the two above."""
    spec = policy.checkpoint.info.action_spec
    _check(spec)
    names = [*(f"joint {i}" for i in range(spec.dim - 1)), "gripper"]
    relative = RelativeActionsProcessorStep(enabled=True, exclude_joints=["gripper"], action_names=names)
    absolute = AbsoluteActionsProcessorStep(enabled=True, relative_step=relative)
    before = PolicyProcessorPipeline(steps=[relative, RowNormaliser(policy.checkpoint)])
    after = PolicyProcessorPipeline(
        steps=[RestoreRows(policy.checkpoint), absolute, TagRows(policy)],
        to_transition=policy_action_to_transition,
        to_output=transition_to_policy_action,
    )
    return before, after


def make_rtc_config(
    *, enabled: bool, schedule: str, max_guidance_weight: float, execution_horizon: int
) -> RTCConfig:
    """LeRobot's configuration; `schedule` is the value of one of its `RTCAttentionSchedule`."""
    return RTCConfig(
        enabled=enabled,
        prefix_attention_schedule=RTCAttentionSchedule(schedule),
        max_guidance_weight=max_guidance_weight,
        execution_horizon=execution_horizon,
    )


def _check(spec: ActionSpec) -> None:
    match spec.fields:
        case (JointPosition(reference=Reference.ABSOLUTE), GripperWidth()):
            return
    raise InvalidValueError(
        f"the peer drives absolute joint rows with a gripper width, the policy has {spec.fields}"
    )


def feature_names(size: int) -> list[str]:
    """Names of the state's numbers, as LeRobot's robots name theirs."""
    return [f"{i}.pos" for i in range(size)]


def observation_frame(observation: Observation, checkpoint: Checkpoint) -> dict[str, float]:
    """An observation as LeRobot's robots give one: name to number."""
    features = state_features(observation, checkpoint.info.schema, checkpoint.feature_config)
    return dict(zip(feature_names(len(features)), features.tolist(), strict=True))


def _float32(array: np.ndarray) -> Tensor:
    return torch.as_tensor(array, dtype=torch.float32)
