"""Width of a gripper, from two tags on its fingers that the hand's camera sees: `GripperTags`.

    camera H looks along z          width = closed + (distance - distance closed) * slope
      left tag   right tag          distance: of the tags along x of H [m]
        [#]         [#]             one tag alone: twice its distance from the middle between both

A tag that appears much nearer or farther than the fingers is another one, or a reflection.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, final

import cv2
import numpy as np
import pinocchio as pin

from calibration.board import DICTIONARIES
from calibration.camera import CameraModel
from calibration.verdict import Reason, Verdict
from robot_runtime.core.values.shapes import Float, UInt8
from robot_runtime.errors import InvalidValueError, UnknownNameError

Z_TOLERANCE_M = 0.008
"""Largest difference of a tag's distance from the fingers' [m]."""
LEAST_SIGHTINGS = 30
LEAST_SEEN = 0.9
"""Least share of images in which a tag should be seen."""
LEAST_TRAVEL_M = 0.02
"""Least travel between closed and open [m]."""
MOST_SIGMA_M = 0.001


@dataclass(frozen=True, kw_only=True, eq=False)
class Tag:
    """A square marker in one image."""

    number: int
    p_H: tuple[float, float, float]
    """Its middle in the camera's optical frame [m]."""
    X_HT: pin.SE3 | None = None
    """Its full pose, see `pose_of_tag`."""


@final
@dataclass(frozen=True, kw_only=True)
class GripperTags:
    """The tags of one gripper, and the mapping from their distance to its width."""

    KIND: ClassVar[str] = "gripper_tags"
    VERSION: ClassVar[int] = 1
    UNITS: ClassVar[Mapping[str, str]] = {"slope": "m of width per m between the tags"}
    FRAMES: ClassVar[Mapping[str, str]] = {"x, z": "along axes of the hand camera's optical frame"}

    left: int
    right: int
    tag_m: float
    """Side of a tag [m]."""
    dictionary: str
    distance_closed_m: float
    """Distance between the tags when the gripper is closed [m]."""
    width_closed_m: float
    slope: float
    middle_x_m: float
    """Middle between both, along x [m]."""
    z_m: float
    """Their distance from the camera [m]."""
    z_tolerance_m: float = Z_TOLERANCE_M
    width_open_m: float = 0.08
    """Largest width [m]; estimates may exceed it only slightly."""
    residuals: Mapping[str, float] = field(default_factory=dict)
    verdict: Verdict = field(default_factory=Verdict)

    def width_of(self, tags: Sequence[Tag]) -> float:
        """Width [m], clipped to closed and open; NaN: neither tag is seen at its distance."""
        x = {
            tag.number: tag.p_H[0]
            for tag in tags
            if tag.number in (self.left, self.right) and abs(tag.p_H[2] - self.z_m) <= self.z_tolerance_m
        }
        if self.left in x and self.right in x:
            distance = x[self.right] - x[self.left]
        elif x:
            distance = 2.0 * abs(next(iter(x.values())) - self.middle_x_m)
        else:
            return float("nan")
        width = self.width_closed_m + self.slope * (distance - self.distance_closed_m)
        return float(np.clip(width, self.width_closed_m, self.width_open_m))

    def to_dict(self) -> dict[str, Any]:
        names = (
            "left",
            "right",
            "tag_m",
            "dictionary",
            "distance_closed_m",
            "width_closed_m",
            "slope",
            "middle_x_m",
            "z_m",
            "z_tolerance_m",
            "width_open_m",
        )
        return {
            **{name: getattr(self, name) for name in names},
            "residuals": dict(self.residuals),
            "verdict": self.verdict.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{**data, "verdict": Verdict.from_dict(data["verdict"])})


def find_tags(
    picture: UInt8[np.ndarray, "*hwc"], camera: CameraModel, *, dictionary: str, tag_m: float
) -> list[Tag]:
    """Find all tags of a dictionary in an image, with their poses."""
    if dictionary not in DICTIONARIES:
        raise UnknownNameError("dictionary", dictionary, DICTIONARIES)
    grey = picture if picture.ndim == 2 else cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    if grey.shape != camera.size:
        raise InvalidValueError(f"the camera's images are {camera.size}, got one of {grey.shape}")
    parameters = cv2.aruco.DetectorParameters()
    parameters.cornerRefinementMethod = cv2.aruco.CORNER_REFINE_SUBPIX
    detector = cv2.aruco.ArucoDetector(
        cv2.aruco.getPredefinedDictionary(DICTIONARIES[dictionary]), parameters
    )
    corners, ids, _ = detector.detectMarkers(grey)
    if ids is None:
        return []
    out = []
    for number, uv in zip(ids[:, 0], corners, strict=True):
        X_HT = pose_of_tag(uv.reshape(4, 2).astype(float), camera, tag_m=tag_m)
        if X_HT is not None:
            x, y, z = X_HT.translation.tolist()
            out.append(Tag(number=int(number), p_H=(x, y, z), X_HT=X_HT))
    return out


def pose_of_tag(uv: Float[np.ndarray, "4 2"], camera: CameraModel, *, tag_m: float) -> pin.SE3 | None:
    """A square marker in the camera's frame; None: the lens cannot see it.

    uv: its corners, top left, top right, bottom right, bottom left [pixels]. Frame T: x right, y down, z into
    the tag. Of the two poses of a small square this is the likelier one, which may be wrong.
    """
    rays = camera.unproject(uv)
    if not np.isfinite(rays).all() or (rays[:, 2] < 0.05).any():
        return None
    h = tag_m / 2
    square = np.array([[-h, h, 0.0], [h, h, 0.0], [h, -h, 0.0], [-h, -h, 0.0]])  # as OpenCV wants it: y up
    xy = np.ascontiguousarray(rays[:, :2] / rays[:, 2:])
    try:
        _, turns, translations, _ = cv2.solvePnPGeneric(
            square, xy[:, None], np.eye(3), None, flags=cv2.SOLVEPNP_IPPE_SQUARE
        )
    except cv2.error:
        return None
    R_up = cv2.Rodrigues(turns[0])[0]
    return pin.SE3(R_up @ np.diag([1.0, -1.0, -1.0]), translations[0].ravel())


