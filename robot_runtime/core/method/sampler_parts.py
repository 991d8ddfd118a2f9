"""Sampler parts of a method: how the server denoises. `policies/flow/sampler.py` implements them.

Flow time runs from 0 (noise) to 1 (action), for every part, whatever the paper's direction. Rows:

    row        0 ... d-1          d ... n-1            n ... H-1
               committed prefix   planned, still open  nothing planned yet

A part that takes a previous chunk returns the committed rows bit for bit: the robot runs the old ones.
"""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, kw_only=True)
class ConstantSchedule:
    """Every row takes the same Euler steps from noise to action. Takes no committed prefix."""

    num_steps: int | None = None
    """Euler steps; None leaves the number to the policy, here and in the other parts."""


@dataclass(frozen=True, kw_only=True)
class ClampedPrefix:
    """Rows of the committed prefix are input as finished (flow time 1) and never change.

    Training-time RTC, arXiv 2512.05964.
    """

    num_steps: int | None = None


class SoftMask(StrEnum):
    """Weight with which each row is drawn to the previous chunk: 1 on rows below d, 0 from n on, and between

    row        d-1    d   ...   n-1    n         c_i = (n - i) / (n - d + 1)
    EXP         1   c (e^c - 1) / (e - 1)   0    arXiv 2506.07339, equation 5
    LINEAR      1          c                0
    HARD        1          0                0
    """

    EXP = "exp"
    LINEAR = "linear"
    HARD = "hard"


@dataclass(frozen=True, kw_only=True)
class RtcGuidance:
    """Real-time chunking: each step is drawn towards the previous chunk. It needs no training.

    arXiv 2506.07339, equations 2 to 5; there the planned rows end at n = H - s.
    """

    exact_jacobian: bool = True
    """Whether to use the transposed Jacobian of the denoiser, as published: two more passes a step. False
    takes the identity instead, as LeRobot does."""
    mask: SoftMask = SoftMask.EXP
    max_guidance_weight: float = 5.0
    """Beta of the paper."""
    num_steps: int | None = None


@dataclass(frozen=True, kw_only=True)
class PrefixPreservedStart:
    """Denoise from the previous chunk, zeros behind it, and put the prefix back after every step.

    REMAC, arXiv 2601.20130. The network's input marks the committed rows. Without a previous chunk the start
    is noise, as for any flow.
    """

    num_steps: int | None = None


@dataclass(frozen=True, kw_only=True)
class LambdaMaskedPrefix:
    """Prefix rows are clean and stay so, under one flow time for all rows.

    Xiaomi-Robotics-0, arXiv 2602.12684. The network's input marks those rows; its lambda-shaped attention is
    part of the network.
    """

    num_steps: int | None = None


@dataclass(frozen=True, kw_only=True)
class HorizonAwareSchedule:
    """Near rows finish in few steps and are sent at once, far rows take all; the prefix is clamped.

    FASTER, arXiv 2603.19199, equations 5 to 10; see `core.method.schedule`.
    """

    alpha: float = 0.6
    """Exponent of the finish time along the chunk; 1 is linear, smaller makes middle rows later."""
    u0: float | None = None
    """The first open row is finished at flow time 1 - u0; None means (N - 1) / N: after the first step."""
    num_steps: int = 10
    """N, for the last row."""
    early_stop_rows: int | None = None
    """End the answer with the step that has finished this many open rows; None finishes the chunk."""


@dataclass(frozen=True, kw_only=True)
class BestOfSamples:
    """Draw several chunks, answer with the one that agrees best with the previous chunk.

    Bidirectional decoding, arXiv 2408.17355. It needs no training.
    """

    num_samples: int = 16
    rho: float | None = None
    """Row i of the overlap has weight rho^i, as published; None takes `SoftMask.EXP`, as RTC's paper does."""
    num_contrast: int = 0
    """Number of the policy's own samples to be near to, and of a weaker checkpoint's to be far from; 0: no
    contrast, as needed for a policy without such a checkpoint."""
    num_steps: int | None = None


class Consensus(StrEnum):
    """The chunk that represents several samples."""

    MEAN = "mean"
    """Their average, which may be invalid: between two paths round a post is the post."""
    MEDOID = "medoid"
    """The sample with the smallest summed distance to the others."""


@dataclass(frozen=True, kw_only=True)
class AveragedSamples:
    """Draw several chunks from one observation and answer with their consensus. Takes no committed prefix."""

    num_samples: int = 16
    consensus: Consensus = Consensus.MEAN
    num_steps: int | None = None


SamplerPart = (
    ConstantSchedule
    | ClampedPrefix
    | RtcGuidance
    | PrefixPreservedStart
    | LambdaMaskedPrefix
    | HorizonAwareSchedule
    | BestOfSamples
    | AveragedSamples
)
PREFIXLESS = (ConstantSchedule, AveragedSamples)
"""Parts that ignore a previous chunk and refuse a committed prefix."""


def num_samples(part: SamplerPart) -> int:
    """Chunks that a part draws for one request, without those of a weaker checkpoint."""
    return part.num_samples if isinstance(part, BestOfSamples | AveragedSamples) else 1


def contrasts(part: SamplerPart) -> bool:
    """Whether a part draws as many of a weaker checkpoint."""
    return isinstance(part, BestOfSamples) and part.num_contrast > 0
