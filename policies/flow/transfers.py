"""Asynchronous copies between the host and the compute device: `to_device`, `on_host`.

    host       launch 1, launch 2, wait for copy 1, yield it, launch 3, ...
    compute    |-- step 1 --|-- step 2 --|-- step 3 --|
    copies                  |copy 1|     |copy 2|     |copy 3|

Final rows are copied while the next steps run: no step waits for a copy, and the host, which launches ahead,
waits only for the copy that it is about to yield. On a CPU there is nothing to copy.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

MAX_AHEAD = 2
"""Steps launched beyond the last one known to be done: enough to keep a device busy, and the only work left
when a chunk is cancelled."""


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy via pinned memory, so that the copy is queued on the device and the host does not wait."""
    return pinned(tensor, device).to(device, non_blocking=device.type == "cuda")


def pinned(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor in pinned memory; unchanged if it is on the device already, or if the host computes."""
    return tensor.pin_memory() if device.type == "cuda" and tensor.device.type == "cpu" else tensor


def pinned_batch(batch: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """A batch with all tensors `pinned`."""
    return {name: pinned(x, device) if isinstance(x, Tensor) else x for name, x in batch.items()}


def on_host[T](
    steps: Iterable[tuple[T, Tensor | None]], device: torch.device
) -> Iterator[tuple[T, Tensor | None]]:
    """The pairs in order with their tensors on the host; each step of the iterable launches work.

    Pairs without a tensor are also yielded once they are done, so that the caller can cancel between steps.
    """
    if device.type != "cuda":
        for tag, tensor in steps:
            yield tag, None if tensor is None else tensor.cpu()
        return
    copies = _Copies(device)
    under_way: deque[tuple[T, Tensor | None, Any]] = deque()
    for tag, tensor in steps:
        under_way.append((tag, *copies.start(tensor)))
        while under_way and (len(under_way) > MAX_AHEAD or under_way[0][2].query()):
            yield _arrived(*under_way.popleft())
    while under_way:
        yield _arrived(*under_way.popleft())


def _arrived[T](tag: T, tensor: Tensor | None, done: Any) -> tuple[T, Tensor | None]:
    done.synchronize()
    return tag, tensor


class _Copies:
    """A separate stream for copies to the host."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)

    def start(self, tensor: Tensor | None) -> tuple[Tensor | None, torch.cuda.Event]:
        """A copy that is on the host once the event has happened, after all work launched so far."""
        done = torch.cuda.Event()
        computing = torch.cuda.current_stream(self._device)
        if tensor is None:
            done.record(computing)
            return None, done
        self._stream.wait_stream(computing)
        with torch.cuda.stream(self._stream):
            copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            copy.copy_(tensor, non_blocking=True)
            done.record(self._stream)
        tensor.record_stream(self._stream)
        return copy, done
