"""Runs LeRobot's flows from images to rows as one unit, on fixed memory: `WholeChunks`.

    tokens, images, state, noise, plans, flow times ─► buffers ─► prefix ─► step ... step ─► rows

On a GPU this is one CUDA graph for each release of rows (`policies.replayed`). The host's decisions are in
the buffers: which rows are kept, flow times, and their indices in the table.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from policies.flow.transfers import to_device
from policies.flow.whole import WholeChunk
from policies.lerobot.flow_times import MAX_KNOWN, TimeTable
from policies.replayed import Replayed

MOST_KINDS = 32
"""Kinds of chunks whose buffers are kept, by batch size, prompt length and steps that release rows."""
SEEN = "observation."
"""Prefix of the names of the network's inputs."""


class WholeChunks:
    """Runs whole chunks as a `policies.flow.whole.Whole`."""

    def __init__(
        self, encode: Callable[[dict[str, Any]], Any], table: TimeTable | None, device: torch.device
    ) -> None:
        """
        encode: maps a preprocessed batch to an `Encoded` one.
        table: replaces flow times in the network; it has to be one that `stays`.
        """
        self._encode, self._table, self._device = encode, table, device
        self._kinds: OrderedDict[tuple[Any, ...], Replayed] = OrderedDict()

    def __call__(self, chunk: WholeChunk) -> Iterator[Tensor] | None:
        times = chunk.times[: chunk.leaves[-1] + 1]
        inputs = {name: x for name, x in chunk.seen.items() if name.startswith(SEEN)}
        inputs |= {"noise": chunk.noise, "kept": chunk.kept}
        inputs |= {"is_kept": to_device(chunk.is_kept, self._device)}
        inputs |= {"times": to_device(times.float(), self._device)}
        if self._table is not None:
            if len(times[:-1].unique()) > MAX_KNOWN:
                return None
            inputs["places"] = to_device(self._table.places(times[:-1], self._device), self._device)
        return self._of_kind(inputs, chunk.leaves).run(inputs)

    def _of_kind(self, inputs: Mapping[str, Tensor], leaves: tuple[int, ...]) -> Replayed:
        kind = leaves, *((name, tuple(x.shape), x.dtype) for name, x in sorted(inputs.items()))
        if kind not in self._kinds:
            steps = partial(self._steps, leaves=leaves)
            self._kinds[kind] = Replayed(steps, inputs, num_outputs=len(leaves))
            if len(self._kinds) > MOST_KINDS:
                self._kinds.popitem(last=False)
        self._kinds.move_to_end(kind)
        return self._kinds[kind]

    def _steps(self, inputs: Mapping[str, Tensor], *, leaves: tuple[int, ...]) -> Iterator[Tensor]:
        context = self._encode({name: x for name, x in inputs.items() if name.startswith(SEEN)})
        is_kept, times = inputs["is_kept"][..., None], inputs["times"]
        x = torch.where(is_kept, inputs["kept"], inputs["noise"])
        for k in range(leaves[-1]):
            time_input = 1.0 - times[k] if self._table is None else self._table.rows(inputs["places"][k])
            # LeRobot's velocity points from action to noise.
            x = x - (times[k + 1] - times[k])[..., None] * context.denoise(x, time_input)
            x = torch.where(is_kept, inputs["kept"], x)
            if k + 1 in leaves:
                yield x