def calibrate(
    sightings: Sequence[Sequence[Tag]],
    *,
    left: int,
    right: int,
    tag_m: float,
    dictionary: str,
    width_open_m: float,
    width_closed_m: float = 0.0,
) -> GripperTags:
    """Calibrate from images in which the gripper closes and opens fully a few times, pausing at both ends.

    sightings: the tags of every image, in order.
    InvalidValueError: the two tags are never seen together.
    """
    if not width_open_m > width_closed_m >= 0.0:
        raise InvalidValueError(
            f"an open gripper is wider than a closed one, got {width_open_m} m and {width_closed_m} m"
        )
    pairs = np.array([(a, b) for a, b in (_pair(tags, left, right) for tags in sightings) if a and b])
    if len(pairs) == 0:
        seen = sorted({tag.number for tags in sightings for tag in tags})
        raise InvalidValueError(
            f"tags {left} and {right} are never seen together; seen are {seen or 'none'}: check numbers, "
            "dictionary, size and light"
        )
    z_m = float(np.median(pairs[:, :, 2]))
    near = (np.abs(pairs[:, :, 2] - z_m) <= Z_TOLERANCE_M).all(axis=1)
    x = pairs[near][:, :, 0]
    distance = x[:, 1] - x[:, 0]
    is_swapped = bool(np.median(distance) < 0.0)
    if is_swapped:
        left, right, distance = right, left, -distance
    closed, s_closed = _end(distance, low=True)
    opened, s_opened = _end(distance, low=False)
    travel = opened - closed
    slope = (width_open_m - width_closed_m) / max(travel, 1e-9)
    reasons = _judge(
        len(distance), len(pairs), len(sightings), travel, slope, max(s_closed, s_opened), is_swapped
    )
    return GripperTags(
        left=left,
        right=right,
        tag_m=tag_m,
        dictionary=dictionary,
        distance_closed_m=closed,
        width_closed_m=width_closed_m,
        slope=float(slope),
        middle_x_m=float(np.median(x.mean(axis=1))),
        z_m=z_m,
        width_open_m=width_open_m,
        residuals={
            "seen_share": len(pairs) / len(sightings),
            "end_sigma_mm": 1e3 * max(s_closed, s_opened),
            "travel_mm": 1e3 * float(travel),
        },
        verdict=Verdict.of(reasons),
    )


def _pair(tags: Sequence[Tag], left: int, right: int) -> tuple[Any, Any]:
    translations = {tag.number: tag.p_H for tag in tags}
    return translations.get(left), translations.get(right)


def _end(distance: np.ndarray, *, low: bool) -> tuple[float, float]:
    """Tag distance at one end of the travel, and its scatter over single images [m]."""
    least, most = np.percentile(distance, [2, 98])
    band = 0.03 * (most - least) + 1e-4
    there = distance[distance < least + band] if low else distance[distance > most - band]
    middle = float(np.median(there))
    return middle, float(1.4826 * np.median(np.abs(there - middle)))


def _judge(
    num: int, num_pairs: int, num_all: int, travel: float, slope: float, sigma: float, is_swapped: bool
) -> list[Reason]:
    reasons = []
    if num < LEAST_SIGHTINGS:
        reasons.append(
            Reason(
                name="few-sightings",
                what=f"both tags are seen in {num} images only ({LEAST_SIGHTINGS} are needed).",
                do="Use more light, sharper images, and whole tags with a white edge.",
            )
        )
    elif num_pairs < LEAST_SEEN * num_all:
        reasons.append(
            Reason(
                name="tags-often-lost",
                what=f"both tags are seen in {100 * num_pairs / num_all:.0f} % of the images only.",
                do="Widths in between come from one tag, or are missing: use more light and less glare.",
                is_fatal=False,
            )
        )
    if travel < LEAST_TRAVEL_M:
        reasons.append(
            Reason(
                name="little-travel",
                what=f"the tags came {1e3 * travel:.1f} mm apart only.",
                do="Close and open the gripper fully, and stay there for a moment.",
            )
        )
    elif not 0.85 < slope < 1.2:
        reasons.append(
            Reason(
                name="wrong-size",
                what=f"the tags move {1 / slope:.2f} times as far as the fingers.",
                do="Close and open the gripper fully. Check the tags' side and the gripper's widths "
                "(metres), and the camera's intrinsics; tags that are not on the fingers may move otherwise.",
                is_fatal=not 0.6 < slope < 1.7,
            )
        )
    if sigma > MOST_SIGMA_M:
        reasons.append(
            Reason(
                name="noisy-ends",
                what=f"at its ends the distance differs by {1e3 * sigma:.1f} mm from image to image.",
                do="Hold the gripper still there; use more light, sharper images, larger tags.",
            )
        )
    if is_swapped:
        reasons.append(
            Reason(
                name="left-right-swapped",
                what="the tag declared as right is the left one in the image.",
                do="Nothing: they were exchanged. Check whether the camera is upside down.",
                is_fatal=False,
            )
        )
    return reasons
