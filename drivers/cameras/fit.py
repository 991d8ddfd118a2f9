"""A camera's image as a policy was trained to see it: cropped, rotated and resized, in that order.

    crop = (top, left, height, width)    of the camera's own image, before all else [pixels]
    rotate = 90                          clockwise [degrees]
    size = (224, 224), fit =             what the policy gets (height, width) [pixels], and how:

    "pad"       the whole image, its aspect ratio kept, in the middle of a black one
    "crop"      the middle of the image, its aspect ratio kept, as much as fills the size
    "stretch"   the whole image, its aspect ratio not kept

Without `fit` nothing is scaled: the image has to have that size. Shrinking averages (OpenCV's INTER_AREA),
so that fine patterns do not flicker; enlarging interpolates.
"""

import logging
from dataclasses import dataclass

import numpy as np

from drivers.cameras.libraries import opencv
from robot_runtime.core.robot import Camera
from robot_runtime.core.values.shapes import UInt8
from robot_runtime.core.values.state import Image
from robot_runtime.errors import InvalidValueError

logger = logging.getLogger(__name__)
FITS = ("pad", "crop", "stretch")
MAX_SIDE = 20_000
"""Longest side of an image [pixels]."""

Size = tuple[int, int]
"""(height, width) [pixels]"""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The transformation of each image of a camera; see above. InvalidValueError: an invalid number."""

    size: Size | None = None
    fit: str | None = None
    rotate: int = 0
    crop: tuple[int, int, int, int] | None = None

    def __post_init__(self) -> None:
        if self.size is not None:
            object.__setattr__(self, "size", a_size("size", self.size))
        if self.fit is not None and self.fit not in FITS:
            raise InvalidValueError(f"fit is one of {', '.join(map(repr, FITS))}, got {self.fit!r}")
        if self.fit is not None and self.size is None:
            raise InvalidValueError(f"fit = {self.fit!r} needs a size = (height, width)")
        if self.rotate not in (0, 90, 180, 270):
            raise InvalidValueError(f"rotate is 0, 90, 180 or 270 degrees clockwise, got {self.rotate!r}")
        if self.crop is not None:
            crop = whole_numbers("crop", self.crop, ("top", "left", "height", "width"))
            if min(crop[:2]) < 0 or min(crop[2:]) < 1:
                raise InvalidValueError(f"crop is (top, left, height, width) in the picture, got {crop}")
            object.__setattr__(self, "crop", crop)

    @property
    def wanted(self) -> Size | None:
        """The size that the camera itself has to have, (height, width); None: any size."""
        if self.size is None or self.fit is not None or self.crop is not None:
            return None
        return self.size if self.rotate % 180 == 0 else self.size[::-1]

    def size_of(self, source: Size) -> Size:
        """Return the size after the fit of an image of that size; InvalidValueError: it does not fit."""
        height, width = self._turned(source)
        if self.crop is not None:
            top, left, cut_height, cut_width = self.crop
            if top + cut_height > source[0] or left + cut_width > source[1]:
                raise InvalidValueError(
                    f"crop = {self.crop} (top, left, height, width) is not inside the camera's picture of "
                    f"{source} (height, width)"
                )
        if self.fit is None and self.size not in (None, (height, width)):
            raise InvalidValueError(
                f"the camera gives pictures of {(height, width)} (height, width), size asks for {self.size}; "
                f"declare how to fit it: fit = {', '.join(map(repr, FITS))}"
            )
        return (height, width) if self.size is None else self.size

    def opened(self, what: str, source: Size) -> Size:
        """As `size_of`, for a camera that is opened: logs both sizes if its images are resized."""
        size, (height, width) = self.size_of(source), self._turned(source)
        if size != (height, width):
            logger.info(
                "%s: pictures of %d x %d are resized to %d x %d: %s", what, height, width, *size, self.fit
            )
        return size

    def _turned(self, source: Size) -> Size:
        """Return the size after crop and rotation."""
        height, width = source if self.crop is None else self.crop[2:]
        return (height, width) if self.rotate % 180 == 0 else (width, height)

    def __call__(self, pixels: UInt8[np.ndarray, "h w 3"]) -> UInt8[np.ndarray, "H W 3"]:
        """Return the fitted image; a new array where anything is changed."""
        if self.crop is not None:
            top, left, height, width = self.crop
            pixels = pixels[top : top + height, left : left + width]
        if self.rotate:
            pixels = np.rot90(pixels, k=-self.rotate // 90)
        if self.size is None or self.fit is None or pixels.shape[:2] == self.size:
            return np.ascontiguousarray(pixels)
        match self.fit:
            case "pad":
                top, left, height, width = inside(pixels.shape[:2], self.size)
                out = np.zeros((*self.size, 3), np.uint8)
                out[top : top + height, left : left + width] = scaled(pixels, (height, width))
                return out
            case "crop":
                top, left, height, width = middle(pixels.shape[:2], self.size)
                return scaled(pixels[top : top + height, left : left + width], self.size)
            case _:
                return scaled(pixels, self.size)


def inside(source: Size, target: Size) -> tuple[int, int, int, int]:
    """Return where the whole source lies in the target, (top, left, height, width); rounded as openpi rounds
    it."""
    ratio = max(source[0] / target[0], source[1] / target[1])
    height, width = (max(1, int(side / ratio)) for side in source)
    return (target[0] - height) // 2, (target[1] - width) // 2, height, width


def middle(source: Size, target: Size) -> tuple[int, int, int, int]:
    """Return the largest middle part of the source with the target's aspect ratio, (top, left, height,
    width)."""
    height = max(1, min(source[0], round(source[1] * target[0] / target[1])))
    width = max(1, min(source[1], round(source[0] * target[1] / target[0])))
    return (source[0] - height) // 2, (source[1] - width) // 2, height, width


def scaled(pixels: UInt8[np.ndarray, "h w 3"], size: Size) -> UInt8[np.ndarray, "H W 3"]:
    """Return the image at that size."""
    cv2 = opencv()

    if pixels.shape[:2] == size:
        return np.ascontiguousarray(pixels)
    shrinks = size[0] * size[1] < pixels.shape[0] * pixels.shape[1]
    how = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(np.ascontiguousarray(pixels), size[::-1], interpolation=how), np.uint8)


class Fitted:
    """A camera that returns another camera's images through a `Fit`."""

    def __init__(
        self,
        camera: Camera,
        *,
        size: Size | None = None,
        fit: str | None = None,
        rotate: int = 0,
        crop: tuple[int, int, int, int] | None = None,
    ) -> None:
        """See the module. InvalidValueError: it does not fit the camera's images."""
        self._camera, self._fit = camera, Fit(size=size, fit=fit, rotate=rotate, crop=crop)
        height, width = camera.size
        self._source = (int(height), int(width))
        self._size = self._fit.opened(type(camera).__name__, self._source)
        self.has_noise = bool(getattr(camera, "has_noise", True))

    @property
    def size(self) -> Size:
        return self._size

    def read(self) -> Image:
        """Read and fit an image. ValueError: its size is not the camera's own, which the fit would hide."""
        image = self._camera.read()
        refuse_other_size(image.pixels, self._source)
        return Image(t_ns=image.t_ns, pixels=self._fit(image.pixels))

    def close(self) -> None:
        self._camera.close()


def refuse_other_size(pixels: np.ndarray, size: Size) -> None:
    """ValueError: the size differs from the declared one."""
    if pixels.shape[:2] != size:
        raise ValueError(f"{pixels.shape} {pixels.dtype}, its size says {(*size, 3)} uint8")


def a_size(name: str, value: object) -> Size:
    """Return (height, width) as plain numbers; InvalidValueError: it is no size."""
    height, width = whole_numbers(name, value, ("height", "width"))
    if not (0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE):
        raise InvalidValueError(f"{name} is (height, width) of 1 to {MAX_SIDE} pixels, got {value!r}")
    return height, width


def whole_numbers(name: str, value: object, of: tuple[str, ...]) -> tuple[int, ...]:
    """Return as many whole numbers as there are names; InvalidValueError: it is something else."""
    values = tuple(value) if isinstance(value, list | tuple) else ()
    if len(values) != len(of) or not all(
        isinstance(v, int | np.integer) and not isinstance(v, bool) for v in values
    ):
        raise InvalidValueError(f"{name} is ({', '.join(of)}) in pixels, got {value!r:.100}")
    return tuple(map(int, values))
