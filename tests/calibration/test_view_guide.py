"""Views that are taken while pictures come: which count, how the board is tilted, what is wanted next."""

import numpy as np
import pinocchio as pin
import pytest

from calibration.camera import CameraModel
from calibration.coverage import SIDES, Side, rough_tilt
from calibration.view_guide import ViewGuide
from sim.capture.board_scene import Look, draw_board
from tests.calibration.board_views import BOARD, FISHEYE, PINHOLE, corners_from

AXES: dict[Side, tuple[float, float, float]] = {
    "upper": (1.0, 0.0, 0.0),
    "right": (0.0, 1.0, 0.0),
    "lower": (-1.0, 0.0, 0.0),
    "left": (0.0, -1.0, 0.0),
}
"""A turn about one of these brings this edge of the board nearer."""
EMPTY = np.full(PINHOLE.size, 90, np.uint8)


def board_at(
    place: tuple[float, float], side: Side, angle: float, *, camera: CameraModel = PINHOLE, far_m: float = 0.4
) -> pin.SE3:
    """X_CB with the board's middle at shares of the picture, tilted against the line of sight [rad]."""
    ray = camera.unproject((np.array(place) * camera.size[::-1])[None])[0]
    ray = ray / np.linalg.norm(ray)
    R = pin.Quaternion.FromTwoVectors(np.array([0.0, 0.0, 1.0]), ray).matrix()
    R = R @ pin.exp3(angle * np.array(AXES[side]))
    return pin.SE3(R, far_m * ray - R @ BOARD.centre_B)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("camera", "model", "far_m"), [(PINHOLE, "pinhole", 0.45), (FISHEYE, "fisheye", 0.25)]
)
@pytest.mark.parametrize("place", [(0.5, 0.5), (0.35, 0.6), (0.7, 0.4)])
def test_the_edge_that_is_nearest_is_told_without_the_lens(place, camera, model, far_m, side):
    X_CB = board_at(place, side, 0.6, camera=camera, far_m=far_m)
    corners = corners_from(camera, BOARD, X_CB, np.random.default_rng(0), noise_px=0.1)
    tilt = rough_tilt(BOARD, corners, model)
    assert tilt.nearer == side
    assert tilt.is_enough
    assert tilt.angle == pytest.approx(0.6, abs=0.2)


def test_a_board_seen_from_the_front_is_not_tilted():
    corners = corners_from(
        PINHOLE, BOARD, board_at((0.5, 0.5), "upper", 0.05), np.random.default_rng(0), noise_px=0.1
    )
    assert not rough_tilt(BOARD, corners).is_enough


def test_a_view_is_taken_once_and_another_place_or_another_side_makes_another():
    guide = ViewGuide(BOARD, num=40)
    assert "whole board" in guide.advice
    assert guide.coverage is None
    frontal = draw_board(BOARD, PINHOLE, board_at((0.5, 0.5), "upper", 0.05))
    assert guide.look(frontal).is_taken
    again = guide.look(frontal)
    assert not again.is_taken
    assert again.problem == ""
    aside = draw_board(BOARD, PINHOLE, board_at((0.3, 0.5), "upper", 0.05))
    assert guide.look(aside).is_taken
    tilted = draw_board(BOARD, PINHOLE, board_at((0.3, 0.5), "left", 0.6))
    assert guide.look(tilted).is_taken
    assert not guide.look(draw_board(BOARD, PINHOLE, board_at((0.31, 0.5), "left", 0.6))).is_taken
    assert dict(guide.tilted) == {"upper": 0, "right": 0, "lower": 0, "left": 1}
    assert (guide.num_pictures, guide.num_seen, len(guide.views)) == (5, 5, 3)
    assert guide.coverage is not None
    assert 0.0 < guide.coverage.share < 0.9
    assert not guide.is_over


def test_pictures_without_the_board_or_blurred_say_what_is_wrong_and_are_no_views():
    guide = ViewGuide(BOARD, num=40)
    assert "not seen" in guide.look(EMPTY).problem
    near = board_at((0.5, 0.5), "upper", 0.3, far_m=0.28)
    blurred = guide.look(draw_board(BOARD, PINHOLE, near, look=Look(blur_px=2.4)))
    assert "blurred" in blurred.problem
    assert blurred.corners.blur_px > 2.0
    assert guide.views == []
    assert (guide.num_pictures, guide.num_seen) == (2, 1)
    for _ in range(20):
        guide.look(EMPTY)
    assert len(guide.without) == 8


def test_it_ends_with_as_many_views_as_were_asked_for():
    guide = ViewGuide(BOARD, num=2)
    assert guide.num_wanted == 2
    for x in (0.3, 0.6):
        assert not guide.is_over
        assert guide.look(draw_board(BOARD, PINHOLE, board_at((x, 0.5), "upper", 0.3))).is_taken
    assert guide.is_over
