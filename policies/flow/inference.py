"""From checked requests to relative rows: one pass of the network serves a batch of robots, or of samples."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from policies.flow.checkpoint import Checkpoint
from policies.flow.guidance import calls_per_step
from policies.flow.sampler import PreviousRows, denoise
from policies.flow.selection import best_sample, coherence_weights, medoid
from robot_runtime.core.sampler_parts import (
    AveragedSamples,
    BestOfSamples,
    Consensus,
    ConstantSchedule,
    HorizonAwareSchedule,
    RtcGuidance,
    SamplerPart,
)
from robot_runtime.core.schedule import answer_rows, finish_steps


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Requests that were checked, B of them."""

    features: Float[np.ndarray, "B F"]
    """As observed; each checkpoint has statistics of its own."""
    tasks: list[int]
    planned: list[Float[np.ndarray, "n D"]]
    """Relative rows of each robot's plan, n of its own."""
    delays: list[int]
    """How many of those are committed, d <= n."""
    seeds: list[int]


@dataclass(frozen=True, kw_only=True, eq=False)
class Progress:
    """What is known after some step."""

    num_calls: int
    """Network calls so far, one after the other."""
    num_final: list[int]
    """For each request, how many of its rows are final."""
    rows: Float[np.ndarray, "B H D"]
    """Relative; beyond `num_final` they are still noise."""


class ChunkSampler:
    """Runs sampler parts on a checkpoint, and on a weaker one where a part contrasts the two."""

    def __init__(self, checkpoint: Checkpoint, weak: Checkpoint | None, device: torch.device) -> None:
        self.num_evaluations = 0
        """Chunks that went through a network; a backward pass counts as two."""
        self._checkpoint, self._weak, self._device = checkpoint, weak, device
        self._spec = checkpoint.action_spec
        for c in (checkpoint, weak):
            if c is not None:
                c.model.to(device)

    @torch.no_grad()  # and not inference mode: guidance differentiates
    def run(self, batch: Batch, part: SamplerPart) -> Iterator[Progress]:
        """Progress whenever rows have become final, until every answer is complete."""
        num_steps, num_samples = part.num_steps or self._checkpoint.num_steps, _num_samples(part)
        finish = [self._finish_steps(part, d, num_steps) for d in batch.delays]
        ends = [answer_rows(part, horizon=self._spec.horizon, inference_delay=d) for d in batch.delays]
        noise = self._noise(batch.seeds, num_samples + (num_samples if _contrasts(part) else 0))
        previous = self._previous(batch)
        num_final = [0] * len(ends)
        steps = self._denoise(self._checkpoint, batch, part, noise[:, :num_samples], previous, num_steps)
        for step, samples in enumerate(steps, 1):
            before = num_final
            num_final = [int((f[:end] <= step).sum()) for f, end in zip(finish, ends, strict=True)]
            if num_final == before:
                continue
            x = samples[:, 0]
            if num_samples > 1:
                x = self._choose(part, samples, batch, noise[:, num_samples:], previous, num_steps)
            yield Progress(num_calls=step, num_final=num_final, rows=self._restored(self._checkpoint, x))
            if num_final == ends:
                return

    def _denoise(
        self,
        checkpoint: Checkpoint,
        batch: Batch,
        part: SamplerPart,
        noise: Tensor,
        previous: PreviousRows,
        num_steps: int,
    ) -> Iterator[Tensor]:
        """Samples (B, N, H, D) after each step, from as much noise; all N share one encoding."""
        num_samples, shape = noise.shape[1], noise.shape
        features = self._tensor(checkpoint.features.features(batch.features))
        context = checkpoint.model.encode(features, torch.tensor(batch.tasks, device=self._device))
        context = context.repeat_interleave(num_samples, 0)
        evaluations = calls_per_step(part.exact_jacobian) if isinstance(part, RtcGuidance) else 1

        def velocity(x: Tensor, t: Tensor, is_prefix: Tensor | None) -> Tensor:
            self.num_evaluations += evaluations * len(x)
            if is_prefix is None:
                return checkpoint.model.velocity(x, t, context)
            return checkpoint.model.velocity(x, t, context, is_prefix)

        steps = denoise(
            part,
            velocity,
            noise=noise.flatten(0, 1),
            previous=previous.repeat(num_samples),
            num_steps=num_steps,
        )
        return (x.unflatten(0, shape[:2]) for x in steps)

    def _choose(
        self,
        part: SamplerPart,
        samples: Tensor,
        batch: Batch,
        noise: Tensor,
        previous: PreviousRows,
        num_steps: int,
    ) -> Tensor:
        """One chunk (B, H, D) for samples (B, N, H, D); noise (B, N, H, D) is for the weaker checkpoint's."""
        match part:
            case BestOfSamples(rho=rho, num_contrast=num_contrast):
                weights = coherence_weights(
                    rho=rho, start=previous.num_committed, end=previous.num_rows, horizon=self._spec.horizon
                )
                weak = None
                if num_contrast and self._weak is not None:
                    *_, weak = self._denoise(
                        self._weak, batch, ConstantSchedule(), noise, previous, num_steps
                    )
                    weak = self._tensor(self._checkpoint.rows.normalise(self._restored(self._weak, weak)))
                return best_sample(
                    samples, previous=previous.rows, weights=weights, weak=weak, num_contrast=num_contrast
                )
            case AveragedSamples(consensus=Consensus.MEDOID):
                return medoid(samples)
            case _:
                return samples.mean(dim=1)

    def _finish_steps(self, part: SamplerPart, inference_delay: int, num_steps: int) -> np.ndarray:
        """(H,) steps after which each row is final."""
        if isinstance(part, HorizonAwareSchedule):
            return finish_steps(part, horizon=self._spec.horizon, inference_delay=inference_delay)
        return np.full(self._spec.horizon, num_steps)

    def _noise(self, seeds: list[int], num_draws: int) -> Tensor:
        """(B, draws, H, D), drawn on the CPU so that a seed means the same on every device.

        Draw by draw, so that the first sample of many is the one that a single one would have been.
        """
        shape = self._spec.horizon, self._spec.dim
        noise = torch.empty(len(seeds), num_draws, *shape)
        for i, seed in enumerate(seeds):
            generator = torch.Generator().manual_seed(seed)
            for k in range(num_draws):
                torch.randn(shape, generator=generator, out=noise[i, k])
        return noise.to(self._device)

    def _previous(self, batch: Batch) -> PreviousRows:
        rows = np.zeros((len(batch.planned), self._spec.horizon, self._spec.dim))
        for i, planned in enumerate(batch.planned):
            rows[i, : len(planned)] = self._checkpoint.rows.normalise(planned)
        return PreviousRows(
            rows=self._tensor(rows),
            num_rows=torch.tensor([len(planned) for planned in batch.planned], device=self._device),
            num_committed=torch.tensor(batch.delays, device=self._device),
        )

    def _restored(self, checkpoint: Checkpoint, rows: Tensor) -> np.ndarray:
        """Normalised rows (..., H, D) as relative ones."""
        return checkpoint.rows.restore(rows.double().cpu().numpy())

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, dtype=torch.float32, device=self._device)


def _num_samples(part: SamplerPart) -> int:
    return part.num_samples if isinstance(part, BestOfSamples | AveragedSamples) else 1


def _contrasts(part: SamplerPart) -> bool:
    return isinstance(part, BestOfSamples) and part.num_contrast > 0
