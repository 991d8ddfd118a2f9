"""A function of tensors on memory that stays where it is, so that a GPU can replay it: `Replayed`.

    inputs ─► copied into buffers │ work, work ─► out 1 │ work ─► out 2 │
                                  └──── one graph ─────┘└─ the next ───┘

A CUDA graph holds addresses, not values: what changes from one run to the next has to be in the buffers. All
work up to an output is one graph, which the host launches at once; between graphs it can have an output
fetched. On a CPU the same function runs on the same buffers, without graphs; so it does where a GPU cannot
record it, which the log says once.
"""

import logging
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

logger = logging.getLogger(__name__)
NUM_WARM = 2
"""Runs before a GPU records: at the first torch compiles, and libraries make what they keep."""


class Replayed:
    """Of one kind of inputs: their names, shapes and formats stay."""

    def __init__(
        self,
        function: Callable[[Mapping[str, Tensor]], Iterator[Tensor]],
        inputs: Mapping[str, Tensor],
        *,
        num_outputs: int,
    ) -> None:
        """
        function: from the buffers to the outputs, one after the other. It asks nothing of the host that is
            different in another run, and waits for no device.
        inputs: of one run.
        """
        self._function, self._num_outputs = function, num_outputs
        self._inputs = {
            name: torch.empty_like(x, memory_format=torch.contiguous_format) for name, x in inputs.items()
        }
        self._is_recorded = any(x.is_cuda for x in inputs.values())
        self._graphs: list[tuple[torch.cuda.CUDAGraph, Tensor]] = []
        self._num_runs = 0

    def run(self, inputs: Mapping[str, Tensor]) -> Iterator[Tensor]:
        """The outputs; the next run may write into them."""
        for name, buffer in self._inputs.items():
            buffer.copy_(inputs[name], non_blocking=True)
        self._num_runs += 1
        if self._is_recorded and self._num_runs > NUM_WARM and not self._graphs:
            self._record()
        for graph, out in self._graphs:
            graph.replay()
            yield out
        if not self._graphs:
            yield from self._function(self._inputs)

    def _record(self) -> None:
        try:
            with torch.cuda.stream(torch.cuda.current_stream()):  # a graph that fails does not go back to it
                self._graphs = self._recorded()
        except RuntimeError as error:
            self._is_recorded = False
            reason = str(error).partition("\n")[0]
            logger.warning("a chunk cannot be recorded as one graph, and goes on without: %s", reason)

    def _recorded(self) -> list[tuple[torch.cuda.CUDAGraph, Tensor]]:
        pool, outputs, graphs = torch.cuda.graph_pool_handle(), self._function(self._inputs), []
        for _ in range(self._num_outputs):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                out = next(outputs)
            graphs.append((graph, out))
        return graphs
