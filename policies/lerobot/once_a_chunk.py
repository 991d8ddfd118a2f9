"""Splits a step of a chunk in two: what depends on the prefix alone, and the rest: `OnceAChunk`.

    prefix ─► masks, positions ─► step, step, ..., step
              └──── once ─────┘

Each part is compiled by itself, and the first one's results keep the address where the steps read them.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor


class OnceAChunk:
    """Replaces a model's `denoise_step`; `begin` is called before each prefix."""

    def __init__(
        self, of_chunk: Callable[[Tensor, int], Any], step: Callable[[Any, Any, Tensor, Tensor, Any], Tensor]
    ) -> None:
        """
        of_chunk: computes what all steps use from the prefix's padding (B, P) and the number of rows.
        step: computes velocities from that, the prefix's cache, rows, flow times, and the state if rows need
            it.
        """
        self.of_chunk, self.step = of_chunk, step
        self._last: tuple[Tensor, int, Any] | None = None

    def begin(self) -> None:
        """Begin another chunk: a GPU's graphs return its prefix in the memory of the previous one."""
        self._last = None

    def __call__(
        self,
        prefix_pad_masks: Tensor,
        past_key_values: Any,
        x_t: Tensor,
        timestep: Tensor,
        state: Tensor | None = None,
    ) -> Tensor:
        """As LeRobot's `denoise_step`."""
        num_rows, last = x_t.shape[1] + (state is not None), self._last
        if last is None or last[0] is not prefix_pad_masks or last[1] != num_rows:
            last = prefix_pad_masks, num_rows, self.of_chunk(prefix_pad_masks, num_rows)
            self._last = last
        return self.step(last[2], past_key_values, x_t, timestep, state)
