"""Arrays on the wire: small ones inside the header, large ones and images in separate frames.

Frames are used in the order in which the header names them, so an array needs no number: one without bytes
in the header is the next frame. An image that the reader has already is named by camera and capture time
alone (`kept`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from robot_runtime.core.values.state import Image
from robot_runtime.wire.fields import Count, Int64, Text
from robot_runtime.wire.frames import Buffer, DecodeJpeg, EncodeJpeg, ProtocolError, WireLimits

INLINE_BYTES = 6 * 1024
"""Arrays up to here travel inside the header: a frame costs more than copying 50 x 14 doubles."""
TableForm = tuple[Literal["f4", "f8"], tuple[Count, Count], bytes | None]
"""A float array (n, D): its dtype, its shape, and its bytes in C order; None if they are the next frame."""
ImageForm = tuple[Text, Int64, Literal["u1", "jpeg", "kept"], tuple[Count, Count, Literal[3]], bytes | None]
"""An image (h, w, 3) uint8: camera, capture time [ns], encoding, shape, and bytes as in a table. One that is
`kept` has none: it was sent before, under the same name and time."""
SentImages = Mapping[tuple[str, int], Image]
"""Images that the other side has already, by camera and capture time [ns]."""
_UINT8 = np.dtype(np.uint8)
_DTYPES: dict[str, np.dtype] = {"f4": np.dtype("<f4"), "f8": np.dtype("<f8")}
_FLOAT_NAMES: dict[np.dtype, Literal["f4", "f8"]] = {_DTYPES["f4"]: "f4", _DTYPES["f8"]: "f8"}


class Picture(Struct, frozen=True, gc=False, kw_only=True):
    """An image as received: only its entry in the header has been read."""

    name: str
    t_ns: int
    encoding: Literal["u1", "jpeg", "kept"]
    shape: tuple[int, int, int]
    buffer: Buffer
    frame: int = 0
    """Index of its observation: 0 is the newest, the others count from the oldest of the history."""

    @property
    def key(self) -> tuple[str, int]:
        """The key under which it is kept."""
        return self.name, self.t_ns

    def opened(self, decode_jpeg: DecodeJpeg | None) -> Image:
        """Return a view of the buffer, or the decoded JPEG; ProtocolError if it does not fit the header."""
        if self.encoding == "u1":
            return Image(t_ns=self.t_ns, pixels=np.ndarray(self.shape, _UINT8, self.buffer))
        if self.encoding == "kept":
            raise ProtocolError(f"image {self.name!r} of {self.t_ns} ns was not sent")
        if decode_jpeg is None:
            raise ProtocolError(f"image {self.name!r} is a JPEG, which this side does not decode")
        try:
            pixels = decode_jpeg(self.buffer, self.shape)
        except ValueError as error:
            raise ProtocolError(
                f"image {self.name!r} is not a JPEG of shape {self.shape}: {error}"
            ) from error
        pixels.flags.writeable = False
        return Image(t_ns=self.t_ns, pixels=pixels)


class ArrayWriter:
    """Collects the array frames of one message behind its header, which is `frames[0]`."""

    def __init__(self, encode_jpeg: EncodeJpeg | None, sent: SentImages | None = None) -> None:
        """sent: images that need not be sent again, nor those of this message twice; None: all are sent."""
        self.frames: list[Buffer] = [b""]
        self._encode_jpeg = encode_jpeg
        self._sent = None if sent is None else dict(sent)

    def table(self, array: np.ndarray) -> TableForm:
        """Return a form for floats (n, D); their memory is shared with the frame unless small or strided."""
        name = _FLOAT_NAMES.get(array.dtype)
        if name is None:
            raise ProtocolError(
                f"arrays of {array.dtype} do not travel here; allowed: {', '.join(_FLOAT_NAMES.values())}"
            )
        return name, array.shape, self._inline(array)

    def image(self, name: str, image: Image) -> ImageForm:
        """Return a form for an image, as JPEG if this side encodes."""
        pixels, t_ns = image.pixels, image.t_ns
        shape: tuple[int, int, Literal[3]] = pixels.shape
        if self._sent is not None:
            if self._sent.get((name, t_ns)) is image:
                return name, t_ns, "kept", shape, None
            self._sent[name, t_ns] = image
        if self._encode_jpeg is None:
            return name, t_ns, "u1", shape, self._inline(pixels)
        self.frames.append(self._encode_jpeg(pixels))
        return name, t_ns, "jpeg", shape, None

    def _inline(self, array: np.ndarray) -> bytes | None:
        if array.nbytes <= INLINE_BYTES:
            return array.tobytes()
        view = array.data if array.flags.c_contiguous else np.ascontiguousarray(array).data
        self.frames.append(view.cast("B"))
        return None


class ArrayReader:
    """Hands out the arrays of one message, read-only; anything unexpected is a ProtocolError."""

    def __init__(self, frames: Sequence[Buffer], *, limits: WireLimits) -> None:
        self._frames = frames
        self._num_used = 1  # the header
        self._limits = limits
        self._num_pixel_bytes = 0

    def table(self, form: TableForm, name: str) -> np.ndarray:
        """Return the array (n, D), which is finite."""
        kind, shape, inline = form
        dtype = _DTYPES[kind]
        buffer = self._buffer(inline, name, shape, dtype.itemsize)
        array: np.ndarray = np.ndarray(shape, dtype, buffer)
        if inline is None and not array.flags.aligned:
            array = array.copy()
            array.flags.writeable = False
        if not is_finite(array):
            raise ProtocolError(f"{name} holds NaN or infinite numbers")
        return array

    def picture(self, form: ImageForm, frame: int = 0) -> Picture:
        """Return an unopened image; the opened sizes of a message's images are bounded."""
        camera, t_ns, encoding, shape, inline = form
        name, num_bytes = f"image {camera!r}", math.prod(shape)
        if num_bytes > self._limits.frame:
            raise ProtocolError(f"{name} would be larger than {self._limits.frame} bytes")
        self._num_pixel_bytes += num_bytes
        if self._num_pixel_bytes > self._limits.total:
            raise ProtocolError(f"the images would be larger than {self._limits.total} bytes")
        if encoding == "kept":
            if inline is not None:
                raise ProtocolError(f"{name} has bytes, though it is declared as sent before")
            buffer: Buffer = b""
        else:
            buffer = self._buffer(inline, name, shape, 1 if encoding == "u1" else None)
        return Picture(name=camera, t_ns=t_ns, encoding=encoding, shape=shape, buffer=buffer, frame=frame)

    def finish(self) -> None:
        """ProtocolError if there are frames that the header does not name."""
        if self._num_used != len(self._frames):
            raise ProtocolError(f"{len(self._frames) - 1} array frames, {self._num_used - 1} are named")

    def _next_frame(self, name: str) -> memoryview:
        if self._num_used == len(self._frames):
            raise ProtocolError(f"{name} has no frame, there are {len(self._frames) - 1}")
        self._num_used += 1
        return memoryview(self._frames[self._num_used - 1]).toreadonly()

    def _buffer(
        self, inline: bytes | None, name: str, shape: tuple[int, ...], itemsize: int | None
    ) -> Buffer:
        """Return its bytes, as many as its shape requires; any number without an itemsize."""
        buffer = self._next_frame(name) if inline is None else inline
        if itemsize is not None and len(buffer) != math.prod(shape) * itemsize:
            raise ProtocolError(f"{name} has {len(buffer)} bytes, not what its shape {shape} says")
        return buffer


def is_finite(array: np.ndarray) -> bool:
    """Return whether an array of floats has neither NaN nor infinity."""
    # The sum of squares takes a third of the time; it fails only where numbers are so large that it
    # overflows.
    return math.isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())
