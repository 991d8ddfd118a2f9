"""Samples relative rows for checked requests: one network pass serves a batch of robots, or of samples."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from policies.flow.checkpoint import Checkpoint
from policies.flow.guidance import calls_per_step
from policies.flow.network import FlowNetwork
from policies.flow.sampler import PreviousRows, denoise, timetable
from policies.flow.selection import best_sample, coherence_weights, medoid
from policies.flow.transfers import on_host, to_device
from policies.flow.whole import PLAIN, whole_chunk
from robot_runtime.core.method.sampler_parts import (
    AveragedSamples,
    BestOfSamples,
    Consensus,
    ConstantSchedule,
    HorizonAwareSchedule,
    RtcGuidance,
    SamplerPart,
    contrasts,
    num_samples,
)
from robot_runtime.core.method.schedule import answer_rows, finish_steps

_LARGEST = 1e15
"""Largest normalised number: networks square it in float32, which overflows at 3e38."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """B checked requests."""

    seen: Any
    """Input of the network's encoder: for ours (features (B, F) as observed, task indices)."""
    planned: list[Float[np.ndarray, "n D"]]
    """Relative rows of each robot's plan, n of its own."""
    delays: list[int]
    """How many of those are committed, d <= n."""
    seeds: list[int]


class CheckpointNetwork:
    """A `FlowNetwork` on a checkpoint of ours."""

    looks_back_only, renoises, whole = False, False, None

    def __init__(self, checkpoint: Checkpoint, device: torch.device) -> None:
        self.device = device
        self.horizon, self.row_dim = checkpoint.info.action_spec.horizon, checkpoint.info.action_spec.dim
        self.num_steps = checkpoint.num_steps
        self._checkpoint = checkpoint
        checkpoint.model.to(device)

    def chunk(self) -> AbstractContextManager[None]:
        return nullcontext()

    def encode(self, seen: tuple[Float[np.ndarray, "B F"], Sequence[int]]) -> Tensor:
        features, tasks = seen
        tensor = to_device(_single(self._checkpoint.features.features(features)), self.device)
        context: Tensor = self._checkpoint.model.encode(tensor, to_device(torch.tensor(tasks), self.device))
        return context

    def velocity(
        self, x: Tensor, t: Tensor, context: Tensor, is_prefix: Tensor | None, times: Tensor
    ) -> Tensor:
        if len(x) > len(context):
            context = context.repeat_interleave(len(x) // len(context), 0)
        if is_prefix is None:
            return self._checkpoint.model.velocity(x, t, context)
        return self._checkpoint.model.velocity(x, t, context, is_prefix)

    def normalised(self, rows: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n D"]:
        return self._checkpoint.rows.normalise(rows)

    def restored(self, rows: Tensor) -> Float[np.ndarray, "*b H D"]:
        return self._checkpoint.rows.restore(rows.double().numpy())


@dataclass(frozen=True, kw_only=True, eq=False)
class Progress:
    """State of the sampling after a step."""

    num_calls: int
    """Network calls so far, one after the other."""
    num_final: list[int]
    """For each request, how many of its rows are final."""
    rows: Float[np.ndarray, "B H D"] | None
    """Relative; beyond `num_final` they are still noise. None if no further rows have become final."""


class ChunkSampler:
    """Runs sampler parts on a network, and on a weaker one where a part contrasts the two."""

    def __init__(self, network: FlowNetwork, weak: FlowNetwork | None = None) -> None:
        self.num_evaluations = 0
        """Number of chunks passed through a network; a backward pass counts as two."""
        self._network, self._weak = network, weak

    @torch.no_grad()  # not inference mode, because guidance differentiates
    def run(self, batch: Batch, part: SamplerPart) -> Iterator[Progress]:
        """Progress after every step, until every answer is complete."""
        num_steps, num_drawn = part.num_steps or self._network.num_steps, num_samples(part)
        finish = [self._finish_steps(part, d, num_steps) for d in batch.delays]
        ends = [answer_rows(part, horizon=self._network.horizon, inference_delay=d) for d in batch.delays]

        def launched() -> Iterator[tuple[tuple[int, list[int]], Tensor | None]]:
            if (whole := self._as_a_whole(batch, part, num_steps, finish, ends)) is not None:
                yield from whole
                return
            context = self._network.encode(batch.seen)  # first, so that the host draws noise meanwhile
            noise = self._noise(batch.seeds, num_drawn * (2 if contrasts(part) else 1))
            previous, num_final = self._previous(batch), [0] * len(ends)
            own = noise[:, :num_drawn]
            steps = self._denoise(self._network, context, batch, part, own, previous, num_steps)
            for step, samples in enumerate(steps, 1):
                before = num_final
                num_final = [int((f[:end] <= step).sum()) for f, end in zip(finish, ends, strict=True)]
                x = None if num_final == before else samples[:, 0]
                if x is not None and num_drawn > 1:
                    weak = None
                    for drawn in self._weak_samples(batch, noise[:, num_drawn:], previous, num_steps):
                        weak = drawn
                        yield (step, before), None
                    x = self._choose(part, samples, previous, weak)
                yield (step, num_final), x
                if num_final == ends:
                    return

        with self._network.chunk():
            for (step, num_final), x in on_host(launched(), self._network.device):
                rows = None if x is None else self._network.restored(x)
                yield Progress(num_calls=step, num_final=num_final, rows=rows)

    def _denoise(
        self,
        network: FlowNetwork,
        context: Any,
        batch: Batch,
        part: SamplerPart,
        noise: Tensor,
        previous: PreviousRows,
        num_steps: int,
    ) -> Iterator[Tensor]:
        """Samples (B, N, H, R) after each step, from as much noise; all N share one encoding."""
        num_samples, shape = noise.shape[1], noise.shape
        previous = previous.repeat(num_samples)
        evaluations = calls_per_step(part.exact_jacobian) if isinstance(part, RtcGuidance) else 1

        horizon = network.horizon
        end = max(answer_rows(part, horizon=horizon, inference_delay=d) for d in batch.delays)
        if not network.looks_back_only:
            end = horizon
        times = timetable(part, previous=previous, num_steps=num_steps)
        by_call = iter(times[:, :, :end])

        def velocity(x: Tensor, t: Tensor, is_prefix: Tensor | None) -> Tensor:
            self.num_evaluations += evaluations * len(x)
            prefix = None if is_prefix is None else is_prefix[:, :end]
            needed = network.velocity(x[:, :end], t[:, :end], context, prefix, next(by_call))
            return F.pad(needed, (0, 0, 0, horizon - end))  # rows that no request needs stay noise

        steps = denoise(
            part,
            velocity,
            noise=noise.flatten(0, 1),
            previous=previous,
            num_steps=num_steps,
            renoises=network.renoises,
        )
        return (x.unflatten(0, shape[:2]) for x in steps)

    def _as_a_whole(
        self,
        batch: Batch,
        part: SamplerPart,
        num_steps: int,
        finish: Sequence[np.ndarray],
        ends: Sequence[int],
    ) -> Iterator[tuple[tuple[int, list[int]], Tensor]] | None:
        """As `launched` of `run`, once per release of rows; None if the network cannot run this chunk."""
        network = self._network
        if network.whole is None or not isinstance(part, PLAIN):
            return None
        noise, previous = self._noise(batch.seeds, 1)[:, 0], self._previous(batch)
        chunk = whole_chunk(
            part,
            seen=batch.seen,
            noise=noise,
            previous=previous,
            num_steps=num_steps,
            finish=finish,
            ends=ends,
        )
        rows = network.whole(chunk)
        if rows is None:
            return None
        self.num_evaluations += len(chunk.counts) * len(ends)
        return (((k, chunk.counts[k - 1]), x) for k, x in zip(chunk.leaves, rows, strict=True))

    def _weak_samples(
        self, batch: Batch, noise: Tensor, previous: PreviousRows, num_steps: int
    ) -> Iterator[Tensor]:
        """The weaker checkpoint's samples (B, N, H, D) after each step; empty without noise for them."""
        if self._weak is None or not noise.shape[1]:
            return iter(())
        context = self._weak.encode(batch.seen)
        return self._denoise(self._weak, context, batch, ConstantSchedule(), noise, previous, num_steps)

    def _choose(
        self, part: SamplerPart, samples: Tensor, previous: PreviousRows, weak: Tensor | None
    ) -> Tensor:
        """One chunk (B, H, D) chosen from samples (B, N, H, D) and as many of the weaker checkpoint's."""
        match part:
            case BestOfSamples(rho=rho, num_contrast=num_contrast):
                weights = coherence_weights(
                    rho=rho,
                    start=previous.num_committed,
                    end=previous.num_rows,
                    horizon=self._network.horizon,
                )
                if weak is not None and self._weak is not None:
                    weak = self._tensor(self._network.normalised(self._weak.restored(weak.cpu())))
                weights = to_device(weights, samples.device)
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
            return finish_steps(part, horizon=self._network.horizon, inference_delay=inference_delay)
        return np.full(self._network.horizon, num_steps)

    def _noise(self, seeds: list[int], num_draws: int) -> Tensor:
        """Noise (B, draws, H, D), drawn on the CPU so that a seed gives the same on every device.

        Samples are drawn one after the other, so that the first of many equals a single one.
        """
        shape = self._network.horizon, self._network.row_dim
        noise = torch.empty(len(seeds), num_draws, *shape)
        for i, seed in enumerate(seeds):
            generator = torch.Generator().manual_seed(seed)
            for k in range(num_draws):
                torch.randn(shape, generator=generator, out=noise[i, k])
        return to_device(noise, self._network.device)

    def _previous(self, batch: Batch) -> PreviousRows:
        network = self._network
        rows = np.zeros((len(batch.planned), network.horizon, network.row_dim))
        for i, planned in enumerate(batch.planned):
            rows[i, : len(planned)] = network.normalised(planned)
        return PreviousRows(
            rows=self._tensor(rows),
            num_rows=torch.tensor([len(planned) for planned in batch.planned]),
            num_committed=torch.tensor(batch.delays),
        )

    def _tensor(self, array: np.ndarray) -> Tensor:
        return to_device(_single(array), self._network.device)


def _single(array: np.ndarray) -> Tensor:
    """Normalised numbers in float32; ValueError if they are beyond its range."""
    if array.size and not float(largest := np.abs(array).max()) <= _LARGEST:
        raise ValueError(
            f"expected at most {_LARGEST:.0e} of the policy's standard deviations, got {largest:.3g}"
        )
    return torch.as_tensor(array, dtype=torch.float32)
