"""Refuses to build a network much larger than its weights file: `Budget`, active while it is built."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from robot_runtime.errors import CheckpointError

_MAKE = frozenset({torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.eye})
_SPARE, _LEAST = 4, 2**24
"""Numbers allowed per byte of the file, and on top of that: some layers are created only to be replaced."""


class Budget(TorchFunctionMode):
    """A context in which torch may create only as many numbers as a file can fill.

    A configuration that asks for all memory is refused, with a CheckpointError, before anything is allocated.
    """

    def __init__(self, weights: Path) -> None:
        super().__init__()
        self._weights = weights
        size = weights.stat().st_size if weights.is_file() else 0
        self._left = _SPARE * size + _LEAST

    def __torch_function__(
        self, func: Callable, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _MAKE:
            self._left -= _count(args, kwargs)
            if self._left < 0:
                raise CheckpointError(f"{self._weights} is too small for the network in its configuration")
        return func(*args, **kwargs)


def _count(args: Sequence[Any], kwargs: dict[str, Any]) -> int:
    size = kwargs.get("size", args)
    if size and isinstance(size[0], list | tuple):
        size = size[0]
    return math.prod(n for n in size if isinstance(n, int) and not isinstance(n, bool))
