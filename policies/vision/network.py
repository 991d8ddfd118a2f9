"""The network of an `Estimator`: each camera's picture to numbers, and how surely, told of no other's.

    picture ─► convolutions ─► where each feature map is hottest, and how hot ─► mean, deviation

What several cameras tell is put together in `policies.vision.estimator`.
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
    """Sizes of the network, and what it looks at."""

    cameras: tuple[str, ...]
    on_hand: tuple[str, ...] = ()
    """Those that a hand carries: they tell points from that hand. The others are fixed to the base and tell
    the scene from there."""
    carried_by: tuple[str, ...] = ()
    """The arm of each camera in `on_hand`; none stands for the first of `hands`."""
    hands: tuple[str, ...] = (ARM,)
    """Arms whose hands the points are told from."""
    size: tuple[int, int]
    """Height and width of every picture [pixels]."""
    scene_dim: int
    """Numbers of the scene, as the environment state has them."""
    points: tuple[int, ...] = ()
    """Sizes of the points in B that they begin with; those of three are seen from the hand as well."""
    points_alike: bool = False
    """Whether what is at those of three looks alike: a camera on the hand then tells the nearest alone, and
    which it is follows from where the others see them."""
    channels: tuple[int, ...] = (24, 48, 48, 64)
    """Of the convolutions: the first two halve the picture, those after the third look twice as far."""
    num_keypoints: int = 32
    """Feature maps whose hottest places are told."""
    width: int = 256

    def __post_init__(self) -> None:
        for name in ("cameras", "on_hand", "carried_by", "hands", "size", "points", "channels"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        carriers = self.carried_by or self.hands[:1] * len(self.on_hand)
        object.__setattr__(self, "carried_by", carriers)
        if len(carriers) != len(self.on_hand) or not set(carriers) <= set(self.hands):
            raise InvalidValueError(
                f"cameras {', '.join(self.on_hand)} are carried by {', '.join(carriers) or 'nobody'}; the "
                f"hands are {', '.join(self.hands) or 'none'}"
            )

    @property
    def in_space(self) -> list[slice]:
        """Where in the scene its points of three numbers are."""
        return points_in_space(self.points)

    def hand_of(self, camera: str) -> str | None:
        """The arm whose hand carries a camera; None: it is fixed to the base."""
        return dict(zip(self.on_hand, self.carried_by, strict=True)).get(camera)

    def num_known(self, camera: str) -> int:
        """How many numbers one camera tells."""
        if camera not in self.on_hand:
            return self.scene_dim
        num_points = len(self.in_space)
        return 3 * (min(1, num_points) if self.points_alike else num_points)


class _SpatialSoftmax(nn.Module):
    """One camera: where each of its feature maps is hottest, and how much of it there is."""

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
        h, w = -(-config.size[0] // shrink), -(-config.size[1] // shrink)
        y, x = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
        self.register_buffer("grid", torch.stack([x.ravel(), y.ravel()]), persistent=False)

    def forward(self, pictures: Tensor) -> Tensor:
        """Pictures (B, 3, h, w), about -1 to 1, to numbers (B, 3 * keypoints + channels)."""
        seen = self.layers(pictures)
        maps = self.maps(seen).flatten(2).float()  # (B, K, h * w)
        where = torch.softmax(maps, dim=-1) @ self.grid.T  # (B, K, 2)
        strength = torch.tanh(0.1 * maps.amax(dim=-1))
        return torch.cat([where.flatten(1), strength, seen.mean(dim=(2, 3)).float()], dim=1)


class SceneEstimator(nn.Module):
    """Each camera's picture to mean and log deviation of every number that it tells, normalised."""

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

    def forward(self, pictures: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Pictures (B, cameras, h, w, 3) uint8 to mean and log deviation (B, N), for each camera."""
        out = []
        for eye, head, x in zip(self.eyes, self.heads, pictures.permute(1, 0, 4, 2, 3).float(), strict=True):
            one = as_recorded(x) / 127.5 - 1.0
            mean, log_std = head(eye(one.contiguous(memory_format=torch.channels_last))).chunk(2, dim=1)
            out.append((mean, _MIN_LOG_STD + (_MAX_LOG_STD - _MIN_LOG_STD) * torch.sigmoid(log_std)))
        return out


def as_recorded(pictures: Tensor) -> Tensor:
    """Colour at half the resolution of brightness, as videos have it (4:2:0): (B, 3, h, w) to the same.

    Datasets are videos and cameras are not: told apart by that alone, the same scene was seen in two ways.
    """
    height, width = pictures.shape[2:]
    y_cb_cr = torch.einsum("ij,bjhw->bihw", _TO_YCBCR.to(pictures.device), pictures)
    colour = F.avg_pool2d(y_cb_cr[:, 1:], 2, ceil_mode=True).repeat_interleave(2, 2).repeat_interleave(2, 3)
    y_cb_cr = torch.cat([y_cb_cr[:, :1], colour[:, :, :height, :width]], dim=1)
    return torch.einsum("ij,bjhw->bihw", _TO_RGB.to(pictures.device), y_cb_cr)
