"""Numbers, texts and images out of untrusted messages. Errors name keys, types and shapes, no values."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np

Fit = Literal["pad", "crop", "stretch"]
"""How an image of another size is resized: whole with borders, its middle, or stretched."""
MAX_NUMBERS, MAX_TEXT = 4096, 4096
MAX_SIDE = 8192
_LISTED, _NAME = 12, 40


def listed(names: Iterable[Any]) -> str:
    """Some of a client's names, for an error."""
    several = list(names)
    shown = ", ".join(ascii(str(name)[:_NAME])[1:-1] for name in several[:_LISTED])
    return f"{shown} and {len(several) - _LISTED} more" if len(several) > _LISTED else shown or "nothing"


def look_up(sent: Mapping[str, Any], key: str) -> Any | None:
    """An entry, or one of nested dicts by a key with slashes; None if there is none."""
    if key in sent:
        return sent[key]
    found: Any = sent
    for part in key.split("/"):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found


def numbers_at(sent: Mapping[str, Any], key: str) -> np.ndarray:
    """One entry, a number or a row of them, as (n,) floats, finite; ValueError."""
    value = look_up(sent, key)
    if value is None:
        raise ValueError(f"the observation has no {key!r}; it has {listed(sent)}")
    if isinstance(value, list | tuple):
        is_plain = len(value) <= MAX_NUMBERS and all(type(x) in (int, float, bool) for x in value)
        value = np.array(value, float) if is_plain else None
    elif type(value) in (int, float, bool):
        value = np.array([value], float)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        kind = type(look_up(sent, key)).__name__
        raise ValueError(f"{key!r} is an array of at most {MAX_NUMBERS} numbers, got {kind}")
    numbers = np.atleast_1d(value)
    if numbers.ndim != 1 or numbers.size > MAX_NUMBERS:
        raise ValueError(f"{key!r} has shape {numbers.shape}, a row of at most {MAX_NUMBERS} is needed")
    numbers = numbers.astype(float)
    if not np.isfinite(numbers).all():
        raise ValueError(f"{key!r} holds NaN or infinite numbers")
    return numbers


def text_at(sent: Mapping[str, Any], key: str) -> str:
    """One entry, empty if there is none; ValueError if it is not a text."""
    value = look_up(sent, key)
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{key!r} is a text, got {type(value).__name__}")
    if len(value or "") > MAX_TEXT:
        raise ValueError(f"{key!r} is a text of at most {MAX_TEXT} characters, got {len(value or '')}")
    return value or ""


def picture_at(sent: Mapping[str, Any], key: str, *, are_channels_first: bool = False) -> np.ndarray:
    """One entry, (h, w, 3) uint8, or (3, h, w) if its channels come first; ValueError."""
    pixels = look_up(sent, key)
    if pixels is None:
        raise ValueError(f"the observation has no picture {key!r}; it has {listed(sent)}")
    if not isinstance(pixels, np.ndarray):
        raise ValueError(f"picture {key!r} is (h, w, 3) uint8, got {type(pixels).__name__}")
    form, channels = ("(3, h, w)", 0) if are_channels_first else ("(h, w, 3)", 2)
    if pixels.ndim != 3 or pixels.shape[channels] != 3 or pixels.dtype != np.uint8:
        other = "last" if are_channels_first else "first"
        is_other = pixels.ndim == 3 and pixels.shape[2 - channels] == 3
        hint = f': declare "channels": "{other}" in the file of --names' * is_other
        raise ValueError(f"picture {key!r} is {form} uint8, got {pixels.shape} {pixels.dtype}{hint}")
    if are_channels_first:
        pixels = pixels.transpose(1, 2, 0)
    if not all(1 <= n <= MAX_SIDE for n in pixels.shape[:2]):
        raise ValueError(f"picture {key!r} has sides of 1 to {MAX_SIDE} pixels, got {pixels.shape}")
    return np.ascontiguousarray(pixels)


def fitted(pixels: np.ndarray, size: tuple[int, int], fit: Fit) -> np.ndarray:
    """Resize an image (h, w, 3) to (height, width); "stretch" equals LeRobot's server, bit for bit."""
    if pixels.shape[:2] == size:
        return pixels
    if fit == "stretch":
        return _stretched(_stretched(pixels, size[1], axis=1), size[0], axis=0)
    import cv2  # most clients send images of the policy's size

    h, w = pixels.shape[:2]
    ratios = size[0] / h, size[1] / w
    ratio = min(ratios) if fit == "pad" else max(ratios)
    new = max(1, round(h * ratio)), max(1, round(w * ratio))
    how = cv2.INTER_AREA if new[0] < h else cv2.INTER_LINEAR
    scaled = cv2.resize(pixels, (new[1], new[0]), interpolation=how)
    out = np.zeros((*size, 3), np.uint8)
    theirs, ours = zip(*(_middle(a, b) for a, b in zip(new, size, strict=True)), strict=True)
    out[ours] = scaled[theirs]
    return out


def _stretched(pixels: np.ndarray, num: int, *, axis: int) -> np.ndarray:
    """Bilinear, without antialiasing, along one axis: torch's `interpolate` of bytes, as LeRobot's server
    calls it. Torch has 16-bit weights and rounds after each axis, columns first; OpenCV is off by one."""
    most = pixels.shape[axis] - 1
    at = np.maximum((np.arange(num) + 0.5) * (pixels.shape[axis] / num) - 0.5, 0.0)
    first = np.minimum(at.astype(int), most)
    second = np.minimum(first + 1, most)
    share = np.where(first < most, at - first, 0.0)
    bits = 15 if int(0.5 + max(share.max(), 1.0 - share.min()) * 2**15) < 2**15 else 14
    shape = [-1 if i == axis else 1 for i in range(3)]
    one, other = ((0.5 + x * 2**bits).astype(np.int32).reshape(shape) for x in (1.0 - share, share))
    summed = pixels.take(first, axis) * one + pixels.take(second, axis) * other
    return (summed + 2 ** (bits - 1) >> bits).astype(np.uint8)


def _middle(there: int, here: int) -> tuple[slice, slice]:
    """Pixels taken of one side, and where they go."""
    n = min(there, here)
    a, b = (there - n) // 2, (here - n) // 2
    return slice(a, a + n), slice(b, b + n)
