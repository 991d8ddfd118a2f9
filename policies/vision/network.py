"""The network of an `Estimator`: maps each camera's image by itself to means and deviations.

    image ─► convolutions ─► position and strength of each feature map's peak ─► mean, deviation

Estimates of several cameras are fused in `policies.vision.estimator`.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from policies.flow.features import points_in_space
from robot_runtime.core.values.state import ARM
from robot_runtime.errors import InvalidValueError

_MIN_LOG_STD, _MAX_LOG_STD = -6.0, 1.0
_NUM_HALVING = 2
_TO_YCBCR = torch.tensor([[0.299, 0.587, 0.114], [-0.1687, -0.3313, 0.5], [0.5, -0.4187, -0.0813]])
"""ITU-R BT.601."""
_TO_RGB = torch.linalg.inv(_TO_YCBCR)


@dataclass(frozen=True, kw_only=True)
class EstimatorConfig:
    """Sizes of the network, and its cameras."""

    cameras: tuple[str, ...]
    on_hand: tuple[str, ...] = ()
    """Wrist cameras: they estimate points relative to their end effector. The others are fixed to the base
    and estimate the scene in it."""
    carried_by: tuple[str, ...] = ()
    """The arm of each camera in `on_hand`; empty for the first of `hands`."""
    hands: tuple[str, ...] = (ARM,)
    """Arms to whose end effectors points are relative."""
    size: tuple[int, int]
    """Height and width of every image [pixels]."""
    scene_dim: int
    """Number of scene quantities in the environment state."""
    points: tuple[int, ...] = ()
    """Sizes of the points in B at their beginning; those of three numbers are also estimated by wrist
    cameras."""
    points_alike: bool = False
    """Whether the objects at points of three numbers look alike: a wrist camera then estimates only the
    nearest, and the other cameras' estimates identify it."""
    channels: tuple[int, ...] = (24, 48, 48, 64)
    """Channels of the convolutions: the first two halve the image, those after the third are dilated by 2."""
    num_keypoints: int = 32
    """Feature maps whose peaks are passed on."""
    width: int = 256

    def __post_init__(self) -> None:
        for name in ("cameras", "on_hand", "carried_by", "hands", "size", "points", "channels"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        carriers = self.carried_by or self.hands[:1] * len(self.on_hand)
        object.__setattr__(self, "carried_by", carriers)
        if len(carriers) != len(self.on_hand) or not set(carriers) <= set(self.hands):
            raise InvalidValueError(
                f"cameras {', '.join(self.on_hand)} are carried by {', '.join(carriers) or 'no arm'}; the "
                f"hands are {', '.join(self.hands) or 'none'}"
            )

    @property
    def in_space(self) -> list[slice]:
        """Slices of the scene that hold points of three numbers."""
        return points_in_space(self.points)

    def hand_of(self, camera: str) -> str | None:
        """The arm that carries a camera; None: it is fixed to the base."""
        return dict(zip(self.on_hand, self.carried_by, strict=True)).get(camera)

    def num_known(self, camera: str) -> int:
        """Number of quantities that a camera estimates."""
        if camera not in self.on_hand:
            return self.scene_dim
        num_points = len(self.in_space)
        return 3 * (min(1, num_points) if self.points_alike else num_points)


class _SpatialSoftmax(nn.Module):
    """Convolutions of one camera, followed by position and strength of each feature map's peak."""

    grid: Tensor  # (2, h * w): x and y of every cell, -1 to 1

    def __init__(self, config: EstimatorConfig) -> None:
        super().__init__()
        sizes = (3, *config.channels)
        layers: list[nn.Module] = []
        for i, (n, m) in enumerate(pairwise(sizes)):
            stride, far = 2 if i < _NUM_HALVING else 1, 2 if i > _NUM_HALVING else 1
            size = 3 if i else 5
            layers += [nn.Conv2d(n, m, size, stride, far * (size // 2), far), nn.BatchNorm2d(m), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.maps = nn.Conv2d(sizes[-1], config.num_keypoints, 1)
        shrink = 2 ** min(_NUM_HALVING, len(config.channels))
        self.register_buffer("grid", place_grid(config.size, shrink), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, h, w), about -1 to 1, to numbers (B, 3 * keypoints + channels)."""
        seen = self.layers(images)
        return torch.cat([keypoints_of(self.maps(seen), self.grid), seen.mean(dim=(2, 3)).float()], dim=1)


def place_grid(size: tuple[int, int], shrink: int) -> Tensor:
    """x and y (2, h * w) of every cell of a feature map, -1 to 1, of images of (height, width) pixels."""
    h, w = -(-size[0] // shrink), -(-size[1] // shrink)
    y, x = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
    return torch.stack([x.ravel(), y.ravel()])


def keypoints_of(maps: Tensor, grid: Tensor) -> Tensor:
    """Places and strengths (B, 3 * K) of the peaks of feature maps (B, K, h, w), by spatial softmax."""
    flat = maps.flatten(2).float()  # (B, K, h * w)
    where = torch.softmax(flat, dim=-1) @ grid.T  # (B, K, 2)
    return torch.cat([where.flatten(1), torch.tanh(0.1 * flat.amax(dim=-1))], dim=1)


class SceneEstimator(nn.Module):
    """Maps each camera's image to mean and log deviation of every number that it estimates, normalised."""

    def __init__(self, config: EstimatorConfig) -> None:
        super().__init__()
        self.config = config
        self.eyes = nn.ModuleList(_SpatialSoftmax(config) for _ in config.cameras)
        seen = 3 * config.num_keypoints + config.channels[-1]
        self.heads = nn.ModuleList(
            nn.Sequential(
                nn.Linear(seen, config.width),
                nn.ReLU(),
                nn.Linear(config.width, config.width),
                nn.ReLU(),
                nn.Linear(config.width, 2 * config.num_known(camera)),
            )
            for camera in config.cameras
        )

    def forward(self, images: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Images (B, cameras, h, w, 3) uint8 to mean and log deviation (B, N), for each camera."""
        out = []
        for encoder, head, x in zip(
            self.eyes, self.heads, images.permute(1, 0, 4, 2, 3).float(), strict=True
        ):
            one = as_recorded(x) / 127.5 - 1.0
            mean, log_std = head(encoder(one.contiguous(memory_format=torch.channels_last))).chunk(2, dim=1)
            out.append((mean, _MIN_LOG_STD + (_MAX_LOG_STD - _MIN_LOG_STD) * torch.sigmoid(log_std)))
        return out


def as_recorded(images: Tensor) -> Tensor:
    """Images (B, 3, h, w) with colour at half the resolution of brightness, as in videos (4:2:0).

    Datasets are videos and cameras are not: that difference alone changed the estimates of the same scene.
    """
    height, width = images.shape[2:]
    y_cb_cr = torch.einsum("ij,bjhw->bihw", _TO_YCBCR.to(images.device), images)
    colour = F.avg_pool2d(y_cb_cr[:, 1:], 2, ceil_mode=True).repeat_interleave(2, 2).repeat_interleave(2, 3)
    y_cb_cr = torch.cat([y_cb_cr[:, :1], colour[:, :, :height, :width]], dim=1)
    return torch.einsum("ij,bjhw->bihw", _TO_RGB.to(images.device), y_cb_cr)
