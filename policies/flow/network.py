"""The interface between a sampler and a network: `FlowNetwork`."""

from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from policies.flow.whole import Whole


class FlowNetwork(Protocol):
    """A network to sample from: it predicts the velocity of normalised rows from noise to action."""

    @property
    def horizon(self) -> int:
        """Rows of a chunk, H."""
        ...

    @property
    def row_dim(self) -> int:
        """Columns R that it denoises, which may exceed those of a row."""
        ...

    @property
    def num_steps(self) -> int:
        """Default number of Euler steps."""
        ...

    @property
    def device(self) -> torch.device: ...

    @property
    def looks_back_only(self) -> bool:
        """Whether no row's velocity depends on later ones, so that fewer than H can be requested."""
        ...

    @property
    def renoises(self) -> bool:
        """Whether each step restarts from the initial noise, see `sampler.integrate`."""
        ...

    @property
    def whole(self) -> Whole | None:
        """Runs whole chunks, one sample per request; None: it is called step by step."""
        ...

    def chunk(self) -> AbstractContextManager[None]:
        """A context around all calls for one batch of chunks."""
        ...

    def encode(self, seen: Any) -> Any:
        """The context of B requests, computed once per chunk."""
        ...

    def velocity(self, x: Tensor, t: Tensor, context: Any, is_prefix: Tensor | None, times: Tensor) -> Tensor:
        """Velocity of N samples each, (B * N, H, row_dim), at flow times (B * N, H), 0 noise and 1 action.

        is_prefix: (B * N, H) committed rows, None for a network that does not take them.
        times: the values of `t`, float64 and on the host: reading `t` itself would wait for the device.
        """
        ...

    def normalised(self, rows: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n R"]:
        """Relative rows, from row 0 on, in the network's normalised columns."""
        ...

    def restored(self, rows: Tensor) -> Float[np.ndarray, "*b H D"]:
        """Normalised rows (..., H, row_dim), on the host, as relative ones."""
        ...
