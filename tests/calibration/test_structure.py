"""Errors with a pattern are told from noise, their cause is named, and the result is refused."""

from collections.abc import Callable

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.bundle import Bundle, adjusted, numbers_of
from calibration.camera import CameraModel, KannalaBrandt, Pinhole
from calibration.detection import Corners
from calibration.intrinsics import calibrate
from calibration.structure import pattern_of
from tests.calibration.board_views import BOARD, FISHEYE, PINHOLE, corners_from, seen_from
from tests.examples import examples

WIDE = Pinhole(size=(360, 480), fx=230.0, fy=231.0, cx=243.0, cy=176.0, k1=-0.02, k2=0.004, k3=-0.0005)
FAR = {Pinhole: (0.25, 0.45), KannalaBrandt: (0.12, 0.3)}


def same(uv: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return uv


def flat(p_B: np.ndarray) -> np.ndarray:
    return p_B


def seen(
    camera: CameraModel,
    seed: int,
    *,
    num: int = 16,
    noise_px: float = 0.15,
    shifted: Callable[[np.ndarray, np.random.Generator], np.ndarray] = same,
    shaped: Callable[[np.ndarray], np.ndarray] = flat,
) -> tuple[list[Corners], list[pin.SE3]]:
    """Views of a good rig, and X_CB of each.

    shifted: where the corners of a view are in the picture [pixels]. shaped: and on the board [m].
    """
    rng = np.random.default_rng(seed)
    far = 0.6 * np.array(FAR[Pinhole]) if camera is WIDE else FAR[type(camera)]
    views: list[Corners] = []
    poses = []
    while len(views) < num:
        X = seen_from(
            camera,
            BOARD,
            rng,
            distance_m=rng.uniform(*far),
            tilt=rng.uniform(0.2, 0.8),
            places=(0.05, 0.95),
        )
        uv = camera.project(shaped(BOARD.corners_B) @ X.rotation.T + X.translation)
        uv = shifted(uv, rng) + rng.normal(0.0, noise_px, uv.shape)
        keep = camera.sees(uv, margin=3)
        if keep.sum() > 12:
            views.append(Corners(ids=np.flatnonzero(keep), uv=uv[keep], size=camera.size, blur_px=0.6))
            poses.append(X)
    return views, poses


def fitted(camera: CameraModel, views: list[Corners], poses: list[pin.SE3]) -> Bundle:
    return adjusted(BOARD, views, camera, poses, numbers_of(camera))


def pan(uv: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The camera turned to one side while all pictures were read: 5 pixels from top to bottom."""
    return uv + np.outer(uv[:, 1] - 180.0, [5.0 / 360, 0.0])


def shake(uv: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """It moved another way in each."""
    return uv + np.outer(uv[:, 1] - 180.0, rng.normal(0.0, 3.0, 2) / 360)


def bulge(p_B: np.ndarray) -> np.ndarray:
    """4 mm in the middle of the sheet."""
    x = (p_B[:, 0] - BOARD.centre_B[0]) / BOARD.centre_B[0]
    return p_B + np.outer(1.0 - x * x, [0.0, 0.0, 0.004])


def stretch(p_B: np.ndarray) -> np.ndarray:
    """Printed 1 % too long along x."""
    return p_B * (1.01, 1.0, 1.0)


@pytest.mark.long
@pytest.mark.parametrize("shifted", [pan, shake])
def test_a_rolling_shutter_in_motion_is_refused(shifted):
    verdict = calibrate(BOARD, seen(PINHOLE, 0, shifted=shifted)[0]).intrinsics.verdict
    assert not verdict.ok
    assert "rolling-shutter" in verdict.names


@pytest.mark.parametrize(("shaped", "cause"), [(bulge, "bent"), (stretch, "stretched")])
@pytest.mark.parametrize("camera", [PINHOLE, FISHEYE])
def test_a_board_that_is_not_as_its_file_says_is_told_by_what_is_wrong(camera, shaped, cause):
    pattern = pattern_of(BOARD, views := (both := seen(camera, 1, shaped=shaped))[0], fitted(camera, *both))
    assert len(views) == 16
    assert pattern is not None
    assert pattern.cause == cause


@examples(6)
@given(
    camera=st.sampled_from([PINHOLE, WIDE, FISHEYE]),
    seed=st.integers(0, 2**31),
    noise_px=st.floats(0.1, 0.5),
)
def test_noise_of_a_good_rig_has_no_pattern(camera, seed, noise_px):
    views, poses = seen(camera, seed, noise_px=noise_px)
    assert pattern_of(BOARD, views, fitted(camera, views, poses)) is None


@pytest.mark.long
@pytest.mark.parametrize(("camera", "model"), [(PINHOLE, "pinhole"), (WIDE, "pinhole"), (FISHEYE, "fisheye")])
def test_a_good_rig_is_not_refused(camera, model):
    found = calibrate(BOARD, seen(camera, 3, num=18)[0], model).intrinsics
    assert found.verdict.ok, str(found.verdict)
    assert abs(found.camera.fx / camera.fx - 1.0) < 0.005


def test_a_pinhole_of_the_fisheye_s_model_is_no_fault():
    narrow = Pinhole(size=(360, 480), fx=460.0, fy=460.0, cx=240.0, cy=179.0)
    rng = np.random.default_rng(5)
    views = []
    while len(views) < 16:
        X = seen_from(
            narrow,
            BOARD,
            rng,
            distance_m=rng.uniform(0.25, 0.4),
            tilt=rng.uniform(0.2, 0.8),
            places=(0.1, 0.9),
        )
        if len(corners := corners_from(narrow, BOARD, X, rng, noise_px=0.2)) > 12:
            views.append(corners)
    found = calibrate(BOARD, views, "fisheye").intrinsics
    assert "wrong-model" not in found.verdict.names
