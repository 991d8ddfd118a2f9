"""The newest image in memory that two processes share: `Pictures`.

Three alternating slots. A slot's header has its image's number before and after its content: an image that
was overwritten while it was copied is detected, and the newest is read again.
"""

import mmap
import os
import struct

import numpy as np

from drivers.child import MESSAGES
from robot_runtime.core.values.state import Image

_SLOTS = 3
_HEAD = struct.Struct("<QqQ")
"""Its number, capture time [ns], its number again."""


class Pictures:
    """The images of one camera; one process puts, one gets."""

    def __init__(
        self, descriptor: int, size: tuple[int, int], *, place: tuple[int, int] | None = None, index: int = 0
    ) -> None:
        """
        descriptor: of the memory that a `Child` shares; it is enlarged as needed.
        size: (height, width). index: of this camera among several; place: the largest size of them.
        """
        (height, width), (most_high, most_wide) = size, place or size
        self._shape, self._num_bytes = (height, width, 3), height * width * 3
        self._slot = _pages(_HEAD.size + most_high * most_wide * 3)
        self._offset = _pages(MESSAGES) + index * _SLOTS * self._slot
        end = self._offset + _SLOTS * self._slot
        if os.fstat(descriptor).st_size < end:
            os.ftruncate(descriptor, end)
        self._memory = mmap.mmap(descriptor, end)
        self._number = 0

    def put(self, pixels: np.ndarray, t_ns: int) -> None:
        """Write an image. pixels: RGB. ValueError: not of the declared size."""
        if pixels.shape != self._shape or pixels.dtype != np.uint8:
            raise ValueError(f"expected an image {self._shape} uint8, got {pixels.shape} {pixels.dtype}")
        self._number += 1
        at = self._offset + self._number % _SLOTS * self._slot
        self._memory[at : at + _HEAD.size] = _HEAD.pack(self._number, t_ns, 0)
        self._memory[at + _HEAD.size : at + _HEAD.size + self._num_bytes] = pixels.tobytes()
        self._memory[at : at + _HEAD.size] = _HEAD.pack(self._number, t_ns, self._number)

    def get(self, after: int = 0) -> tuple[int, Image] | None:
        """Return the number and the newest image; None: there is none after that number."""
        for _ in range(8):
            number, at = max(self._heads())
            if number <= after:
                return None
            _, t_ns, _ = _HEAD.unpack_from(self._memory, at)
            pixels = np.frombuffer(self._memory, np.uint8, self._num_bytes, at + _HEAD.size)
            copy = pixels.reshape(self._shape).copy()
            if _HEAD.unpack_from(self._memory, at) == (number, t_ns, number):
                return number, Image(t_ns=t_ns, pixels=copy)
        return None

    def _heads(self) -> list[tuple[int, int]]:
        """Return number and offset of every complete image."""
        out = []
        for i in range(_SLOTS):
            at = self._offset + i * self._slot
            number, _, again = _HEAD.unpack_from(self._memory, at)
            out.append((number if number == again else 0, at))
        return out


def _pages(num_bytes: int) -> int:
    """Round up to whole pages."""
    return -(-num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
