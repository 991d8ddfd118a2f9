"""Arrays on the wire: small ones inside the header, large ones and images in frames of their own.

Frames are used in the order in which the header names them, so an array needs no number: one without bytes
in the header is the next frame. An image that the reader has got before is named by camera and capture time
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
FloatName = Literal["f4", "f8"]
SentImages = Mapping[tuple[str, int], Image]
"""Images that the other side has got, by camera and capture time [ns]."""
_UINT8 = np.dtype(np.uint8)
_DTYPES: dict[FloatName, np.dtype] = {"f4": np.dtype("<f4"), "f8": np.dtype("<f8")}
_FLOAT_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class WireTable(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """A float array (n, D)."""

    dtype: FloatName
    shape: tuple[Count, Count]
    inline: bytes | None
    """Its bytes in C order; None if they are the next frame."""


class WireImage(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """One camera's image (h, w, 3) uint8."""

    name: Text
    t_ns: Int64
    encoding: Literal["u1", "jpeg", "kept"]
    """`kept`: it came before, under the same name and time."""
    shape: tuple[Count, Count, Literal[3]]
    inline: bytes | None
    """As in `WireTable`; of one that was kept None."""

    @property
    def key(self) -> tuple[str, int]:
        """Under which it is kept."""
        return self.name, self.t_ns


class Picture(Struct, frozen=True, gc=False):
    """An image as it came: looked at is only what the header says of it."""

    form: WireImage
    buffer: Buffer
    frame: int = 0
    """Of which observation: 0 is the newest, the others count from the oldest of its history."""

    def opened(self, decode_jpeg: DecodeJpeg | None) -> Image:
        """A view of the buffer, or decoded from JPEG; ProtocolError if it is not what the header says."""
        form = self.form
        if form.encoding == "u1":
            return Image(t_ns=form.t_ns, pixels=np.ndarray(form.shape, _UINT8, self.buffer))
        if form.encoding == "kept":
            raise ProtocolError(f"image {form.name!r} of {form.t_ns} ns was not sent")
        if decode_jpeg is None:
            raise ProtocolError(f"image {form.name!r} is a JPEG, which this side does not decode")
        try:
            pixels = decode_jpeg(self.buffer, form.shape)
        except ValueError as error:
            raise ProtocolError(
                f"image {form.name!r} is not a JPEG of shape {form.shape}: {error}"
            ) from error
        pixels.flags.writeable = False
        return Image(t_ns=form.t_ns, pixels=pixels)


class ArrayWriter:
    """Collects the array frames of one message behind its header, which is `frames[0]`."""

    def __init__(self, encode_jpeg: EncodeJpeg | None, sent: SentImages | None = None) -> None:
        """sent: images that need not be sent again, nor those of this message twice; None: all go whole."""
        self.frames: list[Buffer] = [b""]
        self._encode_jpeg = encode_jpeg
        self._sent = None if sent is None else dict(sent)

    def table(self, array: np.ndarray) -> WireTable:
        """A form for floats (n, D); their memory is shared with the frame unless it is small or strided."""
        name = _FLOAT_NAMES.get(array.dtype)
        if name is None:
            raise ProtocolError(
                f"arrays of {array.dtype} do not travel here; allowed: {', '.join(_FLOAT_NAMES.values())}"
            )
        return WireTable(name, array.shape, self._inline(array))

    def image(self, name: str, image: Image) -> WireImage:
        """A form for an image, as JPEG if this side encodes."""
        pixels = image.pixels
        if self._sent is not None:
            if self._sent.get((name, image.t_ns)) is image:
                return WireImage(name, image.t_ns, "kept", pixels.shape, None)
            self._sent[name, image.t_ns] = image
        if self._encode_jpeg is None:
            return WireImage(name, image.t_ns, "u1", pixels.shape, self._inline(pixels))
        self.frames.append(self._encode_jpeg(pixels))
        return WireImage(name, image.t_ns, "jpeg", pixels.shape, None)

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

    def table(self, form: WireTable, name: str) -> np.ndarray:
        """(n, D), finite."""
        dtype = _DTYPES[form.dtype]
        array: np.ndarray = np.ndarray(form.shape, dtype, self._buffer(form, name, dtype.itemsize))
        if form.inline is None and not array.flags.aligned:
            array = array.copy()
            array.flags.writeable = False
        if not is_finite(array):
            raise ProtocolError(f"{name} holds NaN or infinite numbers")
        return array

    def picture(self, form: WireImage, frame: int = 0) -> Picture:
        """An image that is still to be opened; all those of a message are bounded by what they open to."""
        name, num_bytes = f"image {form.name!r}", math.prod(form.shape)
        if num_bytes > self._limits.frame:
            raise ProtocolError(f"{name} would be larger than {self._limits.frame} bytes")
        self._num_pixel_bytes += num_bytes
        if self._num_pixel_bytes > self._limits.total:
            raise ProtocolError(f"the images would be larger than {self._limits.total} bytes")
        if form.encoding == "kept":
            if form.inline is not None:
                raise ProtocolError(f"{name} has bytes, though it is said to have come before")
            return Picture(form, b"", frame)
        return Picture(form, self._buffer(form, name, 1 if form.encoding == "u1" else None), frame)

    def finish(self) -> None:
        """ProtocolError if there are frames that nobody asked for."""
        if self._num_used != len(self._frames):
            raise ProtocolError(f"{len(self._frames) - 1} array frames, {self._num_used - 1} are named")

    def _next_frame(self, name: str) -> memoryview:
        if self._num_used == len(self._frames):
            raise ProtocolError(f"{name} has no frame, there are {len(self._frames) - 1}")
        self._num_used += 1
        return memoryview(self._frames[self._num_used - 1]).toreadonly()

    def _buffer(self, form: WireTable | WireImage, name: str, itemsize: int | None) -> Buffer:
        """Its bytes, as many as its shape says; any number if it is of no itemsize."""
        buffer = self._next_frame(name) if form.inline is None else form.inline
        if itemsize is not None and len(buffer) != math.prod(form.shape) * itemsize:
            raise ProtocolError(f"{name} has {len(buffer)} bytes, not what its shape {form.shape} says")
        return buffer


def is_finite(array: np.ndarray) -> bool:
    """True if there is neither NaN nor infinity in an array of floats."""
    # The sum of squares tells in a third of the time, except for numbers so large that it overflows.
    return math.isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())
