"""Frames that carry messages, their size limits, and the error for frames that are not a message."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from robot_runtime.wire.fields import MAX_REASON

Buffer = bytes | bytearray | memoryview
"""A memoryview is one-dimensional and of bytes."""
EncodeJpeg = Callable[[np.ndarray], bytes]
"""(h, w, 3) uint8 RGB -> JPEG."""
DecodeJpeg = Callable[[Buffer, tuple[int, ...]], np.ndarray]
"""JPEG and the shape it must have -> (h, w, 3) uint8 RGB; ValueError if the shape differs or it is no
JPEG."""


class ProtocolError(Exception):
    """Frames that are not a message. It identifies the packet as far as that could be read."""

    def __init__(self, message: str, *, their_version: int | None = None) -> None:
        """their_version: protocol version of the peer, if it differs."""
        super().__init__(message[:MAX_REASON])
        self.their_version = their_version
        self.client_id = ""
        self.session = 0
        self.request_id: int | None = None
        self.epoch: int | None = None


@dataclass(frozen=True, kw_only=True)
class WireLimits:
    """Sizes beyond which a message is refused unread [bytes, counts]."""

    header: int = 64 * 1024
    frame: int = 32 * 1024 * 1024
    total: int = 64 * 1024 * 1024
    num_frames: int = 66


LIMITS = WireLimits()


def check_sizes(frames: Sequence[Buffer], limits: WireLimits) -> None:
    """ProtocolError if there are too many frames or bytes; a frame's length is its bytes."""
    if not 1 <= len(frames) <= limits.num_frames:
        raise ProtocolError(f"a message has 1 to {limits.num_frames} frames, got {len(frames)}")
    sizes = [len(frame) for frame in frames]
    if sizes[0] > limits.header:
        raise ProtocolError(f"the header has {sizes[0]} bytes, allowed are {limits.header}")
    if max(sizes) > limits.frame or sum(sizes) > limits.total:
        raise ProtocolError(f"frames of {sizes} bytes; allowed {limits.frame} each, {limits.total} in all")
