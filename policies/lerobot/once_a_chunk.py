"""A step of a chunk in two parts: what follows from the prefix alone, and the rest: `OnceAChunk`.

    prefix ─► masks, positions ─► step, step, ..., step
              └──── once ─────┘

Compiled, each part is compiled by itself, and the first one's results stay where the steps read them.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor


class OnceAChunk:
    """Takes the place of a model's `denoise_step`; `begin` is called before each prefix."""

    def __init__(
        self, of_chunk: Callable[[Tensor, int], Any], step: Callable[[Any, Any, Tensor, Tensor, Any], Tensor]
    ) -> None:
        """
        of_chunk: of the prefix's padding (B, P) and how many rows a step has, what all steps use.
        step: of that, the prefix's cache, rows, their flow times, and the state if it is shown beside rows.
        """
        self.of_chunk, self.step = of_chunk, step
        self._last: tuple[Tensor, int, Any] | None = None

    def begin(self) -> None:
        """Another chunk: a GPU's graphs give its prefix in the memory of the one before."""
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
