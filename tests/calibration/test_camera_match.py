"""A robot's image, warped by a match, shows at each pixel what the captured camera saw there."""

import json

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.camera import CameraModel, KannalaBrandt, Pinhole
from calibration.camera_match import CHEST, WRIST, CameraMatch, MountedCamera, lens_apart_px, match_cameras
from calibration.matched_camera import MatchedCamera, Warp
from calibration.store import load, save
from robot_runtime.core.values.state import Image
from robot_runtime.errors import InvalidValueError

WIDE = KannalaBrandt(size=(48, 64), fx=22.5, fy=22.5, cx=31.1, cy=24.2, k1=0.02, k2=-0.008)
"""As a hand camera of a capture, at the size of a dataset's images."""
WIDER = KannalaBrandt(size=(480, 640), fx=200.0, fy=200.0, cx=322.0, cy=237.0, k1=0.01)
PLAIN = Pinhole(size=(240, 320), fx=250.0, fy=252.0, cx=158.0, cy=121.0, k1=-0.1, k2=0.02, p1=1e-3)
X_EH = pin.SE3(pin.exp3(np.array([0.3, 0.0, 0.1])), np.array([0.0, -0.06, -0.18]))

directions = st.tuples(*(st.floats(-1.0, 1.0) for _ in range(3))).filter(lambda v: np.linalg.norm(v) > 0.1)
lenses = st.sampled_from(
    [WIDE, PLAIN.stretched((60, 80)), PLAIN.stretched((64, 64)), WIDER.stretched((48, 32))]
)


def moved(mm: float, deg: float, along: tuple[float, ...] = (1.0, 0.0, 0.0)) -> pin.SE3:
    """The captured camera's pose, displaced and turned in its own frame."""
    axis = np.asarray(along) / np.linalg.norm(along)
    return X_EH * pin.SE3(pin.exp3(np.deg2rad(deg) * axis), 1e-3 * mm * axis)


def match_of(
    captured: CameraModel = WIDE, robot: CameraModel = WIDER, X_EC: pin.SE3 = X_EH, **more
) -> CameraMatch:
    one, two = MountedCamera(lens=captured, X_MC=X_EH), MountedCamera(lens=robot, X_MC=X_EC)
    return match_cameras("wrist", WRIST, one, two, **{"distance_m": 0.2, **more})


def grid_of(lens: CameraModel) -> np.ndarray:
    v, u = np.mgrid[: lens.size[0], : lens.size[1]]
    return np.stack([u, v], axis=-1).astype(float)


@given(lenses, st.floats(0.02, 5.0))
def test_the_same_camera_at_the_same_place_is_warped_by_nothing(lens: CameraModel, distance_m: float) -> None:
    match = match_of(lens, lens, distance_m=distance_m)
    assert np.nanmax(np.abs(match.pixels() - grid_of(lens))) < 0.01
    assert match.figures["mount_mm"] + match.figures["mount_deg"] + match.figures["unseen_share"] < 1e-9
    assert match.verdict.ok
    assert not match.verdict.reasons


@given(directions, st.floats(0.0, 20.0), st.floats(0.1, 3.0))
def test_a_turn_is_undone_exactly_at_any_distance(along: tuple[float, ...], deg: float, z: float) -> None:
    X_EC = moved(0.0, deg, along)
    match = match_of(X_EC=X_EC)
    rays = WIDE.unproject(grid_of(WIDE).reshape(-1, 2))
    seen = WIDER.project(z * rays @ (X_EC.rotation.T @ X_EH.rotation).T).reshape(*WIDE.size, 2)
    assert np.nanmax(np.abs(match.pixels() - seen)) < 1e-6
    assert match.figures["parallax_near_px"] < 1e-6
    assert match.figures["mount_deg"] == pytest.approx(deg, abs=1e-6)


