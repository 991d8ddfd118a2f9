"""What a sampler asks of a network: `FlowNetwork`."""

from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from policies.flow.whole import Whole


class FlowNetwork(Protocol):
    """What is sampled from: rows as it knows them, normalised, and their velocity from noise to action."""

    @property
    def horizon(self) -> int:
        """H."""
        ...

    @property
    def row_dim(self) -> int:
        """Columns it denoises; it may have more than a row has."""
        ...

    @property
    def num_steps(self) -> int:
        """Euler steps when nobody asks for another number."""
        ...

    @property
    def device(self) -> torch.device: ...

    @property
    def looks_back_only(self) -> bool:
        """Whether no row's velocity depends on later ones: fewer than H may then be asked for."""
        ...

    @property
    def renoises(self) -> bool:
        """Whether its steps start again from the first noise, see `sampler.integrate`."""
        ...

    @property
    def whole(self) -> Whole | None:
        """Runs whole chunks, one sample of each request, by itself; None: it is asked step by step."""
        ...

    def chunk(self) -> AbstractContextManager[None]:
        """Around all calls for one batch of chunks."""
        ...

    def encode(self, seen: Any) -> Any:
        """What is seen, once a chunk: the context of B requests."""
        ...

    def velocity(self, x: Tensor, t: Tensor, context: Any, is_prefix: Tensor | None, times: Tensor) -> Tensor:
        """Of N samples each, (B * N, H, row_dim), at flow times (B * N, H), 0 noise and 1 action.

        is_prefix: (B * N, H) committed rows, for a network that is told; None for one that is not.
        times: what `t` says, float64 and on the host: who looked at `t` would wait for the device.
        """
        ...

    def normalised(self, rows: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n R"]:
        """Relative rows from row 0 on as it knows them."""
        ...

    def restored(self, rows: Tensor) -> Float[np.ndarray, "*b H D"]:
        """Rows (..., H, row_dim), on the host, as relative ones."""
        ...
