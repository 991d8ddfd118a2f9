"""Image encoder of a policy that learns from images alone: `ImageEncoder`, trained together with the policy.

    chest ─► convolutions ─► place and strength of each feature map's peak ─► latent (L,) ─┐
    wrist ─► convolutions ─► place and strength of each feature map's peak ─► latent (L,) ─┴─► in place of the
                                                                                                scene

Nothing has to be labelled, unlike for an `Estimator`: the loss of the policy's rows trains the encoder. The
latents take the place of scene quantities in the policy's features, so recipes and methods work unchanged.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import UInt8
from msgspec import structs
from safetensors.torch import save_file
from torch import Tensor, nn

from policies.budget import Budget
from policies.files import ENCODER, read_json, read_tensors, refuse_oversized, value_of
from policies.vision.network import as_recorded, keypoints_of, place_grid
from robot_runtime.core.policy_info import MAX_OBS_STEPS
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import CheckpointError, InvalidValueError

WEIGHTS = "encoder.safetensors"
Backbone = Literal["small", "resnet18"]
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and deviation of ImageNet's colours, with which torchvision's and timm's weights are trained."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Cameras of an encoder, and the sizes of its network."""

    cameras: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...]
    """Height and width of each camera's images [pixels]."""
    masked: tuple[tuple[float, float, float, float], ...] = ()
    """Rectangle of each camera's images that the network does not see, as shares of height and width: top,
    left, bottom, right; all zero for none. Empty: no camera has one. It hides what differs between the
    demonstrator's gripper and the robot's."""
    backbone: Backbone = "small"
    """small: five convolutions, trained from scratch. resnet18: torchvision's, for pretrained weights."""
    num_keypoints: int = 32
    """Feature maps whose peaks are passed on."""
    num_latents: int = 64
    """Numbers for each camera and observation."""
    n_obs_steps: int = 1
    """Observations that it sees, the newest included; all pass through the same network."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cameras", tuple(self.cameras))
        for name in ("sizes", "masked"):
            object.__setattr__(self, name, tuple(tuple(each) for each in getattr(self, name)))
        if not self.cameras or len(self.sizes) != len(self.cameras):
            raise InvalidValueError(
                f"expected one size for each of at least one camera, got {len(self.sizes)} for "
                f"{', '.join(self.cameras) or 'no camera'}"
            )
        if not 1 <= self.n_obs_steps <= MAX_OBS_STEPS:
            raise InvalidValueError(f"expected 1 to {MAX_OBS_STEPS} observations, got {self.n_obs_steps}")
        if self.masked and len(self.masked) != len(self.cameras):
            raise InvalidValueError(
                f"expected one masked rectangle for each of {len(self.cameras)} cameras, got "
                f"{len(self.masked)}"
            )
        for top, left, bottom, right in self.masked:
            if not (0.0 <= top <= bottom <= 1.0 and 0.0 <= left <= right <= 1.0):
                raise InvalidValueError(
                    "expected a rectangle top, left, bottom, right as shares from 0 to 1, got "
                    f"{top:g}, {left:g}, {bottom:g}, {right:g}"
                )


class _CameraEncoder(nn.Module):
    """One camera's images to its latents."""

    grid: Tensor  # (2, h * w): x and y of every cell, -1 to 1
    mean: Tensor
    std: Tensor

    def __init__(self, config: EncoderConfig, size: tuple[int, int]) -> None:
        super().__init__()
        self.layers, channels, shrink = _backbone(config.backbone)
        self.maps = nn.Conv2d(channels, config.num_keypoints, 1)
        self.out = nn.Sequential(
            nn.Linear(3 * config.num_keypoints + channels, 2 * config.num_latents),
            nn.SiLU(),
            nn.Linear(2 * config.num_latents, config.num_latents),
        )
        self.register_buffer("grid", place_grid(size, shrink), persistent=False)
        self.register_buffer("mean", torch.tensor(IMAGENET[0]).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(IMAGENET[1]).view(3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, h, w), 0 to 255, to latents (B, L), -1 to 1."""
        seen = self.layers((as_recorded(images) / 255.0 - self.mean) / self.std)
        peaks = keypoints_of(self.maps(seen), self.grid)
        numbers = torch.cat([peaks, seen.mean(dim=(2, 3)).float()], dim=1)
        return torch.tanh(self.out(numbers))


def _backbone(name: Backbone) -> tuple[nn.Module, int, int]:
    """Layers, channels of their output, and by how much they shrink an image.

    Neither has batch statistics: those of a moving average of weights would not be those of the weights.
    """
    if name == "resnet18":
        from torchvision.models import resnet18
        from torchvision.ops import FrozenBatchNorm2d

        with torch.device("cpu"):
            net = resnet18(weights=None, norm_layer=FrozenBatchNorm2d)
        parts = (net.conv1, net.bn1, net.relu, net.maxpool, net.layer1, net.layer2, net.layer3)
        return nn.Sequential(*parts), 256, 16
    layers: list[nn.Module] = []
    for n, m, stride, far in ((3, 32, 2, 1), (32, 64, 2, 1), (64, 64, 1, 1), (64, 96, 1, 2), (96, 96, 1, 2)):
        size = 3 if layers else 5
        layers += [nn.Conv2d(n, m, size, stride, far * (size // 2), far), nn.GroupNorm(8, m), nn.SiLU()]
    return nn.Sequential(*layers), 96, 4


class EncoderNetwork(nn.Module):
    """The images of all cameras to the latents of all, one camera after the other."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.eyes = nn.ModuleList(_CameraEncoder(config, size) for size in config.sizes)

    def forward(self, images: Sequence[Tensor]) -> Tensor:
        """Images (B, h, w, 3) of each camera, 0 to 255, to latents (B, cameras * L)."""
        out = []
        for i, (eye, seen) in enumerate(zip(self.eyes, images, strict=True)):
            x = seen.permute(0, 3, 1, 2).float()
            if self.config.masked:
                x = _masked(x, self.config.masked[i])
            out.append(eye(x.contiguous(memory_format=torch.channels_last)))
        return torch.cat(out, dim=1)


def _masked(x: Tensor, rectangle: tuple[float, float, float, float]) -> Tensor:
    """Images (B, 3, h, w) with that rectangle grey."""
    height, width = x.shape[2:]
    top, bottom = (round(share * height) for share in rectangle[::2])
    left, right = (round(share * width) for share in rectangle[1::2])
    if top == bottom or left == right:
        return x
    x = x.clone()
    x[:, :, top:bottom, left:right] = 127.0
    return x


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageEncoder:
    """A network, as a policy uses it and as it is kept in a folder."""

    network: EncoderNetwork

    @classmethod
    def new(cls, config: EncoderConfig, *, seed: int, pretrained: Path | None = None) -> "ImageEncoder":
        """An encoder to train.

        pretrained: a state dict of torchvision's or timm's ResNet-18, for the backbone of every camera.
        InvalidValueError: the file does not fit.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = EncoderNetwork(config)
        if pretrained is not None:
            for eye in network.eyes:
                assert isinstance(eye, _CameraEncoder)
                _load_pretrained(eye.layers, pretrained, config.backbone)
        return cls(network=network)

    @property
    def num_estimates(self) -> int:
        """Number of latents that replace the scene."""
        config = self.network.config
        return config.num_latents * len(config.cameras) * config.n_obs_steps

    @property
    def n_obs_steps(self) -> int:
        """Observations that it sees, the newest included."""
        return self.network.config.n_obs_steps

    @property
    def cameras(self) -> dict[str, tuple[int, int]]:
        """Its cameras: (height, width) of each one's images."""
        config = self.network.config
        return dict(zip(config.cameras, config.sizes, strict=True))

    def pictures(self, observations: Iterable[Observation]) -> list[UInt8[np.ndarray, "b h w 3"]]:
        """The images of each camera, those of one observation and its history together, oldest first.

        ValueError names one that is missing or has another size.
        """
        seen = [frame for o in observations for frame in o.frames(self.n_obs_steps)]
        return [np.stack([_picture(o, name, size) for o in seen]) for name, size in self.cameras.items()]

    def latents(self, images: Sequence[Tensor]) -> Tensor:
        """Images of each camera, as from `pictures`, to latents (B, num_estimates), with gradients."""
        out: Tensor = self.network(images)
        return out.reshape(-1, self.num_estimates)

    def see(self, observations: Sequence[Observation]) -> list[Observation]:
        """Observations with latents in place of images. ValueError: an image is missing."""
        device = next(self.network.parameters()).device
        images = [torch.from_numpy(each).to(device) for each in self.pictures(observations)]
        with torch.no_grad():
            latents = self.latents(images).double().cpu().numpy()
        return [
            structs.replace(o, images={}, history=(), environment_state=latent)
            for o, latent in zip(observations, latents, strict=True)
        ]

    def save(self, folder: Path) -> None:
        """Write the encoder beside the policy's own files."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ENCODER).write_text(json.dumps(asdict(self.network.config), indent=2) + "\n")
        tensors = {name: value.contiguous() for name, value in self.network.state_dict().items()}
        save_file(tensors, folder / WEIGHTS)

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> "ImageEncoder":
        """The encoder in a folder; CheckpointError if it is missing or damaged."""
        data, tensors = read_json(folder / ENCODER), read_tensors(folder / WEIGHTS)
        try:
            config = value_of(EncoderConfig, data)
            refuse_oversized(config)
            with Budget(folder / WEIGHTS):
                network = EncoderNetwork(config)
            network.load_state_dict(tensors)
        except (ValueError, KeyError, TypeError, RuntimeError, IndexError) as error:
            raise CheckpointError(f"{folder} holds no image encoder: {error}") from error
        return cls(network=network.eval().requires_grad_(False).to(device))


def _picture(observation: Observation, name: str, size: tuple[int, int]) -> UInt8[np.ndarray, "h w 3"]:
    if name not in observation.images:
        have = ", ".join(observation.images) or "none"
        raise ValueError(f"the policy needs an image of camera {name!r}, the observation has {have}")
    pixels = observation.images[name].pixels
    if pixels.shape[:2] != size:
        raise ValueError(f"the policy needs {name} images of {size} pixels, got {pixels.shape[:2]}")
    return pixels


def _load_pretrained(layers: nn.Module, path: Path, backbone: Backbone) -> None:
    """Load a backbone's weights by torchvision's names, which timm shares."""
    if backbone != "resnet18":
        raise InvalidValueError(f"pretrained weights are for backbone resnet18, got backbone {backbone}")
    try:
        weights = (
            read_tensors(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except Exception as error:  # torch raises many kinds for a damaged file
        raise InvalidValueError(f"{path} is no state dict of tensors: {error}") from error
    names = ("conv1", "bn1", "", "", "layer1", "layer2", "layer3")
    own: Mapping[str, Tensor] = layers.state_dict()
    renamed = {}
    for name in own:
        number, _, rest = name.partition(".")
        renamed[name] = f"{names[int(number)]}.{rest}"
    missing = [there for there in renamed.values() if there not in weights]
    if missing:
        raise InvalidValueError(
            f"{path} is no ResNet-18 of torchvision or timm: it has no {', '.join(missing[:3])}"
        )
    try:
        layers.load_state_dict({name: weights[there] for name, there in renamed.items()})
    except RuntimeError as error:
        raise InvalidValueError(f"{path} is no ResNet-18: {error}") from error
