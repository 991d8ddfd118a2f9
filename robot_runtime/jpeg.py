"""JPEG for images on the wire, as the codec needs it."""

import struct
from collections.abc import Iterator
from types import MappingProxyType

import numpy as np
import simplejpeg

from robot_runtime.wire.frames import Buffer, EncodeJpeg

_START, _SCAN = b"\xff\xd8", 0xDA
_SEQUENTIAL = (0xC0, 0xC1)
_FRAMES = MappingProxyType(
    dict.fromkeys(_SEQUENTIAL, "sequential")
    | dict.fromkeys((0xC2, 0xC6, 0xCA, 0xCE), "progressive")
    | dict.fromkeys((0xC3, 0xC7, 0xCB, 0xCF), "lossless")
    | dict.fromkeys((0xC5, 0xC9, 0xCD), "hierarchical or arithmetic")
)
_FRAME_BYTES = 6  # precision, height, width, number of components; the rest is for the decoder
_MAX_SEGMENTS = 64
_MAX_HEADER = 128 * 1024
"""Bytes of tables, profiles and thumbnails that a JPEG may have in addition to its pixels."""


def jpeg_encoder(quality: int) -> EncodeJpeg:
    """Return an encoder of RGB images (h, w, 3) at a quality in [1, 100]; colour at full resolution."""
    if not 1 <= quality <= 100:
        raise ValueError(f"JPEG quality must be in [1, 100], got {quality}")

    def encode_jpeg(pixels: np.ndarray) -> bytes:
        contiguous = np.ascontiguousarray(pixels)
        encoded: bytes = simplejpeg.encode_jpeg(contiguous, quality=quality, colorsubsampling="444")
        return encoded

    return encode_jpeg


def decode_jpeg(buffer: Buffer, shape: tuple[int, ...]) -> np.ndarray:
    """Decode RGB pixels (h, w, 3) if the header needs only one pass over `shape`: see `check_header`."""
    check_header(buffer, shape)
    pixels: np.ndarray = simplejpeg.decode_jpeg(buffer)
    return pixels


def check_header(buffer: Buffer, shape: tuple[int, ...]) -> None:
    """ValueError unless it is what common encoders make: a baseline JPEG of `shape` in one scan.

    A progressive JPEG, and a sequential one whose components come one by one, may go over all of its pixels
    any number of times: a thousand times in 90 kB. One that has all components in its first scan has no
    other, so its cost of decoding is bounded by its shape. Markers as in ITU-T T.81, annex B.
    """
    height, width, _ = shape
    if len(buffer) > 2 * height * width * 3 + _MAX_HEADER:  # noise takes 1.4 times its pixels
        raise ValueError(f"it has {len(buffer)} bytes, far more than its pixels")
    num_components = 0
    for marker, start, end in _segments(buffer):
        if marker in _FRAMES:
            if marker not in _SEQUENTIAL:
                raise ValueError(f"it is {_FRAMES[marker]}; expected a baseline JPEG")
            if end - start < _FRAME_BYTES or num_components:
                raise ValueError("its frame header is damaged")
            precision, *size, num_components = struct.unpack_from(">BHHB", buffer, start)
            if size != [height, width] or precision != 8 or num_components not in (1, 3):
                raise ValueError(f"it has {size} pixels of {num_components} times {precision} bits")
        elif marker == _SCAN:
            if not num_components or buffer[start] != num_components:
                raise ValueError("its components come one by one; expected all in one scan")
            return


def _segments(buffer: Buffer) -> Iterator[tuple[int, int, int]]:
    """Yield marker, begin and end of each segment up to the first scan; ValueError if there is none."""
    if bytes(buffer[:2]) != _START:
        raise ValueError("it does not begin as a JPEG")
    at = 2
    for _ in range(_MAX_SEGMENTS):
        if at + 4 > len(buffer) or buffer[at] != 0xFF:
            raise ValueError("it ends before its first scan")
        if buffer[at + 1] == 0xFF:  # a fill byte
            at += 1
            continue
        (length,) = struct.unpack_from(">H", buffer, at + 2)
        end = at + 2 + length
        if length < 3 or end > len(buffer):
            raise ValueError("it ends before its first scan")
        yield buffer[at + 1], at + 4, end
        at = end
    raise ValueError(f"it has more than {_MAX_SEGMENTS} segments before its first scan")
