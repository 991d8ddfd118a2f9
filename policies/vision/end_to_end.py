"""Images in the training of a policy: `Sight` gives the latents of a batch, with gradients to the encoder."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from msgspec import structs
from torch import Tensor

from policies.flow.dataset import Demonstration, Statistics
from policies.flow.demonstrations import StoredDemonstration
from policies.flow.features import Normaliser
from policies.vision.encoder import ImageEncoder
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import InvalidValueError

LEARNING_RATE_SHARE = 0.3
"""Learning rate of the encoder as a share of the policy's."""


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Random changes of the images of a batch, one draw for each camera of each sample (as UMI's)."""

    gain: float = 0.15
    """Standard deviation of brightness and tint, as a share."""
    offset: float = 8.0
    """Standard deviation of an offset of each colour [of 255]."""
    noise: float = 4.0
    """Standard deviation of each pixel [of 255]."""
    shift: float = 0.04
    """Largest shift of an image along each axis, as a share of its size; edges are repeated."""


class Sight:
    """The images of all training samples, and the encoder that is trained on them."""

    def __init__(
        self,
        encoder: ImageEncoder,
        demonstrations: Sequence[Demonstration],
        *,
        augmentation: Augmentation | None = None,
        bfloat16: bool,
    ) -> None:
        """InvalidValueError: an image is missing or has another size."""
        self.encoder = encoder
        self._observations = [d.observation for d in demonstrations]
        self._augmentation = augmentation or Augmentation()
        self._bfloat16 = bfloat16
        for i, observation in enumerate(self._observations):
            try:
                encoder.pictures([observation])
            except ValueError as error:
                raise InvalidValueError(f"demonstration {i}: {error}") from error

    def latents(self, index: Tensor, generator: torch.Generator) -> Tensor:
        """Latents (B, E) of these samples, their images augmented."""
        images = self.encoder.pictures(self._observations[i] for i in index.tolist())
        device = generator.device
        how, steps = self._augmentation, self.encoder.n_obs_steps
        changed = [
            augmented(torch.from_numpy(each).to(device), how, generator, n_obs_steps=steps) for each in images
        ]
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self._bfloat16):
            out = self.encoder.latents(changed)
        return out.float()

    def stamps(self) -> Tensor:
        """Capture times of all images [ns]: other ones are another training."""
        return image_stamps(self._observations, self.encoder.n_obs_steps)

    def parameters(self) -> list[Tensor]:
        """What is trained."""
        return [*self.encoder.network.parameters()]


def image_stamps(observations: Sequence[Observation], n_obs_steps: int) -> Tensor:
    """Capture times of the images of observations and of their history [ns]."""
    frames = [frame for each in observations for frame in each.frames(n_obs_steps)]
    return torch.tensor([image.t_ns for frame in frames for image in frame.images.values()])


def augmented(
    images: Tensor, how: Augmentation, generator: torch.Generator, *, n_obs_steps: int = 1
) -> Tensor:
    """Images (B, h, w, 3) uint8 as float, 0 to 255, changed at random; on the device of the generator.

    n_obs_steps: images of one sample, one after the other; all are changed alike but for the noise.
    """
    batch, height, width, _ = images.shape
    samples, device = batch // n_obs_steps, generator.device

    def each(drawn: Tensor) -> Tensor:
        return drawn.repeat_interleave(n_obs_steps, dim=0)

    gain = each(1.0 + how.gain * torch.randn(samples, 1, 1, 3, generator=generator, device=device))
    offset = each(how.offset * torch.randn(samples, 1, 1, 3, generator=generator, device=device))
    x = images * gain + offset
    if how.noise:
        x = x + how.noise * torch.randn(x.shape, generator=generator, device=device)
    most = [round(how.shift * size) for size in (height, width)]
    if any(most):
        padded = F.pad(x.permute(0, 3, 1, 2), (most[1], most[1], most[0], most[0]), mode="replicate")
        top, left = (
            each(torch.randint(0, 2 * n + 1, (samples,), generator=generator, device=device)) for n in most
        )
        rows = (top[:, None] + torch.arange(height, device=device))[:, None, :, None]
        columns = (left[:, None] + torch.arange(width, device=device))[:, None, None, :]
        x = padded[
            torch.arange(batch, device=device)[:, None, None, None],
            torch.arange(3, device=device)[:, None, None],
            rows,
            columns,
        ]
        x = x.permute(0, 2, 3, 1)
    return x.clamp(0.0, 255.0)


def behind_encoder(schema: Schema, encoder: ImageEncoder) -> Schema:
    """The schema of a policy behind the encoder: latents in place of images and of the scene."""
    return replace(
        schema, environment_state_dim=encoder.num_estimates, environment_state_names=(), cameras={}
    )


def without_scene(demonstrations: Sequence[Demonstration], encoder: ImageEncoder) -> list[Demonstration]:
    """The demonstrations with room for latents in place of their scene; images stay."""
    room = np.zeros(encoder.num_estimates)
    return [
        StoredDemonstration(
            observation=structs.replace(d.observation, environment_state=room),
            rows=d.rows,
            num_committed=d.num_committed,
        )
        for d in demonstrations
    ]


def latents_as_they_are(statistics: Statistics, encoder: ImageEncoder) -> Statistics:
    """The statistics, of which those of latents, the last features, change nothing."""
    mean, std = statistics.features.mean.copy(), statistics.features.std.copy()
    mean[-encoder.num_estimates :], std[-encoder.num_estimates :] = 0.0, 1.0
    return replace(statistics, features=Normaliser(mean=mean, std=std))
