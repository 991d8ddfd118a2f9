"""JPEG for images on the wire, as the codec wants it."""

import numpy as np
import simplejpeg

from robot_runtime.wire.frames import Buffer, EncodeJpeg


def jpeg_encoder(quality: int) -> EncodeJpeg:
    """Encoder of RGB images (h, w, 3) at a quality in [1, 100]; colour at full resolution."""
    if not 1 <= quality <= 100:
        raise ValueError(f"JPEG quality must be in [1, 100], got {quality}")

    def encode_jpeg(pixels: np.ndarray) -> bytes:
        contiguous = np.ascontiguousarray(pixels)
        encoded: bytes = simplejpeg.encode_jpeg(contiguous, quality=quality, colorsubsampling="444")
        return encoded

    return encode_jpeg


def decode_jpeg(buffer: Buffer, shape: tuple[int, ...]) -> np.ndarray:
    """RGB pixels (h, w, 3); the header is compared with `shape` before memory is taken for the pixels."""
    height, width, _, _ = simplejpeg.decode_jpeg_header(buffer)
    if (height, width, 3) != shape:
        raise ValueError(f"expected an image of shape {shape}, got {(height, width, 3)}")
    pixels: np.ndarray = simplejpeg.decode_jpeg(buffer)
    return pixels
