"""Runs a function of tensors on fixed memory, so that a GPU can replay it: `Replayed`.

    inputs ─► copied into buffers │ work, work ─► out 1 │ work ─► out 2 │
                                  └──── one graph ─────┘└─ the next ───┘

A CUDA graph holds addresses, not values: everything that changes between runs has to be in the buffers. All
work up to an output is one graph, which the host launches at once; between graphs it can fetch an output. On
a CPU the same function runs on the same buffers, without graphs; so it does where a GPU cannot record it,
which is logged once.
"""

import logging
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

logger = logging.getLogger(__name__)
NUM_WARM = 2
"""Runs before a GPU records: in the first one torch compiles and libraries allocate their workspaces."""


class Replayed:
    """Replays a function for inputs of fixed names, shapes and formats."""

    def __init__(
        self,
        function: Callable[[Mapping[str, Tensor]], Iterator[Tensor]],
        inputs: Mapping[str, Tensor],
        *,
        num_outputs: int,
    ) -> None:
        """
        function: from the buffers to the outputs, one after the other. It must not depend on host values that
            change between runs, nor wait for a device.
        inputs: example inputs of one run.
        """
        self._function, self._num_outputs = function, num_outputs
        self._inputs = {
            name: torch.empty_like(x, memory_format=torch.contiguous_format) for name, x in inputs.items()
        }
        self._is_recorded = any(x.is_cuda for x in inputs.values())
        self._graphs: list[tuple[torch.cuda.CUDAGraph, Tensor]] = []
        self._num_runs = 0

    def run(self, inputs: Mapping[str, Tensor]) -> Iterator[Tensor]:
        """The outputs, which the next run may overwrite."""
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
            with torch.cuda.stream(torch.cuda.current_stream()):  # a failed graph does not restore it
                self._graphs = self._recorded()
        except RuntimeError as error:
            self._is_recorded = False
            reason = str(error).partition("\n")[0]
            logger.warning("a chunk cannot be recorded as one graph and runs without one: %s", reason)

    def _recorded(self) -> list[tuple[torch.cuda.CUDAGraph, Tensor]]:
        pool, outputs, graphs = torch.cuda.graph_pool_handle(), self._function(self._inputs), []
        for _ in range(self._num_outputs):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                out = next(outputs)
            graphs.append((graph, out))
        return graphs
