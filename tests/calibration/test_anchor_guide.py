"""Who is led to the views of an anchor gets one that can be trusted, and is told what a picture lacks."""

import numpy as np
import pinocchio as pin
import pytest

from calibration.anchor import solve_anchor
from calibration.anchor_guide import EVERY_NS, AnchorGuide, AnchorLook
from calibration.anchor_verdict import ENOUGH
from calibration.board import Board
from calibration.trajectory import LOST, OK
from sim.capture.board_scene import draw_board
from tests.calibration.board_views import FISHEYE, PINHOLE
from tests.calibration.test_anchor import error

BOARD = Board(columns=7, rows=5, square_m=0.05, marker_m=0.035)
CAMERAS = {"chest": PINHOLE, "hand": FISHEYE}
X_WB = pin.SE3(pin.exp3(np.array([np.pi, 0.0, 0.0])), np.array([0.5, 0.2, 0.0]))
X_WcWh = pin.SE3(pin.exp3(np.array([0.0, 0.0, 0.7])), np.array([1.0, -0.5, 0.1]))
PERIOD_NS = 10_000_000


def stand(*, tilt: float, side: float, far: float = 0.6) -> pin.SE3:
    """X_CB of a camera that looks at the board's middle. side: where it stands around it; both [rad]."""
    R = pin.exp3(tilt * np.array([np.cos(side), np.sin(side), 0.0]))
    return pin.SE3(R, np.array([0.0, 0.0, far]) - R @ BOARD.centre_B)


class Devices:
    """Both, each at one place at a time, on one clock."""

    def __init__(self, board: Board = BOARD) -> None:
        self.guide, self.now_ns = AnchorGuide(BOARD, CAMERAS), 0
        self._board, self._drawn = board, {}

    def look(
        self, role: str, X_CB: pin.SE3, *, turning: float = 0.0, tracking: int = OK, is_empty: bool = False
    ) -> AnchorLook | None:
        """One picture with poses before and after it. turning [rad/s]."""
        picture = np.full((*CAMERAS[role].size, 3), 90, np.uint8) if is_empty else self._picture(role, X_CB)
        X_W = X_WB if role == "chest" else X_WcWh.inverse() * X_WB
        for k in range(21):
            self.now_ns += PERIOD_NS
            turn = pin.SE3(pin.exp3(np.array([0.0, 0.0, turning * (k - 10) * PERIOD_NS / 1e9])), np.zeros(3))
            self.guide.hear(role, self.now_ns, X_W * X_CB.inverse() * turn, tracking)
            if k == 10:
                self.guide.see(role, self.now_ns, picture)
            if k == 12:
                assert self.guide.look() is None, "looked before the poses around the picture have come"
        return self.guide.look()

    def _picture(self, role: str, X_CB: pin.SE3) -> np.ndarray:
        key = role, X_CB.homogeneous.tobytes()
        if key not in self._drawn:
            grey = draw_board(self._board, CAMERAS[role], X_CB)
            self._drawn[key] = np.repeat(grey[..., None], 3, axis=2)
        return self._drawn[key]


def test_who_does_what_is_said_gets_an_anchor_that_can_be_trusted():
    devices, rng = Devices(), np.random.default_rng(0)
    for role in CAMERAS:
        number = 0
        while devices.guide.next_role == role:
            is_near = number % 2 and role == "chest"
            X_CB = stand(tilt=0.6, side=1.3 * number, far=0.45 if is_near or role == "hand" else 0.6)
            X_CB.translation += rng.normal(0.0, 0.01, 3)
            for _ in range(6):
                look = devices.look(role, X_CB)
                assert look is not None
                assert look.is_taken, look.problem
            number += 1
        assert len(devices.guide.progress[role].views) == ENOUGH
    assert devices.guide.advice == ""
    anchor = solve_anchor(BOARD, devices.guide.views("chest"), devices.guide.views("hand"))
    assert anchor.verdict.ok, str(anchor.verdict)
    off = error(anchor, X_WcWh)
    assert np.linalg.norm(off[:3]) < 1e-3
    assert np.linalg.norm(off[3:]) < np.deg2rad(0.1)


@pytest.mark.parametrize(
    ("why", "how"),
    [
        ("not seen", {"is_empty": True}),
        ("turning", {"turning": 0.3}),
        ("TRACKING LOST", {"tracking": LOST}),
    ],
)
def test_a_picture_that_makes_no_view_says_why(why, how):
    devices = Devices()
    look = devices.look("hand", stand(tilt=0.6, side=0.0), **how)
    assert look is not None
    assert why in look.problem
    assert not look.is_taken
    assert not devices.guide.progress["hand"].views


@pytest.mark.parametrize("hz", [1.0, 15.0, 30.0, 60.0])
def test_pictures_of_every_rate_are_looked_at(hz):
    guide, X_CB = AnchorGuide(BOARD, CAMERAS), stand(tilt=0.6, side=0.0)
    picture = np.full((*PINHOLE.size, 3), 90, np.uint8)
    num, next_s = 0, 0.0
    for k in range(400):
        t_ns = k * PERIOD_NS
        guide.hear("chest", t_ns, X_WB * X_CB.inverse(), OK)
        if t_ns / 1e9 >= next_s:
            guide.see("chest", t_ns, picture)
            next_s += 1.0 / hz
        num += guide.look() is not None
    assert min(4.0 * hz - 1.0, 18.0) <= num <= 1 + 4e9 / EVERY_NS  # a pose has to come 50 ms after each


@pytest.mark.parametrize("every", [10, 20])
def test_poses_that_come_too_seldom_are_named(every):
    guide, X_CB = AnchorGuide(BOARD, CAMERAS), stand(tilt=0.6, side=0.0)
    picture = np.repeat(draw_board(BOARD, PINHOLE, X_CB)[..., None], 3, axis=2)
    looks = []
    for k in range(100):
        if k % every == 0:
            guide.hear("chest", k * PERIOD_NS, X_WB * X_CB.inverse(), OK)
        guide.see("chest", k * PERIOD_NS, picture)
        looks.append(guide.look())
    problems = {look.problem for look in looks if look}
    assert problems == {"too few poses around the image's time: expected 20 a second"}


def test_another_board_is_not_taken_for_this_one():
    devices = Devices(Board(columns=9, rows=7, square_m=0.03, marker_m=0.021))
    look = devices.look("chest", stand(tilt=0.6, side=0.0))
    assert look is not None
    assert not look.is_taken
    assert look.problem


def test_from_one_place_no_more_is_taken_than_helps():
    devices = Devices()
    looks = [devices.look("chest", stand(tilt=0.6, side=0.0)) for _ in range(8)]
    assert [look.is_taken for look in looks if look] == [True] * 6 + [False] * 2
    assert "elsewhere" in looks[-1].problem
    assert devices.guide.advice.startswith("chest: hold still, then look from elsewhere")


def test_views_from_the_front_are_not_all_that_is_taken():
    devices = Devices()
    looks = [devices.look("chest", stand(tilt=0.05, side=0.0, far=0.45 + 0.05 * (k // 4))) for k in range(16)]
    assert sum(look.is_taken for look in looks if look) == 9  # three tenths of those that are enough
    assert "from the front again" in looks[-1].problem


def test_one_side_of_the_board_is_not_enough():
    devices = Devices()
    for k in range(ENOUGH):
        devices.look("chest", stand(tilt=0.6, side=0.04 * (k // 5), far=0.45 + 0.04 * (k // 5)))
    assert devices.guide.advice == "chest: look from another side of the board"