@given(directions, st.floats(1.0, 40.0), st.floats(0.0, 10.0))
def test_a_point_at_the_working_distance_is_where_both_cameras_see_it(
    along: tuple[float, ...], mm: float, deg: float
) -> None:
    X_EC, d = moved(mm, deg, along), 0.25
    match = match_of(X_EC=X_EC, distance_m=d)
    uv = grid_of(WIDE)[10:38:4, 15:50:4].reshape(-1, 2)
    rays = WIDE.unproject(uv)
    points_H = rays * (d / rays[:, 2:])
    in_robot = WIDER.project(np.array([(X_EC.inverse() * X_EH).act(p) for p in points_H]))
    np.testing.assert_allclose(match.pixels()[10:38:4, 15:50:4].reshape(-1, 2), in_robot, atol=1e-6)


def test_what_lies_before_or_beyond_is_displaced_by_what_the_figures_state() -> None:
    X_EC, d = moved(20.0, 0.0), 0.2
    match = match_of(WIDE, WIDE, X_EC, distance_m=d)
    assert match.figures["parallax_near_px"] > 1.5 * match.figures["parallax_far_px"] > 0.5
    ray = WIDE.unproject(np.array([[WIDE.cx, WIDE.cy]]))
    here, near = (WIDE.project(z * ray - [[0.02, 0.0, 0.0]])[0, 0] for z in (d, d / 2))
    assert match.figures["parallax_near_px"] == pytest.approx(here - near, rel=0.2)


@pytest.mark.parametrize(
    ("robot", "X_EC", "name", "is_fatal"),
    [
        (WIDER, moved(4.0, 5.0), None, False),
        (WIDER, moved(20.0, 5.0), "moved", False),
        (WIDER, moved(60.0, 5.0), "moved", True),
        (WIDER, moved(0.0, 25.0), "turned", True),
        (PLAIN, X_EH, "unseen", True),
        (WIDE.stretched((24, 32)), X_EH, "coarse", False),
    ],
)
def test_a_camera_too_far_off_is_refused_and_a_nearer_one_warned_of(robot, X_EC, name, is_fatal) -> None:
    verdict = match_of(robot=robot, X_EC=X_EC).verdict
    assert (name in verdict.names) == (name is not None)
    assert verdict.ok != is_fatal


@pytest.mark.parametrize(
    ("levels", "is_warned"), [((100.0, 120.0), False), ((100.0, 160.0), True), ((100.0, 60.0), True)]
)
def test_brightness_beyond_a_ratio_of_one_and_a_half_is_warned_of(levels, is_warned) -> None:
    verdict = match_of(brightness=levels).verdict
    assert verdict.ok
    assert ("brightness" in verdict.names) == is_warned


def test_a_lens_that_folds_back_does_not_show_what_is_beyond_its_edge() -> None:
    barrel = Pinhole(size=(240, 320), fx=220.0, fy=220.0, cx=159.5, cy=119.5, k1=-0.35)
    seen = match_of(KannalaBrandt(size=(100, 100), fx=32.0, fy=32.0, cx=49.5, cy=49.5), barrel).pixels()
    assert np.isnan(seen[50, :3]).all()
    assert np.isfinite(seen[45:55, 45:55]).all()


def test_distortions_are_compared_apart_from_focal_lengths() -> None:
    longer = Pinhole(size=(240, 320), fx=300.0, fy=300.0, cx=150.0, cy=110.0)
    assert lens_apart_px(longer, Pinhole(size=(480, 640), fx=500.0, fy=500.0, cx=320.0, cy=240.0)) < 1e-6
    assert 1.0 < lens_apart_px(longer, PLAIN) < 10.0


@given(lenses, directions, st.floats(0.0, 40.0), st.floats(0.0, 20.0), st.floats(0.05, 2.0))
def test_a_match_s_file_gives_the_same_match(tmp_path_factory, lens, along, mm, deg, distance_m) -> None:
    match = match_of(robot=lens, X_EC=moved(mm, deg, along), distance_m=distance_m)
    path = tmp_path_factory.mktemp("match") / "wrist.match.json"
    save(path, match)
    read = load(path, CameraMatch, even_refused=True)
    assert read.robot.is_same(match.robot)
    assert read.captured.is_same(match.captured)
    np.testing.assert_allclose(read.pixels(), match.pixels(), atol=1e-6)
    assert path.stat().st_size < 8000
    assert json.loads(path.read_text())["content"]["distance_m"] == distance_m


@pytest.mark.parametrize("distance_m", [0.0, -0.2, float("nan"), 100.0])
def test_a_working_distance_behind_the_camera_is_refused(distance_m: float) -> None:
    with pytest.raises(InvalidValueError, match=r"working distance of 0\.02 to 20 m.*TCP"):
        match_of(distance_m=distance_m)


class Still:
    """A camera that gives one image."""

    def __init__(self, pixels: np.ndarray) -> None:
        self.pixels, self.size, self.is_closed = pixels, pixels.shape[:2], False

    def read(self) -> Image:
        return Image(t_ns=123_456_789, pixels=self.pixels)

    def close(self) -> None:
        self.is_closed = True


def smooth(size: tuple[int, int]) -> np.ndarray:
    v, u = np.mgrid[: size[0], : size[1]]
    waves = [np.sin(u / 37.0 + v / 53.0 + phase) for phase in (0.0, 1.0, 2.0)]
    return np.round(127.5 + 100.0 * np.stack(waves, axis=-1)).astype(np.uint8)


def test_a_matched_camera_keeps_time_stamps_and_gives_the_captured_size() -> None:
    still = Still(smooth(WIDER.size))
    camera = MatchedCamera(still, match_of(X_EC=moved(10.0, 5.0)))
    image = camera.read()
    assert camera.size == image.pixels.shape[:2] == WIDE.size
    assert image.t_ns == 123_456_789
    camera.close()
    assert still.is_closed


def test_an_image_is_sampled_where_the_match_says() -> None:
    match = match_of(X_EC=moved(15.0, 8.0, (0.3, 1.0, 0.2)))
    at, pixels = match.pixels(), smooth(WIDER.size)
    warped = Warp(match)(pixels)
    u, v = at[..., 0], at[..., 1]
    wanted = np.stack(
        [127.5 + 100.0 * np.sin(u / 37.0 + v / 53.0 + phase) for phase in (0.0, 1.0, 2.0)], axis=-1
    )
    inside = (np.abs(at - [319.5, 239.5]) < [310.0, 230.0]).all(
        axis=2
    )  # a block is averaged, not beyond the edge
    assert inside.mean() > 0.8
    assert np.abs(warped[inside] - wanted[inside]).max() < 2.5


def test_pixels_that_the_robot_s_camera_does_not_see_are_black() -> None:
    match = match_of(robot=PLAIN)
    warped = Warp(match)(np.full((*PLAIN.size, 3), 200, np.uint8))
    is_seen = np.isfinite(match.pixels()).all(axis=2)
    assert (warped[is_seen] == 200).all()
    assert (warped[~is_seen] == 0).all()


def test_another_size_at_run_time_is_refused_in_one_sentence() -> None:
    match = match_of()
    with pytest.raises(
        InvalidValueError, match=r"expected images of \(480, 640\).*got \(240, 320\): restore"
    ) as refused:
        MatchedCamera(Still(smooth((240, 320))), match)
    assert "\n" not in str(refused.value)
    still = Still(smooth(WIDER.size))
    camera = MatchedCamera(still, match)
    still.pixels = smooth((240, 320))
    with pytest.raises(ValueError, match=r"expected \(480, 640, 3\)"):
        camera.read()


def test_a_chest_camera_is_measured_by_its_own_working_distance() -> None:
    one, two = (MountedCamera(lens=WIDE, X_MC=X) for X in (X_EH, moved(60.0, 0.0)))
    assert match_cameras("chest", CHEST, one, two, distance_m=0.6).verdict.ok
    assert not match_cameras("chest", CHEST, one, two, distance_m=0.2).verdict.ok
